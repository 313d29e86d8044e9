"""Our own engine: reads run.json, writes events.jsonl; what it can refuse before a rank starts, it refuses here.

    Ours().check(trial, training, here=True)        rules, shapes, data and checkpoints
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial import rules
from seatrial.engines.base import RUN, Adapter
from seatrial.errors import BadInput, Infeasible
from seatrial.spec import Trial
from seatrial.training import Training

if TYPE_CHECKING:
    from seatrial.engine.io.checkpoint import Found

PRECISIONS = ("fp32", "bf16", "fp16")
"""That every device has; fp8 depends on it."""


class Ours(Adapter):
    def device(self, trial: Trial) -> str:
        return trial.execution.device

    def check(self, trial: Trial, training: Training, *, here: bool) -> None:
        rules.check(trial)
        if trial.topology.precision not in PRECISIONS:
            if trial.execution.device == "cpu":
                raise Infeasible(f"precision {trial.topology.precision}: needs a GPU, and execution.device is cpu; a CPU has "
                                 f"{', '.join(PRECISIONS)}", code="precision")
            from seatrial.engine.fast import fp8

            fp8.check_shape(trial.model, trial.topology, compiled=trial.execution.compile)
        if training.checkpoint_dir is None and (training.resume or training.save_every):
            raise BadInput(f"training.{'resume' if training.resume else 'save_every'} needs training.checkpoint_dir")
        # What is not on this machine may be on the nodes; what is there is read now rather than after hours in a queue.
        named = [path for path in (training.data, training.valid_data) if path is not None]
        if named and (here or all(_is_here(path) for path in named)):
            from seatrial.engine.io import data

            data.check(training, trial.model)
        if training.checkpoint_dir is not None and (here or _is_here(training.checkpoint_dir)):
            resumed_from(trial, training)

    def argv(self, trial: Trial, training: Training, run_dir: Path) -> tuple[str, ...]:
        return (trial.environment.python or sys.executable, "-m", "seatrial.engine", str(run_dir / RUN))


def _is_here(path: str) -> bool:
    """A folder, a file, or the name that the files of a corpus begin with."""
    return Path(path).exists() or any(Path(path).parent.glob(f"{Path(path).name}.*"))


def resumed_from(trial: Trial, training: Training) -> Found | None:
    """The checkpoint that a run goes on from; None for one that starts anew."""
    assert training.checkpoint_dir is not None
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
