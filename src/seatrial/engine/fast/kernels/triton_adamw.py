"""AdamW in one pass: reads a 16- or 32-bit gradient, updates masters and moments, writes the weights that are computed with.

Masters that are split (`masters.py`) are put together in registers, 26 bytes per parameter with a 16-bit gradient; whole ones
take 28. Moments in 16 bits take 8 less; they are rounded once, to the nearest, after the step was computed with them.
"""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.core import masters
from seatrial.engine.fast.kernels.grid import programs

BLOCK, WARPS = 1024, 8
"""Four numbers a thread: with eight, fp32 stores go through shared memory and three barriers."""
TIE, QUIET_NAN = tl.constexpr(masters.TIE), tl.constexpr(masters.QUIET_NAN)


@triton.jit
def _adamw(master, rest, grad, exp_avg, exp_avg_sq, weights, numbers, count, new1, beta2, new2, eps, keep, SPLIT: tl.constexpr,
           WEIGHTS: tl.constexpr, BLOCK: tl.constexpr):
    """`new1`, `new2`: one minus beta, subtracted in double precision: in fp32 the difference is three steps off, and moments in
    16 bits would be rounded to the other side wherever they lie on an edge."""
    if tl.load(numbers + 3) == 0.0:
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        # Divided once a program, not once a number: near its power limit a device has no operation to spare.
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32) * (1.0 / tl.load(numbers))
        first = tl.load(exp_avg + at, mask=inside, other=0.0).to(tl.float32)
        first += new1 * (g - first)
        second = tl.load(exp_avg_sq + at, mask=inside, other=0.0).to(tl.float32) * beta2 + new2 * g * g
        if SPLIT:
            upper = tl.load(weights + at, mask=inside, other=0).to(tl.int32) << 16
            after = (upper + tl.load(rest + at, mask=inside, other=0).to(tl.int32)).to(tl.float32, bitcast=True) * keep
        else:
            after = tl.load(master + at, mask=inside, other=0.0) * keep
        after -= tl.load(numbers + 1) * first / (tl.sqrt(second) * (1.0 / tl.load(numbers + 2)) + eps)
        tl.store(exp_avg + at, first.to(exp_avg.dtype.element_ty), mask=inside)
        tl.store(exp_avg_sq + at, second.to(exp_avg_sq.dtype.element_ty), mask=inside)
        if SPLIT:
            bits = tl.where(after == after, after.to(tl.int32, bitcast=True), QUIET_NAN)
            tl.store(weights + at, ((bits + TIE) >> 16).to(tl.int16), mask=inside)
            tl.store(rest + at, bits.to(tl.int16), mask=inside)
        else:
            tl.store(master + at, after, mask=inside)
            if WEIGHTS:
                tl.store(weights + at, after.to(weights.dtype.element_ty), mask=inside)


@triton.jit
def _squared(x, out, count, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    for first in range(tl.program_id(0).to(tl.int64) * BLOCK, count, step):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
        total += value * value
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


def adamw(master: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, weights: Tensor | None, numbers: Tensor, *,
          beta1: float, beta2: float, eps: float, keep: float) -> None:
    count = master.numel()
    _adamw[(triton.cdiv(count, BLOCK),)](
        master, master, grad, exp_avg, exp_avg_sq, master if weights is None else weights, numbers, count, 1.0 - beta1,
        beta2, 1.0 - beta2, eps, keep, SPLIT=False, WEIGHTS=weights is not None, BLOCK=BLOCK, num_warps=WARPS)


def adamw_split(weights: Tensor, rest: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, numbers: Tensor, *,
                beta1: float, beta2: float, eps: float, keep: float) -> None:
    count = weights.numel()
    _adamw[(triton.cdiv(count, BLOCK),)](
        rest, rest, grad, exp_avg, exp_avg_sq, weights.view(torch.int16), numbers, count, 1.0 - beta1, beta2, 1.0 - beta2,
        eps, keep, SPLIT=True, WEIGHTS=True, BLOCK=BLOCK, num_warps=WARPS)


def squared(parts: list[Tensor]) -> Tensor:
    most = programs(4, parts[0].device)
    found = torch.zeros(len(parts), most, dtype=torch.float32, device=parts[0].device)
    for part, out in zip(parts, found):
        block = 4096
        _squared[(min(most, triton.cdiv(part.numel(), block)),)](part, out, part.numel(), BLOCK=block, num_warps=8)
    return found.double().sum()
