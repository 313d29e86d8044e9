"""The fp32 masters of a shard of weights.

    masters = Masters(weights, split=True)
    masters.read(0, 1024)                           in fp32: a view where they lie so, else a copy
    with masters.changing(0, 1024) as values:       to write into; they hold it after the block
        values.zero_()

In fp32 the weights are their own masters. In 16 bits masters lie beside them, and the upper half of every number is there
twice. Split, a master is its bf16 weight and the 16 bits that are missing: bits(master) = (bits(weight) << 16) + rest.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

TIE = 1 << 15
QUIET_NAN = 0x7FC00000
"""A GPU's own NaN is all ones, which would round up to a zero."""


def split_bits(master: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest bf16 number, of two the one further from zero; and what is left, as int16."""
    bits = torch.where(master.isnan(), QUIET_NAN, master.view(torch.int32))
    rest = bits.to(torch.int16)
    return bits.add_(TIE).bitwise_right_shift_(16).to(torch.int16).view(torch.bfloat16), rest


def merge_bits(weights: Tensor, rest: Tensor) -> Tensor:
    return weights.view(torch.int16).to(torch.int32).bitwise_left_shift_(16).add_(rest).view(torch.float32)


class Masters:
    def __init__(self, weights: Tensor, *, split: bool = False):
        assert not split or weights.dtype == torch.bfloat16, f"{weights.dtype} is not the upper half of fp32"
        self.weights = weights
        self.whole: Tensor | None = None
        self.rest: Tensor | None = None
        if split:
            self.rest = torch.zeros_like(weights, dtype=torch.int16)
        else:
            self.whole = weights if weights.dtype == torch.float32 else torch.zeros_like(weights, dtype=torch.float32)

    @property
    def beside(self) -> list[Tensor]:
        """What they take beside the weights."""
        return [t for t in (self.whole, self.rest) if t is not None and t is not self.weights]

    def read(self, low: int, high: int) -> Tensor:
        if self.whole is not None:
            return self.whole[low:high]
        assert self.rest is not None
        return merge_bits(self.weights[low:high], self.rest[low:high])

    @contextmanager
    def changing(self, low: int, high: int) -> Iterator[Tensor]:
        values = self.read(low, high)
        yield values
        if self.rest is not None:
            weights, rest = split_bits(values)
            self.weights[low:high].copy_(weights)
            self.rest[low:high].copy_(rest)

    def publish(self) -> None:
        """The weights follow; split, they always have."""
        if self.whole is not None and self.whole is not self.weights:
            self.weights.copy_(self.whole)
