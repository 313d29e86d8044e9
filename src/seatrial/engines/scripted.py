"""An engine in a Python of its own: its rules, its native configuration, and a script that starts it.

    class Mine(Scripted):
        name, module = "mine", "mine"
        def why_not(self, trial): …             its own rules, each a `Violation` with the numbers
        def files(self, trial, recipe): …       file name -> text: what it is told
        def start(self, trial, folder): …       what its Python is started with, once a rank

    Mine().emitted(trial, recipe)               the same files with train.sh, for `plan --emit`

Ranks are started by our launchers with the variables that torchrun would set, so exit codes, memory and who failed first are
seen as for our own engine.
"""
from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from seatrial import rules
from seatrial.engines import homes
from seatrial.engines.foreign import Foreign
from seatrial.errors import BadInput, Infeasible
from seatrial.files import save
from seatrial.recipe import Recipe
from seatrial.rules import Violation
from seatrial.spec import Execution, Trial, stages_of

WHICH_NODE = '''if [ -n "$SLURM_JOB_NODELIST" ]; then  # srun starts it once a node
    : "${NODE_RANK:=$SLURM_NODEID}" "${MASTER_ADDR:=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}"
fi
: "${NODE_RANK:?0 on the first node, 1 on the next}" "${MASTER_ADDR:?the name of the first node}"
'''
"""Lines of a script that is started on each of several nodes: which of them this is, and where they meet."""
TORCHRUN = '--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}"'


def driver(name: str) -> str:
    """The path of a file in `drivers`, which an engine's Python runs: it has no seatrial."""
    return str(Path(__file__).parent / "drivers" / name)


def on_cpu(trial: Trial) -> bool:
    """Whether its own words say so; what `auto` finds on a machine is the launcher's business."""
    if trial.execution.device == "auto":
        return trial.cluster is not None and trial.cluster.device.kind == "cpu"
    return trial.execution.device == "cpu"


class Scripted(Foreign):
    name: str = ""
    module: str = ""
    """What its Python must have."""
    model: str = ""
    """The engine model that forecasts it."""
    otherwise: tuple[str, ...] = ()
    """Codes of rules of all engines that it has in another form, among those of `why_not`."""

    takes: tuple[str, ...] = ()
    """Fields of [execution] beyond device and compile that it is told."""
    unrehearsed: str = ""
    """Why no rank of it is rehearsed, and what would do; empty where one is."""
    without_layers: bool = False
    """Whether a stage may have the embedding or the head alone, where stages are more than layers."""

    def device(self, trial: Trial) -> str:
        return trial.execution.device

    def why_not(self, trial: Trial) -> Iterator[Violation]:
        """What it cannot run, beyond what no engine can."""
        yield from ()

    def files(self, trial: Trial, recipe: Recipe) -> dict[str, str]:
        return {}

    def start(self, trial: Trial, folder: Path) -> tuple[str, ...]:
        """Arguments of its Python, once a rank, with the files in `folder`."""
        raise NotImplementedError

    def by_hand(self, trial: Trial, recipe: Recipe) -> tuple[str, ...]:
        """The same from inside the folder, under torchrun."""
        raise NotImplementedError

    def can_run(self, trial: Trial) -> None:
        m, t = trial.model, trial.topology
        if self.without_layers and t.stage_layers is None and m.layers < t.pp * t.vp:
            trial = replace(trial, topology=replace(t, stage_layers=stages_of(m, t)))
        everyones = (wrong for wrong in rules.violations(trial) if wrong.code not in self.otherwise)
        for wrong in itertools.chain(everyones, self.why_not(trial)):
            if wrong.level == "error":
                raise Infeasible(wrong.message, code=wrong.code)
        if on_cpu(trial) and (why := self.needs_gpu(trial)):
            raise Infeasible(why, code="devices")

    def check(self, trial: Trial, recipe: Recipe, *, here: bool) -> None:
        self.can_run(trial)
        for name in ("data", "valid_data", "resume", "save_every", "trace_steps", "tensorboard"):
            if getattr(recipe, name):
                raise BadInput(f"recipe.{name}: a trial of {self.name} trains on random tokens and saves nothing; leave it out")
        if trial.execution.moments != "fp32":
            raise BadInput(f"execution.moments {trial.execution.moments}: {self.name} has fp32")
        usual = Execution()
        for name in ("attention", "overlap", "optimizer", "logits_chunk"):
            if name not in self.takes and (asked := getattr(trial.execution, name)) != getattr(usual, name):
                raise BadInput(f"execution.{name} {asked}: {self.name} has what it has, and is not told; leave it out")
        if here:
            homes.python_of(self.name, self.module, trial)

    def argv(self, trial: Trial, recipe: Recipe, run_dir: Path) -> tuple[str, ...]:
        for name, text in self.files(trial, recipe).items():
            save(run_dir / name, text)
        return homes.python_of(self.name, self.module, trial), *self.start(trial, run_dir)

    def emitted(self, trial: Trial, recipe: Recipe) -> dict[str, str]:
        """What `plan --emit` writes. Raises BadInput with every reason where this engine cannot run it."""
        if wrong := [one.message for one in self.why_not(trial) if one.level == "error"]:
            raise BadInput("; ".join(wrong))
        return {**self.files(trial, recipe), "train.sh": self._script(trial, recipe)}

    def _script(self, trial: Trial, recipe: Recipe) -> str:
        many = f"--nnodes {trial.nodes} {TORCHRUN} " if trial.nodes > 1 else "--standalone "
        started = " ".join(shlex.quote(word) for word in self.by_hand(trial, recipe))
        return ("#!/bin/bash\n"
                f"# Once a node, with a Python that has {self.module}; {trial.topology.product}.\n"
                'cd "$(dirname "$0")"\n'
                f'{WHICH_NODE if trial.nodes > 1 else ""}'
                f'PYTHONPATH=.:$PYTHONPATH exec python -m torch.distributed.run {many}--nproc-per-node {trial.procs_per_node} '
                f'{started} "$@"\n')
