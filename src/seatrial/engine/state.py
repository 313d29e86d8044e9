"""The training state as rectangles of global tensors: what checkpoints, conversion and comparisons read and write.

    for shard in iter_shards(engine.buckets):
        shard.name, shard.kind, shard.global_shape, shard.offsets, shard.tensor

`tensor` is a view of the live state: writing into it changes the training; call `engine.loaded()` afterwards, which brings the
compute weights in line. Padding rows of the vocabulary are left out.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor

if TYPE_CHECKING:
    from seatrial.engine.zero import Bucket

Kind = Literal["weight", "exp_avg", "exp_avg_sq"]


@dataclass(frozen=True, kw_only=True)
class Shard:
    name: str
    """Global parameter name, for example layers.3.attn.q.weight."""
    kind: Kind
    """`weight` is the fp32 master."""
    global_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: Tensor
    primary: bool
    """Whether this rank is the one that writes this rectangle; the others hold the same numbers."""


def iter_shards(buckets: Iterable[Bucket]) -> Iterator[Shard]:
    """Everything this rank holds, in an order that depends on the topology alone."""
    for bucket in buckets:
        states: tuple[tuple[Kind, Tensor], ...] = (
            ("weight", bucket.master), ("exp_avg", bucket.exp_avg), ("exp_avg_sq", bucket.exp_avg_sq))
        for piece in bucket.pieces(*bucket.shard):
            shape = (piece.rows, *piece.segment.global_shape[1:])
            offsets = (piece.row, *(0 for _ in shape[1:]))
            for kind, flat in states:
                low = piece.start - bucket.shard[0]
                view = flat[low : low + piece.numel].view(shape)
                yield Shard(name=piece.segment.name, kind=kind, global_shape=piece.segment.global_shape, offsets=offsets,
                            tensor=view, primary=bucket.is_primary(piece.spec))
