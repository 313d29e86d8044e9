"""Where an engine is installed: the Python that has it, which is rarely ours.

    python_of("torchtitan", "torchtitan", trial)     environment.python, .engines/torchtitan, or our own where it has it

`make engines` makes an environment for each under .engines; SEATRIAL_ENGINES names another folder of such.
"""
from __future__ import annotations

import functools
import importlib.util
import os
import sys
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.spec import Trial

FOLDER = "SEATRIAL_ENGINES"
MADE = ("torchtitan", "deepspeed", "megatron-core", "accelerate")
"""Those that the Makefile knows."""


def folder() -> Path:
    """Where the engines' environments lie."""
    if given := os.environ.get(FOLDER):
        return Path(given)
    here = Path(".engines")
    checkout = Path(__file__).resolve().parents[3] / ".engines"
    return here if here.is_dir() or not checkout.is_dir() else checkout


def version(name: str) -> str:
    """Of an engine that has an environment of its own; empty where it has none."""
    folders = sorted((folder() / name).glob(f"lib/python*/site-packages/{name.replace('-', '_')}-*.dist-info"))
    return folders[0].name.removesuffix(".dist-info").rpartition("-")[2] if folders else ""


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
