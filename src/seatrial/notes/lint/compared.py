"""Sentences below a table that compare two of its rows by their names: `our fork beats Megatron-LM by 20 %`.

    check(sheet)          findings on shares that a slip of the hand keeps from being what the rows have

A sentence may speak of anything: it is told only where its share is none that a column of the table gives, and one slip leads
from it to what those columns agree on.
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean

_SHARE = re.compile(r"(?<![\w.,-])(\d{1,3}(?:[.,]\d{1,2})?)\s?%")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^\W\d_])")
MEASURES = ("sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "tflops", "mfu")
BELOW, SHORTEST, MOST_ROWS = 6, 4, 60
"""Lines below a table that speak of it; letters of a name; rows of a table that people compare."""
NEAR, ALIKE = 0.6, 2.0
"""Points within which a share is what is meant, and within which columns agree on it."""
CLEAR = ("the point moved", "two digits exchanged", "a digit too many")


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for (file, table), rows in sheet.tables.items():
        text = sheet.prose.get(file)
        if table is None or text is None or not 2 <= len(rows) <= MOST_ROWS or not text.has("%"):
            continue
        last = rows[-1].record.source_line or 0
        for number, line in enumerate(text.lines[last : last + BELOW], last + 1):
            if line.lstrip().startswith("#") or line.lstrip().startswith("|") and number > last + 2:
                break
            if "%" in line and not line.lstrip().startswith("|") and len(line) <= 2000:
                for sentence in _SENTENCE.split(line):
                    found += _told(rows, sentence, number)
    return found


def _told(rows: list[Row], sentence: str, number: int) -> Iterator[Finding]:
    shares, named = list(_SHARE.finditer(sentence)), _named(rows, sentence)
    if len(shares) != 1 or len(named) != 2:
        return
    one, other = named
    given: list[list[float]] = []
    for name in MEASURES:
        here, there = one.get(name), other.get(name)
        if here and there and {one.cell(name), other.cell(name)} != {""}:
            given.append([100 * abs(here / there - 1), 100 * abs(there / here - 1)])
    printed = shares[0][1]
    value = float(printed.replace(",", "."))
    half = 0.5 * 10.0 ** -len(printed.replace(",", ".").partition(".")[2])
    if not given or any(abs(share - value) <= NEAR + half for each in given for share in each):
        return
    least, most = min(map(min, given)), max(map(max, given))
    ends = max(least - half, 0.05), most + half
    slips = [one for one in digits.slips(printed.replace(",", "."), ends) if one.how in CLEAR and one.text[:1] != "0"]
    if not slips or most - least > ALIKE:
        return
    typed = min(slips, key=lambda one: CLEAR.index(one.how))
    proposed = typed.text.replace(".", ",") if "," in printed else typed.text
    names = " and ".join(_name(row) for row in named)
    message = f"{printed} % -> {proposed} % ({typed.how}): {names} differ by {least:.2g} to {most:.2g} % in the table"
    yield Finding(file=one.record.source_file, line=number, code="aggregate", level="error", message=message,
                  printed=printed, proposed=proposed)  # fmt: skip


def _name(row: Row) -> str:
    return clean(next(iter(row.cells.values()), ""))


def _named(rows: list[Row], sentence: str) -> list[Row]:
    """The rows whose names stand in a sentence; a name may be part of a longer one."""
    rest, found = sentence.casefold(), []
    for row in sorted(rows, key=lambda row: -len(_name(row))):
        name = _name(row).casefold()
        if len(name) >= SHORTEST and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", rest):
            rest = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", " ", rest)
            found.append(row)
    return found
