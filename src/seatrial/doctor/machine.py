"""Cores, memory, allocator, disks and the clock of this machine: what a rank may really have.

    findings()      cores, load, memory, allocator, disk, shm, files, clock
    usable_bytes()  memory that processes of ours could still take, limits counted
"""
from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import psutil

from seatrial.doctor import Finding
from seatrial.spec import GIB

MIB = 2**20
LEAST_BYTES = GIB
"""One rank of a small model and the controller beside it."""
CGROUPS = Path("/sys/fs/cgroup")
STEPS = 2000


def findings() -> Iterator[Finding]:
    yield cores(len(os.sched_getaffinity(0)), os.cpu_count() or 1, quota_cores(), os.environ.get("OMP_NUM_THREADS"))
    yield load(os.getloadavg()[0], len(os.sched_getaffinity(0)))
    yield memory(memory_bytes(), limit_bytes(), used_bytes(), resource.getrlimit(resource.RLIMIT_DATA)[0])
    yield allocator(os.environ, loaded_allocator(), installed_allocator())
    yield disk(Path(tempfile.gettempdir()), "tmp")
    yield disk(Path.cwd(), "disk")
    yield shared_memory(Path("/dev/shm"))
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0], locked=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
                     fabric=Path("/dev/infiniband").is_dir())
    yield clock(_steps(), newest=Path(__file__).stat().st_mtime)


def cores(may_use: int, there: int, quota: float | None, threads: str | None) -> Finding:
    facts = {"affinity": may_use, "cores": there, "quota": quota, "omp_num_threads": threads}
    message = f"{may_use} of {there} cores" if may_use < there else f"{there} cores"
    if quota is not None and quota < 0.95 * may_use:
        return Finding("cores", "warn", f"{message}, but the control group gives {quota:g} of them",
                       "ranks wait for their share; ask for more, or start fewer ranks", facts)
    if threads is not None and not threads.isdecimal():
        return Finding("cores", "warn", f"{message}, OMP_NUM_THREADS={threads!r}", "it must be a number", facts)
    if threads is not None and int(threads) > may_use:
        return Finding("cores", "warn", f"{message}, OMP_NUM_THREADS={threads}", f"{may_use} at most", facts)
    return Finding("cores", "ok", message + (f", OMP_NUM_THREADS={threads}" if threads else ""), facts=facts)


def load(now: float, may_use: int) -> Finding:
    facts = {"load": round(now, 2)}
    if now > 0.5 * may_use:
        return Finding("load", "warn", f"{now:.1f} processes want the {may_use} cores already",
                       "times will be noisy until they leave", facts)
    return Finding("load", "ok", f"{now:.1f}", facts=facts)


def memory(there: tuple[int, int], limit: int | None, used: int, rank_limit: int) -> Finding:
    total, available = there
    usable = available if limit is None else min(available, max(0, limit - used))
    facts = {"total_gib": round(total / GIB, 2), "available_gib": round(available / GIB, 2),
             "cgroup_limit_gib": None if limit is None else round(limit / GIB, 2), "usable_gib": round(usable / GIB, 2)}
    message = f"{usable / GIB:.1f} GiB to be had of {total / GIB:.1f}"
    if limit is not None and limit < 0.98 * total:
        message += f", the control group allows {limit / GIB:.1f}"
    if 0 < rank_limit < total:
        message += f"; ulimit -d is {rank_limit / GIB:.1f} GiB per process"
        return Finding("memory", "warn", message, "ulimit -d unlimited", facts)
    if usable < LEAST_BYTES:
        return Finding("memory", "fail", message, "1 GiB is the least that a rank and its controller take", facts)
    return Finding("memory", "ok", message, facts=facts)


def memory_bytes() -> tuple[int, int]:
    """All of it, and what could still be had."""
    memory = psutil.virtual_memory()
    return memory.total, memory.available


def groups() -> Iterator[Path]:
    """This process's control group and those around it, nearest first; of the first version and of the second."""
    for line in _lines(Path("/proc/self/cgroup")):
        _, kinds, name = (line.split(":", 2) + ["", ""])[:3]
        for kind in kinds.split(",") if kinds else [""]:
            if kind in ("", "memory", "cpu"):
                inside = CGROUPS / kind / name.lstrip("/")
                yield from (g for g in (inside, *inside.parents) if g == CGROUPS or CGROUPS in g.parents)


def limit_bytes() -> int | None:
    """The least memory limit of the groups around this process."""
    values = [_number(group / file) for group in groups() for file in ("memory.max", "memory.limit_in_bytes")]
    limits = [int(v) for v in values if v is not None and v < 2**60]
    return min(limits, default=None)


def used_bytes() -> int:
    values = [_number(group / file) for group in groups() for file in ("memory.current", "memory.usage_in_bytes")]
    return int(next((v for v in values if v is not None), 0))


def quota_cores() -> float | None:
    """Cores' worth of time that the groups around this process may use."""
    found = []
    for group in groups():
        words = " ".join(_lines(group / "cpu.max")).split()
        if len(words) == 2 and words[0] != "max":
            found.append(int(words[0]) / int(words[1]))
        quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
        if quota and period and quota > 0:
            found.append(quota / period)
    return min(found, default=None)


def usable_bytes() -> int:
    limit = limit_bytes()
    _, available = memory_bytes()
    return available if limit is None else min(available, max(0, limit - used_bytes()))


def allocator(env: Mapping[str, str], loaded: str, installed: str) -> Finding:
    """glibc's malloc unless something is preloaded; on some machines that matters more than the topology."""
    from seatrial.launch.local import preload_problem

    facts = {"loaded": loaded or "glibc", "installed": installed or None, "LD_PRELOAD": env.get("LD_PRELOAD")}
    if wrong := preload_problem(env):
        return Finding("allocator", "fail", wrong, "name a library that is there, or unset LD_PRELOAD", facts)
    if loaded:
        return Finding("allocator", "ok", f"{loaded} is loaded", facts=facts)
    if installed:
        message = f"glibc's malloc; {installed} is installed, and `seatrial compare` tells which is faster"
        return Finding("allocator", "ok", message, facts=facts)
    return Finding("allocator", "ok", "glibc's malloc; tcmalloc is not installed", facts=facts)


def loaded_allocator() -> str:
    names = {line.rpartition("/")[2] for line in _lines(Path("/proc/self/maps"))}
    return next((name for name in sorted(names) if any(word in name for word in ("tcmalloc", "jemalloc", "mimalloc"))), "")


def installed_allocator() -> str:
    import ctypes.util

    found = (ctypes.util.find_library(name) for name in ("tcmalloc_minimal", "tcmalloc", "jemalloc"))
    return next((name for name in found if name), "")


def disk(folder: Path, name: str) -> Finding:
    free = shutil.disk_usage(folder).free
    facts = {"folder": str(folder), "free_gib": round(free / GIB, 2)}
    message = f"{free / GIB:.1f} GiB free in {folder}"
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".seatrial-doctor-") as file:
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            facts["fsync_ms"] = round(1000 * (time.perf_counter() - began), 3)
    except OSError as error:
        message = f"{folder} cannot be written to ({error.strerror})"
        if name == "tmp":
            return Finding(name, "fail", message, "set TMPDIR", facts)
        return Finding(name, "warn", message, "run in a folder of your own, or name one with --logbook and --out", facts)
    if free < 100 * MIB:
        return Finding(name, "fail", message, "100 MiB at least", facts)
    if free < GIB:
        return Finding(name, "warn", message, "checkpoints and traces want more", facts)
    return Finding(name, "ok", message, facts=facts)


def shared_memory(folder: Path) -> Finding:
    if not folder.is_dir():
        return Finding("shm", "warn", f"no {folder}", "NCCL inside a node wants it")
    usage = shutil.disk_usage(folder)
    facts = {"size_gib": round(usage.total / GIB, 3), "free_gib": round(usage.free / GIB, 3)}
    if usage.free < 256 * MIB:
        return Finding("shm", "warn", f"{usage.free / MIB:.0f} MiB free in {folder}",
                       "NCCL inside a node wants more; containers take --shm-size=8g", facts)
    return Finding("shm", "ok", f"{usage.free / GIB:.1f} GiB free in {folder}", facts=facts)


def open_files(limit: int, *, locked: int, fabric: bool) -> Finding:
    facts = {"open_files": limit, "memlock": locked, "infiniband": fabric}
    if 0 < limit < 1024:
        return Finding("limits", "warn", f"{limit} open files per process", "ulimit -n 4096: every rank is a socket", facts)
    if fabric and 0 <= locked < GIB:
        message = f"InfiniBand is there and {locked // 1024} KiB may be locked"
        return Finding("limits", "warn", message, "ulimit -l unlimited", facts)
    return Finding("limits", "ok", f"{limit} open files per process", facts=facts)


def clock(steps: list[float], *, newest: float) -> Finding:
    facts = {"least_step_us": round(1e6 * min((s for s in steps if s > 0), default=0.0), 3)}
    if min(steps, default=0.0) < 0:
        return Finding("clock", "fail", "the monotonic clock goes backwards", "no time measured here can be trusted", facts)
    if time.time() < newest - 86400:
        return Finding("clock", "warn", f"it is {time.strftime('%Y-%m-%d')} here, before this program was installed",
                       "set the clock, or records will sort wrongly", facts)
    if facts["least_step_us"] > 1000:
        return Finding("clock", "warn", f"it moves in steps of {facts['least_step_us'] / 1000:.1f} ms",
                       "iterations should take many of them", facts)
    return Finding("clock", "ok", f"monotonic, in steps of {facts['least_step_us']:.2g} µs", facts=facts)


def _steps() -> list[float]:
    ticks = [time.perf_counter() for _ in range(STEPS)]
    return [later - earlier for earlier, later in pairwise(ticks)]


def _number(path: Path) -> float | None:
    text = "".join(_lines(path)[:1]).strip()
    return float(text) if text.lstrip("-").isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
