"""Our own engine's memory for many layouts at once: the count of `arith/footprint.py`, its numbers columns.

    ours.footprints(configs, gpu=True).total            [3, n] bytes: first pipeline rank, the fullest in between, the last
    ours.footprints(configs, gpu=True).parts["logits"]  [3, n] at each rank's fullest moment; the parts add up to the total

The first rank, the last, and of those in between all that no other outdoes are counted. What a schedule holds is worked out
once for every distinct (schedule, PP, VP, micro-batches, stages) and kept.
"""
from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seatrial import stages
from seatrial.arith.footprint import PARTS, Moment, Rank
from seatrial.arith.held import Held, fullest, held_by
from seatrial.arith.layout import FP32, Layout
from seatrial.arith.states import Chunk, chunks_of
from seatrial.plan import experts
from seatrial.plan.configs import GATHER, PRECISIONS, RECOMPUTE, SCHEDULES, SPLITS, Configs, Floats, Ints, execution_at
from seatrial.schedule import KINDS, splits_backward
from seatrial.spec import BYTES, Execution

FIRST, MIDDLE, LAST = 0, 1, 2
PIECE = 8192
"""(Layout, rank) pairs at a time: their columns stay in the cache."""
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
    """[3, n] each; `working` has the tables of positions, which every layer shares, and libraries' workspaces beside what a
    pass makes for a while."""


def footprints(c: Configs, *, gpu: bool) -> Footprints:
    """Buckets, optimizer and logits as each one's execution says."""
    codes = np.unique(c.execution)
    if len(codes) > 1:
        return _apart(c, codes, gpu=gpu)
    execution = execution_at(int(codes[0])) if len(codes) else Execution()
    table = _Table.of(gpu)
    layouts, ranks = table.ranks_of(c)
    # Those that have the same moments lie together.
    order = np.argsort(table.place[ranks] * 2 + _cut(c)[layouts], kind="stable")
    layouts, ranks = layouts[order], ranks[order]
    found = np.empty((len(PARTS), len(ranks)))
    for at in range(0, len(ranks), PIECE):
        here = slice(at, at + PIECE)
        found[:, here] = _fullest(_layout(c.take(layouts[here]), execution), table, ranks[here], gpu=gpu)
    return _by_rank(found, layouts * 3 + table.place[ranks], alone=c.pp == 1)


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


def _fullest(lay: Layout, table: _Table, ranks: Ints, *, gpu: bool) -> Floats:
    """[parts, ranks] of each rank's fullest moment."""
    own = Rank.of(lay, [Chunk(*columns.T) for columns in np.moveaxis(table.chunks[ranks], 1, 0)], gpu=gpu)
    best, parts = np.full(len(ranks), -1.0), np.zeros((len(PARTS), len(ranks)))

    def consider(rows: Ints, found: list[Moment]) -> None:
        for moment in found:
            total = np.asarray(sum(moment))
            better = total > best[rows]
            which = rows[better]
            best[which] = total[better]
            for number, part in enumerate(moment):
                parts[number, which] = _take(part, better)

    everyone = np.arange(len(ranks))
    consider(everyone, own.update_moments())
    count = table.count[ranks]
    for number in range(count.max(initial=0)):
        rows = np.flatnonzero(count > number)
        those = {f.name: _take(getattr(own, f.name), rows) for f in fields(Rank)}
        consider(rows, Rank(**those).moments(Held(*table.held[table.start[ranks[rows]] + number].T), gpu=gpu))
    return parts


def _take(value: Any, which: Any) -> Any:
    """Of a column, or of several; what is the same for all is a number."""
    if isinstance(value, tuple):
        return type(value)(*(_take(one, which) for one in value))
    return value[which] if isinstance(value, np.ndarray) else value


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
    by_part["working"] = by_part["working"] + by_part.pop("buffers") + by_part.pop("workspaces")
    return Footprints(total=sum(by_part.values(), np.zeros((3, n))), parts=by_part)


def _layout(c: Configs, execution: Execution) -> Layout:
    mixture = bool((c.experts > 0).any())
    # What the fullest rank of all receives, over the layers that it keeps and in one of them.
    layers = np.where(c.recompute == RECOMPUTE.index("full"), 1.0, c.expert_layers / c.pp)
    more = (experts.kept_excess(c, layers)[0], experts.excess(c)) if mixture else ()
    load, most = ((1 + one) * experts.share(c) for one in more) if mixture else (1.0, 1.0)
    return Layout(
        shape=c, topology=c, vocab=c.vocab, microbatches=c.microbatches,
        selective=(c.recompute == RECOMPUTE.index("selective")) * 1, full=(c.recompute == RECOMPUTE.index("full")) * 1,
        splits=_SPLITS_BACKWARD[c.schedule], element=_BYTES[c.precision], bf16=_BF16[c.precision], fp8=_FP8[c.precision],
        moments=BYTES[execution.moments], plain=int(execution.optimizer == "adamw-plain"),
        bucket=int(execution.bucket_mib * 2**20 / FP32), logits_chunk=execution.logits_chunk,
        neighbours=c.context_split[0], gathers_keys=(c.cp_kind == GATHER) * 1, packs=(c.documents > 0) * 1,
        mixture=mixture, gathers_tokens=(c.moe_dispatcher == experts.ALLGATHER) * 1, load=load, most_load=most,
    )  # fmt: skip


def _cut(c: Configs) -> Ints:
    """1 where replicas share gradients."""
    return (c.divided_over[1] > 1).astype(np.int64)


# what schedules hold, each worked out once


class _Table:
    """Pipeline ranks and what they hold: those of one (schedule, PP, VP, micro-batches, stages) lie one after the other."""

    _both: dict[bool, _Table] = {}

    @classmethod
    def of(cls, gpu: bool) -> _Table:
        return cls._both.setdefault(gpu, cls(gpu))

    def __init__(self, gpu: bool):
        self.gpu = gpu
        self.known: dict[tuple[int, int], tuple[int, int]] = {}
        self._ranks: list[tuple[int, int, int, list[Chunk]]] = []
        self._held: list[Held] = []
        self._stack()

    def ranks_of(self, c: Configs) -> tuple[Ints, Ints]:
        """(Layout, rank of this table) for all that count."""
        most = np.where(c.schedule == SCHEDULES.index("gpipe"), MOST, 4 * c.pp * c.vp)
        microbatches = np.minimum(c.microbatches, np.minimum(most, MOST))
        cut = _cut(c)
        packed = c.split << 42 | c.pp << 24 | cut << 23 | c.schedule << 20 | microbatches
        # Which layers have experts.
        pattern = np.where(c.experts > 0, c.expert_every << 20 | c.dense_layers, 0)
        spans: Ints = np.empty((len(c), 2), dtype=np.int64)
        for one in np.unique(pattern).tolist():
            where = pattern == one
            keys, back = np.unique(packed[where], return_inverse=True)
            spans[where] = np.array([self.known.get((key, one)) or self._add(key, one) for key in keys.tolist()])[back]
        if len(self.place) < len(self._ranks):
            self._stack()
        start, count = spans.T
        layouts = np.repeat(np.arange(len(c)), count)
        return layouts, np.arange(len(layouts)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(start, count)

    def _add(self, key: int, pattern: int) -> tuple[int, int]:
        split, pp = SPLITS[key >> 42], key >> 24 & 0x3FFFF
        cut, kind, microbatches = bool(key >> 23 & 1), SCHEDULES[key >> 20 & 7], key & MOST
        start = len(self._ranks)
        mixed = stages.with_experts(split, dense=pattern & 0xFFFFF, every=pattern >> 20)
        for ranks in alike(split, pp, kind, mixed):
            layers, first, last = split[ranks[0] :: pp], ranks[0] == 0, ranks[0] == pp - 1
            if splits_backward(kind) and microbatches >= 2 * pp:
                # All of them fill up: from rank to rank one micro-batch's activations become weight gradients that wait.
                ranks = sorted({ranks[0], ranks[-1]})
            held = fullest(one for rank in ranks for one in held_by(
                kind, pp=pp, rank=rank, microbatches=microbatches, layers=layers, gpu=self.gpu, cut=cut))  # fmt: skip
            self._ranks.append((FIRST if first else LAST if last else MIDDLE, len(self._held), len(held),
                                chunks_of(layers, mixed[ranks[0] :: pp], first=first, last=last)))
            self._held += held
        self.known[key, pattern] = start, len(self._ranks) - start
        return self.known[key, pattern]

    def _stack(self) -> None:
        width = max((len(chunks) for *_, chunks in self._ranks), default=1)
        padded = [[*chunks, *[Chunk(0, 0, 0, 0, 0)] * (width - len(chunks))] for *_, chunks in self._ranks]
        self.chunks: Ints = np.array(padded, dtype=np.int64).reshape(-1, width, len(Chunk._fields))
        self.held: Ints = np.array(self._held, dtype=np.int64).reshape(-1, len(Held._fields))
        self.place, self.start, self.count = np.array([one[:3] for one in self._ranks], dtype=np.int64).reshape(-1, 3).T


def alike(split: tuple[int, ...], pp: int, kind: str, mixed: tuple[int, ...] = ()) -> list[list[int]]:
    """The first rank, the last, and those between that can be the fullest, together where they have the same layers.

    Earlier ones hold more activations; but later ones more messages with virtual stages, and more weight gradients that wait
    where the schedule splits the backward pass.
    """
    between: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    later_count = splits_backward(kind) or KINDS[kind].virtual
    for rank in range(1, pp - 1):
        layers = split[rank::pp], mixed[rank::pp]
        if later_count:
            between.setdefault(layers, []).append(rank)
        elif not any(all(a >= b for a, b in zip(others, layers[0])) and routed == layers[1] for others, routed in between):
            between[layers] = [rank]
    return [[0], *between.values(), *([[pp - 1]] if pp > 1 else [])]
