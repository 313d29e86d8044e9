"""Running totals: a column that grows in every row by what another column has.

    check(sheet)          findings on cells that break it

    | day   | steps | last step | tokens (B) | sum (B) |
    | Mon   | 17682 |    137682 |       55.6 |   433.1 |
    | Tue   | 17389 |    155071 |       54.7 |   487.8 |

Nothing is learned but which columns they are: most rows add up to their digits. A sum that is wrong is off in its own row and,
the other way round, in the next; an amount that is wrong in its own row alone.
"""
from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import EXTRA, field_of
from seatrial.notes.lint.phases.ledger import CLEAR, like, name_of
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet

FEWEST, MOST_ROWS, MOST_COLUMNS, MOST_WRONG = 4, 400, 16, 3
SHARE = 0.7
"""Of the rows that rise, and of those that nothing is wrong in."""


@dataclass(frozen=True)
class _Column:
    heading: str
    values: list[float]
    half: float
    """Half of the last digit of its coarsest cell."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        rows = [row for row in mates[:MOST_ROWS] if row.tabular and not is_aggregate(row)] if len(mates) >= FEWEST else []
        first = rows[0] if rows else None
        headings = [heading for heading in first.record.printed if first.figure(heading) is not None
                    and field_of(heading) in ("", "iteration")][:MOST_COLUMNS] if first is not None else []  # fmt: skip
        made = [_column(rows, heading) for heading in headings] if len(headings) > 1 else []
        columns = [column for column in made if column is not None]
        rising = [one for one in columns if sum(map(operator.lt, one.values, one.values[1:])) >= SHARE * (len(rows) - 1)]
        for total, amount in itertools.product(rising, columns) if len(columns) > 1 else ():
            if total is not amount:
                found += _told(rows, total, amount, [one for one in rising if one is not total and amount not in rising])
    return found


def _column(rows: list[Row], heading: str) -> _Column | None:
    cells = [row.record.printed.get(heading, "") for row in rows]
    values: list[float] = []
    for cell in cells:
        value = digits.alone(cell)
        if value is None or value < 0:
            return None
        values.append(value)
    return _Column(heading, values, max(0.5 * 10.0 ** -digits.places(cell) for cell in cells)) if len(rows) >= FEWEST else None


def _told(rows: list[Row], total: _Column, amount: _Column, others: list[_Column]) -> Iterator[Finding]:
    open_ = 2 * total.half + amount.half
    short = [now - was - more for was, now, more in zip(total.values, total.values[1:], amount.values[1:])]
    off = {at for at, one in enumerate(short, 1) if abs(one) > open_ * 1.001 + 1e-9 * total.values[at]}
    first = _begins(total, amount, others, open_) if off else None
    off -= {at for at in off if first is not None and abs(total.values[at] - first[at] - amount.values[at]) <= open_ * 1.001}
    least = min(amount.values[at] for at in range(1, len(rows)))
    sums = {at for at in off if at + 1 in off and math.isclose(short[at], -short[at - 1], abs_tol=2 * open_)}
    wrong = len(off - {at + 1 for at in sums})
    kept = len(short) - len(off)
    if wrong > max(1.0, min(MOST_WRONG, (1 - SHARE) * len(short))) or kept < max(2, wrong + 1) or not open_ < 0.1 * least:
        return
    told: set[int] = set()
    for at in sorted(off):
        if at in told:
            continue
        ends = at + 1 == len(rows)
        if at in sums:
            told |= {at, at + 1}
            yield _finding(rows[at], total, total.values[at - 1] + amount.values[at], amount.heading)
        elif ends or at + 1 not in off:
            whole = total.values[at - 1] + amount.values[at]
            if ends and _typed(rows[at].record.printed[total.heading], whole, open_):
                yield _finding(rows[at], total, whole, amount.heading)
            else:
                meant = amount.values[at] + short[at - 1] if first is None else total.values[at] - first[at]
                yield _finding(rows[at], amount, meant, total.heading)


def _begins(total: _Column, amount: _Column, others: list[_Column], open_: float) -> list[float] | None:
    """Where rows begin, if a column says so: after a crash that is an older checkpoint and not where the row above ended."""
    for first in others:
        each = zip(total.values, first.values, amount.values)
        short = [abs(last - begun - more) > open_ * 1.001 for last, begun, more in each]
        if sum(short) <= (1 - SHARE) * len(short) and any(first.values):
            return first.values
    return None


def _typed(cell: str, value: float, open_: float) -> digits.Slip | None:
    scale = value / (digits.alone(cell) or value) * float(digits.plain(cell) or value)
    if value <= open_:
        return None
    slip = digits.slip(digits.plain(cell), (scale * (1 - open_ / value), scale * (1 + open_ / value)))
    return slip if slip is not None and slip.how in CLEAR else None


def _finding(row: Row, column: _Column, meant: float, by: str) -> Finding:
    cell, name = row.cells[column.heading], name_of(row, column.heading)
    was = digits.alone(cell) or 1.0
    shown = like(cell, meant / was * float(digits.plain(cell))) if was and digits.plain(cell) else f"{meant:g}"
    slip = _typed(cell, meant, 2 * column.half) if meant > 0 else None
    if name[:1] == EXTRA:
        row.propose(name, meant, "aggregate")
    else:
        row.reasons[name] = "aggregate"
    why = f" ({slip.how})" if slip is not None else ""
    message = f"{column.heading} {cell} -> {shown}{why}: the rows around add up by {by}, as most do"
    return row.find("aggregate", "error", message, column=column.heading, printed=cell, proposed=shown)
