"""How parameters lie in a flat bucket, as plain numbers: where each starts, what decays, what a shard of it is made of.

Starts and shard borders are multiples of `hidden`, the length of every matrix's row, so a shard cuts matrices between rows. The
order is: cut by TP and decaying, cut and not, whole and not, whole and decaying. What every TP rank has alike is thus one
stretch, and so are what decays of it and what each rank has a part of the gradient of.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from seatrial.engine.core.params import ParamSpec, Segment
from seatrial.spec import round_up


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
            return (0 if spec.decay else 1) if spec.split else (3 if spec.decay else 2), spec.partial

        order = sorted(range(len(specs)), key=lambda i: rank_of(specs[i]))
        self.ranges: list[ParamRange] = []
        at = 0
        for i in order:
            numel = _numel(specs[i].shape)
            self.ranges.append(ParamRange(index=i, spec=specs[i], start=at, numel=numel))
            at = round_up(at + numel, hidden)
        self.size = round_up(at, hidden * shards)
        self.shard_size = self.size // shards

    def shard(self, rank: int) -> tuple[int, int]:
        return rank * self.shard_size, (rank + 1) * self.shard_size

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
