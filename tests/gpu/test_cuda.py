"""The same engine on a CUDA device, one rank on NCCL: the losses of the CPU run, to the precision of the type."""
from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from seatrial import presets
from seatrial.launch import single
from seatrial.spec import Batch, Topology, Trial
from seatrial.training import Training

pytestmark = pytest.mark.gpu

STEPS = 5


@cache
def run(model: str, device: str, topology: Topology, **training: Any) -> dict[str, Any]:
    trial = Trial(model=presets.model(model), topology=topology, batch=Batch(gbs=8))
    found = single.run(trial, Training(steps=STEPS, device=device, **training), out=Path(mkdtemp()), timeout_s=300)
    assert found["status"] == "ok", found
    return found


def largest_difference(a: list[float], b: list[float]) -> float:
    assert len(a) == len(b) == STEPS
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


@pytest.mark.parametrize("model", ["tiny", "tiny-bloom", "tiny-llama"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_fp32_losses_and_norms_are_those_of_the_cpu(model, recompute):
    cpu = run(model, "cpu", Topology(mbs=2))
    gpu = run(model, "cuda", Topology(mbs=2, recompute=recompute))
    assert largest_difference(gpu["losses"], cpu["losses"]) < 1e-4
    assert largest_difference(gpu["grad_norms"], cpu["grad_norms"]) < 1e-3


@pytest.mark.parametrize("precision, tolerance", [("bf16", 2e-2), ("fp16", 5e-3)])
def test_half_precision_stays_within_its_rounding(precision, tolerance):
    cpu = run("tiny", "cpu", Topology(mbs=2))
    gpu = run("tiny", "cuda", Topology(mbs=2, precision=precision, recompute="selective"), loss_scale=1024.0)
    assert largest_difference(gpu["losses"], cpu["losses"]) < tolerance


def test_a_compiled_run_gives_the_same_losses():
    cpu = run("tiny", "cpu", Topology(mbs=2))
    gpu = run("tiny", "cuda", Topology(mbs=2), compile=True)
    assert largest_difference(gpu["losses"], cpu["losses"]) < 1e-4


def test_memory_is_told_by_the_allocator_and_by_part():
    found = run("tiny", "cuda", replace(Topology(mbs=2), recompute="none"))
    memory = found["memory"]
    assert 0 < memory["allocated_peak_gib"] <= memory["reserved_peak_gib"]
    assert memory["parts"]["weights"] > 0


def test_timers_account_for_the_iteration():
    found = run("tiny", "cuda", Topology(mbs=2))
    assert sum(found["breakdown"].values()) >= 0.95 * found["sec_per_it"]
