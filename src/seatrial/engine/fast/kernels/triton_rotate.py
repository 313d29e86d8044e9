"""Rotary positions and norms of queries and keys, straight in the rows that the query-key-value GEMM made; and back."""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.fast.kernels.grid import groups_of
from seatrial.engine.fast.kernels.plain import CosSin, HeadNorms, head_size

ROWS, EACH = 16, 8
"""Tokens of a tile, and heads that a program turns by the same angles."""


@triton.jit
def _halves(x, row, head, stride, cols, inside, HALF: tl.constexpr):
    at = row.to(tl.int64)[:, None] * stride + head * (2 * HALF) + cols[None, :]
    return tl.load(x + at, mask=inside, other=0.0).to(tl.float32), tl.load(x + at + HALF, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _rotate(x, out, cos, sin, q_weight, k_weight, tokens, seq, stride, out_stride, queries, heads, eps, TURN: tl.constexpr,
            NORM: tl.constexpr, HALF: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, EACH: tl.constexpr):
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    cols = tl.max_contiguous(tl.arange(0, BC), 8)
    inside = (row < tokens)[:, None] & (cols < HALF)[None, :]
    if TURN:
        at = (row % seq)[:, None] * HALF + cols[None, :]
        c = tl.load(cos + at, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(sin + at, mask=inside, other=0.0).to(tl.float32)
    for head in range(tl.program_id(1) * EACH, tl.minimum(tl.program_id(1) * EACH + EACH, heads)):
        one, two = _halves(x, row, head, stride, cols, inside, HALF)
        if NORM:
            weight = q_weight
            if head >= queries:
                weight = k_weight
            rstd = tl.rsqrt((tl.sum(one * one, 1) + tl.sum(two * two, 1)) / (2 * HALF) + eps)[:, None]
            one *= rstd * tl.load(weight + cols, mask=cols < HALF, other=0.0).to(tl.float32)[None, :]
            two *= rstd * tl.load(weight + HALF + cols, mask=cols < HALF, other=0.0).to(tl.float32)[None, :]
        if TURN:
            turned = one * c - two * s
            two = two * c + one * s
            one = turned
        to = row.to(tl.int64)[:, None] * out_stride + head * (2 * HALF) + cols[None, :]
        tl.store(out + to, one.to(out.dtype.element_ty), mask=inside)
        tl.store(out + to + HALF, two.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tiles"])
def _rotate_backward(d, x, cos, sin, weight, sums, tokens, seq, stride, heads, tiles, eps, TURN: tl.constexpr,
                     NORM: tl.constexpr, HALF: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, EACH: tl.constexpr):
    cols = tl.max_contiguous(tl.arange(0, BC), 8)
    group = tl.program_id(1)
    if NORM:
        w_one = tl.load(weight + cols, mask=cols < HALF, other=0.0).to(tl.float32)[None, :]
        w_two = tl.load(weight + HALF + cols, mask=cols < HALF, other=0.0).to(tl.float32)[None, :]
        sum_one = tl.zeros((BR, BC), tl.float32)
        sum_two = tl.zeros((BR, BC), tl.float32)
    for i in range(tiles):
        row = (group * tiles + i) * BR + tl.arange(0, BR)
        inside = (row < tokens)[:, None] & (cols < HALF)[None, :]
        if TURN:
            at = (row % seq)[:, None] * HALF + cols[None, :]
            c = tl.load(cos + at, mask=inside, other=0.0).to(tl.float32)
            s = tl.load(sin + at, mask=inside, other=0.0).to(tl.float32)
        for head in range(tl.program_id(0) * EACH, tl.minimum(tl.program_id(0) * EACH + EACH, heads)):
            one, two = _halves(d, row, head, heads * (2 * HALF), cols, inside, HALF)
            if TURN:
                turned = one * c + two * s
                two = two * c - one * s
                one = turned
            if NORM:
                x_one, x_two = _halves(x, row, head, stride, cols, inside, HALF)
                rstd = tl.rsqrt((tl.sum(x_one * x_one, 1) + tl.sum(x_two * x_two, 1)) / (2 * HALF) + eps)[:, None]
                x_one *= rstd
                x_two *= rstd
                sum_one += one * x_one
                sum_two += two * x_two
                one *= w_one
                two *= w_two
                inner = ((tl.sum(one * x_one, 1) + tl.sum(two * x_two, 1)) / (2 * HALF))[:, None]
                one = (one - x_one * inner) * rstd
                two = (two - x_two * inner) * rstd
            to = row.to(tl.int64)[:, None] * (heads * (2 * HALF)) + head * (2 * HALF) + cols[None, :]
            tl.store(d + to, one.to(d.dtype.element_ty), mask=inside)
            tl.store(d + to + HALF, two.to(d.dtype.element_ty), mask=inside)
    if NORM:
        here = sums + (group * tl.num_programs(0) + tl.program_id(0)) * (2 * HALF) + cols
        tl.store(here, tl.sum(sum_one, 0), mask=cols < HALF)
        tl.store(here + HALF, tl.sum(sum_two, 0), mask=cols < HALF)


def rotate(qkv: Tensor, heads: tuple[int, int], cos_sin: CosSin | None, norms: HeadNorms | None) -> Tensor:
    size, many, tokens = head_size(cos_sin, norms), sum(heads), len(qkv)
    out = qkv if norms is None else qkv.new_empty(tokens, many * size)
    cos, sin = cos_sin or (qkv, qkv)
    q_weight, k_weight, eps = norms or (qkv, qkv, 0.0)
    _rotate[(triton.cdiv(tokens, ROWS), triton.cdiv(many, EACH))](
        qkv, out, cos, sin, q_weight, k_weight, tokens, len(cos), qkv.shape[1], out.shape[1], heads[0], many, eps,
        TURN=cos_sin is not None, NORM=norms is not None, HALF=size // 2, BR=ROWS, BC=triton.next_power_of_2(size // 2),
        EACH=EACH, num_warps=4)
    return out


def rotate_backward(d_q: Tensor, d_k: Tensor, qkv: Tensor | None, cos_sin: CosSin | None,
                    norms: HeadNorms | None) -> Tensor | None:
    size, tokens = head_size(cos_sin, norms), len(d_q)
    cos, sin = cos_sin or (d_q, d_q)
    x, sums = d_q if qkv is None else qkv, []
    for number, d in enumerate((d_q, d_k)):
        first = d_q.shape[1] if qkv is not None and number else 0
        heads, weight = d.shape[1] // size, x if norms is None else norms[number]
        columns = triton.cdiv(heads, EACH)
        groups, tiles = groups_of(tokens, ROWS, columns=columns, device=d.device, each=16)
        here = torch.empty(groups * columns if norms else 0, size, dtype=torch.float32, device=d.device)
        _rotate_backward[(columns, groups)](
            d, x[:, first:], cos, sin, weight, here, tokens, len(cos), x.shape[1], heads, tiles, norms[2] if norms else 0.0,
            TURN=cos_sin is not None, NORM=norms is not None, HALF=size // 2, BR=ROWS, BC=triton.next_power_of_2(size // 2),
            EACH=EACH, num_warps=4)
        sums.append(here.sum(0))
    return torch.stack(sums)[:, None] if norms else None
