"""Matrices of one figure: a setting for each row and another for each column, `stage 1 | stage 2` over `mbs 1` and `mbs 2`.

    check(sheet)          findings on the one cell that goes against the order of its row and of its column

Memory grows with the micro-batch and falls with the stage of ZeRO, time falls with the devices: whichever way it goes, it goes
so in every row and every column. Where one cell alone breaks both, it was mistyped; what its neighbours add up to is proposed.
"""
from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterator, Sequence

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean

_NUMBERED = re.compile(r"(\D{0,20}?)[\s=-]*(\d{1,6})\s*(\D{0,12})")
FEWEST, MOST = 6, 20
"""Figures that show an order; rows and columns."""
LITTLE, ALIKE = 0.02, 0.03
"""By how much a figure may go against the order; and within which neighbours agree on what a cell should be."""
Figures = list[list[float | None]]


def check(sheet: Sheet) -> list[Finding]:
    return [finding for mates in sheet.tables.values() if 2 <= len(mates) <= MOST for finding in _odd(mates)]


def _rises(labels: Sequence[str]) -> bool:
    """Whether labels are one word with growing numbers."""
    said: list[tuple[str, str, int]] = []
    for label in labels:
        if (match := _NUMBERED.fullmatch(clean(label))) is None:
            return False  # as the first nearly always is
        said.append((match[1].strip().lower(), match[3].strip().lower(), int(match[2])))
    return len({one[:2] for one in said}) == 1 and all(a[2] < b[2] for a, b in itertools.pairwise(said))


def _odd(mates: list[Row]) -> Iterator[Finding]:
    first, *columns = [*mates[0].record.printed] or [""]
    if not 2 <= len(columns) <= MOST or not _rises(columns) or not _rises([row.cells.get(first, "") for row in mates]):
        return
    given: Figures = [[digits.alone(row.cells.get(heading, "")) for heading in columns] for row in mates]
    if sum(value is not None for line in given for value in line) < FEWEST or _in_order(given):
        return
    places = [(i, j) for i, line in enumerate(given) for j, value in enumerate(line) if value is not None]
    found = [place for place in places if _in_order(_without(given, *place)) and _breaks_both(given, *place)]
    if len(found) != 1:
        return
    i, j = found[0]
    row, heading = mates[i], columns[j]
    cell, meant = row.cells[heading], _between(given, i, j)
    proposed = digits.as_there(cell, None, f"{meant:.{digits.places(cell)}f}") if meant is not None else None
    about = f" -> {proposed}" if proposed else ""
    message = f"{row.cells[first]}, {heading}: {cell}{about}: all other figures rise or fall along their rows and columns"
    yield row.find("outlier", "error", message, column=heading, printed=cell, proposed=proposed)


def _without(given: Figures, i: int, j: int) -> Figures:
    return [[None if (at, to) == (i, j) else value for to, value in enumerate(line)] for at, line in enumerate(given)]


def _directions(lines: Sequence[Sequence[float | None]]) -> set[int]:
    """1 where figures rise along a line, -1 where they fall."""
    known = [[value for value in line if value is not None] for line in lines]
    steps = [(a, b) for line in known for a, b in itertools.pairwise(line)]
    return {1 if b > a else -1 for a, b in steps if abs(b - a) > LITTLE * max(a, b)}


def _in_order(given: Figures) -> bool:
    return all(len(_directions(lines)) == 1 for lines in (given, [*zip(*given)]))


def _breaks_both(given: Figures, i: int, j: int) -> bool:
    lines = (given, i), ([*zip(*given)], j)
    return all(len(_directions([table[at]]) | _directions([*table[:at], *table[at + 1 :]])) > 1 for table, at in lines)


def _between(given: Figures, i: int, j: int) -> float | None:
    """What the cell is where rows and columns add up, if all that are known agree on it."""
    around = [(given[i][to], given[at][j], given[at][to]) for at in range(len(given)) for to in range(len(given[0]))
              if at != i and to != j]  # fmt: skip
    told = [a + b - c for a, b, c in around if a is not None and b is not None and c is not None]
    middle = statistics.median(told) if told else 0.0
    return middle if middle > 0 and all(abs(one / middle - 1) < ALIKE for one in told) else None
