"""Into how many programs a kernel's work is cut: so many for each multiprocessor of a large device.

    programs(16)                                16 * 132
    with fewer_programs(): kernel(...)          each has several tiles to walk over, however few the tokens: what a check wants
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_multiprocessors = [132]


def programs(each: int) -> int:
    return each * _multiprocessors[-1]


@contextmanager
def fewer_programs() -> Iterator[None]:
    _multiprocessors.append(1)
    try:
        yield
    finally:
        _multiprocessors.pop()


def groups_of(tokens: int, rows: int, *, columns: int, each: int = 8) -> tuple[int, int]:
    """(groups, tiles of each): programs(each) or a few less in all; a group of them walks down so many tiles of `rows`."""
    tiles = -(-tokens // rows)
    groups = max(1, min(tiles, programs(each) // columns))
    walked = -(-tiles // groups)
    return -(-tiles // walked), walked
