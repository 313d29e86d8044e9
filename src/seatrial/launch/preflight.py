"""What can be known to be wrong before any rank starts: one line each, and nothing has been written.

    preflight.check(trial, training)        raises BadInput; returns the checkpoint to resume from, if there is one
"""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seatrial import rules
from seatrial.errors import BadInput, Infeasible
from seatrial.spec import Trial
from seatrial.training import Training

if TYPE_CHECKING:
    from seatrial.engine.io.checkpoint import Found

PRECISIONS = ("fp32", "bf16", "fp16")


def check(trial: Trial, training: Training) -> Found | None:
    rules.check(trial)
    if trial.engine != "seatrial":
        raise BadInput(f"engine {trial.engine!r}: this command runs our own; leave it out")
    if trial.topology.precision not in PRECISIONS:
        eight_bits(trial)
    devices(trial)
    if training.data is not None or training.valid_data is not None:
        from seatrial.engine.io import data

        data.check(training, trial.model)
    return checkpoints(trial, training)


def eight_bits(trial: Trial) -> None:
    """fp8 is the one precision that depends on the device."""
    there = trial.execution.device != "cpu" and gpus() > 0
    why = "needs a GPU with 8-bit matrix products"
    if there:
        import torch

        from seatrial.engine.fast import fp8

        fp8.check_shape(trial.model, trial.topology, compiled=trial.execution.compile)
        why = fp8.refuse(torch.device("cuda")) or ""
    if why:
        raise Infeasible(f"precision {trial.topology.precision}: {why}; here the engine has {', '.join(PRECISIONS)}",
                         code="precision")


def devices(trial: Trial) -> None:
    """Processes share cores, but not GPUs."""
    if trial.execution.device == "cpu":
        return
    there = gpus()
    if trial.execution.device == "cuda" and there == 0:
        raise Infeasible("execution.device is cuda, but this machine has no CUDA device: use cpu or auto", code="devices")
    if 0 < there < trial.topology.world:
        t = trial.topology
        raise Infeasible(f"DP {t.dp} x TP {t.tp} x PP {t.pp} = {t.world} processes, but this machine has {there} CUDA "
                         f"device{'s' if there > 1 else ''}: use a topology of {there}, or execution.device = \"cpu\"",
                         code="devices")


def gpus() -> int:
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return 0  # most machines that plan have none, and asking torch takes seconds
    import torch

    return torch.cuda.device_count()


def checkpoints(trial: Trial, training: Training) -> Found | None:
    if training.checkpoint_dir is None:
        if training.resume or training.save_every:
            name = "resume" if training.resume else "save_every"
            raise BadInput(f"training.{name} needs training.checkpoint_dir")
        return None
    if not Path(training.checkpoint_dir).exists():
        if training.resume:
            raise BadInput(f"{training.checkpoint_dir}: no such folder to resume from")
        return None
    from seatrial.engine.io import checkpoint

    found = checkpoint.check(training.checkpoint_dir, trial.model, resume=training.resume)
    if training.resume and found is None:
        raise BadInput(f"{training.checkpoint_dir}: holds no whole checkpoint to resume from")
    if found is not None and found.step >= training.steps:
        raise BadInput(f"{found.folder}: is of step {found.step}, training.steps is {training.steps}: nothing is left to do")
    return found
