"""Engines behind one interface: what to start for a trial, and what it said afterwards.

    engine = engine_for(trial)
    engine.job(trial, training, run_dir=…)          the argv of a rank or a node
    engine.said(run_dir)                            events in our own words, whoever wrote them

Ours reads run.json and writes events.jsonl. `command` is any program: its argv is a template ({tp}, {gbs}, {run_dir}, …), its
iteration lines are read as Megatron's many versions print them. A program that writes events.jsonl itself is read like ours.
"""
from __future__ import annotations

import string
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from seatrial import fields
from seatrial.engine import events, runfile
from seatrial.errors import BadInput
from seatrial.launch import environment, files, preflight
from seatrial.launch.base import Per
from seatrial.record import Record
from seatrial.spec import Trial
from seatrial.training import Training

Event = dict[str, Any]
LATE = ("rank", "local_rank", "node", "master_addr", "master_port")
"""Known only where the process starts."""


class Adapter(Protocol):
    per: Per

    def check(self, trial: Trial, training: Training) -> None:
        """Raises BadInput for what cannot run; nothing has been written then."""

    def argv(self, trial: Trial, training: Training, run_dir: Path) -> tuple[str, ...]: ...

    def said(self, run_dir: Path) -> list[Event]:
        """Events of all ranks in the order of their time."""


def engine_for(trial: Trial) -> Adapter:
    if trial.command is not None:
        return Other(trial.command.per)
    if trial.engine != "seatrial":
        raise BadInput(f"engine {trial.engine!r}: [command] must give its argv")
    return Ours()


class Ours:
    per: Per = "rank"

    def check(self, trial: Trial, training: Training) -> None:
        preflight.check(trial, training)

    def argv(self, trial: Trial, training: Training, run_dir: Path) -> tuple[str, ...]:
        return (trial.environment.python or sys.executable, "-m", "seatrial.engine", str(run_dir / files.RUN))

    def said(self, run_dir: Path) -> list[Event]:
        return read_events(run_dir)


class Other:
    """The `command` engine."""

    def __init__(self, per: Per):
        self.per: Per = per

    def check(self, trial: Trial, training: Training) -> None:
        from seatrial import rules

        rules.check(trial)
        assert trial.command is not None
        fill(trial.command.argv, words_of(trial, training, Path(".")))

    def argv(self, trial: Trial, training: Training, run_dir: Path) -> tuple[str, ...]:
        assert trial.command is not None
        return fill(trial.command.argv, words_of(trial, training, run_dir))

    def said(self, run_dir: Path) -> list[Event]:
        return read_events(run_dir) or read_log(run_dir)


def read_events(run_dir: Path) -> list[Event]:
    paths = [run_dir / events.FILE_NAME, *sorted(run_dir.glob("events.rank*.jsonl"))]
    found = [event for path in paths if path.exists() for event in events.read_events(path)]
    return sorted((e for e in found if isinstance(e.get("event"), str)), key=_time)


def _time(event: Event) -> float:
    time = event.get("time", 0.0)
    return time if isinstance(time, int | float) else 0.0


def rows_in_logs(run_dir: Path) -> Iterator[list[Record]]:
    """What the importer makes of each process's log."""
    from seatrial.notes.read import iter_file

    for path in sorted((run_dir / files.LOGS).glob("*.log")):
        try:
            yield [row for row in iter_file(path) if isinstance(row, Record)]
        except BadInput:
            continue  # empty, or no text at all


def read_log(run_dir: Path) -> list[Event]:
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


def words_of(trial: Trial, training: Training, run_dir: Path) -> dict[str, str]:
    """What a template may name."""
    m, t = trial.model, trial.topology
    world = t.world
    per_node = trial.cluster.procs_per_node if trial.cluster else world
    words: dict[str, object] = {
        "run_dir": run_dir, "python": trial.environment.python or sys.executable, "model": m.name, "family": m.family,
        "layers": m.layers, "hidden": m.hidden, "heads": m.heads, "kv_heads": m.kv, "ffn": m.inner, "vocab": m.vocab,
        "seq": m.seq, "gbs": trial.batch.gbs, "microbatches": trial.microbatches, "world": world, "procs_per_node": per_node,
        "nodes": max(1, world // per_node), "steps": training.steps, "seed": training.seed, "repeat": trial.repeat,
        **{f: getattr(t, f) for f in ("dp", "tp", "pp", "vp", "mbs", "zero", "recompute", "schedule", "precision")},
    }  # fmt: skip
    return {name: str(value) for name, value in words.items()}


def fill(template: tuple[str, ...], words: dict[str, str]) -> tuple[str, ...]:
    """Each argument stays one argument, whatever a value holds."""
    return tuple(_fill(part, words) for part in template)


def _fill(text: str, words: dict[str, str]) -> str:
    out = []
    try:
        for literal, name, spec, conversion in string.Formatter().parse(text):
            out.append(literal)
            if name is None:
                continue
            if name in LATE and not spec and not conversion:
                out.append("{" + name + "}")
            elif name in words and not spec and not conversion:
                out.append(words[name])
            else:
                raise BadInput(f"command.argv: {text!r}: no such word {name!r}; {fields.nearest(name, [*words, *LATE])}")
    except ValueError as error:
        raise BadInput(f"command.argv: {text!r}: {error}; a brace of its own is written twice") from None
    return "".join(out)


def write_run(trial: Trial, training: Training, run_dir: Path) -> None:
    runfile.write(runfile.RunFile(trial=environment.public(trial), training=training, out=str(run_dir)), run_dir / files.RUN)
