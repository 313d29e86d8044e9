"""Which knobs would make a trial fit that ran out of memory.

    would_fit(trial, need_bytes=…, base_bytes=…, cap_bytes=…)       what it needs, ["MBS 4 -> 2", "ZeRO 0 -> 1", …]

What another layout would need is the planner's estimate, scaled by what this one was seen to need.
"""
from __future__ import annotations

from dataclasses import replace

from seatrial import rules
from seatrial.spec import GIB, Cluster, Device, Link, Trial

MARGIN = 0.95
"""Share of the limit that an estimate may reach and still be called fitting."""
MOST_KNOBS = 4


def would_fit(trial: Trial, *, need_bytes: int, base_bytes: int, cap_bytes: int) -> tuple[int, list[str]]:
    """What this layout needs, and changes that lower it below the cap: one knob (`MBS 4 -> 2`) or, failing that, two."""
    from seatrial.plan import memory  # numpy is loaded only for a trial that did not fit
    from seatrial.plan.configs import Configs

    here = trial.cluster or _this_machine(trial)

    def tensor_bytes(trials: list[Trial]) -> list[float]:
        return [float(gib) * GIB for gib in memory.peak(Configs.from_trials(trials, here), here).need_gib]

    # What was seen is a lower bound: the planner's count may be above it, and the larger of both is believed.
    mine = max(1.0, tensor_bytes([trial])[0])
    scale = max(1.0, (need_bytes - base_bytes) / mine)
    steps = smaller(trial)
    for tried in (steps, [(f"{a} with {b}", c) for a, one in steps for b, c in smaller(one) if c.topology != trial.topology]):
        needs = [base_bytes + scale * size for size in (tensor_bytes([t for _, t in tried]) if tried else [])]
        fits = {t.topology: what for need, (what, t) in sorted(zip(needs, tried), key=lambda pair: pair[0])[::-1]
                if need <= MARGIN * cap_bytes}
        if fits:
            return int(base_bytes + scale * mine), list(fits.values())[:MOST_KNOBS]
    return int(base_bytes + scale * mine), []


def smaller(trial: Trial) -> list[tuple[str, Trial]]:
    """Valid layouts one knob away that may need less."""
    from seatrial.plan.explain import neighbours

    if trial.topology.stage_layers is not None:
        return [("an even split of the layers", replace(trial, topology=replace(trial.topology, stage_layers=None)))]
    found = [(what, replace(trial, topology=t)) for what, t in neighbours(trial)
             if t != trial.topology and t.mbs <= trial.topology.mbs]
    return [(what, other) for what, other in found if all(v.level == "warning" for v in rules.violations(other))]


def _this_machine(trial: Trial) -> Cluster:
    """Only its kind counts: no caching allocator, no communication buffers; and our engine never stores the scores."""
    link = Link(bandwidth_gb_s=1, latency_us=1)
    device = Device(name="this machine", kind="cpu", peak_tflops={"fp32": 1.0}, memory_gib=1, memory_gb_s=1,
                    fused_attention=True)
    return Cluster(name="this machine", nodes=1, procs_per_node=trial.topology.world, device=device, intra=link, inter=link)
