"""Of which kind a file is that anybody wrote.

    sniff(path, check_file(path))                "markdown", "log", "csv" or "json"
"""
from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from seatrial.notes.read.files import ANSI
from seatrial.notes.read.logs import is_step
from seatrial.tables.codec import TYPES
from seatrial.tables.headings import read_heading

Format = Literal["markdown", "log", "csv", "json"]
_ALIGNMENT = re.compile(rb"^\s*\|?\s*:?-+:?\s*\|[\s|:-]*$", re.MULTILINE)
_SENTENCE = re.compile(rb"\w ?= ?\d|: .*\d")
"""No heading gives a value."""
_ARGUMENTS = re.compile(rb"\.{8,} \S+|\bmemory \(MB\) \|")


def _has_steps(head: bytes) -> bool:
    """Whether one of the first lines is a step of a training program."""
    lines = ANSI.sub("", head.decode("utf-8", errors="replace")).replace("\r", "\n").splitlines()
    return any(map(is_step, lines))


def sniff(path: Path, head: bytes) -> Format:
    """What kind of file this is, from its name where that says it and from its first bytes otherwise."""
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return "csv"
    if suffix in (".json", ".jsonl"):
        return "json"
    if suffix in (".log", ".out", ".err"):
        return "log"
    if suffix in (".md", ".markdown", ".html", ".htm", ".rst") or _ALIGNMENT.search(head):
        return "markdown"
    if not re.search(rb"^#{1,6} |<table\b", head, re.MULTILINE) and (_ARGUMENTS.search(head) or _has_steps(head)):
        return "log"
    first = head.split(b"\n", 1)[0].strip().removeprefix(b"\xef\xbb\xbf")
    if first.startswith((b"{", b"[{", b"[\n")) or first == b"[":
        return "json"
    parted = b"|" not in first and max(first.count(b","), first.count(b"\t"), first.count(b";")) >= 2
    titles = re.split("[,;\t]", first.decode("utf-8", errors="replace"))
    if parted and not first.startswith(b"#") and not _SENTENCE.search(first) and any(
            read_heading(title.strip().strip('"')).field or title in TYPES for title in titles):
        return "csv"
    return "markdown"
