"""Do the fast forms learn as fp32 does? The 124M model on real text (the sources and notices of this Python), 200 steps each.

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
from seatrial.spec import Batch, Topology, Trial

STEPS, LAST, BYTES = 200, 50, 8_000_000
SEQ, MBS = 512, 8
RUNS: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("bf16", "bf16", 1, {}), ("fp8", "fp8", 1, {}), ("fp32", "fp32", 1, {}), ("fp32 again", "fp32", 2, {}),
    ("bf16, moments in bf16", "bf16", 1, {"moments": "bf16"}),
)  # fmt: skip
"""Name, precision, seed, and what else it trains with."""


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
    model = replace(SHAPES["124m"][0], seq=SEQ)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "text"
        corpus(prefix)
        for name, precision, seed, more in RUNS:
            began = time.perf_counter()
            try:
                found[name] = _one(model, precision, seed, str(prefix), device, steps, more)
                last = statistics.fmean(found[name][-LAST:])
                say(f"  losses {name}: mean of the last {LAST} of {steps} {last:.4f}, first {found[name][0]:.3f}, "
                    f"{time.perf_counter() - began:.0f} s")
            except Exception as error:
                say(f"  losses {name}: {type(error).__name__}: {error}")
            torch.cuda.empty_cache()
    means = {name: statistics.fmean(series[-LAST:]) for name, series in found.items()}
    if {"fp32", "fp32 again", "bf16", "fp8"} <= means.keys():
        spread = abs(means["fp32"] - means["fp32 again"])
        for name in (n for n in means if not n.startswith("fp32")):
            off = means[name] - means["fp32"]
            say(f"  losses {name} - fp32: {off:+.4f} ({off / means['fp32']:+.2%}); the two fp32 seeds differ by {spread:.4f}")
    return {"means": means, "series": found}


def _one(model: Any, precision: Any, seed: int, prefix: str, device: str, steps: int, more: dict[str, Any]) -> list[float]:
    recipe = Recipe(steps=steps, seed=seed, lr=3e-4, min_lr=3e-5, warmup_steps=50, data=prefix, **more)
    trial = Trial(model=model, batch=Batch(gbs=MBS), topology=Topology(mbs=MBS, precision=precision))
    mesh = Mesh(trial.topology, device=torch.device(device))
    engine = Engine(trial, recipe, mesh, ops=ops_for(trial, mesh)[0])
    batches = Batches(recipe, model, seed)
    return [engine.step(i + 1, first_sample=MBS * i, batches=batches).loss for i in range(steps)]
