"""How a log ends: the last words of PyTorch, NCCL, the kernel and the scheduler.

    ended_by(1203, "torch.OutOfMemoryError: CUDA out of memory. …").status       "oom_device"
"""
from __future__ import annotations

import re

from seatrial.record import Outcome, Status

_ENDS: tuple[tuple[Status, re.Pattern[str]], ...] = (
    ("oom_device", re.compile(r"(?:CUDA|HIP|XPU) out of memory|CUDA error: out of memory|OutOfMemoryError|RESOURCE_EXHAUSTED")),
    ("oom_host", re.compile(r"oom[-_]kill|Out of memory: Killed process|DefaultCPUAllocator: can't allocate")),
    ("hang", re.compile(r"Watchdog caught collective operation timeout|NCCL.*\bhang\b")),
    ("timeout", re.compile(r"DUE TO TIME LIMIT")),
    ("cancelled", re.compile(r"CANCELLED AT|DUE TO PREEMPTION")),
    ("crash", re.compile(r"Segmentation fault|ChildFailedError|NCCL (?:error|failure)|terminate called")),
)
_WORDS = (
    "out of memory", "OutOfMemory", "RESOURCE_EXHAUSTED", "oom", "allocate", "timeout", "hang", "TIME LIMIT", "CANCELLED",
    "PREEMPTION", "fault", "ChildFailed", "NCCL", "terminate", "Out of memory",
)  # fmt: skip
"""Looked for first, since a log of a thousand ranks has millions of other lines."""


def ended_by(number: int, line: str) -> Outcome | None:
    if any(word in line for word in _WORDS):
        for status, pattern in _ENDS:
            if pattern.search(line):
                return Outcome(status=status, message=line.strip()[:300], evidence={"line": number})
    return None
