"""What a user sets once for a machine: how jobs are started there.

    # ~/.config/seatrial/config.toml, or the file that SEATRIAL_CONFIG or --config names
    [slurm]
    options = { account = "abc", partition = "gpu_p5", exclusive = "" }
    preamble = ["module purge", "module load cuda/12.4"]
    python = "/opt/train/bin/python"

    launcher("slurm", load())

The preamble is shell text and the only one there is: it comes from this file, which is the user's own, and never from a trial.
"""
from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from seatrial import fields
from seatrial.errors import BadInput
from seatrial.launch.base import Launcher

VARIABLE = "SEATRIAL_CONFIG"
NAMES = ("local", "slurm", "pjm")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch system."""

    options: dict[str, str] = field(default_factory=dict)
    """Given with every job; a trial's own scheduler options go over them."""
    preamble: tuple[str, ...] = ()
    """Lines of shell before the job's own: modules, licences."""
    python: str = ""
    """The interpreter on the nodes; by default this one."""


@dataclass(frozen=True, kw_only=True)
class Config:
    slurm: Batch = field(default_factory=Batch)
    pjm: Batch = field(default_factory=Batch)


def load(path: str | os.PathLike[str] | None = None) -> Config:
    """From `path`, else from where SEATRIAL_CONFIG points, else from the user's folder; nothing there means defaults."""
    from seatrial import presets

    named = path or os.environ.get(VARIABLE)
    # A user without a home, as in many containers, has no folder either: the path stays as it is, and nothing is there.
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    file = Path(named) if named else Path(folder) / "seatrial/config.toml"
    if not named and not file.exists():
        return Config()
    return fields.build(Config, presets.read_toml(file), where=str(file))


def launcher(name: str, config: Config | None = None) -> Launcher:
    """The launcher of that name, as the user's configuration has it."""
    config = config or Config()
    if name == "local":
        from seatrial.launch.local import Local

        return Local()
    if name == "slurm":
        from seatrial.launch.slurm import Slurm

        return Slurm(options=config.slurm.options, preamble=config.slurm.preamble, python=config.slurm.python or sys.executable)
    if name == "pjm":
        from seatrial.launch.pjm import Pjm

        return Pjm(options=config.pjm.options, preamble=config.pjm.preamble, python=config.pjm.python or sys.executable)
    raise BadInput(f"launcher {name!r}: {fields.nearest(name, NAMES)}")
