"""The host's own time: what one layer and one iteration cost when the tensors are too small to take any.

The engine trains a model of a few numbers with one layer and with nine; the difference is what a layer takes, the rest what an
iteration takes. Before the ranks have met: here nobody waits for anybody.
"""
from __future__ import annotations

import time
from dataclasses import replace

import torch

from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.fast import choose
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.io.data import Batches
from seatrial.probe.timing import Sample, summary
from seatrial.spec import Batch, Execution, Model, Topology, Trial
from seatrial.training import Training

FEW, MANY = 1, 9
SEQ = 8


def figure(device: torch.device, *, repeats: int) -> dict[str, float]:
    few, few_forward = _steps(FEW, device, repeats)
    many, many_forward = _steps(MANY, device, repeats)
    each = max((many.s - few.s) / (MANY - FEW), 1e-7)
    forward = min(max((many_forward.s - few_forward.s) / (MANY - FEW), 1e-8), 0.9 * each)
    return {"forward_s": forward, "backward_s": each - forward, "fixed_s": max(few.s - each * FEW, 1e-6),
            "spread": max(few.spread, many.spread)}


def _steps(layers: int, device: torch.device, repeats: int) -> tuple[Sample, Sample]:
    """Of a whole iteration, and of a forward pass alone."""
    model = Model(layers=layers, hidden=32, heads=2, vocab=64, seq=SEQ)
    trial = Trial(model=model, batch=Batch(gbs=1), topology=Topology(precision="bf16" if device.type == "cuda" else "fp32"),
                  execution=Execution(device=device.type))  # type: ignore[arg-type]
    training = Training(steps=1_000_000)
    # Triton's kernels would be compiled for widths that nobody has.
    config = KernelConfig.of(device, trial.topology.precision)
    ops = choose.build(replace(config, triton=(), attention="default"), trial, device)
    engine = Engine(trial, training, Mesh(trial.topology, device=device), ops=ops)
    batches = Batches(training, model, training.seed)
    steps, forwards = [], []
    for number in range(1, repeats + 4):
        began = time.perf_counter()
        engine.step(number, first_sample=0, batches=batches)
        steps.append(time.perf_counter() - began)
        began = time.perf_counter()
        engine.evaluate(batches, first_sample=0, samples=1)
        forwards.append(time.perf_counter() - began)
    return summary(steps[3:]), summary(forwards[3:])
