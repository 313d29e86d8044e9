"""Rows of a matrix added to where they belong: the gradient of an embedding, without a matrix of all rows between.

Sorted, the positions of one row lie side by side as a run. A run of n positions has n programs, which share its columns: one
that is alone in its run takes all of them. Nothing is added by two programs at once, so that a result is the same every time,
and the host need not know how many runs there are. Long runs (a common word is one position in twenty) are walked by tiles of
many rows, short ones row by row with all threads on the columns.
"""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LONG = 16
"""Positions from which on a run is walked by tiles."""


@triton.jit
def _add_rows(out, rows, order, firsts, lasts, values, height, hidden, shortest, longest, BR: tl.constexpr, BC: tl.constexpr):
    position = tl.program_id(0)
    row, first, last = tl.load(rows + position), tl.load(firsts + position), tl.load(lasts + position)
    length = last - first
    if (row >= 0) & (row < height) & (length >= shortest) & (length < longest):
        for block in range(position - first, tl.cdiv(hidden, BC), length):
            cols = block * BC + tl.arange(0, BC)
            inside = (cols < hidden)[None, :]
            at = row.to(tl.int64) * hidden + cols[None, :]
            before = tl.load(out + at, mask=inside, other=0.0)
            total = tl.zeros((BR, BC), tl.float32)
            here = first + tl.arange(0, BR)
            source = tl.load(order + here, mask=here < last, other=0)
            for _ in range(first, last, BR):
                part = (here < last)[:, None] & inside
                here += BR
                # On its way while the values are: else each would wait for the other.
                following = tl.load(order + here, mask=here < last, other=0)
                from_rows = source.to(tl.int64)[:, None] * hidden + cols[None, :]
                total += tl.load(values + from_rows, mask=part, other=0.0).to(tl.float32)
                source = following
            after = before.to(tl.float32) + tl.sum(total, 0, keep_dims=True)
            tl.store(out + at, after.to(out.dtype.element_ty), mask=inside)


def add_rows(out: Tensor, rows: Tensor, values: Tensor) -> None:
    (height, hidden), positions = out.shape, rows.numel()
    rows, order = rows.int().sort(stable=True)
    order, values = order.int(), values.contiguous()
    firsts, lasts = (torch.searchsorted(rows, rows, right=right, out_int32=True) for right in (False, True))
    for shortest, longest, tile in ((LONG, positions + 1, (32, 256)), (1, LONG, (1, 1024))):
        _add_rows[(positions,)](out, rows, order, firsts, lasts, values, height, hidden, shortest, longest, BR=tile[0],
                                BC=tile[1], num_warps=4)
