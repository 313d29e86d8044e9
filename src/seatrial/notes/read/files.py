"""Files that anybody wrote: of which kind they are, and their lines without BOM, CRLF, colour codes and progress bars.

    sniff(path, check_file(path))                "markdown", "log", "csv" or "json"
    for number, line in read_lines(path): ...

A file that is no text, or cannot be opened, is one BadInput; memory does not grow with the file.
"""
from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from seatrial.errors import BadInput

HEAD_BYTES = 64 * 1024
LONGEST_LINE = 1 << 20
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")


def check_file(path: Path) -> bytes:
    """The first bytes of a file that looks like text; anything else is refused with the reason."""
    if path.is_dir():
        raise BadInput(f"{path}: a directory, where a file with tables or logs was expected")
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path}: not a regular file; save it to one first")
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise BadInput(f"{path}: {(error.strerror or str(error)).lower()}") from error
    if not head.strip():
        raise BadInput(f"{path}: empty" if not head else f"{path}: nothing but blank lines at its start")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadInput(f"{path}: UTF-16 text; save it as UTF-8")
    odd = sum(byte < 32 and byte not in b"\t\n\r\x0b\x0c\x1b\x08" for byte in head)
    if b"\0" in head or odd > len(head) // 20:
        raise BadInput(f"{path}: a binary file, where text with tables or logs was expected")
    return head


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text without its end) of every line; a progress bar's parts come under one number."""
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(LONGEST_LINE):
                number += 1
                if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
                    raise BadInput(f"{path}:{number}: a line of over {LONGEST_LINE >> 20} MiB; a row or log line is shorter")
                if number == 1:
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                if b"\0" in raw:
                    raise BadInput(f"{path}:{number}: a binary file, where text with tables or logs was expected")
                text = raw.decode("utf-8", errors="replace").rstrip("\r\n")
                if "\x1b" in text:
                    text = _ANSI.sub("", text)
                if "\r" in text:
                    for part in text.split("\r"):
                        if part.strip():
                            yield number, part
                else:
                    yield number, text
    except OSError as error:
        raise BadInput(f"{path}: {(error.strerror or str(error)).lower()}") from error


Format = Literal["markdown", "log", "csv", "json"]
_ALIGNMENT = re.compile(rb"^\s*\|?\s*:?-+:?\s*\|[\s|:-]*$", re.MULTILINE)
_ARGUMENTS = re.compile(rb"\.{8,} \S+|\bmemory \(MB\) \|")


def _has_steps(head: bytes) -> bool:
    """Whether one of the first lines is a step of a training program."""
    from seatrial.notes.read.logs import is_step

    lines = _ANSI.sub("", head.decode("utf-8", errors="replace")).replace("\r", "\n").splitlines()
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
    if b"|" not in first and max(first.count(b","), first.count(b"\t"), first.count(b";")) >= 2 and not first.startswith(b"#"):
        return "csv"
    return "markdown"
