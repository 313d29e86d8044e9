"""TensorBoard's event files, without TensorBoard: records of TensorFlow with a few fields of one message.

    is_events(path)                               by the first record, whatever the file is called
    for step, tag, value in scalars(path): ...

A record is its length, a checksum, its bytes and their checksum. Of an event the step and the summary count, of a summary the
tag and the number, which newer writers give as a tensor. A writer that was killed leaves half a record: reading ends there.
"""
from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from seatrial.errors import BadInput

LONGEST_RECORD = 1 << 26
HELD = 256
"""Steps that wait for more of their tags."""
_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
"""A tensor's types of one number."""


def is_events(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(64)
    except OSError:
        return False
    return len(head) > 16 and struct.unpack("<Q", head[:8])[0] < len(head) and b"brain.Event:" in head


def scalars(path: Path) -> Iterator[tuple[int, str, float]]:
    for record in _records(path):
        step, summaries = 0, []
        for number, value in _fields(record):
            if number == 2 and isinstance(value, int):
                step = value if value < 2**63 else value - 2**64
            elif number == 5 and isinstance(value, bytes):
                summaries.append(value)
        for summary in summaries:
            for number, value in _fields(summary):
                if number == 1 and isinstance(value, bytes) and (found := _value(value)) is not None:
                    yield step, *found


def _records(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while len(head := file.read(12)) == 12:
                length = struct.unpack("<Q", head[:8])[0]
                if length > LONGEST_RECORD:
                    raise BadInput(f"{path}: a record of {length} bytes: no event file, or a broken one")
                data = file.read(length + 4)
                if len(data) < length + 4:
                    return
                yield data[:length]
    except OSError as error:
        raise BadInput(f"{path}: {(error.strerror or str(error)).lower()}") from error


def _value(data: bytes) -> tuple[str, float] | None:
    tag, number = "", None
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", errors="replace")
        elif field == 2 and isinstance(value, bytes) and len(value) == 4:
            number = struct.unpack("<f", value)[0]
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return (tag, number) if tag and number is not None else None


def _tensor(data: bytes) -> float | None:
    kind, found = 1, None
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field in (4, 5, 6) and isinstance(value, bytes):
            form = _FORMATS.get({5: 1, 6: 2}.get(field, kind), "")
            found = float(struct.unpack(form, value)[0]) if form and len(value) == struct.calcsize(form) else found
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of a message; it ends where the bytes are none."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if at < 0:
            return
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            if at < 0:
                return
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(data, at)
        if size is None or at < 0 or at + size > len(data):
            return
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, what follows it); a place below 0 where it does not end."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            return 0, -1
        value |= (data[at] & 127) << shift
        at += 1
        if not data[at - 1] & 128:
            return value, at
    return 0, -1


def rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """One row a step: (place, {tag: number}). Tags of one step may stand apart, for some writers count samples in between."""
    held: dict[int, dict[str, str]] = {}
    place = 0
    for step, tag, value in scalars(path):
        held.setdefault(step, {})[tag] = repr(value) if math.isfinite(value) else str(value)
        if len(held) > HELD:
            first = next(iter(held))
            place += 1
            yield place, {"step": str(first), **held.pop(first)}
    for after, (step, tags) in enumerate(held.items(), 1):
        yield place + after, {"step": str(step), **tags}
