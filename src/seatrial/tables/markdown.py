"""Records as the markdown tables of benchmark notes, and such a table of our own read back.

    print(to_markdown(records))       one table per section, the best row in bold, the formula of the TFLOPs in the heading
    read_own_row(["Nodes", "Sec/it", "State"], ["2", "1.25", ""], where=...)

It can be imported again without any value changing. A cell is empty where nobody said anything. Left out is what is no figure
or setting of a row: the parts a run of ours consists of, and the text that an imported row was read from.
"""
from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from seatrial.errors import BadInput
from seatrial.record import Record
from seatrial.tables import Problem, Where
from seatrial.tables.codec import (
    FIELD_OF,
    HEADINGS,
    LISTS,
    TFLOPS_HEADING,
    decode,
    decode_outcome,
    decode_pairs,
    encode,
    encode_outcome,
    encode_pairs,
    number,
    read_value,
)

MARK = "<!-- seatrial:table -->"
"""Stands before a table of our own: its cells hold everything, and only the section comes from the heading above it."""
UNTITLED_MARK = "<!-- seatrial:table untitled -->"
CORE = ("nodes", "size_label", "dp", "tp", "pp", "mbs", "gbs", "mem_value", "sec_per_it", "tflops", "notes")
"""Columns that a table has even when they are empty."""
_YES_NO = {"full": "Yes", "none": "No"}


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
    widths = [max(3, *map(text_width, column)) for column in zip(headings, *lines)]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(" " * (width - text_width(text)) + text for text, width in zip(cells, widths)) + " |\n"

    rule = "| " + " | ".join("-" * (width - 1) + ":" for width in widths) + " |\n"
    return line(headings) + rule + "".join(map(line, lines))


def text_width(text: str) -> int:
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
    counted = {(row.formula, row.tflops_per, row.tflops is not None) for row in rows}
    formulas = {pair[:2] for pair in counted if pair[2]}
    if len(formulas) != 1 or any(pair[:2] != ("", "") for pair in counted if not pair[2]):
        return ""
    formula, per = formulas.pop()
    if re.search(r"[^\w. +-]|^per |^\s|\s$", formula) or re.search(r"[^\w.+-]", per) or "," in formula:
        return ""
    return ", ".join(part for part in (formula, f"per {per}" if per else "") if part)


def best_row(rows: Sequence[Record]) -> int | None:
    """The row with the most samples per second; without a batch, the least time; without times, the most TFLOPs."""
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


# ---- reading it back

_DATED = re.compile(r"(\d{4}-\d\d-\d\d|\d\d-\d\d)(?:, (.*))?", re.DOTALL)


def read_own_row(headings: Sequence[str], cells: Sequence[str], *, where: Where, section: str = "") -> Record | Problem:
    try:
        return _record(headings, cells, where, section)
    except (BadInput, ValueError, OverflowError) as error:
        return Problem(file=where.file, line=where.line, message=str(error), level="row", rows=1, cell=" | ".join(cells)[:80])


def _record(headings: Sequence[str], cells: Sequence[str], where: Where, section: str) -> Record:
    if len(cells) != len(headings):
        raise BadInput(f"{len(cells)} cells under {len(headings)} headings in a table of our own")
    data: dict[str, Any] = {"state": "measured"}
    printed = {}
    for heading, cell in zip(headings, cells):
        cell = cell[2:-2] if cell.startswith("**") and cell.endswith("**") and len(cell) > 4 else cell
        printed[heading] = cell
        tflops = TFLOPS_HEADING.fullmatch(heading)
        name = "tflops" if tflops else FIELD_OF.get(heading)
        if name is None:
            raise BadInput(f"no heading {heading!r} in a table of our own")
        if cell in ("", "-"):
            continue
        if name == "mem_value":
            value, _, unit = cell.partition(" ")
            data["mem_value"], data["mem_unit"] = None if value == "-" else float(value), decode(unit)
        elif name == "freq_ghz":
            data[name] = float(cell.removesuffix("GHz"))
        elif name == "recompute":
            data[name] = {"Yes": "full", "No": "none"}.get(cell, decode(cell))
        elif name in ("env", "extra"):
            data[name] = decode_pairs(cell)
        elif name == "outcome":
            data[name] = decode_outcome(cell)
        elif name in ("flags", "estimated", "inferred"):
            data[name] = [decode(part) for part in cell.split(" ")]
        elif name == "notes":
            data["date"], data["notes"] = _dated(cell)
        elif name == "source":
            file, _, line = cell.rpartition(":")
            data["source_file"], data["source_line"] = decode(file), int(line)
        else:
            data[name] = read_value(name, cell)
            if name == "tflops" and tflops:
                data.update(_formula(tflops.group(1)))
    if "sec_per_it" in data and HEADINGS["time_unit"] not in headings:
        data.setdefault("time_unit", "s")
    data = {key: value for key, value in data.items() if value != ""}
    data.setdefault("source_file", where.file)
    data.setdefault("source_line", where.line)
    data["section"], data["table"], data["printed"] = section, where.table, printed
    return Record.from_dict({key: value for key, value in data.items() if value is not None})


def _dated(cell: str) -> tuple[str, str]:
    """The date and the notes after it, as `_notes` puts them into one cell."""
    match = _DATED.fullmatch(cell)
    if match:
        return match.group(1), decode(match.group(2) or "")
    match = re.fullmatch(r"\(([^)]*)\)(?: (.*))?", cell, re.DOTALL)
    return (decode(match.group(1)), decode(match.group(2) or "")) if match else ("", decode(cell))


def _formula(text: str) -> dict[str, str]:
    found = {}
    for part in text.split(", "):
        if part.startswith("per "):
            found["tflops_per"] = decode(part[4:])
        else:
            found["formula"] = decode(part)
    return found
