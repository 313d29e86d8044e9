"""Out of memory in words: which rank and part, how far over, and which knobs would fit.

    refused(event, trial, cap=…, fits=…)        from what a rank said of the allocation that it did not get
    killed(3, trial, used_bytes=…, …)           of one that could not say anything itself
"""
from __future__ import annotations

import re
from typing import Protocol

from seatrial.engines.base import Event
from seatrial.launch.hang import rank_label
from seatrial.launch.memory import MIB, shown
from seatrial.spec import GIB, Trial

PARTS = {
    "loss.py": "logits", "optim.py": "optimizer state", "zero.py": "gradients", "data.py": "data", "indexed.py": "data",
    "checkpoint.py": "checkpoint buffers", "dcp.py": "checkpoint buffers", "layers.py": "activations",
    "attention.py": "activations", "model.py": "activations", "recompute.py": "activations", "pipeline.py": "activations",
    "messages.py": "activations between stages", "comm.py": "communication buffers", "fault.py": "memory taken on purpose",
}  # fmt: skip
"""What memory was for, by the innermost file of the engine that stood in the traceback."""
_REQUESTED = re.compile(r"tried to allocate ([\d.]+) ?(bytes|KiB|MiB|GiB)", re.IGNORECASE)
_UNITS = {"bytes": 1, "kib": 2**10, "mib": MIB, "gib": GIB}

Found = tuple[str, dict[str, object]]
"""A message and its evidence."""


class Fits(Protocol):
    def __call__(self, trial: Trial, *, need_bytes: int, base_bytes: int, cap_bytes: int) -> tuple[int, list[str]]:
        """What the trial needs, estimated, and changes of knobs that would fit below the cap."""


def refused(event: Event, trial: Trial, *, cap: int | None, fits: Fits | None) -> Found:
    """From a rank's failure event: what it had and asked for is what its allocator said."""
    rank, device = int(event["rank"]), event.get("status") == "oom_device"
    memory: dict[str, int] = event.get("memory") or {}
    used = memory.get("device_bytes" if device else "data_bytes", 0)
    cap = memory.get("device_cap_bytes") if device else memory.get("cap_bytes", cap)
    requested = requested_bytes(str(event.get("message", "")))
    part = event.get("part") or part_of(event)
    evidence: dict[str, object] = {"part": part, "used_bytes": used,
                                   **{k: event[k] for k in ("error", "line") if k in event}}
    kind = "device" if device else "host"
    message = f"{rank_label(rank, trial.topology)} is out of {kind} memory in {event.get('phase') or 'start'}"
    if event.get("step"):
        message += f" of step {event['step']}"
    message += f": {part}"
    if requested:
        evidence["asked_bytes"] = requested
        message += f" asked for {shown(requested)}"
    if cap:
        evidence["cap_bytes"] = cap
        message += f" with {shown(used)} of {shown(cap)} taken"
    over = used + requested - cap if cap and requested else 0
    if over > 0:
        evidence["over_bytes"] = over
        message += f", {shown(over)} over"
    # What is there without a model: on a GPU all that the allocator does not hold.
    base = used - memory.get("reserved_bytes", used) if device else memory.get("base_bytes", 0)
    return _with_knobs(message, evidence, trial, need=used + requested, base=base, cap=cap, fits=fits)


def killed(rank: int, trial: Trial, *, used_bytes: int, how: str, cap: int | None, fits: Fits | None) -> Found:
    """Of a rank that could not say anything itself."""
    message = f"{rank_label(rank, trial.topology)} was killed for memory ({how}) with {shown(used_bytes)} taken"
    evidence: dict[str, object] = {"part": "unknown", "used_bytes": used_bytes, "how": how}
    if cap:
        evidence["cap_bytes"] = cap
        message += f" of {shown(cap)}"
    return _with_knobs(message, evidence, trial, need=used_bytes, base=0, cap=cap, fits=fits)


def _with_knobs(message: str, evidence: dict[str, object], trial: Trial, *, need: int, base: int, cap: int | None,
                fits: Fits | None) -> Found:
    if not cap or fits is None:
        return message, evidence
    needs, would = fits(trial, need_bytes=max(need, cap), base_bytes=base, cap_bytes=cap)
    message += f"; it needs about {shown(needs)} (estimated), "
    message += f"{' or '.join(would)} would fit" if would else "and no one or two knobs would fit"
    return message, {**evidence, "needs_bytes": needs, "would_fit": would}


def requested_bytes(message: str) -> int:
    """What an allocator's error says was asked of it."""
    match = _REQUESTED.search(message)
    return int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0


def part_of(event: Event) -> str:
    if event.get("phase") in ("build", "join", "start") and event.get("step") in (0, None):
        return "weights, gradients and optimizer state"
    for frame in reversed(event.get("frames", [])):
        if part := PARTS.get(str(frame).partition(":")[0]):
            return part
    return {"optimizer": "optimizer state", "reduce": "gradients"}.get(str(event.get("phase")), "activations")
