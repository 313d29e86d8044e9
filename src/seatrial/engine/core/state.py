"""The training state as rectangles of global tensors: what checkpoints, conversion and comparisons read and write.

    for shard in iter_shards(engine.buckets):
        shard.name, shard.kind, shard.global_shape, shard.offsets, shard.tensor
        with shard.changing() as tensor:
            tensor.copy_(saved)
    engine.loaded()                                 brings the compute weights in line

`tensor` is a view of the live state, in the type that it is held in; of masters that are split it is a copy, made when it is
asked for, so that they are never in fp32 all at once. Padding rows of the vocabulary are left out.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from seatrial.engine.core.masters import Masters

if TYPE_CHECKING:
    from seatrial.engine.core.zero import Bucket

Kind = Literal["weight", "exp_avg", "exp_avg_sq"]


class AsHeld:
    """Numbers that are read and changed where they lie."""

    def __init__(self, numbers: Tensor):
        self.numbers = numbers

    def read(self, low: int, high: int) -> Tensor:
        return self.numbers[low:high]

    @contextmanager
    def changing(self, low: int, high: int) -> Iterator[Tensor]:
        yield self.read(low, high)


@dataclass(frozen=True, kw_only=True)
class Shard:
    name: str
    """Global parameter name, for example layers.3.attn.q.weight."""
    kind: Kind
    """`weight` is the fp32 master."""
    global_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    primary: bool
    """Whether this rank is the one that writes this rectangle; the others hold the same numbers."""
    held: Masters | AsHeld
    """A bucket's numbers of this kind; of them these are from `low` up to `high`."""
    low: int
    high: int

    @property
    def nbytes(self) -> int:
        """In fp32: of what is held in 16 bits that is what it is read as, or close enough to say how far a load is."""
        return 4 * (self.high - self.low)

    @property
    def tensor(self) -> Tensor:
        return self.held.read(self.low, self.high).view(self.shape)

    @contextmanager
    def changing(self) -> Iterator[Tensor]:
        """To write into; the state has it after the block."""
        with self.held.changing(self.low, self.high) as values:
            yield values.view(self.shape)


def iter_shards(buckets: Iterable[Bucket]) -> Iterator[Shard]:
    """Everything this rank holds, in an order that depends on the topology alone."""
    for bucket in buckets:
        states: tuple[tuple[Kind, Masters | AsHeld], ...] = (
            ("weight", bucket.masters), ("exp_avg", AsHeld(bucket.exp_avg)), ("exp_avg_sq", AsHeld(bucket.exp_avg_sq)))
        for piece in bucket.pieces(*bucket.shard):
            shape = (piece.rows, *piece.segment.global_shape[1:])
            offsets = (piece.row, *(0 for _ in shape[1:]))
            low, primary = piece.start - bucket.shard[0], bucket.is_primary(piece.spec, piece.segment)
            for kind, held in states:
                yield Shard(name=piece.segment.name, kind=kind, global_shape=piece.segment.global_shape, offsets=offsets,
                            shape=shape, primary=primary, held=held, low=low, high=low + piece.numel)


def whole_shard(name: str, numbers: Tensor, *, primary: bool) -> Shard:
    """State that no bucket holds, the same on several ranks."""
    return Shard(name=name, kind="weight", global_shape=tuple(numbers.shape), offsets=(0,) * numbers.dim(),
                 shape=tuple(numbers.shape), primary=primary, held=AsHeld(numbers), low=0, high=numbers.numel())
