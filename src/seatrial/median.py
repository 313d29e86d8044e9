"""The median of some timings, and how well it is known: no assumption about how they are spread.

    known = median_of([0.50, 0.51, 0.50, 0.52, 0.49, 0.50, 0.51])       known.value, known.low, known.high
    known.within(0.01)                                                 is it known to 1 %?
    far_out([...])                                                     which timings lie far from the others

How many of n timings fall below the true median is a fair coin thrown n times, whatever the timings' distribution. So two of
the sorted timings enclose it with a probability that only counts them. Fewer than six can say nothing at 95 %.
"""
from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
FENCE = 3.0
"""Interquartile ranges beyond the quartiles from which on a timing is far out, as box plots have it."""


@dataclass(frozen=True, kw_only=True)
class Known:
    value: float
    low: float
    """Ends of the 95 % interval; -inf and inf where there are too few timings to say."""
    high: float
    count: int
    drift: float
    """How far the medians of the first and the second half lie apart, as a share: a machine that warms up or is shared."""

    @property
    def half_width(self) -> float:
        """As a share of the median."""
        return (self.high - self.low) / 2 / self.value if self.value > 0 else math.inf

    def within(self, share: float) -> bool:
        """Known to this share, and not still moving."""
        return self.half_width <= share and self.drift <= 2 * share


def median_of(timings: Sequence[float], *, confidence: float = CONFIDENCE) -> Known:
    if not timings:
        raise ValueError("no timings")
    ordered, n = sorted(timings), len(timings)
    value = statistics.median(ordered)
    below = outermost(n, confidence)
    low, high = (ordered[below - 1], ordered[n - below]) if below else (-math.inf, math.inf)
    half = n // 2
    drift = abs(statistics.median(timings[:half]) - statistics.median(timings[-half:])) / value if half and value > 0 else 0.0
    return Known(value=value, low=low, high=high, count=n, drift=drift)


def outermost(n: int, confidence: float = CONFIDENCE) -> int:
    """The k for which the k-th smallest and k-th largest of n enclose the median with this confidence; 0 if none does."""
    if n > 1000:
        return int(n / 2 - statistics.NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(n) / 2)
    outside, k = 0.0, 0
    while True:
        # The median is below the (k+1)-th smallest when at most k of the n fell below it; the same on the other side.
        outside += 2 * math.comb(n, k) * 0.5**n
        if outside > 1 - confidence:
            return k
        k += 1


def far_out(timings: Sequence[float]) -> list[bool]:
    """Which are outliers. They stay in the median, which hardly feels them; a reader wants to know that they came."""
    if len(timings) < 6:
        return [False] * len(timings)
    first, _, third = statistics.quantiles(timings, n=4)
    reach = FENCE * (third - first)
    return [not first - reach <= t <= third + reach for t in timings]
