"""Rows to their experts and back, and SwiGLU between an expert's two GEMMs with the row's weight inside.

The weight is multiplied before the second GEMM, so that what comes back is only added up, and the weight's gradient is made
where the activation's is: the result of the second GEMM is never kept.
"""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.fast.kernels.triton_tools import power_of_two, reciprocal


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


@triton.jit
def _gated(pre, weight, out, rows, width, BR: tl.constexpr, BC: tl.constexpr):
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    cols = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = (row < rows)[:, None] & (cols < width)[None, :]
    at = row.to(tl.int64)[:, None] * (2 * width) + cols[None, :]
    gate = tl.load(pre + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(pre + at + width, mask=inside, other=0.0).to(tl.float32)
    by = tl.load(weight + row, mask=row < rows, other=0.0)[:, None]
    found = gate * reciprocal(1.0 + power_of_two(gate * -1.4426950408889634)) * up * by
    to = row.to(tl.int64)[:, None] * width + cols[None, :]
    tl.store(out + to, found.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gated_backward(d, pre, weight, d_weights, rows, width, BR: tl.constexpr, BC: tl.constexpr):
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    cols = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = (row < rows)[:, None] & (cols < width)[None, :]
    at = row.to(tl.int64)[:, None] * (2 * width) + cols[None, :]
    to = row.to(tl.int64)[:, None] * width + cols[None, :]
    by = tl.load(weight + row, mask=row < rows, other=0.0)[:, None]
    gate = tl.load(pre + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(pre + at + width, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(d + to, mask=inside, other=0.0).to(tl.float32)
    s = reciprocal(1.0 + power_of_two(gate * -1.4426950408889634))
    value = gate * s
    tl.store(d_weights + tl.program_id(1) * rows + row, tl.sum(dy * value * up, 1), mask=row < rows)
    dy *= by
    tl.store(d + to, (value * up * by).to(d.dtype.element_ty), mask=inside)
    tl.store(pre + at, (dy * up * (s + value * (1.0 - s))).to(pre.dtype.element_ty), mask=inside)
    tl.store(pre + at + width, (dy * value).to(pre.dtype.element_ty), mask=inside)


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


def gated(pre: Tensor, weight_R: Tensor) -> Tensor:
    rows, width = pre.shape[0], pre.shape[1] // 2
    out, (tall, wide) = pre.new_empty(rows, width), (8, 256)
    _gated[(triton.cdiv(rows, tall), triton.cdiv(width, wide))](pre, weight_R, out, rows, width, BR=tall, BC=wide, num_warps=4)
    return out


def gated_backward(d: Tensor, pre: Tensor, weight_R: Tensor) -> Tensor:
    (rows, width), (tall, wide) = d.shape, (8, 256)
    parts = triton.cdiv(width, wide)
    d_weights = torch.empty(parts, rows, dtype=torch.float32, device=d.device)
    _gated_backward[(triton.cdiv(rows, tall), parts)](d, pre, weight_R, d_weights, rows, width, BR=tall, BC=wide, num_warps=4)
    return d_weights.sum(0)
