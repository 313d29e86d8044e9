"""Layer norm and, without a mean and a bias, RMS norm; backward with the residual's gradient and column sums.

Backward, rows up to `NARROW` are worked on by a program that keeps the column sums of its rows in registers. Wider ones leave
too few of them: a first pass takes the means of each row, a second one walks down the columns.
"""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.fast.kernels.grid import groups_of, programs
from seatrial.engine.fast.kernels.scaling import ScalingState
from seatrial.engine.fast.kernels.triton_fp8 import (
    as_bytes,
    as_quads,
    five,
    largest_of,
    load_four,
    room_for,
    row_bytes,
    store_transposed,
)
from seatrial.engine.fast.kernels.triton_tools import update_amax, warps

NARROW = 4096
RESIDENT, RESIDENT_WIDE = 3, 2
"""Programs of the backward pass that a multiprocessor holds at once, of up to 2048 columns and beyond."""


@triton.jit
def _norm(x, weight, bias, h, stats, scale, amax, tokens, hidden, eps, CENTRED: tl.constexpr, FP8: tl.constexpr,
          FIVE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # Eight numbers a thread side by side, also where bytes are stored: those would take sixteen, by way of shared memory.
    cols = tl.max_contiguous(tl.arange(0, BLOCK), 8)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (rows < tokens)[:, None] & (cols < hidden)[None, :]
    at = rows.to(tl.int64)[:, None] * hidden + cols[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if CENTRED:
        mean = tl.sum(value, 1) / hidden
        tl.store(stats + rows, mean, mask=rows < tokens)
        value = tl.where(inside, value - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(value * value, 1) / hidden + eps)
    # Not before they are needed: registers are what limits how many rows are on the way.
    out = value * rstd[:, None] * tl.load(weight + cols, mask=cols < hidden, other=0.0).to(tl.float32)[None, :]
    if CENTRED:
        out += tl.load(bias + cols, mask=cols < hidden, other=0.0).to(tl.float32)[None, :]
    if FP8:
        update_amax(amax, tl.max(tl.max(tl.where(inside, tl.abs(out), 0.0), 1), 0))
        tl.store(h + at, row_bytes(out * tl.load(scale), FIVE), mask=inside)
    else:
        tl.store(h + at, out.to(h.dtype.element_ty), mask=inside)
    tl.store(stats + CENTRED * tokens + rows, rstd, mask=rows < tokens)


@triton.jit
def _normed(value, stats, row, tokens, there, CENTRED: tl.constexpr):
    """From the statistics that are known."""
    if CENTRED:
        value -= tl.load(stats + row, mask=there, other=0.0)[:, None]
    return value * tl.load(stats + CENTRED * tokens + row, mask=there, other=0.0)[:, None]


@triton.jit(do_not_specialize=["tiles"])
def _norm_recompute(x, stats, weight, bias, h, tokens, hidden, tiles, CENTRED: tl.constexpr, BR: tl.constexpr,
                    BC: tl.constexpr):
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    w = tl.load(weight + cols, mask=cols < hidden, other=0.0).to(tl.float32)[None, :]
    if CENTRED:
        b = tl.load(bias + cols, mask=cols < hidden, other=0.0).to(tl.float32)[None, :]
    for i in range(tiles):
        rows = (tl.program_id(1) * tiles + i) * BR + tl.arange(0, BR)
        inside = (rows < tokens)[:, None] & (cols < hidden)[None, :]
        at = rows.to(tl.int64)[:, None] * hidden + cols[None, :]
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        out = _normed(value, stats, rows, tokens, rows < tokens, CENTRED) * w
        if CENTRED:
            out += b
        tl.store(h + at, out.to(h.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tiles"])
def _norm_recompute8(x, stats, weight, bias, h_t, scale, amax, tokens, hidden, tiles, CENTRED: tl.constexpr,
                     FIVE: tl.constexpr, BQ: tl.constexpr, BC: tl.constexpr):
    """The same in eight bits and transposed."""
    cols = tl.program_id(0) * BC + tl.max_contiguous(tl.arange(0, BC), 16)
    w = tl.load(weight + cols, mask=cols < hidden, other=0.0).to(tl.float32)[None, :]
    b = tl.zeros((1, BC), tl.float32)
    if CENTRED:
        b = tl.load(bias + cols, mask=cols < hidden, other=0.0).to(tl.float32)[None, :]
    top = tl.zeros((BQ, BC), tl.float32)
    by, quads = tl.load(scale), tokens // 4
    for i in range(tiles):
        quad = (tl.program_id(1) * tiles + i) * BQ + tl.arange(0, BQ)
        there = quad < quads
        inside = there[:, None] & (cols < hidden)[None, :]
        v0, v1, v2, v3 = load_four(x, quad.to(tl.int64)[:, None] * (4 * hidden) + cols[None, :], hidden, inside)
        v0 = tl.where(inside, _normed(v0, stats, 4 * quad, tokens, there, CENTRED) * w + b, 0.0)
        v1 = tl.where(inside, _normed(v1, stats, 4 * quad + 1, tokens, there, CENTRED) * w + b, 0.0)
        v2 = tl.where(inside, _normed(v2, stats, 4 * quad + 2, tokens, there, CENTRED) * w + b, 0.0)
        v3 = tl.where(inside, _normed(v3, stats, 4 * quad + 3, tokens, there, CENTRED) * w + b, 0.0)
        top = tl.maximum(top, largest_of(v0, v1, v2, v3))
        store_transposed(h_t, quad, cols, quads, v0 * by, v1 * by, v2 * by, v3 * by, inside, FIVE)
    update_amax(amax, tl.max(tl.max(top, 1), 0))


@triton.jit
def _both(a, b, c, d):
    return a + c, b + d


@triton.jit
def _norm_backward(dh, x, stats, weight, residual, dx, sums, tokens, hidden, CENTRED: tl.constexpr, RESIDUAL: tl.constexpr,
                   SUM: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    w = tl.load(weight + cols, mask=cols < hidden, other=0.0).to(tl.float32)[None, :]
    program, programs = tl.program_id(0), tl.num_programs(0)
    sum_w = tl.zeros((1, BLOCK), tl.float32)
    if CENTRED:
        sum_b = tl.zeros((1, BLOCK), tl.float32)
    if SUM:
        sum_r = tl.zeros((1, BLOCK), tl.float32)
    # The next rows come in while this one is worked on.
    for i in tl.range(0, tl.cdiv(tokens, programs), num_stages=3):
        row = program + i * programs + tl.arange(0, 1)
        there = row < tokens
        inside = there[:, None] & (cols < hidden)[None, :]
        at = row.to(tl.int64)[:, None] * hidden + cols[None, :]
        dy = tl.load(dh + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        if RESIDUAL:
            r = tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(stats + CENTRED * tokens + row, mask=there, other=0.0)[:, None]
        d = dy * w
        if CENTRED:
            normed = tl.where(inside, _normed(value, stats, row, tokens, there, CENTRED), 0.0)
            # Both sums across the row in one: half the barriers.
            inner, mean = tl.reduce((d * normed, d), 1, _both)
            value = (d - mean[:, None] / hidden - normed * (inner[:, None] / hidden)) * rstd
        else:
            normed = value * rstd
            value = (d - normed * (tl.sum(d * normed, 1)[:, None] / hidden)) * rstd
        if RESIDUAL:
            value += r
        tl.store(dx + at, value.to(dx.dtype.element_ty), mask=inside)
        sum_w += dy * normed
        if CENTRED:
            sum_b += dy
        if SUM:
            sum_r += r
    here = sums + program * hidden + cols[None, :]
    inside = (cols < hidden)[None, :]
    tl.store(here, sum_w, mask=inside)
    if CENTRED:
        tl.store(here + programs * hidden, sum_b, mask=inside)
    if SUM:
        tl.store(here + (1 + CENTRED) * programs * hidden, sum_r, mask=inside)


@triton.jit
def _norm_means(dh, x, stats, weight, means, tokens, hidden, CENTRED: tl.constexpr, BLOCK: tl.constexpr):
    """Of each row, the means of the scaled gradient with the normed row and alone: what every number of its gradient needs."""
    row = tl.program_id(0).to(tl.int64)
    rstd = tl.load(stats + CENTRED * tokens + row)
    mean_x = tl.load(stats + row) if CENTRED else 0.0
    inner = tl.zeros((BLOCK,), tl.float32)
    alone = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, hidden, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        inside = cols < hidden
        d = tl.load(dh + row * hidden + cols, mask=inside, other=0.0).to(tl.float32)
        d *= tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
        inner += d * (tl.load(x + row * hidden + cols, mask=inside, other=0.0).to(tl.float32) - mean_x)
        alone += d
    inner, alone = tl.reduce((inner, alone), 0, _both)
    tl.store(means + row, inner * rstd / hidden)
    tl.store(means + tokens + row, alone / hidden if CENTRED else 0.0)


@triton.jit(do_not_specialize=["tiles"])
def _norm_backward_wide(dh, x, stats, means, weight, residual, dx, sums, tokens, hidden, tiles, CENTRED: tl.constexpr,
                        RESIDUAL: tl.constexpr, SUM: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    w = tl.load(weight + cols, mask=cols < hidden, other=0.0).to(tl.float32)[None, :]
    sum_w = tl.zeros((BR, BC), tl.float32)
    sum_b = tl.zeros((BR, BC), tl.float32)
    sum_r = tl.zeros((BR, BC), tl.float32)
    group, groups = tl.program_id(1), tl.num_programs(1)
    for i in range(tiles):
        rows = (group * tiles + i) * BR + tl.arange(0, BR)
        there = rows < tokens
        inside = there[:, None] & (cols < hidden)[None, :]
        at = rows.to(tl.int64)[:, None] * hidden + cols[None, :]
        dy = tl.load(dh + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        if RESIDUAL:
            r = tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(stats + CENTRED * tokens + rows, mask=there, other=0.0)[:, None]
        inner = tl.load(means + rows, mask=there, other=0.0)[:, None]
        mean = tl.load(means + tokens + rows, mask=there, other=0.0)[:, None]
        normed = _normed(value, stats, rows, tokens, there, CENTRED)
        sum_w += dy * normed
        sum_b += dy
        value = (dy * w - mean - normed * inner) * rstd
        if RESIDUAL:
            value += r
        if SUM:
            sum_r += r
        tl.store(dx + at, value.to(dx.dtype.element_ty), mask=inside)
    here = sums + group * hidden + cols
    tl.store(here, tl.sum(sum_w, 0), mask=cols < hidden)
    if CENTRED:
        tl.store(here + groups * hidden, tl.sum(sum_b, 0), mask=cols < hidden)
    if SUM:
        tl.store(here + (1 + CENTRED) * groups * hidden, tl.sum(sum_r, 0), mask=cols < hidden)


def norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    h = torch.empty_like(x)
    return h, _start(x, weight, bias, h, eps, None)


def norm8(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, scaling: ScalingState) -> tuple[Tensor, Tensor]:
    h = torch.empty_like(x, dtype=scaling.dtype)
    return h, _start(x, weight, bias, as_bytes(h), eps, scaling)


def _start(x: Tensor, weight: Tensor, bias: Tensor | None, h: Tensor, eps: float, scaling: ScalingState | None) -> Tensor:
    tokens, hidden = x.shape
    centred, block, eight = bias is not None, triton.next_power_of_2(hidden), scaling is not None
    stats = torch.empty(1 + centred, tokens, dtype=torch.float32, device=x.device)
    rows, num_warps, registers = _cut(block, eight=eight)
    _norm[(triton.cdiv(tokens, rows),)](
        x, weight, weight if bias is None else bias, h, stats, stats if scaling is None else scaling.scale,
        stats if scaling is None else scaling.amax_bits, tokens, hidden, eps, CENTRED=centred, FP8=eight,
        FIVE=scaling is not None and five(scaling), ROWS=rows, BLOCK=block, num_warps=num_warps, maxnreg=registers)
    return stats


def _cut(block: int, *, eight: bool) -> tuple[int, int, int | None]:
    """(rows of a program, its warps, registers of a thread): the fastest of those tried at 2048 and 14336 columns."""
    if block <= NARROW:
        return max(1, 1024 // block), 4, None
    if block > 16384:
        return 1, 16, None
    return (1, 16, 64) if eight else (2, 8, None)


def norm_recompute(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    (tokens, hidden), h, rows, cols = x.shape, torch.empty_like(x), 4, 1024
    groups, tiles = groups_of(tokens, rows, columns=triton.cdiv(hidden, cols), device=x.device)
    _norm_recompute[(triton.cdiv(hidden, cols), groups)](x, stats, weight, weight if bias is None else bias, h, tokens, hidden,
                                                         tiles, CENTRED=bias is not None, BR=rows, BC=cols, num_warps=8)
    return h


def norm_recompute8(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor | None, scaling: ScalingState) -> Tensor:
    (tokens, hidden), quads, cols = x.shape, 32, 64
    groups, tiles = groups_of(tokens // 4, quads, columns=triton.cdiv(hidden, cols), device=x.device, each=16)
    transposed = room_for(hidden, tokens, scaling, x.device)
    _norm_recompute8[(triton.cdiv(hidden, cols), groups)](
        x, stats, weight, weight if bias is None else bias, as_quads(transposed), scaling.scale, scaling.amax_bits, tokens,
        hidden, tiles, CENTRED=bias is not None, FIVE=five(scaling), BQ=quads, BC=cols, num_warps=4)
    return transposed


def norm_backward(dh: Tensor, x: Tensor, stats: Tensor, weight: Tensor, residual: Tensor | None = None, *,
                  sum_residual: bool = False) -> tuple[Tensor, Tensor]:
    (tokens, hidden), dx, given = x.shape, torch.empty_like(x), residual is not None
    count, other = len(stats) + (given and sum_residual), dh if residual is None else residual
    kind = {"CENTRED": len(stats) == 2, "RESIDUAL": given, "SUM": given and sum_residual}
    if hidden <= NARROW:
        block, each = triton.next_power_of_2(hidden), RESIDENT if hidden <= 2048 else RESIDENT_WIDE
        groups = min(tokens, programs(each, x.device))
        sums = torch.empty(count, groups, hidden, dtype=torch.float32, device=x.device)
        _norm_backward[(groups,)](dh, x, stats, weight, other, dx, sums, tokens, hidden, **kind, BLOCK=block,
                                  num_warps=warps(block))
        return dx, sums
    rows, cols = 8, 256
    columns = triton.cdiv(hidden, cols)
    groups, tiles = groups_of(tokens, rows, columns=columns, device=x.device, each=16)
    sums = torch.empty(count, groups, hidden, dtype=torch.float32, device=x.device)
    means = torch.empty(2, tokens, dtype=torch.float32, device=x.device)
    _norm_means[(tokens,)](dh, x, stats, weight, means, tokens, hidden, CENTRED=kind["CENTRED"], BLOCK=1024, num_warps=4)
    _norm_backward_wide[(columns, groups)](dh, x, stats, means, weight, other, dx, sums, tokens, hidden, tiles, **kind,
                                           BR=rows, BC=cols, num_warps=8, maxnreg=64)
    return dx, sums
