"""The logbook: a directory of JSON lines that is only ever added to, and can be trusted.

    book = Logbook("runs/logbook", create=True)
    book.append({"state": "measured", "dp": 8, "sec_per_it": 3.2})
    list(book.records({"state": "measured", "dp": [4, 8]}, order=["-tflops"]))
    book.remark(record_id, "slow fabric", ["keep"])     # what a person says about it; an earlier one stays in the book
    book.problems()                                     # torn lines: reported, skipped, never removed
    book.rows({"state": "measured"})                    # those with the shape of a `Record`, and the lines without it

    DIR/segments/<host>-<pid>-<start>-<random>.jsonl    one file per writer, one whole line per write, synced to disk

Nobody writes another's file, so there is nothing to lock and it holds on NFS and Lustre. A correction is a new line with the
same `record_id`; `{"deleted": record_id}` takes a record out; `{"remark_on": record_id, "text": …, "tags": […]}` is what a
person says about it. The last by (written_at, segment, line) is what holds. Records are plain dicts (`record.py` gives them
their shape). Standard library only, as a cluster's head node may have nothing else.
"""
from __future__ import annotations

import hashlib
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from seatrial.errors import BadInput
from seatrial.logbook.index import Index, Problem
from seatrial.logbook.records import SCHEMA, SUM, summed
from seatrial.logbook.segments import Segment, Unwritten, make_folder

__all__ = ["SCHEMA", "Logbook", "Problem", "Unwritten"]

T = TypeVar("T")

LONGEST_REMARK, MOST_TAGS = 4000, 20
TAG = re.compile(r"[\w./-]{1,40}")

_OWN_KEYS = ("schema", "record_id", "written_at", SUM)
"""What the logbook itself puts into a line; a record's identity does not depend on them."""


class Logbook:
    """One logbook, for reading and for appending; safe to share between threads and over a fork."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False):
        self.path = Path(path)
        self._segments = self.path / "segments"
        self._lock = threading.RLock()
        self._segment: Segment | None = None
        self._index = Index(self._segments)
        self._pid = os.getpid()
        self._last_stamp = ""
        self._create = create
        """Made by the first append and not before: a command that fails must not leave an empty logbook behind."""
        self._exists()

    def append(self, record: Mapping[str, Any]) -> str:
        """Add one record, on disk when this returns; the id it goes by is returned."""
        return self.append_many([record])[0]

    def append_many(self, records: Iterable[Mapping[str, Any]]) -> list[str]:
        """Add all of them in one write, or none."""
        with self._owned():
            lines, ids = [], []
            for record in records:
                line, record_id = self._line(record)
                lines.append(line)
                ids.append(record_id)
            if not lines:
                return []
            if self._segment is None:
                if not self._exists():
                    make_folder(self._segments, self.path)
                self._refuse_newer()
                self._segment = Segment(self._segments)
            try:
                self._segment.write(b"".join(lines))
            except OSError as error:
                # The next append begins a segment of its own, so that a torn line can only be the last of its file.
                segment, self._segment = self._segment, None
                segment.abandon()
                raise Unwritten(f"{self.path}: {error.strerror}: {_counted(len(lines))} not written") from error
            return ids

    def records(
        self,
        where: Mapping[str, Any] | None = None,
        *,
        predicate: Callable[[dict[str, Any]], bool] | None = None,
        order: Sequence[str] = (),
    ) -> Iterator[dict[str, Any]]:
        """The records that hold now, in the order they first came (or by `order`: columns, `-` before one for descending).

        `where` gives a value, several (a list: any of them) or None (no value) by column (`records.COLUMNS`) or by
        path (`trial.topology.dp`). What is appended while the records are read is not among them.
        """
        with self._owned():
            return self._reading(lambda: self._index.select(where or {}, order, predicate), empty=iter(()))

    def rows(self, where: Mapping[str, Any] | None = None, *, predicate: Callable[[dict[str, Any]], bool] | None = None,
             ) -> tuple[list[dict[str, Any]], list[Problem]]:
        """The records that have the shape of `record.py`, for whoever computes with them, and all lines that are none."""
        from seatrial.record import Record

        rows, problems = [], self.problems()
        for data in self.records(where, predicate=predicate):
            try:
                Record.from_dict(data)
                rows.append(data)
            except BadInput as error:
                problems.append(self.no_record(data, error))
        return rows, problems

    def no_record(self, data: Mapping[str, Any], error: BadInput) -> Problem:
        """A line that is JSON and no record, with its place in the logbook."""
        with self._owned():
            file, line = self._reading(lambda: self._index.place(data["record_id"]), empty=("", 0))
        return Problem(file=file, line=line, message=str(error))

    def remark(self, record_id: str, text: str, tags: Sequence[str] = ()) -> None:
        """What somebody says about a record from now on; an empty text and no tags take it back."""
        text, tags = text.strip(), list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
        if len(text) > LONGEST_REMARK:
            raise BadInput(f"a remark of {len(text)} letters: {LONGEST_REMARK} are kept")
        if len(tags) > MOST_TAGS:
            raise BadInput(f"{len(tags)} tags: {MOST_TAGS} are kept")
        for tag in tags:
            if not TAG.fullmatch(tag):
                raise BadInput(f"tag {tag[:60]!r}: a tag is one word of up to 40 letters, digits, - _ . /")
        self.append({"remark_on": record_id, "text": text, "tags": tags})

    def remarks(self) -> dict[str, list[dict[str, Any]]]:
        """Record -> what was said about it, with `written_at`; the last holds."""
        with self._owned():
            lines: list[dict[str, Any]] = self._reading(self._index.remarks, empty=[])
        found: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            found.setdefault(line["remark_on"], []).append({"text": line.get("text", ""), "tags": line.get("tags", []),
                                                             "written_at": line["written_at"]})
        return found

    def problems(self) -> list[Problem]:
        """The lines that could not be read."""
        with self._owned():
            return self._reading(self._index.problems, empty=[])

    def __len__(self) -> int:
        with self._owned():
            return self._reading(self._index.count, empty=0)

    def close(self) -> None:
        with self._owned():
            self._index.close()
            if self._segment is not None:
                self._segment.close()
                self._segment = None

    def __enter__(self) -> Logbook:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- one line

    def _line(self, record: Mapping[str, Any]) -> tuple[bytes, str]:
        content = {key: value for key, value in record.items() if key not in _OWN_KEYS}
        own: dict[str, Any] = {"schema": SCHEMA}
        try:
            if "deleted" in content:
                record_id = content["deleted"]
            else:
                record_id = own["record_id"] = record.get("record_id") or _hash(content)
            own["written_at"] = self._now()
            line = summed(json.dumps(own | content, separators=(",", ":"), allow_nan=False).encode("ascii"))
        except ValueError:
            raise BadInput(_not_finite(content, "record") or "record: it contains itself") from None
        if not isinstance(record_id, str) or not record_id:
            raise BadInput(f"record_id {record_id!r}: an id is a text")
        if "deleted" in content and len(content) > 1:
            raise BadInput('a deletion is {"deleted": record_id} and nothing else')
        return line, record_id

    def _now(self) -> str:
        # A clock that is set back must not let a correction lose to the line it corrects.
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self._last_stamp = max(stamp, self._last_stamp)
        return self._last_stamp

    # ---- the directory

    def _owned(self) -> threading.RLock:
        """The lock; after a fork, the parent's segment and connection are left to the parent."""
        if self._pid != os.getpid():
            self._pid, self._segment, self._lock = os.getpid(), None, threading.RLock()
            self._index.forget()
        return self._lock

    def _exists(self) -> bool:
        """Whether there is something to read; an error where there never will be."""
        try:
            if self.path.stat() and not self.path.is_dir():
                raise BadInput(f"{self.path}: this is a file, and a logbook is a directory")
            return bool(self._segments.stat())
        except FileNotFoundError:
            if self._create:
                return False
            raise BadInput(f"{self.path}: no logbook here (a directory with segments/ in it)") from None
        except OSError as error:
            raise BadInput(f"{self.path}: {error.strerror}: the logbook cannot be read") from None

    def _reading(self, read: Callable[[], T], *, empty: T) -> T:
        try:
            return read() if self._exists() else empty
        except OSError as error:
            raise BadInput(f"{error.filename or self.path}: {error.strerror}: the logbook cannot be read") from None

    def _refuse_newer(self) -> None:
        """A logbook that a later seatrial writes to is not added to. A segment has one writer, so its first line is enough."""
        for path in sorted(self._segments.glob("*.jsonl")):
            try:
                with path.open("rb") as file:
                    schema = json.loads(file.readline()).get("schema")
            except (OSError, ValueError, AttributeError, RecursionError):
                continue
            if isinstance(schema, int) and schema > SCHEMA:
                raise BadInput(
                    f"{self.path}: schema {schema} is newer than {SCHEMA}, the newest this seatrial writes:"
                    " upgrade seatrial to use this logbook"
                )


def _hash(content: Mapping[str, Any]) -> str:
    """The same content is the same record, so importing a file twice changes nothing."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode("ascii")).hexdigest()[:20]


def _not_finite(value: object, where: str) -> str | None:
    """What is wrong, with the path of the number that no JSON can hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{where} is {value}: a record holds finite numbers; leave it out, or say it in the outcome"
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    return next(filter(None, (_not_finite(part, f"{where}.{key}") for key, part in parts)), None)


def _counted(number: int) -> str:
    return "1 record" if number == 1 else f"{number} records"
