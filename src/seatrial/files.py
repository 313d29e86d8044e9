"""One way to write a file that somebody else may be reading, or that a crash must not leave in halves.

    write_whole(path, text)         `path` holds all of it, or what it held before; never a part
    save(path, text)                the same for a file that a person named: what the disk refuses is one line
    with whole(path) as file: ...   the same piece by piece
    with naming(path): ...          what a disk refuses names the file, which a write that fails does not by itself

Standard library only: the engine writes with it too.
"""
from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from seatrial.errors import BadInput

Name = str | os.PathLike[str]


@contextlib.contextmanager
def naming(path: Name) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def whole(path: Name, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Written beside it under a name of its own, flushed to the disk, and put in its place when all went well.

    Without `durable` it is still whole for every reader, but a power cut may leave the old one: for what is written often and
    matters only while the machine runs.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with naming(path), part.open("wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def write_whole(path: Name, data: str | bytes, *, durable: bool = True) -> None:
    with whole(path, durable=durable) as file:
        file.write(data.encode("utf-8", "replace") if isinstance(data, str) else data)


def save(path: Name, data: str | bytes) -> None:
    """Raises BadInput where it cannot be written."""
    try:
        write_whole(path, data)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None
