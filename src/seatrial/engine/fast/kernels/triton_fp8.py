"""Casts to eight bits inside Triton's kernels, by rows and transposed.

Four rows are worked on together. Transposed, the bytes of a column's four rows are one 32-bit number, made before the tile is
transposed: the compiler of Triton 3.6 (ptxas 12.8) stores stale bytes where an 8-bit tile is stored as it is and transposed
through shared memory. PTX's cast saturates by itself.
"""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.fast.kernels.scaling import ScalingState
from seatrial.engine.fast.kernels.triton_tools import INTERPRETED

FOUR_BYTES = ("{ .reg .b16 a, b; cvt.rn.satfinite.TYPEx2.f32 a, $2, $1; cvt.rn.satfinite.TYPEx2.f32 b, $4, $3; "
              "mov.b32 $0, {a, b}; }")
TO_E5M2 = tl.constexpr(FOUR_BYTES.replace("TYPE", "e5m2"))
TO_E4M3 = tl.constexpr(FOUR_BYTES.replace("TYPE", "e4m3"))


@triton.jit
def row_bytes(value, FIVE: tl.constexpr):
    """A tile's numbers as bytes, four neighbours at a time; FIVE: e5m2, else e4m3."""
    if INTERPRETED:
        top: tl.constexpr = 57344.0 if FIVE else 448.0
        held = tl.minimum(tl.maximum(value, -top), top)
        return held.to(tl.float8e5 if FIVE else tl.float8e4nv).to(tl.int8, bitcast=True)
    else:
        return tl.inline_asm_elementwise(TO_E5M2 if FIVE else TO_E4M3, "=r,r,r,r,r", [value], dtype=tl.int8, is_pure=True,
                                         pack=4)


@triton.jit
def column_bytes(v0, v1, v2, v3, FIVE: tl.constexpr):
    """Four rows' numbers as the four bytes of one."""
    if INTERPRETED:
        b0 = row_bytes(v0, FIVE).to(tl.int32) & 255
        b1 = row_bytes(v1, FIVE).to(tl.int32) & 255
        b2 = row_bytes(v2, FIVE).to(tl.int32) & 255
        b3 = row_bytes(v3, FIVE).to(tl.int32) & 255
        return b0 | (b1 << 8) | (b2 << 16) | (b3 << 24)
    else:
        return tl.inline_asm_elementwise(TO_E5M2 if FIVE else TO_E4M3, "=r,r,r,r,r", [v0, v1, v2, v3], dtype=tl.int32,
                                         is_pure=True, pack=1)


@triton.jit
def load_four(source, at, width, inside):
    """Of four rows, the first at `at`."""
    v0 = tl.load(source + at, mask=inside, other=0.0).to(tl.float32)
    v1 = tl.load(source + at + width, mask=inside, other=0.0).to(tl.float32)
    v2 = tl.load(source + at + 2 * width, mask=inside, other=0.0).to(tl.float32)
    v3 = tl.load(source + at + 3 * width, mask=inside, other=0.0).to(tl.float32)
    return v0, v1, v2, v3


@triton.jit
def store_four(out, at, width, v0, v1, v2, v3, inside, FIVE: tl.constexpr):
    tl.store(out + at, row_bytes(v0, FIVE), mask=inside)
    tl.store(out + at + width, row_bytes(v1, FIVE), mask=inside)
    tl.store(out + at + 2 * width, row_bytes(v2, FIVE), mask=inside)
    tl.store(out + at + 3 * width, row_bytes(v3, FIVE), mask=inside)


@triton.jit
def store_transposed(out_t, quad, cols, quads, v0, v1, v2, v3, inside, FIVE: tl.constexpr):
    """out_t: [columns, tokens / 4] of 32-bit numbers."""
    at = cols.to(tl.int64)[:, None] * quads + quad[None, :]
    tl.store(out_t + at, tl.trans(column_bytes(v0, v1, v2, v3, FIVE)), mask=tl.trans(inside))


@triton.jit
def largest_of(v0, v1, v2, v3):
    return tl.maximum(tl.maximum(tl.abs(v0), tl.abs(v1)), tl.maximum(tl.abs(v2), tl.abs(v3)))


def five(scaling: ScalingState) -> bool:
    return scaling.dtype == torch.float8_e5m2


def room_for(tokens: int, width: int, scaling: ScalingState, device: torch.device) -> Tensor:
    return torch.empty(tokens, width, dtype=scaling.dtype, device=device)


def as_bytes(out: Tensor) -> Tensor:
    return out.view(torch.int8)


def as_quads(transposed: Tensor) -> Tensor:
    """[columns, tokens] as [columns, tokens / 4]: the tokens are a multiple of four."""
    return transposed.view(torch.int32)
