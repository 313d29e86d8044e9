"""One measure before a change and after it: in every row about as much more or less, but for a slip in one of both cells.

    check(sheet)          findings on rows whose two figures are far from what the others have between theirs

    | model | 0.8 peak GiB | 0.9 peak GiB |
    | 7B    |         45.8 |         42.7 |          0.93 times as much, as in the other rows
    | 13B   |         21.8 |         2.03 |
"""
from __future__ import annotations

import functools
import math

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import field_of
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import older

FEWEST, MOST_ROWS = 5, 200
ALIKE, FAR, TIMES = 0.12, 0.25, 4.0
"""By how much, as logarithms, rows differ at most; how far a row is off at least, and how many times what they differ by."""
FIELDS = ("mem_value", "sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "tflops")
CLEAR = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost")
Pair = tuple[Row, float, float]


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        rows = [row for row in mates[:MOST_ROWS] if row.tabular] if len(mates) >= FEWEST else []
        for before, after in _twins(tuple(rows[0].record.printed)) if rows else ():
            pairs = [(row, one, other) for row in rows
                     if (one := digits.alone(row.cells.get(before, ""))) and (other := digits.alone(row.cells.get(after, "")))
                     and one > 0 < other]  # fmt: skip
            found += _told(before, after, pairs) if len(pairs) >= FEWEST else []
    return found


@functools.lru_cache(maxsize=4096)
def _twins(headings: tuple[str, ...]) -> list[tuple[str, str]]:
    was = older(headings)
    pairs = [(one, other) for one in headings if one in was and field_of(one) in FIELDS
             for other in headings if other not in was and field_of(other) == field_of(one)]  # fmt: skip
    return pairs if len({one for one, _ in pairs}) == len(pairs) else []


def _told(before: str, after: str, pairs: list[Pair]) -> list[Finding]:
    logs = sorted(math.log(other / one) for _, one, other in pairs)
    odd = [pair for pair in pairs if abs(math.log(pair[2] / pair[1]) - logs[len(logs) // 2]) > FAR]
    kept = [math.log(other / one) for row, one, other in pairs if all(row is not its for its, _, _ in odd)]
    spread = max(kept) - min(kept)
    if len(odd) != 1 or spread > ALIKE or abs(math.log(odd[0][2] / odd[0][1]) - logs[len(logs) // 2]) < TIMES * spread:
        return []
    row, one, other = odd[0]
    if row.settled or row.reasons:
        return []
    low, high = math.exp(min(kept) - spread / 4) * (1 - CLOSE), math.exp(max(kept) + spread / 4) * (1 + CLOSE)
    ends = {before: (other / high, other / low), after: (one * low, one * high)}
    typed = {}
    for heading, span in ends.items():
        cell = row.cells[heading]
        scale = (digits.alone(cell) or 1.0) / float(digits.plain(cell) or 1.0)
        slip = digits.slip(cell, (span[0] / scale, span[1] / scale))
        if slip is not None and slip.how in CLEAR:
            typed[heading] = slip
    if len(typed) > 1:  # the one that is none of its column, and would be
        rest = [pair for pair in pairs if pair is not odd[0]]
        strange = {before: _is_strange(one, [was for _, was, _ in rest]), after: _is_strange(other, [now for *_, now in rest])}
        typed = {heading: slip for heading, slip in typed.items() if strange[heading]}
    how = f"{math.exp(min(kept)):.2f} to {math.exp(max(kept)):.2f} times {before} in the other rows"
    if len(typed) != 1:
        message = f"{after} {row.cells[after]} is {other / one:.3g}, and {how}: one of both is wrong"
        return [row.find("aggregate", "warning", message, column=after, printed=row.cells[after])]
    heading, slip = typed.popitem()
    cell = row.cells[heading]
    right = digits.as_there(cell, None, slip.text) or slip.text
    message = f"{heading} {cell} -> {right} ({slip.how}): {after} is {how}, and {other / one:.3g} times as printed"
    return [row.find("aggregate", "error", message, column=heading, printed=cell, proposed=right)]


def _is_strange(own: float, others: list[float]) -> bool:
    """Whether a figure is far from what the other rows have in its column."""
    return not min(others) / STRANGE < own < max(others) * STRANGE


STRANGE = 1.2
CLOSE = 0.01
"""What the digits of both leave open."""
