"""What a collective adds to the work around it, as in a block of a model.

    between = Between.on(crew)                  a product of a few milliseconds; all ranks have the same one
    between.adds(crew, call, floor_s=…)         Sample: a product and the call, less a product alone

Ranks that computed come to a collective one after the other, with caches full of other things, and on a CPU its threads have to
be woken. Calls back to back pay none of that, a step pays all of it. On a GPU the call waits in its stream and wakes nobody:
there it is timed back to back.
"""
from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seatrial.probe.crew import Crew
from seatrial.probe.timing import Sample, summary

COLS, INNER = 1024, 256
"""Of the product: the first of a feed-forward, in a model that a CPU trains."""
WANTED_S = 3e-3
ROWS = (64, 2048)
"""At the least and at the most, whatever the machine."""
AT_ONCE = 4
"""Of one sort before the other's turn, so that a change of the machine hits both."""
ROUNDS = (3, 8)
SPENT_S = 0.2
"""For one figure, where the fewest rounds allow it."""


class Between(NamedTuple):
    rows: int
    s: float
    x: Tensor
    weight: Tensor

    @classmethod
    def on(cls, crew: Crew) -> Between:
        weight = torch.ones(COLS, INNER, device=crew.device)
        x = torch.ones(ROWS[0], INNER, device=crew.device)
        # The least: what it takes when nobody else has the core, so that two probes of a machine have the same product.
        once = max(one[0] for one in crew.share(min(_seconds(lambda: x @ weight.t()) for _ in range(20))))
        rows = min(ROWS[1], max(ROWS[0], round(WANTED_S / once) * ROWS[0]))
        whole = torch.ones(rows, INNER, device=crew.device)
        took = max(one[0] for one in crew.share(median(_seconds(lambda: whole @ weight.t()) for _ in range(9))))
        return cls(rows, took, whole, weight)

    def told(self) -> dict[str, Any]:
        """For machine.json: how its collectives were measured."""
        return {"rows": self.rows, "cols": COLS, "inner": INNER, "s": float(f"{self.s:.3g}")}

    def adds(self, crew: Crew, call: Callable[[], object], *, once_s: float, floor_s: float) -> Sample:
        """The slowest rank's; never less than `floor_s`, the least that the call was seen to take by itself."""
        rounds = min(ROUNDS[1], max(ROUNDS[0], round(SPENT_S / AT_ONCE / (2 * self.s + once_s))))
        alone: list[float] = []
        both: list[float] = []
        for _ in range(rounds):
            call()  # all begin together
            both += [_seconds(lambda: (self._work(), call())) for _ in range(AT_ONCE)]
            alone += [_seconds(self._work) for _ in range(AT_ONCE)]
        work_s = median(alone)
        mine = summary([max(floor_s, seconds - work_s) for seconds in both])
        every = crew.share(mine.s, mine.spread)
        return Sample(s=max(one[0] for one in every), spread=max(one[1] for one in every), repeats=len(both))

    def _work(self) -> Tensor:
        return self.x @ self.weight.t()


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
