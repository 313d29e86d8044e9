"""Which knobs would make a trial fit that ran out of memory.

    would_fit(trial, need_bytes=…, base_bytes=…, cap_bytes=…)       what it needs, ["MBS 4 -> 2", "ZeRO 0 -> 1", …]

What another layout would need is the planner's estimate, scaled by what this one was seen to need.
"""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from seatrial import rules
from seatrial.engines.model import model_of
from seatrial.spec import GIB, Cluster, Device, Link, Trial, stages_of
from seatrial.stages import short

MOST_KNOBS = 4
EVEN = "an even split of the layers"


def would_fit(trial: Trial, *, need_bytes: int, base_bytes: int, cap_bytes: int) -> tuple[int, list[str]]:
    """What this layout needs, and changes that lower it below the cap: one knob (`MBS 4 -> 2`) or, failing that, two."""
    from seatrial.plan import memory  # numpy is loaded only for a trial that did not fit
    from seatrial.plan.configs import Configs
    from seatrial.plan.odds import LIKELY, odds

    here = trial.cluster or _this_machine(trial)

    def tensor_bytes(trials: list[Trial]) -> tuple[Any, Any]:
        """And how sure that is once one of them was seen: half of the error is common to all."""
        held = memory.peak(Configs.from_trials(trials, here), here)
        return held.need_gib * GIB, held.sigma / math.sqrt(2)

    # What was seen is a lower bound: the planner's count may be above it, and the larger of both is believed.
    mine = max(1.0, float(tensor_bytes([trial])[0][0]))
    scale = max(1.0, (need_bytes - base_bytes) / mine)
    steps = [*smaller(trial), *lighter(trial, here)]
    for tried in (steps, [(f"{a} with {b}", c) for a, one in steps for b, c in smaller(one) if c.topology != trial.topology]):
        if not tried:
            continue
        sizes, sigma = tensor_bytes([t for _, t in tried])
        needs = base_bytes + scale * sizes
        likely = odds(needs, sigma, cap_bytes) >= LIKELY
        # The least change first: an even split where the split was the user's own, then whatever gives up the least memory.
        order = sorted(range(len(tried)), key=lambda i: (not tried[i][0].startswith(EVEN), -needs[i]))
        fits = {tried[i][1].topology: tried[i][0] for i in order if likely[i]}
        if fits:
            return int(base_bytes + scale * mine), list(fits.values())[:MOST_KNOBS]
    return int(base_bytes + scale * mine), []


def smaller(trial: Trial) -> list[tuple[str, Trial]]:
    """Valid layouts one knob away that may need less."""
    from seatrial.plan.explain import neighbours

    even = replace(trial.topology, stage_layers=None)
    found = [(EVEN, replace(trial, topology=even))] if even != trial.topology else []
    found += [(what, replace(trial, topology=t)) for what, t in neighbours(trial)
             if t != trial.topology and t.mbs <= trial.topology.mbs]
    return [(what, other) for what, other in found if all(v.level == "warning" for v in rules.violations(other))]


def lighter(trial: Trial, here: Cluster) -> list[tuple[str, Trial]]:
    """Some layers moved from the fullest pipeline rank to the one with the most room."""
    from seatrial.plan import memory
    from seatrial.plan.configs import Configs

    t, split = trial.topology, stages_of(trial.model, trial.topology)
    if t.pp == 1 or t.vp > 1 or model_of(trial.engine).uneven != "any":
        return []
    held = memory.peak(Configs.from_trials([trial], here), here).by_rank[:, 0]
    between = [max(range(1, t.pp - 1), key=split.__getitem__)] if t.pp > 2 else []
    ranks = {0: held[0], **dict.fromkeys(between, held[1]), t.pp - 1: held[2]}
    full, free = max(ranks, key=ranks.__getitem__), min(ranks, key=ranks.__getitem__)
    found = []
    for moved in (1, 2, 4, 8):
        if moved < split[full]:
            other = tuple(n + moved * ((rank == free) - (rank == full)) for rank, n in enumerate(split))
            found.append((f"layers per stage {short(split)} -> {short(other)}", replace(trial, topology=replace(
                t, stage_layers=other))))
    return found


def _this_machine(trial: Trial) -> Cluster:
    """Only its kind counts: no caching allocator, no communication buffers; and our engine never stores the scores."""
    link = Link(bandwidth_gb_s=1, latency_us=1)
    device = Device(name="this machine", kind="cpu", peak_tflops={"fp32": 1.0}, memory_gib=1, memory_gb_s=1,
                    fused_attention=True)
    return Cluster(name="this machine", nodes=1, procs_per_node=trial.topology.world, device=device, intra=link, inter=link)
