"""Every topology trains the same: losses and gradient norms of 5 steps equal those of one process to 1e-5 in fp32.

    pytest tests/dist/test_equivalence.py -k "tp6"        all topologies run once, in one world a size; -k picks what is checked
"""
from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from dist.context_layouts import BLOOM, GPT2, LAYOUTS, LLAMA, LLAMA_TIED, ONE_KV, PACKED, QWEN3
from dist.cover import covering
from dist.many import Series, run_all
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

pytestmark = pytest.mark.timeout(1200)
"""The topologies of one size run in the first test of that size: minutes on a busy machine."""

RECIPE = Recipe(steps=5, lr=1e-2, min_lr=1e-3, warmup_steps=2)
EXECUTION = Execution(bucket_mib=0.05, logits_chunk=24)
TOLERANCE = 1e-5

ODD = Model(layers=2, hidden=66, heads=6, vocab=101, seq=12)
"""As 7176 over 78 heads: the head size is no power of two, and 3 and 6 divide the heads."""


def _trial(model: Model = GPT2, batch: Batch | None = None, **layout: Any) -> Trial:
    return Trial(model=model, batch=batch or Batch(gbs=8), topology=Topology(**layout), execution=EXECUTION)


def _name(prefix: str, layout: dict[str, Any]) -> str:
    return " ".join([prefix, *(f"{k}{v}" if not isinstance(v, str) else v for k, v in layout.items())])


def _topologies() -> dict[str, Trial]:
    found: dict[str, Trial] = {}

    def add(prefix: str, model: Model = GPT2, batch: Batch | None = None, **layout: Any) -> None:
        found[_name(prefix, layout)] = _trial(model, batch, **layout)

    for dp, tp, pp in itertools.product((1, 2, 4), repeat=3):
        if 1 < dp * tp * pp <= 8:
            add("grid", dp=dp, tp=tp, pp=pp)
    for zero in (1, 2, 3):
        add("zero", zero=zero, dp=2, mbs=2)
        add("zero", zero=zero, dp=4)
        add("zero", zero=zero, dp=2, tp=2, sequence_parallel=True)
        add("zero", zero=zero, dp=2, pp=2)
        add("zero", zero=zero, dp=2, tp=2, pp=2)
    for zero in (1, 2, 3):
        add("group", zero=zero, dp=4, zero_group=2)
    for zero in (1, 3):
        add("group", LLAMA_TIED, zero=zero, dp=4, pp=2, zero_group=2)
        add("group", QWEN3, zero=zero, dp=4, tp=2, zero_group=2, sequence_parallel=True)
    add("group", zero=2, dp=4, tp=2, zero_group=1, sequence_parallel=True)
    add("group", zero=3, dp=4, pp=2, zero_group=2, schedule="zb-h1")
    add("groups", zero=2, dp=4, gradients_group=2)
    add("groups", zero=2, dp=4, pp=2, vp=2, schedule="interleaved", gradients_group=1)
    add("groups", zero=3, dp=4, gradients_group=2)
    add("groups", zero=3, dp=4, weights_group=2)
    add("groups", zero=3, dp=4, weights_group=1, mbs=2)
    add("groups", zero=3, dp=8, gradients_group=4, weights_group=2)
    add("groups", zero=3, dp=8, zero_group=4, gradients_group=2, weights_group=1)
    add("groups", batch=Batch(gbs=16), zero=3, dp=8, zero_group=4, weights_group=2)
    add("groups", LLAMA_TIED, zero=3, dp=4, pp=2, gradients_group=4, weights_group=2, recompute="full")
    for schedule in ("gpipe", "zb-h1"):
        add("schedule", schedule=schedule, pp=2)
        add("schedule", schedule=schedule, pp=4, dp=2)
        add("schedule", schedule=schedule, pp=2, tp=2, sequence_parallel=True)
        for zero in (1, 2, 3):
            add("schedule", schedule=schedule, pp=2, dp=2, zero=zero)
    add("schedule", schedule="zb-h1")
    for zero in (0, 1, 2, 3):
        add("schedule", schedule="interleaved", vp=2, pp=2, dp=2, zero=zero)
    add("schedule", schedule="interleaved", vp=2, pp=2)
    add("schedule", schedule="interleaved", vp=2, pp=2, tp=2, sequence_parallel=True)
    add("schedule", replace(GPT2, layers=8), schedule="interleaved", vp=2, pp=4)
    for recompute in ("selective", "full"):
        add("recompute", recompute=recompute)
        add("recompute", recompute=recompute, tp=2, sequence_parallel=True)
        add("recompute", recompute=recompute, dp=2, zero=3)
        add("recompute", recompute=recompute, dp=2, tp=2, pp=2, zero=1)
        add("recompute", recompute=recompute, pp=2, schedule="zb-h1")
    for prefix, model in (("bloom", BLOOM), ("llama", LLAMA), ("llama-tied", LLAMA_TIED)):
        add(prefix, model, tp=2, mbs=2)
        add(prefix, model, pp=2, schedule="zb-h1")
        add(prefix, model, dp=2, zero=3, recompute="selective")
        add(prefix, model, dp=2, tp=2, pp=2, zero=2, recompute="full", sequence_parallel=True)
    add("qwen3", QWEN3, tp=2)
    add("qwen3", QWEN3, tp=2, dp=2, zero=3, recompute="full")
    add("qwen3", QWEN3, tp=4, sequence_parallel=True, recompute="selective")
    add("qwen3", QWEN3, tp=4, pp=2, schedule="zb-h1")
    add("one-kv", ONE_KV, tp=4)
    add("one-kv", ONE_KV, tp=2, pp=2, sequence_parallel=True)
    add("odd", ODD, tp=3)
    add("odd", ODD, tp=6)
    add("odd", ODD, tp=3, sequence_parallel=True)
    add("odd", ODD, tp=6, sequence_parallel=True, recompute="selective")
    add("odd", ODD, tp=3, dp=2, zero=3)
    add("odd", ODD, tp=3, pp=2, schedule="zb-h1")
    add("odd", replace(ODD, family="bloom"), tp=6)
    add("uneven", pp=2, stage_layers=(1, 3))
    add("uneven", pp=2, stage_layers=(0, 4))
    # A stage without layers: the embedding alone, the loss alone, or what only hands on.
    add("uneven", pp=2, stage_layers=(4, 0), schedule="zb-h1")
    add("uneven", pp=2, stage_layers=(3, 1), schedule="gpipe", dp=2, zero=2, recompute="selective")
    add("uneven", pp=2, stage_layers=(0, 4), dp=2, zero=3)
    add("uneven", pp=2, stage_layers=(3, 1), tp=2, sequence_parallel=True, recompute="full")
    add("uneven", pp=3, stage_layers=(0, 4, 0))
    add("uneven", LLAMA, pp=3, stage_layers=(1, 3, 0), schedule="gpipe")
    add("uneven", LLAMA_TIED, pp=3, stage_layers=(3, 0, 1), schedule="zb-h1")
    add("uneven", BLOOM, pp=2, vp=2, stage_layers=(0, 3, 1, 0), schedule="interleaved", dp=2, zero=1)
    add("uneven", pp=2, vp=2, stage_layers=(2, 0, 0, 2), schedule="interleaved", recompute="full")
    add("uneven", replace(GPT2, layers=6), pp=4)
    add("uneven", replace(GPT2, layers=5), pp=2, tp=2)
    add("uneven", replace(GPT2, layers=5), pp=2, vp=2, schedule="interleaved")
    ramp = Batch(gbs=8, rampup_start=4, rampup_increment=2, rampup_samples=16)
    add("ramp-up", batch=ramp, dp=2)
    add("ramp-up", batch=ramp, dp=2, tp=2, pp=2)
    add("ramp-up", batch=ramp, pp=2, schedule="zb-h1")
    add("ramp-up", batch=replace(ramp, rampup_increment=4), pp=2, vp=2, schedule="interleaved")
    for model, documents, layout in PACKED:
        add(f"packed {model.family} {documents}", model, Batch(gbs=8, documents=documents), **layout)
    return found | {label: _trial(model, **{"mbs": 2, **layout}) for label, (model, layout) in LAYOUTS.items()}


TOPOLOGIES = _topologies()
OFTEN = covering(TOPOLOGIES)
"""The others are trained with `--run-slow` alone."""


def _alone(trial: Trial) -> Trial:
    """The same model and batch on one process, nothing clever."""
    return Trial(model=trial.model, batch=trial.batch, topology=Topology(), execution=EXECUTION)


@pytest.fixture(scope="module")
def alone() -> dict[str, Series]:
    """The one process's series, by model and batch; on one thread, as each rank has, so that both add in the same order."""
    torch.set_num_threads(1)
    return run_all({repr((t.model, t.batch)): _alone(t) for t in TOPOLOGIES.values()}, RECIPE)


@cache
def in_one_world(world: int, slow: bool) -> dict[str, Series] | Exception:
    """The series of all topologies of that size. One that crashes takes those of its size with it, and no others."""
    wanted = {label: t for label, t in TOPOLOGIES.items() if slow or label in OFTEN}
    try:
        return run_all({label: t for label, t in wanted.items() if t.topology.world == world}, RECIPE)
    except Exception as error:
        return error


def test_there_are_enough_topologies() -> None:
    assert len(TOPOLOGIES) >= 100 and len(LAYOUTS) >= 40 and len(OFTEN) >= 60


@pytest.mark.parametrize("label", [pytest.param(name, marks=[pytest.mark.slow] * (name not in OFTEN)) for name in TOPOLOGIES])
def test_topology_trains_as_one_process_does(label: str, alone: dict[str, Series], request: pytest.FixtureRequest) -> None:
    trial = TOPOLOGIES[label]
    found = in_one_world(trial.topology.world, bool(request.config.getoption("--run-slow")))
    if isinstance(found, Exception):
        raise found
    (losses, norms), (losses_alone, norms_alone) = found[label], alone[repr((trial.model, trial.batch))]
    assert len(losses) == RECIPE.steps
    assert losses == pytest.approx(losses_alone, rel=TOLERANCE)
    assert norms == pytest.approx(norms_alone, rel=TOLERANCE)


def test_the_reference_learns(alone: dict[str, Series]) -> None:
    """Equal series say nothing if the weights never change."""
    for losses, norms in alone.values():
        assert losses[-1] < losses[0] - 0.1
        assert all(n > 0 for n in norms)
