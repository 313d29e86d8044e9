"""What is wrong in most rows of a table is hardly wrong in any: the law, or a setting that it takes, is not the table's.

    temper(findings, sheet)                errors that one law says of most rows of a table as warnings, with how many they are

Slips are few. A column that is left out, by which the rows differ, or a sentence about another machine make a law fail in row
after row; nobody would bet on any of those rows then, and the table as a whole is worth a look. A wrong heading or a wrong
sentence is said once, by rules of their own (`ms-not-s` of all rows, `header-vs-row`).
"""
from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.sheet import Sheet

MOST = {"batch-divisible": 0.25, "outlier": 0.25, "memory-over-capacity": 0.5, "over-peak": 0.5, "world-size": 0.5,
        "rate-mismatch": 0.6, "tflops-mismatch": 0.6}  # fmt: skip
"""Which share of the rows of a table a law may contradict."""
_STATED = re.compile(r"\(line \d+ says |\(exchanged with line \d+\)")
"""That the text says it otherwise: then the rows are wrong, all of them; or that two have each other's figure: one slip."""
FEWEST = 2
"""Rows of which one alone is a slip, and never many."""


def temper(found: Iterable[Finding], sheet: Sheet) -> list[Finding]:
    found = list(found)
    tables = {(row.record.source_file, row.record.source_line): row.key for row in sheet.rows if row.tabular}
    wrong: dict[tuple[tuple[str, int | None], str], set[object]] = {}
    for one in found:
        if one.level == "error" and one.code in MOST and (one.file, one.line) in tables and not _STATED.search(one.message):
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
