"""JSON files of records: what `seatrial table --format json` writes, and the lines of a logbook's segment.

for found in read_json(path, "rows.json"): ...
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.importers.rows import Problem
from seatrial.record import SCHEMA, Record


def read_json(path: Path, name: str) -> Iterator[Record | Problem]:
    if path.suffix.lower() == ".jsonl":
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _line(line, name, number)
        return
    try:
        data = json.loads(path.read_bytes())
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text") from error
    except (json.JSONDecodeError, RecursionError) as error:
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
        return _record(json.loads(text), name, number)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = text[:80].decode(errors="replace")
        return Problem(file=name, line=number, cell=shown, message=f"not JSON: {error}", level="row", rows=1)


def _record(item: object, name: str, number: int) -> Record | Problem:
    try:
        if isinstance(item, dict):
            item = {key: value for key, value in item.items() if key != "schema"}
        return Record.from_dict(item, where=f"record {number}")  # type: ignore[arg-type]
    except (BadInput, OverflowError) as error:
        return Problem(file=name, line=number, cell=str(item)[:80], message=str(error), level="row", rows=1)
