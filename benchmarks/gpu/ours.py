"""One row of our own engine: a few steps on synthetic tokens, their median, memory, and one step kernel by kernel."""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from benchmarks.gpu.profile import kernels_of
from benchmarks.gpu.shapes import Row, trial_of
from benchmarks.gpu.steps import STEPS, WARM, device, timed

from seatrial import arith
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine, StepResult
from seatrial.engine.fast.choose import ops_for
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe


def measure(row: Row, *, profile: bool, steps: int = STEPS) -> dict[str, Any]:
    began = time.perf_counter()
    where = device()
    trial = trial_of(row)
    if row.settings.get("blas"):
        torch.backends.cuda.preferred_blas_library(row.settings["blas"])
    recipe = Recipe(steps=WARM + steps, lr=1e-4)
    config = KernelConfig.of(where, row.precision, trial.execution)
    mesh = Mesh(trial.topology, device=where)
    ops, config, notes = ops_for(trial, mesh, replace(config, **row.switches))
    engine = Engine(trial, recipe, mesh, ops=ops)
    batches = Batches(recipe, trial.model, recipe.seed)
    built_s = time.perf_counter() - began
    gbs = trial.batch.gbs

    def step(i: int) -> StepResult:
        return engine.step(i + 1, first_sample=gbs * i, batches=batches)

    def waited(i: int) -> float:
        found = step(i)
        engine.timers.take()
        return found.loss

    measured = timed(waited, steps)
    last = step(WARM + steps)
    found = {"built_s": built_s, **measured, "grad_norm": last.grad_norm, "skipped": last.skipped,
             "timers": engine.timers.take(), "notes": notes, "config": config.plain()}
    if profile:
        try:
            found["kernels"] = kernels_of(lambda: step(WARM + steps + 1), trial, moments=row.moments)
        except Exception as error:
            found["kernels_error"] = f"{type(error).__name__}: {error}"
    return found


def tflops(row: Row, sec: float) -> float:
    trial = trial_of(row)
    return arith.tflops("model", trial.model, samples=trial.batch.gbs, sec_per_it=sec, processes=1)


def forecast(row: Row) -> dict[str, float] | str:
    """What the planner expects of our engine on an H200, by the shipped probe of it, where the planner's libraries are."""
    try:
        from seatrial import presets
        from seatrial.plan import calibrate
        from seatrial.plan.rows import Row as PlannerRow

        cluster = replace(presets.cluster("h200", {"machine": "h200"}), nodes=1, procs_per_node=1)
        found = calibrate.cold(cluster).forecast([PlannerRow(cells={}, trial=replace(trial_of(row), cluster=cluster))])
        return {"sec": float(found.sec[0]), "sec_lo": float(found.sec_lo[0]), "sec_hi": float(found.sec_hi[0]),
                "mem_gib": float(found.mem[0])}
    except Exception as error:
        return f"{type(error).__name__}: {error}"
