"""Functions that compiled blocks call as they are. `torch.compiler.disable` imports the compiler, which takes as long as torch
itself: here it is applied only where something is to be compiled.

    @eager
    def _apply(...): ...
    before_compiling()      once, before the first block is compiled
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Eager:
    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)


_known: list[Eager] = []


def eager(function: Callable[..., Any]) -> Eager:
    found = Eager(function)
    _known.append(found)
    return found


def before_compiling() -> None:
    while _known:
        known = _known.pop()
        known.function = torch.compiler.disable(known.function)
