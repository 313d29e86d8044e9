"""Seconds from starting the engine to the end of its first step: bare with empty caches; cold with Python's bytecode alone,
which an installer leaves beside the sources and some images lack; warm with all that a start leaves.

    python -m benchmarks.gpu --only start

`python -m seatrial.engine` itself, on a fresh folder for every cache that it or its libraries keep; the phases are those of its
heartbeat, and `imports` is what comes before the first of them.
"""
from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.shapes import ROWS, trial_of

from seatrial.engine import runfile
from seatrial.engine.watch import heartbeat
from seatrial.recipe import Recipe

BARS_S = {"bare": math.inf, "cold": 15.0, "warm": 5.0}
CACHES = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
LOOK_S, LIMIT_S = 0.01, 150.0


def run(say: Callable[[str], None], rows: Sequence[str] = ("bf16@1.3b", "bf16@llama3", "fp8@1.3b")) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in rows:
        with tempfile.TemporaryDirectory() as folder:
            for state, bar_s in BARS_S.items():
                if state == "cold":
                    _forget_kernels(Path(folder))
                took = phases(name, Path(folder), state)
                found[f"{name} {state}"] = took
                parts = ", ".join(f"{phase} {s:.1f}" for phase, s in took.items() if phase != "total" and s >= 0.05)
                say(f"  start {name} {state}: first step done after {took['total']:.1f} s (bar {bar_s:g}): {parts}")
    return found


def _forget_kernels(folder: Path) -> None:
    for cache in CACHES[1:]:
        shutil.rmtree(folder / cache, ignore_errors=True)
    for tuned in (folder / CACHES[0]).glob("seatrial/gemm-*"):
        tuned.unlink()


def phases(name: str, folder: Path, state: str) -> dict[str, float]:
    """Seconds in each phase until the second step begins."""
    out = folder / state
    runfile.write(runfile.RunFile(trial=trial_of(ROWS[name]), recipe=Recipe(steps=2), out=str(out)), out / "run.json")
    env = {**os.environ, **{cache: str(folder / cache) for cache in CACHES}}
    found: dict[str, float] = {}
    with (out / "log").open("w") as log:
        began = time.monotonic()
        command = [sys.executable, "-m", "seatrial.engine", str(out / "run.json")]
        child = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        now, step, at = "imports", 0, began
        while child.poll() is None and step < 2 and at - began < LIMIT_S:
            time.sleep(LOOK_S)
            found[now] = found.get(now, 0.0) + time.monotonic() - at
            at = time.monotonic()
            for beat in heartbeat.read(out):
                now, step = "first step" if beat.step else beat.phase, beat.step
        child.kill()
        child.wait()
    if step < 2:
        raise RuntimeError(f"{name}: no second step: {(out / 'log').read_text(encoding='utf-8').strip()[-600:]}")
    return {**found, "total": at - began}
