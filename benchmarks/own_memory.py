"""Bytes that the planner counts for our own engine, against the engine itself.

    python -m benchmarks.own_memory [--layouts 200] [--seed 0]                  against rehearsals, half as CPU, half as GPU
    python -m benchmarks.own_memory --device cuda --layouts 30                  against the allocator of a real GPU, one process

Layouts of five models are drawn at random: every family, recompute, ZeRO stage, schedule, precision, optimizer; uneven and
virtual stages. A rehearsal runs the engine's own code on tensors without memory, for every pipeline rank that differs from the
others. On a GPU real steps run, and what is compared is `max_memory_allocated`; where $OUT is set all rows go to
$OUT/own_memory.json. The bar is 2 %, and at a device's limit nothing refused that fits and nothing accepted that does not,
outside a band of 3 %.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import torch  # noqa: E402

from seatrial import rules  # noqa: E402
from seatrial.arith import footprint  # noqa: E402
from seatrial.errors import BadInput, SeatrialError  # noqa: E402
from seatrial.recipe import Recipe  # noqa: E402
from seatrial.rehearse.fake import fake_world  # noqa: E402
from seatrial.rehearse.rank import measure_memory  # noqa: E402
from seatrial.rehearse.run import RehearsalOptions, distinct  # noqa: E402
from seatrial.spec import GIB, Batch, Execution, Model, Topology, Trial  # noqa: E402

BAR, BAND = 0.02, 0.03

MODELS = {
    "gpt2": Model(family="gpt2", layers=12, hidden=1536, heads=16, vocab=50257, seq=1024),
    "bloom": Model(family="bloom", layers=10, hidden=1536, heads=16, vocab=125000, seq=1024),
    "llama": Model(family="llama", layers=10, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=32000, seq=2048),
    "qwen2": Model(family="qwen2", layers=12, hidden=1792, heads=28, kv_heads=4, ffn=4864, vocab=151936, seq=1024, tied=True),
    "qwen3": Model(family="qwen3", layers=9, hidden=1024, heads=16, kv_heads=8, head_dim=128, ffn=3072, vocab=151936, seq=2048),
}
"""Widths of models that are in use, and fewer layers: a rehearsal takes as long as it has layers."""


def drawn(rng: random.Random, *, alone: bool = False) -> tuple[Trial, bool]:
    """One that can run, and whether as a GPU; `alone`: on one GPU."""
    while True:
        gpu = alone or rng.random() < 0.5
        try:
            trial = _draw(rng, gpu=gpu, alone=alone)
            rules.check(trial)
        except SeatrialError:
            continue
        return trial, gpu


def _draw(rng: random.Random, *, gpu: bool, alone: bool) -> Trial:
    family = rng.choice(list(MODELS))
    model = replace(MODELS[family], seq=rng.choice([256, 512, 1024, 2048]))
    precisions = ["fp32", "bf16", "bf16", "bf16", "fp16"] if gpu else ["fp32", "bf16", "fp16"]
    if gpu and family in ("gpt2", "bloom"):
        precisions += ["fp8", "fp8"]
    dp, tp, pp = (1, 1, 1) if alone else (rng.choice([1, 1, 2, 4, 8]), rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 2, 3, 4]))
    schedule = rng.choice(["1f1b", "gpipe", "zb-h1", "interleaved"]) if pp > 1 else rng.choice(["1f1b", "1f1b", "gpipe", "zb-h1"])
    vp = rng.choice([2, 3]) if schedule == "interleaved" else 1
    m = rng.choice([1, 2, 3, 4, 6]) * (pp if schedule == "interleaved" else 1)
    mbs = rng.choice([1, 2, 4])
    topology = Topology(
        dp=dp, tp=tp, pp=pp, vp=vp, mbs=mbs, zero=rng.choice([0, 1, 2, 3]), recompute=rng.choice(["none", "selective", "full"]),
        schedule=schedule, precision=rng.choice(precisions), sequence_parallel=tp > 1 and rng.random() < 0.5,
        stage_layers=_uneven(rng, model.layers, pp * vp) if pp > 1 and rng.random() < 0.3 else None,
    )  # fmt: skip
    execution = Execution(
        optimizer=rng.choice(["adamw-fused"] * 3 + ["adamw-plain"]), moments=rng.choice(["fp32", "fp32", "bf16"]),
        bucket_mib=rng.choice([8.0, 32.0, 32.0, 128.0]), logits_chunk=rng.choice([256, 1024, 1024, 4096]),
        device="cuda" if alone else "cpu",
    )  # fmt: skip
    return Trial(model=model, batch=Batch(gbs=m * dp * mbs), topology=topology, execution=execution)


def _uneven(rng: random.Random, layers: int, stages: int) -> tuple[int, ...]:
    if stages > layers:
        raise BadInput(f"{layers} layers for {stages} stages")
    cuts = sorted(rng.sample(range(1, layers), stages - 1))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, layers]))


def rehearsed(trial: Trial, *, gpu: bool) -> dict[int, tuple[int, dict[str, int]]]:
    """Bytes at the fullest moment, and by part then, of every pipeline rank that differs."""
    found = {}
    for one in distinct(trial, RehearsalOptions(all_stages=True, memory_only=True)):
        with fake_world(rank=one.rank, world=trial.topology.world):
            memory = measure_memory(trial, Recipe(), torch.device("cpu"), fake=True, as_gpu=gpu)
        found[one.pp_rank] = memory.peak_bytes, memory.at_peak
    return found


CACHE = os.environ.get("OWN_MEMORY_CACHE")
"""A folder of rehearsals that were made before, while the count is worked on."""


def truth(trial: Trial, *, gpu: bool) -> dict[int, tuple[int, dict[str, int]]]:
    if not CACHE:
        return rehearsed(trial, gpu=gpu)
    at = Path(CACHE) / f"{hashlib.sha256(repr((trial, gpu)).encode()).hexdigest()[:16]}.json"
    if not at.exists():
        at.write_text(json.dumps(rehearsed(trial, gpu=gpu)))
    return {int(rank): (peak, parts) for rank, (peak, parts) in json.loads(at.read_text()).items()}
