"""Peaks of devices in a column: of one precision in all rows.

    check(sheet)          findings on a row with the peak of another precision than all others have

    | GPU  | peak (TFLOPS) |
    | H100 |           989 |
    | B200 |         4,500 |          of 8 bits; of 16 they are 2,250
"""
from __future__ import annotations

import functools
import re

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.models.devices import device_named
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean

FEWEST, NEAR = 3, 0.02
_PEAK = re.compile(r"\bpeak\b", re.IGNORECASE)
_FLOPS = re.compile(r"T?FLOP|dense|bf16|fp16", re.IGNORECASE)


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        heading = _heading(tuple(mates[0].record.printed)) if FEWEST <= len(mates) <= 60 else None
        found += _told(mates, heading) if heading is not None else []
    return found


@functools.lru_cache(maxsize=4096)
def _heading(headings: tuple[str, ...]) -> str | None:
    return next((heading for heading in headings if _PEAK.search(heading) and _FLOPS.search(heading)), None)


def _told(mates: list[Row], heading: str) -> list[Finding]:
    kept, odd = set(), []
    for row in mates:
        device, value = device_named(clean(next(iter(row.cells.values()), ""))), digits.alone(row.cells.get(heading, ""))
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
    if all(abs(value / peak / times - 1) > NEAR for times in (2.0, 4.0, 0.5)):
        return []
    cell = row.cells[heading]
    right = f"{peak:,.0f}" if "," in cell else f"{peak:g}"
    message = f"{heading} {cell} -> {right}: of another precision; the other rows have that of 16 bits"
    return [row.find("over-peak", "error", message, column=heading, printed=cell, proposed=right)]
