"""When what happened on this rank: actions, collectives under way, and what does not count, on the device's own clock.

    recorder = Recorder("cuda")
    recorder.mark("forward", microbatch=0, chunk=0)         an action begins, and the one before ends
    number = recorder.issue("all_reduce", "tp", size_bytes)
    recorder.wait(number)
    with recorder.aside():                                  taken out of the action that it falls into
        ...
    recorder.take()                                         the moments so far, in seconds

On a GPU each moment is an event on the stream, so that recording never waits; `take` waits once.
"""
from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch


@dataclass(frozen=True, kw_only=True)
class Moment:
    kind: Literal["mark", "issue", "wait", "aside", "back"]
    at_s: float
    phase: str = ""
    """Of a mark: forward, backward, weight, reduce, optimizer, or end."""
    microbatch: int = 0
    number: int = 0
    """Of a collective: the same where it was issued and where it was waited for."""
    name: str = ""
    group: str = ""
    size_bytes: int = 0


class Recorder:
    def __init__(self, device_type: str):
        self._cuda = device_type == "cuda"
        self._moments: list[Moment] = []
        self._events: list[torch.cuda.Event] = []
        self._issued = 0

    def _note(self, moment: Moment) -> None:
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        self._moments.append(moment)

    def _now(self) -> float:
        return 0.0 if self._cuda else time.perf_counter()

    def mark(self, phase: str, microbatch: int = 0) -> None:
        self._note(Moment(kind="mark", at_s=self._now(), phase=phase, microbatch=microbatch))

    def issue(self, name: str, group: str, size_bytes: int) -> int:
        self._issued += 1
        self._note(Moment(kind="issue", at_s=self._now(), number=self._issued, name=name, group=group, size_bytes=size_bytes))
        return self._issued

    def wait(self, number: int) -> None:
        self._note(Moment(kind="wait", at_s=self._now(), number=number))

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        self._note(Moment(kind="aside", at_s=self._now()))
        yield
        self._note(Moment(kind="back", at_s=self._now()))

    def take(self) -> list[Moment]:
        moments, self._moments = self._moments, []
        if self._cuda and moments:
            events, self._events = self._events, []
            events[-1].synchronize()
            moments = [replace(m, at_s=events[0].elapsed_time(e) / 1e3) for m, e in zip(moments, events, strict=True)]
        return moments
