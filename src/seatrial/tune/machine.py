"""Trials of a search on real processes: each is a sweep of one row, so it has everything that a sweep has.

    machine = Machine(Store(book, "tune-tiny"), Local(), tuner.trials)
    for trial, record in machine.earlier():     what the logbook already holds of this search
        tuner.tell(trial, record)
    tuner.tell(trial, machine.measure(trial))

A trial that had ended when the search was killed is read from the logbook, or from its run folder; a batch job that still runs
is waited for. Nothing is measured twice.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence

from seatrial.launch.base import Launcher
from seatrial.record import Record
from seatrial.spec import Trial
from seatrial.sweep.board import Board
from seatrial.sweep.controller import Controller, View
from seatrial.sweep.file import Limits, Measure, Sweep, Task
from seatrial.sweep.store import Store
from seatrial.training import Training
from seatrial.tune.words import knobs


class Machine:
    def __init__(self, store: Store, launcher: Launcher, trials: Sequence[Trial], *, measure: Measure = Measure(),
                 limits: Limits = Limits(), training: Training = Training(), budget_s: float | None = None):
        self.store, self.launcher, self.how, self.limits = store, launcher, measure, limits
        self.board = Board(store.folder, name=store.session, kind="tune", budget_s=budget_s)
        self._tasks = {
            trial.run_id(): Task(key=trial.run_id(), data={}, knobs=named, repeat=0, trial=trial, training=training)
            for trial, named in zip(trials, knobs(trials))}

    def earlier(self) -> Iterator[tuple[Trial, Record]]:
        """In the order they were measured."""
        known = {self.store.record_id(task.key): task for task in self._tasks.values()}
        for data in self.store.records():
            task = known.get(data["record_id"])
            if task is not None and task.trial is not None:
                record = _record(data)
                self._count(record)
                yield task.trial, record

    def measure(self, trial: Trial, *, seconds: float | None = None) -> Record:
        """Raises KeyboardInterrupt when asked to stop; the trial then counts as not run."""
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
