"""Figures that are another row's: typed over it, and forgotten.

    source(row, "tflops")                the row that the figure was copied from, where it can be told
"""
from __future__ import annotations

import re

from seatrial.notes.lint.columns.points import ABOVE
from seatrial.notes.lint.columns.relations import is_measure
from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.phases.ledger import is_listed
from seatrial.notes.lint.row import Row

FINE = 3
"""Digits of a figure that hardly comes twice by chance."""


def is_fine(cell: str) -> bool:
    return len(re.sub(r"\D", "", cell).lstrip("0")) >= FINE


def source(row: Row, name: str) -> Row | None:
    """The nearest row with the same figure in the same column, where no other two have the same."""
    cell = row.cell(name)
    if name[:1] == EXTRA and is_listed(name[1:]):
        return None
    if not is_measure(name) or not is_fine(cell):
        above = row.mates[row.place - 1] if row.place else None
        if above is None or not is_measure(name) or not cell or above.cell(name) != cell:
            return None
        return None if name[:1] == EXTRA and name[1:] in row.sheet.shared(row.key) else above
    near = row.mates[max(0, row.place - 20) : row.place + 21]
    texts = [mate.cell(name) for mate in near]
    again = [mate for mate in near if mate is not row and mate.cell(name) == cell]
    if len(again) == 1 and len(set(texts)) == len(texts) - 1:
        return again[0]
    above = row.mates[row.place - 1] if row.place else None
    # Where two others have a figure in common too, one is most likely pasted from the row above.
    return above if above in again and 2 * len(set(texts)) > len(texts) else None


def stale(row: Row, name: str) -> float:
    """What is printed is what another row has, most likely the one above: typed over, and forgotten."""
    of = source(row, name)
    if of is None:
        return 0.0
    return (2.5 if is_fine(row.cell(name)) else 1.0) * ABOVE if abs(of.place - row.place) == 1 else ABOVE
