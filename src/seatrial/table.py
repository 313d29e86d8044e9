"""Records as the tables of benchmark notes: markdown to read, CSV to compute with, JSON for programs.

    print(to_markdown(records))       one table a section, the best row in bold, the formula of the TFLOPs in the heading
    print(to_csv(records))            one row a record, the columns of a collection of rows first
    print(to_json(records))           everything, one record a line

Each can be imported again without any value changing (`importers/exact.py` reads what stands here). A cell is empty where
nobody said anything. Markdown leaves out what is no figure or setting of a row: the parts a run of ours consists of, and the
text that an imported row was read from.
"""
from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from seatrial.importers.cells import NUMBER
from seatrial.importers.columns import read_heading
from seatrial.importers.csvrows import LISTS, OWN_MARK, SCHEMA_CELL, STRUCTURED, encode_csv
from seatrial.importers.exact import HEADINGS, encode, encode_outcome, encode_pairs
from seatrial.importers.tables import MARK, UNTITLED_MARK
from seatrial.outcomes import OUTCOMES
from seatrial.record import SCHEMA, Record

CORE = ("nodes", "size_label", "dp", "tp", "pp", "mbs", "gbs", "mem_value", "sec_per_it", "tflops", "notes")
"""Columns that a table has even when they are empty."""
CSV_COLUMNS = (
    "source_file line_no section machine date nodes procs_per_node size_label layers hidden heads seq vocab dp tp pp mbs gbs "
    "zero_stage activation_ckpt dtype freq_ghz torch_version env mem_value mem_unit sec_per_it tflops aggr_pflops status flags "
    "notes formula state outcome"
).split()
_CSV_NAMES = {"recompute": "activation_ckpt", "source_line": "line_no"}
_LEFT_OUT = frozenset({"printed", "context", "table", "written_at"})
"""What a CSV row does not carry: how the row it was read from looked, and when it came into the logbook."""
_YES_NO = {"full": "Yes", "none": "No"}


# ---- markdown


def to_markdown(records: Iterable[Record], *, source: bool = False) -> str:
    """One table for each table of the notes or model of a logbook, in the order they first come."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(_group(record), []).append(record)
    tables, above = [], ""
    for rows in groups.values():
        section = rows[0].section
        heading = f"### {encode(section, also='#')}\n\n" if section and section != above else ""
        above = section or above
        tables.append(f"{heading}{MARK if section else UNTITLED_MARK}\n{_table(rows, source=source)}")
    return "\n".join(tables)


def _group(record: Record) -> tuple[object, ...]:
    logged = record.iteration is not None
    if record.section:
        return record.source_file, record.section, record.table, logged
    return "", record.source_file, logged, record.size_label or (record.layers, record.hidden)


def _table(rows: Sequence[Record], *, source: bool) -> str:
    names = _columns(rows, source=source)
    best = best_row(rows)
    shared = shared_formula(rows)
    headings = [f"TFLOPs ({shared})" if name == "tflops" and shared else HEADINGS[name] for name in names]
    lines = []
    for index, record in enumerate(rows):
        cells = [cell(record, name) for name in names]
        if index == best:
            mark = names.index("sec_per_it" if record.sec_per_it is not None else "tflops")
            cells[mark] = f"**{cells[mark]}**"
        lines.append(cells)
    end = "\nBold: the fastest of this table.\n" if best is not None else ""
    return aligned(headings, lines) + end


def aligned(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    widths = [max(3, *map(_width, column)) for column in zip(headings, *lines)]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(" " * (width - _width(text)) + text for text, width in zip(cells, widths)) + " |\n"

    rule = "| " + " | ".join("-" * (width - 1) + ":" for width in widths) + " |\n"
    return line(headings) + rule + "".join(map(line, lines))


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)


def _columns(rows: Sequence[Record], *, source: bool) -> list[str]:
    shared = shared_formula(rows)
    counted_in_devices = all(row.nodes is None for row in rows) and any(row.gpus is not None for row in rows)
    names = []
    for name in HEADINGS:
        if name == "source":
            wanted = source
        elif name in CORE:
            wanted = not (name == "nodes" and counted_in_devices)
        elif name in ("formula", "tflops_per"):
            wanted = not shared and any(getattr(row, name) for row in rows)
        elif name == "time_unit":
            wanted = any(row.time_unit != ("s" if row.sec_per_it is not None else "") for row in rows)
        elif name == "state":
            wanted = any(row.state != "measured" for row in rows)
        else:
            wanted = any(getattr(row, name) not in (None, "", (), {}) for row in rows)
        if wanted:
            names.append(name)
    if "state" not in names and not all(any(cell(row, name) for name in names) for row in rows):
        # A row without a single figure would be a spacer, which is no row to whoever reads it.
        names.insert(len(names) - 1, "state")
    return names


def shared_formula(rows: Sequence[Record]) -> str:
    """What the heading can say of every TFLOPs below it: the formula, and per what; empty when the rows differ."""
    said = {(row.formula, row.tflops_per, row.tflops is not None) for row in rows}
    formulas = {pair[:2] for pair in said if pair[2]}
    if len(formulas) != 1 or any(pair[:2] != ("", "") for pair in said if not pair[2]):
        return ""
    formula, per = formulas.pop()
    if re.search(r"[^\w. +-]|^per |^\s|\s$", formula) or re.search(r"[^\w.+-]", per) or "," in formula:
        return ""
    return ", ".join(part for part in (formula, f"per {per}" if per else "") if part)


def best_row(rows: Sequence[Record]) -> int | None:
    """The row with the most samples a second; where a batch is not said, the least time; without times, the most TFLOPs."""
    ran = [i for i, row in enumerate(rows) if row.state == "measured" and (row.outcome is None or row.outcome.status == "ok")]
    timed = [i for i in ran if rows[i].sec_per_it]
    if len(timed) > 1:
        if all(rows[i].gbs for i in timed):
            return max(timed, key=lambda i: (rows[i].gbs or 0) / (rows[i].sec_per_it or 1))
        return min(timed, key=lambda i: rows[i].sec_per_it or 0)
    rated = [i for i in ran if rows[i].tflops]
    return max(rated, key=lambda i: rows[i].tflops or 0) if len(rated) > 1 else None


def cell(record: Record, name: str) -> str:
    if name == "source":
        return f"{encode(record.source_file)}:{record.source_line}" if record.source_line is not None else ""
    if name == "notes":
        return _notes(record)
    value = getattr(record, name)
    if name == "mem_value":
        unit = encode(record.mem_unit)
        return f"{number(record, name) or '-'} {unit}".strip() if value is not None or unit else ""
    if value is None or value == "" or value == () or value == {}:
        return ""
    if name == "recompute":
        return _YES_NO.get(value) or (f"&#{ord(value[0])};{encode(value[1:])}" if value in _YES_NO.values() else encode(value))
    if name == "freq_ghz":
        return f"{number(record, name)}GHz"
    if name in ("env", "extra"):
        return encode_pairs(value)
    if name == "outcome":
        # Evidence is whole logs and stacks; like a trial's other structured parts it stays in the logbook.
        return encode_outcome({k: v for k, v in record.to_dict()["outcome"].items() if k != "evidence"})
    if name in LISTS:
        return " ".join(encode(part, also=" ") for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(record, name) if isinstance(value, int | float) else encode(value)


_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d\d-\d\d")


def _notes(record: Record) -> str:
    """The date first, as in the logs; notes that begin like a date without being one have their first letter masked."""
    notes = encode(record.notes)
    if _DATE.fullmatch(record.date):
        return f"{record.date}, {notes}" if notes else record.date
    if record.date:
        return f"({encode(record.date, also=')')}) {notes}".strip()
    if notes and (_DATE.match(notes) or notes.startswith("(")):
        return f"&#{ord(notes[0])};{notes[1:]}"
    return notes


def number(record: Record, name: str) -> str:
    """A figure with the digits it was printed with (1.10 stays 1.10), or the shortest text that is exactly it."""
    value = getattr(record, name)
    if value is None:
        return ""
    for heading, text in record.printed.items():
        if read_heading(heading).field == name or heading == HEADINGS.get(name):
            match = NUMBER.match(text.strip("*` ~"))
            digits = match.group().replace(",", "") if match else ""
            if re.fullmatch(r"[\d.]+", digits) and float(digits) == value:
                return digits
    return shortest(value)


def shortest(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return repr(int(value)) if value or str(value)[0] != "-" else "-0.0"
    return repr(value)


# ---- CSV


def to_csv(records: Iterable[Record]) -> str:
    rows = [_csv_row(record) for record in records]
    known = set(CSV_COLUMNS)
    more = sorted({name for row in rows for name in row} - known)
    out = io.StringIO()
    writer = csv.DictWriter(out, [*CSV_COLUMNS, *more, OWN_MARK], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, OWN_MARK: SCHEMA_CELL})
    return out.getvalue()


def _csv_row(record: Record) -> dict[str, str]:
    row = {}
    for name, value in record.to_dict().items():
        if name in _LEFT_OUT:
            continue
        column = _CSV_NAMES.get(name, name)
        if name in STRUCTURED:
            row[column] = json.dumps(value, sort_keys=True)
        elif name in LISTS:
            row[column] = " ".join(encode(part, also=" ") for part in value)
        elif name == "recompute":
            row[column] = {"full": "true", "none": "false"}.get(value, encode_csv(value))
        elif isinstance(value, bool):
            row[column] = "true" if value else "false"
        elif isinstance(value, int | float):
            row[column] = number(record, name)
        else:
            row[column] = encode_csv(value)
    row["status"] = _status(record)
    return row


def _status(record: Record) -> str:
    """One word for programs that want no more: what happened, or the state."""
    if record.outcome is not None and record.outcome.status != "ok":
        return OUTCOMES[record.outcome.status].short
    return {"measured": "ok", "planned": "not_run", "failed": "fail"}.get(record.state, record.state)


# ---- JSON


def to_json(records: Iterable[Record]) -> str:
    lines = [json.dumps(record.to_dict(), ensure_ascii=False, allow_nan=False) for record in records]
    body = "".join(f"\n  {line}{',' if index < len(lines) - 1 else ''}" for index, line in enumerate(lines))
    return f'{{"schema": {SCHEMA}, "records": [{body}\n]}}\n'


WRITERS: dict[str, Any] = {"markdown": to_markdown, "csv": to_csv, "json": to_json}
