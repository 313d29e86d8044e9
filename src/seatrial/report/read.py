"""The records of a logbook or of a file, for whoever shows them."""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.logbook import Logbook
from seatrial.record import Record


def from_book(book: Logbook) -> tuple[list[Record], list[str]]:
    """All records that hold, in the order they came, and a line for each that could not be read."""
    records, unread = [], [str(problem) for problem in book.problems()]
    for data in book.records():
        try:
            records.append(Record.from_dict({key: value for key, value in data.items() if key != "schema"},
                                            where=str(book.path)))
        except BadInput as error:
            unread.append(str(error))
    return records, unread


def read(paths: Iterable[Path]) -> tuple[list[Record], list[str]]:
    """Of logbooks (folders) and of files that `seatrial import` reads."""
    records: list[Record] = []
    unread: list[str] = []
    for path in paths:
        if path.is_dir():
            with Logbook(path) as book:
                some, wrong = from_book(book)
        else:
            from seatrial.importers import import_file

            imported = import_file(path)
            some, wrong = list(imported.records), [str(p) for p in imported.problems if p.level != "note"]
        records += some
        unread += wrong
    return records, unread
