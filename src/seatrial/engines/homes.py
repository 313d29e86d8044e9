"""Where an engine is installed: the Python that has it, which is rarely ours, and of one in no package the checkout.

    python_of("torchtitan", "torchtitan", trial)     environment.python, .engines/torchtitan, or our own where it has it
    checkout("megatron-lm", trial)                   what MEGATRON_DIR names, or .engines/megatron-lm/Megatron-LM

`make engines` makes an environment for each under .engines; SEATRIAL_ENGINES names another folder of such.
"""
from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.spec import Trial

FOLDER = "SEATRIAL_ENGINES"
CHECKOUTS = {"megatron-lm": ("MEGATRON_DIR", "Megatron-LM", "pretrain_gpt.py")}
"""Engines whose training scripts are in no package: the variable that names the user's checkout, its usual name, and what is
started of it."""
MADE = ("torchtitan", "deepspeed", "megatron-core", "megatron-lm", "accelerate")
"""Those that the Makefile knows."""


def folder() -> Path:
    """Where the engines' environments lie."""
    if given := os.environ.get(FOLDER):
        return Path(given)
    here = Path(".engines")
    checkout = Path(__file__).resolve().parents[3] / ".engines"
    return here if here.is_dir() or not checkout.is_dir() else checkout


def version(name: str) -> str:
    """Of an engine that has an environment, or a checkout, of its own; empty where it has none."""
    if name in CHECKOUTS:
        return "" if (path := _checkout(name)) is None else version_in(path)
    folders = sorted((folder() / name).glob(f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info"))
    return folders[0].name.removesuffix(".dist-info").rpartition("-")[2] if folders else ""


def version_in(checkout: Path) -> str:
    """Of the core in a checkout of Megatron-LM, read and not imported: that takes a device."""
    try:
        text = (checkout / "megatron/core/package_info.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "?"
    return ".".join(re.findall(r"^(?:MAJOR|MINOR|PATCH) = (\d+)", text, re.MULTILINE)) or "?"


def checkout(name: str, trial: Trial) -> Path:
    """Raises BadInput that says how to name one."""
    variable, usual, script = CHECKOUTS[name]
    if (path := _checkout(name, named := trial.environment.variables.get(variable))) is not None:
        return path
    named = named or os.environ.get(variable)
    said = f"{variable} {named} has no {script}" if named else f"{variable} does not name a checkout of it"
    raise BadInput(f"engine {name}: {said}: its training scripts are in no package; set {variable}, or put the checkout at "
                   f"{folder() / name / usual}. What the package index has of it is engine megatron-core")


def place(name: str) -> Path:
    """Where the engine that `version` tells of lies."""
    return _checkout(name) or folder() / name if name in CHECKOUTS else folder() / name


def _checkout(name: str, named: str | None = None) -> Path | None:
    variable, usual, script = CHECKOUTS[name]
    named = named or os.environ.get(variable)
    path = Path(named).expanduser() if named else folder() / name / usual
    return path.absolute() if (path / script).is_file() else None


def found(name: str, module: str) -> str:
    """The Python that has an engine; empty where none is known."""
    own = folder() / name / "bin" / "python"
    if own.exists():
        return str(own.absolute())
    return sys.executable if _importable(module) else ""


def python_of(name: str, module: str, trial: Trial) -> str:
    """Raises BadInput that says what to install."""
    if python := trial.environment.python or found(name, module):
        return python
    puts = f"`make engines ENGINES={name}` puts it into" if name in MADE else "its environment would be"
    raise BadInput(f"engine {name}: {module} is not installed here: {puts} {folder() / name}; {FOLDER} names another folder, "
                   "environment.python a Python that has it")


@functools.cache
def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
