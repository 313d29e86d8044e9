"""An iteration that takes hours, from a few of its micro-batches: two short batches are timed, the schedule gives the rest.

    batch = short_batch(trial, 4)               4 micro-batches a replica, then 8, in one run (a ramp-up of one step)
    estimate(trial, {4: [...], 8: [...]})       seconds of the whole iteration, with an interval

What an iteration takes beyond its schedule (reducing gradients, the optimizer) does not depend on the number of micro-batches.
So two sizes tell both: T(m) = fixed + pace x shape(m), where shape(m) is the time of the schedule itself, the same that the
engine executes and the planner adds up. A single size, scaled, would count the bubble and the optimizer once a micro-batch.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.errors import BadInput
from seatrial.median import median_of
from seatrial.schedule import KINDS
from seatrial.schedule.vector import makespan
from seatrial.spec import Batch, Trial, round_up, stages_of

TIMED_SHORT = 8
"""Iterations of the smaller size that count; the larger one is measured until it is known."""
BACKWARD = {"none": 2.0, "selective": 2.2, "full": 3.0}
"""Seconds of backward for each of forward; where the pipeline is full the answer does not depend on it."""
UNSURE = (0.75, 1.25)
"""How far that ratio is tried to both sides for the interval."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    sec_per_it: float
    low_s: float
    high_s: float
    fixed_s: float
    """What each iteration takes once."""
    microbatch_s: float
    """What one more micro-batch adds."""
    from_microbatches: tuple[int, int]


def sizes(trial: Trial, microbatches: int) -> tuple[int, int] | None:
    """The two numbers of micro-batches to run; None where the whole iteration is hardly more."""
    t = trial.topology
    short = round_up(max(microbatches, t.pp), KINDS[t.schedule].group(t.pp))  # fewer than PP do not fill the pipeline
    return None if 2 * short >= trial.microbatches else (short, 2 * short)


def short_batch(trial: Trial, microbatches: int, *, warmup: int) -> Batch | None:
    """The batch to run in place of the trial's own: first the smaller size, then the larger."""
    if trial.command is not None:
        raise BadInput("measure.microbatches: only our own engine changes its batch during a run; leave it out for [command]")
    if trial.batch.rampup_start is not None:
        raise BadInput("measure.microbatches: a batch with a ramp-up is many sizes; leave the ramp-up out to estimate one")
    found = sizes(trial, microbatches)
    if found is None:
        return None
    replica = trial.topology.dp * trial.topology.mbs
    small, large = found[0] * replica, found[1] * replica
    return Batch(gbs=large, rampup_start=small, rampup_increment=large - small, rampup_samples=small * (warmup + TIMED_SHORT))


def estimate(trial: Trial, timings: Mapping[int, Sequence[float]]) -> Estimate:
    """From timings (without warm-up) by number of micro-batches, two of them."""
    (few, few_s), (more, more_s) = sorted(timings.items())
    small, large = median_of(few_s), median_of(more_s)
    usual = BACKWARD[trial.topology.recompute]
    stretches = [_stretch(trial, few, more, usual * by) for by in (1.0, *UNSURE)]
    per_shape = (large.value - small.value)
    # T(M) = T(more) + stretch x (T(more) - T(few)), so each timing's own uncertainty is carried over by these factors.
    values = [large.value + s * per_shape for s in stretches]
    errors = [math.hypot((1 + s) * _half(large.low, large.high), s * _half(small.low, small.high)) for s in stretches]
    pace_s = per_shape / (more - few)
    return Estimate(sec_per_it=values[0], low_s=max(large.value, min(v - e for v, e in zip(values, errors))),
                    high_s=max(v + e for v, e in zip(values, errors)), fixed_s=small.value - few * pace_s, microbatch_s=pace_s,
                    from_microbatches=(few, more))


def _half(low: float, high: float) -> float:
    """Half of an interval; too few timings leave it open, and then the estimate's is open too."""
    return (high - low) / 2


def _stretch(trial: Trial, few: int, more: int, backward: float) -> float:
    """How many times the step from `few` to `more` fits into the one from `more` to the whole iteration."""
    a, b, whole = (_shape(trial, m, backward) for m in (few, more, trial.microbatches))
    return (whole - b) / (b - a)


def _shape(trial: Trial, microbatches: int, backward: float) -> float:
    """The schedule's own time, in forward passes of one layer. A stage without layers still has embedding or head to do."""
    t = trial.topology
    layers = [max(0.25, float(n)) for n in stages_of(trial.model, t)]
    return makespan(t.schedule, pp=t.pp, microbatches=microbatches, virtual=t.vp, forward_s=layers,
                    backward_s=[backward * n for n in layers])
