"""Ranks that need not load torch, which is most of a small run: forked from this process, which has it, and not started anew.

    room(argv)              once, first: starts this program again with room for a rank's environment
    with ranks(): ...       our launcher's ranks, and agents, are forked; programs that are not ours are started as ever

A forked rank is a process of its own like any other: its session, limits, log and end are what the launcher makes them. Only
its environment, by which the launcher's guard finds it, must be written where the kernel shows it: over that of this process.
"""
from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOM, ROOM_BYTES = "SEATRIAL_FAULTS_ROOM", 32_000


def room(argv: Sequence[str]) -> None:
    if ROOM not in os.environ:
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.faults", *argv], {**os.environ, ROOM: "-" * ROOM_BYTES})


class Forked:
    """As much of subprocess.Popen as a launcher uses."""

    def __init__(self, body: Callable[[], int]):
        gc.collect()
        gc.freeze()
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                code = body()
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("forked", timeout or 0.0)
            time.sleep(0.002)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def become(env: dict[str, str], log_fd: int) -> None:
    """What exec would have done: environment, open files, signals, standard streams."""
    os.environ.clear()
    os.environ.update({name: value for name, value in env.items() if name != ROOM})
    start, end = (int(n) for n in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])
    block = b"\0".join(os.fsencode(f"{name}={value}") for name, value in os.environ.items()) + b"\0"
    if len(block) > end - start:
        raise OSError(f"an environment of {len(block)} bytes does not fit into {end - start}")
    ctypes.memmove(start, block.ljust(end - start, b"\0"), end - start)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.closerange(3, 1024)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _popen(argv: Sequence[str], *, stdout: Any, env: dict[str, str], preexec_fn: Callable[[], None], **others: Any) -> Any:
    if list(argv[1:3]) != ["-m", "seatrial.engine"]:
        return subprocess.Popen(argv, stdout=stdout, env=env, preexec_fn=preexec_fn, **others)

    def rank() -> int:
        from seatrial.engine import loop

        preexec_fn()
        become(env, stdout.fileno())
        return loop.main([argv[3]])

    return Forked(rank)


@contextlib.contextmanager
def ranks() -> Iterator[None]:
    import seatrial.engine.loop  # noqa: F401
    from seatrial.launch import processes

    before = processes.subprocess
    processes.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": _popen})  # type: ignore[assignment]
    try:
        yield
    finally:
        processes.subprocess = before  # type: ignore[assignment]
