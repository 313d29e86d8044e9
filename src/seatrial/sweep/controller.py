"""The controller of a sweep: starts what is not done, waits, writes each row down, and can be killed at any moment.

    with Logbook("book", create=True) as book:
        Controller(sweep, Store(book, "first"), Local(), listener).run()

The loop starts trials while there is room, polls them all at once, and turns what is done into a record. A row is in the
logbook or it is not: a trial that is not there when a controller starts is run (again), unless it had ended and only its
writing down was missing.

Jobs of a batch system outlive a dead controller: the next one takes them over, or ends them. One may have queued for hours, or
have ended meanwhile; either way it need not run again. Steps of an allocation that nobody holds any more are ended with it.
"""
from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from seatrial import columns, fields
from seatrial.engine import runfile
from seatrial.errors import BadInput, Infeasible, SeatrialError
from seatrial.launch import environment, files
from seatrial.launch.base import Handle, Job, Launcher
from seatrial.launch.follow import Follow
from seatrial.launch.trial import Limits, conclude, invalid, prepare, refused
from seatrial.outcomes import OUTCOMES
from seatrial.plan import fits
from seatrial.record import Outcome, Record
from seatrial.spec import Trial
from seatrial.sweep import forecasts
from seatrial.sweep.board import Board, State, model_of, note_best
from seatrial.sweep.file import RunConfig, Sweep, Task, run_config
from seatrial.sweep.store import Row, Store, Submitted, runs_again

SHORTEST_SLEEP_S = 0.001
GONE_S = 60.0
"""How long a batch system may take to end what it was asked to end."""
BLOCKING = "CUDA_LAUNCH_BLOCKING"


@dataclass(kw_only=True)
class Running:
    task: Task
    config: RunConfig
    handle: Handle
    before: dict[str, object]
    since: float
    follow: Follow | None = None
    """Of a program that is not ours."""


@dataclass(kw_only=True)
class View:
    """How far a sweep is, for whoever shows it."""

    total: int
    rows: dict[str, Row] = field(default_factory=dict)
    """Key -> row, also of those that an earlier controller finished."""
    running: list[Running] = field(default_factory=list)
    best: dict[str, Row] = field(default_factory=dict)
    """Model -> the row that its table has in bold."""
    ahead: Row | None = None
    """The one that `stop` measures others against."""
    began: float = field(default_factory=time.monotonic)
    ran: int = 0
    """Rows of this controller's own."""
    not_run: int = 0
    """Left for later: the budget is spent."""
    spent_s: float = 0.0
    """By all trials of the session, whoever ran them."""
    hopeless: int = 0
    """Of those that wait, how many cannot run and will take no time."""

    @property
    def pending(self) -> dict[str, int]:
        """Of the rows that are no last word, how many by status."""
        return dict(Counter(row.status for row in self.rows.values() if row.runs_again))

    @property
    def good(self) -> bool:
        """Whether anything ended well."""
        return any(row.status == "ok" for row in self.rows.values())


class Listener(Protocol):
    def resumed(self, view: View) -> None: ...
    def started(self, view: View, task: Task) -> None: ...
    def finished(self, view: View, task: Task, record: Record) -> None: ...
    def waiting(self, view: View) -> None: ...


class Controller:
    def __init__(self, sweep: Sweep, store: Store, launcher: Launcher, listener: Listener, board: Board | None = None):
        self.sweep, self.store, self.launcher, self.listener = sweep, store, launcher, listener
        self.board = board or Board(store.folder, name=sweep.name, budget_s=sweep.budget_s)
        self.view = View(total=len(sweep.tasks))
        self.groups: dict[str, list[str]] = {}
        for task in sweep.tasks:
            self.groups.setdefault(task.group, []).append(task.key)
        self.forecasts = forecasts.of_trials(sweep) if sweep.order == "forecast" or sweep.stop.forecast else {}
        self._stop: list[int] = []
        self._next: tuple[Task, RunConfig, Job] | None = None

    def run(self) -> View:
        """Raises KeyboardInterrupt when asked to stop; what ran then is run again by the next controller."""
        with self.store.alone(), self._signals():
            pending = self._pending()
            self._adopt(pending)
            self.view.hopeless = sum(bool(task.invalid) for task in pending)
            self.listener.resumed(self.view)
            self.board.show(self.view, at_once=True)
            state: State = "stopped"
            try:
                self._loop(pending)
                if not self._stop:
                    state = "spent" if self.view.not_run else "done"
            except OSError as error:
                raise self._out_of_room(error.strerror or str(error)) from error
            finally:
                self._end_all()
                self.board.show(self.view, state=state)
        if self._stop:
            raise KeyboardInterrupt
        return self.view

    # ---- what is left to do

    def _pending(self) -> deque[Task]:
        known = {self.store.record_id(task.key): task for task in self._all_tasks()}
        for data in self.store.records():
            if task := known.get(data["record_id"]):
                record = Record.from_dict({k: v for k, v in data.items() if k != "schema"})
                if not runs_again(record.outcome.status if record.outcome is not None else "ok", record.state):
                    self._note(task, record)
        for keys in self.groups.values():
            self._settle(keys)
        tasks = list(self.sweep.tasks)
        if self.sweep.order == "forecast":
            tasks.sort(key=lambda task: (task.repeat, -self.forecasts[task.key].best if task.key in self.forecasts else 0.0))
        pending = deque(task for task in tasks if task.key not in self.view.rows)
        for task in tasks:
            row = self.view.rows.get(task.key)
            if row is not None and (again := self._second_try(task, row.status)) and again.key not in self.view.rows:
                pending.appendleft(again)
        return pending

    def _adopt(self, pending: deque[Task]) -> None:
        """What a dead controller's batch jobs have done, or still do, is not done twice."""
        for task in list(pending):
            if (taken := adopt(task, self.store, self.launcher)) is not None:
                pending.remove(task)
                self.view.running.append(Running(task=task, config=taken[0], handle=taken[1], before=environment.machine(),
                                                 since=time.monotonic()))

    def _all_tasks(self) -> Iterator[Task]:
        for task in self.sweep.tasks:
            yield task
            if again := self._second_try(task, "crash"):
                yield again

    def _second_try(self, task: Task, status: str) -> Task | None:
        """The same with blocking launches, which tell where a GPU's error came from; a row of its own."""
        if not self.sweep.limits.retry_blocking or not OUTCOMES[status].retry or task.trial is None:
            return None
        if BLOCKING in task.trial.environment.variables:
            return None
        around = replace(task.trial.environment, variables={**task.trial.environment.variables, BLOCKING: "1"})
        return replace(task, key=f"{task.key}-blocking", trial=replace(task.trial, environment=around),
                       knobs={**task.knobs, "second try": f"{BLOCKING}=1"})

    # ---- the loop

    def _loop(self, pending: deque[Task]) -> None:
        while (pending or self.view.running) and not self._stop:
            while pending and not self._stop and self._begin(pending):
                pass
            if not self.view.running:
                continue
            for running in self.view.running:
                if running.follow is not None and running.follow.look(time.monotonic()) == "enough":
                    self.launcher.kill(running.handle)
            states = self.launcher.poll([r.handle for r in self.view.running])
            over = [r for r in self.view.running if states[r.handle.key] == "done"]
            for running in over:
                self._finish(running, pending)
            if not over and not self._stop:
                self.listener.waiting(self.view)
                self.board.show(self.view)
                time.sleep(self._pause_s())

    def _pause_s(self) -> float:
        """A look costs little; one that comes a hundredth of the trial's time late costs nothing."""
        shortest = min(time.monotonic() - r.since for r in self.view.running)
        return min(self.launcher.poll_s, max(SHORTEST_SLEEP_S, shortest / 100))

    def _begin(self, pending: deque[Task]) -> bool:
        """Starts, or settles, the next one; False when it has to wait."""
        task, running = pending[0], self.view.running
        if self._spent():
            self.view.not_run = len(pending)
            pending.clear()
            return False
        if self._next is None:
            if (record := self._without_running(task)) is not None:
                pending.popleft()
                self._write(task, record, pending)
                return True
            if len(running) >= self.sweep.limits.side_by_side:
                return False
            try:
                self._next = self._prepared(task)
            except BadInput as error:
                assert task.trial is not None
                pending.popleft()
                self._write(task, invalid(task.trial, error), pending)
                return True
        _, wanted, job = self._next
        if running and not self.launcher.room_for(job, [r.handle for r in running]):
            return False
        pending.popleft()
        self._next = None
        before = environment.machine()
        try:
            handle = self.launcher.submit(job)
        except BadInput as error:
            self._is_there(error)
            self._write(task, refused(task.trial or wanted.trial, error), pending)
            return True
        if not self.launcher.here:
            self.store.submitted(task.key, Submitted(launcher=self.launcher.name, job_id=handle.job_id,
                                                     submitted=handle.submitted, allocated=bool(self.launcher.allocated)))
        running.append(Running(task=task, config=wanted, handle=handle, before=before, since=time.monotonic(),
                               follow=Follow.of(wanted.trial, wanted.recipe, job.run_dir)))
        self.listener.started(self.view, task)
        self.board.show(self.view)
        return True

    def _is_there(self, refused: BadInput) -> None:
        """A batch system that does not answer anything has not refused this trial; the sweep ends and can be resumed."""
        try:
            self.launcher.find("nothing")
        except BadInput:
            raise SeatrialError(f"{self.launcher.name}: {refused}; --resume goes on when it answers") from None

    def _spent(self) -> bool:
        if self.sweep.budget_s is None:
            return False
        return self.view.spent_s + sum(time.monotonic() - r.since for r in self.view.running) >= self.sweep.budget_s

    def _without_running(self, task: Task) -> Record | None:
        """What has an answer already: an impossible trial, one that ended unrecorded, one that is forecast to lose."""
        if task.trial is None:
            return _of_words(task)
        if task.invalid:
            return invalid(task.trial, Infeasible(task.invalid, code=task.code))
        if (left := self.store.left_behind(task.key)) is not None:
            return left
        ahead = self.view.ahead
        if self.sweep.stop.forecast and self.sweep.stop.factor and ahead is not None and ahead.value is not None:
            seen = self.forecasts.get(task.key)
            if seen is not None and seen.best * self.sweep.stop.factor < ahead.value:
                return forecasts.skipped_record(task, seen, ahead, factor=self.sweep.stop.factor)
        return None

    def _prepared(self, task: Task) -> tuple[Task, RunConfig, Job]:
        self.store.put_aside(task.key)
        assert task.trial is not None
        left = None if self.sweep.budget_s is None else max(1.0, self.sweep.budget_s - self.view.spent_s)
        wanted = run_config(task, self.sweep.measure, slow_s=self._slow_s(task.trial), seconds=left)
        limits = Limits(time_limit_s=self.sweep.limits.time_s, memory_cap_gib=self.sweep.limits.memory_gib,
                        cores=self.sweep.limits.cores)
        job = prepare(wanted.trial, wanted.recipe, self.launcher, run_dir=self.store.run_dir(task.key),
                      limits=limits)
        return task, wanted, replace(job, name=job_name(task.key, job.run_dir))

    def _slow_s(self, trial: Trial) -> float | None:
        """An iteration that takes longer is too far behind, by the factor that was asked for."""
        stop, ahead = self.sweep.stop, self.view.ahead
        if stop.factor is None or ahead is None or not ahead.value:
            return None
        return stop.factor * forecasts.seconds_at(trial, ahead.value, by=stop.by)

    # ---- rows

    def _finish(self, running: Running, pending: deque[Task]) -> None:
        self.view.running.remove(running)
        record = conclude(running.config.trial, running.config.recipe, running.handle,
                          self.launcher.finished(running.handle), before=running.before, row=running.task.trial,
                          fits=fits.would_fit)
        if record.outcome is not None and record.outcome.status != "ok" and self.store.is_full():
            raise self._out_of_room("No space left on device")  # whatever it died of, this is not the trial's own doing
        if record.outcome is not None and record.outcome.status != "ok" and (why := self.launcher.over()):
            # Whatever it looks like to the trial, it was ended from outside, and nothing after it can start.
            (self.store.run_dir(running.task.key) / files.RECORD).unlink(missing_ok=True)
            raise SeatrialError(f"{self.launcher.name}: {why}: {self._done()}; --resume goes on")
        self._write(running.task, record, pending)

    def _write(self, task: Task, record: Record, pending: deque[Task]) -> None:
        notes = "; ".join(text for text in (self.sweep.notes, record.notes) if text)
        named = {axis: text for axis, text in task.knobs.items()
                 if axis not in columns.BY_FIELD and axis not in Record.__dataclass_fields__}
        record = replace(record, notes=notes, extra={**record.extra, **named, "sweep": self.sweep.name})
        self.store.write(task.key, record)
        self._note(task, record)
        self.view.ran += 1
        self.view.hopeless -= bool(task.invalid)
        self.listener.finished(self.view, task, record)
        self.board.show(self.view)
        self._settle(self.groups.get(task.group, []))
        if again := self._second_try(task, self.view.rows[task.key].status):
            pending.appendleft(again)
            self.view.total += 1

    def _settle(self, keys: list[str]) -> None:
        statuses = [self.view.rows[key].status for key in keys if key in self.view.rows]
        if len(statuses) == len(keys) > 1 and set(statuses) != {"ok"}:
            self.store.settle(keys)

    def _note(self, task: Task, record: Record) -> None:
        status = record.outcome.status if record.outcome is not None else "ok"
        value = record.tflops if self.sweep.stop.by == "tflops" else record.samples_per_s
        seconds = record.host.get("seconds", 0.0)
        row = Row(status=status, state=record.state, value=value, sec_per_it=record.sec_per_it, label=task.label,
                  seconds=float(seconds) if isinstance(seconds, int | float) else 0.0, model=model_of(record),
                  samples_per_s=record.gbs / record.sec_per_it if record.gbs and record.sec_per_it else None)
        self.view.rows[task.key] = row
        self.view.spent_s += row.seconds
        note_best(self.view.best, row)
        if status == "ok" and value is not None and (self.view.ahead is None or value > (self.view.ahead.value or 0.0)):
            self.view.ahead = row

    # ---- the end

    def _out_of_room(self, words: str) -> SeatrialError:
        return SeatrialError(f"{self.store.folder}: {words}: {self._done()}; --resume goes on when that is mended")

    def _done(self) -> str:
        return f"{len(self.view.rows)} of {self.view.total} trials are in the logbook"

    def _end_all(self) -> None:
        """Whatever ended the loop: nothing of ours runs on, and what was cut off counts as not run."""
        ending = list(self.view.running)
        for running in ending:
            self.launcher.kill(running.handle)
        until = time.monotonic() + GONE_S
        while ending and time.monotonic() < until:
            states = self.launcher.poll([r.handle for r in ending])
            ending = [r for r in ending if states[r.handle.key] != "done"]
            if ending:
                time.sleep(self.launcher.poll_s)
        self.view.running.clear()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM ends the sweep in order; a second one is not waited for."""

        def note(number: int, _frame: object) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop.append(number)

        before = {}
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, note)
        except ValueError:
            pass  # not the main thread: whoever started it there has the signals
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _of_words(task: Task) -> Record:
    """A row whose words do not even make a trial: what the file says of it is kept."""
    numbers = {name: value for name in columns.LAYOUT if (column := columns.COLUMNS[name]).about.kind == "count"
               and isinstance(value := task.data.get(column.table, {}).get(column.field), int)}
    outcome = Outcome(status="invalid", message=task.invalid, evidence={"code": task.code})
    return Record(state="planned", outcome=outcome, run_id=task.key, versions=environment.versions(),
                  host=environment.machine(), **numbers)  # type: ignore[arg-type]


# ---- what a dead controller left


def job_name(key: str, run_dir: Path) -> str:
    """Tells the trial's job from that of the same trial in another logbook."""
    return f"{key}-{fields.digest(str(run_dir.absolute()), length=8)}"


def config_of(task: Task, run_dir: Path) -> RunConfig | None:
    """What a trial that has been prepared was told to do."""
    try:
        run = runfile.read(run_dir / files.RUN)
    except BadInput:
        return None
    assert task.trial is not None
    trial = replace(task.trial, batch=run.trial.batch)
    return RunConfig(trial=trial, recipe=run.recipe)


def adopt(task: Task, store: Store, launcher: Launcher) -> tuple[RunConfig, Handle] | None:
    """What was asked of a job that a dead controller left, read from its own run.json, and its handle."""
    run_dir = store.run_dir(task.key)
    if launcher.here or task.trial is None or not run_dir.exists():
        return None
    left = store.orphan(task.key, launcher.name)
    # Killed between submitting and noting the number, only the job's name is left of it.
    job_id = left.job_id if left else launcher.find(job_name(task.key, run_dir))
    if not job_id:
        return None
    if left is not None and left.allocated:
        launcher.end(job_id)
        return None
    config = config_of(task, run_dir)
    try:
        job = files.read_job(run_dir / files.JOB)
    except BadInput:
        config = None
    if config is None:
        launcher.end(job_id)
        return None
    submitted = left.submitted if left else (run_dir / files.JOB).stat().st_mtime
    return config, Handle(key=job_id, job=job, job_id=job_id, submitted=submitted)
