"""How long schedules take and how much they hold, exactly, for many layouts at once, from the lists that the engine executes.

    makespan("1f1b", pp=64, microbatches=512, forward_s=[...], backward_s=[...], send_s=0.01)    one layout, as `walk` takes it
    makespans("zb-h1", pp=12, microbatches=m, forward_s=f, backward_s=b)        [n] seconds: m is [n], durations [stages, n]
    peaks("1f1b", pp=12, rank=0, microbatches=m)                                [n] activations at the fullest moment

Every list but GPipe's repeats a block of actions, each time a group of micro-batches later, and the list of m micro-batches
is that endless one with all others struck out. `lockstep` reads the block from the lists and shifts the ranks against each
other, so that each does one action a beat and what it waits for was made some beats before. A beat is then a few numpy calls
over all ranks and layouts, and layouts may differ in their number of micro-batches.

Most of a long batch is not run. As long as every action waits for the same as it did a block before, its rank or a message,
all times grow by the same amounts each block. So where two blocks grew alike, a layout leaps over as many as there are until
the first action would wait for the other one. That is exact, also where one rank is hardly slower than another and takes
hundreds of micro-batches to show it.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial.schedule.lists import KINDS, Action, Kind, check, comes_from, global_stage, schedule
from seatrial.schedule.time import Seconds, durations

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ALIKE = 1e-12
"""Growth that differs by less, as a share of a block's time, is the same growth."""

FEW = 64
"""Layouts of one schedule that run side by side with those of others: numpy's own overhead outweighs theirs."""

NOWHERE = np.iinfo(np.int64).max
NEVER = -(1 << 40)
"""Of a micro-batch: far from its turn."""


@dataclass(frozen=True)
class Lockstep:
    """The block of a schedule: which action each rank does at each beat. Arrays are [beats, ranks]."""

    group: int
    """Micro-batches a block."""
    microbatch: Ints
    """In the block that begins at beat 0, and `group` more in each block after; below 0 there is nothing to do yet."""
    duration: Ints
    """Row among the durations: forwards of all stages, then backwards, then weight gradients."""
    source: Ints
    """Where its input was made, as a flat place in this array, below 0 in the block before; NOWHERE without input."""
    boundary: Ints
    """The boundary that its input crosses, the number of boundaries where it has none."""


def enough(kind: str, pp: int, group: int) -> int:
    """Micro-batches with which every rank fills up, repeats itself in the middle of its list, and drains."""
    return group * (KINDS[kind].fill * pp // group + 2)


@lru_cache(maxsize=1024)
def lockstep(kind: str, pp: int, virtual: int, repeats: int = 1) -> Lockstep:
    """`repeats`: how many of the least blocks are one; more where a message waits for longer than a block."""
    group, stages = repeats * KINDS[kind].group(pp), pp * virtual
    count = enough(kind, pp, group)
    lists = [schedule(kind, pp=pp, rank=rank, microbatches=count, virtual=virtual) for rank in range(pp)]
    beats = len(lists[0]) * group // count
    # Where each action is in its rank's endless list: (kind, chunk, micro-batch within its group) -> beat, of the first group.
    places: list[dict[tuple[Kind, int, int], int]] = []
    for rank, actions in enumerate(lists):
        middle = len(actions) // 2 - beats
        block, following = actions[middle : middle + beats], actions[middle + beats : middle + 2 * beats]
        places.append({(a.kind, a.chunk, a.microbatch % group): at - a.microbatch // group * beats
                       for at, a in enumerate(block, middle)})
        if following != [Action(a.kind, a.microbatch + group, a.chunk) for a in block] or len(places[-1]) != beats:
            raise RuntimeError(f"schedule {kind}, PP {pp}, VP {virtual}: the list of rank {rank} does not repeat itself within "
                               f"{count} micro-batches; does it run further ahead than its `fill` says?")
    inputs = [(rank, at, source, places[source][what, made.chunk, within])
              for rank, mine in enumerate(places) for (what, chunk, within), at in mine.items()
              for source, made in [comes_from(Action(what, within, chunk), pp=pp, rank=rank, virtual=virtual) or (-1, None)]
              if made is not None]
    shift = _shifts(pp, inputs)
    if shift is None:
        raise RuntimeError(f"schedule {kind}, PP {pp}, VP {virtual}: no shift of its ranks lets them run in lockstep")
    made_at = {(rank, at): (there + shift[source], source) for rank, at, source, there in inputs}
    shape = (beats, pp)
    found = Lockstep(group, np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full(shape, NOWHERE),
                     np.full(shape, stages - 1))
    for rank, mine in enumerate(places):
        for (what, chunk, within), at in mine.items():
            stage = global_stage(pp, rank, chunk)
            blocks, beat = divmod(at + shift[rank], beats)
            found.microbatch[beat, rank] = within - blocks * group
            found.duration[beat, rank] = list(Kind).index(what) * stages + stage
            if made := made_at.get((rank, at)):
                found.source[beat, rank] = (made[0] - blocks * beats) * pp + made[1]
                found.boundary[beat, rank] = stage - (what is Kind.FORWARD)
    if (found.source < -found.source.size).any():
        return lockstep(kind, pp, virtual, 2 * repeats)
    return found


def _shifts(pp: int, inputs: list[tuple[int, int, int, int]]) -> list[int] | None:
    """By how many beats each rank begins later, so that every input is made before it is needed; None if nothing does it."""
    least: dict[tuple[int, int], int] = {}
    for rank, at, source, there in inputs:
        least[rank, source] = max(least.get((rank, source), there + 1 - at), there + 1 - at)
    shift = [0] * pp
    for _ in range(pp + 1):
        before = list(shift)
        for (rank, source), by in least.items():
            shift[rank] = max(shift[rank], shift[source] + by)
        if shift == before:
            return shift
    return None


def makespan(kind: str, *, pp: int, microbatches: int, virtual: int = 1, forward_s: Seconds, backward_s: Seconds,
             weight_s: Seconds | None = None, send_s: Seconds = 0.0) -> float:
    """`walk(...).total_s`, for the same arguments."""
    check(kind, pp=pp, microbatches=microbatches, virtual=virtual)
    each = durations(kind, pp=pp, virtual=virtual, forward_s=forward_s, backward_s=backward_s, weight_s=weight_s,
                     send_s=send_s)
    forward, backward, weight, send = (np.array(seconds)[:, None] for seconds in each)
    return float(makespans(kind, pp=pp, virtual=virtual, microbatches=np.array([microbatches]), forward_s=forward,
                           backward_s=backward, weight_s=weight, send_s=send)[0])


def makespans(kind: str, *, pp: int, virtual: int = 1, microbatches: Ints, forward_s: Floats, backward_s: Floats,
              weight_s: Floats | None = None, send_s: Floats | None = None) -> Floats:
    """[n] seconds for [n] micro-batches, [stages, n] durations and [stages - 1, n] messages.

    Without `weight_s`, `backward_s` is the whole backward pass; a schedule that splits it takes one half for each.
    """
    return makespans_of([Layouts(kind, pp, virtual, microbatches, forward_s, backward_s, weight_s, send_s)])[0]


class Layouts(NamedTuple):
    """Layouts of one schedule, as `makespans` takes them."""

    kind: str
    pp: int
    virtual: int
    microbatches: Ints
    forward_s: Floats
    backward_s: Floats
    weight_s: Floats | None = None
    send_s: Floats | None = None

    def two_flow_shops(self) -> Floats:
        """All forwards, then all backwards: each takes one micro-batch through, and then its slowest stage m - 1 times."""
        through = self.forward_s.sum(axis=0) + self.backward_s.sum(axis=0)
        through = through if self.send_s is None else through + 2 * self.send_s.sum(axis=0)
        return through + (self.microbatches - 1) * (self.forward_s.max(axis=0) + self.backward_s.max(axis=0))

    def spent(self) -> Floats:
        """[forwards, backwards and weight gradients of all stages, n]."""
        if KINDS[self.kind].splits_backward and self.weight_s is None:
            return np.concatenate([self.forward_s, self.backward_s / 2, self.backward_s / 2])
        return np.concatenate([self.forward_s, self.backward_s] + ([] if self.weight_s is None else [self.weight_s]))


def makespans_of(asked: Sequence[Layouts]) -> list[Floats]:
    """`makespans` of several schedules; those with few layouts run side by side, where their blocks are as long."""
    found: dict[int, Floats] = {}
    together: dict[tuple[int, int, int], list[int]] = {}
    for i, one in enumerate(asked):
        if KINDS[one.kind].forwards_first:
            found[i] = one.two_flow_shops()
            continue
        step = lockstep(one.kind, one.pp, one.virtual)
        alone = len(one.microbatches) > FEW or one.send_s is not None
        together.setdefault((len(step.source), step.group, i if alone else -1), []).append(i)
    for places in together.values():
        ones = [asked[i] for i in places]
        ends = np.cumsum([len(one.microbatches) for one in ones])
        found.update(zip(places, np.split(_Run(ones).makespans(), ends[:-1])))
    return [found[i] for i in range(len(asked))]


class _Run:
    """Layouts beat by beat. `ring` has when each action of the last block ended, and a last row of zeros.

    Tables are [beats, ranks, 1] for layouts of one schedule, [beats, ranks, layouts] for several; ranks that a layout does not
    have are never up to anything.
    """

    def __init__(self, asked: Sequence[Layouts]):
        steps = [lockstep(one.kind, one.pp, one.virtual) for one in asked]
        counts = [len(one.microbatches) if len(asked) > 1 else 1 for one in asked]
        self.shared, self.group, self.beats = len(asked) == 1, steps[0].group, len(steps[0].source)
        self.ranks = max(one.pp for one in asked)
        self.size = self.beats * self.ranks
        self.earliest = min(int(step.microbatch.min()) for step in steps)
        self.latest = max(int(step.microbatch.max()) for step in steps)

        def table(name: str, missing: int) -> Ints:
            out = np.full((self.beats, self.ranks, sum(counts)), missing)
            for step, one, count, end in zip(steps, asked, counts, np.cumsum(counts)):
                values = getattr(step, name)
                if name == "source":  # a place among as many ranks as there are here
                    values = np.where(values == NOWHERE, NOWHERE, values // one.pp * self.ranks + values % one.pp)
                out[:, : one.pp, end - count : end] = values[:, :, None]
            return out

        self.microbatch, self.source = table("microbatch", NEVER), table("source", NOWHERE)
        self.duration, self.boundary = table("duration", 0), table("boundary", 0)
        self.left = np.concatenate([one.microbatches for one in asked])
        """Micro-batches, less those leapt over."""
        self.total, self.rows = np.zeros(len(self.left)), np.arange(len(self.left))
        spent = [one.spent() for one in asked]
        self.spent = np.zeros((max(map(len, spent)), len(self.left)))
        for mine, end in zip(spent, np.cumsum([mine.shape[1] for mine in spent])):
            self.spent[: len(mine), end - mine.shape[1] : end] = mine
        send = asked[0].send_s
        self.send = None if send is None or not send.any() else np.concatenate([send, np.zeros((1, send.shape[1]))])
        self.ring = np.zeros((self.size + 1, len(self.left)))
        self._index()

    def _index(self) -> None:
        """What is taken from ring and durations at each beat: rows of them, or, where layouts differ, single elements."""
        source = np.where(self.source == NOWHERE, self.size, self.source % self.size)
        self.axis = 0 if self.shared else None
        if self.shared:
            self.input, self.lasts = source[:, :, 0], self.duration[:, :, 0]
        else:
            n = len(self.left)
            self.input, self.lasts = source * n + np.arange(n), self.duration * n + np.arange(n)
        self.lowest, self.highest = self.microbatch.min(axis=(1, 2)).tolist(), self.microbatch.max(axis=(1, 2)).tolist()

    def makespans(self) -> Floats:
        first = -(self.latest // self.group) * self.group
        kept: list[Floats] = []
        fewest, most = int(self.left.min()), int(self.left.max())
        while True:
            self._block(first, fewest)
            if first + self.earliest >= 0 and most - 1 - self.latest - first >= self.group:
                kept.append(self.ring[: self.size].copy())
                if len(kept) == 3:
                    self._leap(kept, (self.left - 1 - self.latest - first) // self.group)
                    kept, fewest, most = [], int(self.left.min()), int(self.left.max())
            first += self.group
            if first + self.earliest >= fewest:
                done = first + self.earliest >= self.left
                if 2 * done.sum() > len(done):
                    self._put_down(done)
                    if not len(self.left):
                        return self.total
                    kept, fewest, most = [], int(self.left.min()), int(self.left.max())

    def _block(self, first: int, fewest: int) -> None:
        last = self.ring[self.size - self.ranks : self.size]
        now, spent = np.empty_like(last), np.empty_like(last)
        for beat in range(self.beats):
            self.ring.take(self.input[beat], axis=self.axis, out=now, mode="clip")
            if self.send is not None:
                now += self.send[self.boundary[beat, :, 0]]
            np.maximum(now, last, out=now)
            self.spent.take(self.lasts[beat], axis=self.axis, out=spent, mode="clip")
            now += spent
            ends = first + self.highest[beat] >= fewest
            if ends or first + self.lowest[beat] < 0:
                which = self.microbatch[beat] + first
                np.copyto(now, last, where=(which < 0) | (which >= self.left) if ends else which < 0)
            last = self.ring[beat * self.ranks : (beat + 1) * self.ranks]
            last[...] = now

    def _leap(self, kept: list[Floats], spare: Ints) -> None:
        """Add as many blocks as change nothing but the clock, `spare` at most."""
        grown = kept[2] - kept[1]
        tiny = ALIKE * grown.max(axis=0)
        alike = np.flatnonzero((np.abs(grown - kept[1] + kept[0]) <= tiny).all(axis=0) & (spare > 0))
        if not len(alike):
            return
        ended, grown, tiny = kept[2].take(alike, axis=1), grown.take(alike, axis=1), tiny[alike]

        def of(place: Ints) -> tuple[Floats, Floats]:
            """When it ended, one growth earlier where it lies in the block before, and by how much it grows."""
            if self.shared:
                by, then = (what.take(place[:, 0] % self.size, axis=0) for what in (grown, ended))
            else:
                by, then = (np.take_along_axis(what, place % self.size, axis=0) for what in (grown, ended))
            return then + place // self.size * by, by

        source = self.source.reshape(self.size, -1)
        source = source if self.shared else source[:, alike]
        waits = np.flatnonzero((source != NOWHERE).any(axis=1))
        blocks = spare[alike].astype(np.float64)
        if len(waits):
            before = np.broadcast_to((waits - self.ranks)[:, None], (len(waits), source.shape[1]))
            missing = source[waits] == NOWHERE
            (own, own_by), (other, other_by) = of(before), of(np.where(missing, 0, source[waits]))
            # By how much the rank is free later than its message comes, and the same a block ago.
            gap, rate = own - other, own_by - other_by
            if self.send is not None:
                gap -= self.send[self.boundary.reshape(-1)[waits]][:, alike]
            ago = gap - rate
            with np.errstate(divide="ignore", invalid="ignore"):
                until = np.where(np.abs(gap) < np.abs(ago), np.abs(gap / rate), np.inf)
            until = np.where(gap * ago <= 0, 0.0, until)
            blocks = np.minimum(blocks, np.where(missing | (np.abs(rate) <= tiny), np.inf, until).min(axis=0))
        leapt = np.floor(blocks)
        self.ring[: self.size, alike] += leapt * grown
        self.left[alike] -= leapt.astype(np.int64) * self.group

    def _put_down(self, done: NDArray[np.bool_]) -> None:
        """Write down the layouts that are done and go on with the rest."""
        self.total[self.rows[done]] = self.ring[self.size - self.ranks : self.size, done].max(axis=0)
        on = np.flatnonzero(~done)
        self.rows, self.left = self.rows[on], self.left[on]
        self.ring, self.spent = self.ring.take(on, axis=1), self.spent.take(on, axis=1)
        self.send = None if self.send is None else self.send.take(on, axis=1)
        if len(on) and not self.shared:
            tables = self.microbatch, self.source, self.duration
            self.microbatch, self.source, self.duration = (table.take(on, axis=2) for table in tables)
            self._index()


@lru_cache(maxsize=4096)
def _peaks(kind: str, pp: int, rank: int, virtual: int) -> Ints:
    """[groups of micro-batches, from 0]: the most that is held at once, counted in the list of enough of them."""
    group = KINDS[kind].group(pp)
    most = enough(kind, pp, group)
    actions = schedule(kind, pp=pp, rank=rank, microbatches=most, virtual=virtual)
    freed_by = Kind.WEIGHT if KINDS[kind].splits_backward else Kind.BACKWARD
    change = np.array([(a.kind is Kind.FORWARD) - (a.kind is freed_by) for a in actions])
    which = np.array([a.microbatch // group for a in actions])
    return np.where(which < np.arange(most // group + 1)[:, None], change, 0).cumsum(axis=1).max(axis=1)


def peaks(kind: str, *, pp: int, rank: int, virtual: int = 1, microbatches: Ints) -> Ints:
    """[n] (micro-batch, chunk) pairs of which a rank holds something at its fullest moment, for [n] micro-batches."""
    table = _peaks(kind, pp, rank, virtual)
    groups = -(-microbatches // KINDS[kind].group(pp))
    beyond = np.maximum(groups - len(table) + 1, 0)
    return table[np.minimum(groups, len(table) - 1)] + beyond * (table[-1] - table[-2])
