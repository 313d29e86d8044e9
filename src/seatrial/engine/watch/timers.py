"""Where an iteration's time went: timers that never count a second twice.

    timers = Timers("cpu")
    with timers("forward"):
        with timers("tp_comm"):         taken out of "forward" while it runs
            ...
    timers.take()                       {"forward": …, "tp_comm": …} in seconds, and starts anew

At any moment at most one timer runs, the innermost. On a GPU each change of timer records a CUDA event on the current stream,
so that the host never waits inside an iteration; `take` waits once, at its end. What no timer covers is not in the sum: the
loop compares the sum with the wall clock, and there is no catch-all.
"""
from __future__ import annotations

import itertools
import time
from typing import NamedTuple

import torch


class Span(NamedTuple):
    """One stretch of one timer, for a trace; seconds since the last `take`."""

    name: str
    start_s: float
    end_s: float


class Timers:
    def __init__(self, device_type: str = "cpu"):
        self._clock: _HostClock | _CudaClock = _CudaClock() if device_type == "cuda" else _HostClock()
        self._stack: list[str] = []
        self._handles: dict[str, _Handle] = {}
        self.keep_spans = False
        """While true, `spans` is filled by `take`."""
        self.spans: list[Span] = []

    def __call__(self, name: str) -> _Handle:
        handle = self._handles.get(name)
        if handle is None:
            handle = self._handles[name] = _Handle(self, name)
        return handle

    def _push(self, name: str) -> None:
        self._stack.append(name)
        self._clock.change(name)

    def _pop(self) -> None:
        self._stack.pop()
        self._clock.change(self._stack[-1] if self._stack else "")

    def runs(self, name: str) -> bool:
        """Whether the timer is open, be it innermost or not."""
        return name in self._stack

    def take(self) -> dict[str, float]:
        """Seconds by timer since the last call. A timer still open goes on counting from here."""
        marks = self._clock.take(self._stack[-1] if self._stack else "")
        totals: dict[str, float] = {}
        for (name, start_s), (_, end_s) in itertools.pairwise(marks):
            if name:
                totals[name] = totals.get(name, 0.0) + end_s - start_s
        if self.keep_spans:
            self.spans = [Span(name, start_s, end_s) for (name, start_s), (_, end_s) in itertools.pairwise(marks) if name]
        return totals


class _Handle:
    """Reusable and re-entrant: entering is one push, so that the hot path makes no object."""

    __slots__ = ("_name", "_timers")

    def __init__(self, timers: Timers, name: str):
        self._timers = timers
        self._name = name

    def __enter__(self) -> None:
        self._timers._push(self._name)

    def __exit__(self, *_: object) -> None:
        self._timers._pop()


class _HostClock:
    """(name from now on, when) pairs from the host's clock."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, float]] = [("", time.perf_counter())]

    def change(self, name: str) -> None:
        self._marks.append((name, time.perf_counter()))

    def take(self, name: str) -> list[tuple[str, float]]:
        now = time.perf_counter()
        marks = [*self._marks, ("", now)]
        self._marks = [(name, now)]
        first = marks[0][1]
        return [(n, t - first) for n, t in marks]


class _CudaClock:
    """The same pairs from events on the stream: the GPU's own time, read once an iteration."""

    def __init__(self) -> None:
        self._free: list[torch.cuda.Event] = []
        self._marks: list[tuple[str, torch.cuda.Event]] = []
        self.change("")

    def change(self, name: str) -> None:
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((name, event))

    def take(self, name: str) -> list[tuple[str, float]]:
        self.change(name)
        last = self._marks[-1]
        last[1].synchronize()
        first = self._marks[0][1]
        seconds = [(n, first.elapsed_time(e) / 1e3) for n, e in self._marks]
        seconds[-1] = ("", seconds[-1][1])
        self._free += [e for _, e in self._marks[:-1]]
        self._marks = [last]
        return seconds
