"""Ways to compute the same take turns on a device: a clock that is rising, or falling, is so for each of them.

    milliseconds({"cudnn": run, "flash": other}, device)        of one call, the first rounds left out
"""
from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

import torch

ROUNDS, WARM = 8, 4


def milliseconds(ways: Mapping[str, Callable[[], object]], device: torch.device) -> dict[str, float]:
    marks: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            way()
            end.record()
            marks[name].append((start, end))
    if ways:
        torch.cuda.synchronize(device)
    return {name: statistics.median(a.elapsed_time(b) for a, b in seen[WARM:]) for name, seen in marks.items()}
