"""What is known of a candidate beside its forecast: its label, what came of its trial, the chance that it runs to its end.

    knobs(trials)[0], label(knobs(trials)[0])               {"dp": "2", "mbs": "4"}, DP 2 MBS 4
    Observation.of(record)                                  from a `Record`, an `Outcome`, or plain seconds per iteration
    chance_to_run(trials, observations, cluster, fit)       a number from 0 to 1 for each

The planner's error about memory is half common to all candidates: one that ran out says that the others need more than was
thought, one that fitted says that they do not. A hang or a crash says nothing about memory, but that what is like it may do
the same.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from seatrial import columns
from seatrial.errors import BadInput
from seatrial.outcomes import OUTCOMES
from seatrial.plan.calibrate import Calibration
from seatrial.plan.configs import Configs, Floats
from seatrial.plan.held import Held
from seatrial.plan.odds import Headroom
from seatrial.record import Outcome, Record
from seatrial.spec import Cluster, Trial

NAMED_BY = tuple(name for name in columns.ASKED if name in (*columns.LAYOUT, *columns.AROUND))
TOPOLOGY = columns.names("topology")
"""What candidates are alike by."""


def knobs(trials: Sequence[Trial]) -> list[dict[str, str]]:
    """Of each trial what not all have alike; the degrees and MBS always. Names are columns of a record."""
    rows = [columns.flat(trial, NAMED_BY) for trial in trials]
    always = (*columns.degrees(max((trial.topology.cp for trial in trials), default=1)), "mbs")
    varied = columns.differing(rows, NAMED_BY, always=always)
    return [{name: _cell(row[name]) for name in varied} for row in rows]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def label(named: Mapping[str, str]) -> str:
    return " ".join(filter(None, (columns.COLUMNS[name].text(value) if name in columns.COLUMNS else f"{name}={value}"
                                  for name, value in named.items())))


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the tuner keeps of a trial that was run."""

    status: str
    sec_per_it: float | None = None
    """None where it did not come to a figure that counts."""
    mem_gib: float | None = None
    session: str = ""
    repeat: float = 0.0
    """How well the median is known, as the standard deviation of its logarithm."""
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.sec_per_it is not None

    @classmethod
    def of(cls, result: Record | Outcome | float) -> Observation:
        """From a record, an outcome, or plain seconds per iteration."""
        if isinstance(result, Outcome):
            if result.status == "ok":
                raise BadInput("an outcome `ok` has no time: tell the record, or the seconds per iteration")
            return cls(status=result.status, message=result.message)
        if isinstance(result, Record):
            return _of_record(result)
        seconds = float(result)
        if not math.isfinite(seconds) or seconds <= 0:
            raise BadInput(f"{seconds:g} seconds per iteration: expected a number above 0; tell a failure as its outcome")
        return cls(status="ok", sec_per_it=seconds)


def _of_record(record: Record) -> Observation:
    if record.measurement.get("kind") == "rehearsed":
        raise BadInput("this record was rehearsed, one rank at a time: a tuner learns from trials that were run")
    outcome = record.outcome or Outcome(status="ok")
    counts = outcome.status == "ok" and record.state in ("measured", "estimated") and record.sec_per_it is not None
    low, high = record.measurement.get("low_s"), record.measurement.get("high_s")
    sure = isinstance(low, float) and isinstance(high, float) and 0 < low <= high
    return Observation(status=outcome.status if counts or outcome.status != "ok" else "crash",
                sec_per_it=record.sec_per_it if counts else None, mem_gib=record.mem_gib, session=record.session,
                repeat=math.log(high / low) / 2 / 1.96 if sure else 0.0,  # type: ignore[operator]
                message=outcome.message)


Observations = Mapping[int, Sequence[Observation]]
"""Candidate -> what came of its trials."""
USUAL, WORTH = 0.03, 2.0
"""Three of a hundred trials that fit fail all the same, which is believed as much as two trials just like it would be."""


def chance_to_run(candidates: Sequence[Trial], observations: Observations, cluster: Cluster, fit: Calibration,
                  headroom: Headroom = Headroom()) -> Floats:
    """1 for what ran, 0 for what failed."""
    chance = _fits(candidates, observations, cluster, fit, headroom) * (1 - _fails(candidates, observations))
    for i, several in observations.items():
        chance[i] = float(any(one.ok for one in several))
    return np.asarray(chance)


def _fits(candidates: Sequence[Trial], observations: Observations, cluster: Cluster, fit: Calibration,
          headroom: Headroom) -> Floats:
    held = Held.of(Configs.from_trials(list(candidates)), cluster, fit, headroom)
    spare = np.log(held.limit_gib) - np.log(held.need_gib)
    own = held.sigma / np.sqrt(2)
    common = np.linspace(-4, 4, 161)[:, None]
    # [common, n]: how far the limit lies above the need, in units of the candidate's own error.
    apart = spare / own - common
    weight = -common[:, 0] ** 2 / 2
    for i, several in observations.items():
        for one in several:
            if OUTCOMES[one.status].out_of_memory:
                weight = weight + log_ndtr(-apart[:, i])
            elif one.ok:
                weight = weight + log_ndtr(apart[:, i])
    weight = np.exp(weight - weight.max())
    return np.asarray(weight @ ndtr(apart) / weight.sum())


def _fails(candidates: Sequence[Trial], observations: Observations) -> Floats:
    """Each trial counts for another by half for every knob that differs."""
    knobs = np.array([[str(value) for value in columns.flat(trial, TOPOLOGY).values()] for trial in candidates])
    failed, seen = np.full(len(candidates), USUAL * WORTH), np.full(len(candidates), WORTH)
    for i, several in observations.items():
        like = 0.5 ** (knobs != knobs[i]).sum(axis=1)
        for one in several:
            if OUTCOMES[one.status].out_of_memory or OUTCOMES[one.status].kind == "not run":
                continue
            seen += like
            failed += like * (not one.ok)
    return np.asarray(failed / seen)
