"""Memory of one rank with experts on one GPU: `python -m benchmarks.experts_gpu -o results/experts-memory-h200.json`.

Ranks of DeepSeek-V3 (PP 16, EP 64) and Qwen3-235B-A22B (PP 16, EP 32), whose experts receive as many tokens as is said: 1, 1.5
and 2 times an even share. Bytes that the rehearsal counts without memory, and the footprint's, over what the allocator had at
its peak when the rank was executed under a process group that has nobody else in it.
"""
from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from seatrial import presets
from seatrial.arith import footprint
from seatrial.recipe import Recipe
from seatrial.rehearse.fake import fake_world
from seatrial.rehearse.load import Load
from seatrial.rehearse.rank import Memory, measure_memory
from seatrial.spec import Batch, Execution, Place, Topology, Trial

LOADS = (1.0, 1.5, 2.0)


def rank_of(name: str, stage: int, recompute: str, *, dp: int, pp: int, ep: int, device: str) -> tuple[Trial, int]:
    topology = Topology(dp=dp, pp=pp, ep=ep, zero=1, recompute=recompute, precision="bf16")  # type: ignore[arg-type]
    trial = Trial(model=presets.model(name), batch=Batch(gbs=2 * dp * pp), topology=topology,
                  execution=Execution(device=device))
    return trial, topology.rank_at(Place(pp=stage))


def cases(device: str) -> list[tuple[Trial, int]]:
    """The fullest ranks: the first that has experts, and the last."""
    deepseek, qwen = {"dp": 64, "pp": 16, "ep": 64, "device": device}, {"dp": 32, "pp": 16, "ep": 32, "device": device}
    return [rank_of("deepseek-v3", 1, "full", **deepseek), rank_of("deepseek-v3", 12, "selective", **deepseek),
            rank_of("deepseek-v3", 15, "none", **deepseek), rank_of("qwen3-235b-a22b", 1, "full", **qwen),
            rank_of("qwen3-235b-a22b", 12, "selective", **qwen), rank_of("qwen3-235b-a22b", 15, "none", **qwen)]


def count(trial: Trial, rank: int, times: float) -> Memory:
    torch.set_num_threads(1)
    with fake_world(rank=rank, world=trial.topology.world):
        return measure_memory(trial, Recipe(), torch.device("cpu"), fake=True, as_gpu=True, load=Load(times))


def memory(trial: Trial, rank: int, times: float, counted: Memory) -> dict[str, Any]:
    t, load = trial.topology, Load(times)
    stage = t.place(rank).pp
    by_shapes = footprint(trial, rank=stage, gpu=True, load=load.of_balance(trial, rank))
    row: dict[str, Any] = {"model": trial.model.name, "pp": t.pp, "ep": t.ep, "stage": stage, "recompute": t.recompute,
                           "load": times, "rehearsed_gib": counted.peak_bytes / 2**30, "footprint_gib": by_shapes.total / 2**30,
                           "counted_parts": counted.at_peak, "footprint_parts": by_shapes.at_peak}
    said = (f"{trial.model.name} PP {t.pp} EP {t.ep}, stage {stage}, recompute {t.recompute}, load {times}: rehearsed without "
            f"memory {row['rehearsed_gib']:.2f} GiB, footprint {row['footprint_gib']:.2f}")
    if trial.execution.device == "cuda":
        torch.cuda.empty_cache()
        with fake_world(rank=rank, world=t.world):
            real = measure_memory(trial, Recipe(), torch.device("cuda"), fake=False, as_gpu=True, load=load)
        had = real.allocated_bytes or 0
        row |= {"allocated_gib": had / 2**30, "rehearsed": counted.peak_bytes / had - 1, "footprint": by_shapes.total / had - 1,
                "parts": real.at_peak}
        said += f"; allocator {had / 2**30:.2f}: {row['rehearsed']:+.2%} and {row['footprint']:+.2%}"
    print(said, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--count-only", action="store_true", help="Without a GPU.")
    asked = parser.parse_args()
    rows = [(*case, times) for case in cases("cpu" if asked.count_only else "cuda") for times in LOADS]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool:  # counting needs no device
        found = [memory(*row, counted) for row, counted in zip(rows, pool.map(count, *zip(*rows, strict=True)), strict=True)]
    if asked.out is not None:
        device = "none" if asked.count_only else torch.cuda.get_device_name()
        asked.out.write_text(json.dumps({"device": device, "torch": torch.__version__, "memory": found}, indent=1))


if __name__ == "__main__":
    main()
