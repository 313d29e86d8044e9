"""A program that is not ours, watched while it runs by the log that it writes: when enough is measured, and when it is silent.

    follow = Follow.of(trial, recipe, run_dir)          None for our own engine, whose ranks watch themselves
    follow.look(time.monotonic())                       called often; "enough" and "silent" are said once

Enough is what the recipe says: the median known, the time spent, certain to lose. Silent is no new line for
`recipe.stall_s` and ten of its longest steps, before the first step for `start_s` (`compile_s`). Both leave a file in the run
folder, by which the outcome is known and the stacks of all ranks are asked for.
"""
from __future__ import annotations

import time
from pathlib import Path

from seatrial.engines import engine_for
from seatrial.engines.base import Event
from seatrial.engines.foreign import Foreign, logs
from seatrial.engines.scripted import Scripted
from seatrial.launch import files
from seatrial.measurement import measure, number
from seatrial.recipe import Recipe
from seatrial.spec import Trial

LOOK_S = 1.0
COSTS = 20
"""Reading a log anew may take this part of the time."""
STEPS = 10
"""So many of the longest steps without a line are no slow step any more."""


class Follow:
    def __init__(self, trial: Trial, recipe: Recipe, run_dir: Path, engine: Foreign):
        self.trial, self.recipe, self.run_dir, self.engine = trial, recipe, run_dir, engine
        self._next = self._written = 0.0
        self._size = -1
        self._events: list[Event] = []
        self._done = False
        self._speaks = engine.speaks(trial) if isinstance(engine, Scripted) and engine.per(trial) == "rank" else None

    @classmethod
    def of(cls, trial: Trial, recipe: Recipe, run_dir: Path) -> Follow | None:
        engine = engine_for(trial)
        return cls(trial, recipe, run_dir, engine) if isinstance(engine, Foreign) else None

    def look(self, now: float) -> str:
        if self._done or now < self._next:
            return ""
        began = time.monotonic()
        size = sum(_size(path) for path in logs(self.run_dir))
        if size != self._size:
            self._size, self._written = size, now
            self._events = self.engine.read(self.run_dir, rank=self._speaks)
        self._next = now + max(LOOK_S, COSTS * (time.monotonic() - began))
        if why := self._enough():
            self._leave(files.enough(self.run_dir), why)
            return "enough"
        if self._silent(now):
            self._leave(files.alarm(self.run_dir), f"no line for {now - self._written:.0f} s")
            return "silent"
        return ""

    def _leave(self, path: Path, why: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(why + "\n")
        self._done = True

    def _enough(self) -> str:
        if not (self.recipe.known_to or self.recipe.measure_s or self.recipe.slow_s):
            return ""
        found = measure(self._events, self.trial, self.recipe)
        ended, spent_s = str(found.about.get("ended", "")), self.recipe.measure_s
        if ended.startswith(("known to", "slow")):
            return ended
        took = sum(i["sec"] for i in found.iterations if number(i.get("sec")))
        return f"measured for {spent_s:g} s" if spent_s is not None and found.about and took > spent_s else ""

    def _silent(self, now: float) -> bool:
        """Of a command nothing is known but its log: there silence is judged when its time is up (`outcome.py`)."""
        watched = isinstance(self.engine, Scripted) and self.engine.per(self.trial) == "rank"
        return watched and now - self._written > silent_s(self._events, self.trial, self.recipe)


def silent_s(events: list[Event], trial: Trial, recipe: Recipe) -> float:
    """How long a program may print nothing."""
    steps = [e["sec"] for e in events if e["event"] == "iteration" and number(e.get("sec"))]
    if steps:
        return max(recipe.stall_s, STEPS * max(steps))
    return recipe.compile_s if trial.execution.compile else recipe.start_s


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
