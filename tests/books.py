"""What the tests of the logbook look at: its segments, its records as they were given, the bytes of a whole folder."""
from __future__ import annotations

import re
from pathlib import Path

from seatrial.logbook import Logbook


def segments(path: Path) -> list[Path]:
    return sorted((path / "segments").glob("*.jsonl"))


def bare(lines: bytes) -> bytes:
    """Lines as a program without checksums writes them, to be changed at will."""
    return re.sub(rb',"crc32":"[0-9a-f]{8}"}', b"}", lines)


def own(record: dict) -> dict:
    return {key: value for key, value in record.items() if key not in ("record_id", "written_at")}


def read(path: Path, **where: object) -> list[dict]:
    with Logbook(path) as book:
        return [own(record) for record in book.records(where)]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
