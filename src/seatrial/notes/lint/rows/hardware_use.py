"""HFU beside MFU: with full recomputation the device does four thirds of the model's FLOPs, without any the same.

    check(sheet)          findings on rows whose HFU is not that of their MFU and of what they recompute

    | recompute | MFU, % | HFU, % |
    | none      |   43.3 |   43.3 |
    | full      |   35.7 |   35.7 |          47.6
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet

FULL, NEAR, MOST_ROWS = 4 / 3, 0.03, 500
_SAID = re.compile(r"4 ?/ ?3\b|⁴⁄₃|four thirds|vier Drittel|quatre tiers|cuatro tercios|quattro terzi|\b8 ?[·*×]? ?N\b|1[.,]33")


def check(sheet: Sheet) -> list[Finding]:
    return [finding for mates in sheet.tables.values() if len(mates) > 1 for finding in _of_table(mates[:MOST_ROWS])]


def _of_table(mates: list[Row]) -> Iterator[Finding]:
    ratios = {row: row.record.hfu / row.record.mfu for row in mates if row.record.mfu and row.record.hfu
              and row.states("recompute") and row.record.recompute in ("full", "none", "selective")
              and "mfu" not in row.fixed}  # fmt: skip
    full = [row for row in ratios if row.record.recompute == "full"]
    if len(ratios) < 2 or not full:
        return
    kept = [row for row in full if abs(ratios[row] / FULL - 1) < NEAR]
    if not kept and not any(_SAID.search(line) for line in mates[0].sheet.text(mates[0]).lines if "FU" in line.upper()):
        return
    if sum(abs(ratio / (FULL if row in full else 1.0) - 1) >= NEAR for row, ratio in ratios.items()) > 1:
        return  # it is counted otherwise
    for row, ratio in ratios.items():
        right = FULL if row in full else 1.0
        plain = row.record.recompute == "none" or any(
            abs(other / 1.0 - 1) < NEAR for mate, other in ratios.items() if mate is not row and mate not in full)  # fmt: skip
        figure = row.printed("hfu")
        if figure is None or abs(ratio / right - 1) < NEAR or row not in full and not plain or "hfu" in row.fixed:
            continue
        value = (row.record.mfu or 0.0) * right
        proposed = figure.like(value)
        message = f"HFU {row.cell('hfu')} -> {proposed}: {'four thirds of' if row in full else 'the same as'} the MFU, " \
                  f"with {row.record.recompute} recomputation"  # fmt: skip
        row.propose("hfu", value, "rate-mismatch")
        yield row.find("rate-mismatch", "error", message, name="hfu", proposed=proposed)
