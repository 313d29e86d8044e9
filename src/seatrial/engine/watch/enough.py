"""When a run has been measured long enough: its median is known, its time is spent, or it is certain to lose.

    enough = Enough(training, gbs=16)
    enough.after(0.52, gbs=16)          "" to go on, else the reason in a word: known, time, slow

Rank 0 asks after every iteration. What it decides reaches the other ranks with the next iteration's own sum, so one more is
run; it counts like the others.
"""
from __future__ import annotations

from seatrial.median import median_of
from seatrial.training import Training

FIRST_LOOKS = 3
"""Iterations after the warm-up before a run can be called slow: the fastest of them is compared."""


class Enough:
    def __init__(self, training: Training, *, gbs: int):
        self.training, self.gbs = training, gbs
        self.asked = training.known_to > 0 or training.measure_s is not None or training.slow_s is not None
        self.reason = ""
        self.spent_s = 0.0
        self._size = 0
        self._timings: list[float] = []
        self._next_look = 6

    def after(self, seconds: float, *, gbs: int) -> str:
        if self.asked:
            self.reason = self._reason(seconds, gbs)
        return self.reason

    def _reason(self, seconds: float, gbs: int) -> str:
        """A smaller batch (ramp-up) is another measurement: it is neither mixed in nor stopped at."""
        self.spent_s += seconds
        if gbs != self._size:
            self._size, self._timings, self._next_look = gbs, [], 6
        self._timings.append(seconds)
        timed = self._timings[self.training.warmup_iterations :]
        if self.training.measure_s is not None and self.spent_s >= self.training.measure_s and timed and gbs == self.gbs:
            return "time"
        if gbs < self.gbs:
            return ""
        if self.training.slow_s is not None and len(timed) >= FIRST_LOOKS and min(timed) > self.training.slow_s:
            return "slow"
        if self.training.known_to and len(timed) >= self._next_look:
            # Looking after every iteration would sooner or later find a narrow interval by luck.
            self._next_look = len(timed) * 4 // 3 + 1
            if median_of(timed).within(self.training.known_to):
                return "known"
        return ""
