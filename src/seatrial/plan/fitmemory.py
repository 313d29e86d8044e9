"""What rows teach about memory: figures are measured, and that a row ran or ran out of memory is a bound.

    fit = fitmemory.learn(rows, cluster)
    gib, reach = fit.apply(memory.peak(configs, cluster))
    fit.sigma(held), fit.need(held)                 for the odds that a layout fits

A figure is the cold model's with a factor on activations, one on the states (weights, gradients, optimizer), one on the
allocator's slack, and a constant. A row without a figure says only on which side of the limit its need lay: if it ran below,
if it ran out of memory above, each with the probability that the forecast gives that side. So a row that crashed teaches much
where it was thought to fit, and nothing where it was known not to.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seatrial.outcomes import having
from seatrial.plan import memory, step
from seatrial.plan.configs import Floats
from seatrial.plan.hierarchy import FREEDOM
from seatrial.plan.odds import limit_gib
from seatrial.plan.rows import Row, configs_of
from seatrial.spec import Cluster

LEARNED = {"activations": 0.15, "states": 0.05, "slack": 0.50, "fixed_gib": 1.5}
"""What is learned, and how far it may be from the cold model: tensors are counted, slack is a rule of thumb."""

NOISE = 0.03
"""Scale of a figure's error: the allocator's rounding, and which rank and moment a tool happened to see."""

PECULIAR = 0.04
"""What all rows of one model and software have in common and no other has: many rows of one model say little of the next. With
the two above it makes up what the cold model may be off."""

ON_CPU = 3.0
"""So much less is known of a CPU's memory."""

SCALES = {0.5: 0.25, 1.0: 0.50, 2.0: 0.25}
"""By what the widths above, and the noise, may be multiplied, and how probable that is beforehand."""

T90 = 2.132
"""Half of the 90 % interval of Student's distribution with 4 degrees of freedom, in units of its scale."""

LAPSE = 0.03
"""Three of a hundred trials end on the other side for reasons that are none of the model's: a neighbour's memory, a setting."""

FAR = 3.0
ROUNDS = 30
LEAST = 0.05
"""Share of the cold figure below which no learned one falls."""

OUT_OF_MEMORY = ("oom", *having("out_of_memory"))


def bound(row: Row) -> int:
    """1 where a row says that its need was there, -1 that it was not, 0 nothing: a figure says more, a copy says nothing
    new."""
    if row.trial is None:
        return 0
    if row.status in OUT_OF_MEMORY and not row.cells.get("duplicate_of"):
        return -1
    return int(row.counts and row.mem_gib is None and row.sec_per_it is not None)


@dataclass(frozen=True, kw_only=True)
class MemoryFit:
    theta: Floats
    """In the order of LEARNED: factors less 1, and GiB added."""
    covariance: Floats
    noise: float | None
    """Standard deviation of what a single row adds, of the logarithm; None before any row: what the engine's facts leave
    open."""

    @classmethod
    def cold(cls, cluster: Cluster) -> MemoryFit:
        size = len(LEARNED)
        return cls(theta=np.zeros(size), covariance=np.zeros((size, size)), noise=None)

    def gib(self, held: memory.Memory) -> Floats:
        return np.maximum(held.gib + _columns(held.parts) @ self.theta, LEAST * held.gib)

    def need(self, held: memory.Memory) -> Floats:
        """GiB that a layout cannot run without."""
        return held.need_gib * self.gib(held) / held.gib

    def sigma(self, held: memory.Memory) -> Floats:
        """Standard deviation of the logarithm of what a row to come needs."""
        if self.noise is None:
            return held.sigma
        columns = _columns(held.parts) / self.gib(held)[:, None]
        return np.sqrt(np.einsum("ni,ij,nj->n", columns, self.covariance, columns) + self.noise**2)

    def apply(self, held: memory.Memory) -> tuple[Floats, Floats]:
        """GiB, and half of the 90 % interval of its logarithm: `Z90 * sigma`."""
        return self.gib(held), step.Z90 * self.sigma(held)


def learn(rows: Sequence[Row], cluster: Cluster) -> MemoryFit:
    seen = [r for r in rows if r.trial is not None and (bound(r) or r.counts and r.mem_gib is not None)]
    if not seen:
        return MemoryFit.cold(cluster)
    held = memory.peak(configs_of(seen), cluster)
    side = np.array([bound(r) for r in seen])
    limit = np.array([limit_gib(r.trial.cluster or cluster) for r in seen if r.trial is not None])
    measured = np.array([r.mem_gib or 1.0 for r in seen]) + held.beyond([r.mem_measure for r in seen])
    data = _Data(held.gib, _columns(held.parts), side, np.log(np.where(side == 0, measured, limit)),
                 np.where(side == 0, 1.0, held.need_gib / held.gib), np.zeros((len(seen), 0)))
    # An engine of which less is known may be further off in each part; figures repeat as well as any other's.
    scale = 1.0 if cluster.device.kind == "gpu" else ON_CPU
    width = max(scale, float(np.median(held.sigma)) / memory.SURE)
    kinds = [(r.trial.model, r.factors) for r in seen if r.trial is not None]
    distinct = list(dict.fromkeys(kinds))
    data = data._replace(member=np.array([[kind == one for one in distinct] for kind in kinds], dtype=np.float64))
    sigma = np.array([*LEARNED.values(), *[PECULIAR] * len(distinct)]) * width
    usual, size = NOISE * scale, len(LEARNED)
    points = [(wide, noise, np.log(p * q)) for wide, p in SCALES.items() for noise, q in SCALES.items()]
    found = [_most_probable(data, sigma * wide, usual * noise) for wide, noise, _ in points]
    log = np.array([one.evidence + prior for one, (*_, prior) in zip(found, points)])
    share = np.exp(log - log.max())
    share /= share.sum()
    theta = np.asarray(sum(w * one.theta[:size] for w, one in zip(share, found)))
    second = sum(w * (one.covariance[:size, :size] + np.outer(one.theta[:size], one.theta[:size]))
                 for w, one in zip(share, found))
    # A layout to come is taken for one of another model: what is peculiar to those seen is left behind.
    own = sum(w * ((usual * noise * T90 / step.Z90) ** 2 + (PECULIAR * width * wide) ** 2)
              for w, (wide, noise, _) in zip(share, points))
    return MemoryFit(theta=theta, covariance=second - np.outer(theta, theta), noise=float(np.sqrt(own)))


class _Data(NamedTuple):
    cold: Floats
    columns: Floats
    side: Floats
    """0 for a figure, else as `bound` says."""
    log_gib: Floats
    """The figure, or the limit."""
    share: Floats
    """Of the whole, what a bound speaks of."""
    member: Floats
    """[n, kinds]: 1 where a row is of that model and software."""


class _Point(NamedTuple):
    theta: Floats
    covariance: Floats
    evidence: float


def _most_probable(d: _Data, sigma: Floats, noise: float) -> _Point:
    """For one width of the priors and one noise: climbed from the cold model and, where that has a bound on its wrong side,
    from far on both sides as well, since a bound that was thought impossible pulls at nothing near."""
    wrong = bool((d.side * (d.log_gib - np.log(d.cold * d.share)) < 0).any())
    starts = (0.0, FAR, -FAR) if wrong else (0.0,)
    return max((_climb(d, sigma, noise, far * sigma) for far in starts), key=lambda point: point.evidence)


def _climb(d: _Data, sigma: Floats, noise: float, theta: Floats) -> _Point:
    """With Laplace's approximation around the top."""
    from scipy.special import ndtr

    figure = d.side == 0
    for turn in range(ROUNDS):
        gib = np.maximum(d.cold + d.columns @ theta[: len(LEARNED)], LEAST * d.cold)
        moves = np.concatenate([d.columns / gib[:, None], d.member], axis=1)
        apart = (d.log_gib - np.log(gib * d.share) - d.member @ theta[len(LEARNED) :]) / noise
        # A figure pulls by Student's weight of its error, a bound by how unlikely its side is.
        weight = (FREEDOM + 1) / (FREEDOM + apart**2)
        ahead = d.side * apart
        odds = LAPSE + (1 - LAPSE) * ndtr(ahead)
        hazard = (1 - LAPSE) * np.exp(-(ahead**2) / 2) / np.sqrt(2 * np.pi) / odds
        pull = np.where(figure, weight * apart, -d.side * hazard) / noise
        stiff = np.where(figure, weight, np.maximum(hazard * (hazard + ahead), 0.0)) / noise**2
        precision = (moves.T * stiff) @ moves + np.diag(sigma**-2.0)
        change = np.linalg.solve(precision, moves.T @ pull - theta / sigma**2)
        theta = theta + (change if turn < ROUNDS // 2 else change / 2)
        if np.abs(change / sigma).max() < 1e-6:
            break
    student = -(FREEDOM + 1) / 2 * np.log1p(apart**2 / FREEDOM) - np.log(noise)
    likelihood = float(np.where(figure, student, np.log(odds)).sum())
    prior = -float((theta**2 / sigma**2).sum()) / 2 - float(np.log(sigma).sum())
    covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    return _Point(theta, covariance, likelihood + prior - float(np.linalg.slogdet(precision)[1]) / 2)


def _columns(parts: Mapping[str, Floats]) -> Floats:
    """[n, LEARNED]: by how many GiB the whole grows with each."""
    moving = parts["activations"] + parts["working"] + parts["logits"]
    states = parts["weights"] + parts["gradients"] + parts["optimizer"]
    return np.stack([moving, states, parts["slack"], np.ones_like(moving)], axis=1)
