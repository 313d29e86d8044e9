"""Sentences that work something out: a share of the peak, or by how much a row of the table above is better than the first.

    check(sheet)          findings on those that the figures do not give

    A GPU does 391 TFLOP/s (51 % of peak).                391 of the 989 that the text says are 40 %
    Both together save 15 % of a step.                    the row `both` is 5.6 % shorter than the first one

A sentence about a row counts only where a slip of the hand leads from what the row gives to what it says.
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.prose import Prose, peaks_in
from seatrial.tables.headings import clean

_OF_PEAK = re.compile(r"(?<![\d.,])(\d{2,4}(?:\.\d+)?) ?TFLOP\S*[^.;|\n%\d]{0,24}?(?<![\d.,])(\d{1,2}(?:\.\d+)?) ?% "
                      r"(?:of (?:the |its )?(?:\w+ )?peak|MFU|utili[sz]ation)", re.IGNORECASE)  # fmt: skip
_BETTER = re.compile(
    r"\b(?:sav(?:e|es|ed|ing)|gain(?:s|ed)?|(?:is|are|was|were|run|runs|ran) [^.;%]{0,20}?|brings?|brought|by) "
    r"(?:about |some |roughly |~ ?)?(\d{1,2}(?:\.\d+)?) ?% "
    r"(?:of (?:a|the|each) (?:step|iteration)|faster|slower|shorter|less time|more (?:tokens|throughput))", re.IGNORECASE)
_MEASURED = ("sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "tflops", "mfu")
POINTS, SHARE = 1.0, 0.05
"""By how many points, and which share of them, a percentage may be off that was rounded or taken from other digits."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = [rows for (its, table), rows in sheet.tables.items() if its == file and table is not None]
        for number, line in enumerate(text.lines, 1) if text.has(" %", "% ") else ():
            if "%" in line and len(line) <= 2000 and not line.lstrip().startswith("|"):
                found += [*_of_peak(file, number, line, text), *_of_a_row(file, number, line, tables)]
    return found


def _of_peak(file: str, number: int, line: str, text: Prose) -> Iterator[Finding]:
    for match in _OF_PEAK.finditer(line):
        tflops, said = float(match[1]), float(match[2])
        told = {*peaks_in(text.lines)}
        known = {*(text.device.peak_tflops.values() if text.device is not None else ())}
        if len(told) == 1 and min(told) > 0 and not any(_near(said, 100 * tflops / peak) for peak in told | known if peak):
            peak = told.pop()
            meant = f"{100 * tflops / peak:.{digits.places(match[2])}f}"
            message = f"{match[2]} % -> {meant} %: {match[1]} of the {peak:g} TFLOPs that the text says"
            yield Finding(file=file, line=number, code="rate-mismatch", level="error", message=message, column="MFU",
                          printed=f"{match[2]} %", proposed=f"{meant} %")  # fmt: skip


def _near(said: float, meant: float) -> bool:
    return abs(said - meant) <= max(POINTS, SHARE * meant)


def _of_a_row(file: str, number: int, line: str, tables: list[list[Row]]) -> Iterator[Finding]:
    """A row that the sentence names by all of its first cell, against the first row of the last table above."""
    match = _BETTER.search(line)
    above = [rows for rows in tables if (rows[-1].record.source_line or 0) < number] if match is not None else []
    rows = max(above, key=lambda rows: rows[-1].record.source_line or 0, default=[])
    names = {row: clean(next(iter(row.cells.values()), "")).lower() for row in rows[1:]}
    named = [row for row, name in names.items()
             if len(name) > 2 and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line.lower())]  # fmt: skip
    if match is None or len(named) != 1:
        return
    said, shares = float(match[1]), []
    for name in _MEASURED:
        now, was = named[0].get(name), rows[0].get(name)
        shares += [100 * abs(now / was - 1), 100 * abs(was / now - 1)] if now and was else []
    if not shares or any(_near(said, share) for share in shares):
        return
    slips = [slip for share in shares for slip in digits.slips(match[1], (share - 1, share + 1)) if slip.how in _SLIPS]
    if slips and max(shares) - min(shares) < 2 * POINTS:
        apart = f"{named[0].where} is {min(shares):.1f} to {max(shares):.1f} % off {rows[0].where}"
        message = f"{match[1]} % -> {slips[0].text} % ({slips[0].how}): {apart}"
        yield Finding(file=file, line=number, code="header-vs-row", level="warning", message=message, column="%",
                      printed=f"{match[1]} %", proposed=f"{slips[0].text} %")  # fmt: skip


_SLIPS = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost")
