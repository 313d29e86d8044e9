"""GELU (tanh form) forward to eight bits, and backward with the bias's column sums and, in 16 bits, the activation itself."""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.kernels.slot import Slot
from seatrial.engine.kernels.triton_tools import groups_of, quantise, see, tanh


@triton.jit
def _gelu8(pre, g, scale, seen, count, largest, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(pre + at, mask=at < count, other=0.0).to(tl.float32)
    out = 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    see(seen, tl.max(tl.abs(out), 0))
    tl.store(g + at, quantise(out, tl.load(scale), largest).to(g.dtype.element_ty), mask=at < count)


@triton.jit
def _gelu8_turned(pre, g_t, scale, seen, tokens, width, tiles, largest, BR: tl.constexpr, BC: tl.constexpr):
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    top = tl.zeros((BR, BC), tl.float32)
    for i in range(tiles):
        rows = (tl.program_id(1) * tiles + i) * BR + tl.arange(0, BR)
        inside = (rows < tokens)[:, None] & (cols < width)[None, :]
        x = tl.load(pre + rows.to(tl.int64)[:, None] * width + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        out = 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
        top = tl.maximum(top, tl.abs(out))
        eight = tl.trans(quantise(out, tl.load(scale), largest).to(g_t.dtype.element_ty))
        tl.store(g_t + cols.to(tl.int64)[:, None] * tokens + rows[None, :], eight, mask=tl.trans(inside))
    see(seen, tl.max(tl.max(top, 1), 0))


@triton.jit
def _gelu_backward(dg, pre, d, d_t, g, sums, scale, seen, tokens, width, tiles, largest, EIGHT: tl.constexpr,
                   AGAIN: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    group = tl.program_id(1)
    # Element by element: a reduction across the tile's threads in every turn would cost more than these registers.
    total = tl.zeros((BR, BC), tl.float32)
    if EIGHT:
        top = tl.zeros((BR, BC), tl.float32)
    for i in range(tiles):
        rows = (group * tiles + i) * BR + tl.arange(0, BR)
        inside = (rows < tokens)[:, None] & (cols < width)[None, :]
        at = rows.to(tl.int64)[:, None] * width + cols[None, :]
        x = tl.load(pre + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dg + at, mask=inside, other=0.0).to(tl.float32)
        t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
        slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 0.134145 * x * x)
        dx = dy * slope
        total += dx
        if EIGHT:
            top = tl.maximum(top, tl.abs(dx))
            eight = quantise(dx, tl.load(scale), largest).to(d.dtype.element_ty)
            tl.store(d + at, eight, mask=inside)
            tl.store(d_t + cols.to(tl.int64)[:, None] * tokens + rows[None, :], tl.trans(eight), mask=tl.trans(inside))
        else:
            tl.store(d + at, dx.to(d.dtype.element_ty), mask=inside)
            if AGAIN:
                tl.store(g + at, (0.5 * x * (1.0 + t)).to(g.dtype.element_ty), mask=inside)
    tl.store(sums + group * width + cols, tl.sum(total, 0), mask=cols < width)
    if EIGHT:
        see(seen, tl.max(tl.max(top, 1), 0))


def gelu8(pre: Tensor, slot: Slot) -> Tensor:
    g, block = torch.empty_like(pre, dtype=slot.dtype), 8192
    _gelu8[(triton.cdiv(pre.numel(), block),)](pre, g, slot.scale, slot.seen_bits, pre.numel(), slot.largest, BLOCK=block,
                                               num_warps=8)
    return g


def gelu_backward(dg: Tensor, pre: Tensor, *, again: bool) -> tuple[Tensor, Tensor | None, Tensor]:
    tokens, width = pre.shape
    rows, cols = 4, 1024
    groups, tiles = groups_of(tokens, rows, columns=triton.cdiv(width, cols))
    sums = torch.empty(1, groups, width, dtype=torch.float32, device=pre.device)
    g = torch.empty_like(pre) if again else None
    _gelu_backward[(triton.cdiv(width, cols), groups)](
        dg, pre, dg, dg, pre if g is None else g, sums, sums, sums, tokens, width, tiles, 0.0, EIGHT=False, AGAIN=again,
        BR=rows, BC=cols, num_warps=8)  # fmt: skip
    return dg, g, sums


def gelu_backward8(dg: Tensor, pre: Tensor, slot: Slot, again: Slot) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tokens, width = pre.shape
    rows, cols = 64, 128
    columns = triton.cdiv(width, cols)
    groups, tiles = groups_of(tokens, rows, columns=columns)
    sums = torch.empty(1, groups, width, dtype=torch.float32, device=pre.device)
    d = torch.empty_like(pre, dtype=slot.dtype)
    d_t = torch.empty(width, tokens, dtype=slot.dtype, device=pre.device)
    g_t = torch.empty(width, tokens, dtype=again.dtype, device=pre.device)
    _gelu_backward[(columns, groups)](dg, pre, d, d_t, dg, sums, slot.scale, slot.seen_bits, tokens, width, tiles, slot.largest,
                                      EIGHT=True, AGAIN=False, BR=rows, BC=cols, num_warps=16)
    _gelu8_turned[(columns, groups)](pre, g_t, again.scale, again.seen_bits, tokens, width, tiles, again.largest, BR=rows,
                                     BC=cols, num_warps=8)
    return d, d_t, g_t, sums
