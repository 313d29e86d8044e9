"""Files that anybody wrote: their first bytes, and their lines without BOM, CRLF, colour codes and progress bars.

    for number, line in read_lines(path): ...

A file that is no text, or cannot be opened, is one BadInput; memory does not grow with the file.
"""
from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from seatrial.errors import BadInput

HEAD_BYTES = 64 * 1024
LONGEST_LINE = 1 << 20
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")


LOGS = frozenset({"", ".log", ".out", ".err"})


class SilentLog(BadInput):
    """A log without a word of a run: most ranks of a job print none, and the log of another one has it."""


def nothing(path: Path, why: str) -> BadInput:
    return (SilentLog if path.suffix in LOGS else BadInput)(f"{path}: {why}")


_ODD = bytes(byte for byte in range(32) if byte not in b"\t\n\r\x0b\x0c\x1b\x08")


def check_file(path: Path) -> bytes:
    """The first bytes of a file that looks like text; anything else is refused with the reason."""
    try:
        if path.is_dir():
            raise BadInput(f"{path}: a directory, where a file with tables or logs was expected")
        if path.exists() and not path.is_file():
            raise BadInput(f"{path}: not a regular file; save it to one first")
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise BadInput(f"{path}: {(error.strerror or str(error)).lower()}") from error
    if not head.strip():
        raise nothing(path, "empty" if not head else "nothing but blank lines at its start")
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadInput(f"{path}: UTF-16 text; save it as UTF-8")
    if b"\0" in head or len(head) - len(head.translate(None, _ODD)) > len(head) // 20:
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
                    text = ANSI.sub("", text)
                if "\r" in text:
                    for part in text.split("\r"):
                        if part.strip():
                            yield number, part
                else:
                    yield number, text
    except OSError as error:
        raise BadInput(f"{path}: {(error.strerror or str(error)).lower()}") from error


def ends_whole(path: Path) -> bool:
    """Whether the last line has its end: a writer that was killed, or still writes, leaves half a number."""
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) in b"\r\n"


def uncut(line: str) -> str:
    """The last line without the word that may have been cut off."""
    return line if line.rstrip()[-1:] in ("", "|", "}", ")", "]") else re.sub(r"(?:[^\s|,=:]|(?<=\d),(?=\d))+$", "", line)
