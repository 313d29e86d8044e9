"""Bytes by part, counted from the shapes, against an independent tracker of live tensor storages in real ranks."""
from __future__ import annotations

from typing import Any

import pytest

from dist.many import in_world
from dist.rehearsing import fullest
from seatrial.arith import footprint
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

RECIPE = Recipe()
EXECUTION = Execution(bucket_mib=0.5, logits_chunk=64)
TOLERANCE = 0.05

Parts = dict[str, int]


KV_HEADS = {"llama": 2, "qwen3": 1}


def _trial(family: Any = "gpt2", **layout: Any) -> Trial:
    topology = Topology(mbs=2, **layout)
    # Beside few layers the tied embedding's gradient from the other end, which the tracker takes for no gradient, is a lot.
    model = Model(family=family, layers=12 if topology.pp > 1 else 8, hidden=128, heads=8, vocab=1000, seq=64,
                  kv_heads=KV_HEADS.get(family), head_dim=32 if family == "qwen3" else None)
    return Trial(model=model, batch=Batch(gbs=8 if topology.dp == 1 else 16), topology=topology, execution=EXECUTION)


TRIALS = {
    "one rank": _trial(),
    "bloom": _trial("bloom", recompute="selective"),
    "llama": _trial("llama", recompute="full"),
    "bf16": _trial(precision="bf16"),
    "tp2": _trial(tp=2, recompute="selective"),
    "shared key-value heads": _trial("qwen3", tp=2),
    "tp2 sequence parallel": _trial("bloom", tp=2, sequence_parallel=True),
    "pp2": _trial(pp=2),
    "gpipe": _trial("llama", pp=2, schedule="gpipe", recompute="full"),
    "zero bubble": _trial(pp=2, schedule="zb-h1"),
    "interleaved": _trial(pp=2, vp=2, schedule="interleaved"),
    "zero 1": _trial(dp=2, zero=1),
    "zero 2": _trial(dp=2, zero=2, precision="bf16"),
    "zero 3": _trial("llama", dp=2, zero=3, recompute="selective"),
    "zero 1 in groups": _trial(dp=4, zero=1, zero_group=2),
    "groups of their own": _trial("llama", dp=4, zero=3, weights_group=2),
    "ring": _trial("llama", cp=2, zero=1),
    "ring of four": _trial(cp=4, recompute="full"),
    "ring with ALiBi": _trial("bloom", cp=2, tp=2, sequence_parallel=True),
    "gathered keys": _trial("qwen3", cp=2, cp_kind="gather", precision="bf16"),
    "shared heads": _trial(cp=2, cp_kind="ulysses", pp=2, zero=1),
    "shared heads and ring": _trial("llama", cp=4, cp_kind="ulysses+ring", recompute="selective"),
    "all at once": _trial(dp=2, tp=2, pp=2, zero=1),
}


RARELY = {"bf16", "shared key-value heads", "gpipe", "zero 2", "zero 1 in groups", "ring of four", "shared heads and ring"}
"""Measured with `--run-slow` alone."""


@pytest.fixture(scope="module")
def measured(request: pytest.FixtureRequest) -> dict[str, dict[int, Parts]]:
    """Of each trial, the parts of one process of each pipeline rank."""
    found: dict[str, dict[int, Parts]] = {}
    wanted = {name: t for name, t in TRIALS.items() if name not in RARELY or request.config.getoption("--run-slow")}
    for world in sorted({t.topology.world for t in wanted.values()}):
        group = {name: t for name, t in wanted.items() if t.topology.world == world}
        for answer in [fullest(group, RECIPE)] if world == 1 else in_world(world, fullest, group, RECIPE):
            for name, seen in answer.items():
                found.setdefault(name, {}).setdefault(seen.pp, seen.parts)
    return found


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in RARELY)) for name in TRIALS])
def test_every_part_is_within_five_percent(name, measured):
    trial = TRIALS[name]
    for rank, parts in measured[name].items():
        counted = footprint(trial, rank=rank)
        assert {part: getattr(counted, part) for part in parts} == pytest.approx(parts, rel=TOLERANCE), f"pipeline rank {rank}"


def test_recompute_keeps_less(measured):
    kept = {r: footprint(_trial(recompute=r)).activations for r in ("none", "selective", "full")}
    assert kept["full"] < 0.25 * kept["none"] and kept["selective"] < 0.75 * kept["none"]
    assert measured["tp2"][0]["activations"] < measured["one rank"][0]["activations"]
