"""Out of memory, told usefully: which rank and part, how far over, and which knobs would fit.

    told(event, trial)      Told(message="rank 1 is out of host memory …", evidence={"over_bytes": …, "would_fit": […]})

What a rank had and asked for is what its allocator said. What another layout would need is the planner's estimate, scaled by
what this one was seen to need, and is told as an estimate.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from seatrial import rules
from seatrial.launch.hang import label
from seatrial.spec import GIB, Cluster, Device, Link, Trial

MIB = 2**20
MARGIN = 0.95
"""Share of the limit that an estimate may reach and still be called fitting."""
MOST_KNOBS = 4
PARTS = {
    "loss.py": "logits", "optim.py": "optimizer state", "zero.py": "gradients", "data.py": "data", "indexed.py": "data",
    "checkpoint.py": "checkpoint buffers", "dcp.py": "checkpoint buffers", "layers.py": "activations",
    "attention.py": "activations", "model.py": "activations", "recompute.py": "activations", "pipeline.py": "activations",
    "messages.py": "activations between stages", "comm.py": "communication buffers", "fault.py": "memory taken on purpose",
}  # fmt: skip
"""By the innermost file of the engine that stood in the traceback."""
_ASKED = re.compile(r"tried to allocate ([\d.]+) ?(bytes|KiB|MiB|GiB)", re.IGNORECASE)
_UNITS = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True, kw_only=True)
class Told:
    message: str
    evidence: dict[str, object]


def told(event: dict[str, Any], trial: Trial, *, cap_bytes: int | None = None) -> Told:
    """From a rank's failure event."""
    rank, device = int(event["rank"]), event.get("status") == "oom_device"
    memory: dict[str, int] = event.get("memory") or {}
    used = memory.get("device_bytes" if device else "data_bytes", 0)
    cap = memory.get("device_cap_bytes") if device else memory.get("cap_bytes", cap_bytes)
    asked = asked_bytes(str(event.get("message", "")))
    part = part_of(event)
    evidence: dict[str, object] = {"part": part, "used_bytes": used, **{k: event[k] for k in ("error", "line") if k in event}}
    kind = "device" if device else "host"
    words = f"{label(rank, trial.topology)} is out of {kind} memory in {event.get('phase') or 'start'}"
    if event.get("step"):
        words += f" of step {event['step']}"
    words += f": {part}"
    if asked:
        evidence["asked_bytes"] = asked
        words += f" asked for {shown(asked)}"
    if cap:
        evidence["cap_bytes"] = cap
        words += f" with {shown(used)} of {shown(cap)} taken"
    over = used + asked - cap if cap and asked else 0
    if over > 0:
        evidence["over_bytes"] = over
        words += f", {shown(over)} over"
    # What is there without a model: on a GPU all that the allocator does not hold.
    base = used - memory.get("reserved_bytes", used) if device else memory.get("base_bytes", 0)
    return _with_knobs(words, evidence, trial, need=used + asked, base=base, cap=cap)


def told_of_kill(rank: int, trial: Trial, *, used_bytes: int, cap_bytes: int | None, how: str) -> Told:
    """Of a rank that could not say anything itself."""
    words = f"{label(rank, trial.topology)} was killed for memory ({how}) with {shown(used_bytes)} taken"
    evidence: dict[str, object] = {"part": "unknown", "used_bytes": used_bytes, "how": how}
    if cap_bytes:
        evidence["cap_bytes"] = cap_bytes
        words += f" of {shown(cap_bytes)}"
    return _with_knobs(words, evidence, trial, need=used_bytes, base=0, cap=cap_bytes)


def _with_knobs(words: str, evidence: dict[str, object], trial: Trial, *, need: int, base: int, cap: int | None) -> Told:
    if cap:
        needs, fits = would_fit(trial, need_bytes=max(need, cap), base_bytes=base, cap_bytes=cap)
        evidence |= {"needs_bytes": needs, "would_fit": fits}
        words += f"; it needs about {shown(needs)} (estimated), "
        words += f"{' or '.join(fits)} would fit" if fits else "and no one or two knobs would fit"
    return Told(message=words, evidence=evidence)


def asked_bytes(message: str) -> int:
    match = _ASKED.search(message)
    return int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0


def part_of(event: dict[str, Any]) -> str:
    if event.get("phase") in ("build", "join", "start") and event.get("step") in (0, None):
        return "weights, gradients and optimizer state"
    for frame in reversed(event.get("frames", [])):
        if part := PARTS.get(str(frame).partition(":")[0]):
            return part
    return {"optimizer": "optimizer state", "reduce": "gradients"}.get(str(event.get("phase")), "activations")


def would_fit(trial: Trial, *, need_bytes: int, base_bytes: int, cap_bytes: int) -> tuple[int, list[str]]:
    """What this layout needs, and changes that lower it below the cap: one knob (`MBS 4 -> 2`) or, failing that, two."""
    from seatrial.plan import memory
    from seatrial.plan.configs import Configs

    here = trial.cluster or _this_machine(trial)

    def tensor_bytes(trials: list[Trial]) -> list[float]:
        return [float(gib) * GIB for gib in memory.peak(Configs.from_trials(trials, here), here).need_gib]

    # What was seen is a lower bound: the planner's count may be above it, and the larger of both is believed.
    mine = max(1.0, tensor_bytes([trial])[0])
    scale = max(1.0, (need_bytes - base_bytes) / mine)
    steps = _steps(trial)
    for tried in (steps, [(f"{a} with {b}", c) for a, one in steps for b, c in _steps(one) if c.topology != trial.topology]):
        needs = [base_bytes + scale * size for size in (tensor_bytes([t for _, t in tried]) if tried else [])]
        fits = {t.topology: what for need, (what, t) in sorted(zip(needs, tried), key=lambda pair: pair[0])[::-1]
                if need <= MARGIN * cap_bytes}
        if fits:
            return int(base_bytes + scale * mine), list(fits.values())[:MOST_KNOBS]
    return int(base_bytes + scale * mine), []


def _steps(trial: Trial) -> list[tuple[str, Trial]]:
    from seatrial.plan.explain import neighbours

    if trial.topology.stage_layers is not None:
        return [("an even split of the layers", replace(trial, topology=replace(trial.topology, stage_layers=None)))]
    found = [(what, replace(trial, topology=t)) for what, t in neighbours(trial)
             if t != trial.topology and t.mbs <= trial.topology.mbs]
    return [(what, other) for what, other in found if _valid(other)]


def _valid(trial: Trial) -> bool:
    return all(violation.level == "warning" for violation in rules.violations(trial))


def _this_machine(trial: Trial) -> Cluster:
    """Only its kind counts: no caching allocator, no communication buffers; and our engine never stores the scores."""
    link = Link(bandwidth_gb_s=1, latency_us=1)
    device = Device(name="this machine", kind="cpu", peak_tflops={"fp32": 1.0}, memory_gib=1, memory_gb_s=1,
                    fused_attention=True)
    return Cluster(name="this machine", nodes=1, procs_per_node=trial.topology.world, device=device, intra=link, inter=link)


def shown(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:.0f} MiB"
