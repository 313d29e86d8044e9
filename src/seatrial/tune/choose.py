"""Which trial to measure next, and the odds that something better is left.

    worth = may_win(view) + teaches(view)               of each candidate; the largest is measured next
    odds = better_left(view, best, draws, margin)       that an untried one beats the best by more than the margin

What a trial may win is by how much it is expected to beat the best so far (expected improvement). What it teaches is by how
much the choice among all is expected to improve once its time is known, because of what candidates share (knowledge gradient).
Both are shares of the time of a sample, so they can be added. What is surely slow is worth nothing, however little is known
of it; so is what cannot change the ranking.
"""
from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from seatrial.plan.configs import Floats
from seatrial.tune.posterior import Posterior

MOMENTS = 41
"""Equally likely results that a measurement is imagined to have."""
RUNS = 0.5
"""An untried candidate counts as a choice when it more likely runs than not."""


def worth(view: Posterior) -> Floats:
    return may_win(view) + teaches(view)


def may_win(view: Posterior) -> Floats:
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


def teaches(view: Posterior) -> Floats:
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
