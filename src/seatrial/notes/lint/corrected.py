"""The rows as CSV with the proposed values in place, and beside each row what was changed and why.

    write(sheet, findings, Path("corrected.csv"))           a table that `forecast`, `calibrate` and `import` read
    write_reasons(sheet, findings, Path("corrections.csv")) one line per cell: field, was, is, taken or not, why

Only cells for which the evidence points to one value are changed; a row without such a finding is written as it stands.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from seatrial.columns import ASKED, COLUMNS, DEGREES
from seatrial.files import write_whole
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import field_of
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.codec import encode_csv

ALWAYS = frozenset(
    "nodes gpus procs_per_node size_label layers hidden heads seq vocab freq_ghz torch_version gbs zero_stage dtype".split()
) | {COLUMNS[name].name for name in DEGREES if name != "cp"} | {COLUMNS[name].name for name in ("mbs", "recompute")}
"""Columns that a corrected table has even when they are empty; others of a trial where a row says them."""
KEPT_AS_PRINTED = ("formula-mixed", "tflops-per-node")
"""Findings whose value is right as printed, and only counted in another way."""

IN_WORDS = ("clock-unit",)
"""Findings that are certain and change a word in a cell of text."""


def write(sheet: Sheet, findings: Iterable[Finding], out: Path) -> int:
    """Writes every table row; returns how many were changed. A copy of another row says so in `duplicate_of`."""
    findings = list(findings)
    copies = {(f.file, f.line): f.message.partition(":")[0] for f in findings if f.code == "repeat"}
    words = {(f.file, f.line): (f.printed or "", f.proposed or "") for f in findings if f.code in IN_WORDS}
    stated = [name for name in ASKED
              if name in ALWAYS or any(getattr(row.record, name) not in (None, "") for row in _tabular(sheet))]  # fmt: skip
    columns = ["section", "table", "machine", "date", *stated, "env", "mem_value", "mem_unit", "sec_per_it", "tflops", "state"]
    lines = []
    for row in _tabular(sheet):
        record = row.record
        where = (row.file, record.source_line)
        was, now = words.get(where, ("", ""))
        values = [str(value).replace(was, now) if name == "env" and was else value
                  for name, value in ((name, _value(row, name)) for name in columns)]
        reasons = [*_reasons(row), *([f"{was} -> {now} (clock-unit)"] if was else [])]
        lines.append([*where, *values, copies.get(where, ""), "; ".join(reasons)])
    _write_csv(out, ["source_file", "source_line", *columns, "duplicate_of", "corrected"], lines)
    return sum(bool(line[-1]) for line in lines)


def write_reasons(sheet: Sheet, findings: Iterable[Finding], out: Path) -> int:
    """Writes one line for every cell with a proposal, and whether the corrected rows have taken it; returns how many have."""
    findings = list(findings)
    message = {(f.file, f.line, f.code): f.message for f in findings}
    lines: list[list[object]] = []
    taken = set()
    for row in _tabular(sheet):
        file, line = row.file, row.record.source_line
        for name, value in changes(row).items():
            code = row.reasons[name]
            taken.add((file, line, code))
            why = message.get((file, line, code), "")
            lines.append([file, line, name, _as_printed(row, name), f"{value:.10g}", "yes", code, why])
    for f in findings:
        if f.proposed is not None and f.column is not None and (f.file, f.line, f.code) not in taken:
            known = "yes" if f.code in IN_WORDS else "no"
            lines.append([f.file, f.line, field_of(f.column) or f.column, f.printed, f.proposed, known, f.code, f.message])
    place = {file: n for n, file in enumerate(dict.fromkeys(row.file for row in sheet.rows))}
    lines.sort(key=lambda line: (place.get(str(line[0]), 0), line[1] or 0))
    _write_csv(out, ["source_file", "source_line", "field", "was", "is", "taken", "code", "why"], lines)
    return sum(line[5] == "yes" for line in lines)


def changes(row: Row) -> dict[str, float]:
    return {name: value for name, value in row.fixed.items() if row.reasons[name] not in KEPT_AS_PRINTED}


def _tabular(sheet: Sheet) -> list[Row]:
    return [row for row in sheet.rows if row.tabular]


def _value(row: Row, name: str) -> object:
    if name in changes(row):
        return f"{changes(row)[name]:.10g}"
    if name in ("layers", "hidden"):
        return getattr(row, name)
    if name == "env":
        return row.record.extra.get("env") or ", ".join(f"{k}={v}" for k, v in row.record.env.items())
    return getattr(row.record, name)


def _as_printed(row: Row, name: str) -> object:
    return row.cell(name) or getattr(row.record, name, "")


def _reasons(row: Row) -> list[str]:
    return [
        f"{row.column(name)} {_as_printed(row, name)} -> {value:.10g} ({row.reasons[name]})"
        for name, value in changes(row).items()
    ]


def _write_csv(out: Path, header: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    """Whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([encode_csv(cell) if isinstance(cell, str) else cell for cell in line] for line in lines)
    write_whole(out, text.getvalue())
