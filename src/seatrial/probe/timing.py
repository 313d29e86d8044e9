"""How long something takes: the median of repeats, and how far they lie apart; and what is timed.

    clock = Clock(torch.device("cpu"), target_s=0.1)
    clock(lambda: x @ w)            Sample(s=0.00123, spread=0.02, repeats=40)

On a CUDA device work is queued ahead of the device, so that what the host takes to start a kernel is not in the kernel's time.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

LEAST, MOST = 3, 60
"""Repeats of a figure."""
SHORT_S = 50e-6
"""On a CPU, calls shorter than this are timed several at once."""
SLICE_S = 3e-3
"""On a GPU, so much is timed between two events."""
QUEUED = 64
"""The most calls between two events."""


class Sample(NamedTuple):
    s: float
    spread: float
    """Half of the range that the middle two thirds lie in, as a share of the median."""
    repeats: int


def summary(times_s: Sequence[float]) -> Sample:
    ordered = sorted(times_s)
    n = len(ordered)
    median = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    low, high = ordered[round((n - 1) * 0.16)], ordered[round((n - 1) * 0.84)]
    return Sample(s=median, spread=(high - low) / 2 / median if median else 0.0, repeats=n)


Works = dict[str, Callable[[], object]]
"""What is timed, by the figure's key: `s`, or `forward_s` and `both_s`, of which the backward pass is the difference."""


class Item(NamedTuple):
    """One figure before it is measured: which part it belongs to, what identifies it, and what to time."""

    part: str
    what: dict[str, Any]
    prepare: Callable[[], Works]
    """Makes the tensors; may run out of memory."""
    on_host: bool = False
    """Whether the host's time counts, and not the device's."""

    @property
    def label(self) -> str:
        return " ".join([self.part, *(f"{v}" if isinstance(v, str) else f"{k} {v}" for k, v in self.what.items())])


class Clock:
    def __init__(self, device: torch.device, *, target_s: float):
        self.device, self.target_s = device, target_s

    def __call__(self, work: Callable[[], object]) -> Sample:
        return self.host(work) if self.device.type == "cpu" else self._cuda(work)

    def host(self, work: Callable[[], object]) -> Sample:
        """What the host takes; a device may still be at work."""
        work()
        once = max(seconds(work), 1e-7)
        calls = max(1, round(SHORT_S / once))
        repeats = max(LEAST, min(MOST, round(self.target_s / (once * calls))))
        return summary([seconds(work, calls) / calls for _ in range(repeats)])

    def _cuda(self, work: Callable[[], object]) -> Sample:
        for _ in range(2):
            work()
        torch.cuda.synchronize(self.device)
        began = time.perf_counter()
        for _ in range(3):
            work()
        host_s = (time.perf_counter() - began) / 3
        torch.cuda.synchronize(self.device)
        once = max((time.perf_counter() - began) / 3, 1e-7)
        calls = max(1, min(QUEUED, round(SLICE_S / once)))
        # While the device sleeps the host gets ahead of it.
        ahead_s = host_s * calls if host_s > 0.5 * once else 0.0
        repeats = max(5, min(MOST, round(self.target_s / (once * calls))))
        return summary([self._queued(work, calls, ahead_s) for _ in range(repeats)])

    def _queued(self, work: Callable[[], object], calls: int, ahead_s: float) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if ahead_s:
            torch.cuda._sleep(int(2e9 * 1.5 * ahead_s))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / calls


def seconds(work: Callable[[], object], calls: int = 1) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        work()
    return time.perf_counter() - began
