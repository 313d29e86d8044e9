"""Copies with column sums: queries', keys' and values' gradients side by side; casts to eight bits both ways."""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.engine.kernels.plain import Place
from seatrial.engine.kernels.slot import Slot
from seatrial.engine.kernels.triton_tools import groups_of, quantise, see


@triton.jit
def _copy(one, two, three, out, out_t, sums, scale, seen, tokens, width, whole, tiles, largest, SUMS: tl.constexpr,
          EIGHT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """Up to three matrices of `width` columns into one of `whole`."""
    blocks = tl.cdiv(width, BC)
    part, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    source = one
    if part == 1:
        source = two
    if part == 2:
        source = three
    cols = block * BC + tl.arange(0, BC)
    group = tl.program_id(1)
    if SUMS:
        total = tl.zeros((BR, BC), tl.float32)
    if EIGHT:
        top = tl.zeros((BR, BC), tl.float32)
    for i in range(tiles):
        rows = (group * tiles + i) * BR + tl.arange(0, BR)
        inside = (rows < tokens)[:, None] & (cols < width)[None, :]
        value = tl.load(source + rows.to(tl.int64)[:, None] * width + cols[None, :], mask=inside, other=0.0)
        wide = value.to(tl.float32)
        if SUMS:
            total += wide
        if EIGHT:
            top = tl.maximum(top, tl.abs(wide))
            value = quantise(wide, tl.load(scale), largest).to(out.dtype.element_ty)
        if ROWS:
            tl.store(out + rows.to(tl.int64)[:, None] * whole + part * width + cols[None, :], value, mask=inside)
        if COLS:
            tl.store(out_t + (part * width + cols).to(tl.int64)[:, None] * tokens + rows[None, :], tl.trans(value),
                     mask=tl.trans(inside))
    if SUMS:
        tl.store(sums + group * whole + part * width + cols, tl.sum(total, 0), mask=cols < width)
    if EIGHT:
        see(seen, tl.max(tl.max(top, 1), 0))


# A flag of 1 would become a constant of the kernel, and its type another one's.
@triton.jit(do_not_specialize=["fresh_one", "fresh_two", "fresh_three"])
def _fold(sums, one, two, three, fresh_one, fresh_two, fresh_three, groups, width, BG: tl.constexpr, BC: tl.constexpr):
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    number = tl.program_id(1)
    place = one
    fresh = fresh_one
    if number == 1:
        place = two
        fresh = fresh_two
    if number == 2:
        place = three
        fresh = fresh_three
    total = tl.zeros((BC,), tl.float32)
    for first in range(0, groups, BG):
        group = first + tl.arange(0, BG)
        inside = (group < groups)[:, None] & (cols < width)[None, :]
        total += tl.sum(tl.load(sums + (number * groups + group)[:, None] * width + cols[None, :], mask=inside, other=0.0), 0)
    if fresh == 0:
        total += tl.load(place + cols, mask=cols < width, other=0.0).to(tl.float32)
    tl.store(place + cols, total.to(place.dtype.element_ty), mask=cols < width)


def fold(sums: Tensor, places: list[Place]) -> None:
    count, groups, width = sums.shape
    assert count == len(places) <= 3
    (one, f1), (two, f2), (three, f3) = places + [places[0]] * (3 - count)
    _fold[(triton.cdiv(width, 32), count)](sums, one, two, three, int(f1), int(f2), int(f3), groups, width, BG=64, BC=32,
                                           num_warps=4)


def join(parts: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    whole = parts[0].new_empty(parts[0].shape[0], 3 * parts[0].shape[1])
    return whole, _start(parts, whole, None, None, with_sums=True, tile=(4, 1024))


def join8(parts: tuple[Tensor, Tensor, Tensor], slot: Slot) -> tuple[Tensor, Tensor, Tensor]:
    tokens, width = parts[0].shape
    eight = torch.empty(tokens, 3 * width, dtype=slot.dtype, device=parts[0].device)
    turned = torch.empty(3 * width, tokens, dtype=slot.dtype, device=parts[0].device)
    return eight, turned, _start(parts, eight, turned, slot, with_sums=True, tile=(64, 128))


def cast8(x: Tensor, slot: Slot, *, rows: bool = True, cols: bool = False) -> tuple[Tensor | None, Tensor | None]:
    eight = torch.empty_like(x, dtype=slot.dtype) if rows else None
    turned = torch.empty(x.shape[::-1], dtype=slot.dtype, device=x.device) if cols else None
    _start((x, x, x), eight, turned, slot, with_sums=False, tile=(64, 128) if cols else (16, 512), count=1)
    return eight, turned


def _start(parts: tuple[Tensor, Tensor, Tensor], out: Tensor | None, turned: Tensor | None, slot: Slot | None, *,
           with_sums: bool, tile: tuple[int, int], count: int = 3) -> Tensor:
    (tokens, width), (rows, cols) = parts[0].shape, tile
    blocks = triton.cdiv(width, cols) * count
    groups, tiles = groups_of(tokens, rows, columns=blocks)
    sums = torch.empty(1, groups if with_sums else 0, count * width, dtype=torch.float32, device=parts[0].device)
    some = out if out is not None else turned
    assert some is not None
    _copy[(blocks, groups)](
        *parts, some, some if turned is None else turned, sums, sums if slot is None else slot.scale,
        sums if slot is None else slot.seen_bits, tokens, width, count * width, tiles, 0.0 if slot is None else slot.largest,
        SUMS=with_sums, EIGHT=slot is not None, ROWS=out is not None, COLS=turned is not None, BR=rows, BC=cols,
        num_warps=8)  # fmt: skip
    return sums
