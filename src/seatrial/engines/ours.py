"""Our own engine: reads run.json, writes events.jsonl; what it can refuse before a rank starts, it refuses here.

    Ours().check(trial, recipe, here=True)        rules, shapes, data and checkpoints
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial import rules
from seatrial.engines.base import RUN, Adapter
from seatrial.errors import BadInput, Infeasible
from seatrial.recipe import Recipe
from seatrial.spec import Trial

if TYPE_CHECKING:
    from seatrial.engine.io.checkpoint import Found

PRECISIONS = ("fp32", "bf16", "fp16")
"""That every device has; fp8 depends on it."""


class Ours(Adapter):
    says_end = True

    def device(self, trial: Trial) -> str:
        return trial.execution.device

    def check(self, trial: Trial, recipe: Recipe, *, here: bool) -> None:
        rules.check(trial)
        if trial.topology.precision not in PRECISIONS:
            if trial.execution.device == "cpu":
                raise Infeasible(f"precision {trial.topology.precision}: needs a GPU, and execution.device is cpu; a CPU has "
                                 f"{', '.join(PRECISIONS)}", code="precision")
            from seatrial.engine.fast import fp8

            fp8.check_shape(trial.model, trial.topology, compiled=trial.execution.compile)
        if recipe.checkpoint_dir is None and (recipe.resume or recipe.save_every):
            raise BadInput(f"recipe.{'resume' if recipe.resume else 'save_every'} needs recipe.checkpoint_dir")
        # What is not on this machine may be on the nodes; what is there is read now rather than after hours in a queue.
        named = [path for path in (recipe.data, recipe.valid_data) if path is not None]
        if named and (here or all(_is_here(path) for path in named)):
            from seatrial.engine.io import data

            data.check(recipe, trial.model, trial.batch)
        if recipe.checkpoint_dir is not None and (here or _is_here(recipe.checkpoint_dir)):
            resumed_from(trial, recipe)

    def argv(self, trial: Trial, recipe: Recipe, run_dir: Path) -> tuple[str, ...]:
        return (trial.environment.python or sys.executable, "-m", "seatrial.engine", str(run_dir / RUN))


def _is_here(path: str) -> bool:
    """A folder, a file, or the name that the files of a corpus begin with."""
    return Path(path).exists() or any(Path(path).parent.glob(f"{Path(path).name}.*"))


def resumed_from(trial: Trial, recipe: Recipe) -> Found | None:
    """The checkpoint that a run goes on from; None for one that starts anew."""
    assert recipe.checkpoint_dir is not None
    if not Path(recipe.checkpoint_dir).exists():
        if recipe.resume:
            raise BadInput(f"{recipe.checkpoint_dir}: no such folder to resume from")
        return None
    from seatrial.engine.io import checkpoint

    found = checkpoint.check(recipe.checkpoint_dir, trial.model, resume=recipe.resume)
    if recipe.resume and found is None:
        raise BadInput(f"{recipe.checkpoint_dir}: holds no whole checkpoint to resume from")
    if found is not None and found.step >= recipe.steps:
        raise BadInput(f"{found.folder}: is of step {found.step}, recipe.steps is {recipe.steps}: nothing is left to do")
    return found
