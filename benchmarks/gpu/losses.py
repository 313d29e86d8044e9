"""Do the fast forms learn as fp32 does? A GPT and a llama of 124M on real text (Python's own sources), 200 steps each.

Two seeds of fp32 say how far apart two good runs are; the others share the first one's seed and tokens. Steps are of 4096
tokens, so the learning rate is half of what this size is usually trained with, and warms up over 50 steps: with 6e-4 after 20
the loss falls so fast at first that any rounding moves the moment when it does.
"""
from __future__ import annotations

import statistics
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.gpu.shapes import SHAPES

from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.fast.choose import ops_for
from seatrial.engine.io import indexed
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Precision, Topology, Trial

STEPS, LAST, BYTES = 200, 50, 8_000_000
SEQ, MBS = 512, 8
GPT = replace(SHAPES["124m"][0], seq=SEQ)
MODELS = {"GPT": GPT, "llama": replace(GPT, family="llama", kv_heads=4)}
RUNS: tuple[tuple[str, Precision, int, Execution], ...] = (
    ("bf16", "bf16", 1, Execution()), ("fp8", "fp8", 1, Execution()), ("fp32", "fp32", 1, Execution()),
    ("fp32 again", "fp32", 2, Execution()), ("bf16, moments in bf16", "bf16", 1, Execution(moments="bf16")),
)  # fmt: skip
"""Name, precision, seed, and how it computes."""


def corpus(prefix: Path) -> None:
    """Bytes as tokens."""
    held = 0
    with indexed.Writer(prefix, vocab=257) as out:
        for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
            text = path.read_bytes()[:200_000]
            if text:
                out.add([*text, 256])
                held += len(text)
            if held > BYTES:
                return


def run(say: Callable[[str], None], *, device: str = "cuda", steps: int = STEPS) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "text"
        corpus(prefix)
        for kind, model in MODELS.items():
            found[kind] = _runs(say, kind, model, str(prefix), device, steps)
    return found


def _runs(say: Callable[[str], None], kind: str, model: Model, prefix: str, device: str, steps: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for name, precision, seed, execution in RUNS:
        began = time.perf_counter()
        try:
            found[name] = _one(model, precision, seed, prefix, device, steps, execution)
            last = statistics.fmean(found[name][-LAST:])
            say(f"  {kind}, {name}: mean of the last {LAST} of {steps} losses {last:.4f}, first {found[name][0]:.3f}, "
                f"{time.perf_counter() - began:.0f} s")
        except Exception as error:
            say(f"  {kind}, {name}: {type(error).__name__}: {error}")
        torch.cuda.empty_cache()
    means = {name: statistics.fmean(series[-LAST:]) for name, series in found.items()}
    if {"fp32", "fp32 again"} <= means.keys():
        spread = abs(means["fp32"] - means["fp32 again"])
        for name in (n for n in means if not n.startswith("fp32")):
            off = means[name] - means["fp32"]
            say(f"  {kind}, {name} - fp32: {off:+.4f} ({off / means['fp32']:+.2%}); the two fp32 seeds differ by {spread:.4f}")
    return {"means": means, "series": found}


def _one(model: Model, precision: Precision, seed: int, prefix: str, device: str, steps: int,
         execution: Execution) -> list[float]:
    recipe = Recipe(steps=steps, seed=seed, lr=3e-4, min_lr=3e-5, warmup_steps=50, data=prefix)
    trial = Trial(model=model, batch=Batch(gbs=MBS), topology=Topology(mbs=MBS, precision=precision), execution=execution)
    mesh = Mesh(trial.topology, device=torch.device(device))
    engine = Engine(trial, recipe, mesh, ops=ops_for(trial, mesh)[0])
    batches = Batches(recipe, model, seed)
    return [engine.step(i + 1, first_sample=MBS * i, batches=batches).loss for i in range(steps)]
