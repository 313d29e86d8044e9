"""Many topologies, few processes: one gloo world a size, in which any number of trials run one after the other.

    outcomes = run_all([trial, ...], training)          {label: (losses, grad_norms)} for each trial

Starting a process costs more than training a tiny model, so trials are grouped by their world size.
"""
from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from seatrial.engine.core.mesh import Mesh, Pool
from seatrial.engine.core.step import Engine, StepResult
from seatrial.engine.io.data import Batches
from seatrial.launch.processes import HeldPort
from seatrial.recipe import Recipe
from seatrial.spec import Trial

T = TypeVar("T")

_START = mp.get_context("forkserver")
_START.set_forkserver_preload(["torch.distributed", "torch.nn.attention", "torch._dynamo"])
"""Ranks are forked from a process that has imported torch, and the part of it that recomputing asks for, and done nothing with
it: seconds a rank."""


def _entry(rank: int, world: int, port: int, work: Callable[..., Any], args: tuple[Any, ...], answers: Any) -> None:
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    try:
        if world > 1:
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        answers.put((rank, work(*args), None))
        if world > 1:
            dist.barrier()
            dist.destroy_process_group()
    except Exception:
        answers.put((rank, None, traceback.format_exc()))


def in_world(world: int, work: Callable[..., T], *args: Any, timeout_s: float = 560.0) -> list[T]:
    """work(*args) on every rank of a new world; the results by rank. The first failure is raised with its traceback."""
    answers = _START.Queue()
    port = HeldPort()
    processes = [_START.Process(target=_entry, args=(r, world, port.number, work, args, answers), daemon=True)
                 for r in range(world)]
    for p in processes:
        p.start()
    results: dict[int, T] = {}
    until = time.monotonic() + timeout_s
    try:
        while len(results) < world:
            try:
                rank, result, error = answers.get(timeout=1.0)
            except Empty:
                dead = [r for r, p in enumerate(processes) if p.exitcode not in (None, 0)]
                assert not dead, f"ranks {dead} of {world} died with {[processes[r].exitcode for r in dead]}"
                assert time.monotonic() < until, f"no answer from {world - len(results)} of {world} ranks in {timeout_s:g} s"
                continue
            if error:
                raise AssertionError(f"rank {rank} of {world} failed:\n{error}")
            results[rank] = result
    finally:
        for p in processes:
            if len(results) < world:
                p.kill()
            p.join(10)
        port.close()
    return [results[r] for r in range(world)]


Series = tuple[list[float], list[float]]


def train(trial: Trial, recipe: Recipe, pool: Pool | None = None) -> list[StepResult]:
    """The trial's first steps in the world that this process is in."""
    mesh = Mesh(trial.topology, device=torch.device("cpu"), pool=pool)
    engine = Engine(trial, recipe, mesh)
    batches = Batches(recipe, trial.model, recipe.seed, documents=trial.batch.documents)
    results, sample = [], 0
    for step in range(1, recipe.steps + 1):
        results.append(engine.step(step, first_sample=sample, batches=batches))
        sample += results[-1].gbs
    mesh.close()
    return results


def series(results: list[StepResult]) -> Series:
    return [r.loss for r in results], [r.grad_norm for r in results]


def _train_each(trials: dict[str, Trial], recipe: Recipe) -> dict[str, Series]:
    pool: Pool = {}
    return {label: series(train(trial, recipe, pool)) for label, trial in trials.items()}


def run_all(trials: dict[str, Trial], recipe: Recipe) -> dict[str, Series]:
    """Every trial in a world of its own size; rank 0's series."""
    found: dict[str, Series] = {}
    for world in sorted({t.topology.world for t in trials.values()}):
        group = {label: t for label, t in trials.items() if t.topology.world == world}
        found.update(_train_each(group, recipe) if world == 1 else in_world(world, _train_each, group, recipe)[0])
    return found


def gradients(engine: Engine) -> list[tuple[str, tuple[int, ...], Tensor]]:
    """The rectangles of the reduced gradient that this rank holds: name, offsets, values."""
    found = []
    for bucket in engine.buckets:
        reduced, low = bucket.reduced(), bucket.shard[0]
        for piece in bucket.pieces(*bucket.shard):
            shape = (piece.rows, *piece.segment.global_shape[1:])
            values = reduced[piece.start - low : piece.start - low + piece.numel].view(shape)
            found.append((piece.segment.name, (piece.row, *(0 for _ in shape[1:])), values))
    return found


def joined(rectangles: Iterable[tuple[str, tuple[int, ...], Tensor]]) -> dict[str, Tensor]:
    """Whole tensors out of their rows, which several ranks may have and which come in any order."""
    found: dict[str, dict[int, Tensor]] = {}
    for name, offsets, values in rectangles:
        found.setdefault(name, {})[offsets[0]] = values
    return {name: torch.cat([rows[first] for first in sorted(rows)]) for name, rows in found.items()}


def first_step(trials: dict[str, Trial], recipe: Recipe) -> dict[str, tuple[float, float, list[Any]]]:
    """Loss, gradient norm and this rank's rectangles of the gradient in each trial's first step; as plain arrays."""
    found, pool = {}, Pool()
    for label, trial in trials.items():
        engine = Engine(trial, recipe, Mesh(trial.topology, device=torch.device("cpu"), pool=pool))
        batches = Batches(recipe, trial.model, recipe.seed, documents=trial.batch.documents)
        result = engine.step(1, first_sample=0, batches=batches)
        rectangles = [(name, offsets, values.numpy()) for name, offsets, values in gradients(engine)]
        found[label] = result.loss, result.grad_norm, rectangles
    return found
