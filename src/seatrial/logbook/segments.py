"""A segment: the file of one writer in a logbook's folder, which nobody else opens for writing.

    segment = Segment(folder)
    segment.write(line)                                 on disk when it returns
"""
from __future__ import annotations

import errno
import os
import re
import secrets
import socket
from datetime import UTC, datetime
from pathlib import Path

from seatrial.errors import BadInput, SeatrialError


class Unwritten(SeatrialError):
    """The disk did not take the record; nothing of it counts as written."""


class Segment:
    """The file of one writer: made when it first writes, never opened by another."""

    def __init__(self, folder: Path):
        host = re.sub(r"[^A-Za-z0-9._]", "_", socket.gethostname()) or "host"
        start = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self.path = folder / f"{host}-{os.getpid()}-{start}-{secrets.token_hex(4)}.jsonl"
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Unwritten(f"{folder.parent}: {error.strerror}: nothing written") from error
            raise BadInput(f"{folder.parent}: {error.strerror}: the logbook cannot be written to") from None
        self._length_bytes = 0
        _sync_folder(folder)

    def write(self, data: bytes) -> None:
        # A regular file takes all of it in one write; where it takes a part, the next write says why (full disk, a limit).
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        os.fsync(self._fd)
        self._length_bytes += len(data)

    def abandon(self) -> None:
        """After a failed write: take the torn end off if the disk lets us, else it is reported and skipped by every reader."""
        try:
            os.ftruncate(self._fd, self._length_bytes)
            if self._length_bytes == 0:
                self.path.unlink()
        except OSError:
            pass
        self.close()

    def close(self) -> None:
        os.close(self._fd)


def make_folder(segments: Path, root: Path) -> None:
    try:
        segments.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise BadInput(f"{root}: there is a file in the way, and a logbook is a directory") from None
    except OSError as error:
        raise BadInput(f"{root}: {error.strerror}: the logbook cannot be made here") from None


def _sync_folder(folder: Path) -> None:
    """A new file is safe when its name is; some file systems cannot sync a directory, and need not."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)
