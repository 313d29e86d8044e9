"""On a CUDA device the engine trains as it does on the CPU, to the precision of the type; one process, the same code."""
from __future__ import annotations

import pytest
import torch

from seatrial.engine.data import Batches
from seatrial.engine.mesh import Mesh
from seatrial.engine.step import Engine
from seatrial.spec import Batch, Family, Model, Precision, Recompute, Topology, Trial
from seatrial.training import Training


def losses(device: str, model: Model, topology: Topology, *, compiled: bool = False) -> list[float]:
    training = Training(steps=4, lr=1e-2, compile=compiled, logits_chunk=24)
    trial = Trial(model=model, batch=Batch(gbs=4), topology=topology)
    engine = Engine(trial, training, Mesh(topology, device=torch.device(device)))
    batches = Batches(training, model, training.seed)
    return [engine.step(i + 1, first_sample=4 * i, batches=batches).loss for i in range(training.steps)]


def model_of(family: Family) -> Model:
    return Model(layers=2, hidden=64, heads=4, vocab=301, seq=32, family=family, kv_heads=2 if family == "llama" else None)


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["gpt2", "bloom", "llama"])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 1e-2), ("fp16", 2e-3)])
def test_losses_are_those_of_the_cpu(family: Family, precision: Precision, tolerance: float) -> None:
    expected = losses("cpu", model_of(family), Topology())
    assert losses("cuda", model_of(family), Topology(precision=precision)) == pytest.approx(expected, rel=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recompute_changes_nothing_on_the_device(recompute: Recompute) -> None:
    expected = losses("cuda", model_of("gpt2"), Topology())
    assert losses("cuda", model_of("gpt2"), Topology(recompute=recompute)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.gpu
def test_the_host_waits_for_the_device_once_a_step() -> None:
    model, training = model_of("gpt2"), Training(steps=2)
    trial = Trial(model=model, batch=Batch(gbs=4), topology=Topology(precision="bf16"))
    engine = Engine(trial, training, Mesh(trial.topology, device=torch.device("cuda")))
    batches = Batches(training, model, training.seed)
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


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "bloom", "llama"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_compiled_blocks_train_the_same(family: Family, recompute: Recompute) -> None:
    topology = Topology(recompute=recompute)
    expected = losses("cpu", model_of(family), topology)
    assert losses("cpu", model_of(family), topology, compiled=True) == pytest.approx(expected, rel=1e-5)
