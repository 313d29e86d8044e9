"""How long schedules take, in closed form, for whole tables of configurations at once.

    stages = runs(12, 1, Stage(0.11, 0.2), Stage(0.1, 0.2), Stage(0.15, 0.3))
    bulk_makespan("1f1b", pp=12, microbatches=256, stages=stages, send_s=0.002)

For tables, give numpy arrays, `maximum=np.maximum` and `minimum=np.minimum`; some thousand rows at a time keep them in the
cache.

A schedule's time is its longest chain of actions that wait for each other. Each form is the maximum over a handful of such
chains, so it is never more than the walk; tests hold it to that and say how much less it can be: nothing where stages are
alike; in random cases with a heavier last stage nothing in 99 of 100 and 0.2 % at worst; where the last is light or the
first the heaviest, over 0.1 % in 1 of 50 interleaved ones and 2 % at worst (`makespan` is exact). Stages come in runs of
equal ones: the first (with the embedding), one or more runs in the middle, the last (with the logits). Write f, b, w for a
stage's F, B, W, and c = f + b; x for one message; p, m, v for PP, micro-batches, virtual stages. A chain takes the first
micro-batch up and the last one down, and in between it goes round where that is slowest:

gpipe        sum(c) + 2 x (p - 1) + (m - 1)(max f + max b).
1f1b         A loop over stages s..t takes sum(c over s..t) + 2 x (t - s) and brings t - s + 1 micro-batches. All alike:
             (m + p - 1) c + 2 x (p - 1 + (m - 1) - ceil((m - 1) / p)). Else: m - 1 - (p - 1 - t) micro-batches go through
             loops that end at stage t; the others by the stages above, or as steps of the slowest f (fill) and b (drain).
zb-h1        As 1f1b, with w where a loop turns from B to F. The first s turns at stage s come without it, because the
             schedule puts W off there; those Ws come at the end. All alike, m >= p, x = 0:
             m (c + w) + (p - 1) max(c - w, f, b).
interleaved  (f, b, c of a virtual stage.) All alike: (m v + p - 1) c + 2 x (p v - 1), as long as 2 x < c. Else: the slowest of
             the last rank, the one before it and the first, with the fill before it and the drain after it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from seatrial.errors import BadInput

Number = Any
"""A number, or a numpy array of them: the forms use + - * // and comparisons alone, and `maximum` and `minimum` as given."""
Pick = Callable[[Number, Number], Number]


class Run(NamedTuple):
    """Equal stages that follow each other."""

    count: Number
    """How many; the first and the last run of a pipeline have at most one."""
    forward_s: Number
    backward_s: Number
    """The input-gradient part where `weight_s` is given apart, else the whole."""
    weight_s: Number = 0.0


class Stage(NamedTuple):
    forward_s: Number
    backward_s: Number
    weight_s: Number = 0.0


def runs(pp: Number, virtual: Number, first: Stage, middle: Stage, last: Stage) -> list[Run]:
    """The usual three runs. Where there is one stage in all it is `last`; where there are two, `middle` is not used."""
    stages = pp * virtual
    return [Run(1 * (stages > 1), *first), Run((stages - 2) * (stages > 2), *middle), Run(1, *last)]


def bulk_makespan(
    kind: str,
    *,
    pp: Number,
    microbatches: Number,
    virtual: Number = 1,
    stages: Sequence[Run],
    send_s: Number = 0.0,
    maximum: Pick = max,
    minimum: Pick = min,
) -> Number:
    """Seconds a batch takes in the pipeline; all but `kind` may be arrays. `check` says whether the schedule exists."""
    if kind != "zb-h1":
        stages = [Run(run.count, run.forward_s, run.backward_s + run.weight_s) for run in stages]
    if kind == "interleaved":
        if len(stages) != 3:
            raise BadInput(f"the form of schedule interleaved knows 3 runs of stages, not {len(stages)}: use makespan")
        first, middle, last = stages
        return _interleaved(pp, microbatches, virtual, first, middle, last, send_s, maximum, minimum)
    line = _Line(stages, send_s, maximum, minimum)
    if kind == "gpipe":
        one_s = line.rise_s[-1] - 2 * send_s
        return one_s + (microbatches - 1) * (line.slowest_forward[-1] + line.slowest_backward[-1])
    return (_zero_bubble if kind == "zb-h1" else _one_f_one_b)(pp, microbatches, line)


class _Line:
    """The runs with what the chains need: where each starts, and what it takes to climb to it and come back."""

    def __init__(self, stages: Sequence[Run], send_s: Number, maximum: Pick, minimum: Pick):
        self.send_s, self.maximum, self.minimum = send_s, maximum, minimum
        self.count = [run.count for run in stages]
        self.f = [run.forward_s * (run.count > 0) for run in stages]
        self.b = [run.backward_s * (run.count > 0) for run in stages]
        self.w = [run.weight_s * (run.count > 0) for run in stages]
        self.c = [f + b for f, b in zip(self.f, self.b)]
        self.climb = [c + 2 * send_s for c in self.c]
        """A stage and the messages over it, both ways."""
        self.start: list[Number] = [0]
        self.rise_s: list[Number] = [0.0]
        """All stages before each run, and the messages over them, both ways."""
        self.slowest_forward: list[Number] = []
        self.slowest_backward: list[Number] = []
        """Among the runs so far."""
        for count, climb, f, b in zip(self.count, self.climb, self.f, self.b):
            self.start.append(self.start[-1] + count)
            self.rise_s.append(self.rise_s[-1] + count * climb)
            self.slowest_forward.append(maximum(self.slowest_forward[-1], f) if self.slowest_forward else f)
            self.slowest_backward.append(maximum(self.slowest_backward[-1], b) if self.slowest_backward else b)

    def below(self, stage: Number, values: Sequence[Number]) -> Number:
        """The sum of `values` over all stages before `stage`."""
        total = 0.0
        for start, count, value in zip(self.start, self.count, values):
            total = total + self.minimum(self.maximum(stage - start, 0), count) * value
        return total

    def at(self, stage: Number, values: Sequence[Number]) -> Number:
        """The value of the run that has `stage`."""
        total = 0.0
        for start, count, value in zip(self.start, self.count, values):
            total = total + value * (stage >= start) * (stage < start + count)
        return total

    def suffix_maximum(self, values: list[Number]) -> list[Number]:
        found = [values[-1]]
        for value in reversed(values[:-1]):
            found.insert(0, self.maximum(found[0], value))
        return found


def _one_f_one_b(pp: Number, m: Number, line: _Line) -> Number:
    """The slowest over runs i (loops end at its top) and j (loops begin at its bottom)."""
    maximum, minimum, two_x, start, rise_s = line.maximum, line.minimum, 2 * line.send_s, line.start, line.rise_s
    every = range(len(line.count))
    low = [rise_s[i + 1] - two_x for i in every]
    above = [minimum(pp - start[i + 1], m - 1) for i in every]
    filling = [above[i] * line.slowest_forward[i] for i in every]
    draining = [above[i] * line.slowest_backward[i] for i in every]
    fill = line.suffix_maximum([low[i] + filling[i] for i in every])
    drain = line.suffix_maximum([low[i] + draining[i] for i in every])
    best = low[-1]
    for i in every:
        there = start[i + 1] > 0
        best = maximum(best, maximum(filling[i] + drain[i], fill[i] + draining[i]) * there)
        left = m - 1 - above[i]
        loops = 0.0
        slowest = line.c[i]
        for j in reversed(range(i + 1)):
            slowest = maximum(slowest, line.c[j])
            length = maximum(start[i + 1] - start[j], 1)
            loop = rise_s[i + 1] - rise_s[j] - two_x
            times = left // length
            rest = left - times * length
            # What whole loops leave: one shorter loop at their top or bottom, single stages, or some loops one stage longer.
            at_top = rise_s[i + 1] - line.below(start[i + 1] - rest, line.climb) - two_x
            at_bottom = (line.below(start[j] + rest, line.climb) - rise_s[j] - two_x) * (times > 0)
            over = maximum(maximum(at_top, at_bottom), rest * slowest * (times > 0)) * (rest > 0)
            if j:
                under = line.climb[0]
                for run in range(1, j):
                    under = under * (line.count[run] <= 0) + line.climb[run] * (line.count[run] > 0)
                over = maximum(over, rest * under * (rest <= times) * (start[j] > 0))
            loops = maximum(loops, (times * loop + over) * (start[i + 1] > start[j]))
        best = maximum(best, (fill[i] + drain[i] - low[i] + loops) * there * (left > 0))
    return best


def _zero_bubble(pp: Number, m: Number, line: _Line) -> Number:
    """The slowest over loops s..t between the ends of runs, with one trip from t down to e and back before them, or none."""
    maximum, minimum, x = line.maximum, line.minimum, line.send_s
    last = len(line.count) - 1
    spots = [(0, 0 * pp)]
    for i in range(1, last):
        spots += [(i, line.start[i]), (i, line.start[i + 1] - 1)]
    spots.append((last, pp - 1))
    every = range(len(spots))
    run, at = [i for i, _ in spots], [stage for _, stage in spots]
    there = [(line.count[i] > 0) for i in run]
    f, b, w = ([values[i] for i in run] for values in (line.f, line.b, line.w))
    under = [line.below(stage, line.climb) for stage in at]
    low = [under[t] + f[t] + b[t] for t in every]
    above = [minimum(pp - 1 - stage, m - 1) for stage in at]
    # The drain: steps of B (and of W, once some are due) at a stage u, down to a stage whose put-off Ws end it all.
    down = [b_u + x for b_u in line.b]
    put_off = [(minimum(m, at[u] + 1) * w[u] - line.below(at[u], down)) * there[u] for u in every]
    # With fewer micro-batches than ranks, ranks from m - 1 on put off all of them: the count stops growing inside a run.
    knee = minimum(m, pp) - 1
    at_knee = (knee + 1) * line.at(knee, line.w) - line.below(knee, down)
    end: list[Number] = [put_off[0]]
    for u in every[1:]:
        end.append(maximum(maximum(end[-1], put_off[u]), at_knee * (at[u] >= knee)))
    draining = []
    for t in every:
        steps = [above[t] * b[u] + minimum(above[t], maximum(m - 1 - at[u], 0)) * w[u] + end[u] for u in range(t + 1)]
        slowest = steps[0]
        for step in steps[1:]:
            slowest = maximum(slowest, step)
        draining.append(slowest)
    filling, slowest = [], 0.0 * x
    for t in every:
        slowest = maximum(slowest, f[t])
        filling.append(above[t] * slowest)
    fill = line.suffix_maximum([(low[t] + filling[t]) * there[t] for t in every])
    drain = line.suffix_maximum([(low[t] + draining[t]) * there[t] for t in every])
    best = low[-1] + end[-1]
    for t in every:
        best = maximum(best, maximum(filling[t] + drain[t], fill[t] + draining[t]) * there[t])
        left = m - 1 - above[t]
        turns = 0.0
        for s in range(t + 1):
            loop, length = low[t] - under[s] + w[s], at[t] - at[s] + 1
            for e in (None, *range(s + 1)):
                gained = 0 if e is None else at[t] - at[e] + 1
                trip = 0.0 if e is None else low[t] - under[e] + w[e] * (at[e] == 0)
                times = maximum(left - gained, 0) // maximum(length, 1)
                rest = left - gained - times * length
                without = minimum(times, -(-maximum(at[s] - gained, 0) // maximum(length, 1)))
                bottom = at[t] + 1 - rest
                over = low[t] - line.below(bottom, line.climb) + line.at(bottom, line.w) * (gained + times * length >= bottom)
                due = minimum(rest, maximum(left - at[t], 0))
                over = maximum(over, (rest * (f[t] + b[t]) + due * w[t]) * (gained + times > 0)) * (rest > 0)
                whole = trip + times * loop - without * w[s] + over
                turns = maximum(turns, whole * (gained <= left) * (length > 0) * there[s] * (1 if e is None else there[e]))
        best = maximum(best, (fill[t] + drain[t] - low[t] + turns) * there[t] * (left > 0))
    return best


def _interleaved(
    p: Number, m: Number, v: Number, first: Run, middle: Run, last: Run, x: Number, maximum: Pick, minimum: Pick
) -> Number:
    """The slowest of the last rank, the one before it and the first, each with the fill before it and the drain after it.

    Fill and drain mirror each other: backwards in time, the Bs of a schedule are the Fs of another. So each part is computed
    twice, with f and b and with b and f. What lies between is all the rank's work, less what fill and drain have of it.
    """
    f0, b0 = first.forward_s, first.backward_s
    f, b = middle.forward_s, middle.backward_s
    c0, c, c1 = f0 + b0, f + b, last.forward_s + last.backward_s

    def climbs(g0: Number, g: Number) -> tuple[Number, Number]:
        """Until the first micro-batch is at the last stage: through all stages, or after its group at a slow first one."""
        through = g0 + (p * v - 2) * (g + x) + x
        return through, maximum(through, p * g0 + (p * v - 1 - p) * (g + x))

    up, up_most = climbs(f0, f)
    down, down_most = climbs(b0, b)
    best = up_most + down_most + m * c1 + (m - p) * (v - 1) * c

    # The rank before the last: its own stages are all of the middle (with 2 ranks it is the first, which the next form has).
    def before_last(climb: Number, climb_most: Number, g: Number, g0: Number, h: Number) -> Number:
        own = maximum(climb_most, climb + 2 * (maximum(g0, g) - g)) + g - x + c
        return maximum(climb_most + c1 + h + x, own)

    between = m * v - 4 - (v - 1) * p
    paired = before_last(up, up_most, f, f0, b) + before_last(down, down_most, b, b0, f) + between * c
    best = maximum(best, paired * (p > 2) * (between >= 0))
    unpaired = up_most + down_most + maximum(c1 + (p - 1) * maximum(b, f), (p - 1) * c - 2 * x)
    best = maximum(best, unpaired * (between < 0))

    # The first rank: after the last rank has done the first group's last stage, or down from it, or after its own warm-up.
    def until_first(climb_most: Number, g0: Number, g: Number, h: Number) -> Number:
        after_last = climb_most + maximum(p * c1 + g + x, c1 + (p - 1) * (h + x) + g0 + h)
        own = maximum(g0 + (p - 1) * maximum(g0, g) + (v - 1) * p * (g + x), p * (g0 + g) + (v - 2) * p * (g + x))
        return maximum(after_last, own + p * g0 + 2 * h)

    begun = until_first(up_most, f0, f, b) + until_first(down_most, b0, b, f)
    return maximum(best, (begun + (m - 2 * p) * c0 + ((m - p) * (v - 1) - 2) * c) * (m >= 2 * p))
