"""Ask and tell: which trial to measure next, and what is known when it was.

    tuner = Tuner(trials, cluster)
    while (trial := tuner.ask()) is not None:
        tuner.tell(trial, run(trial))           a Record, an Outcome, or seconds per iteration
    tuner.standing()                            the best so far, and the odds that something better is left

`ask` answers None once those odds are below 1 - `sure`. Anybody may choose the trials: `tell` takes what Optuna, Ax or a
person picked as well as what `ask` gave. Candidates compete by seconds per sample, so batches of different sizes can be mixed;
by device-seconds per sample (`by="cost"`) different numbers of nodes can.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from seatrial.arith import TIE
from seatrial.errors import BadInput
from seatrial.plan.configs import Floats
from seatrial.plan.odds import Headroom
from seatrial.plan.rows import Row
from seatrial.record import Outcome, Record
from seatrial.spec import Cluster, Trial
from seatrial.tune.candidates import Observation
from seatrial.tune.posterior import By, Posterior, Surprise, posterior, unit

DRAWS = 2000
MOMENTS = 41
"""Equally likely results that a measurement is imagined to have."""
RUNS = 0.5
"""An untried candidate counts as a choice when it more likely runs than not."""
SURE = 0.95
LEAST = 3
"""Measurements that a search ends with at the earliest once the cold forecasts were wrong as a whole."""
NOISE = {"gpu": TIE, "cpu": 0.05}
"""Below this share two measured trials cannot be told apart: about what two repeats differ by at most nine times of ten."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A candidate as it is seen now."""

    trial: Trial
    sec_per_it: float
    low_s: float
    """Ends of the 90 % interval."""
    high_s: float
    ok: float
    """The chance that it runs to its end."""
    best: float
    """The chance that it is the fastest of all."""
    measured: bool


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where the search is."""

    trials: int
    left: int
    """Candidates that were not tried."""
    best: Trial | None
    """The best of those measured."""
    best_s: float | None
    """Seconds per iteration, as measured."""
    odds: float
    """That one of those left beats it by more than `margin`."""
    margin: float
    settled: bool
    relearned: float | None = None
    """Times the cold forecast that measurements are, where they lie so far outside that it was learned anew."""


class Tuner:
    def __init__(self, trials: Sequence[Trial], cluster: Cluster, *, known: Sequence[Row] = (), sure: float = SURE,
                 margin: float | None = None, seed: int = 0, by: By = "time", headroom: Headroom = Headroom(),
                 named: Sequence[dict[str, str]] = ()):
        """`named`: what to call each trial by, where not by the knobs that differ; `known`: rows of other trials that the
        planner is calibrated with before the first; `margin`: by default NOISE."""
        self.trials = list({trial.run_id(): trial for trial in trials}.values())
        self.named = list(named)
        if not self.trials:
            raise BadInput("there is no trial to choose from")
        margin = NOISE[cluster.device.kind] if margin is None else margin
        if not 0 <= sure < 1 or not 0 <= margin < 1:
            raise BadInput(f"sure {sure:g} and margin {margin:g}: shares from 0 to 1, as 0.95 and 0.01")
        self.cluster, self.known, self.sure, self.margin, self.seed = cluster, tuple(known), sure, margin, seed
        self.by: By = by
        self.headroom = headroom
        self.observations: dict[int, list[Observation]] = {}
        self._places = {trial.run_id(): i for i, trial in enumerate(self.trials)}
        self._view: _View | None = None

    def ask(self) -> Trial | None:
        """The trial whose measurement is worth most; None when the search is settled or nothing is left."""
        view = self.view
        if not view.seen.open.any() or self.standing().settled:
            return None
        return self.trials[int(np.argmax(np.where(view.seen.open, view.worth, -np.inf)))]

    def tell(self, trial: Trial, result: Record | Outcome | float) -> None:
        place, observation = self._place(trial), Observation.of(result)
        self.observations.setdefault(place, []).append(observation)
        self._view = None

    def standing(self) -> Standing:
        view = self.view
        count, left = sum(map(len, self.observations.values())), int(view.seen.open.sum())
        surprise = self._surprise()
        relearned = None if surprise is None else float(np.exp(surprise.shift))
        if (best := self.best) is None:
            odds = float(1 - np.prod(1 - view.seen.ok[view.seen.open]))
            return Standing(trials=count, left=left, best=None, best_s=None, odds=odds, margin=self.margin, settled=left == 0)
        odds = better_left(view.seen, best, view.draws, self.margin)
        seconds = float(np.median([one.sec_per_it for one in self.observations[best] if one.sec_per_it is not None]))
        return Standing(trials=count, left=left, best=self.trials[best], best_s=seconds, odds=odds, margin=self.margin,
                        settled=odds <= 1 - self.sure and (surprise is None or int(view.seen.measured.sum()) >= LEAST),
                        relearned=relearned)

    @property
    def best(self) -> int | None:
        """Of those measured the one believed best; sessions that were slow as a whole are allowed for."""
        measured = self.view.seen.measured
        return int(np.argmin(np.where(measured, self.view.seen.mean, np.inf))) if measured.any() else None

    def expected(self, count: int = 5) -> list[Expected]:
        """The best as it looks now, measured or not; what failed is left out."""
        view = self.view
        alive = np.flatnonzero(view.seen.measured | view.seen.open)
        order = alive[np.argsort(view.seen.mean[alive] - np.log(np.maximum(view.seen.ok[alive], 1e-3)), kind="stable")][:count]
        return [self._expected(i) for i in map(int, order)]

    def expect(self, trial: Trial) -> Expected:
        return self._expected(self._place(trial))

    def _expected(self, i: int) -> Expected:
        seen, samples = self.view.seen, unit(self.trials[i], self.by)
        low, high = seen.interval(i)
        return Expected(trial=self.trials[i], sec_per_it=float(np.exp(seen.mean[i])) * samples, low_s=low * samples,
                        high_s=high * samples, ok=float(seen.ok[i]), best=float(self.view.chances[i]),
                        measured=bool(seen.measured[i]))

    def _place(self, trial: Trial) -> int:
        place = self._places.get(trial.run_id())
        if place is None:
            raise BadInput(f"trial {trial.run_id()} is none of the {len(self.trials)} candidates")
        return place

    def _surprise(self) -> Surprise | None:
        """Against what was believed before the first trial."""
        timed = {i: [one.sec_per_it for one in several if one.sec_per_it is not None]
                 for i, several in self.observations.items()}
        return Surprise.of(self._cold, {i: float(np.log(np.median(several) / unit(self.trials[i], self.by)))
                                        for i, several in timed.items() if several})

    @cached_property
    def _cold(self) -> Posterior:
        return posterior(self.trials, {}, self.cluster, known=self.known, by=self.by, headroom=self.headroom)

    @property
    def view(self) -> _View:
        if self._view is None:
            # The last by name, as calibration has it: sessions are named by their dates.
            session = max((one.session for several in self.observations.values() for one in several if one.ok), default="")
            seen = posterior(self.trials, self.observations, self.cluster, known=self.known, session=session, by=self.by,
                             headroom=self.headroom, surprise=self._surprise())
            self._view = _View(seen, np.random.default_rng([self.seed, sum(map(len, self.observations.values()))]))
        return self._view


class _View:
    """A posterior with what follows from it, each found once."""

    def __init__(self, seen: Posterior, rng: np.random.Generator):
        self.seen, self._rng = seen, rng

    @cached_property
    def draws(self) -> Floats:
        return self.seen.draws(DRAWS, self._rng)

    @cached_property
    def chances(self) -> Floats:
        return chance_of_best(self.draws)

    @cached_property
    def worth(self) -> Floats:
        return worth(self.seen)


# ---- which trial to measure next, and the odds that something better is left

def worth(view: Posterior) -> Floats:
    """Of measuring each candidate, as a share of the time of a sample.

    What a trial may win is by how much it is expected to beat the best so far (expected improvement); what it teaches is by how
    much the choice among all is expected to improve once its time is known, because of what candidates share (knowledge
    gradient). What is surely slow is worth nothing, however little is known of it; so is what cannot change the ranking.
    """
    return expected_improvement(view) + knowledge_gradient(view)


def expected_improvement(view: Posterior) -> Floats:
    """Against the best measured; before there is one, against the candidate in the middle."""
    spread = np.diag(view.covariance)
    if view.measured.any():
        best = int(np.argmin(np.where(view.measured, view.mean, np.inf)))
        target = view.mean[best]
        spread = spread + view.covariance[best, best] - 2 * view.covariance[best]
    else:
        target = np.median(view.mean)
    deviation = np.sqrt(np.maximum(spread, 1e-12))
    ahead = (target - view.mean) / deviation
    gain = deviation * (ahead * ndtr(ahead) + np.exp(-(ahead**2) / 2) / np.sqrt(2 * np.pi))
    return np.asarray(np.where(view.open, view.ok * gain, 0.0))


def knowledge_gradient(view: Posterior) -> Floats:
    """0 for what was tried: a repeat teaches less than anything else."""
    choices = view.measured | view.open & (view.ok >= RUNS)
    found = np.zeros(len(view.mean))
    if not choices.any():
        return found
    results = ndtri((np.arange(MOMENTS) + 0.5) / MOMENTS)
    now = view.mean[choices].min()
    for j in np.flatnonzero(view.open):
        moved = view.covariance[:, j] / np.sqrt(view.covariance[j, j] + view.repeat**2)
        then = view.mean[choices] + results[:, None] * moved[choices]
        found[j] = view.ok[j] * (now - then.min(axis=1).mean())
    return found


def better_left(view: Posterior, best: int, draws: Floats, margin: float) -> float:
    """The share of draws in which an untried candidate is faster than the best by more than the margin."""
    if not view.open.any():
        return 0.0
    others = draws[:, view.open].min(axis=1)
    return float(np.mean(others < draws[:, best] + np.log1p(-margin)))


def chance_of_best(draws: Floats) -> Floats:
    """For each candidate the share of draws in which it is the fastest."""
    runs = np.isfinite(draws).any(axis=1)
    first = draws.argmin(axis=1)[runs]
    return np.bincount(first, minlength=draws.shape[1]) / max(1, len(draws))
