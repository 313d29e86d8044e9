"""Attention as rectangles: which queries of this rank meet which keys at hand, each a dense kernel without a mask.

    pieces(queries, keys)                       [Piece(q=0, q_len=8, k=0, k_len=8, causal=True), …], out of stretches
    packed(queries, keys, documents, seq)       the same inside each document alone
    softmax = Softmax(q, kernel)
    softmax.add(k, v, found)                    for keys as they come; their parts are put together by their log-sum-exps
    out, lse = softmax.result()
    backward = SoftmaxBackward(d_out, q, out, lse, kernel)
    dk, dv = backward.add(k, v, found)          the gradients of these keys, from these queries
    dq = backward.result()

Tensors are [batch, tokens, heads, head size]; log-sum-exps [batch, heads, tokens]. A query sees the keys at its own position
and before, in the sequence that the stretches are parts of. Documents need no mask: those inside a stretch are causal squares,
and between two stretches the one that spans both is a rectangle.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from seatrial.engine.core.lse_kernels import Kernel, Squares, squares_backward, squares_forward

Starts = tuple[tuple[int, ...], ...]
"""Of each sample of a micro-batch, where its documents begin; the first at 0."""


class Stretch(NamedTuple):
    """Consecutive tokens: where they lie in a tensor at hand, and in the sequence."""

    at: int
    start: int
    length: int


class Piece(NamedTuple):
    """Queries q … q + q_len - 1 and keys k … k + k_len - 1 of the tensors at hand: all pairs, or those of a causal square."""

    q: int
    q_len: int
    k: int
    k_len: int
    causal: bool
    sample: int | None = None
    """Of the micro-batch; None where all are alike."""

    @property
    def samples(self) -> slice:
        return slice(None) if self.sample is None else slice(self.sample, self.sample + 1)

    def pairs(self, batch: int) -> int:
        """Of a query and a key that it sees."""
        each = self.q_len * (self.q_len + 1) // 2 if self.causal else self.q_len * self.k_len
        return each * (batch if self.sample is None else 1)


Bias = Callable[[Piece], Tensor]
"""What is added to a piece's scores, [1, heads, queries, keys]: minus infinity where the future is."""


def pieces(queries: Sequence[Stretch], keys: Sequence[Stretch]) -> list[Piece]:
    """Stretches come in the order of the sequence, without a gap between them where they lie; a stretch of keys has all of a
    stretch of queries, or none."""
    if tuple(queries) == tuple(keys):
        # The order at hand is the order of the sequence: one causal square, whatever is left out between.
        length = sum(one.length for one in queries)
        return [Piece(queries[0].at, length, keys[0].at, length, True)]
    found: list[Piece] = []
    for q in queries:
        for k in keys:
            before = min(k.length, q.start - k.start)
            if before > 0:
                _join(found, Piece(q.at, q.length, k.at, before, False))
            if 0 <= q.start - k.start < k.length:
                found.append(Piece(q.at, q.length, k.at + q.start - k.start, q.length, True))
    return found


def packed(queries: Sequence[Stretch], keys: Sequence[Stretch], documents: Starts, seq: int) -> list[Piece]:
    if len(set(documents)) == 1:
        return _inside(queries, keys, documents[0], seq)
    return [piece._replace(sample=sample) for sample, starts in enumerate(documents)
            for piece in _inside(queries, keys, starts, seq)]


def _inside(queries: Sequence[Stretch], keys: Sequence[Stretch], starts: Sequence[int], seq: int) -> list[Piece]:
    found: list[Piece] = []
    for start, end in pairwise((*starts, seq)):
        if (q := _within(queries, start, end)) and (k := _within(keys, start, end)):
            found += pieces(q, k)
    return found


def _within(stretches: Sequence[Stretch], low: int, high: int) -> list[Stretch]:
    """What they have of a part of the sequence."""
    return [Stretch(one.at + a - one.start, a, b - a) for one in stretches
            if (a := max(low, one.start)) < (b := min(high, one.start + one.length))]


def _join(found: list[Piece], one: Piece) -> None:
    """Two rectangles side by side are one."""
    last = found[-1] if found else None
    if last is not None and not last.causal:
        if last[:2] == one[:2] and last.k + last.k_len == one.k:
            found[-1] = last._replace(k_len=last.k_len + one.k_len)
            return
        if last[2:4] == one[2:4] and last.q + last.q_len == one.q:
            found[-1] = last._replace(q_len=last.q_len + one.q_len)
            return
    found.append(one)


class Sum:
    """Rectangles of tokens added up in fp32; the first that covers all is kept as it came."""

    def __init__(self, like_BSND: Tensor, wide: torch.dtype):
        self._like, self._wide = like_BSND, wide
        self.value: Tensor | None = None

    def add(self, part_BSND: Tensor, samples: slice, first: int) -> None:
        whole = part_BSND.shape[:2] == self._like.shape[:2]
        if self.value is None and whole:
            self.value = part_BSND
            return
        if self.value is None:
            self.value = torch.zeros(self._like.shape, dtype=self._wide, device=self._like.device)
        elif self.value.dtype != self._wide:
            self.value = self.value.to(self._wide)
        self.value[samples, first : first + part_BSND.shape[1]] += part_BSND

    def result(self) -> Tensor:
        return self.value if self.value is not None else torch.zeros_like(self._like)


class Softmax:
    """The attention of all queries at hand over keys that come a few at a time."""

    def __init__(self, q_BSND: Tensor, kernel: Kernel):
        self.q, self.kernel = q_BSND, kernel
        self.out: Tensor | None = None
        self.lse: Tensor | None = None

    def add(self, k_BSND: Tensor, v_BSND: Tensor, found: Sequence[Piece], bias: Bias | None = None,
            squares: Squares | None = None) -> None:
        """`squares`: all that was found, where one kernel takes them together. The first to be added."""
        if squares is not None:
            self.out, self.lse = squares_forward(self.q, k_BSND, v_BSND, squares)
            return
        for piece in found:
            q, k, v = at_hand(self.q, k_BSND, v_BSND, piece)
            out, lse = self.kernel.forward(q, k, v, causal=piece.causal and bias is None,
                                           bias=None if bias is None else bias(piece))
            self._merge(out.transpose(1, 2), lse, piece)

    def _merge(self, out_BSND: Tensor, lse_BNS: Tensor, piece: Piece) -> None:
        if self.out is None and out_BSND.shape[:2] == self.q.shape[:2]:
            self.out, self.lse = out_BSND, lse_BNS
            return
        if self.out is None or self.lse is None:
            self.out = torch.zeros(self.q.shape, dtype=lse_BNS.dtype, device=self.q.device)
            batch, tokens, heads, _ = self.q.shape
            self.lse = lse_BNS.new_full((batch, heads, tokens), -torch.inf)
        samples, rows = piece.samples, slice(piece.q, piece.q + piece.q_len)
        if self.out.dtype != lse_BNS.dtype:
            self.out = self.out.to(lse_BNS.dtype)
        before = self.lse[samples, :, rows]
        both = torch.logaddexp(before, lse_BNS)
        # Where nothing was before, its weight is exp(-inf) = 0.
        kept, added = ((part - both).exp_().transpose(1, 2).unsqueeze(-1) for part in (before, lse_BNS))
        self.out[samples, rows].mul_(kept).addcmul_(out_BSND.to(lse_BNS.dtype), added)
        before.copy_(both)

    def result(self) -> tuple[Tensor, Tensor]:
        """In the queries' type; every query has met a key, its own."""
        assert self.out is not None and self.lse is not None
        return self.out.to(self.q.dtype), self.lse


class SoftmaxBackward:
    def __init__(self, d_out_BSND: Tensor, q_BSND: Tensor, out_BSND: Tensor, lse_BNS: Tensor, kernel: Kernel):
        self.d_out, self.q, self.out, self.lse, self.kernel = d_out_BSND, q_BSND, out_BSND, lse_BNS, kernel
        self._dq = Sum(q_BSND, lse_BNS.dtype)

    def add(self, k_BSND: Tensor, v_BSND: Tensor, found: Sequence[Piece], bias: Bias | None = None,
            squares: Squares | None = None) -> tuple[Tensor, Tensor]:
        """Gradients of these keys and values by the queries at hand."""
        if squares is not None:
            dq, dk, dv = squares_backward(self.d_out, self.q, k_BSND, v_BSND, self.out, self.lse, squares)
            self._dq.add(dq, slice(None), 0)
            return dk, dv
        sums = Sum(k_BSND, self.lse.dtype), Sum(v_BSND, self.lse.dtype)
        for piece in found:
            q, k, v = at_hand(self.q, k_BSND, v_BSND, piece)
            rows = piece.samples, slice(piece.q, piece.q + piece.q_len)
            grads = self.kernel.backward(self.d_out[rows].transpose(1, 2), q, k, v, self.out[rows].transpose(1, 2),
                                         self.lse[rows[0], :, rows[1]], causal=piece.causal and bias is None,
                                         bias=None if bias is None else bias(piece))
            dq, dk, dv = (g.transpose(1, 2) for g in grads)
            self._dq.add(dq, piece.samples, piece.q)
            for total, part in zip(sums, (dk, dv)):
                total.add(part, piece.samples, piece.k)
        return sums[0].result(), sums[1].result()

    def result(self) -> Tensor:
        return self._dq.result().to(self.q.dtype)


def at_hand(q_BSND: Tensor, k_BSND: Tensor, v_BSND: Tensor, piece: Piece) -> tuple[Tensor, Tensor, Tensor]:
    """A piece's own, as the kernels take them: [batch, heads, tokens, head size]."""
    keys = piece.samples, slice(piece.k, piece.k + piece.k_len)
    queries = q_BSND[piece.samples, piece.q : piece.q + piece.q_len]
    return queries.transpose(1, 2), k_BSND[keys].transpose(1, 2), v_BSND[keys].transpose(1, 2)
