"""A rehearsed rank holds what a real one holds: bytes against a tracker of live storages in real gloo ranks."""
from __future__ import annotations

from typing import Any

import pytest

from dist.many import in_world
from dist.rehearsing import Seen, fullest
from seatrial.recipe import Recipe
from seatrial.rehearse.asked import RehearsalOptions
from seatrial.rehearse.run import rehearse
from seatrial.spec import Batch, Execution, Model, Topology, Trial

RECIPE = Recipe()
EXECUTION = Execution(bucket_mib=0.5, logits_chunk=64, device="cpu", threads=1)
TOLERANCE = 0.01


def _trial(family: Any = "gpt2", gbs: int = 16, **layout: Any) -> Trial:
    model = Model(family=family, layers=8, hidden=128, heads=8, vocab=1000, seq=64, kv_heads=4 if family == "llama" else None)
    return Trial(model=model, batch=Batch(gbs=gbs), topology=Topology(mbs=1, **layout), execution=EXECUTION)


TRIALS = {
    "zero bubble": _trial(pp=2, schedule="zb-h1"),
    "zero 3": _trial("llama", dp=2, zero=3, recompute="selective", precision="bf16"),
    "interleaved": _trial("bloom", pp=2, tp=2, vp=2, schedule="interleaved", recompute="full"),
    "groups": _trial("llama", dp=4, zero=3, weights_group=2, recompute="selective", precision="bf16"),
    "ring": _trial("llama", gbs=2, cp=2, recompute="full", zero=1),
    "ulysses": _trial("llama", gbs=2, cp=2, tp=2, cp_kind="ulysses", sequence_parallel=True, precision="bf16"),
    "all at once": _trial(dp=2, pp=2, zero=1),
}


@pytest.fixture(scope="module")
def real() -> dict[str, dict[int, Seen]]:
    """Of each trial, one process of each pipeline rank."""
    found: dict[str, dict[int, Seen]] = {}
    for world in sorted({t.topology.world for t in TRIALS.values()}):
        group = {name: t for name, t in TRIALS.items() if t.topology.world == world}
        for answer in in_world(world, fullest, group, RECIPE):
            for name, seen in answer.items():
                found.setdefault(name, {}).setdefault(seen.pp, seen)
    return found


@pytest.mark.parametrize(("name", "memory_only"), [*((name, True) for name in TRIALS), ("all at once", False)])
def test_every_rank_holds_what_it_holds_in_a_real_run(name, memory_only, real):
    found = rehearse(TRIALS[name], RECIPE, RehearsalOptions(all_stages=True, memory_only=memory_only, repeats=1))
    assert {r for one in found.ranks for r in one.alike} == set(range(TRIALS[name].topology.pp))
    for one in found.ranks:
        assert one.memory.fake == memory_only
        seen = real[name][one.pp_rank]
        assert one.memory.peak_bytes == pytest.approx(seen.peak, rel=TOLERANCE), f"pipeline rank {one.pp_rank}"
        for part in ("weights", "optimizer", "activations"):
            assert one.memory.parts[part] == pytest.approx(seen.parts[part], rel=TOLERANCE), f"{part} of rank {one.pp_rank}"
