"""A rehearsal that stands for a GPU where there is none: what its kernels hand back, and the bytes that a real one counted."""
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from seatrial.engine.fast.kernels import EXPERTS, NAMES, plain, plain_experts
from seatrial.engine.fast.kernels.verified import _call
from seatrial.recipe import Recipe
from seatrial.rehearse import fake
from seatrial.rehearse.rank import measure_memory
from seatrial.spec import GIB, Batch, Execution, Model, Topology, Trial

CPU = torch.device("cpu")
MEASURED = json.loads((Path(__file__).parents[2] / "benchmarks/results/gpu-h200.json").read_text())["runs"][-1]
NARROW = Model(layers=24, hidden=2048, heads=32, vocab=50304, seq=1024)
WIDE = Model(layers=2, hidden=14336, heads=64, vocab=50304, seq=2048)


@pytest.mark.parametrize("case", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_what_a_kernel_hands_back_has_the_shape_and_type_of_plain_torchs(name: str, case: int) -> None:
    reference = getattr(plain_experts if name in EXPERTS else plain, name)
    mine, theirs = (_call(name, f, case, CPU, torch.bfloat16, 48, 16) for f in (getattr(fake.kernels(), name), reference))
    assert [(t.shape, t.dtype) for t in mine] == [(t.shape, t.dtype) for t in theirs]


@pytest.mark.parametrize(("row", "model", "mbs", "given"), [
    ("bf16@5.6b", WIDE, 4, {}),
    ("bf16-moments16@5.6b", WIDE, 4, {"moments": "bf16"}),
    ("fp8@5.6b", WIDE, 4, {"precision": "fp8"}),
    ("bf16@1.3b", NARROW, 16, {}),
    ("bf16-full@1.3b", NARROW, 16, {"recompute": "full"}),
])  # fmt: skip
def test_the_bytes_are_those_that_an_h200s_allocator_counted(row: str, model: Model, mbs: int, given: dict[str, Any]) -> None:
    recipe = Recipe()
    topology = replace(Topology(mbs=mbs, precision="bf16"), **{k: v for k, v in given.items() if k != "moments"})
    found = measure_memory(Trial(model=model, batch=Batch(gbs=mbs), topology=topology,
                       execution=Execution(moments=given.get("moments", "fp32"))), recipe, CPU, fake=True, as_gpu=True)
    assert found.peak_bytes / GIB == pytest.approx(MEASURED[row]["allocated_gib"], rel=0.01)
