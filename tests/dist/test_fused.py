"""Blocks with their backward pass written out train as the ordinary ones do, on every kind of parallelism."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dist.fused_cases import train_with
from dist.many import in_world
from seatrial.engine.fast.config import KernelConfig
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

pytestmark = pytest.mark.timeout(600)

RECIPE = Recipe(steps=3, lr=1e-2)
EXECUTION = Execution(bucket_mib=0.05, logits_chunk=24)
GPT2 = Model(layers=2, hidden=32, heads=4, vocab=101, seq=16)
FUSED = KernelConfig(fused=True)
ALL = replace(FUSED, logits_in_16_bits=True, one_pass_update=True, narrow_gradients=True, release_gradients=True,
              split_masters=True, logits_bytes=2**14, fp8_head=True)
LLAMA = Model(layers=2, hidden=32, heads=4, kv_heads=2, ffn=64, vocab=128, seq=16, family="llama")
"""Grouped heads, rotary positions, RMS norms, SwiGLU, no biases; in fp8 its head, too."""
OTHERS = {
    "bloom": replace(GPT2, family="bloom"), "qwen2": replace(LLAMA, family="qwen2"),
    "qwen3": replace(LLAMA, family="qwen3", head_dim=16), "gelu, no bias": replace(LLAMA, mlp="gelu"),
    "swiglu with biases": replace(GPT2, mlp="swiglu"), "windows": replace(LLAMA, sliding_window=6),
}
"""Models that make other choices."""

LAYOUTS: dict[str, dict[str, Any]] = {
    "tp": {"tp": 2},
    "tp selective": {"tp": 2, "recompute": "selective"},
    "sequence parallel": {"tp": 2, "sequence_parallel": True, "recompute": "full"},
    "sequence parallel selective": {"tp": 2, "sequence_parallel": True, "recompute": "selective"},
    "pp": {"pp": 2, "recompute": "selective"},
    "zero bubble": {"pp": 2, "schedule": "zb-h1"},
    "zero 1": {"dp": 2, "zero": 1},
    "zero 3": {"dp": 2, "zero": 3, "recompute": "full"},
    "ring": {"cp": 2, "recompute": "selective", "mbs": 2},
    "heads": {"cp": 2, "cp_kind": "ulysses", "recompute": "full", "mbs": 2},
}


def trial(model: Model = GPT2, **layout: Any) -> Trial:
    return Trial(model=model, batch=Batch(gbs=4), topology=Topology(**layout), execution=EXECUTION)


@pytest.fixture(scope="module")
def found() -> dict[str, list[tuple[float, float]]]:
    cases: dict[str, tuple[Trial, KernelConfig | None]] = {}
    for name, layout in LAYOUTS.items():
        for label, model in (("gpt2", GPT2), ("llama", LLAMA)):
            cases[f"{name} {label}"] = trial(model, **layout), ALL
            cases[f"{name} {label} fp8"] = trial(model, precision="fp8", **layout), ALL
    for name, model in OTHERS.items():
        cases[name] = trial(model, tp=2, sequence_parallel=True), ALL
    return in_world(2, train_with, cases, RECIPE)[0]


@pytest.fixture(scope="module")
def alone() -> dict[str, list[tuple[float, float]]]:
    return train_with({name: (trial(m), None) for name, m in {"gpt2": GPT2, "llama": LLAMA, **OTHERS}.items()}, RECIPE)


@pytest.mark.parametrize(("name", "model"), [*((f"{name} {m}", m) for name in LAYOUTS for m in ("gpt2", "llama")),
                                             *((name, name) for name in OTHERS)])
def test_a_fused_topology_trains_as_one_ordinary_process(name, model, found, alone):
    assert [v for pair in found[name] for v in pair] == pytest.approx([v for pair in alone[model] for v in pair], rel=1e-5)


@pytest.mark.parametrize("model", ["gpt2", "llama"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_eight_bits_train_on_every_topology(name, model, found, alone):
    """The first step looks and is bf16's; the next ones are within what eight bits leave."""
    losses, expected = [loss for loss, _ in found[f"{name} {model} fp8"]], [loss for loss, _ in alone[model]]
    assert losses[0] == pytest.approx(expected[0], rel=2e-3)
    assert losses == pytest.approx(expected, rel=2e-2)
    assert losses != pytest.approx(expected, rel=1e-6)
