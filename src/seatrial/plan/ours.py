"""Our own engine's memory for many layouts at once: the count of `arith/footprint.py`, its numbers columns.

    ours.footprints(configs, gpu=True).total            [3, n] bytes: first pipeline rank, the fullest in between, the last
    ours.footprints(configs, gpu=True).parts["logits"]  [3, n] at each rank's fullest moment; the parts add up to the total

The first rank, the last, and of those in between all that no other outdoes are counted. What a schedule holds is worked out
once for every distinct (schedule, PP, VP, micro-batches, stages) and kept.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from seatrial.arith.footprint import FP32, PARTS, Chunk, Layout, chunks_of, moments
from seatrial.arith.held import Held, held_by, saturated
from seatrial.plan.configs import OF_MODEL, PRECISIONS, RECOMPUTE, SCHEDULES, SPLITS, Configs, Floats, Ints, execution_at
from seatrial.schedule import splits_backward
from seatrial.spec import BYTES, Execution

FIRST, MIDDLE, LAST = 0, 1, 2
PIECE = 8192
"""(Layout, rank, moment of its schedule) triples at a time: their columns stay in the cache."""
MOST = (1 << 20) - 1
"""Micro-batches that are told apart."""

_BYTES = np.array([max(2, BYTES[p]) for p in PRECISIONS])
_BF16, _FP8 = (np.array([p in which for p in PRECISIONS], dtype=np.int64) for which in (("bf16", "fp8"), ("fp8",)))
_SPLITS_BACKWARD = np.array([splits_backward(kind) for kind in SCHEDULES], dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Footprints:
    """Bytes on the first pipeline rank, on the fullest in between (0 where there is none) and on the last."""

    total: Floats
    """[3, n]"""
    parts: dict[str, Floats]
    """[3, n] each; `working` has the tables of positions, which every layer shares, beside what a pass makes for a while."""


def footprints(c: Configs, *, gpu: bool) -> Footprints:
    """Buckets, optimizer and logits as each one's execution says."""
    codes = np.unique(c.execution)
    if len(codes) > 1:
        return _apart(c, codes, gpu=gpu)
    execution = execution_at(int(codes[0])) if len(codes) else Execution()
    table = _Table.of(gpu)
    place, start, count = table.rows_of(c)
    # One item for each moment that a schedule can be fullest at.
    row = np.repeat(np.arange(len(c)), count)
    first = np.cumsum(count) - count
    item = np.arange(len(row)) - np.repeat(first, count) + np.repeat(start, count)
    found = np.empty((len(PARTS), len(row)))
    for at in range(0, len(row), PIECE):
        here = slice(at, at + PIECE)
        found[:, here] = _fullest(_layout(c, row[here], execution), table, item[here], gpu=gpu)
    return _by_rank(found, row * 3 + place[item], alone=c.pp == 1)


def _apart(c: Configs, codes: Ints, *, gpu: bool) -> Footprints:
    """Those of each execution together."""
    total: Floats = np.zeros((3, len(c)))
    parts: dict[str, Floats] = {}
    for code in codes:
        where = c.execution == code
        found = footprints(c.take(where), gpu=gpu)
        total[:, where] = found.total
        for name, value in found.parts.items():
            parts.setdefault(name, np.zeros((3, len(c))))[:, where] = value
    return Footprints(total=total, parts=parts)


def _fullest(lay: Layout, table: _Table, items: Ints, *, gpu: bool) -> Floats:
    """[parts, items] of the fullest moment."""
    held = Held(*table.held[items].T)
    chunks = [Chunk(*columns.T) for columns in np.moveaxis(table.chunks[items], 1, 0)]
    best, parts = np.full(len(items), -1.0), np.zeros((len(PARTS), len(items)))
    for moment in moments(lay, chunks, [held], gpu=gpu):
        total = sum(np.asarray(part, dtype=np.float64) for part in moment)
        better = total > best
        best = np.where(better, total, best)
        for number, part in enumerate(moment):
            np.copyto(parts[number], part, where=better)
    return parts


def _by_rank(found: Floats, group: Ints, *, alone: NDArray[np.bool_]) -> Footprints:
    """The fullest item of each (layout, place); `alone`: where the first rank is the last."""
    n = len(alone)
    total = found.sum(axis=0)
    order = np.lexsort((-total, group))
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    parts = np.zeros((len(PARTS), 3 * n))
    parts[:, group[order][begins]] = found[:, order[begins]]
    by_rank = parts.reshape(len(PARTS), n, 3).transpose(0, 2, 1)
    by_rank[:, LAST, alone] = by_rank[:, FIRST, alone]
    by_part = dict(zip(PARTS, by_rank))
    by_part["working"] = by_part["working"] + by_part.pop("buffers")
    return Footprints(total=sum(by_part.values(), np.zeros((3, n))), parts=by_part)


def _layout(c: Configs, rows: Ints, execution: Execution) -> Layout:
    shape = SimpleNamespace(**{name: getattr(c, name)[rows] for name in OF_MODEL})
    precision, schedule, recompute = c.precision[rows], c.schedule[rows], c.recompute[rows]
    return Layout(
        shape=shape, vocab=c.vocab[rows], tp=c.tp[rows], dp=c.dp[rows], pp=c.pp[rows], mbs=c.mbs[rows],
        microbatches=c.microbatches[rows], zero=c.zero[rows], selective=(recompute == RECOMPUTE.index("selective")) * 1,
        full=(recompute == RECOMPUTE.index("full")) * 1, splits=_SPLITS_BACKWARD[schedule],
        sequence_parallel=c.sequence_parallel[rows], element=_BYTES[precision], bf16=_BF16[precision], fp8=_FP8[precision],
        moments=BYTES[execution.moments], plain=int(execution.optimizer == "adamw-plain"),
        bucket=int(execution.bucket_mib * 2**20 / FP32), logits_chunk=execution.logits_chunk,
    )  # fmt: skip


# what schedules hold, each worked out once


class _Table:
    """Rows of (place, held, chunks): those of one (schedule, PP, VP, micro-batches, stages) lie one after the other."""

    _both: dict[bool, _Table] = {}

    @classmethod
    def of(cls, gpu: bool) -> _Table:
        return cls._both.setdefault(gpu, cls(gpu))

    def __init__(self, gpu: bool):
        self.gpu = gpu
        self.known: dict[int, tuple[int, int]] = {}
        self.rows: list[tuple[int, Held, list[Chunk]]] = []
        self.place: Ints = np.zeros(0, dtype=np.int64)
        self.held: Ints = np.zeros((0, len(Held._fields)), dtype=np.int64)
        self.chunks: Ints = np.zeros((0, 1, 4), dtype=np.int64)

    def rows_of(self, c: Configs) -> tuple[Ints, Ints, Ints]:
        """The place of every row of the table, and of each layout its first row and how many there are."""
        most = np.where(c.schedule == SCHEDULES.index("gpipe"), MOST, 4 * c.pp * c.vp)
        microbatches = np.minimum(c.microbatches, np.minimum(most, MOST))
        keys, back = np.unique(c.split << 42 | c.pp << 24 | c.schedule << 20 | microbatches, return_inverse=True)
        spans = [self.known.get(key) or self._add(key) for key in keys.tolist()]
        if len(self.place) < len(self.rows):
            self._stack()
        start, count = np.array(spans, dtype=np.int64).reshape(-1, 2).T
        return self.place, start[back], count[back]

    def _add(self, key: int) -> tuple[int, int]:
        split, pp = SPLITS[key >> 42], key >> 24 & 0x3FFFF
        kind, microbatches = SCHEDULES[key >> 20 & 0xF], key & MOST
        start = len(self.rows)
        for rank in ranks_of(split, pp, splits=splits_backward(kind)):
            place = FIRST if rank == 0 else LAST if rank == pp - 1 else MIDDLE
            layers = split[rank::pp]
            chunks = chunks_of(layers, first=rank == 0, last=rank == pp - 1)
            held = held_by(kind, pp=pp, rank=rank, layers=layers, gpu=self.gpu,
                           microbatches=saturated(kind, pp, len(layers), microbatches))
            self.rows += [(place, one, chunks) for one in held]
        self.known[key] = start, len(self.rows) - start
        return self.known[key]

    def _stack(self) -> None:
        new = self.rows[len(self.place) :]
        width = max(self.chunks.shape[1], *(len(chunks) for _, _, chunks in new))
        nothing = Chunk(0, 0, 0, 0)
        added = np.array([[*chunks, *[nothing] * (width - len(chunks))] for _, _, chunks in new], dtype=np.int64)
        before = np.pad(self.chunks, ((0, 0), (0, width - self.chunks.shape[1]), (0, 0)))
        self.chunks = np.concatenate([before, added])
        self.held = np.concatenate([self.held, np.array([held for _, held, _ in new], dtype=np.int64)])
        self.place = np.concatenate([self.place, np.array([place for place, _, _ in new], dtype=np.int64)])


def ranks_of(split: tuple[int, ...], pp: int, *, splits: bool) -> list[int]:
    """The first, the last, and those between that can be the fullest: earlier ones hold more, but later ones have more weight
    gradients that wait where the schedule splits the backward pass."""
    between: list[int] = []
    for rank in range(1, pp - 1):
        layers = split[rank::pp]
        outdone = any(all(a >= b for a, b in zip(split[other::pp], layers)) for other in between)
        if not outdone or splits:
            between.append(rank)
    if splits:
        between = list(_ends_of_runs(between, split, pp))
    return [0, *between, *([pp - 1] if pp > 1 else [])]


def _ends_of_runs(ranks: list[int], split: tuple[int, ...], pp: int) -> Iterator[int]:
    """What is held changes evenly from rank to rank as long as the layers are the same: either end is the fullest."""
    for at, rank in enumerate(ranks):
        alike = [0 <= near < len(ranks) and split[ranks[near] :: pp] == split[rank::pp] for near in (at - 1, at + 1)]
        if not all(alike):
            yield rank
