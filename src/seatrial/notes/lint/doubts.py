"""What makes an error a doubt: that it is said of most rows of a table, or that no slip of the hand explains it.

    temper(findings, sheet)     errors that one law says of most rows of a table as warnings, with how many they are
    weigh(findings)             errors without a slip that explains them as warnings

Slips are few, and of few kinds. A column that is left out, by which the rows differ, or a sentence about another machine make a
law fail in row after row; nobody would bet on any of those rows then, and the table as a whole is worth a look. A wrong heading
or a wrong sentence is said once, by rules of their own (`ms-not-s` of all rows, `header-vs-row`). And where two figures
contradict each other in a way that no moved point, changed digit or copied cell leads to, it is as often the reading that is
wrong: over half of the errors of that kind were false on notes that nobody had seen, one in fifty of those with a slip.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import SURE, Finding
from seatrial.notes.lint.sheet import Sheet

MOST = {"memory-over-capacity": 0.0, "over-peak": 0.0, "heads-divisible": 0.0, "batch-divisible": 0.0, "ms-not-s": 0.0,
        "aggregate": 0.25, "outlier": 0.25, "world-size": 0.5, "rate-mismatch": 0.6, "tflops-mismatch": 0.6}  # fmt: skip
"""Which share of the rows of a table a law may contradict; where a device, a batch or the usual time of a token decides, one
row alone."""
FEWEST = 2
"""Rows of which one alone is a slip, and never many."""


def temper(found: Iterable[Finding], sheet: Sheet) -> list[Finding]:
    found = list(found)
    tables = {(row.record.source_file, row.record.source_line): row.key for row in sheet.rows if row.tabular}
    wrong: dict[tuple[tuple[str, int | None], str], set[object]] = {}
    for one in found:
        if one.level == "error" and one.code in MOST and (one.file, one.line) in tables and one.ground not in SURE:
            # All runs of a table that is turned round begin in one line.
            place = one.message if (one.file, one.line) in sheet.turned else one.line
            wrong.setdefault((tables[one.file, one.line], one.code), set()).add(place)
    many = {(key, code): f"; {len(lines)} of {len(sheet.tables[key])} rows are off so: is a setting missing, or misread?"
            for (key, code), lines in wrong.items()
            if len(lines) >= FEWEST and len(lines) > MOST[code] * len(sheet.tables[key])}  # fmt: skip
    for key, code in many:
        for row in sheet.tables[key]:
            row.fixed = {name: value for name, value in row.fixed.items() if row.reasons.get(name) != code}
    return [replace(one, level="warning", message=f"{one.message}{why}")
            if one.level == "error" and (why := many.get((tables.get((one.file, one.line), ("", None)), one.code))) else one
            for one in found]  # fmt: skip


DOUBTFUL = ("header-vs-row",)
"""What a setting that was taken from the wrong sentence shows as well."""
OPEN = ("rate-mismatch", "tflops-mismatch", "label-vs-params", "pasted-pair")
"""Laws between figures, of which one must be proposed."""

BATCHES, ELSEWHERE = ("rate-mismatch", "batch-divisible"), "as in "
"""Where it is as often a batch that nobody says: one for another that rows of the table have."""


def weigh(found: Iterable[Finding]) -> list[Finding]:
    found = list(found)
    # Cells of two rows that are exchanged alike are a column that was misread.
    shapes = Counter((one.file, one.message) for one in found if one.code == "cells-shifted")
    return [replace(one, level="warning") if one.level == "error" and _is_open(one) else one
            for one in found if shapes[one.file, one.message] < 2]  # fmt: skip


LEAST, FINE = 0.02, 4
"""From which share on one changed digit is a slip, and not what means over other steps differ by; of so many it always is."""


def _is_open(one: Finding) -> bool:
    if one.code in DOUBTFUL or one.ground == "open":
        return True
    if one.slip == "one digit changed" and one.ground not in SURE:
        printed, proposed = (digits.alone(text or "") for text in (one.printed, one.proposed))
        if printed and proposed and abs(printed / proposed - 1) < LEAST and sum(map(str.isdigit, one.printed or "")) < FINE:
            return True
    if one.code in OPEN and one.proposed is None:
        return one.slip is None
    if one.code in BATCHES and one.ground not in SURE and one.slip is not None and one.slip.startswith(ELSEWHERE):
        return True
    return one.code == "aggregate" and one.ground == "found" and (one.slip is None or one.proposed is None)
