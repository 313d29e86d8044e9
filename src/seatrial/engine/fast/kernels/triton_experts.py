"""Rows to their experts and back."""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _put_rows(x, place, out, hidden, K: tl.constexpr, BC: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BC + tl.max_contiguous(tl.arange(0, BC), 8)
    inside = cols < hidden
    row = tl.load(x + token * hidden + cols, mask=inside)
    for choice in tl.static_range(K):
        to = tl.load(place + token * K + choice).to(tl.int64)
        tl.store(out + to * hidden + cols, row, mask=inside & (to >= 0))


@triton.jit
def _sum_rows(rows, place, out, hidden, K: tl.constexpr, BC: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BC + tl.max_contiguous(tl.arange(0, BC), 8)
    inside = cols < hidden
    total = tl.zeros((BC,), tl.float32)
    for choice in tl.static_range(K):
        here = tl.load(place + token * K + choice).to(tl.int64)
        total += tl.load(rows + here * hidden + cols, mask=inside & (here >= 0), other=0.0).to(tl.float32)
    tl.store(out + token * hidden + cols, total.to(out.dtype.element_ty), mask=inside)


def put_rows(x_TH: Tensor, place_TK: Tensor, rows: int) -> Tensor:
    (tokens, hidden), block = x_TH.shape, 1024
    out = x_TH.new_empty(rows, hidden)
    _put_rows[(tokens, triton.cdiv(hidden, block))](x_TH, place_TK, out, hidden, K=place_TK.shape[1], BC=block, num_warps=4)
    return out


def sum_rows(rows_RH: Tensor, place_TK: Tensor) -> Tensor:
    (tokens, choices), hidden, block = place_TK.shape, rows_RH.shape[1], 1024
    out = rows_RH.new_empty(tokens, hidden)
    _sum_rows[(tokens, triton.cdiv(hidden, block))](rows_RH, place_TK, out, hidden, K=choices, BC=block, num_warps=4)
    return out
