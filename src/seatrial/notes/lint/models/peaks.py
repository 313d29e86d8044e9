"""Peaks of devices in a column, or in a sentence: of one precision in all rows.

    check(sheet)          findings on a row with the peak of another precision than all others have, and on such a sentence

    | GPU  | peak (TFLOPS) |
    | H100 |           989 |
    | B200 |         4,500 |          of 8 bits; of 16 they are 2,250
"""
from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.models.devices import KINDS, device_named, names_device
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean

FEWEST, NEAR = 3, 0.02
OTHERS = (2.0, 4.0, 0.5)
"""How many times that of 16 bits other peaks are."""
_PEAK = re.compile(r"\bpeaks?\b", re.IGNORECASE)
_OF_A_SHEET = re.compile(r"(?:(?:dense|bf16|fp16|half precision)[ ,/]*)*T?FLOP/?s?S?(?: ?\(?(?:dense|bf16|fp16)[ ,\w]*\)?)?",
                         re.IGNORECASE)  # fmt: skip
"""A heading of TFLOPs that are peaks where a table of devices has those of data sheets."""
_FLOPS = re.compile(r"T?FLOP|dense|bf16|fp16", re.IGNORECASE)


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        heading = _heading(tuple(mates[0].record.printed)) if FEWEST <= len(mates) <= 60 else None
        found += _told(mates, heading) if heading is not None else []
    for file, text in sheet.prose.items():
        for number, line in text.said if text.has("peak") else ():
            if len(line) < LONGEST and not line.lstrip().startswith("|") and _PEAK.search(line) and names_device(line):
                found += _of_peaks(file, number, line)
    return found


LONGEST = 2000
_EACH_PEAK = re.compile(
    rf"({KINDS})(?: ?[:=(]| at| has| does)? ?(\d{{2,4}}(?:[.,]\d{{1,3}})?)(?![\d%]|[.,]\d| ?(?:%|[GMk]|x\b))", re.IGNORECASE
)


def _of_peaks(file: str, number: int, line: str) -> Iterator[Finding]:
    """Of several in one line, the one of another precision than all others."""
    if not _PEAK.search(line) or not _FLOPS.search(line):
        return
    said = [(match, device.peak_tflops["bf16"]) for match in _EACH_PEAK.finditer(line)
            if (device := device_named(match[1])) is not None and "bf16" in device.peak_tflops]  # fmt: skip
    odd = [(match, value, peak) for match, peak in said if (value := digits.alone(match[2])) and abs(value / peak - 1) >= NEAR]
    if len(odd) == 1 and len(said) >= FEWEST and any(abs(odd[0][1] / odd[0][2] / times - 1) <= NEAR for times in OTHERS):
        match, _, peak = odd[0]
        right = f"{match[1]} {peak:g}" if "." in match[2] else f"{match[1]} {peak:.0f}"
        message = f"{match[1]} {match[2]} -> {right}: of another precision; the others have that of 16 bits"
        yield Finding(file=file, line=number, code="over-peak", level="error", message=message, column="peak",
                      printed=f"{match[1]} {match[2]}", proposed=right)  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _heading(headings: tuple[str, ...]) -> str | None:
    peaks = (heading for heading in headings if _PEAK.search(heading) and _FLOPS.search(heading))
    return next(peaks, None) or next(filter(_OF_A_SHEET.fullmatch, headings), None)


def _told(mates: list[Row], heading: str) -> list[Finding]:
    kept, odd = set(), []
    for row in mates:
        name = next(iter(row.cells.values()), "")
        device, value = None if name.isdecimal() else device_named(clean(name)), digits.alone(row.cells.get(heading, ""))
        peak = device.peak_tflops.get("bf16") if device is not None else None
        if not value or not peak:
            continue
        if abs(value / peak - 1) < NEAR:
            kept.add(peak)
        else:
            odd.append((row, value, peak))
    if len(kept) < FEWEST - 1 or len(odd) != 1:
        return []
    row, value, peak = odd[0]
    if all(abs(value / peak / times - 1) > NEAR for times in OTHERS):
        return []
    cell = row.cells[heading]
    right = f"{peak:,.0f}" if "," in cell else f"{peak:g}" if "." in cell else f"{peak:.0f}"
    message = f"{heading} {cell} -> {right}: of another precision; the other rows have that of 16 bits"
    return [row.find("over-peak", "error", message, column=heading, printed=cell, proposed=right)]
