"""TensorBoard scalars, when TensorBoard is installed; silence otherwise.

    scalars = Scalars(Path("out/tensorboard"))      .write(step, {"loss": 2.5})
"""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Scalars:
    def __init__(self, folder: Path | None):
        """`None`, or no TensorBoard here: every call does nothing, and `available` says so."""
        self._writer: Any = None
        if folder is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            self._writer = SummaryWriter(str(folder))

    @property
    def available(self) -> bool:
        return self._writer is not None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
