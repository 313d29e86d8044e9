"""Which kernel was chosen for which product on this machine in an earlier run: a second's work each, not to be repeated.

    notebook = Notebook(device)
    notebook.get(form)                  Choice(code, torch_ms, ms), or None
    notebook.put(form, choice)
    notebook.save()                     beside what other processes wrote meanwhile

A file for each kind of device and version of the library, in the user's cache. One that cannot be read is as none, one that
cannot be written is left; so it is with a user who has no home, as in many containers.
"""
from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from seatrial.engine.fast.cublaslt import Form, version
from seatrial.files import write_whole

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Choice:
    code: str
    """The kernel's; empty where torch's own was the fastest."""
    torch_ms: float
    ms: float


class Notebook:
    def __init__(self, device: torch.device, folder: Path | None = None):
        kind = re.sub(r"\W+", "-", torch.cuda.get_device_name(device)).lower() if device.type == "cuda" else "cpu"
        self.path = (folder or cache_folder()) / f"products-{kind}-{version()}.json"
        self._known = self._read()
        self._new: dict[str, Any] = {}

    def get(self, form: Form) -> Choice | None:
        try:
            known = self._known[repr(form)]
            return Choice(code=bytes.fromhex(known["code"]).hex(), torch_ms=float(known["torch_ms"]), ms=float(known["ms"]))
        except (KeyError, TypeError, ValueError):
            return None

    def put(self, form: Form, choice: Choice) -> None:
        if self._known.get(repr(form)) != asdict(choice):
            self._new[repr(form)] = self._known[repr(form)] = asdict(choice)

    def save(self) -> None:
        if not self._new:
            return
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps({"schema": SCHEMA, "choices": self._read() | self._new}, indent=1) + "\n")

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            return dict(found["choices"]) if found["schema"] == SCHEMA else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}


def cache_folder() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seatrial"
    except RuntimeError:
        return Path(os.devnull) / "seatrial"
