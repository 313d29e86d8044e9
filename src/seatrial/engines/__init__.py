"""Programs that train, behind one interface: ours, any command, and those that other distributions register.

    adapter = engine_for(trial)                     by the trial's `engine`, or its [command]
    ENGINES.names()                                 seatrial, command, the engines of `model.py` and what is installed
    model.model_of("torchtitan")                    what the planner knows of one

    [project.entry-points."seatrial.engines"]       in the pyproject.toml of somebody else's distribution
    titan = "our_titan.adapter:Titan"
"""
from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial import fields
from seatrial.registry import Registry

if TYPE_CHECKING:
    from seatrial.engines.base import Adapter
    from seatrial.spec import Trial

COMMAND = "seatrial.engines.command:Command"
ENGINES = Registry("engine", group="seatrial.engines", builtin={
    "seatrial": "seatrial.engines.ours:Ours",
    "torchtitan": "seatrial.engines.torchtitan:Torchtitan",
    "fsdp2": "seatrial.engines.described:Fsdp2",
    "deepspeed": "seatrial.engines.described:Deepspeed",
    "megatron-core": "seatrial.engines.described:MegatronCore",
    "megatron-lm": "seatrial.engines.megatron_lm:MegatronLM",
    "accelerate": "seatrial.engines.described:Accelerate",
    **dict.fromkeys(("megatron", "megatron-deepspeed", "fsdp1", "plain-3d", "command"), COMMAND),
})  # fmt: skip
"""Of those without an adapter of their own rules and forecasts are known: what is run is the [command] that the user gives."""


def started() -> list[str]:
    """Those that are run by their name alone."""
    return [name for name in ENGINES.names() if ENGINES.builtin.get(name) != COMMAND]


def engine_name(value: object) -> str:
    """As a file gives it: a name, an alias, or the file of one's own engine. Raises BadInput that names the known ones."""
    from seatrial.engines import model

    name = fields.convert(value, str, where="engine")
    if name.endswith(".toml"):
        model.model_of(name)
    elif not model.known(name):
        ENGINES.check(name)
    return name


def engine_for(trial: Trial) -> Adapter:
    return named("command" if trial.command is not None else trial.engine)


def named(name: str) -> Adapter:
    """An alias or an engine's file says what is forecast and no program, unless the file has a [command] of its own."""
    if name.endswith(".toml"):
        described = import_module("seatrial.engines.described")  # as those above are: it needs the rules, and they the engines
        if described.describes(name):
            return described.Described(Path(name))  # type: ignore[no-any-return]
    found: Adapter = ENGINES.get(name if name in ENGINES.builtin or not _described(name) else "command")()
    return found


def _described(name: str) -> bool:
    from seatrial.engines import model

    return name.endswith(".toml") or model.known(name)
