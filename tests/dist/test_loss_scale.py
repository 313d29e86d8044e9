"""What fp16 skips does not depend on how ranks share the batch and the weights."""
from __future__ import annotations

from dataclasses import replace

from dist.many import in_world, train
from seatrial.engine.core.mesh import Pool
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Topology, Trial

RECIPE = Recipe(steps=8, lr=1e-2, loss_scale=2.0**22)
ALONE = Topology(precision="fp16", mbs=8)
SHARED = (replace(ALONE, dp=2, mbs=1), replace(ALONE, dp=2, mbs=4, zero=2), replace(ALONE, dp=2, mbs=2, zero=3),
          replace(ALONE, dp=2, mbs=2, zero=2, zero_group=1), replace(ALONE, tp=2), replace(ALONE, cp=2, mbs=4))  # fmt: skip


def skipped(topologies: tuple[Topology, ...]) -> list[dict[str, list[bool]]]:
    """By family, of each layout."""
    pool: Pool = {}
    models = {name: Model(layers=2, hidden=32, heads=4, vocab=101, seq=16, family=name) for name in ("llama", "gpt2", "bloom")}
    return [{name: [r.skipped for r in train(Trial(model=model, batch=Batch(gbs=8), topology=topology), RECIPE, pool)]
             for name, model in models.items()} for topology in topologies]


def test_what_fp16_skips_depends_on_neither_replicas_nor_shards():
    [alone] = skipped((ALONE,))
    assert all(any(steps[1:]) and not all(steps) for steps in alone.values()), alone
    assert in_world(2, skipped, SHARED)[0] == [alone] * len(SHARED)
