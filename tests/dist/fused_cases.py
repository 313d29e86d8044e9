"""Trials with the kernel config of a GPU, run on the CPU: what the ranks of a test execute."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from seatrial.engine.core.masters import split_bits
from seatrial.engine.core.mesh import Mesh, Pool
from seatrial.engine.core.step import Engine
from seatrial.engine.fast.choose import build
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.kernels import Kernels, plain
from seatrial.engine.io import checkpoint
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe
from seatrial.spec import Trial


def train_with(cases: dict[str, tuple[Trial, KernelConfig | None]], recipe: Recipe) -> dict[str, list[tuple[float, float]]]:
    """Loss and gradient norm of each step of each case, in the world that this process is in."""
    pool: Pool = {}
    found = {}
    for label, (trial, config) in cases.items():
        mesh = Mesh(trial.topology, device=torch.device("cpu"), pool=pool)
        engine = Engine(trial, recipe, mesh, ops=config and build(config, trial, mesh.device))
        batches = Batches(recipe, trial.model, recipe.seed)
        results = [engine.step(i + 1, first_sample=trial.batch.gbs * i, batches=batches) for i in range(recipe.steps)]
        found[label] = [(r.loss, r.grad_norm) for r in results]
        mesh.close()
    return found


# masters that are split


def run_some(engine: Engine, first: int, last: int) -> list[tuple[float, float]]:
    """Loss and gradient norm of steps first to last."""
    gbs, batches = engine.trial.batch.gbs, Batches(engine.recipe, engine.trial.model, engine.recipe.seed)
    results = [engine.step(i, first_sample=gbs * (i - 1), batches=batches) for i in range(first, last + 1)]
    return [(r.loss, r.grad_norm) for r in results]


def held_by(engine: Engine) -> dict[str, Any]:
    """All of the state, and the weights of this rank's shard; as arrays, which a queue carries whole."""
    found = {checkpoint.key_of(s): s.tensor.to(torch.float32, copy=True).numpy() for s in engine.shards()}
    return found | {f"weights of {b.name}": b.part.float().clone().numpy() for b in engine.buckets}


def rounds_away(engine: Engine) -> None:
    """An engine of whole masters then rounds its weights as split ones do: ties away from zero instead of to even."""
    def adamw(master: torch.Tensor, grad: torch.Tensor, first: torch.Tensor, second: torch.Tensor,
              weights: torch.Tensor, numbers: torch.Tensor, **how: float) -> None:
        plain.adamw(master, grad, first, second, None, numbers, **how)
        weights.copy_(split_bits(master)[0])

    assert engine.optimizer.one_pass is not None
    engine.optimizer.one_pass = Kernels(adamw=adamw)
    for bucket in engine.buckets:
        assert bucket.masters.whole is not None
        bucket.part.copy_(split_bits(bucket.masters.whole)[0])
        bucket.weights_follow = True
        bucket.publish().wait()


def split_and_whole(cases: dict[str, Trial], recipe: Recipe, config: KernelConfig) -> dict[str, Any]:
    """Of each case: the steps and the state of split masters, and of whole ones that round alike."""
    pool: Pool = {}
    found: dict[str, Any] = {}
    for label, trial in cases.items():
        mesh = Mesh(trial.topology, device=torch.device("cpu"), pool=pool)
        for splits in (True, False):
            ops = build(replace(config, split_masters=splits), trial, mesh.device)
            engine = Engine(trial, recipe, mesh, ops=ops)
            assert all((b.masters.rest is not None) == splits for b in engine.buckets)
            if not splits:
                rounds_away(engine)
            found[label, splits] = run_some(engine, 1, recipe.steps), held_by(engine)
        mesh.close()
    return found


def saved_and_continued(trial: Trial, recipe: Recipe, config: KernelConfig, folder: str) -> dict[str, Any]:
    """Split masters all the way; saved half-way by each kind of engine and taken up by each kind."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    mesh = Mesh(trial.topology, device=torch.device("cpu"))
    half = recipe.steps // 2

    def engine_of(splits: bool) -> Engine:
        engine = Engine(trial, recipe, mesh, ops=build(replace(config, split_masters=splits), trial, mesh.device))
        if not splits:
            rounds_away(engine)
        return engine

    found: dict[str, Any] = {}
    for writer in (True, False):
        engine = engine_of(writer)
        run_some(engine, 1, half)
        keeper = checkpoint.Checkpointer(f"{folder}/{writer}", rank=rank, world=world, barrier=lambda: dist.barrier())
        keeper.save(half, checkpoint.chunks_of(s for s in engine.shards() if s.primary), {"step": half})
        # The files are written beside these steps, which change every number that was to be saved.
        found[f"{writer} went on"] = run_some(engine, half + 1, recipe.steps), held_by(engine)
        keeper.wait()
        dist.barrier()
        for reader in (True, False):
            engine = engine_of(reader)
            latest = checkpoint.latest(f"{folder}/{writer}")
            assert latest is not None
            checkpoint.fill(latest.reader(), engine.shards())
            engine.optimizer.steps_done.fill_(half)
            engine.loaded()
            if not reader:
                rounds_away(engine)
            found[f"{writer} read by {reader}"] = run_some(engine, half + 1, recipe.steps), held_by(engine)
    mesh.close()
    return found


# moments in bf16


def narrow_moments(cases: dict[str, Trial], recipe: Recipe, folder: str) -> dict[str, Any]:
    """Of each case: the steps and the state, and those of an engine that took it up half-way from a checkpoint."""
    pool: Pool = {}
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    half, found = recipe.steps // 2, {}
    for label, trial in cases.items():
        mesh = Mesh(trial.topology, device=torch.device("cpu"), pool=pool)
        engine = Engine(trial, recipe, mesh)
        assert all(b.exp_avg.dtype == b.exp_avg_sq.dtype == torch.bfloat16 for b in engine.buckets)
        before = run_some(engine, 1, half)
        keeper = checkpoint.Checkpointer(f"{folder}/{world}-{label}", rank=rank, world=world,
                                         barrier=lambda: dist.barrier() if dist.is_initialized() else None)
        keeper.save(half, checkpoint.chunks_of(s for s in engine.shards() if s.primary), {"step": half})
        found[label] = before + run_some(engine, half + 1, recipe.steps), held_by(engine)
        keeper.wait()
        if dist.is_initialized():
            dist.barrier()
        found[f"{label} again"] = before + _taken_up(trial, recipe, mesh, f"{folder}/{world}-{label}", half)
        mesh.close()
    return found


def taken_up(trial: Trial, recipe: Recipe, folder: str, step: int) -> list[tuple[float, float]]:
    return _taken_up(trial, recipe, Mesh(trial.topology, device=torch.device("cpu")), folder, step)


def _taken_up(trial: Trial, recipe: Recipe, mesh: Mesh, folder: str, step: int) -> list[tuple[float, float]]:
    engine = Engine(trial, recipe, mesh)
    latest = checkpoint.latest(folder)
    assert latest is not None
    checkpoint.fill(latest.reader(), engine.shards())
    engine.optimizer.steps_done.fill_(step)
    engine.loaded()
    return run_some(engine, step + 1, recipe.steps)
