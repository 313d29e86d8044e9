"""Importers: benchmark notes, Megatron logs, CSV and JSON as records, whatever their authors called the columns.

    from seatrial.notes.read import import_file
    notes = import_file("a100.md")
    notes.records, notes.problems                what was read, and what was not with file, line and cell

    for found in iter_file(path): ...            the same one at a time, for logs that do not fit in memory

A row gives exactly one record, or is counted in exactly one problem. Nothing is guessed: see `rows.py` and `outline.py`.
"""
from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seatrial.errors import BadInput
from seatrial.notes.read.csvfile import read_csv
from seatrial.notes.read.files import check_file, read_lines
from seatrial.notes.read.markdown import read_markdown
from seatrial.notes.read.megatron import LogReader
from seatrial.notes.read.outline import Outline
from seatrial.record import Record
from seatrial.tables import Problem
from seatrial.tables.csvjson import read_json

__all__ = ["Imported", "Problem", "import_file", "iter_file", "sniff"]

Format = Literal["markdown", "log", "csv", "json"]
LARGEST_MIB = 64
"""Notes and tables beyond this are almost surely the wrong file; logs have no limit."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    records: tuple[Record, ...] = ()
    problems: tuple[Problem, ...] = ()


def import_file(path: str | os.PathLike[str], *, largest_mib: float = LARGEST_MIB) -> Imported:
    """Everything in the file. BadInput when it is no text, cannot be opened, or is too large."""
    records, problems = [], []
    for found in iter_file(path, largest_mib=largest_mib):
        if isinstance(found, Record):
            records.append(found)
        else:
            problems.append(found)
    return Imported(records=tuple(records), problems=tuple(problems))


def iter_file(path: str | os.PathLike[str], *, largest_mib: float = LARGEST_MIB) -> Iterator[Record | Problem]:
    """Records and problems in the order of the file, one at a time."""
    path = Path(path)
    head = check_file(path)
    kind = sniff(path, head)
    size_mib = path.stat().st_size / 2**20
    if kind != "log" and size_mib > largest_mib:
        raise BadInput(f"{path}: {size_mib:.0f} MiB of {kind} is over the {largest_mib:g} MiB that notes may have; split it")
    if kind == "csv":
        return read_csv(path, path.name)
    if kind == "json":
        return read_json(path, path.name)
    return _read_log(path, path.name) if kind == "log" else read_markdown(path, path.name)


def _read_log(path: Path, name: str) -> Iterator[Record | Problem]:
    reader = LogReader(name, Outline(), alone=True)
    for number, line in read_lines(path):
        yield from reader.feed(number, line)
    yield from reader.flush(end=True)


_ALIGNMENT = re.compile(rb"^\s*\|?\s*:?-+:?\s*\|[\s|:-]*$", re.MULTILINE)
_ITERATION = re.compile(rb"\biteration\s+\d+\s*/\s*\d+\s*\||\.{8,} \S+|\bmemory \(MB\) \|")


def sniff(path: Path, head: bytes) -> Format:
    """What kind of file this is, from its name where that says it and from its first bytes otherwise."""
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return "csv"
    if suffix in (".json", ".jsonl"):
        return "json"
    if suffix in (".log", ".out", ".err"):
        return "log"
    if suffix in (".md", ".markdown") or _ALIGNMENT.search(head):
        return "markdown"
    if _ITERATION.search(head) and not re.search(rb"^#{1,6} ", head, re.MULTILINE):
        return "log"
    first = head.split(b"\n", 1)[0].strip().removeprefix(b"\xef\xbb\xbf")
    if first.startswith((b"{", b"[{", b"[\n")) or first == b"[":
        return "json"
    if b"|" not in first and max(first.count(b","), first.count(b"\t"), first.count(b";")) >= 2 and not first.startswith(b"#"):
        return "csv"
    return "markdown"
