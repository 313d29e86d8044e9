"""Tokens: the same sample for the same seed and number on every topology.

    batches = Batches(recipe, model, seed=1234)
    batches.sample(17)                      seq + 1 tokens of global sample 17
    batches.microbatch(16, mbs=4)           (tokens_BS, targets_BS) of samples 16 to 19
    batches.documents(16, mbs=4)            where documents begin in each of them; None where nothing is packed

Tokens are synthetic, or from a Megatron .bin/.idx pair (`indexed.py`). Which sample is number 17 depends on the seed alone,
so data parallel ranks need no agreement: each asks for its own numbers, as does a stage of a pipeline for documents.
"""
from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, Protocol

import torch
from torch import Tensor

from seatrial.documents import CORPUS, Documents
from seatrial.engine.io import indexed
from seatrial.errors import BadInput
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model

MASK = (1 << 64) - 1
OF_DOCUMENTS = 0xD0C5
"""Their lengths are drawn apart from tokens."""


class Source(Protocol):
    def samples(self, first: int, count: int, start: int = 0, length: int | None = None) -> Tensor:
        """Samples `first` to `first + count - 1`, each of seq + 1 tokens (int64), or `length` of them from `start` on."""


class Batches:
    def __init__(self, recipe: Recipe, model: Model, seed: int, *, split: Literal["train", "valid"] = "train",
                 documents: str | None = None):
        """`documents`: as `Batch.documents` has them."""
        prefix = recipe.data if split == "train" else recipe.valid_data
        self.source: Source
        if prefix is not None:
            self.source = Corpus(prefix, vocab=model.vocab, seq=model.seq, seed=seed)
        else:
            # The held-out samples are those of another seed.
            self.source = Synthetic(vocab=model.vocab, seq=model.seq, seed=seed if split == "train" else ~seed)
        self.packed = None if documents is None else Documents.parse(documents)
        self._seq, self._key = model.seq, mix_int(mix_int(seed if split == "train" else ~seed) ^ OF_DOCUMENTS)
        self._starts = lru_cache(maxsize=1024)(self._starts_of)

    def sample(self, index: int) -> Tensor:
        return self.source.samples(index, 1)[0]

    def documents(self, first_sample: int, mbs: int) -> tuple[tuple[int, ...], ...] | None:
        if self.packed is None:
            return None
        return tuple(self._starts(sample) for sample in range(first_sample, first_sample + mbs))

    def _starts_of(self, sample: int) -> tuple[int, ...]:
        assert self.packed is not None
        if self.packed.kind != CORPUS:
            return self.packed.starts(self._seq, uniforms(mix_int(self._key + sample)))
        if not isinstance(self.source, Corpus):
            raise BadInput(NO_CORPUS)
        return self.source.documents(sample)

    def microbatch(self, first_sample: int, mbs: int, spans: list[tuple[int, int]] | None = None) -> tuple[Tensor, Tensor]:
        """`spans`: (first token, how many) of what is wanted of each sequence, else all."""
        if spans is None:
            tokens = self.source.samples(first_sample, mbs)
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        parts = [self.source.samples(first_sample, mbs, start, length + 1) for start, length in spans]
        return torch.cat([part[:, :-1] for part in parts], 1), torch.cat([part[:, 1:] for part in parts], 1)


NO_CORPUS = ("batch.documents is corpus, but there is none: name its .bin and .idx with recipe.data, "
             "or give lengths for synthetic tokens, as lognormal:800:1.2")


def check(recipe: Recipe, model: Model, batch: Batch) -> None:
    """Refuses data that cannot be trained on, before any rank starts."""
    if batch.documents == CORPUS and recipe.data is None:
        raise BadInput(NO_CORPUS)
    for prefix in (recipe.data, recipe.valid_data):
        if prefix is not None:
            indexed.check(prefix, vocab=model.vocab, seq=model.seq)
    if recipe.eval_every and recipe.data is not None and recipe.valid_data is None:
        raise BadInput(f"recipe.eval_every is {recipe.eval_every} and recipe.data is {recipe.data!r}: "
                       "name the held-out tokens with recipe.valid_data, or set eval_every to 0")


class Corpus:
    """A .bin/.idx pair cut into samples across documents, in an order that is new every epoch and needs no table."""

    def __init__(self, prefix: str, *, vocab: int, seq: int, seed: int):
        self.prefix, self.vocab, self.seq, self.seed = prefix, vocab, seq, seed
        self.tokens = indexed.open_tokens(prefix)
        self._marks: Tensor | None = None
        """Of documents, read when they are asked for."""
        self.count = (len(self.tokens) - 1) // seq
        """A sample's last target is the next one's first token."""

    def samples(self, first: int, count: int, start: int = 0, length: int | None = None) -> Tensor:
        return torch.stack([self._sample(i, start, length or self.seq + 1) for i in range(first, first + count)])

    def _place(self, index: int) -> int:
        """Of its first token."""
        epoch, position = divmod(index, self.count)
        return permuted(position, self.count, key=mix_int(self.seed + mix_int(epoch))) * self.seq

    def documents(self, index: int) -> tuple[int, ...]:
        """Where they begin in a sample, which itself begins in one."""
        if self._marks is None:
            self._marks = indexed.document_starts(self.prefix)
        first = self._place(index)
        low, high = torch.searchsorted(self._marks, torch.tensor([first + 1, first + self.seq])).tolist()
        return 0, *(self._marks[low:high] - first).tolist()

    def _sample(self, index: int, first: int, length: int) -> Tensor:
        start = self._place(index) + first
        tokens = self.tokens.slice(start, start + length)
        indexed.refuse_outside(tokens, vocab=self.vocab, where=str(indexed.bin_path(self.prefix)), first=start)
        return tokens


def permuted(position: int, size: int, *, key: int) -> int:
    """Where `position` goes in a permutation of `size` places: four Feistel rounds, walked until inside."""
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    while True:
        left, right = position >> half, position & low
        for turn in range(4):
            left, right = right, left ^ (mix_int(key + (turn << 60) + right) & low)
        position = left << half | right
        if position < size:
            return position


class Synthetic:
    """Tokens out of a hash, with something to learn: few tokens are common, every second one follows from its predecessor."""

    def __init__(self, *, vocab: int, seq: int, seed: int):
        self.vocab, self.seed, self.length = vocab, mix_int(seed), seq + 1

    def samples(self, first: int, count: int, start: int = 0, length: int | None = None) -> Tensor:
        length, odd = self.length if length is None else length, start % 2
        positions = torch.arange(start - odd, start + length, 2, dtype=torch.int64)
        keys = torch.tensor([[_signed(mix_int(self.seed + i))] for i in range(first, first + count)])
        bits = mix(positions + keys)
        uniform = ((bits >> 11) & ((1 << 53) - 1)).double() / float(1 << 53)
        drawn = (uniform.square().square_() * self.vocab).long().clamp_(max=self.vocab - 1)
        tokens = torch.empty(count, odd + length, dtype=torch.int64)
        tokens[:, ::2] = drawn
        tokens[:, 1::2] = (drawn[:, : tokens.shape[1] // 2] * 7 + 3) % self.vocab
        return tokens[:, odd:]


def uniforms(key: int) -> Iterator[float]:
    """From 0 to below 1."""
    while True:
        key = mix_int(key)
        yield (key >> 11) / (1 << 53)


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
