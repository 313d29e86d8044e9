"""Tokens: the same sample for the same seed and number on every topology.

    batches = Batches(training, model, seed=1234)
    batches.sample(17)                      seq + 1 tokens of global sample 17
    batches.microbatch(16, mbs=4)           (tokens_BS, targets_BS) of samples 16 to 19

Which sample is number 17 depends on the seed alone, so data parallel ranks need no agreement: each asks for its own numbers.
"""
from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from seatrial.spec import Model
from seatrial.training import Training

MASK = (1 << 64) - 1


class Source(Protocol):
    def sample(self, index: int) -> Tensor:
        """seq + 1 tokens (int64)."""


class Batches:
    def __init__(self, training: Training, model: Model, seed: int, *, split: str = "train"):
        self.seq = model.seq
        self.source: Source = Synthetic(vocab=model.vocab, seq=model.seq, seed=seed + (split != "train"))

    def sample(self, index: int) -> Tensor:
        return self.source.sample(index)

    def microbatch(self, first_sample: int, mbs: int) -> tuple[Tensor, Tensor]:
        tokens = torch.stack([self.sample(first_sample + i) for i in range(mbs)])
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class Synthetic:
    """Tokens out of a hash, with something to learn: few tokens are common, every second one follows from its predecessor."""

    def __init__(self, *, vocab: int, seq: int, seed: int):
        self.vocab, self.seed = vocab, seed
        self.positions = torch.arange(seq + 1, dtype=torch.int64)

    def sample(self, index: int) -> Tensor:
        key = mix_int(mix_int(self.seed) + index)
        bits = mix(self.positions + _signed(key))
        uniform = ((bits >> 11) & ((1 << 53) - 1)).double() / float(1 << 53)
        tokens = (uniform**4 * self.vocab).long().clamp_(max=self.vocab - 1)
        follows = tokens[:-1][::2]
        tokens[1::2] = (follows * 7 + 3)[: tokens[1::2].numel()] % self.vocab
        return tokens


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def mix_int(value: int) -> int:
    """The splitmix64 finaliser on one number."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def mix(values: Tensor) -> Tensor:
    """The same on an int64 tensor, whose multiplication wraps and whose shifts keep the sign (hence the masks)."""
    v = values + _signed(0x9E3779B97F4A7C15)
    v = (v ^ ((v >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    v = (v ^ ((v >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return v ^ ((v >> 31) & ((1 << 33) - 1))
