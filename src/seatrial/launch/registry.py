"""Launchers by name, as the user has set them up for this machine.

    # ~/.config/seatrial/config.toml, or the file that SEATRIAL_CONFIG or --config names: a table per launcher
    [slurm]
    options = { account = "abc", partition = "gpu_p5", exclusive = "" }
    preamble = ["module purge", "module load cuda/12.4"]
    python = "/opt/train/bin/python"

    with opened("slurm") as launcher: ...           its table given to the constructor; closed at the end
    LAUNCHERS.names()                               local, slurm, pjm and what is installed

The preamble is shell text and the only one there is: it comes from this file, which is the user's own, and never from a trial.
"""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial import fields
from seatrial.errors import BadInput
from seatrial.registry import Registry

if TYPE_CHECKING:
    from seatrial.launch.base import Launcher

VARIABLE = "SEATRIAL_CONFIG"
LAUNCHERS = Registry("launcher", group="seatrial.launchers", builtin={
    "local": "seatrial.launch.local:Local", "slurm": "seatrial.launch.slurm:Slurm", "pjm": "seatrial.launch.pjm:Pjm",
})  # fmt: skip


def load(path: str | os.PathLike[str] | None = None) -> dict[str, Launcher.Settings]:
    """From `path`, else from where SEATRIAL_CONFIG points, else from the user's folder; nothing there means defaults."""
    from seatrial import presets

    named = path or os.environ.get(VARIABLE)
    # A user without a home, as in many containers, has no folder either: the path stays as it is, and nothing is there.
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    file = Path(named) if named else Path(folder) / "seatrial/config.toml"
    if not named and not file.exists():
        return {}
    found = {}
    for name, table in presets.read_toml(file).items():
        try:
            LAUNCHERS.check(name)
        except BadInput as error:
            raise BadInput(f"{file}: {error}") from None
        found[name] = fields.build(LAUNCHERS.get(name).Settings, table, where=f"{file}.{name}")
    return found


def launcher(name: str, settings: Launcher.Settings | None = None) -> Launcher:
    """The launcher of that name; without settings as its defaults are."""
    kind: Any = LAUNCHERS.get(name)
    settings = settings or kind.Settings()
    found: Launcher = kind(**{f.name: getattr(settings, f.name) for f in dataclass_fields(settings)})
    return found


@contextlib.contextmanager
def opened(name: str, config: Path | None = None, *, allocation: int | None = None,
           time_s: float = 3600.0) -> Iterator[Launcher]:
    """As the user's configuration has it; with `allocation`, one allocation of so many nodes for all trials."""
    kind: type[Launcher] = LAUNCHERS.get(name)
    settings = load(config).get(name, kind.Settings())
    if lacks := kind.missing():
        raise BadInput(f"--launcher {name}: {lacks}")
    if allocation is not None:
        with kind.allocation(nodes=allocation, time_limit_s=time_s, settings=settings) as granted:
            yield granted
        return
    with contextlib.closing(launcher(name, settings)) as chosen:
        yield chosen
