"""What is running in a logbook right now, from the files that the runs leave: no process is queried.

    live.running(Path("book"))          [{"session": …, "phase": "forward", "step": 3, "left_s": 12.0, "line": " iteration …"}]
    live.sweeps(Path("book"))           [{"name": "first", "done": 3, "total": 6, "left_s": 40.0, "state": "running"}]

A trial runs when its folder has been prepared, has no record yet and has shown a sign of life lately. Its heartbeat is a few
bytes that each rank writes; time left is what its own iterations say. A program of somebody else has only its log: how far it
is, is what its newest lines say.
"""
from __future__ import annotations

import heapq
import json
import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial import columns, fields
from seatrial.columns import COLUMNS
from seatrial.engine.watch import heartbeat
from seatrial.errors import SeatrialError
from seatrial.launch import files
from seatrial.spec import Trial
from seatrial.sweep.board import posted

QUIET_S = 600.0
"""Without a sign of life for longer, a folder is what a killed controller left."""
MOST_SHOWN = 32
TAIL_BYTES = 8192
MOST_LOGS = 4
"""Those written to last: one rank of a program prints its progress, and that is often not the first."""
PROGRESS = re.compile(r"\b(?:iteration|iter|step)s?\b\s*:?\s*(\d+)\s*(?:/|\bof\b)\s*(\d+)", re.IGNORECASE)
"""`iteration 39/ 40 |`, `step 39 of 40`: Megatron's line and its kin."""
ELAPSED = re.compile(r"elapsed time per iteration \((m?s)\)\s*:\s*(\d+(?:\.\d+)?)")


def running(book: Path) -> list[dict[str, Any]]:
    found = []
    root = book / "runs"
    for session in _folders(root):
        for run_dir in _folders(session):
            if run_dir.name.endswith(".interrupted") or (run_dir / files.RECORD).exists():
                continue
            one = _trial(run_dir, session.name)
            if one is not None:
                found.append(one)
    return sorted(found, key=lambda one: one["since"])[:MOST_SHOWN]


def sweeps(book: Path) -> list[dict[str, Any]]:
    """Sweeps and tunes that run, and those that ended a short while ago; the newest first."""
    found = []
    now = time.time()
    for session in _folders(book / "runs"):
        seen = posted(session)
        if seen is None or now - seen.at > QUIET_S:
            continue
        quiet_s = max(0.0, now - seen.at)
        left_s = None if seen.left_s is None else max(0.0, seen.left_s - quiet_s)
        spent_s = seen.spent_s + (quiet_s * seen.running if seen.state == "running" else 0.0)
        found.append({**fields.plain(seen, keep_defaults=True), "session": session.name, "quiet_s": round(quiet_s, 1),
                      "left_s": left_s, "spent_s": round(spent_s, 1), "for_s": round(seen.at - seen.began, 1)})
    return sorted(found, key=lambda one: -one["at"])[:MOST_SHOWN]


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(p for p in parent.iterdir() if p.is_dir() and not p.is_symlink())
    except OSError:
        return []


def _trial(run_dir: Path, session: str) -> dict[str, Any] | None:
    try:
        since = (run_dir / files.RUN).stat().st_mtime
        run = json.loads((run_dir / files.RUN).read_text(encoding="utf-8"))
        trial, recipe = run["trial"], run.get("recipe") or run.get("training", {})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    now = time.time()
    try:
        beats = heartbeat.read(run_dir)
    except OSError:
        beats = []
    logs = _tails(run_dir)
    alive = max([since, *(beat.time for beat in beats), *(at for at, _ in logs)])
    if now - alive > QUIET_S:
        return None
    seconds = [e["sec"] for e in _events(run_dir) if e.get("event") == "iteration" and isinstance(e.get("sec"), int | float)]
    told = _progress(logs) if not beats and not seconds else None
    behind = min(beats, key=lambda b: (b.step, b.microbatch, b.rank), default=None)
    steps = recipe.get("steps") if isinstance(recipe, dict) else None
    if told is not None:
        steps, seconds = told.steps, list(told.seconds)
    step = told.step if told is not None else max(behind.step, len(seconds)) if behind else len(seconds)
    left = None
    if told is not None and seconds:
        left = max(0, told.steps - told.step) * statistics.median(seconds)
    elif isinstance(steps, int) and seconds:
        left = max(0.0, (steps - len(seconds)) * statistics.median(seconds))
        if isinstance(most := recipe.get("measure_s"), int | float) and most > 0:
            left = min(left, max(0.0, most - sum(seconds)))
    return {
        "session": session, "key": run_dir.name, "label": _label(trial), "since": since, "for_s": round(now - since, 1),
        "phase": _phase(behind) if behind else "starting" if told is None else "", "rank": behind.rank if behind else None,
        "ranks": len(beats), "step": step, "steps": steps,
        "microbatch": behind.microbatch if behind else None, "collective": behind.collective if behind else "",
        "beat_s": round(now - max(b.time for b in beats), 1) if beats else None, "quiet_s": round(now - alive, 1),
        "sec": statistics.median(seconds) if seconds else None, "left_s": left,
        "line": logs[0][1][-1].strip()[:400] if logs else "",
    }  # fmt: skip


def _phase(beat: heartbeat.Beat) -> str:
    return f"{beat.phase} ({beat.work}: {heartbeat.so_far(beat.done, beat.total)})" if beat.work else beat.phase


def _label(data: object) -> str:
    """The trial in a few words; of a run.json of another version, nothing."""
    try:
        trial = fields.build(Trial, data, where="trial")
        row = columns.flat(trial)
    except (SeatrialError, TypeError):
        return ""
    degrees = " · ".join(COLUMNS[name].text(row[name]) for name in columns.degrees(trial.topology.cp))
    return f"{trial.model.name} {degrees}, {columns.shown(row, ('mbs', 'gbs'))}".strip()


def _events(run_dir: Path) -> list[dict[str, Any]]:
    from seatrial.engine.watch.events import read_events

    try:
        return read_events(run_dir / files.EVENTS)
    except OSError:
        return []


@dataclass(frozen=True)
class Progress:
    step: int
    steps: int
    seconds: tuple[float, ...]


def _progress(logs: list[tuple[float, list[str]]]) -> Progress | None:
    """What the newest log that counts its iterations says."""
    for _, lines in logs:
        counted = [(int(found[1]), int(found[2])) for line in lines if (found := PROGRESS.search(line)) and len(found[2]) < 12]
        if counted:
            step, steps = counted[-1]
            timed = (found for line in lines if (found := ELAPSED.search(line)))
            return Progress(step, steps, tuple(float(found[2]) / (1000 if found[1] == "ms" else 1) for found in timed))
    return None


def _tails(run_dir: Path) -> list[tuple[float, list[str]]]:
    """When each log was last written to, and its last lines; the newest first."""
    found = []
    for path in [*(run_dir / files.LOGS).glob("*.log"), run_dir / files.SCRIPT_OUTPUT]:
        try:
            found.append((path.stat().st_mtime, path))
        except OSError:
            continue
    tails = []
    for at, path in heapq.nlargest(MOST_LOGS, found):
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - TAIL_BYTES))
                lines = [one for one in file.read().decode("utf-8", "replace").splitlines() if one.strip()]
        except OSError:
            continue
        if lines:
            tails.append((at, lines))
    return tails
