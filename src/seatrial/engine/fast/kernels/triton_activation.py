"""GELU (tanh form) and SwiGLU forward to 16 or eight bits; backward with the bias's column sums and the activation itself.

SwiGLU takes gate and up side by side and perhaps a weight of each row, as experts have: multiplied before the second GEMM, what
comes back from them is only added up, and the weight's gradient is made where the activation's is.
"""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.fast.kernels.grid import groups_of
from seatrial.engine.fast.kernels.scaling import ScalingState
from seatrial.engine.fast.kernels.triton_fp8 import (
    as_bytes,
    as_quads,
    five,
    largest_of,
    load_four,
    room_for,
    row_bytes,
    store_four,
    store_transposed,
)
from seatrial.engine.fast.kernels.triton_tools import gate, sigmoid, slope_of, update_amax


@triton.jit
def _gelu(pre, g, scale, amax, count, FP8: tl.constexpr, FIVE: tl.constexpr, BLOCK: tl.constexpr):
    # Eight numbers a thread side by side: 16 bytes of a load.
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.max_contiguous(tl.arange(0, BLOCK), 8)
    x = tl.load(pre + at, mask=at < count, other=0.0).to(tl.float32)
    out = x * gate(x, x * x)
    if FP8:
        update_amax(amax, tl.max(tl.abs(out), 0))
        tl.store(g + at, row_bytes(out * tl.load(scale), FIVE), mask=at < count)
    else:
        tl.store(g + at, out.to(g.dtype.element_ty), mask=at < count)


@triton.jit(do_not_specialize=["tiles"])
def _gelu_backward(dg, pre, g, sums, tokens, width, tiles, RECOMPUTE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    group = tl.program_id(1)
    # Element by element: a reduction across the tile's threads in every turn would cost more than these registers.
    total = tl.zeros((BR, BC), tl.float32)
    for i in range(tiles):
        rows = (group * tiles + i) * BR + tl.arange(0, BR)
        inside = (rows < tokens)[:, None] & (cols < width)[None, :]
        at = rows.to(tl.int64)[:, None] * width + cols[None, :]
        x = tl.load(pre + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dg + at, mask=inside, other=0.0).to(tl.float32)
        square = x * x
        slope, value = slope_of(x, square, gate(x, square))
        dx = dy * slope
        total += dx
        tl.store(dg + at, dx.to(dg.dtype.element_ty), mask=inside)
        if RECOMPUTE:
            tl.store(g + at, value.to(g.dtype.element_ty), mask=inside)
    tl.store(sums + group * width + cols, tl.sum(total, 0), mask=cols < width)


@triton.jit(do_not_specialize=["tiles"])
def _gelu_backward8(dg, pre, d, d_t, g_t, sums, scale_d, amax_d, scale_g, amax_g, tokens, width, tiles, FIVE_D: tl.constexpr,
                    FIVE_G: tl.constexpr, BQ: tl.constexpr, BC: tl.constexpr):
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    group = tl.program_id(1)
    total = tl.zeros((BQ, BC), tl.float32)
    top_d = tl.zeros((BQ, BC), tl.float32)
    top_g = tl.zeros((BQ, BC), tl.float32)
    by_d, by_g, quads = tl.load(scale_d), tl.load(scale_g), tokens // 4
    for i in range(tiles):
        quad = (group * tiles + i) * BQ + tl.arange(0, BQ)
        inside = (quad < quads)[:, None] & (cols < width)[None, :]
        at = quad.to(tl.int64)[:, None] * (4 * width) + cols[None, :]
        x0, x1, x2, x3 = load_four(pre, at, width, inside)
        y0, y1, y2, y3 = load_four(dg, at, width, inside)
        s0, g0 = slope_of(x0, x0 * x0, gate(x0, x0 * x0))
        s1, g1 = slope_of(x1, x1 * x1, gate(x1, x1 * x1))
        s2, g2 = slope_of(x2, x2 * x2, gate(x2, x2 * x2))
        s3, g3 = slope_of(x3, x3 * x3, gate(x3, x3 * x3))
        y0 *= s0
        y1 *= s1
        y2 *= s2
        y3 *= s3
        total += (y0 + y1) + (y2 + y3)
        top_d = tl.maximum(top_d, largest_of(y0, y1, y2, y3))
        top_g = tl.maximum(top_g, largest_of(g0, g1, g2, g3))
        y0 *= by_d
        y1 *= by_d
        y2 *= by_d
        y3 *= by_d
        store_four(d, at, width, y0, y1, y2, y3, inside, FIVE_D)
        store_transposed(d_t, quad, cols, quads, y0, y1, y2, y3, inside, FIVE_D)
        store_transposed(g_t, quad, cols, quads, g0 * by_g, g1 * by_g, g2 * by_g, g3 * by_g, inside, FIVE_G)
    tl.store(sums + group * width + cols, tl.sum(total, 0), mask=cols < width)
    update_amax(amax_d, tl.max(tl.max(top_d, 1), 0))
    update_amax(amax_g, tl.max(tl.max(top_g, 1), 0))


@triton.jit
def _gated(pre, weight, out, scale, amax, rows, width, WEIGHTED: tl.constexpr, FP8: tl.constexpr, FIVE: tl.constexpr,
           BR: tl.constexpr, BC: tl.constexpr):
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    cols = tl.program_id(1) * BC + tl.max_contiguous(tl.arange(0, BC), 8)
    inside = (row < rows)[:, None] & (cols < width)[None, :]
    at = row.to(tl.int64)[:, None] * (2 * width) + cols[None, :]
    x = tl.load(pre + at, mask=inside, other=0.0).to(tl.float32)
    found = x * sigmoid(x) * tl.load(pre + at + width, mask=inside, other=0.0).to(tl.float32)
    if WEIGHTED:
        found *= tl.load(weight + row, mask=row < rows, other=0.0)[:, None]
    to = row.to(tl.int64)[:, None] * width + cols[None, :]
    if FP8:
        update_amax(amax, tl.max(tl.max(tl.abs(found), 1), 0))
        tl.store(out + to, row_bytes(found * tl.load(scale), FIVE), mask=inside)
    else:
        tl.store(out + to, found.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gated_slopes(x, up, dy):
    """Gradients of gate and up, and the activation."""
    s = sigmoid(x)
    value = x * s
    return dy * up * (s + value * (1.0 - s)), dy * value, value * up


@triton.jit
def _gated_backward(d, pre, weight, d_weight, rows, width, span, WEIGHTED: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    if WEIGHTED:
        by = tl.load(weight + row, mask=row < rows, other=0.0)[:, None]
        total = tl.zeros((BR, BC), tl.float32)
    for first in range(tl.program_id(1) * span, tl.program_id(1) * span + span, BC):
        cols = first + tl.max_contiguous(tl.arange(0, BC), 8)
        inside = (row < rows)[:, None] & (cols < width)[None, :]
        at = row.to(tl.int64)[:, None] * (2 * width) + cols[None, :]
        to = row.to(tl.int64)[:, None] * width + cols[None, :]
        x = tl.load(pre + at, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(pre + at + width, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(d + to, mask=inside, other=0.0).to(tl.float32)
        d_gate, d_up, value = _gated_slopes(x, up, dy)
        if WEIGHTED:
            total += dy * value
            d_gate *= by
            d_up *= by
            value *= by
        tl.store(d + to, value.to(d.dtype.element_ty), mask=inside)
        tl.store(pre + at, d_gate.to(pre.dtype.element_ty), mask=inside)
        tl.store(pre + at + width, d_up.to(pre.dtype.element_ty), mask=inside)
    if WEIGHTED:
        tl.store(d_weight + row, tl.sum(total, 1), mask=row < rows)


@triton.jit(do_not_specialize=["tiles"])
def _gated_backward8(dg, pre, d, d_t, g_t, sums, scale_d, amax_d, scale_g, amax_g, tokens, width, tiles, SUMS: tl.constexpr,
                     FIVE_D: tl.constexpr, FIVE_G: tl.constexpr, BQ: tl.constexpr, BC: tl.constexpr):
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    group = tl.program_id(1)
    if SUMS:
        total = tl.zeros((BQ, BC), tl.float32)
        total_up = tl.zeros((BQ, BC), tl.float32)
    top_d = tl.zeros((BQ, BC), tl.float32)
    top_g = tl.zeros((BQ, BC), tl.float32)
    by_d, by_g, quads = tl.load(scale_d), tl.load(scale_g), tokens // 4
    for i in range(tiles):
        quad = (group * tiles + i) * BQ + tl.arange(0, BQ)
        inside = (quad < quads)[:, None] & (cols < width)[None, :]
        at = quad.to(tl.int64)[:, None] * (8 * width) + cols[None, :]
        x0, x1, x2, x3 = load_four(pre, at, 2 * width, inside)
        u0, u1, u2, u3 = load_four(pre, at + width, 2 * width, inside)
        y0, y1, y2, y3 = load_four(dg, quad.to(tl.int64)[:, None] * (4 * width) + cols[None, :], width, inside)
        x0, u0, y0 = _gated_slopes(x0, u0, y0)
        x1, u1, y1 = _gated_slopes(x1, u1, y1)
        x2, u2, y2 = _gated_slopes(x2, u2, y2)
        x3, u3, y3 = _gated_slopes(x3, u3, y3)
        if SUMS:
            total += (x0 + x1) + (x2 + x3)
            total_up += (u0 + u1) + (u2 + u3)
        top_d = tl.maximum(top_d, tl.maximum(largest_of(x0, x1, x2, x3), largest_of(u0, u1, u2, u3)))
        top_g = tl.maximum(top_g, largest_of(y0, y1, y2, y3))
        store_transposed(g_t, quad, cols, quads, y0 * by_g, y1 * by_g, y2 * by_g, y3 * by_g, inside, FIVE_G)
        x0 *= by_d
        x1 *= by_d
        x2 *= by_d
        x3 *= by_d
        store_four(d, at, 2 * width, x0, x1, x2, x3, inside, FIVE_D)
        store_transposed(d_t, quad, cols, quads, x0, x1, x2, x3, inside, FIVE_D)
        u0 *= by_d
        u1 *= by_d
        u2 *= by_d
        u3 *= by_d
        store_four(d, at + width, 2 * width, u0, u1, u2, u3, inside, FIVE_D)
        store_transposed(d_t, quad, width + cols, quads, u0, u1, u2, u3, inside, FIVE_D)
    if SUMS:
        here = sums + group * (2 * width) + cols
        tl.store(here, tl.sum(total, 0), mask=cols < width)
        tl.store(here + width, tl.sum(total_up, 0), mask=cols < width)
    update_amax(amax_d, tl.max(tl.max(top_d, 1), 0))
    update_amax(amax_g, tl.max(tl.max(top_g, 1), 0))


def gelu(pre: Tensor) -> Tensor:
    g, block = torch.empty_like(pre), 2048
    _gelu[(triton.cdiv(pre.numel(), block),)](pre, g, g, g, pre.numel(), FP8=False, FIVE=False, BLOCK=block, num_warps=4)
    return g


def gelu8(pre: Tensor, scaling: ScalingState) -> Tensor:
    g, block = torch.empty_like(pre, dtype=scaling.dtype), 8192
    _gelu[(triton.cdiv(pre.numel(), block),)](pre, as_bytes(g), scaling.scale, scaling.amax_bits, pre.numel(), FP8=True,
                                              FIVE=five(scaling), BLOCK=block, num_warps=8)
    return g


def gelu_backward(dg: Tensor, pre: Tensor, *, recompute: bool) -> tuple[Tensor, Tensor | None, Tensor]:
    tokens, width = pre.shape
    rows, cols = 2, 1024
    groups, tiles = groups_of(tokens, rows, columns=triton.cdiv(width, cols), device=pre.device, each=32 if recompute else 16)
    sums = torch.empty(1, groups, width, dtype=torch.float32, device=pre.device)
    g = torch.empty_like(pre) if recompute else None
    _gelu_backward[(triton.cdiv(width, cols), groups)](dg, pre, pre if g is None else g, sums, tokens, width, tiles,
                                                       RECOMPUTE=recompute, BR=rows, BC=cols, num_warps=4 if recompute else 8)
    return dg, g, sums


def gelu_backward8(dg: Tensor, pre: Tensor, scaling: ScalingState,
                   g_scaling: ScalingState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tokens, width = pre.shape
    quads, cols = 32, 64
    groups, tiles = groups_of(tokens // 4, quads, columns=triton.cdiv(width, cols), device=pre.device, each=16)
    sums = torch.empty(1, groups, width, dtype=torch.float32, device=pre.device)
    d, d_t = room_for(tokens, width, scaling, pre.device), room_for(width, tokens, scaling, pre.device)
    g_t = room_for(width, tokens, g_scaling, pre.device)
    _gelu_backward8[(triton.cdiv(width, cols), groups)](
        dg, pre, as_bytes(d), as_quads(d_t), as_quads(g_t), sums, scaling.scale, scaling.amax_bits, g_scaling.scale,
        g_scaling.amax_bits, tokens, width, tiles, FIVE_D=five(scaling), FIVE_G=five(g_scaling), BQ=quads, BC=cols, num_warps=8)
    return d, d_t, g_t, sums


def gated(pre: Tensor, weight_R: Tensor | None = None) -> Tensor:
    out = pre.new_empty(pre.shape[0], pre.shape[1] // 2)
    return _start_gated(pre, weight_R, out, out, None)


def gated8(pre: Tensor, scaling: ScalingState) -> Tensor:
    out = room_for(pre.shape[0], pre.shape[1] // 2, scaling, pre.device)
    return _start_gated(pre, None, out, as_bytes(out), scaling)


def _start_gated(pre: Tensor, weight_R: Tensor | None, out: Tensor, place: Tensor, scaling: ScalingState | None) -> Tensor:
    (rows, width), (tall, wide) = out.shape, (8, 256)
    none = pre if scaling is None else scaling.scale
    _gated[(triton.cdiv(rows, tall), triton.cdiv(width, wide))](
        pre, none if weight_R is None else weight_R, place, none, none if scaling is None else scaling.amax_bits, rows, width,
        WEIGHTED=weight_R is not None, FP8=scaling is not None, FIVE=scaling is not None and five(scaling), BR=tall, BC=wide,
        num_warps=4)
    return out


def gated_backward(d: Tensor, pre: Tensor, weight_R: Tensor | None = None) -> Tensor | None:
    (rows, width), weighted = d.shape, weight_R is not None
    tall, wide = (4, 512) if width > 1024 else (8, 256)
    d_weight = torch.empty(rows, dtype=torch.float32, device=d.device) if weighted else None
    # The weight's gradient is a sum over a whole row; without one, a tile is a program.
    span = triton.cdiv(width, wide) * wide if weighted else wide
    _gated_backward[(triton.cdiv(rows, tall), triton.cdiv(width, span))](
        d, pre, d if weight_R is None else weight_R, d if d_weight is None else d_weight, rows, width, span, WEIGHTED=weighted,
        BR=tall, BC=wide, num_warps=4)
    return d_weight


def gated_backward8(d: Tensor, pre: Tensor, scaling: ScalingState, g_scaling: ScalingState, *,
                    sums: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    (tokens, width), quads, cols = d.shape, 16, 64
    groups, tiles = groups_of(tokens // 4, quads, columns=triton.cdiv(width, cols), device=pre.device, each=32)
    found = torch.empty(1, groups, 2 * width, dtype=torch.float32, device=pre.device) if sums else None
    eight, d_t = room_for(tokens, 2 * width, scaling, pre.device), room_for(2 * width, tokens, scaling, pre.device)
    g_t = room_for(width, tokens, g_scaling, pre.device)
    _gated_backward8[(triton.cdiv(width, cols), groups)](
        d, pre, as_bytes(eight), as_quads(d_t), as_quads(g_t), scaling.scale if found is None else found, scaling.scale,
        scaling.amax_bits, g_scaling.scale, g_scaling.amax_bits, tokens, width, tiles, SUMS=sums, FIVE_D=five(scaling),
        FIVE_G=five(g_scaling), BQ=quads, BC=cols, num_warps=8)
    return eight, d_t, g_t, found
