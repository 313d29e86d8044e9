"""The posterior of a hierarchy of effects whose widths are unknown as well: a small grid of them, weighed by the evidence.

    found = hierarchy.fit(linearize, measured, Prior(sigma=…, level=…), usual=0.015)
    found.mean, found.covariance, found.scales["session"], found.noise, found.weight

`measured` is explained by effects, each with a normal prior around zero; effects of one level share a scale. How wide a level
is, and how noisy a row, is not known beforehand. Of the combinations of SCALES the most probable is sought, by its evidence
(the marginal likelihood of the rows) and its prior, and the answer is the mean over it and all that differ from it in one
scale. Most of the weight before any row lies where effects are small, a little where they are large: rows that agree on a
large effect are followed, rows that do not leave things as they were. Errors have Student's distribution with 4 degrees of
freedom: an outlier counts little.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seatrial.plan.configs import Floats, Ints

FREEDOM = 4.0
"""Degrees of freedom of the error: most repeats agree within half a per cent, a few differ by ten."""

RARELY_FAR = {0.0: 0.50, 1.0: 0.35, 2.0: 0.15}
"""A mixture with the variance of what is usual: as likely as not there is nothing to correct, and now and then twice as much as
is usual. So a model that was made for a device and its engine stays as it is until rows insist."""
AROUND = {0.5: 0.25, 1.0: 0.50, 2.0: 0.25}

SCALES: Mapping[str, Mapping[float, float]] = {
    "whole": RARELY_FAR,
    "parts": RARELY_FAR,
    "session": AROUND,
    "kin": AROUND,
    "heads": AROUND,
    "shape": AROUND,
    "noise": {0.5: 0.25, 1.0: 0.50, 2.0: 0.20, 4.0: 0.05},
}
"""Level -> by what its usual width may be multiplied, and how probable that is before any row."""

LEVELS = tuple(name for name in SCALES if name != "noise")
FIXED = len(LEVELS)
"""The level of effects whose width is known."""

ROUNDS, CLOSE = 12, 1e-4
NEGLIGIBLE = 1e-3
"""Combinations that weigh less than this share of the heaviest are left out of the mean."""


class Prior(NamedTuple):
    sigma: Floats
    """Usual standard deviation of each effect."""
    level: Ints
    """Which level it belongs to: an index in LEVELS, or FIXED."""


class Found(NamedTuple):
    mean: Floats
    covariance: Floats
    """With what is unknown about the widths in it."""
    scales: dict[str, float]
    """Level -> the root of the mean square of its scale: what an effect never seen is worth."""
    noise: float
    weight: Floats
    """What each row counts, 1 for one that fits."""
    residual: Floats
    evidence: float
    """Logarithm of the marginal likelihood, of the rows with these weights."""


Linearize = Callable[[Floats], tuple[Floats, Floats]]
"""Effects -> what is forecast of each row, and how it moves with each effect."""

def fit(linearize: Linearize, measured: Floats, prior: Prior, *, usual: float) -> Found:
    """`usual`: the usual scale of a row's error."""
    mean = np.zeros(len(prior.sigma))
    weight = np.ones(len(measured))
    point: Point = (1.0,) * len(SCALES)
    for turn in range(ROUNDS):
        expected, moves = linearize(mean)
        given = _Rows(moves, measured - expected + moves @ mean, weight, prior, usual)
        mixed, point = _mix(given, point)
        residual = measured - expected - moves @ (mixed.mean - mean)
        # What a row may still be off once its own pull is counted: with few rows a fit goes through all of them.
        off = residual**2 + np.einsum("ni,ij,nj->n", moves, mixed.covariance, moves)
        weight = (FREEDOM + 1) / (FREEDOM + off / mixed.noise**2)
        change = np.abs(mixed.mean - mean).max(initial=0.0)
        mean = mixed.mean if turn < ROUNDS // 2 else (mean + mixed.mean) / 2
        if change < CLOSE:
            break
    return mixed._replace(weight=weight * FREEDOM / (FREEDOM + 1), residual=residual)


Point = tuple[float, ...]
"""A scale for each of SCALES."""


def _prior_of(point: Point) -> float:
    return float(np.log([scales[scale] for scales, scale in zip(SCALES.values(), point)]).sum())


def _around(point: Point) -> list[Point]:
    """The combinations that differ in one scale or none."""
    return [point, *(tuple(scale if j == i else old for j, old in enumerate(point))
                     for i, scales in enumerate(SCALES.values()) for scale in scales if scale != point[i])]


class _Rows:
    """The rows with weights given: the evidence of combinations, and what each says of the effects."""

    def __init__(self, moves: Floats, target: Floats, weight: Floats, prior: Prior, usual: float):
        root = np.sqrt(weight)
        self.seen, self.pulled, self.prior, self.usual = root[:, None] * moves * prior.sigma, root * target, prior, usual
        self.rows, self.effects = moves.shape
        # A combination changes how much there is of each level: among rows where they are fewer, else among effects.
        self.short = self.rows <= self.effects
        each = [self.seen[:, prior.level == level] for level in range(FIXED + 1)]
        self.kernels = np.stack([part @ part.T for part in each]) if self.short else self.seen.T @ self.seen
        self.projected = self.pulled if self.short else self.seen.T @ self.pulled
        self.known: dict[Point, float] = {}

    def scale(self, points: Sequence[Point]) -> tuple[Floats, Floats]:
        """[points, levels], and the noise of each."""
        table = np.array(points)
        return np.concatenate([table[:, :FIXED], np.ones((len(points), 1))], axis=1), self.usual * table[:, FIXED]

    def evidence(self, points: Sequence[Point]) -> Floats:
        """Logarithms, with the prior of the scales."""
        new = [point for point in points if point not in self.known]
        if new:
            self.known.update(zip(new, (self._evidence(new) + [_prior_of(point) for point in new]).tolist()))
        return np.array([self.known[point] for point in points])

    def _evidence(self, points: Sequence[Point]) -> Floats:
        scale, noise = self.scale(points)
        inner, reach = self._inner(scale, noise)
        given = np.broadcast_to(self.projected, inner.shape[:2]) * reach
        # One more row and column of what is pulled: the factor's last row is then what solving for it would give.
        large = 1 + (given**2).sum(axis=1) / noise**2
        lower = np.linalg.cholesky(np.block([[inner, given[:, :, None]], [given[:, None, :], large[:, None, None]]]))
        explained = (lower[:, -1, :-1] ** 2).sum(axis=1)
        volume = 2 * np.log(np.diagonal(lower, axis1=1, axis2=2)[:, :-1]).sum(axis=1)
        if not self.short:
            explained = (self.pulled @ self.pulled - explained) / noise**2
            volume = volume + (self.rows - self.effects) * np.log(noise**2)
        return np.asarray(-(explained + volume + self.rows * np.log(2 * np.pi)) / 2)

    def _inner(self, scale: Floats, noise: Floats) -> tuple[Floats, Any]:
        """[points, m, m] to be factored, and the multiples of the effects where m counts those."""
        reach: Any = 1.0
        if self.short:
            found = np.einsum("gl,lij->gij", scale**2, self.kernels)
        else:
            reach = scale[:, self.prior.level]
            found = reach[:, :, None] * self.kernels * reach[:, None, :]
        index = np.arange(found.shape[1])
        found[:, index, index] += (noise**2)[:, None]
        return found, reach

    def posterior(self, point: Point) -> tuple[Floats, Floats]:
        """Mean and covariance of the effects."""
        scale, noise = self.scale([point])
        inner, _ = self._inner(scale, noise)
        width = scale[0, self.prior.level]
        if self.short:
            pull = self.seen * width**2
            both = np.linalg.solve(inner[0], np.concatenate([self.pulled[:, None], pull], axis=1))
            mean, covariance = pull.T @ both[:, 0], np.diag(width**2) - pull.T @ both[:, 1:]
        else:
            inverse = np.linalg.inv(inner[0])
            mean, covariance = width * (inverse @ (self.projected * width)), inverse * np.outer(width, width) * noise[0] ** 2
        sigma = self.prior.sigma
        return sigma * mean, covariance * np.outer(sigma, sigma)


def _mix(rows: _Rows, point: Point) -> tuple[Found, Point]:
    """The mean over the most probable combination and those around it; the search for it begins at `point`."""
    while True:
        near = _around(point)
        log = rows.evidence(near)
        best = near[int(log.argmax())]
        if best == point:
            break
        point = best
    share = np.exp(log - log.max())
    evidence = float(log.max() + np.log(share.sum()))
    share = np.where(share < NEGLIGIBLE, 0.0, share)
    share /= share.sum()
    mean, second = np.zeros(rows.effects), np.zeros((rows.effects, rows.effects))
    for one in np.flatnonzero(share):
        middle, covariance = rows.posterior(near[one])
        mean += share[one] * middle
        second += share[one] * (covariance + np.outer(middle, middle))
    scale, noise = rows.scale(near)
    scales = dict(zip(LEVELS, np.sqrt(share @ scale[:, :FIXED] ** 2).tolist()))
    return Found(mean, second - np.outer(mean, mean), scales, float(np.sqrt(share @ noise**2)), share, share, evidence), point
