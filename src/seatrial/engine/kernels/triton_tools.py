"""What several Triton kernels use: casts to eight bits, and how a matrix is cut into tiles."""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl

PROGRAMS = 132 * 8
"""About so many programs fill a large device and leave each a few tiles to walk over."""


@triton.jit
def quantise(value, scale, largest):
    """Scaled and held inside the type's range; the store's own cast rounds to nearest."""
    return tl.minimum(tl.maximum(value * scale, -largest), largest)


@triton.jit
def see(seen, top):
    """Floats that are not negative are ordered as the integers of the same bits."""
    tl.atomic_max(seen, top.to(tl.int32, bitcast=True))


@triton.jit
def tanh(x):
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


def warps(block: int) -> int:
    """Eight numbers a thread at most, four warps at least."""
    return min(16, max(4, block // 256))


def groups_of(tokens: int, rows: int, *, columns: int) -> tuple[int, int]:
    """(groups, tiles of each): every group of programs walks down so many tiles of `rows` tokens."""
    tiles = triton.cdiv(tokens, rows)
    groups = max(1, min(tiles, PROGRAMS // columns))
    each = triton.cdiv(tiles, groups)
    return triton.cdiv(tiles, each), each
