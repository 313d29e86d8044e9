"""Into how many programs a kernel's work is cut: so many for each multiprocessor of the device.

    programs(16, device)                        16 for each of its SMs
    with fewer_programs(): kernel(...)          each has several tiles to walk over, however few the tokens: what a check wants
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import torch

INTERPRETED_SMS = 32
"""Of Triton's interpreter, which has none."""
WALKED = 8
"""Tiles that a program has at least, where columns are added up: its sums in fp32 are few beside what they are of."""
_few: ContextVar[bool] = ContextVar("few", default=False)


@lru_cache
def num_sms(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else INTERPRETED_SMS


def programs(each: int, device: torch.device) -> int:
    return each * (1 if _few.get() else num_sms(device))


@contextmanager
def fewer_programs() -> Iterator[None]:
    """As on a device of one multiprocessor."""
    before = _few.set(True)
    try:
        yield
    finally:
        _few.reset(before)


def groups_of(tokens: int, rows: int, *, columns: int, device: torch.device, each: int = 8) -> tuple[int, int]:
    """(groups, tiles of each): programs(each) or a few less in all; a group of them walks down so many tiles of `rows`."""
    tiles = -(-tokens // rows)
    groups = max(1, min(tiles // WALKED, programs(each, device) // columns))
    walked = -(-tiles // groups)
    return -(-tiles // walked), walked
