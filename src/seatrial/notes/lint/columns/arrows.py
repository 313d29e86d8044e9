"""Cells with a figure before a change and one after it: the measures of a row change by one factor.

    check(sheet)          findings on a measure that changes otherwise than the others of its row

    | ms: main → PR | tok/s: main → PR | MFU: main → PR |
    | 9,241 → 8,612 |  28,368 → 30,439 |    48.7 → 25.3 |          52.3: the others change by 7.3 %

Measures go together where the other rows show it: memory may change as it likes.
"""
from __future__ import annotations

import itertools
import math
import re

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet

FEWEST, MOST_ROWS, CLOSE, OFF = 3, 60, 0.012, 0.06
CLEAR = ("the point moved", "two digits exchanged")
_BEFORE = re.compile(r" \(before\)$")


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        names = [_BEFORE.sub("", heading) for heading in mates[0].record.printed if heading.endswith(" (before)")]
        if len(names) > 2 and FEWEST <= len(mates) <= MOST_ROWS:
            found += _told(mates, names)
    return found


def _told(mates: list[Row], names: list[str]) -> list[Finding]:
    changes = {(row, name): math.log(after / before) for row in mates for name in names
               if (before := digits.alone(row.record.printed.get(f"{name} (before)", "")) or 0) > 0
               and (after := digits.alone(row.record.printed.get(f"{name} (after)", "")) or 0) > 0}  # fmt: skip
    signs: dict[tuple[str, str], int] = {}
    for one, other in itertools.permutations(names, 2):
        both = [(changes[row, one], changes[row, other]) for row in mates if (row, one) in changes and (row, other) in changes]
        for sign in (1, -1):
            kept = sum(abs(a - sign * b) < CLOSE and abs(a) > CLOSE for a, b in both)
            if kept >= max(FEWEST - 1, 0.6 * len(both)):
                signs[one, other] = sign
    found = []
    for row in mates:
        for name in names:
            others = [signs[name, other] * changes[row, other] for other in names
                      if (name, other) in signs and (row, other) in changes]  # fmt: skip
            agree = len(others) > 1 and max(others) - min(others) < 2 * CLOSE and (row, name) in changes
            if agree and abs(changes[row, name] - others[0]) > OFF and not row.reasons:
                found += _slipped(row, name, others[0])
    return found


def _slipped(row: Row, name: str, change: float) -> list[Finding]:
    """The one of two figures that a slip of the hand explains."""
    cells = {side: row.record.printed[f"{name} ({side})"] for side in ("before", "after")}
    values = {side: float(digits.plain(cell) or 0) for side, cell in cells.items()}
    wanted = {"after": values["before"] * math.exp(change), "before": values["after"] * math.exp(-change)}
    typed = {side: slip.text for side, meant in wanted.items()
             for slip in digits.slips(digits.plain(cells[side]), (meant * (1 - CLOSE), meant * (1 + CLOSE)))
             if slip.how in CLEAR}  # fmt: skip
    side = next(iter(typed)) if len(typed) == 1 else "after"
    heading, printed, proposed = f"{name} ({side})", cells[side].strip(), typed.get(side) if len(typed) == 1 else None
    said = f" -> {proposed}" if proposed else ""
    message = f"{heading} {printed}{said}: the other measures of the row change by {100 * math.expm1(abs(change)):.1f} %"
    return [row.find("aggregate", "error" if proposed else "warning", message, column=heading, printed=printed,
                     proposed=proposed)]  # fmt: skip
