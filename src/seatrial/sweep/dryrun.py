"""What a sweep would do, trial by trial, with nothing written: what is forecast, what is started, what is submitted.

    for one in shown(sweep, launcher, folder):          `folder` is where the trials' run folders would lie
        one.forecast, one.argv, one.submit, one.script
"""
from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.engines import engine_for
from seatrial.errors import BadInput
from seatrial.launch.base import Launcher
from seatrial.launch.batch import Batch
from seatrial.launch.trial import Limits, checked
from seatrial.sweep import forecasts
from seatrial.sweep.file import Sweep, Task, run_config
from seatrial.sweep.forecasts import TrialForecast


@dataclass(frozen=True, kw_only=True)
class Shown:
    task: Task
    forecast: TrialForecast | None = None
    """None where the trial names no cluster, or cannot run."""
    argv: tuple[str, ...] = ()
    refused: str = ""
    """Why the launcher would not start it."""
    submit: list[str] = field(default_factory=list)
    """The command that submits `script`, of a batch system."""
    script: str = ""

    def row(self) -> dict[str, Any]:
        """The trial; its axes stand beside `key` and `repeat`, so nothing else may."""
        task = self.task
        return {"key": task.key, **task.knobs, "repeat": task.repeat, **({"invalid": task.invalid} if task.invalid else {})}

    def start(self) -> dict[str, Any]:
        """How it would be started, and what is forecast of it."""
        seen = self.forecast
        forecast = {} if seen is None else {"sec_per_it": seen.sec, "sec_lo": seen.low_s, "sec_hi": seen.high_s,
                                            "mem_gib": seen.mem_gib, "fit_odds": seen.fit_odds}
        found = {"key": self.task.key, "argv": list(self.argv), "submit": self.submit, "script": self.script,
                 "refused": self.refused, "forecast": forecast}
        return {name: value for name, value in found.items() if value}


def shown(sweep: Sweep, launcher: Launcher, folder: Path) -> Iterator[Shown]:
    named = any(task.trial is not None and task.trial.cluster is not None and not task.invalid for task in sweep.tasks)
    seen = forecasts.of_trials(sweep) if named else {}
    for task in sweep.tasks:
        yield Shown(task=task) if task.invalid or task.trial is None else _of(task, sweep, launcher, folder, seen.get(task.key))


def _of(task: Task, sweep: Sweep, launcher: Launcher, folder: Path, forecast: TrialForecast | None) -> Shown:
    wanted, run_dir = run_config(task, sweep.measure), (folder / task.key).absolute()
    trial, recipe = wanted.trial, wanted.recipe
    limits = Limits(time_limit_s=sweep.limits.time_s, memory_cap_gib=sweep.limits.memory_gib, cores=sweep.limits.cores)
    with tempfile.TemporaryDirectory(prefix="seatrial-dry-") as aside:  # an engine may write its configuration beside
        try:
            argv = tuple(word.replace(aside, str(run_dir)) for word in engine_for(trial).argv(trial, recipe, Path(aside)))
            job = checked(trial, recipe, launcher, run_dir=run_dir, limits=limits)
        except BadInput as error:
            return Shown(task=task, forecast=forecast, refused=str(error))
    submit, script = launcher.shown(job) if isinstance(launcher, Batch) and not launcher.allocated else ([], "")
    return Shown(task=task, forecast=forecast, argv=argv, submit=submit, script=script)
