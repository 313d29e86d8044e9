"""Cross-entropy on 16-bit logits where they are: one pass finds each row's parts, one turns the logits into their gradient."""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _parts(logits, targets, found, tokens, width, real, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    here = logits + row.to(tl.int64) * width
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, real, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        value = tl.load(here + cols, mask=cols < real, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, value)
        # Where nothing was seen yet both are minus infinity, whose difference is not a number.
        base = tl.where(larger == -float("inf"), 0.0, larger)
        total = total * tl.exp(largest - base) + tl.exp(value - base)
        largest = larger
    top = tl.max(largest, 0)
    base = tl.where(top == -float("inf"), 0.0, top)
    tl.store(found + row, top)
    tl.store(found + tokens + row, tl.sum(total * tl.exp(largest - base), 0))
    target = tl.load(targets + row)
    inside = (target >= 0) & (target < real)
    tl.store(found + 2 * tokens + row, tl.load(here + target, mask=inside, other=0.0).to(tl.float32))


@triton.jit
def _gradient(logits, targets, log_sum, width, real, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = logits + row.to(tl.int64) * width + cols
    value = tl.load(at, mask=cols < real, other=-float("inf")).to(tl.float32)
    p = tl.exp(value - tl.load(log_sum + row))
    p -= tl.where((cols == tl.load(targets + row)) & (cols < real), 1.0, 0.0)
    tl.store(at, p.to(logits.dtype.element_ty), mask=cols < width)


def softmax_parts(logits: Tensor, targets: Tensor, real: int) -> tuple[Tensor, Tensor, Tensor]:
    tokens, width = logits.shape
    found = torch.empty(3, tokens, dtype=torch.float32, device=logits.device)
    _parts[(tokens,)](logits, targets, found, tokens, width, real, BLOCK=4096, num_warps=8)
    largest, total, at_target = found.unbind()
    return largest, total, at_target


def softmax_gradient(logits: Tensor, targets: Tensor, log_sum: Tensor, real: int) -> None:
    tokens, width = logits.shape
    _gradient[(tokens, triton.cdiv(width, 4096))](logits, targets, log_sum, width, real, BLOCK=4096, num_warps=8)
