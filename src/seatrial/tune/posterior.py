"""What is believed of every candidate at once, after the trials so far: how fast, how sure, and what they share.

    view = posterior(candidates, observations, cluster)
    view.mean[i], view.covariance[i, j]         the logarithm of candidate i's seconds per sample (by cost: device-seconds)
    view.ok[i]                                  the chance that it runs to its end
    view.draws(1000, rng)                       whole pictures of the truth, each as likely as the next

The time of a candidate is the planner's forecast with its coefficients, which all candidates share, and an error of its own
that only measuring it removes. The coefficients are those of `plan.calibrate`. A measured candidate is what was measured, but
for the noise of a repeat.

Where measurements lie far outside their cold forecasts (a machine that is not as its data sheet, a program that nobody
described), what they have in common is taken out first: the planner then still tells candidates apart, with more doubt, and no
longer takes what is untried for ten times slower than what was measured.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seatrial.plan import calibrate, step
from seatrial.plan.configs import Floats
from seatrial.plan.odds import Headroom
from seatrial.plan.rows import Row
from seatrial.spec import Cluster, Trial
from seatrial.tune.candidates import Observations, chance_to_run

By = Literal["time", "cost"]
"""What candidates compete by: seconds per sample, or device-seconds per sample where they differ in nodes."""
REPEAT = {"gpu": 0.005, "cpu": 0.02}
"""By how much two runs of one trial differ: most repeats on GPUs lie within half a per cent, CPUs disturb more."""


FAR = 2.5
"""Standard deviations of a cold forecast beyond which a measurement ends the belief in all of them …"""
RELEARNED, WORTH = 0.1, 2.0
"""… and by how much its candidates are then off against each other, which is believed as much as two measurements would be."""


@dataclass(frozen=True)
class Surprise:
    """Measurements far from what was forecast cold."""

    shift: float
    """Of the logarithm of every candidate's time."""
    spread: float
    """What one candidate is off against another."""

    @classmethod
    def of(cls, cold: Posterior, measured: dict[int, float]) -> Surprise | None:
        """`measured`: candidate -> the logarithm of its time, as `mean` has it."""
        if not measured:
            return None
        off = np.array([value - cold.mean[i] for i, value in measured.items()])
        sigma = np.sqrt([cold.covariance[i, i] for i in measured])
        if (np.abs(off) <= FAR * sigma).all():
            return None
        shift = float(np.median(off))
        return cls(shift, float(np.sqrt((WORTH * RELEARNED**2 + ((off - shift) ** 2).sum()) / (WORTH + len(off)))))


@dataclass(frozen=True, kw_only=True)
class Posterior:
    mean: Floats
    covariance: Floats
    alone: Floats
    """What of its diagonal is the candidate's own error, shared with none."""
    repeat: float
    """Standard deviation of a repeat, of its logarithm."""
    ok: Floats
    measured: np.ndarray
    """Which candidates have a time."""
    open: np.ndarray
    """Which have not been tried."""
    fit: calibrate.Calibration

    def draws(self, count: int, rng: np.random.Generator) -> Floats:
        """[count, n]: what `mean` is of; infinite where a candidate does not run. Errors of one's own have heavy tails: most
        candidates lie where they are forecast, a few far from it, and those few are what can be missed."""
        values, vectors = np.linalg.eigh(self.covariance - np.diag(self.alone))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        shape = (count, len(self.mean))
        own = np.where(self.measured, rng.standard_normal(shape), rng.standard_t(calibrate.FREEDOM, shape))
        found = self.mean + rng.standard_normal(shape) @ root.T + own * np.sqrt(self.alone)
        runs = rng.random(found.shape) < self.ok
        return np.where(runs, found, np.inf)

    def interval(self, i: int) -> tuple[float, float]:
        """The 90 % interval, no longer a logarithm."""
        reach = step.Z90 * float(np.sqrt(self.covariance[i, i]))
        return float(np.exp(self.mean[i] - reach)), float(np.exp(self.mean[i] + reach))


def unit(trial: Trial, by: By) -> float:
    """What an iteration's seconds are divided by to compare candidates: its samples, or those of one device."""
    return trial.batch.gbs if by == "time" else trial.batch.gbs / trial.topology.world


def row_of(trial: Trial, *, session: str = "", sec_per_it: float | None = None, mem_gib: float | None = None) -> Row:
    return Row(cells={}, trial=trial, session=session, sec_per_it=sec_per_it, mem_gib=mem_gib, counts=True)


def posterior(candidates: Sequence[Trial], observations: Observations, cluster: Cluster, *,
              known: Sequence[Row] = (), session: str = "", by: By = "time", headroom: Headroom = Headroom(),
              surprise: Surprise | None = None) -> Posterior:
    """`known`: rows of other trials to learn from as well; `session`: the one that
    all are seen in, so that a slow day does not count against what was measured on it."""
    shift = surprise.shift if surprise is not None else 0.0
    rows = [row_of(trial, session=session) for trial in candidates]
    timed = {i: [one for one in several if one.sec_per_it is not None] for i, several in observations.items()}
    timed = {i: several for i, several in timed.items() if several}
    measured_rows = [row_of(candidates[i], session=one.session, sec_per_it=(one.sec_per_it or 0.0) / np.exp(shift),
                            mem_gib=one.mem_gib) for i, several in timed.items() for one in several]
    fit = calibrate.learn([*known, *measured_rows], cluster, also=rows)
    mean, moves = fit.linear(rows)
    noise = fit.noise or calibrate.belief(cluster).noise
    repeat = REPEAT[cluster.device.kind]
    own = max(noise**2 - repeat**2, noise**2 / 4, surprise.spread**2 if surprise is not None else 0.0)
    alone = np.full(len(rows), own)
    if measured_rows:
        expected, moved = fit.linear(measured_rows)
        place = 0
        for i, several in timed.items():
            mine = slice(place, place + len(several))
            place += len(several)
            spread = max(repeat, *(one.repeat for one in several)) ** 2 / len(several)
            gain = own / (own + spread)
            measured = np.mean(np.log([one.sec_per_it for one in several if one.sec_per_it is not None])) - shift
            mean[i] += gain * (measured - expected[mine].mean())
            moves[i] -= gain * moved[mine].mean(axis=0)
            alone[i] = gain * spread
    worth = np.log([unit(trial, by) for trial in candidates])
    has_time = np.array([i in timed for i in range(len(rows))])
    return Posterior(mean=mean + shift - worth, covariance=moves @ fit.covariance @ moves.T + np.diag(alone), alone=alone,
                     repeat=repeat,
                     ok=chance_to_run(candidates, observations, cluster, fit, headroom), measured=has_time,
                     open=np.array([i not in observations for i in range(len(rows))]), fit=fit)
