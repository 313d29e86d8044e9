"""Any program as an engine: its argv is a template, its iteration lines are read as Megatron's many versions print them.

    [command]
    per = "node"
    argv = ["torchrun", "--nproc-per-node", "{procs_per_node}", "pretrain_gpt.py", "--tensor-model-parallel-size", "{tp}"]

A program that writes events.jsonl itself is read like ours.
"""
from __future__ import annotations

import string
import sys
from collections.abc import Iterator
from pathlib import Path

from seatrial import columns, fields, rules
from seatrial.engines.base import LOGS, Adapter, Event, Per, read_events
from seatrial.errors import BadInput
from seatrial.recipe import Recipe
from seatrial.record import Record, Status
from seatrial.spec import Trial

LATE = ("rank", "local_rank", "node", "master_addr", "master_port")
"""Known only where the process starts."""


class Command(Adapter):
    def per(self, trial: Trial) -> Per:
        assert trial.command is not None
        return trial.command.per

    def check(self, trial: Trial, recipe: Recipe, *, here: bool) -> None:
        if trial.command is None:
            raise BadInput(f"engine {trial.engine!r}: [command] must give its argv")
        rules.check(trial)
        fill(trial.command.argv, template_values(trial, recipe, Path(".")))

    def argv(self, trial: Trial, recipe: Recipe, run_dir: Path) -> tuple[str, ...]:
        assert trial.command is not None
        return fill(trial.command.argv, template_values(trial, recipe, run_dir))

    def events(self, run_dir: Path, *, after: int = 0) -> list[Event]:
        return read_events(run_dir, after=after) or read_logs(run_dir)

    def ended(self, events: list[Event]) -> bool:
        return any(e["event"] in ("end", "iteration") for e in events)

    def status_of(self, run_dir: Path) -> Status:
        """It leaves only text: the importer knows the usual last lines."""
        rows = (row for log in rows_in_logs(run_dir) for row in log)
        return next((row.outcome.status for row in rows if row.outcome is not None and row.outcome.status != "ok"), "crash")


def template_values(trial: Trial, recipe: Recipe, run_dir: Path) -> dict[str, str]:
    """What a template may name: the trial's fields, and what only a launch knows."""
    values = columns.by_field(trial) | {
        # As the launcher starts it: without a cluster all on one node.
        "nodes": trial.cluster.nodes if trial.cluster else 1,
        "procs_per_node": trial.cluster.procs_per_node if trial.cluster else trial.topology.world,
        "run_dir": run_dir, "python": trial.environment.python or sys.executable, "model": trial.model.name,
        "world": trial.topology.world, "microbatches": trial.microbatches, "steps": recipe.steps, "seed": recipe.seed,
        "repeat": trial.repeat,
    }  # fmt: skip
    return {name: str(value) for name, value in values.items() if value is not None}


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


def rows_in_logs(run_dir: Path) -> Iterator[list[Record]]:
    """What the importer makes of each process's log."""
    from seatrial.notes.read import iter_file

    for path in sorted((run_dir / LOGS).glob("*.log")):
        try:
            yield [row for row in iter_file(path, each=True) if isinstance(row, Record)]
        except BadInput:
            continue  # empty, or no text at all


def read_logs(run_dir: Path) -> list[Event]:
    """Iteration lines of whichever process prints them (the last rank, with Megatron), as events."""
    rows = max(rows_in_logs(run_dir), key=len, default=[])
    found: list[Event] = []
    for row in rows:
        if row.iteration is None:
            continue
        event: Event = {"event": "iteration", "step": row.iteration, "loss": row.loss, "sec": row.sec_per_it,
                        "gbs": row.gbs, "tflops": row.tflops, "timers": row.breakdown or None}
        found.append({k: v for k, v in event.items() if v is not None})
        if row.mem_gib is not None:
            found.append({"event": "memory", "step": row.iteration, "mem_gib": row.mem_gib, "fullest": row.memory})
    return found
