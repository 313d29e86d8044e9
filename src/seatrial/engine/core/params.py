"""What the engine knows of each parameter: its place in the whole model, how it starts, and whether it decays.

A local parameter may be several global ones laid one after the other (`qkv` is q, k and v, so that one GEMM computes all
three); each part is a Segment. Every matrix is stored with rows of `hidden` numbers and is cut by rows, by tensor parallelism
and by ZeRO alike: the matrices that lead back into the residual stream are kept as [in, out] for that. The few that `hidden` is
no side of lie flat. So any slice that a rank holds is a rectangle of the global parameter, which is all that checkpoints need.
"""
from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from seatrial.arith.layer import Part
from seatrial.engine.io.data import mix
from seatrial.spec import round_up

Fill = Literal["normal", "ones", "zeros"]


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Consecutive rows of one global parameter."""

    name: str
    """The global name, the same on every topology."""
    global_shape: tuple[int, ...]
    """Without the padding rows of the vocabulary."""
    start: int
    """The first global row that is held here."""
    rows: int
    """Rows held here; those past the end of `global_shape` are padding and stay zero."""
    replicas: int = 1
    """Neighbouring tensor-parallel ranks that hold these same rows, each with a part of their gradient: those of key-value
    heads that there are fewer of than ranks."""

    @property
    def real_rows(self) -> int:
        return max(0, min(self.rows, self.global_shape[0] - self.start))


@dataclass(frozen=True, kw_only=True)
class ParamSpec:
    segments: tuple[Segment, ...]
    split: bool
    """Whether tensor parallelism cuts it; else every rank of the group has the whole."""
    partial: bool = False
    """Of what every rank has whole: whether each rank's gradient is a part of it, as for norms over the heads of a rank."""
    decay: bool
    fill: Fill
    std: float = 0.0
    uses: int = 1
    """Gradients that arrive for it in one micro-batch: 2 for an embedding that is also the head on the same rank."""
    expert: bool = False
    """Whether it is of experts, which other ranks share than the rest of a layer."""
    copy: bool = False
    """The last stage's copy of a tied embedding: updated there, counted and saved on the first stage."""
    cols: int | None = None
    """Of a matrix that lies flat: its segments are numbers in a row, what computes with it sees rows of so many."""

    @property
    def shape(self) -> tuple[int, ...]:
        rows = sum(s.rows for s in self.segments)
        return (rows, *self.segments[0].global_shape[1:]) if self.cols is None else (rows // self.cols, self.cols)


def parameter(spec: ParamSpec) -> nn.Parameter:
    """A parameter without storage yet: `zero.py` lays it into a flat bucket."""
    p = nn.Parameter(torch.empty(0))
    p.spec = spec  # type: ignore[attr-defined]
    return p


def spec_of(p: nn.Parameter) -> ParamSpec:
    return p.spec  # type: ignore[attr-defined,no-any-return]


def _cut(parts: dict[str, Part], cols: tuple[int, ...], *, rank: int, size: int) -> tuple[Segment, ...]:
    found = []
    for name, part in parts.items():
        replicas, rows = max(1, size // part.units), part.held(size)
        found.append(Segment(name=name, global_shape=(part.rows, *cols), start=rank // replicas * rows, rows=rows,
                             replicas=replicas))
    return tuple(found)


def matrix(parts: dict[str, Part], cols: int, *, rank: int, size: int, std: float) -> nn.Parameter:
    """Matrices {global name: its rows} cut by rows over `size` ranks and laid one under the other."""
    segments = _cut(parts, (cols,), rank=rank, size=size)
    return parameter(ParamSpec(segments=segments, split=size > 1, decay=True, fill="normal", std=std))


def split_vector(parts: dict[str, Part], *, rank: int, size: int) -> nn.Parameter:
    """Biases that follow the rows of a cut matrix."""
    segments = _cut(parts, (), rank=rank, size=size)
    return parameter(ParamSpec(segments=segments, split=size > 1, decay=False, fill="zeros"))


def whole_vector(name: str, length: int, fill: Fill, *, partial: bool = False) -> nn.Parameter:
    """A norm's weight or a bias of the residual stream: the same on every tensor-parallel rank."""
    segment = Segment(name=name, global_shape=(length,), start=0, rows=length)
    return parameter(ParamSpec(segments=(segment,), split=False, decay=False, fill=fill, partial=partial))


def flat_matrix(name: str, part: Part, cols: int, *, rank: int, size: int, std: float) -> nn.Parameter:
    """One whose rows are `cols` numbers rather than hidden, cut by rows."""
    segments = _cut({name: part._replace(size=part.size * cols)}, (), rank=rank, size=size)
    return parameter(ParamSpec(segments=segments, split=size > 1, decay=True, fill="normal", std=std, cols=cols))


def whole_matrix(rows: dict[str, int], cols: int, *, std: float, partial: bool = False) -> nn.Parameter:
    """Matrices {global name: rows}, one under the other, the same on every tensor-parallel rank."""
    segments = tuple(Segment(name=name, global_shape=(n, cols), start=0, rows=n) for name, n in rows.items())
    return parameter(ParamSpec(segments=segments, split=False, decay=True, fill="normal", std=std, partial=partial))


@dataclass(frozen=True, kw_only=True)
class Held:
    """Which experts a rank has, and its part of each."""

    experts: int
    """Of the layer."""
    first: int
    count: int
    rank: int
    """Among those that share each of them …"""
    size: int
    """… so many."""

    def _segments(self, names: Sequence[str], rows: int, cols: tuple[int, ...], *, size: int) -> tuple[Segment, ...]:
        part = rows // size
        return tuple(Segment(name=name, global_shape=(self.experts * rows, *cols), rows=part,
                             start=expert * rows + (self.rank * part if size > 1 else 0))
                     for expert in range(self.first, self.first + self.count) for name in names)

    def matrix(self, names: Sequence[str], rows: int, cols: int, *, std: float) -> nn.Parameter:
        """For each expert its matrices of `rows` rows, one under the other."""
        return parameter(ParamSpec(segments=self._segments(names, rows, (cols,), size=self.size), split=self.size > 1,
                                   decay=True, fill="normal", std=std, expert=True))

    def split_vector(self, names: Sequence[str], rows: int) -> nn.Parameter:
        return parameter(ParamSpec(segments=self._segments(names, rows, (), size=self.size), split=self.size > 1, decay=False,
                                   fill="zeros", expert=True))

    def whole_vectors(self, name: str, length: int) -> nn.Parameter:
        """One of each expert, the same on all ranks that share it."""
        return parameter(ParamSpec(segments=self._segments([name], 1, (length,), size=1), split=False, decay=False,
                                   fill="zeros", expert=True))


def vocabulary(name: str, vocab: int, padded: int, cols: int, *, rank: int, size: int, std: float, uses: int = 1,
               copy: bool = False) -> nn.Parameter:
    """An embedding cut by rows, its padding at the end of the last ranks."""
    rows = padded // size
    segment = Segment(name=name, global_shape=(vocab, cols), start=rank * rows, rows=rows)
    return parameter(ParamSpec(segments=(segment,), split=size > 1, decay=True, fill="normal", std=std, uses=uses, copy=copy))


# ---- how parameters lie in a flat bucket, as plain numbers: where each starts, what decays, what a shard of it is made of


@dataclass(frozen=True, kw_only=True)
class ParamRange:
    """Where one parameter lies."""

    index: int
    """In the list that the layout was made from."""
    spec: ParamSpec
    start: int
    numel: int


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Rows of one segment inside a stretch of the bucket: a rectangle of a global parameter."""

    spec: ParamSpec
    segment: Segment
    row: int
    """First global row."""
    rows: int
    start: int
    """In the bucket."""
    numel: int

    def cut(self, most: int) -> Iterator[Piece]:
        """The same rows in pieces of at most so many numbers, or of one row."""
        width = self.numel // self.rows
        step = max(1, most // width)
        for row in range(0, self.rows, step):
            rows = min(step, self.rows - row)
            yield replace(self, row=self.row + row, rows=rows, start=self.start + row * width, numel=rows * width)


class Layout:
    def __init__(self, specs: list[ParamSpec], *, hidden: int, shards: int):
        def rank_of(spec: ParamSpec) -> tuple[int, bool]:
            # Of what every rank has whole, that which is partial is one stretch: vectors of it last, matrices of it first.
            return (0 if spec.decay else 1) if spec.split else (3 if spec.decay else 2), spec.partial != spec.decay

        order = sorted(range(len(specs)), key=lambda i: rank_of(specs[i]))
        self.ranges: list[ParamRange] = []
        at = 0
        for i in order:
            numel = _numel(specs[i].shape)
            self.ranges.append(ParamRange(index=i, spec=specs[i], start=at, numel=numel))
            at = round_up(at + numel, hidden)
        self.size = round_up(at, hidden * shards)

    def gaps(self) -> Iterator[tuple[int, int]]:
        """What belongs to no parameter."""
        ends = [s.start + s.numel for s in self.ranges]
        for end, start in zip(ends, [s.start for s in self.ranges[1:]] + [self.size]):
            if end < start:
                yield end, start

    def stretches(self, low: int, high: int, *, decay: bool | None = None, split: bool | None = None,
                  wanted: Callable[[ParamSpec, Segment], bool] = lambda _spec, _segment: True) -> list[tuple[int, int]]:
        """The parts of [low, high) whose parameters are as asked and whose segments are wanted, neighbours joined."""
        found: list[tuple[int, int]] = []
        for held in self.ranges:
            if decay not in (None, held.spec.decay) or split not in (None, held.spec.split):
                continue
            at = held.start
            for segment in held.spec.segments:
                start, at = at, at + segment.rows * _numel(segment.global_shape[1:])
                a, b = max(low, start), min(high, at)
                if a >= b or not wanted(held.spec, segment):
                    continue
                if found and found[-1][1] == a:
                    found[-1] = (found[-1][0], b)
                else:
                    found.append((a, b))
        return found

    def pieces(self, low: int, high: int) -> Iterator[Piece]:
        """The rectangles of global parameters in [low, high), padding left out."""
        for held in self.ranges:
            at = held.start
            for segment in held.spec.segments:
                width = _numel(segment.global_shape[1:])
                a = max(low, at) - at
                b = min(high, at + segment.real_rows * width) - at
                if a < b:
                    assert a % width == 0 and b % width == 0, "shard borders lie between rows"
                    yield Piece(spec=held.spec, segment=segment, row=segment.start + a // width, rows=(b - a) // width,
                                start=at + a, numel=b - a)
                at += segment.rows * width


def _numel(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


# ---- initial values out of a counter: the number at (seed, global name, index) is the same on every topology and device


CHUNK = 1 << 18
"""Numbers made at once: the intermediates stay in cache."""
CHUNK_ON_GPU = 1 << 22
"""There each operation costs a launch."""


def key_of(seed: int, name: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def fill_normal(out: Tensor, *, seed: int, name: str, first: int, std: float) -> None:
    """Fill the contiguous `out` with N(0, std²); `first` is the global index of its first number."""
    key = key_of(seed, name)
    flat = out.view(-1)
    chunk = CHUNK if out.device.type == "cpu" else CHUNK_ON_GPU
    for at in range(0, flat.numel(), chunk):
        n = min(chunk, flat.numel() - at)
        index = torch.arange(first + at, first + at + n, dtype=torch.int64, device=out.device)
        # Two words for each number: the second is a hash of the first, so one counter is enough.
        one = mix(index ^ key)
        two = mix(one)
        radius = _uniform(one).log_().mul_(-2.0).sqrt_()
        flat[at : at + n] = radius.mul_(_uniform(two).mul_(2 * math.pi).cos_()).mul_(std)


def _uniform(bits: Tensor) -> Tensor:
    """In (0, 1]: the top 53 bits, and never zero since its logarithm is taken."""
    return (((bits >> 11) & ((1 << 53) - 1)) + 1).to(torch.float64).mul_(1.0 / (1 << 53))


def fill(out: Tensor, spec: ParamSpec, segment: Segment, *, row: int, seed: int) -> None:
    """Fill `out`, the rows of `segment` from global row `row` on."""
    if spec.fill == "normal":
        width = math.prod(segment.global_shape[1:])
        fill_normal(out, seed=seed, name=segment.name, first=row * width, std=spec.std)
    else:
        out.fill_(1.0 if spec.fill == "ones" else 0.0)
