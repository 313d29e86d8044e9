"""Tensors without memory: shapes, types and lifetimes as in a real step, for ranks that do not fit here.

    with no_memory():
        engine = StandIn(...)
        with tracker(engine) as live, Answers(engine): engine.step(...)

The engine asks a step's tensors for numbers once or twice (the loss, whether anything overflowed); `Answers` makes them up.
"""
from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seatrial.engine.core import init
from seatrial.engine.core.step import Engine


@contextlib.contextmanager
def no_memory() -> Iterator[None]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with first_values_in_pieces(1 << 62), FakeTensorMode(), warnings.catch_warnings():
        # Whether two tensors begin at one address is asked of all tensors; these have none, and it is no matter.
        warnings.filterwarnings("ignore", message=".*data pointer of FakeTensor")
        yield


@contextlib.contextmanager
def first_values_in_pieces(numbers: int) -> Iterator[None]:
    """So many at once: what is made does not depend on it, only how long it takes."""
    before, init.CHUNK = init.CHUNK, numbers
    try:
        yield
    finally:
        init.CHUNK = before


class Answers(TorchDispatchMode):
    """Every number that the host asks for is 0, but the optimizer's count of steps, which is 1."""

    def __init__(self, engine: Engine):
        super().__init__()
        self._steps = engine.optimizer.steps_done.untyped_storage()._cdata

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return 1.0 if args[0].untyped_storage()._cdata == self._steps else 0.0
        return func(*args, **(kwargs or {}))


