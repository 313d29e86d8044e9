"""The probe itself: figure after figure until all are there, the budget is spent, or somebody asks to stop.

    found = probe(ask, place, device, say=print)        what `machine.write` writes; on ranks other than 0 the same

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
from seatrial.probe import host, room, talk
from seatrial.probe.ask import Ask
from seatrial.probe.between import Between
from seatrial.probe.crew import GOOD, WHY, Crew, status_of
from seatrial.probe.item import Item
from seatrial.probe.machine import KIND, PARTS, SCHEMA
from seatrial.probe.timing import Clock, Sample

JOIN_S = 300.0
"""The longest that ranks wait for each other."""
BURN_S = 3.0
"""On a GPU, so long products run before the first figure: the rate of a cold chip lasts for a second."""


class Probe:
    def __init__(self, ask: Ask, place: RankInfo, device: torch.device, say: Callable[[str], None]):
        self.ask, self.place, self.device, self.say = ask, place, device, say
        self.crew = Crew(place, device)
        self.clock = Clock(device, target_s=ask.target_s)
        self.figures: dict[str, list[dict[str, Any]]] = {part: [] for part in PARTS}
        self.missing: list[dict[str, str]] = []
        self.began = time.monotonic()
        self.between: Between | None = None
        self.over = ""
        """Why nothing more is measured."""
        self.had_s, self.took_s = 0.0, 0.0
        """Of its core and by the clock, while kernels were timed: where others run, the two differ."""

    def run(self) -> dict[str, Any]:
        device = describe(self.device)
        self.crew.stop_when_asked()
        try:
            self._host()
            join(self.place, self.device, timeout_s=JOIN_S)
            self._burn()
            self._items(self.ask.short(self.device))
            self._talk()
            self._items(self.ask.long(self.device))
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
            "nodes": self.crew.nodes, "procs_per_node": self.place.local_world,
            "when": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "mode": "full" if self.ask.full else "quick", "seconds": round(time.monotonic() - self.began, 1),
            "noise": self._noise(), "core_share": self._core_share(),
            **({"between": self.between.told()} if self.between is not None else {}),
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
            found = host.figure(self.device, repeats=40 if self.ask.full else 15)
        except (RuntimeError, MemoryError) as error:
            self._miss("host", WHY[status_of(error)])
            return
        self.figures["host"].append({name: _digits(value) for name, value in found.items()})

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
            spent = self.crew.leads and time.monotonic() - self.began > self.ask.budget_s
            asked, late = (max(column) for column in zip(*self.crew.share(float(self.crew.asked_to_stop), float(spent))))
            if asked:
                self.over = "stopped"
            elif late:
                self.over = f"not reached in {self.ask.budget_s:g} s"
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
        worst = self.crew.worst(status)
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
            every = self.crew.share(sample.s, sample.spread)
            middle = median(one[0] for one in every)
            apart = (max(one[0] for one in every) - min(one[0] for one in every)) / 2 / middle
            spread = max(spread, median(one[1] for one in every), apart)
            found[key] = middle
        if "hundred_s" in found:
            found["s"] = found.pop("hundred_s") / 100
        if "both_s" in found:
            both = found.pop("both_s")
            found["backward_s"] = max(both - found["forward_s"], 0.1 * both)
        return {**{key: _digits(value) for key, value in found.items()}, "spread": round(spread, 4)}

    def _talk(self) -> None:
        place = self.place
        if place.world == 1:
            self._miss("collectives", "one process alone; start it under torchrun or srun, or with --ranks")
            self._miss("p2p", "one process alone; start it under torchrun or srun, or with --ranks")
            return
        if place.world % place.local_world:
            self._miss("collectives", f"{place.world} ranks are not a multiple of the {place.local_world} on this node")
            return
        began = time.monotonic()
        self.between = Between.on(self.crew) if self.device.type == "cpu" else None
        for kind in talk.kinds(place, every=self.ask.full):
            # gloo's figures of operations that nobody asks about would take half of the time.
            ops = talk.OPS if self.ask.full or self.device.type == "cuda" else talk.OPS[:3]
            if why := self._stops():
                self._miss(f"collectives over {kind.size} ranks, {kind.per_node} a node", why)
                continue
            for what, found in talk.collectives(self.crew, kind, ops, self.ask.message_sizes, self.ask.target_s,
                                                 self.between):
                self._heard("collectives", what, found)
        for nodes, other in talk.partners(place):
            for size in (s for s in self.ask.message_sizes if s <= self.ask.most_message):
                if why := self._stops():
                    self._miss(f"p2p over {nodes} nodes, {size} bytes", why)
                    continue
                self._heard("p2p", {"nodes": nodes, "bytes": size}, talk.message(self.crew, other, size, self.ask.target_s))
        if self.crew.nodes == 1:
            self._miss("collectives and p2p across nodes", "all ranks are on one node")
        self.say(f"collectives and messages: {len(self.figures['collectives']) + len(self.figures['p2p'])} figures, "
                 f"{time.monotonic() - began:.1f} s")

    def _heard(self, part: str, what: dict[str, Any], found: Sample | float) -> None:
        if isinstance(found, float):
            self._miss(Item(part, what, dict).label, WHY[found])
        else:
            self.figures[part].append({**what, "s": _digits(found.s), "spread": round(found.spread, 4)})

    def _miss(self, what: str, why: str) -> None:
        self.missing.append({"what": what, "why": why})


def _digits(value: float) -> float:
    """Five significant digits: more would be a claim."""
    return float(f"{value:.5g}")


def _backend() -> str:
    return str(dist.get_backend()) if dist.is_initialized() else "none"


def describe(device: torch.device) -> dict[str, Any]:
    """The device by name, its size and its memory."""
    if device.type == "cuda":
        total, context, had = room.cuda(device)
        about = torch.cuda.get_device_properties(device)
        found: dict[str, Any] = {"name": about.name, "kind": "gpu", "memory_gib": round(total, 3),
                                 "usable_gib": round(context + had, 3), "context_gib": round(context, 3),
                                 "units": about.multi_processor_count, "capability": f"{about.major}.{about.minor}"}
        if clock := getattr(about, "clock_rate", 0):
            found["clock_ghz"] = clock / 1e6
        return found
    total, free = room.host()
    return {"name": _cpu_name(), "kind": "cpu", "memory_gib": round(total, 3), "usable_gib": round(free, 3),
            "units": len(os.sched_getaffinity(0))}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return next((name for name in named if name), platform.processor() or platform.machine() or "cpu")


def probe(ask: Ask, place: RankInfo, device: torch.device, *, say: Callable[[str], None]) -> dict[str, Any]:
    torch.manual_seed(0)
    return Probe(ask, place, device, say).run()
