"""One figure before it is measured: which part it belongs to, what identifies it, and what to time."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Works = dict[str, Callable[[], object]]
"""What is timed, by the figure's key: `s`, or `forward_s` and `both_s`, of which the backward pass is the difference."""


class Item(NamedTuple):
    part: str
    what: dict[str, Any]
    prepare: Callable[[], Works]
    """Makes the tensors; may run out of memory."""
    on_host: bool = False
    """Whether the host's time counts, and not the device's."""

    @property
    def label(self) -> str:
        return " ".join([self.part, *(f"{v}" if isinstance(v, str) else f"{k} {v}" for k, v in self.what.items())])
