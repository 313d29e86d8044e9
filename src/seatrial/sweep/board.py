"""progress.json: how far a sweep is, for whoever looks from outside (`seatrial serve`); nobody needs it to go on.

    board = Board(store.folder, name="first", budget_s=3600.0)          a controller makes its own, or is given one
    board.show(view)                                                    at most once a second, and when a trial begins or ends
    posted(folder)                                                      Progress(done=3, total=6, left_s=12.0, …)

A tune of many small sweeps gives each controller the one board, `Board(folder, name=…, kind="tune")`, and sets on it what only
it knows: `total`, the rows that came `before`, a `note` in words; and says `end` when it has come to its own.

The best of a sweep is, of each model, the row that its table prints in bold, so that a line and a table never disagree. What
`stop.by` names decides what is stopped early, and nothing else: TFLOPs per process compare models and numbers of processes, but
the most of them is not the fastest run.
"""
from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seatrial import fields
from seatrial.errors import BadInput
from seatrial.files import write_whole

if TYPE_CHECKING:
    from seatrial.record import Record
    from seatrial.sweep.controller import View
    from seatrial.sweep.store import Row

FILE = "progress.json"
EVERY_S = 1.0
State = Literal["running", "done", "spent", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Progress:
    name: str
    kind: str = "sweep"
    """Or `tune`."""
    state: State = "running"
    """`spent`: the budget; `stopped`: by somebody, or by an error."""
    done: int = 0
    total: int | None = None
    """None where it is not known before the end."""
    running: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Outcome -> rows."""
    best: str = ""
    best_s: float | None = None
    """Seconds per iteration of the best, where the sweep is of one model."""
    spent_s: float = 0.0
    """By the trials themselves, also those of earlier controllers."""
    budget_s: float | None = None
    left_s: float | None = None
    """As of `at`."""
    began: float = 0.0
    at: float = 0.0
    """Seconds since 1970; without news for long, the controller is gone."""
    note: str = ""


def post(folder: Path, progress: Progress) -> None:
    """Whole or not at all; a disk that is full, or a folder that is gone, is not this file's business."""
    with contextlib.suppress(OSError):
        write_whole(folder / FILE, json.dumps(fields.plain(progress), ensure_ascii=False), durable=False)


def posted(folder: Path) -> Progress | None:
    try:
        return fields.build(Progress, json.loads((folder / FILE).read_text(encoding="utf-8")), where=FILE)
    except (OSError, ValueError, BadInput):
        return None


class Board:
    def __init__(self, folder: Path, *, name: str, kind: str = "sweep", budget_s: float | None = None,
                 total: int | None = None):
        self.folder, self.name, self.kind, self.budget_s, self.total = folder, name, kind, budget_s, total
        self.note = ""
        self.before: dict[str, int] = {}
        """Outcome -> rows of earlier sweeps that count with this one's."""
        self.began = time.time()
        self._next = 0.0
        self._spent_s = 0.0
        """By the sweeps of a tune that have ended."""
        self._best: dict[str, Row] = {}

    def show(self, view: View, *, state: State = "running", at_once: bool = False) -> None:
        if time.monotonic() < self._next and not at_once and state == "running":
            return
        self._next = time.monotonic() + EVERY_S
        if self.kind == "sweep":
            post(self.folder, self.progress(view, state))
            return
        post(self.folder, self.progress(view, "running" if state == "done" else state))
        if state != "running":
            self._spent_s += view.spent_s

    def end(self, state: State = "done") -> None:
        """Of a tune as a whole: its controllers only know that their own trials are done."""
        last = posted(self.folder) or Progress(name=self.name, kind=self.kind, began=self.began)
        post(self.folder, replace(last, state=state, running=0, left_s=None, at=time.time(), note=self.note))

    def progress(self, view: View, state: State = "running") -> Progress:
        counts = dict(self.before)
        for row in view.rows.values():
            counts[row.status] = counts.get(row.status, 0) + 1
        earlier = sum(self.before.values())
        whole = self.kind == "sweep"
        total = self.total if self.total is not None else view.total + earlier if whole else None
        spent = self._spent_s + spent_s(view)
        left_s = time_left_s(view) if whole else None
        if self.budget_s is not None and (left_s is not None or not whole):
            left = max(0.0, self.budget_s - spent)
            left_s = left if left_s is None else min(left_s, left)
        for row in view.best.values():
            note_best(self._best, row)
        only = next(iter(self._best.values())) if len(self._best) == 1 else None
        return Progress(name=self.name, kind=self.kind, state=state, done=len(view.rows) + earlier, total=total,
                        running=len(view.running), counts=counts, best=best_labels(self._best),
                        best_s=only.sec_per_it if only is not None else None, spent_s=round(spent, 3),
                        budget_s=self.budget_s, left_s=left_s if state == "running" else None, began=self.began,
                        at=time.time(), note=self.note)


def spent_s(view: View) -> float:
    """By trials that have ended and by those that run."""
    return view.spent_s + sum(time.monotonic() - running.since for running in view.running)


def time_left_s(view: View) -> float | None:
    """From what the finished trials took; None before the first. Those that cannot run take no time."""
    took = [row.seconds for row in view.rows.values() if row.seconds > 0]
    if not took:
        return None
    each = sum(took) / len(took)
    under_way = sum(max(0.0, each - (time.monotonic() - running.since)) for running in view.running)
    waiting = max(0, view.total - len(view.rows) - len(view.running) - view.hopeless)
    return (waiting * each + under_way) / max(1, len(view.running))


# ---- the best


def model_of(record: Record) -> str:
    """As `table` tells models apart."""
    return record.size_label or f"{record.layers} layers of {record.hidden}"


def note_best(best: dict[str, Row], row: Row) -> None:
    if row.status != "ok" or row.samples_per_s is None:
        return
    there = best.get(row.model)
    if there is None or _rank(row) > _rank(there):
        best[row.model] = row


def _rank(row: Row) -> tuple[bool, float]:
    return row.state == "measured", row.samples_per_s or 0.0


def best_in_words(best: Mapping[str, Row]) -> str:
    return ", ".join(f"best{f' of {model}' if len(best) > 1 else ''} {row.label}: {row.sec_per_it:.4g} s/it"
                     f"{' (estimated)' if row.state == 'estimated' else ''}" for model, row in best.items())


def best_labels(best: Mapping[str, Row]) -> str:
    """Names alone."""
    return ", ".join(f"{row.label} ({model})" if len(best) > 1 else row.label for model, row in best.items())
