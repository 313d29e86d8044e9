"""A program that is not ours, read from what it prints: progress by its log's format, its end by its own error.

    class Mine(Foreign): …          gives `argv`; events, failures and what was applied come from the logs
    Mine().events(run_dir)          iterations, memory, and a `failure` for each rank that said an error of its own
    Mine().differs(trial, run_dir)  what the engine says that it did, where that is not what was asked

The reader is the importer's (`notes.read`): what `seatrial import` makes of a log afterwards is what a trial is made of.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial import columns
from seatrial.engines import words
from seatrial.engines.base import LOGS, Adapter, Event, read_events
from seatrial.errors import BadInput
from seatrial.record import Record, Status
from seatrial.spec import Trial

START = "seatrial-engine "
"""What a driver of ours says first: the versions and the device, as JSON."""
LOST = "seatrial-nan "
"""What it says when the loss of its own rank, or what a stage of it hands on, is no number, before it is summed over all."""
SAID = "seatrial-applied "
"""What a program says that it built, as JSON by the fields of a trial."""
OF_STEP = ("step", "sec", "loss", "grad_norm", "gbs", "skipped", "loss_scale", "tflops")
APPLIED = (*columns.DEGREES, "vp", "gbs", "seq", "layers", "hidden", "heads", "kv_heads", "dtype", "recompute")
"""What an engine may say that it applied, by the columns of a record."""


class Foreign(Adapter):
    format: str = ""
    """Of its log: a file of one's own; empty where one of those that are shipped reads it."""
    applied: tuple[str, ...] = APPLIED
    """Of what it prints as applied, the columns that mean what ours do."""

    def events(self, run_dir: Path, *, after: int = 0) -> list[Event]:
        found = read_events(run_dir, after=after) or self.read(run_dir)
        if any(e["event"] == "failure" for e in found):
            return found
        phase = "training" if any(e["event"] == "iteration" for e in found) else "start"
        return [*found, *({**failure, "phase": phase} for failure in failures(run_dir))]

    def ended(self, events: list[Event]) -> bool:
        return any(e["event"] in ("end", "iteration") for e in events)

    def status_of(self, run_dir: Path) -> Status:
        """It leaves only text: the usual last words of allocators, kernels and schedulers."""
        from seatrial.notes.read.ends import ended_by

        said = (ended_by(0, line) for path in logs(run_dir) for line in tail(path).splitlines())
        return next((end.status for end in said if end is not None), "crash")

    def read(self, run_dir: Path, *, rank: int | None = None) -> list[Event]:
        """From the logs alone; of one rank, whoever only wants to know how far it is."""
        runs = {path: self.run_in(path) for path in logs(run_dir) if rank is None or rank_of(path) == rank}
        best = max(runs, key=lambda path: _worth(runs[path]), default=None)
        start = _said(run_dir, START)
        found: list[Event] = [{"event": "start", **start}] if start else []
        if best is None or (run := runs[best]) is None:
            return found
        found += _iterations(run)
        if any(isinstance(e.get("loss"), str) for e in found):
            ranks = _lost(run_dir)
            found = [{**e, "nan_ranks": ranks[e["step"]]} if e.get("step") in ranks else e for e in found]
        memory = {path: run.mem_gib for path, run in runs.items() if run is not None and run.mem_gib is not None}
        if memory:
            fullest = max(memory, key=lambda path: memory[path] or 0.0)
            kept = runs[fullest]
            assert kept is not None
            on_cpu = any(e.get("device") == "cpu" for e in found)
            measure = "rss_peak_gib" if on_cpu else f"{kept.mem_measure or 'used'}_peak_gib"
            found.append({"event": "memory", "step": run.iteration, "mem_gib": memory[fullest], "rank": rank_of(fullest),
                          "fullest": {measure: memory[fullest], **kept.memory}})
        return found

    def run_in(self, path: Path) -> Record | None:
        """The last run that a log holds, as the importer reads it."""
        from seatrial.notes.read import iter_file

        try:
            rows = [row for row in iter_file(path, format=self.format or None) if isinstance(row, Record)]
        except BadInput:
            return None  # empty, or no text at all
        return rows[-1] if rows else None

    def differs(self, trial: Trial, run_dir: Path) -> dict[str, tuple[Any, Any]]:
        """Column -> (asked, applied), of what the log says and does not agree."""
        asked = columns.flat(trial)
        if said := _said(run_dir, SAID):
            found = {columns.BY_FIELD[field].name: value for field, value in said.items() if field in columns.BY_FIELD}
            return _others(asked, found)
        if trial.batch.rampup_start is not None:
            asked["gbs"] = None  # it may have ended before the last size
        runs = [run for path in logs(run_dir) if (run := self.run_in(path)) is not None and run.iteration is not None]
        run = max(runs, key=_worth, default=None)
        found = {name: getattr(run, name, None) for name in self.applied if name in asked} if run is not None else {}
        return _others(asked, found)


def _others(asked: dict[str, Any], found: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (asked[name], value) for name, value in found.items()
            if value not in (None, "") and asked[name] is not None and value != asked[name]}


def logs(run_dir: Path) -> list[Path]:
    return sorted((run_dir / LOGS).glob("*.log"), key=lambda path: (rank_of(path), path.name))


def rank_of(log: Path) -> int:
    """Of `rank3.log`, and of a node's the node."""
    digits = "".join(c for c in log.stem if c.isdigit())
    return int(digits) if digits else 0


def _worth(run: Record | None) -> tuple[bool, bool, int, int]:
    """The log that says most: losses (stages but the last have none, or say a negative one), times, then how many steps."""
    if run is None:
        return (False, False, 0, 0)
    steps = run.iterations or ({"loss": run.loss, "sec": run.sec_per_it},)
    losses = [step for step in steps if isinstance(loss := step.get("loss"), int | float) and loss >= 0]
    return bool(losses), any("sec" in step for step in steps), len(steps), len(losses)


def _iterations(run: Record) -> Iterator[Event]:
    """The steps of a run; a loss that was printed and is no number is a word, as in our own events."""
    steps = run.iterations or ({"step": run.iteration, "loss": run.loss, "sec": run.sec_per_it, "tflops": run.tflops},)
    lost = run.outcome is not None and run.outcome.status == "nan"
    for step in steps:
        event: Event = {"event": "iteration", **{k: step[k] for k in OF_STEP if step.get(k) is not None}}
        if event.get("step") is None:
            continue
        if run.gbs is not None:
            event.setdefault("gbs", run.gbs)
        if lost and "loss" not in event:
            event["loss"] = "nan"
        if run.breakdown and step is steps[-1]:
            event["timers"] = dict(run.breakdown)
        yield event


def _lost(run_dir: Path) -> dict[int, list[int]]:
    """Step -> the ranks whose own loss, or what a stage of theirs handed on, was no number; those of the first stage first."""
    found: dict[int, list[tuple[int, int]]] = {}
    for path in logs(run_dir):
        for line in tail(path).splitlines():
            if line.startswith(LOST):
                try:
                    said = json.loads(line[len(LOST):])
                    found.setdefault(said["step"], []).append((int(said.get("stage", 0)), int(said["rank"])))
                except (ValueError, KeyError, TypeError):
                    continue
    return {step: [rank for _, rank in sorted(ranks)] for step, ranks in found.items()}


def _said(run_dir: Path, mark: str) -> dict[str, Any]:
    """The JSON behind a mark, of the first log that has it; empty where none does."""
    for path in logs(run_dir):
        for line in lines(path, has=mark):
            if line.startswith(mark):
                try:
                    found = json.loads(line[len(mark):])
                except ValueError:
                    continue
                if isinstance(found, dict):
                    return found
    return {}


def lines(path: Path, *, has: str, most: int = 2000) -> Iterator[str]:
    """Of the beginning of a log, where an engine says what it is and does: Megatron's arguments alone are a thousand."""
    try:
        with path.open(errors="replace") as file:
            yield from (line for _, line in zip(range(most), file) if has in line)
    except OSError:
        return


def failures(run_dir: Path) -> list[Event]:
    """An event for each rank whose log ends in an error, as our engine's ranks write it themselves; the cause first."""
    found: list[Event] = []
    for path in logs(run_dir):
        # What a rank said long before its end, it got over; on a node all ranks' last words stand one behind the other.
        text = tail(path, words.LAST_BYTES if path.name.startswith("rank") else words.TAIL_BYTES)
        said, first = words.errors(text), words.first_rank(text)
        own: dict[int, list[words.Said]] = {}
        for one in said:
            rank = next(rank for rank in (one.rank, first, rank_of(path)) if rank is not None)
            own.setdefault(rank, []).append(one)
        for rank, mine in own.items():
            if (why := words.cause(mine)) is not None:
                found.append({"event": "failure", "rank": rank, "status": why.status, "error": why.kind, "message": why.text,
                              "part": "an allocation", "line": why.line, "consequence": why.consequence,
                              "time": path.stat().st_mtime})
    return sorted(found, key=lambda e: (e["consequence"], e["time"]))


def tail(path: Path, most: int = words.TAIL_BYTES) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
