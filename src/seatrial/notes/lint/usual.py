"""What is usual: numbers that people choose, and what most rows have.

    round_number(1536)                               True: 3 times a power of two
    mode([64, 64, 128])                              (64, 2)
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def round_number(n: int) -> bool:
    """Whether people choose such batches, lengths and numbers of devices: a power of two, or a small multiple of one."""
    return n > 0 and n // (n & -n) <= 15


def mode(values: Iterable[object]) -> tuple[object, int]:
    """The most frequent value and how often it comes."""
    counts = Counter(value for value in values if value is not None)
    return counts.most_common(1)[0] if counts else (None, 0)
