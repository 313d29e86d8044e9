"""Our own engine's memory in columns: the same as one layout at a time, and what the engine's own code holds."""
from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from seatrial import presets, rules
from seatrial.arith import footprint
from seatrial.errors import SeatrialError
from seatrial.plan import ours
from seatrial.plan.configs import Configs
from seatrial.recipe import Recipe
from seatrial.rehearse.fake import fake_world
from seatrial.rehearse.rank import measure_memory
from seatrial.spec import Batch, Execution, Model, Place, Topology, Trial

MODELS = {
    "gpt2": Model(family="gpt2", layers=12, hidden=512, heads=8, vocab=50257, seq=512),
    "bloom": Model(family="bloom", layers=10, hidden=256, heads=8, vocab=9000, seq=512),
    "llama": Model(family="llama", layers=9, hidden=1024, heads=16, kv_heads=4, vocab=32000, seq=256),
    "qwen3": Model(family="qwen3", layers=8, hidden=256, heads=8, kv_heads=2, head_dim=64, ffn=768, vocab=9000, seq=512),
}
MIXTURES = [presets.model(name) for name in ("tiny-moe", "tiny-deepseek")]


def _groups(rng: random.Random, whole: int) -> dict[str, int | None]:
    """Some of those that ZeRO divides over, each a divisor of the one before."""
    found: dict[str, int | None] = {}
    for name in ("zero_group", "gradients_group", "weights_group"):
        found[name] = rng.choice([None, None, *(n for n in (1, 2, 4) if whole % n == 0)])
        whole = found[name] or whole
    return found


def _drawn(rng: random.Random) -> Trial:
    while True:
        pp, schedule = rng.choice([1, 2, 4, 5]), rng.choice(["1f1b", "gpipe", "zb-h1", "interleaved"])
        vp = 2 if schedule == "interleaved" else 1
        model, dp, mbs = rng.choice(list(MODELS.values())), rng.choice([1, 2, 8]), rng.choice([1, 2])
        cp, kind = rng.choice([1, 1, 2, 4]), rng.choice(["ring", "gather", "ulysses", "ulysses+ring"])
        try:
            uneven = (*rng.sample(range(1, 4), pp - 1), 0)[: pp - 1] if vp == 1 and rng.random() < 0.3 and 1 < pp < 4 else None
            trial = Trial(model=model, batch=Batch(gbs=dp * mbs * pp * rng.choice([1, 2, 5])), topology=Topology(
                dp=dp, tp=rng.choice([1, 2, 4]), pp=pp, vp=vp, mbs=mbs, zero=rng.randrange(4), schedule=schedule,  # type: ignore[arg-type]
                recompute=rng.choice(["none", "selective", "full"]), precision=rng.choice(["fp32", "bf16", "fp16"]),  # type: ignore[arg-type]
                sequence_parallel=rng.random() < 0.5, cp=cp, cp_kind=kind,  # type: ignore[arg-type]
                **_groups(rng, dp * cp),
                stage_layers=None if uneven is None else (*uneven, model.layers - sum(uneven))))
            rules.check(trial)
        except SeatrialError:
            continue
        return trial


@pytest.mark.parametrize("gpu", [False, True])
def test_columns_are_what_one_layout_at_a_time_is(gpu: bool) -> None:
    rng = random.Random(14)
    trials = [_drawn(rng) for _ in range(40)]
    found = ours.footprints(Configs.from_trials(trials), gpu=gpu)
    for i, trial in enumerate(trials):
        each = [footprint(trial, rank=r, gpu=gpu).total for r in range(trial.topology.pp)]
        expected = [each[0], max(each[1:-1], default=0), each[-1]]
        assert found.total[:, i] == pytest.approx(expected, rel=1e-9, abs=8), trial.topology
    assert sum(found.parts.values()) == pytest.approx(found.total)
    assert set(found.parts) == {"weights", "gradients", "optimizer", "activations", "working", "logits", "communication"}


def _mixed(rng: random.Random) -> Trial:
    while True:
        pp, dp, tp = rng.choice([1, 2, 3]), rng.choice([1, 2, 4]), rng.choice([1, 2])
        try:
            trial = Trial(model=rng.choice(MIXTURES), batch=Batch(gbs=dp * rng.choice([1, 4, 12])), topology=Topology(
                dp=dp, tp=tp, pp=pp, ep=rng.choice([1, 2, 4]), etp=rng.choice([None, 1]), zero=rng.randrange(4),
                recompute=rng.choice(["none", "selective", "full"]), precision=rng.choice(["fp32", "bf16"]),  # type: ignore[arg-type]
                moe_balance="forced", moe_dispatcher=rng.choice(["alltoall", "allgather"]),  # type: ignore[arg-type]
                schedule=rng.choice(["1f1b", "gpipe", "zb-h1"]), sequence_parallel=rng.random() < 0.5))  # type: ignore[arg-type]
            rules.check(trial)
        except SeatrialError:
            continue
        return trial


@pytest.mark.parametrize("gpu", [False, True])
def test_columns_of_mixtures_beside_dense_ones(gpu: bool) -> None:
    rng = random.Random(18)
    trials = [_mixed(rng) for _ in range(30)] + [_drawn(rng) for _ in range(5)]
    found = ours.footprints(Configs.from_trials(trials), gpu=gpu)
    for i, trial in enumerate(trials):
        each = [footprint(trial, rank=r, gpu=gpu).total for r in range(trial.topology.pp)]
        expected = [each[0], max(each[1:-1], default=0), each[-1]]
        assert found.total[:, i] == pytest.approx(expected, rel=1e-9, abs=8), trial.topology


def test_natural_balance_takes_more_where_ranks_share_experts() -> None:
    trial = Trial(model=MIXTURES[0], batch=Batch(gbs=4), topology=Topology(dp=4, ep=4))
    forced = replace(trial, topology=replace(trial.topology, moe_balance="forced"))
    natural, even = ours.footprints(Configs.from_trials([trial, forced]), gpu=True).parts["activations"].max(axis=0)
    assert natural > even


def test_the_bytes_of_an_execution_are_its_own() -> None:
    trial = Trial(model=MODELS["gpt2"], batch=Batch(gbs=4), topology=Topology(mbs=4, precision="bf16"))
    made = (Execution(), Execution(moments="bf16"), Execution(optimizer="adamw-plain"), Execution(logits_chunk=128))
    trials = [replace(trial, execution=execution) for execution in made]
    together = ours.footprints(Configs.from_trials(trials), gpu=False).total.max(axis=0)
    assert together == pytest.approx([footprint(one).total for one in trials], rel=1e-9)
    assert together[1] < together[0] > together[3]


def test_no_rank_between_is_fuller_than_those_that_are_counted() -> None:
    assert ours.alike((1, 3, 2, 4, 1, 1), 6, "1f1b") == [[0], [1], [3], [5]]
    assert ours.alike((2,) * 6, 6, "1f1b") == [[0], [1], [5]]
    assert ours.alike((2,) * 6, 6, "zb-h1") == [[0], [1, 2, 3, 4], [5]]
    assert ours.alike((4,), 1, "1f1b") == [[0]]


REHEARSED: list[tuple[str, bool, dict[str, Any], int]] = [
    ("gpt2", True, {"precision": "fp8", "recompute": "full"}, 2),
    ("bloom", True, {"precision": "bf16", "tp": 4, "sequence_parallel": True, "recompute": "selective"}, 1),
    ("llama", True, {"precision": "fp32"}, 1),
    ("llama", False, {"precision": "bf16", "dp": 4, "zero": 3, "recompute": "selective"}, 2),
    ("qwen3", True, {"precision": "bf16", "pp": 2, "schedule": "zb-h1", "recompute": "full"}, 4),
    ("qwen3", False, {"precision": "fp16", "pp": 2, "vp": 2, "schedule": "interleaved"}, 2),
    ("gpt2", False, {"dp": 2, "zero": 2, "pp": 3}, 4),
    ("gpt2", False, {"dp": 4, "zero": 1, "zero_group": 2}, 2),
    ("llama", True, {"dp": 8, "zero": 3, "zero_group": 4, "weights_group": 2, "precision": "bf16"}, 3),
    ("llama", False, {"dp": 8, "zero": 3, "gradients_group": 4, "weights_group": 2, "pp": 2, "schedule": "zb-h1"}, 4),
    ("gpt2", True, {"dp": 8, "zero": 2, "gradients_group": 2, "precision": "bf16"}, 2),
    ("llama", True, {"cp": 4, "precision": "bf16", "recompute": "full", "zero": 1}, 1),
    ("llama", False, {"cp": 2, "cp_kind": "gather", "tp": 2, "sequence_parallel": True}, 2),
    ("gpt2", False, {"cp": 4, "cp_kind": "ulysses", "pp": 2, "precision": "bf16"}, 2),
    ("bloom", False, {"cp": 4, "cp_kind": "ring", "recompute": "selective"}, 1),
    ("qwen3", True, {"cp": 4, "cp_kind": "ulysses+ring", "dp": 2, "zero": 3, "precision": "bf16"}, 2),
]


@pytest.mark.parametrize(("family", "gpu", "layout", "microbatches"), REHEARSED)
def test_the_fullest_rank_holds_what_the_engines_code_holds(family: str, gpu: bool, layout: dict[str, Any],
                                                            microbatches: int) -> None:
    t = Topology(mbs=2, **layout)
    trial = Trial(model=replace(MODELS[family], layers=4), batch=Batch(gbs=microbatches * t.dp * t.mbs), topology=t)
    real = 0
    for rank in range(t.pp):
        with fake_world(rank=t.rank_at(Place(pp=rank)), world=t.world):
            real = max(real, measure_memory(trial, Recipe(), torch.device("cpu"), fake=True, as_gpu=gpu).peak_bytes)
    assert float(np.max(ours.footprints(Configs.from_trials([trial]), gpu=gpu).total)) == pytest.approx(real, rel=0.02)
