"""The records of a logbook or of a file, for whoever shows them."""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from seatrial.errors import BadInput
from seatrial.logbook import Logbook
from seatrial.record import Record
from seatrial.terminal import say

Known = dict[tuple[object, object], Record]
"""(record_id, written_at) -> the record: a line of a logbook never changes, so it needs to be read once."""


Remarks = dict[str, list[dict[str, Any]]]
"""record_id -> what was said about it, oldest first."""


def from_book(book: Logbook, known: Known | None = None) -> tuple[list[Record], list[str]]:
    """All records that hold, in the order they came, and a line for each that could not be read.

    `known` is what was read before; it is brought up to date.
    """
    records, unread = [], [str(problem) for problem in book.problems()]
    before: Known = {} if known is None else dict(known)
    now: Known = {}
    for data in book.records():
        key = (data.get("record_id"), data.get("written_at"))
        record = before.get(key)
        if record is None:
            try:
                record = Record.from_dict(data)
            except BadInput as error:
                unread.append(str(book.no_record(data, error)))
                continue
        now[key] = record
        records.append(record)
    if known is not None:
        known.clear()
        known.update(now)
    return records, unread


def remarks(paths: Iterable[Path]) -> Remarks:
    """What people said about the records of those that are logbooks."""
    found: Remarks = {}
    for path in paths:
        if os.path.isdir(path):
            with Logbook(path) as book:
                found |= book.remarks()
    return found


MOST_UNREAD = 20


def say_unread(lines: Sequence[object]) -> None:
    """On stderr, what of a file could not be read; of many the first."""
    for line in lines[:MOST_UNREAD]:
        say(f"not read: {line}", to=sys.stderr)
    if len(lines) > MOST_UNREAD:
        print(f"not read: {len(lines) - MOST_UNREAD} more like these", file=sys.stderr)


def read(paths: Iterable[Path], *, format: Path | None = None) -> tuple[list[Record], list[str]]:
    """Of logbooks (folders) and of files that `seatrial import` reads, with a log's `format` where it is one's own."""
    records: list[Record] = []
    unread: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            with Logbook(path) as book:
                some, wrong = from_book(book)
        else:
            from seatrial.notes.read import import_file

            imported = import_file(path, format=format)
            some, wrong = list(imported.records), [str(p) for p in imported.problems if p.level != "note"]
        records += some
        unread += wrong
    return records, unread
