"""What is asked of the engine for one trial of a sweep: until the median is known, or with fewer micro-batches.

    wanted = asked(task, measure)
    wanted.trial, wanted.training
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from seatrial.measurement import TIMED_SHORT, short_batch
from seatrial.spec import Trial
from seatrial.sweep.file import Measure, Task
from seatrial.training import Training


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A trial as it is run, which may be with a smaller batch than the one the row is about."""

    trial: Trial
    training: Training


def asked(task: Task, measure: Measure, *, slow_s: float | None = None, seconds: float | None = None) -> Asked:
    """`slow_s`: an iteration beyond it is certain to lose; `seconds`: what the sweep's budget leaves for measuring."""
    assert task.trial is not None and task.training is not None
    short = short_batch(task.trial, measure.microbatches, warmup=measure.warmup) if measure.microbatches else None
    steps = measure.iterations_max + measure.warmup
    if short is not None:
        steps += TIMED_SHORT + measure.warmup
    given = task.data.get("training", {})
    training = replace(
        task.training, steps=given.get("steps", steps), warmup_iterations=measure.warmup, known_to=measure.known_to,
        measure_s=min(measure.seconds, seconds) if seconds is not None else measure.seconds,
        slow_s=None if short is not None else slow_s)
    trial = task.trial if short is None else replace(task.trial, batch=short)
    return Asked(trial=trial, training=training)
