"""Records as CSV to compute with and as JSON for programs, written and read back to the last bit.

    to_csv(records)                               one row per record, the columns of a hand-kept collection of rows first
    own_row(headings, cells, where)               a row of such a file as a record again
    to_json(records); read_json(path, name)       everything, one record per line; also the lines of a logbook's segment
"""
from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seatrial.columns import ASKED
from seatrial.errors import BadInput
from seatrial.fields import shown
from seatrial.logbook.records import CHANGED, SUM, changed
from seatrial.outcomes import OUTCOMES
from seatrial.plaindata import parse_json, read_bytes
from seatrial.record import SCHEMA, Record
from seatrial.tables import Problem, Where
from seatrial.tables.codec import LISTS, PLAIN, STRUCTURED, TYPES, decode, encode, encode_csv, no_formula, number, read_value

OWN_MARK = "seatrial"
"""The last column of a CSV file of ours: the schema that its cells are written in."""
SCHEMA_CELL = "1"
MOST_BYTES = 1 << 30
"""Whoever reads files bounds them before; this is for those that grow meanwhile."""
LONGEST_LINE = 16 << 20
_NAMES = {field: name for name, field in PLAIN.items()}
CSV_COLUMNS = [*"source_file line_no section machine date".split(), *(_NAMES.get(name, name) for name in ASKED),
               *"env mem_value mem_unit sec_per_it tflops aggr_pflops status flags notes formula state outcome".split()]
"""That every file has, in this order; others follow where a row has them."""
_LEFT_OUT = frozenset({"printed", "context", "table", "written_at"})
"""What a CSV row does not carry: how the row it was read from looked, and when it came into the logbook."""


# ---- CSV


def to_csv(records: Iterable[Record]) -> str:
    rows = [_row(record) for record in records]
    known = set(CSV_COLUMNS)
    more = sorted({name for row in rows for name in row} - known)
    out = io.StringIO()
    writer = csv.DictWriter(out, [*CSV_COLUMNS, *more, OWN_MARK], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, OWN_MARK: SCHEMA_CELL})
    return out.getvalue()


def _row(record: Record) -> dict[str, str]:
    row = {}
    for name, value in record.to_dict().items():
        if name in _LEFT_OUT:
            continue
        column = _NAMES.get(name, name)
        if name in STRUCTURED:
            row[column] = json.dumps(value, sort_keys=True)
        elif name in LISTS:
            row[column] = no_formula(" ".join(encode(part, also=" ") for part in value))
        elif name == "recompute":
            # A text that happens to read `true` has its first letter masked.
            masked = f"&#{ord(value[0])};{value[1:]}" if value in ("true", "false") else encode_csv(value)
            row[column] = {"full": "true", "none": "false"}.get(value, masked)
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


def own_row(headings: Sequence[str], cells: Sequence[str], where: Where) -> Record | Problem:
    try:
        if len(cells) != len(headings):
            raise BadInput(f"{len(cells)} cells under {len(headings)} headings")
        data: dict[str, Any] = {}
        for heading, cell in zip(headings[:-1], cells):
            if cell and heading != "status":
                data[PLAIN.get(heading, heading)] = _value(heading, cell)
        data.setdefault("source_file", where.file)
        data.setdefault("source_line", where.line)
        return Record.from_dict({**data, "printed": printed_digits(headings, cells)})
    except (BadInput, ValueError) as error:
        return Problem(file=where.file, line=where.line, message=str(error), level="row", rows=1, cell=",".join(cells)[:80])


def printed_digits(headings: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """The digits as they stand, since 1.50 says more than 1.5; text is kept in its field alone."""
    return {heading: cell for heading, cell in zip(headings, cells) if cell[:1].isdigit()}


def _value(heading: str, cell: str) -> Any:
    if heading == "activation_ckpt":
        return {"true": "full", "false": "none"}.get(cell, decode(cell))
    if heading in STRUCTURED:
        return parse_json(cell)
    if heading in LISTS:
        return [decode(part) for part in cell.split(" ")]
    name = PLAIN.get(heading, heading)
    if name not in TYPES:
        raise BadInput(f"no field {heading!r} in a record")
    return read_value(name, cell)


# ---- JSON


def to_json(records: Iterable[Record]) -> str:
    lines = [json.dumps(record.to_dict(), ensure_ascii=False, allow_nan=False) for record in records]
    body = "".join(f"\n  {line}{',' if index < len(lines) - 1 else ''}" for index, line in enumerate(lines))
    return f'{{"schema": {SCHEMA}, "records": [{body}\n]}}\n'


def read_json(path: Path, name: str) -> Iterator[Record | Problem]:
    if path.suffix.lower() == ".jsonl":
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                if len(line) == LONGEST_LINE:
                    raise BadInput(f"{path}:{number}: a line of over {LONGEST_LINE >> 20} MiB; a record is shorter")
                if line.strip():
                    yield _line(line, name, number)
        return
    try:
        data = parse_json(read_bytes(path, most=MOST_BYTES, what="JSON file of records"))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON: {error}") from error
    if isinstance(data, dict) and "records" in data:
        schema = data.get("schema", SCHEMA)
        if schema != SCHEMA:
            raise BadInput(f"{path}: schema {schema}, and this version reads {SCHEMA}")
        data = data["records"]
    if not isinstance(data, list):
        raise BadInput(f'{path}: expected a list of records, or {{"records": [...]}}')
    for index, item in enumerate(data):
        yield _record(item, name, index + 1)


def _line(text: bytes, name: str, number: int) -> Record | Problem:
    try:
        item = parse_json(text)
        if not changed(text):
            return _record(item, name, number)
        message = CHANGED
    except ValueError as error:
        message = f"not JSON: {error}"
    return Problem(file=name, line=number, cell=text[:80].decode(errors="replace"), message=message, level="row", rows=1)


def _record(item: object, name: str, number: int) -> Record | Problem:
    try:
        if isinstance(item, dict):
            item = {key: value for key, value in item.items() if key not in ("schema", SUM)}
        return Record.from_dict(item, where=f"record {number}")  # type: ignore[arg-type]
    except BadInput as error:
        return Problem(file=name, line=number, cell=shown(item), message=str(error), level="row", rows=1)
