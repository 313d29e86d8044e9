"""Phases with a first and a last day: they follow each other, and have room for the days that a column says they took.

    check(sheet)          findings on the one phase whose dates do not

    | phase | start | end   | days |
    | 1     | 03-02 | 03-12 |  8.8 |
    | 2     | 03-21 | 03-25 | 11.4 |          eleven days are more than from the 21st to the 25th: it began on the 12th
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from itertools import pairwise

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean, normal
from seatrial.tables.tongues import in_english

_DATE = re.compile(r"(?:(\d{4})-)?(\d{2})-(\d{2})|(\d{1,2})\.(\d{1,2})\.(\d{4})?")
_DAYS = re.compile(r"\bdays?\b")
FEWEST, MOST = 3, 60


def check(sheet: Sheet) -> list[Finding]:
    return [finding for mates in sheet.tables.values() if FEWEST <= len(mates) <= MOST for finding in _spans(mates)]


def _day(cell: str) -> date | None:
    match = _DATE.fullmatch(clean(cell))
    if match is None:
        return None
    year, month, day = (match[1], match[2], match[3]) if match[2] else (match[6], match[5], match[4])
    try:
        return date(int(year or 2001), int(month), int(day))
    except ValueError:
        return None


def _spans(mates: list[Row]) -> Iterator[Finding]:
    headings = [heading for heading, cell in mates[0].cells.items() if _DATE.fullmatch(cell) and _day(cell)]
    rows = [row for row in mates if all(_day(row.cells.get(heading, "")) for heading in headings)] if len(headings) == 2 else []
    if len(rows) < FEWEST:
        return
    first, last = headings
    spans = [(_day(row.cells[first]) or date.min, _day(row.cells[last]) or date.min) for row in rows]
    taken = next((heading for heading in rows[0].cells if _DAYS.search(normal(in_english(heading, surely=True)))), "")
    lasts = [digits.alone(row.cells.get(taken, "")) or 0.0 for row in rows]
    odd = [at for at, ((start, end), days) in enumerate(zip(spans, lasts)) if (end - start).days + 1 < max(days, 1)]
    ordered = all(a[0] <= b[0] for at, (a, b) in enumerate(pairwise(spans)) if not {at, at + 1} & {*odd})
    if len(odd) != 1 or not ordered:
        return
    at = odd[0]
    (start, end), row = spans[at], rows[at]
    before = spans[at - 1][1] if at else None
    after = spans[at + 1][0] if at + 1 < len(rows) else None
    fits = [(first, rows[at - 1].cells[last])] if before and (end - before).days + 1 >= max(lasts[at], 1) else []
    fits += [(last, rows[at + 1].cells[first])] if after and (after - start).days + 1 >= max(lasts[at], 1) else []
    slipped = [(heading, cell) for heading, cell in fits if sorted(row.cells[heading]) == sorted(cell)]
    heading, meant = slipped[0] if len(slipped) == 1 else fits[0] if len(fits) == 1 else (first, "")
    room = f"{(end - start).days} days from {row.cells[first]} to {row.cells[last]}"
    needs = f" for {row.cells[taken]}" if lasts[at] > 1 else ""
    message = f"{room}{needs}" + (f": {heading} {row.cells[heading]} -> {meant}, where the phase beside it is" if meant else "")
    yield row.find("date-order", "error" if slipped else "warning", message, column=heading, printed=row.cells[heading],
                   proposed=meant or None)  # fmt: skip
