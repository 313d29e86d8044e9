"""One at a time in a folder, across processes, containers and hosts.

    with alone(out, "a training") as said:          BadInput with who has it; `said`: whom it was taken over from, or nothing
        ...

The lock is the kernel's (`flock`), which is released however its holder dies, and holds in every pid namespace and, where the
file system does it, on every host. Not all do: so the file also says who has it, and is touched every few seconds. Whoever
comes from another host believes such a lease while it is fresh. Ages are by the file system's clock alone. A holder that was
suspended for longer than that finds another's name in the file when it goes on, and ends at once.
"""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seatrial.errors import BadInput, SeatrialError

FILE = ".lock"
LEASE_S = 60.0
"""A lease that nobody has touched for this long is of somebody who is gone."""
RENEW_S = 10.0


@contextlib.contextmanager
def alone(folder: Path | str, what: str, *, instead: str = "wait for it, or name another folder",
          error: type[SeatrialError] = BadInput, name: str = FILE) -> Iterator[str]:
    """`what` is at work here; `instead`: what somebody who finds that could do."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", buffering=0) as file:
        mine = me(what)
        held = _flock(file.fileno())
        owner = _read(file)
        age_s = _now(folder) - os.fstat(file.fileno()).st_mtime
        if held is False or owner and age_s < LEASE_S and not (held and owner.get("boot") == mine["boot"]):
            rest = f"; should it be gone, this ends by itself in {LEASE_S - age_s:.0f} s" if held is not False else ""
            raise error(f"{folder}: {described(owner)}{rest}; {instead}")
        said = f"{folder}: taken over from {who(owner)}, which ended without a word" if owner else ""
        _write(file, mine)
        if held is None:
            # Without locks somebody may have read the same moment; the one who wrote last has it.
            time.sleep(0.2)
            if (owner := _read(file)) != mine:
                raise error(f"{folder}: {described(owner)}; {instead}")
        over = threading.Event()
        renewing = threading.Thread(target=_renew, args=(path, mine, over), name="lease", daemon=True)
        renewing.start()
        try:
            yield said
        finally:
            over.set()
            renewing.join()
            with contextlib.suppress(OSError):  # the folder may be gone by now
                if _read(file) == mine:
                    file.truncate(0)


def me(what: str) -> dict[str, Any]:
    return {"what": what, "host": socket.gethostname(), "pid": os.getpid(), "since": round(time.time(), 3), "boot": _boot()}


def described(owner: dict[str, Any]) -> str:
    return f"{owner.get('what', 'something')} is running here ({who(owner)})" if owner else "something is running here"


def who(owner: dict[str, Any]) -> str:
    """process 71 on alpha, since 2026-11-16 04:45:05 UTC"""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(owner.get("since", 0)))
    return f"process {owner.get('pid')} on {owner.get('host')}, since {since}"


def _boot() -> str:
    """The same for all processes of one kernel, in whatever container."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _flock(handle: int) -> bool | None:
    """Whether it is ours now; None where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _read(file: Any) -> dict[str, Any]:
    file.seek(0)
    try:
        found = json.loads(file.read() or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _write(file: Any, words: dict[str, Any]) -> None:
    file.seek(0)
    file.truncate(0)
    file.write(json.dumps(words).encode() + b"\n")
    os.fsync(file.fileno())


def _now(folder: Path) -> float:
    """By the clock that the file system stamps files with, which is the server's."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(b"x")
        probe.flush()
        os.fsync(probe.fileno())
        return os.fstat(probe.fileno()).st_mtime


def _renew(path: Path, mine: dict[str, Any], over: threading.Event) -> None:
    while not over.wait(RENEW_S):
        with contextlib.suppress(OSError), path.open("rb") as file:
            if (owner := _read(file)) and owner != mine:
                return _lost(path.parent, mine, owner)
            os.utime(file.fileno())


def _lost(folder: Path, mine: dict[str, Any], owner: dict[str, Any]) -> None:
    """What we would write from here on is another's to write. The second signal is the one that no work waits for."""
    print(f"{folder}: {described(owner)}: it took over from {mine['what']} ({who(mine)}), which was silent for more than "
          f"{LEASE_S:g} s and ends now", file=sys.stderr, flush=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
