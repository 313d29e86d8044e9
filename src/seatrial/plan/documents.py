"""What packed documents make of attention: how many pairs of tokens meet, in what lengths, and how unevenly over the ranks.

    packed("uniform:256:4096", 8192).share              of the pairs that one document as long as the sequence would have
    slowest("uniform:256:4096", 8192, ring=4)           slowest rank of a ring over the mean, slowest replica over the mean one
    shares(c), excess(c)                                the same for columns

Out of a few thousand sequences, drawn once: the same in every forecast. Each begins with a document, and its last one is cut.
Of `corpus` no lengths are known here: it counts as one document a sequence, the most that it can be.
"""
from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from seatrial.documents import CORPUS, Documents
from seatrial.plan.configs import DOCUMENTS, Configs, Floats, Ints

SEQUENCES, MOST_DRAWN = 4096, 1 << 21
"""That are drawn, fewer where they have very many documents in all."""
FEW = 64
"""Sums of micro-batches out of those; where there would be fewer, sums count as normally distributed."""


class Drawn(NamedTuple):
    """Documents of many sequences, one after the other."""

    starts: Ints
    lengths: Ints
    sequences: int


@lru_cache(maxsize=64)
def drawn(documents: str, seq: int) -> Drawn:
    found = Documents.parse(documents)
    mean = (found.first + found.second) / 2 if found.kind == "uniform" else found.first
    each = math.ceil(1.3 * seq / mean) + 8
    count = 1 if found.kind == "fixed" else max(256, min(SEQUENCES, MOST_DRAWN // each))
    ends = np.zeros((count, 1), dtype=np.int64)
    while int(ends[:, -1].min()) < seq:
        u, v = (_uniforms(count * each, 2 * ends.shape[1] + way) for way in (0, 1))
        lengths = np.maximum(1, np.floor(found.length(u, v, np) + 0.5)).astype(np.int64).reshape(count, each)
        ends = np.concatenate([ends, ends[:, -1:] + np.minimum(lengths, seq).cumsum(axis=1)], axis=1)
    ends = np.minimum(ends, seq)
    lengths = np.diff(ends, axis=1)
    here = lengths > 0
    starts = ends[:, :-1] + np.arange(count)[:, None] * seq
    return Drawn(starts[here], lengths[here], count)


def _uniforms(count: int, stream: int) -> Floats:
    """splitmix64, whose numbers need no import of numpy.random."""
    v = (np.arange(count, dtype=np.uint64) + np.uint64(stream << 32)) * np.uint64(0x9E3779B97F4A7C15)
    v = (v ^ (v >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    v = (v ^ (v >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((v ^ (v >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / float(1 << 53)


class Packed(NamedTuple):
    share: float
    """Expected sum of squared lengths over the square of the sequence."""
    length: float
    """Of the document that a pair is in."""
    each: float
    """Documents of a sequence."""


@lru_cache(maxsize=256)
def packed(documents: str | None, seq: int) -> Packed:
    if documents in (None, CORPUS):
        return Packed(1.0, float(seq), 1.0)
    found = drawn(str(documents), seq)
    lengths = found.lengths.astype(np.float64)
    squares = float((lengths**2).sum())
    return Packed(squares / (found.sequences * float(seq) ** 2), float((lengths**3).sum()) / squares,
                  len(lengths) / found.sequences)


def work(documents: str, seq: int, ring: int) -> Floats:
    """[sequences, ring]: pairs that each member of a ring attends, over the mean of all."""
    found = drawn(documents, seq)
    before = np.concatenate([[0], (found.lengths * (found.lengths + 1) // 2).cumsum()])
    parts = 2 * ring if ring > 1 else 1
    at = np.arange(found.sequences * parts + 1) * (seq // parts if seq % parts == 0 else seq / parts)
    which = np.searchsorted(found.starts, at, side="right") - 1
    inside = np.minimum(at - found.starts[which], found.lengths[which])
    each = np.diff(before[which] + inside * (inside + 1) / 2).reshape(found.sequences, parts)
    # A member has a stretch from either end.
    members = each if ring == 1 else each[:, :ring] + each[:, : ring - 1 : -1]
    return members / members.mean()


@lru_cache(maxsize=4096)
def slowest(documents: str | None, seq: int, ring: int = 1, mbs: int = 1, dp: int = 1,
            microbatches: int = 1) -> tuple[float, float]:
    """What attention takes over its mean: in each layer the slowest member of a ring, which the others wait for, and in an
    iteration the slowest replica."""
    if documents in (None, CORPUS):
        return 1.0, 1.0
    members = work(str(documents), seq, ring)
    longest = _means(members, min(mbs, len(members))).max(axis=1)
    group = float(longest.mean())
    sums = _means(longest / group, microbatches)
    if len(sums) >= FEW or len(longest) == 1:
        ranked = np.sort(sums)
        places = np.arange(len(ranked) + 1) / len(ranked)
        return group, float((ranked * np.diff(places**dp)).sum())
    spread = float((longest / group).std()) / math.sqrt(microbatches)
    return group, 1.0 + spread * NormalDist().inv_cdf((dp - 0.375) / (dp + 0.25))


def _means(values: Floats, of: int) -> Floats:
    """Of so many rows that follow each other."""
    if of == 1 or len(values) == 1:
        return values
    whole = len(values) // of
    return values[: whole * of].reshape(whole, of, *values.shape[1:]).mean(axis=1)


def shares(c: Configs) -> tuple[Any, Any]:
    """Of the pairs, and the length of the documents that they are in."""
    if not c.documents.any():
        return 1.0, c.seq
    share, length = _each(lambda documents, seq: packed(documents, seq)[:2], c.documents, c.seq)
    return share, length


def excess(c: Configs) -> Floats:
    """What attention on the slowest rank takes over the mean of all."""
    group, replica = _each(slowest, c.documents, c.seq, c.context_split[1], c.mbs, c.dp, c.microbatches)
    return group * replica


def _each(of: Any, documents: Ints, *columns: Ints) -> Floats:
    """[2, n]: what is alike is worked out once."""
    few, back = np.unique(np.stack([documents, *columns]), axis=1, return_inverse=True)
    found = np.array([of(DOCUMENTS[code], *rest) for code, *rest in few.T.tolist()], dtype=np.float64)
    return found.T[:, back.reshape(-1)]
