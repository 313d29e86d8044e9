"""How much memory a process can really have, and what is taken before its first tensor."""
from __future__ import annotations

from pathlib import Path

import torch

GIB = 1024**3
BLOCKS = (8 * GIB, GIB, GIB // 8, GIB // 64)


def host() -> tuple[float, float]:
    """GiB of this node, and how much of it can be had now: the system's own word, or the control group's where it is less."""
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        values[name] = int(rest.split()[0]) * 1024
    total, free = values["MemTotal"], values.get("MemAvailable", values["MemFree"])
    limit, used = _control_group()
    if limit is not None:
        total, free = min(total, limit), min(free, limit - used)
    return total / GIB, free / GIB


def _control_group() -> tuple[int | None, int]:
    try:
        group = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
        folder = Path(f"/sys/fs/cgroup{group}")
        limit = (folder / "memory.max").read_text().strip()
        return (None if limit == "max" else int(limit)), int((folder / "memory.current").read_text())
    except (OSError, ValueError):
        return None, 0


def cuda(device: torch.device) -> tuple[float, float, float]:
    """GiB of the device, of those that driver and libraries hold, and what could be had by trying."""
    x = torch.ones(256, 256, device=device, dtype=torch.bfloat16)
    (x @ x).sum().item()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    context = total - free - torch.cuda.memory_reserved(device)
    held, had = [], 0
    for block in BLOCKS:
        try:
            while True:
                held.append(torch.empty(block, dtype=torch.uint8, device=device))
                had += block
        except torch.OutOfMemoryError:
            continue
    held.clear()
    torch.cuda.empty_cache()
    return total / GIB, max(context, 0) / GIB, had / GIB
