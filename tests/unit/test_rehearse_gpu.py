"""A rehearsal that stands for a GPU where there is none: what its kernels hand back, and the bytes that a real one counted."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.kernels import EXPERTS, NAMES, plain, plain_experts
from seatrial.engine.fast.kernels.verified import _call
from seatrial.engines.scripted import driver
from seatrial.recipe import Recipe
from seatrial.rehearse import fake
from seatrial.rehearse.rank import measure_memory
from seatrial.spec import GIB, Batch, Model, Topology, Trial

CPU = torch.device("cpu")
RUNS = json.loads((Path(__file__).parents[2] / "benchmarks/results/gpu-h200.json").read_text())["runs"]
MEASURED = {name: row for run in RUNS for name, row in run.items()}
NARROW = Model(layers=24, hidden=2048, heads=32, vocab=50304, seq=1024)
LLAMA = Model(layers=4, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, seq=8192, family="llama")
WIDE = Model(layers=2, hidden=14336, heads=64, vocab=50304, seq=2048)


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_what_a_kernel_hands_back_has_the_shape_and_type_of_plain_torchs(name: str, case: int) -> None:
    reference = getattr(plain_experts if name in EXPERTS else plain, name)
    both = getattr(fake.kernels(), name), reference
    mine, theirs = (_call(name, f, case, CPU, torch.bfloat16, 48, tokens=16) for f in both)
    assert [(t.shape, t.dtype) for t in mine] == [(t.shape, t.dtype) for t in theirs]


def bytes_with(trial: Trial, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """At the fullest moment, with what a row was measured with in place of what would be chosen today."""
    own = KernelConfig.of
    monkeypatch.setattr(KernelConfig, "of", lambda *where: replace(own(*where), **config))
    return measure_memory(trial, Recipe(), CPU, fake=True, as_gpu=True).peak_bytes


@pytest.mark.parametrize(("row", "model", "mbs", "given"), [
    ("fp8@5.6b", WIDE, 4, {"precision": "fp8"}),
    ("bf16@1.3b", NARROW, 16, {}),
    ("bf16-full@1.3b", NARROW, 16, {"recompute": "full"}),
])  # fmt: skip
def test_the_bytes_are_those_that_an_h200s_allocator_counted(row: str, model: Model, mbs: int, given: dict[str, Any],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(model=model, batch=Batch(gbs=mbs), topology=replace(Topology(mbs=mbs, precision="bf16"), **given))
    config = MEASURED[row]["config"]
    found = bytes_with(trial, {name: config[name] for name in ("logits_bytes", "fp8_head")}, monkeypatch)
    assert found / GIB == pytest.approx(MEASURED[row]["allocated_gib"], rel=0.01)


@pytest.mark.parametrize(("precision", "config", "allocated_gib"), [
    ("bf16", {}, 28.124), ("bf16", {"logits_bytes": 2**30}, 27.145), ("fp8", {"fp8_head": False}, 29.249),
])  # fmt: skip
def test_so_are_those_of_four_llama3_8b_layers(precision: Any, config: dict[str, Any], allocated_gib: float,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(model=LLAMA, batch=Batch(gbs=1), topology=Topology(precision=precision))
    assert bytes_with(trial, config, monkeypatch) / GIB == pytest.approx(allocated_gib, rel=0.01)


NORM = """
import torch, fake_cuda
from torch.utils._python_dispatch import TorchDispatchMode

class Carried(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return operations(func, args, kwargs or {})

with fake_cuda.installed() as operations, Carried():
    x, weight = (torch.empty(*size, device="cuda", requires_grad=True) for size in ((8, 4, 64), (64,)))
    out = torch.nn.functional.rms_norm(x, (64,), weight, 1e-5)
    print(*(tuple(kept.shape) for kept in (out.grad_fn._saved_input, out.grad_fn._saved_result1)))
    out.sum().backward()
    print(tuple(weight.grad.shape))
"""


def test_a_norm_of_a_gpu_that_is_not_there_keeps_its_input_and_a_number_a_row() -> None:
    """Without CUDA torch would take it apart, and keep the input in fp32 and what it was multiplied to."""
    env = {**os.environ, "PYTHONPATH": str(Path(driver("fake_cuda.py")).parent)}
    ran = subprocess.run([sys.executable, "-c", NORM], env=env, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["(8, 4, 64) (8, 4, 1)", "(64,)"], ran.stderr[-800:]
