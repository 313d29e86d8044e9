"""The probe itself: figure after figure until all are there, the budget is spent, or it is stopped.

    found = probe(options, place, device, say=print)        what `machine.write` writes; on ranks other than 0 the same

What could not be measured is in `missing`, each with the reason: out of memory, the budget, one process alone.
"""
from __future__ import annotations

import datetime
import gc
import os
import platform
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from seatrial import __version__
from seatrial.engine.rendezvous import RankInfo, join
from seatrial.machine import KIND, PARTS, SCHEMA
from seatrial.measurement import digits
from seatrial.probe import collectives, kernels
from seatrial.probe.collectives import GOOD, WHY, InterleavedGemm, Ranks, status_of
from seatrial.probe.options import ProbeOptions
from seatrial.probe.timing import Clock, Item, Sample

JOIN_S = 300.0
"""The longest that ranks wait for each other."""
GIB = 1024**3
BLOCKS = (8 * GIB, GIB, GIB // 8, GIB // 64)
"""That memory is tried out with."""
BURN_S = 3.0
"""On a GPU, so long GEMMs run before the first figure: the rate of a cold chip lasts for a second."""


class Probe:
    def __init__(self, options: ProbeOptions, place: RankInfo, device: torch.device, say: Callable[[str], None]):
        self.options, self.place, self.device, self.say = options, place, device, say
        self.ranks = Ranks(place, device)
        self.clock = Clock(device, target_s=options.target_s)
        self.figures: dict[str, list[dict[str, Any]]] = {part: [] for part in PARTS}
        self.missing: list[dict[str, str]] = []
        self.began = time.monotonic()
        self.gemm: InterleavedGemm | None = None
        self.over = ""
        """Why nothing more is measured."""
        self.had_s, self.took_s = 0.0, 0.0
        """Of its core and by the clock, while kernels were timed: where others run, the two differ."""

    def run(self) -> dict[str, Any]:
        device = describe(self.device)
        self.ranks.stop_on_signal()
        try:
            self._host()
            join(self.place, self.device, timeout_s=JOIN_S)
            self._burn()
            self._items(self.options.short(self.device))
            self._network()
            self._items(self.options.long(self.device))
        except dist.DistError as error:
            self._lost(error)
        except RuntimeError as error:
            if self.place.world == 1:
                raise
            self._lost(error)
        return {
            "kind": KIND, "schema": SCHEMA, "seatrial": __version__, "device": device, "host": platform.node(),
            "torch": torch.__version__, "python": platform.python_version(), "backend": _backend(),
            "threads": torch.get_num_threads(), "cores": len(os.sched_getaffinity(0)), "world": self.place.world,
            "nodes": self.ranks.nodes, "procs_per_node": self.place.local_world,
            "when": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "mode": "full" if self.options.full else "quick", "seconds": round(time.monotonic() - self.began, 1),
            "noise": self._noise(), "core_share": self._core_share(),
            **({"between": self.gemm.describe()} if self.gemm is not None else {}),
            "figures": self.figures, "missing": self.missing,
        }  # fmt: skip

    def _lost(self, error: BaseException) -> None:
        """Another rank is gone: what was measured until then is still true."""
        self.over = "the connection to another rank was lost"
        first = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        self.missing.append({"what": "everything after this", "why": f"{self.over}: {first}"})

    def _noise(self) -> float:
        spreads = [entry["spread"] for entries in self.figures.values() for entry in entries]
        return round(median(spreads), 4) if spreads else 0.0

    def _core_share(self) -> float:
        """How much of its core this process had; on a GPU the host waits, and that is no sign of others."""
        if self.device.type != "cpu" or not self.took_s:
            return 1.0
        return round(min(1.0, self.had_s / self.took_s), 3)

    def _host(self) -> None:
        try:
            found = kernels.host_overhead(self.device, repeats=40 if self.options.full else 15)
        except (RuntimeError, MemoryError) as error:
            self._miss("host", WHY[status_of(error)])
            return
        self.figures["host"].append({name: digits(value) for name, value in found.items()})

    def _burn(self) -> None:
        if self.device.type != "cuda":
            return
        x = torch.randn(8192, 8192, device=self.device, dtype=torch.bfloat16)
        until = time.monotonic() + BURN_S
        while time.monotonic() < until:
            for _ in range(50):
                x @ x
            torch.cuda.synchronize(self.device)

    def _stops(self) -> str:
        """Why to measure nothing more, as all ranks agree; empty to go on."""
        if not self.over:
            spent = self.ranks.leads and time.monotonic() - self.began > self.options.budget_s
            stop, late = (max(column) for column in zip(*self.ranks.share(float(self.ranks.stop_requested), float(spent))))
            if stop:
                self.over = "stopped"
            elif late:
                self.over = f"not reached in {self.options.budget_s:g} s"
        return self.over

    def _items(self, items: Iterable[Item]) -> None:
        counts: dict[str, int] = {}
        seconds: dict[str, float] = {}
        for item in items:
            if why := self._stops():
                self._miss(item.label, why)
                continue
            began = time.monotonic()
            counts[item.part] = counts.get(item.part, 0) + self._item(item)
            seconds[item.part] = seconds.get(item.part, 0.0) + time.monotonic() - began
        for part, count in counts.items():
            self.say(f"{part}: {count} figures, {seconds[part]:.1f} s")

    def _item(self, item: Item) -> bool:
        status, why = GOOD, ""
        samples: dict[str, Sample] = {}
        try:
            clock = self.clock.host if item.on_host else self.clock
            works = item.prepare()
            began, had = time.monotonic(), time.thread_time()
            samples = {key: clock(work) for key, work in works.items()}
            self.took_s, self.had_s = self.took_s + time.monotonic() - began, self.had_s + time.thread_time() - had
        except (RuntimeError, MemoryError) as error:
            status = status_of(error)
            why = (str(error).strip().splitlines() or [""])[0][:120]
        worst = self.ranks.worst(status)
        if worst != GOOD:
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            self._miss(item.label, WHY[worst] + (f": {why}" if why else ""))
            return False
        self.figures[item.part].append({**item.what, **self._joined(samples)})
        return True

    def _joined(self, samples: dict[str, Sample]) -> dict[str, float]:
        """One figure out of all ranks': their median, and the larger of their spreads and of how far they lie apart."""
        found: dict[str, float] = {}
        spread = 0.0
        for key, sample in samples.items():
            every = self.ranks.share(sample.s, sample.spread)
            middle = median(one[0] for one in every)
            apart = (max(one[0] for one in every) - min(one[0] for one in every)) / 2 / middle
            spread = max(spread, median(one[1] for one in every), apart)
            found[key] = middle
        if "hundred_s" in found:
            found["s"] = found.pop("hundred_s") / 100
        if "both_s" in found:
            both = found.pop("both_s")
            found["backward_s"] = max(both - found["forward_s"], 0.1 * both)
        return {**{key: digits(value) for key, value in found.items()}, "spread": round(spread, 4)}

    def _network(self) -> None:
        place = self.place
        if place.world == 1:
            self._miss("collectives", "one process alone; start it under torchrun or srun, or with --ranks")
            self._miss("p2p", "one process alone; start it under torchrun or srun, or with --ranks")
            return
        if place.world % place.local_world:
            self._miss("collectives", f"{place.world} ranks are not a multiple of the {place.local_world} on this node")
            return
        began = time.monotonic()
        self.gemm = InterleavedGemm.on(self.ranks) if self.device.type == "cpu" else None
        for kind in collectives.kinds(place, every=self.options.full):
            # gloo's figures of operations that the planner never uses would take half of the time.
            ops = collectives.OPS if self.options.full or self.device.type == "cuda" else collectives.OPS[:3]
            if why := self._stops():
                self._miss(f"collectives over {kind.size} ranks, {kind.per_node} per node", why)
                continue
            sizes, target_s = self.options.message_sizes, self.options.target_s
            for what, sample in collectives.measure(self.ranks, kind, ops, sizes, target_s, self.gemm):
                self._keep("collectives", what, sample)
        for nodes, other in collectives.partners(place):
            for size in (s for s in self.options.message_sizes if s <= self.options.most_message):
                if why := self._stops():
                    self._miss(f"p2p over {nodes} nodes, {size} bytes", why)
                    continue
                found = collectives.message(self.ranks, other, size, self.options.target_s)
                self._keep("p2p", {"nodes": nodes, "bytes": size}, found)
        if self.ranks.nodes == 1:
            self._miss("collectives and p2p across nodes", "all ranks are on one node")
        self.say(f"collectives and messages: {len(self.figures['collectives']) + len(self.figures['p2p'])} figures, "
                 f"{time.monotonic() - began:.1f} s")

    def _keep(self, part: str, what: dict[str, Any], found: Sample | float) -> None:
        if isinstance(found, float):
            self._miss(Item(part, what, dict).label, WHY[found])
        else:
            self.figures[part].append({**what, "s": digits(found.s), "spread": round(found.spread, 4)})

    def _miss(self, what: str, why: str) -> None:
        self.missing.append({"what": what, "why": why})


def _backend() -> str:
    return str(dist.get_backend()) if dist.is_initialized() else "none"


def describe(device: torch.device) -> dict[str, Any]:
    """The device by name, its size and its memory."""
    if device.type == "cuda":
        total, context, had = cuda_memory(device)
        about = torch.cuda.get_device_properties(device)
        found: dict[str, Any] = {"name": about.name, "kind": "gpu", "memory_gib": round(total, 3),
                                 "usable_gib": round(context + had, 3), "context_gib": round(context, 3),
                                 "units": about.multi_processor_count, "capability": f"{about.major}.{about.minor}"}
        if clock := getattr(about, "clock_rate", 0):
            found["clock_ghz"] = clock / 1e6
        return found
    total, free = host_memory()
    return {"name": _cpu_name(), "kind": "cpu", "memory_gib": round(total, 3), "usable_gib": round(free, 3),
            "units": len(os.sched_getaffinity(0))}


def host_memory() -> tuple[float, float]:
    """GiB of this node, and how much of it can be had now: the system's own figure, or the control group's where it is less.

    Read by hand: a probe runs where there is torch and the standard library, and no psutil.
    """
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


def cuda_memory(device: torch.device) -> tuple[float, float, float]:
    """GiB of the device, of those that driver and libraries hold, and what could be had by trying."""
    x = torch.ones(256, 256, device=device, dtype=torch.bfloat16)
    (x @ x).sum().item()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    context = total - free - torch.cuda.memory_reserved(device)
    blocks, had = [], 0
    for block in BLOCKS:
        try:
            while True:
                blocks.append(torch.empty(block, dtype=torch.uint8, device=device))
                had += block
        except torch.OutOfMemoryError:
            continue
    blocks.clear()
    torch.cuda.empty_cache()
    return total / GIB, max(context, 0) / GIB, had / GIB


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return next((name for name in named if name), platform.processor() or platform.machine() or "cpu")


def probe(options: ProbeOptions, place: RankInfo, device: torch.device, *, say: Callable[[str], None]) -> dict[str, Any]:
    torch.manual_seed(0)
    return Probe(options, place, device, say).run()
