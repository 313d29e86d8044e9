"""A against B: the ratio of their times with a confidence interval, or that no difference can be seen.

    found = paired([1.00, 1.02, 0.99, 1.01], [0.90, 0.93, 0.89, 0.90])      one value per repeat, A and B measured in turns
    found.ratio, found.low, found.high                                     B's time over A's
    found.sentence("plain", "tcmalloc")                                       "tcmalloc takes 0.900 of plain's time …"
    unpaired([...], [...])                                                 two sets of records that were not interleaved

Repeats, not iterations, are what is counted: iterations of one run share its luck (placement, memory layout, neighbours), and
an interval from them alone would be too narrow. Pairs run one after the other, and a coin decides which of a pair goes first.
So whatever else happens on the machine falls on A and B alike, however long it lasts, and each difference has the same chance
of either sign when there is none. Wilcoxon's signed ranks need nothing more than that. Fewer than six pairs can say nothing at
95 %.
"""
from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.errors import BadInput

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Comparison:
    ratio: float
    """B's time over A's: below 1, B is faster."""
    low: float
    high: float
    counts: tuple[int, int]
    """Repeats of A and of B."""

    @property
    def known(self) -> bool:
        """Whether there is an interval at all."""
        return math.isfinite(self.high)

    @property
    def half_width(self) -> float:
        return (math.log(self.high) - math.log(self.low)) / 2 if self.known else math.inf

    @property
    def verdict(self) -> str:
        if not self.known:
            return "too few repeats"
        if self.low <= 1 <= self.high:
            return "no difference can be seen"
        return "b is faster" if self.ratio < 1 else "a is faster"

    def sentence(self, a: str, b: str) -> str:
        """For a person: the verdict, the numbers, and what could have been seen."""
        many = f"{self.counts[0]} and {self.counts[1]} repeats"
        if not self.known:
            return f"{b} takes {self.ratio:.3f} of {a}'s time, but {many} cannot say how sure that is"
        span = f"{self.ratio:.3f}, 95 % interval {self.low:.3f} to {self.high:.3f}, {many}"
        if self.verdict == "no difference can be seen":
            seen = f"one of {math.expm1(self.half_width):.1%} would have been"
            return f"no difference can be seen between {a} and {b}: {span}; {seen}"
        faster, slower = (b, a) if self.ratio < 1 else (a, b)
        times = 1 / self.ratio if self.ratio < 1 else self.ratio
        return f"{faster} is {times:.3f} times as fast as {slower} ({b} over {a}: {span})"


def paired(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """From repeats in turns; the i-th of A ran beside the i-th of B."""
    if len(a) != len(b) or not a:
        raise BadInput(f"{len(a)} repeats of A and {len(b)} of B are no pairs")
    logs = [math.log(y / x) for x, y in zip(a, b)]
    # The mean of every two differences, and of each with itself: their median is the estimate, two of them its interval.
    means = sorted((logs[i] + logs[j]) / 2 for i in range(len(logs)) for j in range(i + 1))
    k = signed_rank(len(logs))
    low, high = (means[k - 1], means[-k]) if k else (-math.inf, math.inf)
    return Comparison(ratio=math.exp(statistics.median(means)), low=math.exp(low), high=math.exp(high) if k else math.inf,
                      counts=(len(logs), len(logs)))


def signed_rank(n: int, confidence: float = CONFIDENCE) -> int:
    """The k for which the k-th smallest and k-th largest mean of two enclose the true difference; 0 if none does."""
    if n > 60:
        sigma = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return int(n * (n + 1) / 4 - statistics.NormalDist().inv_cdf((1 + confidence) / 2) * sigma)
    # How many of the 2^n ways to give signs to the ranks 1 … n have each sum of positive ranks.
    ways = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    outside, k = 0, 0
    while True:
        outside += 2 * ways[k]
        if outside > (1 - confidence) * 2**n:
            return k
        k += 1


def unpaired(a: Sequence[float], b: Sequence[float]) -> Comparison:
    """From two sets that were not measured in turns: Welch's interval of the logarithms."""
    if not a or not b:
        raise BadInput(f"{len(a)} measurements of A and {len(b)} of B: each side needs at least one")
    x, y = [math.log(v) for v in a], [math.log(v) for v in b]
    return _comparison(statistics.fmean(y) - statistics.fmean(x), y, x, counts=(len(x), len(y)))


def overall(found: Sequence[Comparison]) -> Comparison:
    """One figure for several configurations: the mean of their ratios, judged by how far they lie apart."""
    if len(found) == 1:
        return found[0]
    logs = [math.log(c.ratio) for c in found]
    return _comparison(statistics.fmean(logs), logs, counts=(sum(c.counts[0] for c in found), sum(c.counts[1] for c in found)))


def _comparison(middle: float, *samples: Sequence[float], counts: tuple[int, int]) -> Comparison:
    """With Student's interval of the mean of one sample of logarithms, or Welch's of the difference of two."""
    if min(map(len, samples)) < 2:
        return Comparison(ratio=math.exp(middle), low=0.0, high=math.inf, counts=counts)
    from scipy import stats  # 0.8 s, and no other command needs it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # repeats that are equal to the last digit are an answer all the same
        test = stats.ttest_ind(*samples, equal_var=False) if len(samples) > 1 else stats.ttest_1samp(samples[0], 0.0)
        low, high = test.confidence_interval(CONFIDENCE)
    return Comparison(ratio=math.exp(middle), low=math.exp(low), high=math.exp(min(high, 700.0)), counts=counts)
