"""One row of our own engine: a few steps on synthetic tokens, their median, memory, and one step kernel by kernel."""
from __future__ import annotations

import statistics
import time
from dataclasses import replace
from typing import Any

import torch
from benchmarks.gpu.power import Power
from benchmarks.gpu.profile import kernels_of
from benchmarks.gpu.shapes import SHAPES, Row

from seatrial import arith
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.fast.choose import ops_for
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Topology, Trial

WARM, STEPS = 3, 8


def trial_of(row: Row) -> Trial:
    model, mbs = SHAPES[row.shape]
    topology = Topology(mbs=mbs, precision=row.precision, recompute=row.recompute)  # type: ignore[arg-type]
    return Trial(model=model, batch=Batch(gbs=mbs * row.microbatches), topology=topology,
                 execution=Execution(compile=row.compiled, moments=row.moments))


def measure(row: Row, *, profile: bool, device: str = "cuda", steps: int = STEPS) -> dict[str, Any]:
    began = time.perf_counter()
    where = torch.device(device)
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
    seconds, losses = [], []
    gbs = trial.batch.gbs
    with Power() as power:
        for i in range(WARM + steps):
            if i == WARM:
                torch.cuda.reset_peak_memory_stats()
                measured_from = time.perf_counter()
            start = time.perf_counter()
            result = engine.step(i + 1, first_sample=gbs * i, batches=batches)
            engine.timers.take()
            seconds.append(time.perf_counter() - start)
            losses.append(result.loss)
        drawn = power.since(measured_from)
    engine.step(WARM + steps + 1, first_sample=gbs * (WARM + steps), batches=batches)
    taken = engine.timers.take()
    found = {
        "sec": statistics.median(seconds[WARM:]), "all_sec": seconds, "losses": losses, "built_s": built_s,
        "first_s": seconds[0], "grad_norm": result.grad_norm, "skipped": result.skipped, "timers": taken, "notes": notes,
        "config": config.plain(),
        **memory(), **drawn,
    }  # fmt: skip
    if profile:
        at = WARM + steps + 1
        try:
            found["kernels"] = kernels_of(lambda: engine.step(at + 1, first_sample=gbs * at, batches=batches), trial,
                                          moments=row.moments)
        except Exception as error:
            found["kernels_error"] = f"{type(error).__name__}: {error}"
    return found


def memory() -> dict[str, float]:
    gib = 2**30
    return {"allocated_gib": torch.cuda.max_memory_allocated() / gib, "reserved_gib": torch.cuda.max_memory_reserved() / gib}


def tflops(row: Row, sec: float) -> float:
    trial = trial_of(replace(row, precision="bf16"))
    return arith.tflops("model", trial.model, samples=trial.batch.gbs, sec_per_it=sec, processes=1)


def forecast(row: Row) -> dict[str, float] | str:
    """What the planner expects of it, where the planner's libraries are installed."""
    try:
        from seatrial import presets
        from seatrial.plan import calibrate
        from seatrial.plan.rows import Row as PlannerRow

        cluster = presets.cluster("h200", nodes=1, procs_per_node=1)
        trial = replace(trial_of(replace(row, precision="bf16" if row.kind != "ours" else row.precision)), cluster=cluster)
        found = calibrate.cold(cluster).forecast([PlannerRow(cells={}, trial=trial)])
        return {"sec": float(found.sec[0]), "sec_lo": float(found.sec_lo[0]), "sec_hi": float(found.sec_hi[0]),
                "mem_gib": float(found.mem[0]), "tflops": tflops(row, float(found.sec[0]))}
    except Exception as error:
        return f"{type(error).__name__}: {error}"
