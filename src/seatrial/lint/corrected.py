"""The rows as CSV with the proposed values in place, and beside each row what was changed and why.

Only cells for which the evidence points to one value are changed; a row without such a finding is written as it stands.
"""

from __future__ import annotations

import csv
from pathlib import Path

from seatrial.lint.view import Row, Sheet

COLUMNS = (
    "nodes",
    "gpus",
    "procs_per_node",
    "size_label",
    "layers",
    "hidden",
    "heads",
    "seq",
    "dp",
    "tp",
    "pp",
    "mbs",
    "gbs",
    "mem_value",
    "mem_unit",
    "sec_per_it",
    "tflops",
    "state",
)
KEPT_AS_PRINTED = ("formula-mixed", "tflops-per-node")
"""Findings whose value is right as printed, and only counted in another way."""


def write(sheet: Sheet, out: Path) -> int:
    """Writes every table row; returns how many were changed."""
    rows = [row for row in sheet.rows if row.tabular]
    lines = [
        [row.record.source_file, row.record.source_line, *(_value(row, name) for name in COLUMNS), _reason(row)] for row in rows
    ]
    with out.open("w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(["source_file", "source_line", *COLUMNS, "corrected"])
        writer.writerows(lines)
    return sum(bool(line[-1]) for line in lines)


def changes(row: Row) -> dict[str, float]:
    return {name: value for name, value in row.fixed.items() if row.reasons[name] not in KEPT_AS_PRINTED}


def _value(row: Row, name: str) -> object:
    if name in changes(row):
        return f"{changes(row)[name]:.10g}"
    if name in ("layers", "hidden"):
        return getattr(row, name)
    return getattr(row.record, name)


def _reason(row: Row) -> str:
    printed = {name: row.cell(name) or getattr(row.record, name, "") for name in changes(row)}
    return "; ".join(
        f"{row.column(name)} {printed[name]} -> {value:.10g} ({row.reasons[name]})" for name, value in changes(row).items()
    )
