"""A record as one line of a logbook: whether it is a record, what the index keeps of it, and how a filter looks at it.

A line is a JSON object with `schema`, `written_at` and either `record_id` and the record's own keys, or `deleted`: the id of a
record that is taken out, or `remark_on`: the id of a record that somebody wrote `text` and `tags` about. Its last key,
`crc32`, is of the line without it; a line without one is taken as it is.
"""
from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeGuard

from seatrial.columns import LAYOUT
from seatrial.errors import BadInput
from seatrial.fields import nearest
from seatrial.plaindata import once

SCHEMA = 1
"""Of a line. A line of a later schema is not guessed at."""

COLUMNS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("run_id", "state")},
    "outcome": ("outcome.status",), "model": ("model", "size_label"), "cluster": ("cluster", "machine"),
    **{name: (name,) for name in ("session", "nodes", *LAYOUT, "sec_per_it", "tflops", "source_file", "source_line")},
}  # fmt: skip
"""What can be filtered and sorted without decoding a record: the column, and where in a record its value stands.

They have no SQL type: a value keeps the type that the record has it with, so that a filter finds what `==` would.
"""


RECORD, DELETION, REMARK = 0, 1, 2
"""What a line is, as the index keeps it: only a record is ever current."""


class Unreadable(Exception):
    """The line is not a record; the message says why."""


class Newer(Exception):
    """The line was written by a later seatrial; the message is its schema."""


SUM = "crc32"
CHANGED = f"it does not match its {SUM}: a byte of it was changed after it was written"
_SUM = b',"%s":"' % SUM.encode()
_SUM_BYTES = len(_SUM) + len('01234567"}')


def summed(line: bytes) -> bytes:
    """A JSON object with its checksum as the last key, and the end of the line."""
    return b'%s%s%08x"}\n' % (line[:-1], _SUM, zlib.crc32(line))


def changed(raw: bytes) -> bool:
    """Whether the line has a checksum that is not its own; the flipped byte may be one of the checksum's name."""
    end = raw.rstrip()[-_SUM_BYTES:]
    named = sum(a == b for a, b in zip(end, _SUM)) >= len(_SUM) - 1
    return named and summed(raw.rstrip()[:-_SUM_BYTES] + b"}").rstrip() != raw.rstrip()


def row_of(raw: bytes, segment: str, line: int) -> tuple[object, ...] | None:
    """A line as a row of the table; None for an empty one."""
    if not raw.strip():
        return None
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_not_json, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise Unreadable(torn(raw) if b"\0" in raw else f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise Unreadable(f"a record is a JSON object, this is {type(data).__name__}")
    if changed(raw):
        raise Unreadable(CHANGED)
    schema = data.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise Newer(str(schema))
    if type(schema) is not int or schema < 1:
        raise Unreadable(f"schema {schema!r} is not one this seatrial knows (1 to {SCHEMA})")
    kind = DELETION if "deleted" in data else REMARK if "remark_on" in data else RECORD
    record_id, written_at = data["deleted"] if kind == DELETION else data.get("record_id"), data.get("written_at")
    if not isinstance(record_id, str) or not record_id or not isinstance(written_at, str):
        raise Unreadable("no record_id or no written_at in it")
    if kind == REMARK and (wrong := _wrong_remark(data)):
        raise Unreadable(wrong)
    stamp = f"{storable(written_at)} {segment} {line:09d}"
    columns = (storable(_plain(data, column)) for column in COLUMNS)
    return (stamp, segment, storable(record_id), kind, *columns, raw, zlib.crc32(raw))


def _wrong_remark(data: dict[str, Any]) -> str | None:
    text, tags = data.get("text", ""), data.get("tags", [])
    good = isinstance(data["remark_on"], str) and isinstance(text, str) and isinstance(tags, list)
    return None if good and all(isinstance(tag, str) for tag in tags) else "a remark has a record's id, a text and tags"


def _not_json(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def torn(raw: bytes) -> str:
    """The problem of a line that has no end."""
    zeros = f", {raw.count(0)} of them NUL" if b"\0" in raw else ""
    return f"torn line of {len(raw)} bytes{zeros}: cut off by a crash or a full disk, or still being written"


_PATHS = {column: tuple(tuple(path.split(".")) for path in paths) for column, paths in COLUMNS.items()}


def _at(record: dict[str, Any], path: Iterable[str]) -> Any:
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _plain(record: dict[str, Any], column: str) -> str | int | float | None:
    """The first plain value that stands at one of the column's places."""
    for path in _PATHS[column]:
        value = _at(record, path)
        if isinstance(value, (str, int, float)):
            return value
    return None


def storable(value: Any) -> Any:
    if isinstance(value, str):
        # A file name that is not UTF-8 comes as lone surrogates, which SQLite refuses.
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return float(max(-(1 << 1000), min(1 << 1000, value)))
    return value


def clause_of(key: str, wanted: object) -> tuple[str, list[Any]] | None:
    """The filter as SQL and its values; None when it has to look into the record."""
    if key != "record_id" and key not in COLUMNS:
        return None
    if wanted is None:
        return f"{key} IS NULL", []
    if isinstance(wanted, (str, int, float)):
        return f"{key} = ?", [storable(wanted)]
    # SQLite takes some hundreds of values in one question, not any number.
    if _is_several(wanted) and len(wanted) <= 500 and all(isinstance(value, (str, int, float)) for value in wanted):
        return f"{key} IN ({','.join('?' * len(wanted))})", [storable(value) for value in wanted]
    return None


def _is_several(wanted: object) -> TypeGuard[Collection[object]]:
    return isinstance(wanted, (list, tuple, set, frozenset))


def matches(record: dict[str, Any], key: str, wanted: object) -> bool:
    value = _plain(record, key) if key in COLUMNS else _at(record, key.split("."))
    if _is_several(wanted):
        # A dict or a list cannot be looked up in a set.
        return value in wanted if isinstance(value, (str, int, float, type(None))) else any(value == one for one in wanted)
    return value == wanted


def order_by(order: Sequence[str]) -> str:
    """The columns as SQL; empty values last, equals in the order they came."""
    terms = []
    for term in order:
        column = term.removeprefix("-")
        if column not in COLUMNS and column != "record_id":
            raise BadInput(f"order by {column!r}: not a column of the logbook; {nearest(column, COLUMNS)}")
        terms.append(f"{column} {'DESC' if term.startswith('-') else 'ASC'} NULLS LAST")
    return ", ".join([*terms, "born"])
