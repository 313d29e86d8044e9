"""Layer norm: forward with the next bias laid on the residual stream, backward with the residual's gradient and column sums.

Rows up to `NARROW` are worked on by a program that keeps the column sums of its rows in registers; wider ones leave too few of
them, and a second kernel reads the columns again.
"""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.kernels.slot import Slot
from seatrial.engine.kernels.triton_tools import groups_of, quantise, see, warps

NARROW = 4096
RESIDENT = 132 * 3
"""Programs of the backward pass that a large device holds at once."""


@triton.jit
def _norm(x, added, weight, bias, plus, h, stream, stats, scale, seen, tokens, hidden, eps, largest,
          ADDED: tl.constexpr, PLUS: tl.constexpr, EIGHT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    inside = cols < hidden
    w = tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + cols, mask=inside, other=0.0).to(tl.float32)
    top = 0.0
    for i in range(ROWS):
        row = tl.program_id(0) * ROWS + i
        if row < tokens:
            at = row.to(tl.int64) * hidden + cols
            value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
            if ADDED:
                value += tl.load(added + at, mask=inside, other=0.0).to(tl.float32)
                stored = value.to(stream.dtype.element_ty)
                tl.store(stream + at, stored, mask=inside)
                value = stored.to(tl.float32)
            mean = tl.sum(value, 0) / hidden
            centred = tl.where(inside, value - mean, 0.0)
            rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / hidden + eps)
            out = centred * rstd * w + b
            if EIGHT:
                top = tl.maximum(top, tl.max(tl.where(inside, tl.abs(out), 0.0), 0))
                out = quantise(out, tl.load(scale), largest)
            tl.store(h + at, out.to(h.dtype.element_ty), mask=inside)
            if PLUS:
                shifted = value + tl.load(plus + cols, mask=inside, other=0.0).to(tl.float32)
                tl.store(stream + at, shifted.to(stream.dtype.element_ty), mask=inside)
            tl.store(stats + row, mean)
            tl.store(stats + tokens + row, rstd)
    if EIGHT:
        see(seen, top)


@triton.jit
def _norm_again(x, stats, weight, bias, h, scale, seen, tokens, hidden, largest, tiles,
                EIGHT: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """From the statistics that are known: as it is, or in eight bits and transposed."""
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    w = tl.load(weight + cols, mask=cols < hidden, other=0.0).to(tl.float32)
    b = tl.load(bias + cols, mask=cols < hidden, other=0.0).to(tl.float32)
    if EIGHT:
        top = tl.zeros((BR, BC), tl.float32)
    for i in range(tiles):
        rows = (tl.program_id(1) * tiles + i) * BR + tl.arange(0, BR)
        inside = (rows < tokens)[:, None] & (cols < hidden)[None, :]
        value = tl.load(x + rows.to(tl.int64)[:, None] * hidden + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(stats + rows, mask=rows < tokens, other=0.0)
        rstd = tl.load(stats + tokens + rows, mask=rows < tokens, other=0.0)
        out = (value - mean[:, None]) * rstd[:, None] * w[None, :] + b[None, :]
        if EIGHT:
            out = tl.where(inside, out, 0.0)
            top = tl.maximum(top, tl.abs(out))
            eight = tl.trans(quantise(out, tl.load(scale), largest).to(h.dtype.element_ty))
            tl.store(h + cols.to(tl.int64)[:, None] * tokens + rows[None, :], eight, mask=tl.trans(inside))
        else:
            tl.store(h + rows.to(tl.int64)[:, None] * hidden + cols[None, :], out.to(h.dtype.element_ty), mask=inside)
    if EIGHT:
        see(seen, tl.max(tl.max(top, 1), 0))


@triton.jit
def _norm_backward(dh, x, stats, weight, residual, dx, sums, tokens, hidden, RESIDUAL: tl.constexpr, SUMS: tl.constexpr,
                   BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    inside = cols < hidden
    w = tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    program, programs = tl.program_id(0), tl.num_programs(0)
    if SUMS:
        sum_w = tl.zeros((BLOCK,), tl.float32)
        sum_b = tl.zeros((BLOCK,), tl.float32)
        sum_r = tl.zeros((BLOCK,), tl.float32)
    for i in range(tl.cdiv(tokens, programs)):
        row = program + i * programs
        if row < tokens:
            at = row.to(tl.int64) * hidden + cols
            dy = tl.load(dh + at, mask=inside, other=0.0).to(tl.float32)
            value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
            if RESIDUAL:
                r = tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
            rstd = tl.load(stats + tokens + row)
            normed = tl.where(inside, (value - tl.load(stats + row)) * rstd, 0.0)
            d = dy * w
            inner = tl.sum(d * normed, 0) / hidden
            mean = tl.sum(d, 0) / hidden
            value = (d - mean - normed * inner) * rstd
            if RESIDUAL:
                value += r
            tl.store(dx + at, value.to(dx.dtype.element_ty), mask=inside)
            if SUMS:
                sum_w += dy * normed
                sum_b += dy
                if RESIDUAL:
                    sum_r += r
    if SUMS:
        tl.store(sums + program * hidden + cols, sum_w, mask=inside)
        tl.store(sums + (programs + program) * hidden + cols, sum_b, mask=inside)
        if RESIDUAL:
            tl.store(sums + (2 * programs + program) * hidden + cols, sum_r, mask=inside)


@triton.jit
def _norm_sums(dh, x, stats, residual, sums, tokens, hidden, tiles, RESIDUAL: tl.constexpr, BR: tl.constexpr,
               BC: tl.constexpr):
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    sum_w = tl.zeros((BR, BC), tl.float32)
    sum_b = tl.zeros((BR, BC), tl.float32)
    sum_r = tl.zeros((BR, BC), tl.float32)
    group, groups = tl.program_id(1), tl.num_programs(1)
    for i in range(tiles):
        rows = (group * tiles + i) * BR + tl.arange(0, BR)
        inside = (rows < tokens)[:, None] & (cols < hidden)[None, :]
        at = rows.to(tl.int64)[:, None] * hidden + cols[None, :]
        dy = tl.load(dh + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(stats + rows, mask=rows < tokens, other=0.0)
        rstd = tl.load(stats + tokens + rows, mask=rows < tokens, other=0.0)
        sum_w += dy * (value - mean[:, None]) * rstd[:, None]
        sum_b += dy
        if RESIDUAL:
            sum_r += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(sums + group * hidden + cols, tl.sum(sum_w, 0), mask=cols < hidden)
    tl.store(sums + (groups + group) * hidden + cols, tl.sum(sum_b, 0), mask=cols < hidden)
    if RESIDUAL:
        tl.store(sums + (2 * groups + group) * hidden + cols, tl.sum(sum_r, 0), mask=cols < hidden)


def norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, *,
         plus: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    h = torch.empty_like(x)
    shifted = None if plus is None else torch.empty_like(x)
    stats = _start(x, None, weight, bias, plus, h, shifted, eps, None)
    return h, stats, shifted


def norm8(x: Tensor, weight: Tensor, bias: Tensor, eps: float, slot: Slot, *,
          added: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    h = torch.empty_like(x, dtype=slot.dtype)
    both = None if added is None else torch.empty_like(x)
    return h, _start(x, added, weight, bias, None, h, both, eps, slot), both


def _start(x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, plus: Tensor | None, h: Tensor, stream: Tensor | None,
           eps: float, slot: Slot | None) -> Tensor:
    tokens, hidden = x.shape
    stats = torch.empty(2, tokens, dtype=torch.float32, device=x.device)
    block, rows = triton.next_power_of_2(hidden), 4
    _norm[(triton.cdiv(tokens, rows),)](
        x, x if added is None else added, weight, bias, weight if plus is None else plus, h, x if stream is None else stream,
        stats, stats if slot is None else slot.scale, stats if slot is None else slot.seen_bits, tokens, hidden, eps,
        0.0 if slot is None else slot.largest, ADDED=added is not None, PLUS=plus is not None, EIGHT=slot is not None,
        ROWS=rows, BLOCK=block, num_warps=warps(block))  # fmt: skip
    return stats


def norm_again(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _again(x, stats, weight, bias, torch.empty_like(x), None)


def norm_again8(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor, slot: Slot) -> Tensor:
    return _again(x, stats, weight, bias, torch.empty(x.shape[::-1], dtype=slot.dtype, device=x.device), slot)


def _again(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor, h: Tensor, slot: Slot | None) -> Tensor:
    tokens, hidden = x.shape
    rows, cols = (64, 128) if slot else (4, 1024)
    groups, tiles = groups_of(tokens, rows, columns=triton.cdiv(hidden, cols))
    _norm_again[(triton.cdiv(hidden, cols), groups)](
        x, stats, weight, bias, h, stats if slot is None else slot.scale, stats if slot is None else slot.seen_bits, tokens,
        hidden, 0.0 if slot is None else slot.largest, tiles, EIGHT=slot is not None, BR=rows, BC=cols,
        num_warps=8)
    return h


def norm_backward(dh: Tensor, x: Tensor, stats: Tensor, weight: Tensor,
                  residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
    tokens, hidden = x.shape
    block, dx = triton.next_power_of_2(hidden), torch.empty_like(x)
    narrow = hidden <= NARROW
    programs = min(tokens, RESIDENT if narrow else tokens)
    groups, tiles = (programs, 0) if narrow else groups_of(tokens, 16, columns=triton.cdiv(hidden, 128))
    given = residual is not None
    other = dh if residual is None else residual
    sums = torch.empty(2 + given, groups, hidden, dtype=torch.float32, device=x.device)
    _norm_backward[(programs,)](dh, x, stats, weight, other, dx, sums, tokens, hidden, RESIDUAL=given, SUMS=narrow, BLOCK=block,
                                num_warps=warps(block))
    if not narrow:
        _norm_sums[(triton.cdiv(hidden, 128), groups)](dh, x, stats, other, sums, tokens, hidden, tiles, RESIDUAL=given, BR=16,
                                                       BC=128, num_warps=4)
    return dx, sums
