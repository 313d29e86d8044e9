"""How long a sentence says that so many tokens or samples take, by the rate beside them or by that of the row it names.

    check(sheet)          findings, each of one line of text

    A full 10 B token run at 9000 tok/s would take 0.5 days.          10e9 / 9000 / 86400 = 12.9
    The set has 52 000 samples; with q4 an epoch is 1369 hours.       by the 0.633 samples/s of the row `q4`: 22.8

Sentences round, and a run has restarts: they are asked about where the figure is off by more than half.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import NUMBER, clean, decimal
from seatrial.tables.tongues import in_english

MOST_LINES, LONGEST = 4000, 1500
OFF, NEAR = math.log(1.5), 0.06
_N = rf"(?<![\w.,/^-])({NUMBER.pattern})"
_AMOUNT = re.compile(rf"{_N}\s?([kKMBT])?(?:illion|n)?[ -](tokens?|samples?|sequences?|examples?)\b"
                     r"(?! ?(?:/|per|a|each|in each) ?(?:s\b|sec|step|GPU|device|node|batch|hour|day))")  # fmt: skip
_RATE = re.compile(rf"\bat (?:about |some |~ ?)?{_N}\s?([kKM])? ?(tok(?:en)?s?|samples?|sequences?) ?"
                   r"(?:/|per |a )s(?:ec(?:ond)?)?\b(?! ?(?:/|per|and|a) ?(?:GPU|device|chip|card|process|node))",
                   re.IGNORECASE)  # fmt: skip
_LASTS = re.compile(rf"\b(?:takes?|taking|lasts?|needs?|is|are|be|in) (?:about |some |around |roughly |~ ?)?{_N} ?"
                    r"(minutes|min|hours|hrs?|h|days?|d|weeks?)\b(?! ?(?:per|of|a\b|ago|later))", re.IGNORECASE)  # fmt: skip
_ALL = re.compile(r"\bepoch|\bpass\b|\brun\b|\btraining\b|\bwhole\b|\bfull\b", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=\b\d) (?=\d{3}\b)|(?<=\b\d\d) (?=\d{3}\b)|(?<=\b\d{3}) (?=\d{3}\b)")
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_FORGOTTEN = (60.0, 24.0, 3600.0, 1440.0, 7.0, 10.0, 100.0, 1000.0)
TINY = 1e-9


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        if len(text.lines) <= MOST_LINES and text.has("token", "sample", "sequence", "example"):
            tables = [rows for (its, table), rows in sheet.tables.items() if its == file and table is not None]
            for number, line in enumerate(text.lines, 1):
                if line[:1] not in ("|", "#", "<", "") and len(line) <= LONGEST and _LASTS.search(line := in_english(line)):
                    found += _line(file, number, line, tables)
    return found


def _line(file: str, number: int, line: str, tables: list[list[Row]]) -> Iterator[Finding]:
    line = _THOUSANDS.sub("", line)
    for sentence in re.split(r"(?<=[^\d])[.!?]\s|(?<=\d)[.]\s(?=[A-Z])", line):
        lasts, amounts, rates = (list(pattern.finditer(sentence)) for pattern in (_LASTS, _AMOUNT, _RATE))
        if len(lasts) != 1 or len(amounts) != 1 or len(rates) > 1 or not _ALL.search(sentence):
            continue
        amount = float(decimal(amounts[0][1])) * _SCALES.get(amounts[0][2] or "", 1.0)
        tokens = amounts[0][3].startswith("token")
        rate, by = _of_sentence(rates[0], tokens) if rates else _of_row(sentence, number, tables, tokens)
        said, unit = float(decimal(lasts[0][1])), _SECONDS[lasts[0][2][0].lower()]
        if not rate or not amount or not said:
            continue
        meant = amount / rate / unit
        if not TINY < meant / said < 1 / TINY:
            continue  # nobody lets anything run so long
        half = 0.5 * 10.0 ** -digits.places(lasts[0][1]) / said
        off = abs(math.log(meant / said))
        if off < OFF + half:
            continue
        forgotten = any(abs(off - math.log(times)) < NEAR + half for times in _FORGOTTEN)
        level: Level = "error" if forgotten else "warning"
        many = max(2, len(re.sub(r"\D", "", lasts[0][1]).strip("0")))
        value = f"{meant:.{many}g}" if meant < 10**many else f"{meant:.0f}"
        message = f"{lasts[0][1]} {lasts[0][2]} -> {value}: {amounts[0][0]} by {by} take {value} {lasts[0][2]}"
        yield Finding(file=file, line=number, code="aggregate", level=level, message=message, column=lasts[0][2],
                      printed=lasts[0][1], proposed=value)  # fmt: skip


def _of_sentence(match: re.Match[str], tokens: bool) -> tuple[float, str]:
    own = match[3].lower().startswith("tok")
    return float(decimal(match[1])) * _SCALES.get(match[2] or "", 1.0) if own == tokens else 0.0, match[0].removeprefix("at ")


def _of_row(sentence: str, number: int, tables: list[list[Row]], tokens: bool) -> tuple[float, str]:
    """The rate of the one row of the last table above that the sentence names by its first cell."""
    above = [rows for rows in tables if (rows[-1].record.source_line or 0) < number]
    rows = max(above, key=lambda rows: rows[-1].record.source_line or 0, default=[])
    names = {row: clean(next(iter(row.cells.values()), "")) for row in rows}
    named = [row for row, name in names.items() if len(name) > 1 and not name.isdecimal()
             and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence)]  # fmt: skip
    rate = named[0].get("tokens_per_s" if tokens else "samples_per_s") if len(named) == 1 else None
    return (rate, f"the rate of {named[0].where}") if rate else (0.0, "")
