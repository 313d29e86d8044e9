"""The search itself: ask, measure, tell, until it is settled or the budget is spent.

    found = search(tuner, machine.measure, Budget(trials=10, seconds=600), heard)

`heard` is called after each trial with what came of it and where the search then stands.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from seatrial import fields
from seatrial.record import Record
from seatrial.spec import Trial
from seatrial.tune.tuner import Expected, Standing, Tuner

Ended = Literal["settled", "trials", "seconds", "device-hours", "nothing left"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a search may take; None is no limit. It counts from the first trial, also over a restart."""

    trials: int | None = None
    seconds: float | None = None
    """Of all trials together."""
    device_hours: float | None = None

    def __post_init__(self) -> None:
        fields.positive("budget", trials=self.trials, seconds=self.seconds, device_hours=self.device_hours)


@dataclass(kw_only=True)
class Spent:
    trials: int = 0
    seconds: float = 0.0
    device_hours: float = 0.0

    def add(self, trial: Trial, record: Record) -> None:
        took = record.host.get("seconds", 0.0)
        seconds = float(took) if isinstance(took, int | float) else 0.0
        self.trials += 1
        self.seconds += seconds
        self.device_hours += seconds * trial.topology.world / 3600

    def over(self, budget: Budget) -> Ended | None:
        if budget.trials is not None and self.trials >= budget.trials:
            return "trials"
        if budget.seconds is not None and self.seconds >= budget.seconds:
            return "seconds"
        if budget.device_hours is not None and self.device_hours >= budget.device_hours:
            return "device-hours"
        return None

    def seconds_left(self, budget: Budget, trial: Trial) -> float | None:
        """For one trial, by whichever limit is nearer."""
        left = [] if budget.seconds is None else [budget.seconds - self.seconds]
        if budget.device_hours is not None:
            left.append((budget.device_hours - self.device_hours) * 3600 / trial.topology.world)
        return max(1.0, min(left)) if left else None


@dataclass(frozen=True, kw_only=True)
class Heard:
    """One trial of the search."""

    number: int
    trial: Trial
    forecast: Expected
    """As it was expected before it was measured."""
    record: Record
    standing: Standing
    """Afterwards."""


class Measure(Protocol):
    def __call__(self, trial: Trial, *, seconds: float | None = None) -> Record: ...


def search(tuner: Tuner, measure: Measure, budget: Budget, heard: Callable[[Heard], None], *,
           spent: Spent | None = None) -> Ended:
    spent = spent if spent is not None else Spent()
    while True:
        trial = tuner.ask()
        if trial is None:
            return "settled" if tuner.standing().settled and tuner.standing().left else "nothing left"
        if (over := spent.over(budget)) is not None:
            return over
        before = tuner.expect(trial)
        record = measure(trial, seconds=spent.seconds_left(budget, trial))
        tuner.tell(trial, record)
        spent.add(trial, record)
        heard(Heard(number=spent.trials, trial=trial, forecast=before, record=record, standing=tuner.standing()))
