"""Compiled blocks train as uncompiled ones do."""
from __future__ import annotations

import pytest
import torch

from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Family, Model, Recompute, Topology, Trial


def losses(model: Model, topology: Topology, *, compiled: bool) -> list[float]:
    recipe = Recipe(steps=4, lr=1e-2)
    trial = Trial(model=model, batch=Batch(gbs=4), topology=topology, execution=Execution(compile=compiled, logits_chunk=24))
    engine = Engine(trial, recipe, Mesh(topology, device=torch.device("cpu")))
    batches = Batches(recipe, model, recipe.seed)
    return [engine.step(i + 1, first_sample=4 * i, batches=batches).loss for i in range(recipe.steps)]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "bloom", "llama"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_compiled_blocks_train_the_same(family: Family, recompute: Recompute) -> None:
    model = Model(layers=2, hidden=64, heads=4, vocab=301, seq=32, family=family, kv_heads=2 if family == "llama" else None)
    topology = Topology(recompute=recompute)
    assert losses(model, topology, compiled=True) == pytest.approx(losses(model, topology, compiled=False), rel=1e-5)
