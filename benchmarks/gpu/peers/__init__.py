"""Rows of others: the same shape, tokens, optimizer and clock as ours, in the form in which people run them.

    measure(row)        the row's `kind` names the module here whose `build` gives a step

Plain PyTorch and transformers are what a user could write. Megatron-core, torchtitan and DeepSpeed are imported where they are
installed, else from the folder that `--peers` names, which comes last on the path: what the machine has is taken first.
"""
from __future__ import annotations

import importlib
import os
import socket
import time
from typing import Any

from benchmarks.gpu.shapes import Row, trial_of
from benchmarks.gpu.steps import STEPS, device, timed

from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe

ADAMW: dict[str, Any] = {"lr": 1e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
CLIP = 1.0


def measure(row: Row, steps: int = STEPS) -> dict[str, Any]:
    began = time.perf_counter()
    trial = trial_of(row)
    tokens, targets = (t.to(device()) for t in Batches(Recipe(), trial.model, 1234).microbatch(0, trial.topology.mbs))
    step = importlib.import_module(f"benchmarks.gpu.peers.{row.kind}").build(row, trial, tokens, targets)
    built_s = time.perf_counter() - began
    return {"built_s": built_s, **timed(lambda _: float(step()), steps)}


def alone() -> None:
    """The environment of a launcher that started one process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
