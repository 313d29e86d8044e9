"""What several Triton kernels use: a sigmoid, GELU's arithmetic, and the largest value amax.

    s = gate(x, x * x)              GELU is x s
    slope, value = slope_of(x, x * x, s)
"""
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") == "1")
"""Triton's interpreter knows no PTX: there the same is said in Triton's words."""


@triton.jit
def reciprocal(x):
    if INTERPRETED:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def power_of_two(x):
    if INTERPRETED:
        return tl.exp2(x)
    else:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def sigmoid(x):
    return reciprocal(1.0 + power_of_two(x * -1.4426950408889634))


@triton.jit
def gate(x, square):
    """(1 + tanh(u)) / 2 = 1 / (1 + 2^(-2 u / ln 2)) with u = sqrt(2 / pi) (x + 0.044715 x^3): two slow instructions."""
    return reciprocal(1.0 + power_of_two(x * (-2.302208198495414 - 0.10294323959002184 * square)))


@triton.jit
def slope_of(x, square, s):
    """GELU's derivative s + x s (1 - s) 2 u', and its value."""
    value = x * s
    return s + (value - value * s) * (1.5957691216057308 + 0.21406445091781586 * square), value


@triton.jit
def update_amax(amax, top):
    """Floats that are not negative are ordered as the integers of the same bits. Nothing else goes with it: no fence."""
    tl.atomic_max(amax, top.to(tl.int32, bitcast=True), sem="relaxed")


def warps(block: int) -> int:
    """Eight numbers a thread at most, four warps at least."""
    return min(16, max(4, block // 256))
