"""Layouts that divide the sequence, beside everything else that a layout divides; for test_equivalence.py.

    LAYOUTS = {"cp llama cp2 ring": (model, layout), …}
    PACKED = [(model, documents, layout), …]                      documents in each sequence
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any

from seatrial.spec import Model

GPT2 = Model(layers=4, hidden=32, heads=4, vocab=101, seq=16)
BLOOM = replace(GPT2, family="bloom")
LLAMA = replace(GPT2, family="llama", kv_heads=2, ffn=40)
LLAMA_TIED = replace(LLAMA, tied=True, kv_heads=4)
QWEN3 = replace(GPT2, family="qwen3", kv_heads=2, head_dim=12, ffn=40, norm_eps=1e-3)
"""Heads together wider than hidden, norms over each of them, and with TP 4 two ranks that share a key-value head. First queries
are so small that their norms would make much of rounding with a smaller epsilon."""
ONE_KV = replace(LLAMA, kv_heads=1, biases="all", qk_norm=True, norm="layernorm")
BOTH = "ulysses+ring"

Layout = dict[str, Any]
PACKED: list[tuple[Model, str, Layout]] = [
    (LLAMA, "uniform:1:9", dict(mbs=4, recompute="full")),
    (GPT2, "uniform:2:9", dict(cp=2, cp_kind="ring", recompute="selective")),
    (BLOOM, "uniform:1:9", dict(cp=2, cp_kind="ulysses")),
    (LLAMA, "fixed:5", dict(pp=2, mbs=2, schedule="zb-h1")),
    (LLAMA, "uniform:1:9", dict(cp=4, cp_kind=BOTH, mbs=2)),
    (BLOOM, "uniform:1:9", dict(cp=2, cp_kind="ring", pp=2, recompute="full")),
    (QWEN3, "exponential:4", dict(cp=2, cp_kind="gather", tp=2, mbs=2, sequence_parallel=True)),
    (GPT2, "uniform:2:9", dict(dp=2, cp=2, cp_kind="ring", mbs=2, zero=3)),
    (LLAMA, "lognormal:6:1", dict(cp=2, cp_kind="ring", pp=2, vp=2, dp=2, schedule="interleaved")),
]  # fmt: skip
"""With uniform:1:9 one process that trains GPT2 differs from itself at another micro-batch by 2e-4 in the fifth step's norm: a
vector there is next to nothing before it is normalised."""
DIVIDED: list[tuple[Model, Layout]] = [
    (GPT2, dict(cp=2, cp_kind="ring")),
    (LLAMA, dict(cp=2, cp_kind="gather", recompute="selective")),
    (BLOOM, dict(cp=2, cp_kind="ulysses", recompute="full")),
    (QWEN3, dict(cp=2, cp_kind="ring", zero=3, recompute="full")),
    (LLAMA, dict(cp=4, cp_kind=BOTH)),
    (LLAMA_TIED, dict(cp=4, cp_kind="ring")),
    (GPT2, dict(cp=4, cp_kind="gather")),
    (BLOOM, dict(cp=2, cp_kind="ring", pp=2, schedule="zb-h1")),
    (LLAMA, dict(cp=2, cp_kind="ring", tp=2, sequence_parallel=True)),
    (GPT2, dict(cp=2, cp_kind="ulysses", tp=2)),
    (LLAMA, dict(cp=2, cp_kind="gather", dp=2, zero=2)),
    (BLOOM, dict(cp=8, cp_kind=BOTH)),
    (GPT2, dict(dp=2, cp=2, cp_kind="ring", tp=2, zero=1, sequence_parallel=True, recompute="full")),
    (QWEN3, dict(cp=2, cp_kind="ring", tp=4, sequence_parallel=True)),
    *((model, dict(cp=2, cp_kind=kind)) for model in (BLOOM, LLAMA) for kind in ("ring", "ulysses")),
    (GPT2, dict(cp=2, cp_kind="gather")),
    (GPT2, dict(cp=2, cp_kind="ulysses")),
    (BLOOM, dict(cp=2, cp_kind="gather")),
    (ONE_KV, dict(cp=2, cp_kind="ring")),
    (BLOOM, dict(cp=4, cp_kind="ring")),
    (GPT2, dict(cp=4, cp_kind="ring", mbs=1)),
    (LLAMA_TIED, dict(cp=4, cp_kind="gather")),
    (BLOOM, dict(cp=4, cp_kind="gather")),
    *((model, dict(cp=4, cp_kind="ulysses")) for model in (GPT2, BLOOM, LLAMA_TIED)),
    (replace(GPT2, heads=2), dict(cp=4, cp_kind=BOTH)),
    (replace(BLOOM, heads=2), dict(cp=4, cp_kind=BOTH, recompute="full")),
    (GPT2, dict(cp=8, cp_kind="ring")),
    (LLAMA, dict(cp=8, cp_kind="gather")),
    (LLAMA_TIED, dict(cp=8, cp_kind=BOTH)),
    (BLOOM, dict(cp=2, cp_kind="gather", tp=2, sequence_parallel=True)),
    (ONE_KV, dict(cp=2, cp_kind="ring", tp=2)),
    (LLAMA_TIED, dict(cp=2, cp_kind="ulysses", tp=2, sequence_parallel=True, recompute="selective")),
    (LLAMA_TIED, dict(cp=4, cp_kind=BOTH, tp=2)),
    (GPT2, dict(cp=2, cp_kind="ring", dp=2, zero=1)),
    (BLOOM, dict(cp=2, cp_kind="ulysses", dp=2, zero=3)),
    (LLAMA, dict(cp=4, cp_kind=BOTH, dp=2, zero=3)),
    (LLAMA, dict(cp=2, cp_kind="ring", zero=3, mbs=1)),
    (GPT2, dict(cp=2, cp_kind="ring", pp=2)),
    (BLOOM, dict(cp=2, cp_kind="ulysses", pp=2, schedule="zb-h1")),
    (GPT2, dict(cp=2, cp_kind="gather", pp=2, vp=2, schedule="interleaved")),
    (QWEN3, dict(cp=2, cp_kind="ring", pp=2, schedule="gpipe")),
    (LLAMA_TIED, dict(cp=2, cp_kind="ring", pp=4)),
    (LLAMA, dict(cp=4, cp_kind=BOTH, pp=2, schedule="zb-h1")),
    (GPT2, dict(cp=2, cp_kind="ring", tp=2, pp=2, schedule="zb-h1", sequence_parallel=True)),
    (BLOOM, dict(dp=2, cp=2, cp_kind="gather", pp=2, zero=2, recompute="selective")),
    (LLAMA, dict(dp=2, cp=2, cp_kind="ulysses", pp=2, zero=3, recompute="full")),
    (LLAMA, dict(dp=2, cp=4, cp_kind="ring", zero=2)),
    (GPT2, dict(dp=2, cp=2, cp_kind="ring", zero=3, zero_group=2)),
    (LLAMA, dict(dp=2, cp=4, cp_kind="gather", zero=3, zero_group=4, weights_group=2)),
]  # fmt: skip


def _named(found: list[tuple[Model, Layout]]) -> dict[str, tuple[Model, Layout]]:
    named = {}
    for model, layout in found:
        label = " ".join(str(v) if isinstance(v, str) else f"{k}{v}" for k, v in layout.items())
        named[f"cp {model.family} {label} of {model.heads}-{model.kv} heads"] = model, layout
    return named


LAYOUTS = _named(DIVIDED)
