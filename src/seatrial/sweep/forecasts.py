"""What the planner expects of a sweep's trials: for the order they are run in, and to leave out what is certain to lose.

    found = of_trials(sweep)            key -> TrialForecast, for trials that name a cluster
    found[key].best                     the objective if everything goes as well as the interval allows
    table, cluster = as_table(sweep)    its trials as rows that `plan/forecast.py` takes
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from seatrial import arith, fields
from seatrial.arith import FORMULA
from seatrial.errors import BadInput
from seatrial.launch import environment
from seatrial.launch.trial import record_of
from seatrial.recipe import Recipe
from seatrial.record import Outcome, Record
from seatrial.spec import Cluster, Trial
from seatrial.sweep.file import Sweep, Task
from seatrial.sweep.store import Row

if TYPE_CHECKING:
    from seatrial.plan.rows import Table


@dataclass(frozen=True, kw_only=True)
class TrialForecast:
    sec: float
    low_s: float
    """Ends of the planner's 90 % interval."""
    high_s: float
    best: float
    """The objective at `low_s`."""
    mem_gib: float
    fit_odds: float


def of_trials(sweep: Sweep) -> dict[str, TrialForecast]:
    """Cold: from the cluster's data sheet or its measured machine file, not from this sweep's own rows."""
    from seatrial.plan import step
    from seatrial.plan.configs import Configs
    from seatrial.plan.held import Held

    groups: dict[str, list[Task]] = {}
    for task in sweep.tasks:
        if task.trial is not None and not task.invalid and task.trial.cluster is not None:
            groups.setdefault(fields.canonical(fields.plain(task.trial.cluster)), []).append(task)
    if not groups:
        raise BadInput("order = 'forecast' and stop.forecast need a cluster to forecast on, for example cluster = 'local'")
    found: dict[str, TrialForecast] = {}
    for tasks in groups.values():
        trials = [task.trial for task in tasks if task.trial is not None]
        cluster = trials[0].cluster
        assert cluster is not None
        configs = Configs.from_trials(trials)
        time, held = step.time(configs, cluster), Held.of(configs, cluster, None)
        for i, (task, trial) in enumerate(zip(tasks, trials)):
            low_s = float(time.lo[i])
            found[task.key] = TrialForecast(sec=float(time.sec[i]), low_s=low_s, high_s=float(time.hi[i]),
                                            best=objective(trial, low_s, by=sweep.stop.by),
                                            mem_gib=float(held.shown_gib[i]), fit_odds=float(held.odds[i]))
    return found


def as_table(sweep: Sweep) -> tuple[Table, Cluster]:
    """One row per trial, repeats counted once, and the cluster that they run on; each row has its own nodes of it."""
    from seatrial.plan import rows

    tasks = [task for task in sweep.tasks if task.repeat == 0]
    cluster = next((task.trial.cluster for task in tasks if task.trial is not None and task.trial.cluster is not None), None)
    if cluster is None:
        raise BadInput(f"{sweep.name}: names no cluster to forecast on, for example cluster = {{ base = 'jz-a100' }}")
    made = []
    for task in tasks:
        row = (rows.Row(cells={"trial": task.label}, trial=None, where=task.label) if task.trial is None
               else rows.of_trial(task.trial, cluster, name=task.label))
        made.append(replace(row, trial=None, reject=f"{task.code}: {task.invalid}") if task.invalid else row)
    header = tuple(name for name in dict.fromkeys(name for row in made for name in row.cells)
                   if any(row.cells.get(name) for row in made))
    return rows.Table(header=header, rows=tuple(made)), cluster


def objective(trial: Trial, sec_per_it: float, *, by: str) -> float:
    """Larger is better."""
    return seconds_at(trial, 1.0, by=by) / sec_per_it


def seconds_at(trial: Trial, value: float, *, by: str) -> float:
    """How long an iteration of this trial takes when it is just as good as `value`."""
    if by == "samples_per_s":
        return trial.batch.gbs / value
    t = trial.topology
    work = arith.flops(FORMULA, trial.model, samples=trial.batch.gbs, recompute=t.recompute, tp=t.tp, pp=t.pp)
    return work / (value * t.world * 1e12)


def skipped_record(task: Task, seen: TrialForecast, best: Row, *, factor: float) -> Record:
    """The row of a trial that was not run because it could not win."""
    assert task.trial is not None
    message = (f"not run: forecast {seen.low_s:.4g} to {seen.high_s:.4g} s/it, at its best still {factor:g} times behind "
               f"{best.label}")
    record = record_of(task.trial, Recipe(), Outcome(status="cancelled", message=message), [])
    forecast: dict[str, object] = {"sec": seen.sec, "sec_lo": seen.low_s, "sec_hi": seen.high_s}
    host = environment.machine()
    return Record.from_dict({**record.to_dict(), "state": "planned", "forecast": forecast, "host": host,
                             "versions": environment.versions(), "machine": str(host.get("name", ""))})
