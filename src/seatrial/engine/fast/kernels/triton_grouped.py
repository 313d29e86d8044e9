"""GEMMs of experts whose numbers of rows only the device knows: rows times each expert's matrix, and the matrices' gradients.

A program takes tiles of the result. Which expert a tile of rows belongs to comes out of where the experts' rows end, so that
the host waits for nothing; a tile that reaches past its expert's last row computes what is not stored. Operands come through
the copy engine (descriptors). Gradients go where they are wanted, in the type that is there, over what is there or added.
"""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from seatrial.engine.fast.kernels.grid import programs


@dataclass(frozen=True)
class Tile:
    rows: int
    cols: int
    deep: int
    warps: int
    stages: int
    each: int
    """Programs of a multiprocessor, each of which takes tile after tile."""

    @property
    def name(self) -> str:
        return f"{self.rows} x {self.cols} x {self.deep}, {self.warps} warps, {self.stages} stages, {self.each} an SM"


TILES = tuple(Tile(*t) for t in ((128, 256, 64, 8, 3, 1), (128, 256, 64, 8, 4, 1), (128, 128, 64, 4, 3, 2)))
"""What is tried; the first is what is taken untried. Of nine that were measured each of these is the fastest of some GEMM."""


@triton.jit
def _grouped(left, right, out, ends, experts, n, k, TRANSPOSED: tl.constexpr, E: tl.constexpr, BM: tl.constexpr,
             BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr):
    each = tl.arange(0, E)
    last = tl.load(ends + each, mask=each < experts, other=0)
    begin = tl.load(ends + each - 1, mask=(each > 0) & (each < experts), other=0)
    tiles = tl.where(each < experts, (last - begin + BM - 1) // BM, 0)
    until = tl.cumsum(tiles, 0)
    down, across = tl.sum(tiles, 0), tl.cdiv(n, BN)
    # One loop made of both: a tile's first operands are on their way while the one before is stored.
    for tile in tl.range(tl.program_id(0), down * across, tl.num_programs(0), flatten=True):
        # Down a band of rows before the next columns: what runs at once shares rows and matrices in the cache.
        top = tile // (BAND * across) * BAND
        tall = tl.minimum(down - top, BAND)
        inner = tile % (BAND * across)
        down_at, col = top + inner % tall, inner // tall * BN
        expert = tl.sum((until <= down_at).to(tl.int32), 0)
        mine = each == expert
        end = tl.sum(tl.where(mine, last, 0), 0)
        row = tl.sum(tl.where(mine, begin - (until - tiles) * BM, 0), 0) + down_at * BM
        total = tl.zeros((BM, BN), tl.float32)
        for deep in range(0, k, BK):
            rows = left.load([row, deep])
            if TRANSPOSED:
                total = tl.dot(rows, right.load([expert * n + col, deep]).T, total)
            else:
                total = tl.dot(rows, right.load([expert * k + deep, col]), total)
        to, cols = row + tl.arange(0, BM), col + tl.arange(0, BN)
        inside = (to < end)[:, None] & (cols < n)[None, :]
        tl.store(out + to.to(tl.int64)[:, None] * n + cols[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _grouped_gradient(left, right, out, ends, experts, m, n, ADD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                      BK: tl.constexpr, BAND: tl.constexpr):
    down, across = tl.cdiv(m, BM), tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), experts * down * across, tl.num_programs(0)):
        expert, within = tile // (down * across), tile % (down * across)
        top = within // (BAND * across) * BAND
        tall = tl.minimum(down - top, BAND)
        inner = within % (BAND * across)
        row, col = (top + inner % tall) * BM, inner // tall * BN
        begin, end = tl.load(ends + expert - 1, mask=expert > 0, other=0), tl.load(ends + expert)
        whole = begin + (end - begin) // BK * BK
        rows, cols = row + tl.arange(0, BM), col + tl.arange(0, BN)
        inside = (rows < m)[:, None] & (cols < n)[None, :]
        to = out + (expert.to(tl.int64) * m + rows)[:, None] * n + cols[None, :]
        # What is there goes first: at the end it would need as many registers again.
        if ADD:
            total = tl.load(to, mask=inside, other=0.0).to(tl.float32)
        else:
            total = tl.zeros((BM, BN), tl.float32)
        for deep in range(begin, whole, BK):
            total = tl.dot(left.load([deep, row]).T, right.load([deep, col]), total)
        if whole < end:
            ours = (whole + tl.arange(0, BK) < end)[:, None]
            a, b = left.load([whole, row]), right.load([whole, col])
            a, b = tl.where(ours, a, tl.zeros_like(a)), tl.where(ours, b, tl.zeros_like(b))
            total = tl.dot(a.T, b, total)
        tl.store(to, total.to(out.dtype.element_ty), mask=inside)


def _descriptor(matrix: Tensor, rows: int, cols: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(matrix, [rows, cols])


def _launched(tile: Tile, tiles: int, device: torch.device) -> int:
    return max(1, min(tiles, programs(tile.each, device)))


def grouped(rows_RK: Tensor, matrices_EMN: Tensor, ends_E: Tensor, *, transposed: bool = False,
            tile: Tile = TILES[0]) -> Tensor:
    (rows, k), (experts, m, n) = rows_RK.shape, matrices_EMN.shape
    n = m if transposed else n
    out = rows_RK.new_empty(rows, n)
    flat = matrices_EMN.view(-1, matrices_EMN.shape[2])
    right = _descriptor(flat, *((tile.cols, tile.deep) if transposed else (tile.deep, tile.cols)))
    # Every expert has one tile that is not full, at most.
    tiles = (rows // tile.rows + experts) * triton.cdiv(n, tile.cols)
    _grouped[(_launched(tile, tiles, rows_RK.device),)](
        _descriptor(rows_RK, tile.rows, tile.deep), right, out, ends_E, experts, n, k, TRANSPOSED=transposed,
        E=triton.next_power_of_2(experts), BM=tile.rows, BN=tile.cols, BK=tile.deep, BAND=8,
        num_warps=tile.warps, num_stages=tile.stages)
    return out


def grouped_gradient(left_RM: Tensor, right_RN: Tensor, ends_E: Tensor, out_EMN: Tensor, *, add: bool,
                     tile: Tile = TILES[0]) -> None:
    experts, m, n = out_EMN.shape
    tiles = experts * triton.cdiv(m, tile.rows) * triton.cdiv(n, tile.cols)
    _grouped_gradient[(_launched(tile, tiles, left_RM.device),)](
        _descriptor(left_RM, tile.deep, tile.rows), _descriptor(right_RN, tile.deep, tile.cols), out_EMN, ends_E, experts, m, n,
        ADD=add, BM=tile.rows, BN=tile.cols, BK=tile.deep, BAND=8, num_warps=tile.warps, num_stages=tile.stages)
