"""TFLOP/s that are those of all devices, where no heading says so: the rows do.

    | sockets | tokens/s | TFLOP/s |
    |       1 |    25547 |   19.01 |
    |       2 |    48632 |   36.18 |        as many for a token on one socket as on two

    fill(sheet)          such a column is read as an aggregate
"""
from __future__ import annotations

import math
import statistics

from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import read_heading

FEWEST, SHARE, CLOSE, MOST_ROWS = 4, 0.8, 0.012, 60
"""Rows that tell, which share of them agrees on the FLOPs of a token, and how nearly."""


def fill(sheet: Sheet) -> None:
    for key, mates in sheet.tables.items():
        rows = [row for row in mates[:MOST_ROWS] if row.tabular and not row.planned]
        if rows and _are_of_all(rows):
            sheet.refilled(key)
            for row in mates:
                if row.record.tflops is not None:
                    row.record = row.record.changed({"tflops": None, "aggr_pflops": row.record.tflops / 1000.0})
                    row.columns["aggr_pflops"] = row.columns.pop("tflops")


def _are_of_all(rows: list[Row]) -> bool:
    heading = rows[0].columns.get("tflops", "")
    if not heading or read_heading(heading).per or any(row.record.aggr_pflops for row in rows):
        return False
    costs: dict[tuple[str, int | None], list[tuple[float, int]]] = {}
    for row in rows:
        record = row.record
        if record.tflops and record.tokens_per_s and row.world and "tokens_per_s" not in record.inferred:
            cost = math.log(record.tflops / record.tokens_per_s)
            costs.setdefault((record.size_label, record.seq), []).append((cost, row.world))
    known = kept = each = 0
    for some in costs.values():
        middle, of_one = (statistics.median(cost + power * math.log(world) for cost, world in some) for power in (0, 1))
        near = {world for cost, world in some if abs(cost - middle) <= CLOSE}
        if len(some) >= FEWEST and len({world for _, world in some}) > 1:
            known += len(some)
            kept += sum(abs(cost - middle) <= CLOSE for cost, _ in some) if len(near) > 1 else 0
            # Where one layout of many is wrong, those of one device agree nearly as well.
            each += sum(abs(cost + math.log(world) - of_one) <= CLOSE for cost, world in some)
    return known >= FEWEST and kept >= SHARE * known and each + 1 < kept
