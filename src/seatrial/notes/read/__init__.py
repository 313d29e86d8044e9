"""Importers: benchmark notes, Megatron logs, CSV and JSON as records, whatever their authors called the columns.

    from seatrial.notes.read import import_file
    notes = import_file("a100.md")
    notes.records, notes.problems                what was read, and what was not with file, line and cell

    for found in iter_file(path): ...            the same one at a time, for logs that do not fit in memory

A row gives exactly one record, or is counted in exactly one problem. Nothing is guessed: see `rows.py` and `outline.py`.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.notes.read.csvfile import read_csv
from seatrial.notes.read.files import check_file, read_lines, sniff
from seatrial.notes.read.markdown import read_markdown
from seatrial.notes.read.megatron import LogReader
from seatrial.notes.read.outline import Outline
from seatrial.notes.read.sound import sound
from seatrial.record import Record
from seatrial.tables import Problem
from seatrial.tables.csvjson import read_json

__all__ = ["Imported", "Problem", "import_file", "iter_file", "sniff"]

LARGEST_MIB = 64
"""Notes and tables beyond this are almost surely the wrong file; logs have no limit."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    records: tuple[Record, ...] = ()
    problems: tuple[Problem, ...] = ()
    unknown_columns: tuple[str, ...] = ()
    """Of all its tables, those that no field takes; their cells are in the records' `extra`."""


def import_file(path: str | os.PathLike[str], *, largest_mib: float = LARGEST_MIB) -> Imported:
    """Everything in the file. BadInput when it is no text, cannot be opened, or is too large."""
    records: list[Record] = []
    problems: list[Problem] = []
    columns: dict[str, None] = {}
    for found in iter_file(path, largest_mib=largest_mib):
        if isinstance(found, Record):
            records.append(found)
        elif found.columns:
            columns.update(dict.fromkeys(found.columns))
        else:
            problems.append(found)
    return Imported(records=tuple(records), problems=tuple(problems), unknown_columns=tuple(columns))


def iter_file(path: str | os.PathLike[str], *, largest_mib: float = LARGEST_MIB) -> Iterator[Record | Problem]:
    """Records and problems in the order of the file, one at a time."""
    path = Path(path)
    head = check_file(path)
    kind = sniff(path, head)
    size_mib = path.stat().st_size / 2**20
    if kind != "log" and size_mib > largest_mib:
        raise BadInput(f"{path}: {size_mib:.0f} MiB of {kind} is over the {largest_mib:g} MiB that notes may have; split it")
    reader = {"csv": read_csv, "json": read_json, "log": _read_log}.get(kind, read_markdown)
    return sound(reader(path, path.name))


def _read_log(path: Path, name: str) -> Iterator[Record | Problem]:
    reader = LogReader(name, Outline(), alone=True)
    for number, line in read_lines(path):
        yield from reader.feed(number, line)
    yield from reader.flush(end=True)
