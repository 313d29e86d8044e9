"""The numbers of the formulas that everybody counts FLOPs by, where a sentence writes one down.

    check(sheet)          findings on numbers that no such formula has

    27·B·s·l·h²·(1 + s/6h + V/12lh)             72
    96 B s l h^2 (1 + s/60h + V/16lh)           6
    6·N + 21·L·h·s per token                    12

A layer costs 72 times batch, sequence and the square of its width, 96 with a second forward pass; attention adds s/6h to it,
and the vocabulary V/12lh, or V/16lh of those 96. By parameters a token costs 6 N, or 8, and attention 12 for each layer, width
and position, 6 under a causal mask; with the second pass a third more.
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.figures import plain
from seatrial.notes.lint.text.prose import LONGEST

_BY = r"[\s·*×⋅,\\]*"
_N = r"(\d{1,4}(?:\.\d+)?)"
_ALL = r"(?:N|P|[Pp]arams)(?:_?\w{1,8})?"
_OVER = r"(?:\s?/\s?\(?\s?|\}\{)"
_PARTS: tuple[tuple[re.Pattern[str], tuple[int, ...]], ...] = (
    (re.compile(rf"(?<![\w.,]){_N}{_BY}[bB]{_BY}[sS]{_BY}[lL]{_BY}[hH]"), (72, 96)),
    (re.compile(rf"(?<!\w)[sS]{_OVER}{_N}{_BY}[hH](?!\w)"), (6,)),
    (re.compile(rf"(?<!\w)[vV]{_OVER}{_N}{_BY}(?:[lL]{_BY}[hH]|[hH]{_BY}[lL])(?!\w)"), (12, 16)),
    (re.compile(rf"(?<![\w.,]){_N}{_BY}{_ALL}\s?\+\s?\d+{_BY}[lL](?:ayers)?{_BY}(?:[hHd]|n_)"), (2, 4, 6, 8)),
    (re.compile(rf"(?<![\w.,])\d{_BY}{_ALL}\s?\+\s?{_N}{_BY}[lL](?:ayers|_\w+)?{_BY}(?:[hHd]|n_)"),
     (2, 4, 6, 8, 12, 16, 24)),
)  # fmt: skip
"""A number of a formula, and what it may be."""
_BY_HAND = ("two digits exchanged", "the point moved", "a digit too many")


def check(sheet: Sheet) -> list[Finding]:
    return [one for file, text in sheet.prose.items() for number, line in text.said if len(line) <= LONGEST and "+" in line
            for one in _of_line(file, number, plain(line))]  # fmt: skip


def _of_line(file: str, number: int, line: str) -> Iterator[Finding]:
    for pattern, known in _PARTS:
        for match in pattern.finditer(line):
            if float(match[1]) in known:
                continue
            ways = {slip.how: one for one in known for slip in digits.slips(match[1], (one, one))}
            way = next((ways[how] for how in _BY_HAND if how in ways), known[0] if len(known) == 1 else None)
            right = None if way is None else str(way)
            there = " or ".join(map(str, known))
            message = f"{match[1]}{f' -> {right}' if right else ''}: the formula of FLOPs has {there} there"
            yield Finding(file=file, line=number, code="aggregate", level="error" if right else "warning", message=message,
                          column="FLOPs", printed=match[1], proposed=right)  # fmt: skip
