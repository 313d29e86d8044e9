"""Rows whose cells stand one column too far to the left or to the right, or two neighbours in each other's place.

    check(sheet)                         findings; a row that is explained so is settled

Looked for where a cell cannot be read under its heading, or where figures that follow from each other do not: a cell that was
lost, or an empty one too many, moves all that follow. The row is believed to be shifted when, moved back, every cell can stand
under its heading and what follows from each other does.
"""
from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from seatrial.notes.lint.columns.broken import broken_and_kept
from seatrial.notes.lint.columns.relations import MEASURES, relations_of
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import MEASURED, Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.read.outline import Outline
from seatrial.notes.read.rows import TIMED, fits, row_record
from seatrial.notes.read.sound import is_sound
from seatrial.notes.read.statements import read_status
from seatrial.tables import Where
from seatrial.tables.headings import Column, read_heading, settle

FIELDS = (*dict.fromkeys((*MEASURED, *MEASURES, "mem_unit", "time_unit", "nodes", "gpus", "dp", "tp", "pp", "mbs", "gbs", "seq",
                          "layers", "hidden", "size_label", "date")),)  # fmt: skip
MOST_CELLS = 40


def check(sheet: Sheet) -> list[Finding]:
    found = []
    for row in sheet.rows:
        if row.tabular and not row.settled and 3 < len(row.record.printed) <= MOST_CELLS:
            found += _moved_back(row, [*row.cells.values()])
    return found


def _moved_back(row: Row, cells: list[str]) -> list[Finding]:
    broken, kept = broken_and_kept(row)
    columns, figures, asked = _columns(tuple(row.record.printed))
    stand = [True] * len(cells)
    for at in asked:
        stand[at] = _stands(columns[at], cells[at])
    if not all(stand):
        stand = [stands or _usual(row, column.heading, cell) for column, cell, stands in zip(columns, cells, stand)]
    foreign = [] if all(stand) else [cell for cell, stands in zip(cells, stand) if not stands]
    wrong = len(foreign) + (not cells[-1] and _lost(row))
    gap = not all([cells[at].strip(_NONE) for at in figures])
    if not wrong and not gap and len(broken) < 2 and not (broken and abs(broken[0][2]) > GROSS):
        return []
    if any(columns[at].field in MEASURES and read_status(cells[at]).failed for at in figures):
        return []  # what failed stands where its figures would
    if not any(map(str.isdigit, "".join(cells[at] for at in figures))):
        return []  # nothing was measured, and a word that says so may stand in any of these columns
    ranges = _ranges(row)
    before = _outside(row, ranges)
    if not wrong and not broken and before + gap < 2:
        return []
    # A cell with the unit of its neighbour's column stands there.
    unit = any(re.match(r"[\d.,]+ ?[a-zA-Z%]", cell) for cell in foreign)
    odd = before + len(foreign) + gap > 1
    if not odd and len(relations_of(row)) < len(kept) + 2 - bool(wrong) - unit:
        return []  # there is not as much as would have to hold
    best: tuple[tuple[int, int], int, list[str], Row] | None = None
    # What stands before the place where cells moved stays where it is.
    for at, moved in _shifts(cells, columns, stand.index(False) if foreign else len(cells), figures):
        fit = all(map(_stands, columns, moved)) or all(
            stands and cell == was or _stands(column, cell) for column, cell, was, stands in zip(columns, moved, cells, stand))
        both = _exchanged(cells, moved) if fit else None
        if both and any(_is_constant(row, columns[one].heading) for one in both):
            continue
        if both is not None and all(columns[one].field and (foreign or cells[one].strip(_NONE)) for one in both):
            trial = _as_row(row, columns, moved)
            faults, holding = broken_and_kept(trial) if trial is not None else ([], [])
            enough = len(kept) + 2 - bool(wrong) - (unit and bool(both))
            # What looks like its column only when it is moved back needs no relation to prove it.
            if trial is not None and odd and not _outside(trial, ranges):
                enough = len(kept)
            # Of two that do as well the one that moves fewer cells.
            merit = len(holding), sum(cell == was for cell, was in zip(moved, cells))
            if trial is not None and not faults and len(holding) >= enough and (best is None or merit > best[0]):
                best = merit, at, moved, trial
    if best is None:
        return []
    _, at, moved, trial = best
    changed = [c.field for c, was, cell in zip(columns, cells, moved) if c.field and cell and cell != was]
    filled = [c.field for c, was, cell in zip(columns, cells, moved) if c.field and cell and was and cell != was]
    changed = [*filled, *(field for field in changed if field not in filled)]  # first what stands where it does not belong
    name = next((field for field in changed if field in MEASURES), changed[0] if changed else "")
    there = next((cell for c, cell in zip(columns, moved) if c.field == name), None)
    row.settled = True
    for field in changed:
        if isinstance(value := getattr(trial.record, field, None), (int, float)):
            row.propose(field, value, "cells-shifted")
    what = f"the cells from {columns[at].heading} on stand one column off: moved back"
    if both := _exchanged(cells, moved):
        what = f"{' and '.join(columns[one].heading for one in both)} stand in each other's place: exchanged"
    message = f"{what} they can be read, and agree with each other"
    return [row.find("cells-shifted", "error", message, name=name, proposed=there)]


_NONE = "-–— "
"""Letters of a cell that holds nothing."""
GROSS, WIDE = math.log(8.0), 3.0
"""By which factor figures miss each other that are hardly of one run; how far a column reaches beyond its other rows."""


def _ranges(row: Row) -> dict[str, tuple[float, float]]:
    """Field -> the least and the most that other rows have."""
    found = {}
    for name in (*MEASURES, "mem_value", "gbs", "mbs", "gpus"):
        if row.columns.get(name):
            ordered, own = row.sheet.ordered(row.key, name), getattr(row.record, name)
            cut = len(ordered) > 6  # another row may be wrong as well
            low, high = (ordered[cut + (own == ordered[cut])], ordered[-1 - cut - (own == ordered[-1 - cut])]) if len(
                ordered) > FEWEST + 1 else (0.0, math.inf)  # fmt: skip
            found[name] = low / WIDE, high * WIDE
    return found


FEWEST = 3


def _outside(row: Row, ranges: dict[str, tuple[float, float]]) -> int:
    """How many figures are none of their column; what is not there is not counted."""
    values = ((getattr(row.record, name), *ends) for name, ends in ranges.items() if name not in row.record.inferred)
    return sum(not low <= value <= high for value, low, high in values if value)


def _is_constant(row: Row, heading: str) -> bool:
    """Whether all rows have the same in a column: then it is none that changed places with another."""
    own = row.record.printed.get(heading)
    return len(row.mates) > FEWEST and all(mate.record.printed.get(heading) == own for mate in row.around)


def _usual(row: Row, heading: str, cell: str) -> bool:
    """Whether another row has such a cell in the column, `10 each` beside `5 each`: a way of writing, and none that strayed."""
    others = (mate.record.printed.get(heading, "").strip() for mate in row.around if mate is not row)
    return any(_DIGITS.sub("0", other) == _DIGITS.sub("0", cell) for other in others) or _SIZED.match(cell) is not None and any(
        _SIZED.match(mate.record.printed.get(heading, "")) for mate in row.around if mate is not row)  # fmt: skip


_DIGITS = re.compile(r"\d+")
_SIZED = re.compile(r"\s*[\d.]+[BM][ -]+[a-z]")
"""`8B base`: a name that begins with a size."""


def _exchanged(cells: list[str], moved: list[str]) -> list[int]:
    """The two columns whose cells stand in each other's place, if that is all."""
    other = [at for at, (was, cell) in enumerate(zip(cells, moved)) if was != cell]
    return other if len(other) == 2 and cells[other[0]] == moved[other[1]] else []


def _lost(row: Row) -> bool:
    """Whether the last cell, which is empty, is so in no other row."""
    last = list(row.record.printed)[-1]
    others = [mate for mate in row.around if mate is not row]
    return len(others) > 2 and all(mate.record.printed.get(last, "").strip() for mate in others)


@functools.lru_cache(maxsize=4096)
def _columns(headings: tuple[str, ...]) -> tuple[list[Column], tuple[int, ...], tuple[int, ...]]:
    """And where what is measured stands, and where not everything can."""
    columns = settle([read_heading(heading) for heading in headings])
    return (columns, tuple(at for at, column in enumerate(columns) if column.field in (*MEASURES, "mem_value")),
            tuple(at for at, column in enumerate(columns) if column.field and column.kind != "notes"))  # fmt: skip


_FIGURE = re.compile(r"[1-9]\d{0,5}(?:\.\d{1,6})?")


@functools.lru_cache(maxsize=65536)
def _stands(column: Column, cell: str) -> bool:
    """Whether a cell can stand in a column; in one that no field takes, and as a note, anything can."""
    if column.kind in ("seconds", "figure") and _FIGURE.fullmatch(cell):
        return True  # as nearly all of them are
    timed = column.field == "iteration" and TIMED.fullmatch(cell)  # `Step` of 14.1 s
    return not cell or not column.field or column.kind == "notes" or bool(timed) or fits(column, cell)


@functools.lru_cache(maxsize=4096)
def _pairs(end: int, figures: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbours, and every two of the figures."""
    return [*dict.fromkeys([*((at, at + 1) for at in range(end)), *combinations(figures, 2)])]


def _shifts(cells: list[str], columns: list[Column], last: int, figures: tuple[int, ...]) -> Iterator[tuple[int, list[str]]]:
    """The row with a cell put in where one was lost, or with an empty one taken out, and from which column on, up to `last`;
    or with two neighbours, or two of the `figures`, in each other's place, or with one of several at their other end."""
    end = min(last + 1, len(cells) - 1)
    # An empty cell is not exchanged, unless one is where it cannot stand.
    open_ = [bool(column.field and (last < len(cells) or cell.strip(_NONE))) for column, cell in zip(columns, cells)]
    for one, other in _pairs(end, figures):
        here, there = cells[one], cells[other]
        if open_[one] and open_[other] and here != there and _stands(columns[one], there) and _stands(columns[other], here):
            exchanged = [*cells]
            exchanged[one], exchanged[other] = there, here
            yield one, exchanged
    for start, stop in combinations(figures, 2):
        if stop - start > 1 and all(at in figures for at in range(start, stop)):
            yield start, [*cells[:start], cells[stop], *cells[start:stop], *cells[stop + 1 :]]
            yield start, [*cells[:start], *cells[start + 1 : stop + 1], cells[start], *cells[stop + 1 :]]
    if not cells[-1].strip("-") or cells[-1] == cells[-2]:  # or the one before it stands there again
        for at in range(1, end):
            yield at, [*cells[:at], "", *cells[at:-1]]
    for at, cell in enumerate(cells[:end]):
        if not cell.strip("-"):
            for end in range(len(cells) - 1, at, -1):  # and one of those behind it may have been typed over
                yield at, [*cells[:at], *cells[at + 1 : end + 1], "", *cells[end + 1 :]]


def _as_row(row: Row, columns: list[Column], cells: list[str]) -> Row | None:
    """The row as it would be read with other cells, in the surroundings that it has."""
    outline = Outline()
    if row.sheet.text(row).written.comma_at(row.record.source_line or 0):
        outline.rows_at("27,92")
    record, _ = row_record(columns, cells, outline=outline, where=Where(file=row.record.source_file, line=0))
    if record is None or not is_sound(record):
        return None
    # What stands where it stood is what it was, whatever the table has made of it.
    stated = {name for column, cell, was in zip(columns, cells, row.cells.values()) if cell != was
              for name in (column.field, *column.parts)} | {"mem_unit", "time_unit"}  # fmt: skip
    own = {name: getattr(record, name) for name in FIELDS if name in stated}
    moved = row.record.changed({**own, "printed": dict(zip(row.record.printed, cells))})
    reading = row.reading or next((mate.reading for mate in row.around if mate.reading is not None), None)
    return replace(row, record=moved, reading=reading, fixed={}, reasons={}, configuration=None, judged=None, keys={},
                   layers=moved.layers or row.layers, hidden=moved.hidden or row.hidden, seq=moved.seq or row.seq,
                   _printed={}, _beside=None, terms={}, slacks={}, spans=None)  # fmt: skip
