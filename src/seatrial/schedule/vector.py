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

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from seatrial.schedule.lists import KINDS, Action, Kind, check, comes_from, global_stage, schedule
from seatrial.schedule.time import Seconds, durations

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ALIKE = 1e-12
"""Growth that differs by less, as a share of a block's time, is the same growth."""

NOWHERE = np.iinfo(np.int64).max


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


def enough(kind: str, pp: int) -> int:
    """Micro-batches with which every rank fills up, repeats itself in the middle of its list, and drains."""
    group = KINDS[kind].group(pp)
    return group * (2 * pp // group + 2)


@lru_cache(maxsize=1024)
def lockstep(kind: str, pp: int, virtual: int) -> Lockstep:
    group, count, stages = KINDS[kind].group(pp), enough(kind, pp), pp * virtual
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
            raise RuntimeError(f"schedule {kind}, PP {pp}, VP {virtual}: the list of rank {rank} does not repeat itself")
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
        raise RuntimeError(f"schedule {kind}, PP {pp}, VP {virtual}: a message waits for longer than a block")
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
    form = KINDS[kind]
    if form.forwards_first:
        # Two flow shops of equal jobs: each takes one job through, and then its slowest stage m - 1 times.
        through = forward_s.sum(axis=0) + backward_s.sum(axis=0) + (0.0 if send_s is None else 2 * send_s.sum(axis=0))
        return through + (microbatches - 1) * (forward_s.max(axis=0) + backward_s.max(axis=0))
    if form.splits_backward and weight_s is None:
        backward_s = weight_s = backward_s / 2
    spent = np.concatenate([forward_s, backward_s] + ([] if weight_s is None else [weight_s]))
    if send_s is not None:
        send_s = np.concatenate([send_s, np.zeros((1, send_s.shape[1]))]) if send_s.any() else None
    return _Run(lockstep(kind, pp, virtual), microbatches, spent, send_s).makespans()


class _Run:
    """Layouts of one schedule, beat by beat. `ring` has when each action of the last block ended, and a last row of zeros."""

    def __init__(self, step: Lockstep, microbatches: Ints, spent: Floats, send: Floats | None):
        self.step, self.beats, self.size = step, len(step.source), step.source.size
        self.source = np.where(step.source == NOWHERE, self.size, step.source % self.size)
        self.total = np.zeros(len(microbatches))
        self.rows = np.arange(len(microbatches))
        self.left = microbatches.copy()
        """Micro-batches, less those leapt over."""
        self.spent, self.send = np.ascontiguousarray(spent), send
        self.ring = np.zeros((self.size + 1, len(microbatches)))

    def makespans(self) -> Floats:
        earliest, latest, group = int(self.step.microbatch.min()), int(self.step.microbatch.max()), self.step.group
        first = -(latest // group) * group
        kept: list[Floats] = []
        while len(self.left):
            self._block(first, masked=first + earliest < 0 or first + latest >= self.left.min())
            spare = (self.left - 1 - latest - first) // group
            if first + earliest >= 0 and spare.max() > 0:
                kept.append(self.ring[: self.size].copy())
                if len(kept) == 3:
                    self._leap(kept, spare)
                    kept = []
            first += group
            done = first + earliest >= self.left
            if 2 * done.sum() > len(done):
                self._put_down(done)
                kept = []
        return self.total

    def _block(self, first: int, *, masked: bool) -> None:
        ranks = self.source.shape[1]
        last = self.ring[self.size - ranks : self.size]
        now, spent, fewest = np.empty_like(last), np.empty_like(last), self.left.min()
        for beat in range(self.beats):
            self.ring.take(self.source[beat], axis=0, out=now, mode="clip")
            if self.send is not None:
                now += self.send[self.step.boundary[beat]]
            np.maximum(now, last, out=now)
            self.spent.take(self.step.duration[beat], axis=0, out=spent, mode="clip")
            now += spent
            if masked:
                which = (self.step.microbatch[beat] + first)[:, None]
                idle = which < 0
                np.copyto(now, last, where=idle if which.max() < fewest else idle | (which >= self.left))
            last = self.ring[beat * ranks : (beat + 1) * ranks]
            last[...] = now

    def _leap(self, kept: list[Floats], spare: Ints) -> None:
        """Add as many blocks as change nothing but the clock, `spare` at most."""
        grown = kept[2] - kept[1]
        tiny = ALIKE * grown.max(axis=0)
        alike = np.flatnonzero((np.abs(grown - kept[1] + kept[0]) <= tiny).all(axis=0) & (spare > 0))
        if not len(alike):
            return
        ended, grown, tiny = kept[2].take(alike, axis=1), grown.take(alike, axis=1), tiny[alike]
        blocks = spare[alike].astype(np.float64)
        source = self.step.source.reshape(-1)
        waits = np.flatnonzero(source != NOWHERE)
        if len(waits):
            def of(place: Ints) -> tuple[Floats, Floats]:
                """When it ended, one growth earlier where it lies in the block before, and by how much it grows."""
                by = grown.take(place % self.size, axis=0)
                return ended.take(place % self.size, axis=0) + (place // self.size)[:, None] * by, by

            (own, own_by), (other, other_by) = of(waits - self.source.shape[1]), of(source[waits])
            # By how much the rank is free later than its message comes, and the same a block ago.
            gap, rate = own - other, own_by - other_by
            if self.send is not None:
                gap -= self.send[self.step.boundary.reshape(-1)[waits]][:, alike]
            ago = gap - rate
            with np.errstate(divide="ignore", invalid="ignore"):
                until = np.where(np.abs(gap) < np.abs(ago), np.abs(gap / rate), np.inf)
            until = np.where(gap * ago <= 0, 0.0, until)
            blocks = np.minimum(blocks, np.where(np.abs(rate) <= tiny, np.inf, until).min(axis=0))
        leapt = np.floor(blocks)
        self.ring[: self.size, alike] += leapt * grown
        self.left[alike] -= leapt.astype(np.int64) * self.step.group

    def _put_down(self, done: NDArray[np.bool_]) -> None:
        """Write down the layouts that are done and go on with the rest."""
        self.total[self.rows[done]] = self.ring[self.size - self.source.shape[1] : self.size, done].max(axis=0)
        on = np.flatnonzero(~done)
        self.rows, self.left = self.rows[on], self.left[on]
        self.ring, self.spent = self.ring.take(on, axis=1), self.spent.take(on, axis=1)
        self.send = None if self.send is None else self.send.take(on, axis=1)


@lru_cache(maxsize=4096)
def _peaks(kind: str, pp: int, rank: int, virtual: int) -> Ints:
    """[groups of micro-batches, from 0]: the most that is held at once, counted in the list of enough of them."""
    group, most = KINDS[kind].group(pp), enough(kind, pp)
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
