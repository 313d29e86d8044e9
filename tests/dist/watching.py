"""What the tests of overlap watch, on every rank of a world of two replicas."""
from __future__ import annotations

from collections.abc import Callable

import torch

from seatrial.engine.core.mesh import Mesh, Pool
from seatrial.engine.core.step import Engine
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

DEEP = Model(layers=8, hidden=32, heads=4, vocab=101, seq=16)


def build(topology: Topology, pool: Pool | None) -> tuple[Engine, Batches]:
    recipe = Recipe(steps=1)
    trial = Trial(model=DEEP, batch=Batch(gbs=2), topology=topology, execution=Execution(bucket_mib=0.06))
    engine = Engine(trial, recipe, Mesh(topology, device=torch.device("cpu"), pool=pool))
    return engine, Batches(recipe, DEEP, recipe.seed)


def reductions() -> dict[int, tuple[list[int], int]]:
    """By ZeRO stage: how many gradients of a micro-batch had arrived when each reduction started, and how many came in all."""
    pool: Pool = {}
    return {zero: starts(*build(Topology(dp=2, zero=zero), pool)) for zero in (0, 1, 2, 3)}


def starts(engine: Engine, batches: Batches) -> tuple[list[int], int]:
    arrivals, started = 0, list[int]()
    for bucket in engine.buckets:
        def arrived(original: Callable[[], None] = bucket.gradient_ready) -> None:
            nonlocal arrivals
            arrivals += 1
            original()

        def reduce(original: Callable[[], None] = bucket._reduce) -> None:
            started.append(arrivals)
            original()

        bucket.gradient_ready, bucket._reduce = arrived, reduce  # type: ignore[method-assign]
    engine.step(1, first_sample=0, batches=batches)
    return started, arrivals


def weights_held() -> tuple[int, int, int]:
    """Numbers gathered at once at most in a ZeRO 3 step, in the largest bucket, and in all."""
    engine, batches = build(Topology(dp=2, zero=3), None)
    most = 0
    for bucket in engine.buckets:
        def gather(original: Callable[..., None] = bucket.gather, **options: bool) -> None:
            nonlocal most
            original(**options)
            most = max(most, sum(b.flat.untyped_storage().nbytes() // 4 for b in engine.buckets))

        bucket.gather = gather  # type: ignore[method-assign]
    engine.step(1, first_sample=0, batches=batches)
    sizes = [b.layout.size for b in engine.buckets]
    return most, max(sizes), sum(sizes)
