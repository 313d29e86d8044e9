"""Attention of other kinds, latent or with windows and sinks, on every kind of layout: losses and gradient norms equal those of
one process to 1e-5 in fp32."""
from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from dist.cover import covering
from dist.many import Series, run_all
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Latent, Model, Router, Topology, Trial

RECIPE = Recipe(steps=3, lr=1e-2, min_lr=1e-3, warmup_steps=1)
EXECUTION = Execution(bucket_mib=0.05, logits_chunk=24)

LATENT = Model(family="llama", layers=4, hidden=32, heads=4, head_dim=6, ffn=40, vocab=101, seq=16, norm_eps=1e-3,
               latent=Latent(q_rank=14, kv_rank=10, rope_dim=4, value_dim=8))
STRAIGHT = replace(LATENT, latent=Latent(kv_rank=10, rope_dim=4, value_dim=12), layers=2)
"""Queries straight from the residual stream, and values wider than keys."""
OSS = Model(family="llama", layers=2, hidden=32, heads=4, kv_heads=2, ffn=40, vocab=101, seq=16, biases="all", norm_eps=1e-3,
            mlp="swiglu-clamped", sinks=True, sliding_window=5, full_every=2, rope_scaling="yarn", rope_factor=8.0)
SINKS = replace(OSS, sliding_window=None, full_every=None)
DEEPSEEK = replace(LATENT, experts=4, top_k=2, shared_experts=1, expert_ffn=16, dense_layers=1,
                   router=Router(kind="sigmoid", bias=True, correction=0.001, aux_loss=0.01))
MTP = replace(LATENT, layers=2, mtp=2, mtp_loss=0.3)
MTP_TIED = replace(MTP, tied=True, mtp=1)
DEEPSEEK_MTP = replace(DEEPSEEK, layers=2, mtp=1)
NAMES = {"latent": LATENT, "straight": STRAIGHT, "oss": OSS, "sinks": SINKS, "deepseek": DEEPSEEK, "mtp": MTP,
         "mtp-tied": MTP_TIED, "deepseek-mtp": DEEPSEEK_MTP}

LAYOUTS: list[tuple[Model, dict[str, Any]]] = [
    (LATENT, dict(tp=2)),
    (LATENT, dict(tp=2, sequence_parallel=True, recompute="selective")),
    (LATENT, dict(pp=2, schedule="zb-h1")),
    (LATENT, dict(dp=2, zero=3, recompute="full")),
    (LATENT, dict(cp=2, cp_kind="ring", zero=2)),
    (LATENT, dict(cp=2, cp_kind="gather", recompute="selective")),
    (LATENT, dict(cp=2, cp_kind="ulysses")),
    (STRAIGHT, dict(tp=2, sequence_parallel=True, recompute="selective")),
    (STRAIGHT, dict(cp=2, cp_kind="ring", recompute="full")),
    (OSS, dict(tp=2, sequence_parallel=True, recompute="selective")),
    (OSS, dict(dp=2, zero=3, recompute="full")),
    (SINKS, dict(cp=2, cp_kind="ring", recompute="full")),
    (SINKS, dict(cp=2, cp_kind="ulysses")),
    (DEEPSEEK, dict(tp=2, ep=2, etp=1)),
    (MTP, dict(tp=2, sequence_parallel=True, recompute="selective")),
    (MTP, dict(tp=2)),
    (MTP, dict(pp=2, schedule="zb-h1")),
    (MTP_TIED, dict(pp=2)),
    (MTP_TIED, dict(dp=2, zero=3)),
    (MTP, dict(dp=2, zero=3, recompute="full")),
    (DEEPSEEK_MTP, dict(dp=2, ep=2, zero=2)),
    (MTP, dict(dp=2, pp=2, zero=3)),
    (DEEPSEEK, dict(pp=2, dp=2, ep=2, zero=1, recompute="full")),
    (OSS, dict(tp=2, pp=2, schedule="zb-h1")),
    (LATENT, dict(tp=2, dp=2, zero=3, sequence_parallel=True, recompute="full")),
    (LATENT, dict(tp=2, pp=2, vp=2, schedule="interleaved", recompute="selective")),
]  # fmt: skip


def _label(model: Model, layout: dict[str, Any]) -> str:
    name = next(name for name, one in NAMES.items() if one is model)
    return " ".join([name, *(str(v) if isinstance(v, str) else f"{k}{v}" for k, v in layout.items())])


def _trial(model: Model, **layout: Any) -> Trial:
    return Trial(model=model, batch=Batch(gbs=8), topology=Topology(**layout), execution=EXECUTION)


TRIALS = {_label(model, layout): _trial(model, **{"mbs": 2, **layout}) for model, layout in LAYOUTS}
OFTEN = covering(TRIALS)
"""The others are trained with `--run-slow` alone."""


@cache
def alone(model: Model) -> Series:
    torch.set_num_threads(1)
    return run_all({"": _trial(model)}, RECIPE)[""]


@cache
def found(world: int, slow: bool) -> dict[str, Series]:
    return run_all({label: t for label, t in TRIALS.items() if (slow or label in OFTEN) and t.topology.world == world}, RECIPE)


@pytest.mark.parametrize("label", [pytest.param(label, marks=[pytest.mark.slow] * (label not in OFTEN)) for label in TRIALS])
def test_a_layout_trains_as_one_process_does(label: str, request: pytest.FixtureRequest) -> None:
    every = found(TRIALS[label].topology.world, bool(request.config.getoption("--run-slow")))
    (losses, norms), expected = every[label], alone(TRIALS[label].model)
    assert expected[0][-1] < expected[0][0] - 0.1
    assert losses == pytest.approx(expected[0], rel=1e-5)
    assert norms == pytest.approx(expected[1], rel=1e-5)
