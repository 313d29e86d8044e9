"""Bytes of ranks with experts and latent attention, counted from the shapes and from what was received, against a tracker of
live storages in real ranks that route; and rehearsed, at the same load, without memory."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from dist.many import in_world
from dist.rehearsing import Seen, fullest
from seatrial import presets
from seatrial.arith import footprint
from seatrial.recipe import Recipe
from seatrial.rehearse.fake import fake_world
from seatrial.rehearse.load import Load
from seatrial.rehearse.rank import measure_memory
from seatrial.spec import Batch, Execution, Topology, Trial

RECIPE = Recipe()
TOLERANCE = 0.05


def _trial(name: str, *, gbs: int = 8, mbs: int = 2, **layout: Any) -> Trial:
    # Logits of no other tensor's width.
    return Trial(model=replace(presets.model(name), vocab=1000), batch=Batch(gbs=gbs), topology=Topology(mbs=mbs, **layout),
                 execution=Execution(bucket_mib=0.5, logits_chunk=64))


MOE, DEEPSEEK = "tiny-moe", "tiny-deepseek"
TRIALS = {
    "one rank": _trial(MOE, recompute="selective"),
    "one rank, latent": _trial(DEEPSEEK, mbs=1),
    "one rank, full": _trial(DEEPSEEK, recompute="full"),
    "ep2": _trial(MOE, dp=2, ep=2),
    "tp2": _trial(DEEPSEEK, tp=2, recompute="selective", precision="bf16"),
    "gathered tokens": _trial(MOE, dp=2, ep=2, moe_dispatcher="allgather"),
    "ep4": _trial(DEEPSEEK, dp=4, ep=4, zero=1),
    "ep2 zero 3": _trial(MOE, dp=4, ep=2, zero=3),
    "zero bubble": _trial(DEEPSEEK, pp=2, dp=2, ep=2, schedule="zb-h1"),
    "etp1 under tp2": _trial(MOE, tp=2, dp=2, ep=4, etp=1),
}  # fmt: skip


@pytest.fixture(scope="module")
def measured() -> dict[str, list[Seen]]:
    """Of every rank."""
    found: dict[str, list[Seen]] = {}
    for world in sorted({t.topology.world for t in TRIALS.values()}):
        group = {name: t for name, t in TRIALS.items() if t.topology.world == world}
        for answer in [fullest(group, RECIPE)] if world == 1 else in_world(world, fullest, group, RECIPE):
            for name, seen in answer.items():
                found.setdefault(name, []).append(seen)
    return found


@pytest.mark.parametrize("name", TRIALS)
def test_every_part_is_within_five_percent(name: str, measured: Any) -> None:
    for rank, peak, parts, load in measured[name]:
        counted = footprint(TRIALS[name], rank=rank, load=load)
        # Messages that are still leaving are counted or not, as threads have it.
        assert {part: getattr(counted, part) for part in parts} == pytest.approx(parts, rel=TOLERANCE), (rank, load)
        assert counted.total == pytest.approx(peak, rel=TOLERANCE)


def test_routing_was_real(measured: Any) -> None:
    """Ranks got more than others, and together an even share each."""
    loads = [seen.load[0] for seen in measured["ep4"]]
    assert sum(loads) == pytest.approx(len(loads)) and max(loads) > min(loads)


@pytest.mark.parametrize("name", ["ep2", "ep4", "etp1 under tp2", "gathered tokens"])
def test_a_rehearsal_at_the_load_received_holds_as_much(name: str, measured: Any) -> None:
    trial = TRIALS[name]
    seen = measured[name][0]
    with fake_world(rank=0, world=trial.topology.world):
        rehearsed = measure_memory(trial, RECIPE, torch.device("cpu"), fake=True, as_gpu=False, load=Load(seen.load[0]))
    assert rehearsed.peak_bytes == pytest.approx(seen.peak, rel=0.01)
