"""Where a sweep keeps what it did: the logbook and a folder a trial. There is no other state, so nothing can disagree.

    store = Store(Logbook("book", create=True), session="first")
    store.records()                     what the logbook already holds of this session
    store.write(key, record)            on disk when it returns
    BOOK/runs/SESSION/KEY/              run.json, events.jsonl, logs of one trial; KEY.interrupted: what a dead controller left

A row's `record_id` is made of the session and the trial's key. Writing a row twice is therefore the same row, whenever the
controller was killed.
"""
from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seatrial import fields, lock
from seatrial.errors import BadInput, SeatrialError
from seatrial.launch import files
from seatrial.launch.processes import end_leftovers
from seatrial.logbook import Logbook, Problem
from seatrial.outcomes import OUTCOMES
from seatrial.record import Outcome, Record

LEAST_ROOM_BYTES = 64 * 1024
HANDLE = "handle.json"
"""Who runs the trial: the batch system's job outlives its controller."""


@dataclass(frozen=True, slots=True)
class Row:
    """What the controller needs to know of a row that is written; the record itself stays on disk."""

    status: str
    state: str
    value: float | None
    """What `stop.by` names, larger is better."""
    sec_per_it: float | None
    seconds: float
    """What the trial took in all."""
    label: str = ""
    model: str = ""
    samples_per_s: float | None = None

    @property
    def runs_again(self) -> bool:
        return runs_again(self.status, self.state)


def runs_again(status: str, state: str) -> bool:
    """Whether a row is not the last word on its trial: it was kept from running, or ended from outside. `planned` rows were
    never meant to run."""
    return OUTCOMES[status].rerun and state != "planned"


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """A job of a batch system, as handle.json has it."""

    launcher: str
    job_id: str
    submitted: float
    allocated: bool = False
    """Whether it is a step of an allocation; `job_id` is then the allocation's."""


class Store:
    def __init__(self, book: Logbook, session: str):
        self.book, self.session = book, session
        self.folder = book.path / "runs" / session

    def run_dir(self, key: str) -> Path:
        return self.folder / key

    def record_id(self, key: str) -> str:
        return fields.digest({"session": self.session, "key": key}, length=20)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Two controllers of one session would run the same trials; the lock goes with the process, however it ends."""
        with lock.alone(self.folder, f"another sweep of session {self.session!r}", error=SeatrialError,
                        instead="wait for it, or name another --session", name="lock"):
            yield

    def records(self, keys: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """This session's, in the order they first came; of these keys, found by the index and not by reading them all.

        A line that is no record says nothing of its trial, which is run again; `unread` has it.
        """
        if keys is None:
            return self.book.rows({"session": self.session})[0]
        wanted = {self.record_id(key): key.partition("-")[0] for key in keys}
        return self.book.rows({"session": self.session, "run_id": list(wanted.values())},
                              predicate=lambda data: data["record_id"] in wanted)[0]

    def unread(self) -> list[Problem]:
        """Lines of this session that are no records, and those of the logbook that nobody can read."""
        return self.book.rows({"session": self.session})[1]

    def write(self, key: str, record: Record) -> None:
        data = replace(record, record_id=self.record_id(key), session=self.session).to_dict()
        self.book.append(data)
        self._keep(self.run_dir(key), data)
        (self.run_dir(key) / HANDLE).unlink(missing_ok=True)  # its job is concluded: nobody need take it over

    @staticmethod
    def _keep(run_dir: Path, data: dict[str, Any]) -> None:
        """The run folder's record is the logbook's."""
        if run_dir.is_dir():
            (run_dir / files.RECORD).write_text(json.dumps(data, ensure_ascii=False) + "\n", encoding="utf-8")

    def left_behind(self, key: str) -> Record | None:
        """The record of a trial that ended, but whose controller did before it could write it down."""
        try:
            data = json.loads((self.run_dir(key) / files.RECORD).read_text(encoding="utf-8"))
            record = Record.from_dict(data)
        except (OSError, ValueError, BadInput):
            return None
        return record if record.outcome is not None and not runs_again(record.outcome.status, record.state) else None

    def submitted(self, key: str, job: Submitted) -> None:
        (self.run_dir(key) / HANDLE).write_text(json.dumps(fields.plain(job)))

    def orphan(self, key: str, launcher: str) -> Submitted | None:
        """The job that a dead controller submitted for this trial to this batch system."""
        try:
            found = fields.build(Submitted, json.loads((self.run_dir(key) / HANDLE).read_text()), where=HANDLE)
        except (OSError, ValueError, BadInput):
            return None
        return found if found.launcher == launcher else None

    def put_aside(self, key: str) -> None:
        """A half-finished try is kept beside the new one, and nothing of it still runs."""
        here = self.run_dir(key)
        if not here.exists():
            return
        end_leftovers(here.absolute())
        aside = here.with_name(f"{here.name}.interrupted")
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(here, aside)

    def is_full(self) -> bool:
        """Too little room for what one trial writes: what failed now may have failed for that."""
        room = os.statvfs(self.folder)
        return room.f_blocks > 0 and room.f_bavail * room.f_frsize < LEAST_ROOM_BYTES

    def settle(self, keys: list[str]) -> None:
        """Over repeats an outcome has a rate: hang 2 of 5. Corrects the rows of one trial, when all are there."""
        rows = [Record.from_dict({k: v for k, v in data.items() if k != "schema"}) for data in self.records(keys)]
        statuses = [row.outcome.status for row in rows if row.outcome is not None]
        folders = {self.record_id(key): self.run_dir(key) for key in keys}
        for row in rows:
            outcome = row.outcome or Outcome(status="ok")
            rate = (statuses.count(outcome.status), len(keys))
            if outcome.rate != rate:
                data = replace(row, outcome=replace(outcome, rate=rate)).to_dict()
                self.book.append(data)
                self._keep(folders[row.record_id], data)
