"""GELU (tanh form) forward to eight bits, and backward with the bias's column sums and, in 16 bits, the activation itself."""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.kernels.slot import Slot
from seatrial.engine.kernels.triton_columns import cast8
from seatrial.engine.kernels.triton_tools import groups_of, quantise, see, tanh


@triton.jit
def _gelu8(pre, g, scale, seen, count, largest, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(pre + at, mask=at < count, other=0.0).to(tl.float32)
    out = 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    see(seen, tl.max(tl.abs(out), 0))
    tl.store(g + at, quantise(out, tl.load(scale), largest).to(g.dtype.element_ty), mask=at < count)


@triton.jit
def _gelu_backward(dg, pre, g, sums, tokens, width, tiles, AGAIN: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
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
        t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
        slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 0.134145 * x * x)
        dx = dy * slope
        total += dx
        tl.store(dg + at, dx.to(dg.dtype.element_ty), mask=inside)
        if AGAIN:
            tl.store(g + at, (0.5 * x * (1.0 + t)).to(g.dtype.element_ty), mask=inside)
    tl.store(sums + group * width + cols, tl.sum(total, 0), mask=cols < width)


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
    _gelu_backward[(triton.cdiv(width, cols), groups)](dg, pre, pre if g is None else g, sums, tokens, width, tiles,
                                                       AGAIN=again, BR=rows, BC=cols, num_warps=8)
    return dg, g, sums


def gelu_backward8(dg: Tensor, pre: Tensor, slot: Slot, again: Slot) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """By way of 16 bits: one kernel that also casts and transposes failed its check on a device, for a cause not found."""
    d, g, sums = gelu_backward(dg, pre, again=True)
    assert g is not None
    rows, cols = cast8(d, slot, cols=True)
    _, turned = cast8(g, again, rows=False, cols=True)
    assert rows is not None and cols is not None and turned is not None
    return rows, cols, turned, sums
