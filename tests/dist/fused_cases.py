"""Trials with the choices of a GPU, run on the CPU: what the ranks of a test execute."""
from __future__ import annotations

import torch

from seatrial.engine.choices import Choices
from seatrial.engine.data import Batches
from seatrial.engine.mesh import Mesh, Pool
from seatrial.engine.step import Engine
from seatrial.spec import Trial
from seatrial.training import Training


def train_with(cases: dict[str, tuple[Trial, Choices | None]], training: Training) -> dict[str, list[tuple[float, float]]]:
    """Loss and gradient norm of each step of each case, in the world that this process is in."""
    pool: Pool = {}
    found = {}
    for label, (trial, choices) in cases.items():
        mesh = Mesh(trial.topology, device=torch.device("cpu"), pool=pool)
        engine = Engine(trial, training, mesh, choices=choices)
        batches = Batches(training, trial.model, training.seed)
        results = [engine.step(i + 1, first_sample=trial.batch.gbs * i, batches=batches) for i in range(training.steps)]
        found[label] = [(r.loss, r.grad_norm) for r in results]
        mesh.close()
    return found
