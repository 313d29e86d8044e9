"""What the words count with: bytes of a number, multiples, divisors."""
from __future__ import annotations

import functools
import math

GIB = 1024**3
BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "fp64": 8}


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@functools.lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    """What divides `n`, from 1 to `n`; of a number beyond 1e12 these two alone."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0] if n <= 10**12 else [1]
    return tuple(dict.fromkeys([*small, *(n // d for d in reversed(small))]))


def divisors_near(n: int, wanted: int, *, between: str = " and ") -> str:
    """What divides `n` and lies nearest to `wanted` on both sides, in words."""
    found = divisors(n)
    below = max((d for d in found if d <= wanted), default=found[0])
    above = min((d for d in found if d >= wanted), default=found[-1])
    return f"{below}" if below == above else f"{below}{between}{above}"
