"""How long a pipeline schedule takes, for many configurations at once, in closed form.

Held equal to the walk over `schedule.py` by tests. The longest chain of waits goes down the pipeline, stays with one rank
(usually the slowest) for most of the batch, and comes back up; which rank that is depends on the numbers, so the longest of a
few is taken. Ranks are of three kinds: the first, the last, and those between, which are alike but for the fullest of them.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from seatrial.plan.configs import SCHEDULES, Floats, Ints

GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1 = (SCHEDULES.index(s) for s in ("gpipe", "1f1b", "interleaved", "zb-h1"))
FIRST, MIDDLE, LAST = range(3)


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Seconds of one micro-batch, by kind of pipeline rank and summed over all ranks. A rank's virtual stages are added up."""

    forward: Floats
    """[3, n]: the first rank, the fullest in between, the last. Where there is no such rank, 0."""
    backward: Floats
    """The whole backward pass."""
    forward_sum: Floats
    """[n]: over all ranks."""
    backward_sum: Floats
    chunk_forward: Floats
    """[n]: one virtual stage that is neither the first nor the last."""
    chunk_backward: Floats

    @property
    def both(self) -> Floats:
        return self.forward + self.backward


def makespan_s(schedule: Ints, pp: Ints, vp: Ints, microbatches: Ints, s: Stages) -> Floats:
    """Seconds from the first forward to the last backward."""
    m, p = microbatches.astype(np.float64), pp.astype(np.float64)
    plain = _one_f_one_b(p, m, s)
    if np.all(schedule == ONE_F_ONE_B):
        return plain
    gpipe = s.forward_sum + s.backward_sum + (m - 1) * (s.forward.max(axis=0) + s.backward.max(axis=0))
    return np.select([schedule == GPIPE, schedule == INTERLEAVED, schedule == ZB_H1],
                     [gpipe, _interleaved(p, vp, m, s), _zero_bubble(p, m, s)], default=plain)


def _one_f_one_b(p: Floats, m: Floats, s: Stages) -> Floats:
    """A rank with w ranks after it runs w forwards ahead.

    Its first backward waits for those forwards or for the first micro-batch to come back from below; so does its last one.
    With fewer micro-batches than that, all forwards come first.
    """
    first, _, last = s.both
    best = s.forward_sum + s.backward_sum + (m - 1) * last
    between = np.maximum(p - 2, 0.0)
    spread = s.forward_sum + s.backward_sum - first - last
    for rank in (np.zeros_like(p), np.ones_like(p), p - 2, p - m):
        rank = np.clip(rank, 0.0, np.maximum(p - 2, 0.0))
        kind = np.where(rank == 0, FIRST, MIDDLE)[None]
        f, b = (np.take_along_axis(x, kind, 0)[0] for x in (s.forward, s.backward))
        above = np.where(rank == 0, 0.0, first + (rank - 1) * _ratio(spread, between))
        after = p - 1 - rank
        below = np.where(rank == 0, spread + last, (after - 1) * _ratio(spread, between) + last)
        below = np.where(p == 1, 0.0, below)
        many = (m - after) * (f + b) + np.maximum(below, after * f) + np.maximum(below, after * b)
        few = f + b + below + (m - 1) * np.maximum(f, b)
        best = np.maximum(best, above + np.where(m > after, many, few))
    return best


def _ratio(total: Floats, count: Floats) -> Floats:
    return total / np.maximum(count, 1.0)


def _interleaved(p: Floats, vp: Ints, m: Floats, s: Stages) -> Floats:
    """A rank with w ranks after it runs 2 w chunks ahead, and all chunks but one of a group of p micro-batches.

    Its first backward waits for those forwards or for the first micro-batch to come back from the last stage; the same holds
    for its last one, turned round.
    """
    v = vp.astype(np.float64)
    ends = (v - 1) * s.chunk_forward, (v - 1) * s.chunk_backward
    first = s.forward[FIRST] - ends[0], s.backward[FIRST] - ends[1]
    last = s.forward[LAST] - ends[0], s.backward[LAST] - ends[1]
    chunk, sums = (s.chunk_forward, s.chunk_backward), (s.forward_sum, s.backward_sum)
    best = np.zeros_like(p)
    for rank in (np.zeros_like(p), np.ones_like(p), p - 2, p - 1):
        rank = np.clip(rank, 0.0, p - 1)
        after = p - 1 - rank
        work = np.minimum(2 * after + (v - 1) * p + 1, m * v)
        is_first, is_last = rank == 0, after == 0
        above, path, own, every = [], [], [], []
        for side, other in ((0, 1), (1, 0)):
            before = np.where(is_first, 0.0, first[side] + (rank - 1) * chunk[side])
            above.append(before)
            path.append(sums[side] - before + np.where(is_last, 0.0, (after - 1) * chunk[other] + last[other]))
            lightest = np.where(is_first, _of_chunk(work, p, v, 0.0) * (first[side] - chunk[side]), 0.0)
            lightest = lightest + np.where(is_last, _of_chunk(work, p, v, v - 1) * (last[side] - chunk[side]), 0.0)
            own.append(work * chunk[side] + lightest)
            ends_of = np.where(is_first, first[side] - chunk[side], 0.0) + np.where(is_last, last[side] - chunk[side], 0.0)
            every.append(m * (v * chunk[side] + ends_of))
        many = sum(every) + np.maximum(path[0] - own[0], 0.0) + np.maximum(path[1] - own[1], 0.0)
        few = np.maximum(sum(every), np.maximum(path[0] + every[1], every[0] + path[1]))
        # The first rank may be slower with its first forwards, or its last backwards, than this one is: p of them come in a
        # row.
        linger = sum(np.where(is_first, 0.0, (p - 1) * np.maximum(first[side] - chunk[side], 0.0)) for side in (0, 1))
        best = np.maximum(best, sum(above) + linger + np.where(work < m * v, many, few))
    return best


def _of_chunk(count: Floats, p: Floats, v: Floats, chunk: Floats | float) -> Floats:
    """How many of the first `count` forwards of a rank are of one chunk: p micro-batches take each chunk in turn."""
    whole, rest = np.divmod(count, p * v)
    return whole * p + np.clip(rest - chunk * p, 0.0, p)


def _zero_bubble(p: Floats, m: Floats, s: Stages) -> Floats:
    """As 1F1B, with half of the backward pass, the weight gradient, out of everybody's way.

    Rank r puts off its first r weight gradients to the very end; nobody waits for them but the rank itself.
    """
    half = replace(s, backward=s.backward / 2, backward_sum=s.backward_sum / 2)
    between = np.maximum(p - 2, 0.0)
    each_f = _ratio(s.forward_sum - s.forward[FIRST] - s.forward[LAST], between)
    each_b = _ratio(half.backward_sum - half.backward[FIRST] - half.backward[LAST], between)
    best = np.zeros_like(p)
    for rank in (np.zeros_like(p), np.ones_like(p), p - 2, p - 1, p - m, m - 1):
        rank = np.clip(rank, 0.0, p - 1)
        kind = np.where(rank == 0, FIRST, np.where(rank == p - 1, LAST, MIDDLE))[None]
        f, b = (np.take_along_axis(x, kind, 0)[0] for x in (half.forward, half.backward))
        after = p - 1 - rank
        above = np.where(rank == 0, 0.0, s.forward[FIRST] + (rank - 1) * each_f)
        inner = np.where(rank == 0, between, np.maximum(after - 1, 0.0))
        below = np.where(after > 0, inner * (each_f + each_b) + half.both[LAST], 0.0)
        w_before = np.maximum(m - 1 - after - rank, 0.0)
        w_drain = np.clip(m - 1 - rank, 0.0, after)
        fed = np.where(m > after, np.maximum(below, after * f) + f + (m - 1 - after) * (f + b) + w_before * b, m * f)
        many = fed + np.maximum(below, after * b + w_drain * b) + b
        few = f + below + b + (m - 1) * np.maximum(f, b)
        few = np.maximum(few, f + below + b + (m - 1 + np.maximum(m - 1 - rank, 0.0)) * b)
        end = above + np.where(m > after, many, few)
        # Its last forward may also end with the weight gradients that the last rank put off.
        down = np.where(after > 0, np.maximum(after - 1, 0.0) * each_f + s.forward[LAST], 0.0)
        down = np.where((rank == 0) & (after > 0), between * each_f + s.forward[LAST], down)
        put_off = half.backward[LAST] * (1 + np.minimum(p, m))
        best = np.maximum(best, np.where(after > 0, above + fed + down + put_off, 0.0))
        # From its last backward on: its own weight gradients, or the way up to another rank and that one's.
        own = np.minimum(rank + 1, m) * b
        up = np.where(rank == 0, 0.0, half.backward[FIRST] + (rank - 1) * each_b) + half.backward[FIRST]
        stop = np.clip(m - 1, 1.0, np.maximum(rank - 1, 1.0))
        part = np.where(rank > stop, (rank - stop) * each_b + np.minimum(stop + 1, m) * each_b, 0.0)
        best = np.maximum(best, end + np.maximum(np.maximum(own, up), part))
    return best
