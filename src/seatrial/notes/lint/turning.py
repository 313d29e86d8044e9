"""Tables that are none of runs and stand turned round: hours, energy and money below each other, a column for each run.

    upright(records)                     a record for each column, all in the line of the first; the records as they are where
                                         the table is no such one

    | model | smol    | mid     |
    | card  | 2x 3090 | 2x 3090 |
    | watts | 760     | 790     |
    | hours | 32.0    | 96.4    |
    | kWh   | 24.3    | 76.1    |
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seatrial.notes.lint.phases.quantities import AMOUNTS, FIELDS, meanings
from seatrial.notes.read.parsing import read_cell
from seatrial.record import Record
from seatrial.tables.headings import read_heading

FEWEST, MOST = 3, 24
"""Rows, and how many of either at most."""


def upright(records: Sequence[Record]) -> list[Record]:
    headings = list(records[0].printed) if records else []
    names = [next(iter(record.printed.values()), "").strip() for record in records]
    if not FEWEST <= len(names) <= MOST or not FEWEST <= len(headings) <= MOST or len({*names}) < len(names) or "" in names:
        return [*records]
    if any(list(record.printed) != headings for record in records):
        return [*records]
    kinds = [{kind for kind, _ in meanings(name)} for name in names]
    said = sum(map(bool, kinds))
    # What the first line says is of runs, and so is no quantity.
    if said < 2 or 2 * said < len(names) or not any(kind & AMOUNTS for kind in kinds) or any(map(meanings, headings[1:])):
        return [*records]
    columns = [{name: record.printed[heading] for name, record in zip(names, records)} for heading in headings[1:]]
    return [replace(records[0], printed={headings[0] or " ": heading, **cells}, **_fields(cells))
            for heading, cells in zip(headings[1:], columns)]  # fmt: skip


def _fields(cells: dict[str, str]) -> dict[str, Any]:
    """What the counts, rates and times of a run are."""
    read = {column.field: read_cell(column, cell).value for name, cell in cells.items()
            if (column := read_heading(name)).field in FIELDS}  # fmt: skip
    return {field: value for field, value in read.items() if value is not None}
