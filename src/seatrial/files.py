"""One way to write a file that somebody else may be reading, or that a crash must not leave in halves.

    write_whole(path, text)         `path` holds all of it, or what it held before; never a part
"""
from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path


def write_whole(path: str | os.PathLike[str], data: str | bytes, *, durable: bool = True) -> None:
    """Written beside it under a name of its own, flushed to the disk, and put in its place.

    Without `durable` it is still whole for every reader, but a power cut may leave the old one: for what is written often and
    matters only while the machine runs.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with part.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
