"""Importers: benchmark notes, logs of training programs, CSV and JSON as records, whatever their authors called the columns.

    from seatrial.notes.read import import_file
    notes = import_file("a100.md")
    notes.records, notes.problems                what was read, and what was not with file, line and cell

    for found in iter_file(path): ...            the same one at a time, for logs that do not fit in memory

A log gives one record a run, with its steps in `iterations`; with `each`, one record a step.

A row gives exactly one record, or is counted in exactly one problem. Nothing is guessed: see `rows.py` and `outline.py`.
"""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.notes.collecting import no_collecting
from seatrial.notes.read.csvfile import read_csv
from seatrial.notes.read.deadline import deadline
from seatrial.notes.read.events import is_events, rows
from seatrial.notes.read.files import check_file, ends_whole, read_lines, uncut
from seatrial.notes.read.kinds import sniff
from seatrial.notes.read.logformat import Format, load, shipped
from seatrial.notes.read.logs import LogReader, choose
from seatrial.notes.read.markdown import read_markdown
from seatrial.notes.read.runs import Run
from seatrial.notes.read.series import runs_of_json, runs_of_rows
from seatrial.notes.read.sound import sound
from seatrial.notes.read.told import by_rates
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


def import_file(path: str | os.PathLike[str], *, largest_mib: float = LARGEST_MIB, each: bool = False,
                format: str | os.PathLike[str] | None = None) -> Imported:
    """Everything in the file. BadInput when it is no text, cannot be opened, or is too large."""
    records: list[Record] = []
    problems: list[Problem] = []
    columns: dict[str, None] = {}
    with no_collecting():
        for found in iter_file(path, largest_mib=largest_mib, each=each, format=format):
            if isinstance(found, Record):
                records.append(found)
            elif found.columns:
                columns.update(dict.fromkeys(found.columns))
            else:
                problems.append(found)
    return Imported(records=tuple(records), problems=tuple(problems), unknown_columns=tuple(columns))


def iter_file(path: str | os.PathLike[str], *, largest_mib: float = LARGEST_MIB, each: bool = False,
              format: str | os.PathLike[str] | None = None) -> Iterator[Record | Problem]:
    """Records and problems in the order of the file, one at a time. `format`: a log's, as a TOML file of one's own."""
    return by_rates(sound(_read(Path(path), largest_mib, each, format)))


def _read(path: Path, largest_mib: float, each: bool, format: str | os.PathLike[str] | None) -> Iterator[Record | Problem]:
    if is_events(path):
        return _said(runs_of_rows(path.name, rows(path)), each)
    head = check_file(path)
    if format is not None:
        return _read_log(path, (load(format),), each, own=os.fspath(format))
    kind = sniff(path, head)
    size_mib = path.stat().st_size / 2**20
    if kind != "log" and size_mib > largest_mib:
        raise BadInput(f"{path}: {size_mib:.0f} MiB of {kind} is over the {largest_mib:g} MiB that notes may have; split it")
    if kind == "csv":
        return read_csv(path, path.name, each=each)
    if kind == "json":
        runs = runs_of_json(path, path.name)
        return read_json(path, path.name) if runs is None else _said(runs, each)
    return _read_log(path, shipped(), each) if kind == "log" else read_markdown(path, path.name)


def _said(runs: Iterable[Run], each: bool) -> Iterator[Record | Problem]:
    for run in runs:
        yield from run.records(each=each)


PATIENCE_S = 2.0
"""Of the processor, for one line and the patterns of a format that somebody wrote."""


def _read_log(path: Path, formats: Sequence[Format], each: bool, own: str = "") -> Iterator[Record | Problem]:
    """`own`: the file of a format of one's own, whose patterns may take for ever: each line has its time."""

    def fed(number: int, text: str) -> Iterable[Record | Problem]:
        if not own:
            return reader.feed(number, text)
        with deadline(PATIENCE_S, f"{own}: line {number} of {path}"):
            return list(reader.feed(number, text))

    first = formats[0] if own else choose(path, formats)
    reader = LogReader(path.name, alone=True, formats=formats, first=first, each=each)
    before: tuple[int, str] | None = None
    for found in read_lines(path):
        if before is not None:
            yield from fed(*before)
        before = found
    if before is not None:
        yield from fed(before[0], before[1] if ends_whole(path) else uncut(before[1]))
    yield from reader.flush(end=True)
