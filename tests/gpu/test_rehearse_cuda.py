"""A rank rehearsed on a CUDA device: the tracker and the allocator agree, and every action has a time."""
from __future__ import annotations

import math

import pytest
import torch

from seatrial import presets
from seatrial.recipe import Recipe
from seatrial.rehearse.asked import RehearsalOptions
from seatrial.rehearse.fake import fake_world
from seatrial.rehearse.rank import Memory, measure_memory
from seatrial.rehearse.run import rehearse
from seatrial.spec import Batch, Execution, Precision, Topology, Trial

pytestmark = pytest.mark.gpu


def measured_without_memory(trial: Trial, rank: int) -> Memory:
    with fake_world(rank=rank, world=trial.topology.world):
        return measure_memory(trial, Recipe(), torch.device("cpu"), fake=True, as_gpu=True)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("rank", [0, 15])
def test_a_rank_of_a_layout_that_this_machine_does_not_have(precision: Precision, rank: int) -> None:
    cluster = presets.cluster("h200", nodes=2)
    trial = Trial(model=presets.model("gpt2-124m"), batch=Batch(gbs=32),
                  topology=Topology(dp=2, tp=2, pp=4, mbs=4, zero=1, recompute="full", precision=precision),
                  execution=Execution(device="cuda"))
    found = rehearse(trial, Recipe(), RehearsalOptions(rank=rank), cluster=cluster)
    one = found.ranks[0]
    assert one.memory.allocated_bytes == pytest.approx(one.memory.peak_bytes, rel=0.02) and not one.memory.fake
    on_cpu = measured_without_memory(trial, rank)
    assert one.memory.allocated_bytes == pytest.approx(on_cpu.peak_bytes, rel=0.03)
    # Beside the libraries' a few MiB of our own kernels, where these were made before the step.
    assert one.memory.parts["workspaces"] == pytest.approx(on_cpu.parts["workspaces"], rel=0.1)
    assert one.times is not None and found.iteration is not None
    assert 0 < one.times.forward[0].compute_s < one.times.backward[0].compute_s < 1.0
    assert one.times.forward[0].charged_s >= 0 and math.isfinite(found.iteration.sec)


def test_who_computes_on_the_device_alone_waits_for_the_others() -> None:
    """Small GEMMs wait for the host, and messages hide behind it; large ones do not."""
    trial = Trial(model=presets.model("gpt-1.3b"), batch=Batch(gbs=16),
                  topology=Topology(tp=2, pp=8, mbs=16, recompute="full", precision="bf16"), execution=Execution(device="cuda"))
    found = rehearse(trial, Recipe(), RehearsalOptions(rank=2), cluster=presets.cluster("h200", nodes=2))
    one = found.ranks[0]
    assert one.times is not None and one.times.forward[0].charged_s > 0 and one.times.backward[0].charged_s > 0
