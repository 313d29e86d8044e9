"""The chance that a trial runs to its end: memory by the planner's model and every out-of-memory so far, the rest by likeness.

    chance_to_run(candidates, told, cluster, fit)       a number from 0 to 1 for each

The planner's error about memory is half common to all candidates: one that ran out says that the others need more than was
thought, one that fitted says that they do not. A hang or a crash says nothing about memory, but that what is like it may do
the same.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import log_ndtr, ndtr

from seatrial.outcomes import OUTCOMES
from seatrial.plan import memory, step
from seatrial.plan.calibrate import Calibration
from seatrial.plan.configs import Configs, Floats
from seatrial.plan.forecast import limit_gib
from seatrial.spec import Cluster, Trial
from seatrial.tune.told import Told

USUAL, WORTH = 0.03, 2.0
"""Three of a hundred trials that fit fail all the same, which is believed as much as two trials just like it would be."""
KNOBS = ("dp", "tp", "pp", "vp", "mbs", "zero", "recompute", "schedule", "precision", "sequence_parallel")


def chance_to_run(candidates: Sequence[Trial], told: Mapping[int, Sequence[Told]], cluster: Cluster,
                  fit: Calibration) -> Floats:
    """1 for what ran, 0 for what failed."""
    chance = _fits(candidates, told, cluster, fit) * (1 - _fails(candidates, told))
    for i, all_ in told.items():
        chance[i] = float(any(one.ok for one in all_))
    return np.asarray(chance)


def _fits(candidates: Sequence[Trial], told: Mapping[int, Sequence[Told]], cluster: Cluster, fit: Calibration) -> Floats:
    held = memory.peak(Configs.from_trials(list(candidates)), cluster)
    gib, reach = fit.held.apply(held)
    room = np.log(limit_gib(cluster)) - np.log(held.need_gib * gib / held.gib)
    own = reach / step.Z90 / np.sqrt(2)
    common = np.linspace(-4, 4, 161)[:, None]
    # [common, n]: how far the limit lies above the need, in units of the candidate's own error.
    apart = room / own - common
    weight = -common[:, 0] ** 2 / 2
    for i, all_ in told.items():
        for one in all_:
            if OUTCOMES[one.status].out_of_memory:
                weight = weight + log_ndtr(-apart[:, i])
            elif one.ok:
                weight = weight + log_ndtr(apart[:, i])
    weight = np.exp(weight - weight.max())
    return np.asarray(weight @ ndtr(apart) / weight.sum())


def _fails(candidates: Sequence[Trial], told: Mapping[int, Sequence[Told]]) -> Floats:
    """Each trial counts for another by half for every knob that differs."""
    knobs = np.array([[str(getattr(trial.topology, name)) for name in KNOBS] for trial in candidates])
    failed, seen = np.full(len(candidates), USUAL * WORTH), np.full(len(candidates), WORTH)
    for i, all_ in told.items():
        like = 0.5 ** (knobs != knobs[i]).sum(axis=1)
        for one in all_:
            if OUTCOMES[one.status].out_of_memory or OUTCOMES[one.status].kind == "not run":
                continue
            seen += like
            failed += like * (not one.ok)
    return np.asarray(failed / seen)
