"""Steps timed one by one, with what they drew and held: the same clock for our engine and for every peer.

    timed(step, WARM + STEPS)       step(i) runs the i-th step to its end and says its loss
"""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from benchmarks.gpu.power import Power

WARM, STEPS = 3, 8
"""Steps that are not counted, and those whose median is the row."""


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def timed(step: Callable[[int], float], steps: int = STEPS) -> dict[str, Any]:
    """Seconds are of the host with the device drained; memory is the peak after the warm steps."""
    seconds, losses, measured_from = [], [], 0.0
    with Power() as power:
        for i in range(WARM + steps):
            if i == WARM:
                torch.cuda.reset_peak_memory_stats() if torch.cuda.is_available() else None
                measured_from = time.perf_counter()
            start = time.perf_counter()
            losses.append(step(i))
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        drawn = power.since(measured_from)
    return {"sec": statistics.median(seconds[WARM:]), "all_sec": seconds, "first_s": seconds[0], "losses": losses,
            **memory(), **drawn}


def memory() -> dict[str, float]:
    if not torch.cuda.is_available():
        return {"allocated_gib": 0.0, "reserved_gib": 0.0}
    gib = 2**30
    return {"allocated_gib": torch.cuda.max_memory_allocated() / gib, "reserved_gib": torch.cuda.max_memory_reserved() / gib}
