"""On a CUDA device the engine trains as it does on the CPU, to the precision of the type; one process, the same code."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dist.many import in_world
from seatrial import presets
from seatrial.arith import footprint
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.fast.choose import ops_for
from seatrial.engine.io.data import Batches
from seatrial.launch.trial import run_now
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Family, Model, Precision, Recompute, Topology, Trial

pytestmark = pytest.mark.gpu


def engine_of(trial: Trial, recipe: Recipe, device: str = "cuda") -> Engine:
    mesh = Mesh(trial.topology, device=torch.device(device))
    return Engine(trial, recipe, mesh, ops=ops_for(trial, mesh)[0])


def losses(device: str, model: Model, topology: Topology, *, compiled: bool = False) -> list[float]:
    recipe = Recipe(steps=4, lr=1e-2)
    trial = Trial(model=model, batch=Batch(gbs=4), topology=topology, execution=Execution(compile=compiled, logits_chunk=24))
    engine = engine_of(trial, recipe, device)
    batches = Batches(recipe, model, recipe.seed)
    return [engine.step(i + 1, first_sample=4 * i, batches=batches).loss for i in range(recipe.steps)]


KV_HEADS = {"llama": 2, "qwen3": 1}


def model_of(family: Family) -> Model:
    return Model(layers=2, hidden=64, heads=4, vocab=301, seq=32, family=family, kv_heads=KV_HEADS.get(family),
                 head_dim=32 if family == "qwen3" else None)


@pytest.mark.parametrize("family", ["gpt2", "bloom", "llama", "qwen3"])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 1e-2), ("fp16", 2e-3)])
def test_losses_are_those_of_the_cpu(family: Family, precision: Precision, tolerance: float) -> None:
    expected = losses("cpu", model_of(family), Topology())
    assert losses("cuda", model_of(family), Topology(precision=precision)) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recompute_changes_nothing_on_the_device(recompute: Recompute) -> None:
    expected = losses("cuda", model_of("gpt2"), Topology())
    assert losses("cuda", model_of("gpt2"), Topology(recompute=recompute)) == pytest.approx(expected, rel=1e-6)


def test_the_host_waits_for_the_device_once_a_step() -> None:
    model, recipe = model_of("gpt2"), Recipe(steps=2)
    trial = Trial(model=model, batch=Batch(gbs=4), topology=Topology(precision="bf16"))
    engine = engine_of(trial, recipe)
    batches = Batches(recipe, model, recipe.seed)
    engine.step(1, first_sample=0, batches=batches)
    for bucket in engine.buckets:
        bucket.begin(4)
    pinned = [tuple(t.pin_memory() for t in batches.microbatch(i, 1)) for i in range(4)]

    def feed(microbatch: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, targets = pinned[microbatch]
        return tokens.cuda(non_blocking=True), targets.cuda(non_blocking=True)

    torch.cuda.set_sync_debug_mode("error")
    try:
        engine.pipeline.run(engine.plan(4), feed, scale=1.0)
        for bucket in engine.buckets:
            bucket.finish()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_compiled_run_gives_the_same_losses() -> None:
    expected = losses("cpu", model_of("gpt2"), Topology())
    assert losses("cuda", model_of("gpt2"), Topology(), compiled=True) == pytest.approx(expected, rel=1e-4)


def test_the_command_measures_time_and_memory_on_nccl(tmp_path: Path) -> None:
    trial = Trial(model=presets.model("tiny"), topology=Topology(mbs=2), batch=Batch(gbs=8), execution=Execution(device="cuda"))
    found = run_now(trial, Recipe(steps=5), out=tmp_path, timeout_s=300)
    assert found["status"] == "ok", found
    assert sum(found["breakdown"].values()) >= 0.95 * found["sec_per_it"]
    memory = found["memory"]
    assert 0 < memory["allocated_peak_gib"] <= memory["reserved_peak_gib"] and memory["parts"]["weights"] > 0


def allocated_at_peak(trial: Trial) -> int:
    recipe = Recipe()
    engine = engine_of(trial, recipe)
    batches = Batches(recipe, trial.model, recipe.seed)
    engine.step(1, first_sample=0, batches=batches)
    torch.cuda.reset_peak_memory_stats()
    engine.step(2, first_sample=trial.batch.gbs, batches=batches)
    return torch.cuda.max_memory_allocated()


@pytest.mark.parametrize("family", ["gpt2", "bloom", "llama"])
@pytest.mark.parametrize(("precision", "recompute"),
                         [("fp32", "none"), ("bf16", "none"), ("bf16", "selective"), ("bf16", "full")])
def test_counted_bytes_are_those_of_the_allocator(family: Family, precision: Precision, recompute: Recompute) -> None:
    kv_heads = 4 if family == "llama" else None
    model = Model(layers=12, hidden=1024, heads=16, vocab=32000, seq=512, family=family, kv_heads=kv_heads)
    trial = Trial(model=model, batch=Batch(gbs=16), topology=Topology(mbs=8, precision=precision, recompute=recompute))
    # In a process of its own: an engine's hooks and buckets point at each other and go only when the collector runs.
    (measured,) = in_world(1, allocated_at_peak, trial)
    assert footprint(trial, gpu=True).total == pytest.approx(measured, rel=0.05)
