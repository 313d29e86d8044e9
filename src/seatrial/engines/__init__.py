"""Programs that train, behind one interface: ours, any command, and those that other distributions register.

    adapter = engine_for(trial)                     by the trial's `engine`, or its [command]
    ENGINES.names()                                 seatrial, megatron, command and what is installed

    [project.entry-points."seatrial.engines"]       in the pyproject.toml of somebody else's distribution
    titan = "our_titan.adapter:Titan"
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from seatrial import fields
from seatrial.registry import Registry

if TYPE_CHECKING:
    from seatrial.engines.base import Adapter
    from seatrial.spec import Trial

ENGINES = Registry("engine", group="seatrial.engines", builtin={
    "seatrial": "seatrial.engines.ours:Ours", "megatron": "seatrial.engines.command:Command",
    "command": "seatrial.engines.command:Command",
})  # fmt: skip
"""`megatron` is a set of rules: what is run is the [command] that the user gives."""


def engine_name(value: object) -> str:
    """As a file gives it. Raises BadInput that names the known ones."""
    name = fields.convert(value, str, where="engine")
    ENGINES.check(name)
    return name


def engine_for(trial: Trial) -> Adapter:
    found: Adapter = ENGINES.get("command" if trial.command is not None else trial.engine)()
    return found
