"""Bytes of a rank: what the allocator and the kernel say, and what they are made of.

    forget_peaks(device)                        what was tried on a GPU before the first step is not the run's
    peaks(device)                               allocated and reserved on a GPU, peak RSS and node-wide use on a CPU node
    parts(trial, pp_rank=0, device=device)                  bytes by part

The peaks are measured. The parts are counted from the shapes (`arith.footprint`), which tests hold against a tracker of every
live storage (`tracker.py`); on a GPU all that the allocator gave out beyond the counted parts is activations.
"""
from __future__ import annotations

import os
import resource
from collections.abc import Mapping

import torch

from seatrial.arith import footprint
from seatrial.spec import GIB, Trial


def peaks(device: torch.device) -> dict[str, float]:
    """GiB. On a CPU node `node_used_gib` is all that is not available there, as node-wide tables print it."""
    found = {"rss_peak_gib": _peak_rss_bytes() / GIB, **_node()}
    if device.type == "cuda":
        stats = torch.cuda.memory_stats(device)
        found["allocated_peak_gib"] = stats.get("allocated_bytes.all.peak", 0) / GIB
        found["reserved_peak_gib"] = stats.get("reserved_bytes.all.peak", 0) / GIB
    return found


def forget_peaks(device: torch.device) -> None:
    if device.type == "cuda":
        # What the allocator kept of it would count as reserved.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def used_gib(found: Mapping[str, float]) -> float:
    """The one number of a table: reserved on a GPU, peak RSS on a CPU."""
    return found.get("reserved_peak_gib", found["rss_peak_gib"])


def _peak_rss_bytes() -> int:
    # ru_maxrss survives exec: a process started by a large one would report that one's peak.
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _node() -> dict[str, float]:
    try:
        with open("/proc/meminfo") as meminfo:
            values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in meminfo if line.split(":")[0] in _MEMINFO}
    except OSError:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return {"node_total_gib": total / GIB}
    total, available = values["MemTotal"], values["MemAvailable"]
    return {"node_used_gib": (total - available) / GIB, "node_total_gib": total / GIB}


_MEMINFO = ("MemTotal", "MemAvailable")


def parts(trial: Trial, *, pp_rank: int, device: torch.device) -> dict[str, int]:
    """Each part's own peak. None of blocks that are compiled, whose compiler decides what is kept."""
    if trial.execution.compile:
        return {}
    found = footprint(trial, rank=pp_rank, gpu=device.type == "cuda").parts
    if device.type == "cuda":
        counted = sum(found.values()) - found["activations"]
        found["activations"] = max(0, torch.cuda.max_memory_allocated(device) - counted)
    return found
