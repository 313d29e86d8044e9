"""Jobs of a batch system outlive a dead controller: the next one takes them over, or ends them.

    taken = adopt(task, store, Slurm())         (what was asked of it, its handle); None where there is nothing to take over

A job may have queued for hours, or have ended meanwhile; either way it need not run again. What was asked is read from its own
run.json and not worked out anew. Steps of an allocation that nobody holds any more are ended with it.
"""
from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from seatrial import fields
from seatrial.engine import runfile
from seatrial.errors import BadInput
from seatrial.launch import files, jobfile
from seatrial.launch.base import Handle, Job, Launcher
from seatrial.sweep.file import Task
from seatrial.sweep.measure import Asked
from seatrial.sweep.store import Store


def job_name(key: str, run_dir: Path) -> str:
    """Tells the trial's job from that of the same trial in another logbook."""
    return f"{key}-{fields.digest(str(run_dir.absolute()), length=8)}"


def asked_of(task: Task, run_dir: Path) -> Asked | None:
    """What a trial that has been prepared was told to do."""
    try:
        run = runfile.read(run_dir / files.RUN)
    except BadInput:
        return None
    assert task.trial is not None
    trial = replace(task.trial, batch=run.trial.batch)
    return Asked(trial=trial, training=run.training)


def adopt(task: Task, store: Store, launcher: Launcher) -> tuple[Asked, Handle] | None:
    run_dir = store.run_dir(task.key)
    if launcher.name == "local" or task.trial is None or not run_dir.exists():
        return None
    left = store.orphan(task.key, launcher.name)
    find = getattr(launcher, "find", None)
    # Killed between submitting and noting the number, only the job's name is left of it.
    job_id = left.job_id if left else find(job_name(task.key, run_dir)) if find is not None else ""
    if not job_id:
        return None
    if left is not None and left.allocated:
        _end(launcher, job_id, run_dir)
        return None
    asked = asked_of(task, run_dir)
    try:
        job = jobfile.read(run_dir / files.JOB)
    except BadInput:
        asked = None
    if asked is None:
        _end(launcher, job_id, run_dir)
        return None
    submitted = left.submitted if left else (run_dir / files.JOB).stat().st_mtime
    return asked, Handle(key=job_id, job=job, job_id=job_id, submitted=submitted)


def _end(launcher: Launcher, job_id: str, run_dir: Path) -> None:
    """Of an earlier allocation as a whole, its nodes included."""
    alone = type(launcher)()
    handle = Handle(key=job_id, job=Job(name="left", run_dir=run_dir.absolute(), argv=("true",), world=1), job_id=job_id)
    with contextlib.suppress(BadInput):
        getattr(alone, "kill", alone.cancel)(handle)
