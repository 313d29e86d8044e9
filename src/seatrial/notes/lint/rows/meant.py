"""The count that was meant where the one that is printed cannot be: 10 micro-batches a step where all other rows have 1 or 2.

    odd(row, "mbs", 10)                          whether nobody chose it, as far as the rest of its column tells
    meant(row, "mbs", 10, lambda n: 512 % n == 0)    1, or None where several would do as well

A count that fits is likely as the hand turns it into what is printed, as other rows have it, and most of all those that share
the row's other settings.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from seatrial.notes.lint.digits import slip
from seatrial.notes.lint.row import CONFIGURATION, Row
from seatrial.notes.lint.usual import round_number

BESIDE = frozenset(("ep", "cp", "ga"))
SETTINGS = ("size_label", "machine", "gpus", "cp", "ep", *CONFIGURATION)
FEW, ANY_DIGIT = 2.0, 1.0
"""A slip that hardly more than one number leads to; one digit that is another."""
ALIKE = 1.0
"""The rows that share most settings have it; times the share of those that do."""
LEAD = 0.4


def meant(row: Row, name: str, printed: int, fits: Callable[[int], bool]) -> int | None:
    column = _column(row, name)
    powers = {power for at in range(12) if (power := 2**at) not in column}
    near = _most_alike(row, name)
    scores: dict[int, float] = {}
    for value in (*column, *powers):
        typed = slip(str(printed), (value, value)) if value != printed and fits(value) else None
        if typed is None or value in powers and typed.how == "one digit changed":
            continue
        score = ANY_DIGIT if typed.how == "one digit changed" else FEW
        score += column[value] / max(1, column.total()) + ALIKE * near.count(value) / max(1, len(near))
        scores[value] = score
    first, *rest = sorted(scores, key=lambda value: -scores[value]) or [0]
    return first if first and (not rest or scores[first] - scores[rest[0]] >= LEAD) else None


def odd(row: Row, name: str, printed: int) -> bool:
    """Neither another row has it nor is it a number that people choose, where those of other rows are."""
    column = _column(row, name)
    return bool(column) and printed not in column and (printed & (printed - 1) != 0) and all(
        value & (value - 1) == 0 or not round_number(printed) for value in column)  # fmt: skip


def _column(row: Row, name: str) -> Counter[int]:
    return Counter(value for mate in row.around if mate is not row and (value := _count(mate, name)))


def _count(row: Row, name: str) -> int | None:
    return row.beside(name) if name in BESIDE else row.whole(name)


def _most_alike(row: Row, name: str) -> list[int]:
    """What the rows have that share most settings with it."""
    mates = [(mate, value) for mate in row.around if mate is not row and (value := _count(mate, name))]
    shared = [sum(_said(mate, other) == _said(row, other) for other in SETTINGS if other != name) for mate, _ in mates]
    return [value for (_, value), count in zip(mates, shared) if count == max(shared)]


def _said(row: Row, name: str) -> object:
    return row.beside(name) if name in BESIDE else getattr(row.record, name)
