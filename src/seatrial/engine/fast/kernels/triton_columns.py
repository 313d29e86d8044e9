"""Copies with column sums: queries', keys' and values' gradients side by side; casts to eight bits both ways."""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.fast.kernels.grid import groups_of
from seatrial.engine.fast.kernels.plain import Out, Parts
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
from seatrial.engine.fast.kernels.triton_tools import update_amax


@triton.jit
def _block_of(one, two, three, width, narrow, BC: tl.constexpr):
    """Which of three matrices side by side this program works on, its width, where it begins, and the block of columns in it;
    the first is `width` wide, the others `narrow`."""
    wide, each = tl.cdiv(width, BC), tl.cdiv(narrow, BC)
    number = tl.program_id(0)
    second, third = number >= wide, number >= wide + each
    source = one
    if second:
        source = two
    if third:
        source = three
    own = tl.where(second, narrow, width)
    begin = tl.where(third, width + narrow, tl.where(second, width, 0))
    block = number - tl.where(third, wide + each, tl.where(second, wide, 0))
    return source, own, begin, block


@triton.jit(do_not_specialize=["tiles"])
def _cat_qkv(one, two, three, out, sums, tokens, width, narrow, tiles, BR: tl.constexpr, BC: tl.constexpr):
    source, own, begin, block = _block_of(one, two, three, width, narrow, BC)
    cols = block * BC + tl.arange(0, BC)
    group, whole = tl.program_id(1), width + 2 * narrow
    total = tl.zeros((BR, BC), tl.float32)
    for i in range(tiles):
        rows = (group * tiles + i) * BR + tl.arange(0, BR)
        inside = (rows < tokens)[:, None] & (cols < own)[None, :]
        value = tl.load(source + rows.to(tl.int64)[:, None] * own + cols[None, :], mask=inside, other=0.0)
        total += value.to(tl.float32)
        tl.store(out + rows.to(tl.int64)[:, None] * whole + begin + cols[None, :], value, mask=inside)
    tl.store(sums + group * whole + begin + cols, tl.sum(total, 0), mask=cols < own)


@triton.jit(do_not_specialize=["tiles"])
def _transpose8(one, two, three, out, out_t, sums, scale, amax, tokens, width, narrow, tiles, SUMS: tl.constexpr,
                ROWS: tl.constexpr, FIVE: tl.constexpr, NEAR: tl.constexpr, BQ: tl.constexpr, BC: tl.constexpr):
    """One matrix, or three side by side: transposed, and by rows where ROWS says so."""
    source, own, begin, block = _block_of(one, two, three, width, narrow, BC)
    whole = width + 2 * narrow
    cols = block * BC + tl.max_contiguous(tl.arange(0, BC), NEAR)
    group = tl.program_id(1)
    if SUMS:
        total = tl.zeros((BQ, BC), tl.float32)
    top = tl.zeros((BQ, BC), tl.float32)
    by, quads = tl.load(scale), tokens // 4
    for i in range(tiles):
        quad = (group * tiles + i) * BQ + tl.arange(0, BQ)
        inside = (quad < quads)[:, None] & (cols < own)[None, :]
        v0, v1, v2, v3 = load_four(source, quad.to(tl.int64)[:, None] * (4 * own) + cols[None, :], own, inside)
        if SUMS:
            total += (v0 + v1) + (v2 + v3)
        top = tl.maximum(top, largest_of(v0, v1, v2, v3))
        v0 *= by
        v1 *= by
        v2 *= by
        v3 *= by
        if ROWS:
            here = quad.to(tl.int64)[:, None] * (4 * whole) + begin + cols[None, :]
            store_four(out, here, whole, v0, v1, v2, v3, inside, FIVE)
        store_transposed(out_t, quad, begin + cols, quads, v0, v1, v2, v3, inside, FIVE)
    if SUMS:
        tl.store(sums + group * whole + begin + cols, tl.sum(total, 0), mask=cols < own)
    update_amax(amax, tl.max(tl.max(top, 1), 0))


@triton.jit
def _cast8(x, out, scale, amax, count, FIVE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.max_contiguous(tl.arange(0, BLOCK), 8)
    value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    update_amax(amax, tl.max(tl.abs(value), 0))
    tl.store(out + at, row_bytes(value * tl.load(scale), FIVE), mask=at < count)


# A flag of 1 would become a constant of the kernel, and its type another one's.
@triton.jit(do_not_specialize=["fresh_one", "fresh_two", "fresh_three"])
def _reduce_partials(sums, one, two, three, fresh_one, fresh_two, fresh_three, groups, width, BG: tl.constexpr,
                     BC: tl.constexpr):
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    number = tl.program_id(1)
    out = one
    fresh = fresh_one
    if number == 1:
        out = two
        fresh = fresh_two
    if number == 2:
        out = three
        fresh = fresh_three
    total = tl.zeros((BC,), tl.float32)
    for first in range(0, groups, BG):
        group = first + tl.arange(0, BG)
        inside = (group < groups)[:, None] & (cols < width)[None, :]
        total += tl.sum(tl.load(sums + (number * groups + group)[:, None] * width + cols[None, :], mask=inside, other=0.0), 0)
    if fresh == 0:
        total += tl.load(out + cols, mask=cols < width, other=0.0).to(tl.float32)
    tl.store(out + cols, total.to(out.dtype.element_ty), mask=cols < width)


def reduce_partials(sums: Tensor, outs: list[Out]) -> None:
    count, groups, width = sums.shape
    assert count == len(outs) <= 3
    (one, f1), (two, f2), (three, f3) = outs + [outs[0]] * (3 - count)
    _reduce_partials[(triton.cdiv(width, 32), count)](sums, one, two, three, int(f1), int(f2), int(f3), groups, width,
                                                      BG=64, BC=32, num_warps=4)


def cat_qkv(parts: Parts) -> tuple[Tensor, Tensor]:
    (tokens, width), narrow, rows, cols = parts[0].shape, parts[1].shape[1], 4, 2048
    columns = triton.cdiv(width, cols) + 2 * triton.cdiv(narrow, cols)
    groups, tiles = groups_of(tokens, rows, columns=columns, device=parts[0].device, each=16)
    whole = parts[0].new_empty(tokens, width + 2 * narrow)
    sums = torch.empty(1, groups, width + 2 * narrow, dtype=torch.float32, device=whole.device)
    _cat_qkv[(columns, groups)](*parts, whole, sums, tokens, width, narrow, tiles, BR=rows, BC=cols, num_warps=8)
    return whole, sums


def cat_qkv8(parts: Parts, scaling: ScalingState) -> tuple[Tensor, Tensor, Tensor]:
    eight = room_for(len(parts[0]), sum(p.shape[1] for p in parts), scaling, parts[0].device)
    transposed, sums = _transposed(parts, eight, scaling, narrow=parts[1].shape[1], near=8, each=32, num_warps=4)
    return eight, transposed, sums


def cast8(x: Tensor, scaling: ScalingState, *, rows: bool = True, cols: bool = False) -> tuple[Tensor | None, Tensor | None]:
    eight = torch.empty_like(x, dtype=scaling.dtype) if rows else None
    if cols:
        return eight, _transposed((x, x, x), eight, scaling, narrow=0, near=16, each=16, num_warps=8)[0]
    if eight is not None:
        block = 8192
        _cast8[(triton.cdiv(x.numel(), block),)](x, as_bytes(eight), scaling.scale, scaling.amax_bits, x.numel(),
                                                 FIVE=five(scaling), BLOCK=block, num_warps=8)
    return eight, None


def _transposed(parts: Parts, eight: Tensor | None, scaling: ScalingState, *, narrow: int, near: int, each: int,
                num_warps: int) -> tuple[Tensor, Tensor]:
    """`narrow`: the width of the second and third, or 0 for one alone, without sums; `near`: how many columns a thread may hold
    side by side; `each`: programs of a multiprocessor, one after another."""
    (tokens, width), quads, cols = parts[0].shape, 32, 64
    columns, whole = triton.cdiv(width, cols) + 2 * triton.cdiv(narrow, cols), width + 2 * narrow
    groups, tiles = groups_of(tokens // 4, quads, columns=columns, device=parts[0].device, each=each)
    transposed = room_for(whole, tokens, scaling, parts[0].device)
    sums = torch.empty(1, groups if narrow else 0, whole, dtype=torch.float32, device=transposed.device)
    _transpose8[(columns, groups)](
        *parts, as_bytes(transposed if eight is None else eight), as_quads(transposed), sums, scaling.scale, scaling.amax_bits,
        tokens, width, narrow, tiles, SUMS=narrow > 0, ROWS=eight is not None, FIVE=five(scaling), NEAR=near, BQ=quads,
        BC=cols, num_warps=num_warps)
    return transposed, sums
