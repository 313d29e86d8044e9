"""Any program as an engine: its argv is a template, its log is read by the formats that the importer knows.

    [command]
    per = "node"
    argv = ["torchrun", "--nproc-per-node", "{procs_per_node}", "pretrain_gpt.py", "--tensor-model-parallel-size", "{tp}"]

A program that writes events.jsonl itself is read like ours.
"""
from __future__ import annotations

import dataclasses
import string
import sys
from pathlib import Path
from typing import Any

from seatrial import columns, engines, fields, rules
from seatrial.engines.base import Per
from seatrial.engines.foreign import Foreign
from seatrial.errors import BadInput
from seatrial.recipe import Recipe
from seatrial.spec import Trial

LATE = ("rank", "local_rank", "node", "master_addr", "master_port")
"""Known only where the process starts."""


class Command(Foreign):
    applied = ("tp", "pp", "gbs")

    def per(self, trial: Trial) -> Per:
        assert trial.command is not None
        return trial.command.per

    def check(self, trial: Trial, recipe: Recipe, *, here: bool) -> None:
        if trial.command is None:
            raise BadInput(f"engine {trial.engine!r}: it is planned for and forecast, and no program of it is known here: a "
                           f"[command] with its argv says what to start; {', '.join(engines.started())} are run by their names")
        rules.check(trial)
        fill(trial.command.argv, template_values(trial, recipe, Path(".")))

    def argv(self, trial: Trial, recipe: Recipe, run_dir: Path) -> tuple[str, ...]:
        assert trial.command is not None
        return fill(trial.command.argv, template_values(trial, recipe, run_dir))


def template_values(trial: Trial, recipe: Recipe, run_dir: Path) -> dict[str, str]:
    """What a template may name: the trial's fields, and what only a launch knows."""
    values = resolved(trial) | {
        # As the launcher starts it: without a cluster all on one node.
        "nodes": trial.cluster.nodes if trial.cluster else 1,
        "procs_per_node": trial.cluster.procs_per_node if trial.cluster else trial.topology.world,
        "run_dir": run_dir, "python": trial.environment.python or sys.executable, "model": trial.model.name,
        "steps": recipe.steps, "seed": recipe.seed, "repeat": trial.repeat, "lr": recipe.lr, "clip": recipe.clip,
    }  # fmt: skip
    return {name: str(value) for name, value in values.items() if value is not None}


def resolved(trial: Trial) -> dict[str, Any]:
    """The trial's fields by their names, with what is left out as it holds: the family's choices, ZeRO's group, the widths."""
    m, t, x = trial.model, trial.topology, trial.execution
    chosen = dataclasses.asdict(m.architecture) | {
        "head_dim": m.head_size, "padded_vocab": m.padded_vocab(t.tp), "biased": m.architecture.biases == "all",
        "latent": m.latent is not None, "windows": m.has_windows, "sinks": m.sinks, "mtp": m.mtp,
        "documents": trial.batch.documents, "recompute_modules": "+".join(t.modules(m)),
        "zero_group": t.zero_group or t.data_ranks, "world": t.world, "microbatches": trial.microbatches,
        "compile": x.compile, "device": x.device, "optimizer": x.optimizer, "moments": x.moments}  # fmt: skip
    return columns.by_field(trial) | chosen


def fill(template: tuple[str, ...], values: dict[str, str]) -> tuple[str, ...]:
    """Each argument stays one argument, whatever a value holds."""
    return tuple(_fill(part, values) for part in template)


def _fill(text: str, values: dict[str, str]) -> str:
    out = []
    try:
        for literal, name, spec, conversion in string.Formatter().parse(text):
            out.append(literal)
            if name is None:
                continue
            if name in LATE and not spec and not conversion:
                out.append("{" + name + "}")
            elif name in values and not spec and not conversion:
                out.append(values[name])
            else:
                raise BadInput(f"command.argv: {text!r}: no such word {name!r}; {_words(name, [*values, *LATE])}")
    except ValueError as error:
        raise BadInput(f"command.argv: {text!r}: {error}; a brace of its own is written twice") from None
    return "".join(out)


def _words(name: str, known: list[str]) -> str:
    """The nearest, and all that there are."""
    near, every = fields.nearest(name, known), f"known are {', '.join(sorted(known))}"
    return near if near == every else f"{near} {every}"
