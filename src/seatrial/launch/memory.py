"""Whose memory a machine is full of: a trial's, or that of others.

    before = machine().used_bytes               when the trial starts
    seen = whose(run_dir, before)               Whose(ours_bytes=…, others_grew_bytes=…, largest="stress, pid 71, …")
    seen.ours_is_the_cause                      since then it took more than all others did

A trial is found by the mark in its processes' environment, so that what its ranks started counts with it. Of each process
counts what cannot be had back: its own pages and those of shared memory, not of files.
"""
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from seatrial.launch.guard import MARK
from seatrial.spec import GIB

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Machine:
    total_bytes: int
    free_bytes: int
    """What could still be had."""

    @property
    def used_bytes(self) -> int:
        return self.total_bytes - self.free_bytes

    @property
    def free_share(self) -> float:
        return self.free_bytes / self.total_bytes if self.total_bytes else 1.0


@dataclass(frozen=True, kw_only=True)
class Whose:
    total_bytes: int
    free_bytes: int
    ours_bytes: int
    others_bytes: int
    others_grew_bytes: int
    """Since the trial started."""
    largest: str = ""
    """The fullest process that is not the trial's, in words."""

    @property
    def ours_is_the_cause(self) -> bool:
        return self.ours_bytes >= self.others_grew_bytes


def machine() -> Machine:
    found = _lines("/proc/meminfo", "MemTotal", "MemAvailable")
    return Machine(total_bytes=found.get("MemTotal", 0), free_bytes=found.get("MemAvailable", found.get("MemTotal", 0)))


def whose(run_dir: Path, used_before_bytes: int) -> Whose:
    """Reads every process: for when there is little left, not for every look."""
    now, mark = machine(), f"{MARK}={run_dir}".encode()
    ours, largest, fullest = 0, "", 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        found = _lines(f"/proc/{entry.name}/status", "RssAnon", "RssShmem")
        size = sum(found.values())
        if size and _carries(entry.name, mark):
            ours += size
        elif size > fullest:
            fullest, largest = size, entry.name
    others = max(0, now.used_bytes - ours)
    return Whose(total_bytes=now.total_bytes, free_bytes=now.free_bytes, ours_bytes=ours, others_bytes=others,
                 others_grew_bytes=max(0, others - used_before_bytes), largest=_named(largest, fullest))


def shown(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:.0f} MiB"


def of_process(pid: int) -> tuple[int, int]:
    """Peak resident bytes and present data bytes."""
    found = _lines(f"/proc/{pid}/status", "VmHWM", "VmData")
    return found.get("VmHWM", 0), found.get("VmData", 0)


def kills() -> int:
    """How often the kernel has killed for memory, in our control group or, failing that, on this machine."""
    try:
        group = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
    except OSError:
        group = ""
    for path in (f"/sys/fs/cgroup{group}/memory.events", "/proc/vmstat"):
        try:
            with open(path) as file:
                for line in file:
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        except OSError:
            continue
    return 0


def _lines(path: str, *names: str) -> dict[str, int]:
    """Bytes by name, of a file of the kernel's that has kB."""
    found = {}
    try:
        with open(path) as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name in names:
                    found[name] = int(rest.split()[0]) * 1024
    except OSError:
        pass  # gone, or no such system
    return found


def _carries(pid: str, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # gone, or another user's


def _named(pid: str, size_bytes: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip() if pid else ""
    except OSError:
        name = ""
    return f"{name}, pid {pid}, {shown(size_bytes)}" if name else ""
