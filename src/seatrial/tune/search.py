"""The search itself: ask, measure, tell, until it is settled or the budget is spent; and its trials on real processes.

    machine = Machine(Store(book, "tune-tiny"), Local(), tuner.trials)
    for trial, record in machine.earlier():     what the logbook already holds of this search
        tuner.tell(trial, record)
    found = search(tuner, machine.measure, Budget(trials=10, seconds=600), on_trial)

`on_trial` is called after each trial with what came of it and where the search then stands. A trial that had
ended when the search was killed is read from the logbook, or from its run folder; a batch job that still runs is waited for.
Nothing is measured twice.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from seatrial import fields
from seatrial.launch.base import Launcher
from seatrial.recipe import Recipe
from seatrial.record import Record
from seatrial.spec import Trial
from seatrial.sweep.board import Board
from seatrial.sweep.controller import Controller, View
from seatrial.sweep.file import Limits, Sweep, Task
from seatrial.sweep.file import Measure as HowLong
from seatrial.sweep.store import Store, runs_again
from seatrial.tune.candidates import knobs
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
class Step:
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


def search(tuner: Tuner, measure: Measure, budget: Budget, on_trial: Callable[[Step], None], *,
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
        on_trial(Step(number=spent.trials, trial=trial, forecast=before, record=record, standing=tuner.standing()))


class Machine:
    """Trials of a search on real processes: each is a sweep of one row, so it has everything that a sweep has."""

    def __init__(self, store: Store, launcher: Launcher, trials: Sequence[Trial], *, measure: HowLong = HowLong(),
                 limits: Limits = Limits(), recipe: Recipe = Recipe(), budget_s: float | None = None,
                 tasks: Sequence[Task] = ()):
        """`tasks`: the trials as a sweep's file has them, each with a recipe of its own."""
        self.store, self.launcher, self.how, self.limits = store, launcher, measure, limits
        self.board = Board(store.folder, name=store.session, kind="tune", budget_s=budget_s)
        self._tasks = {task.key: task for task in tasks} or {
            trial.run_id(): Task(key=trial.run_id(), data={}, knobs=named, repeat=0, trial=trial, recipe=recipe)
            for trial, named in zip(trials, knobs(trials))}

    def earlier(self) -> Iterator[tuple[Trial, Record]]:
        """In the order they were measured; what was kept from running, or ended from outside, was not."""
        known = {self.store.record_id(task.key): task for task in self._tasks.values()}
        for data in self.store.records():
            task = known.get(data["record_id"])
            if task is not None and task.trial is not None:
                record = _record(data)
                if record.outcome is not None and runs_again(record.outcome.status, record.state):
                    continue
                self._count(record)
                yield task.trial, record

    def measure(self, trial: Trial, *, seconds: float | None = None) -> Record:
        """Raises KeyboardInterrupt on SIGINT or SIGTERM; the trial then counts as not run."""
        task = self._tasks[trial.run_id()]
        sweep = Sweep(name=self.store.session, tasks=(task,), left_out={}, measure=self.how, limits=self.limits,
                      order="file", budget_s=seconds)
        Controller(sweep, self.store, self.launcher, Quiet(), self.board).run()
        wanted = self.store.record_id(task.key)
        record = next(_record(data) for data in self.store.records([task.key]) if data["record_id"] == wanted)
        self._count(record)
        return record

    def _count(self, record: Record) -> None:
        """For `seatrial serve`, which shows the search while it runs."""
        status = record.outcome.status if record.outcome is not None else "ok"
        self.board.before[status] = self.board.before.get(status, 0) + 1


class Quiet:
    """The search says more of a trial than its row does, and says it itself."""

    def resumed(self, view: View) -> None: ...
    def started(self, view: View, task: Task) -> None: ...
    def finished(self, view: View, task: Task, record: Record) -> None: ...
    def waiting(self, view: View) -> None: ...


def _record(data: dict) -> Record:
    return Record.from_dict({k: v for k, v in data.items() if k != "schema"})
