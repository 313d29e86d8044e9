"""Ranks on this machine: one process each, on loopback, none left behind.

    finished = launch([sys.executable, "-m", "seatrial.engine", "out/run.json"], world=8, out=Path("out"), timeout_s=600)
    finished.codes, finished.died, finished.timed_out

The ranks get the variables that torchrun would give them. Each writes to a log of its own; when one fails, the others have a
moment to say where they stood and are then ended. They end with this process too, whatever ends it.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

POLL_S = 0.02
GRACE_AFTER_FAILURE_S = 6.0
"""Longer than the watch waits for the other ranks' stacks."""
GRACE_AFTER_TERM_S = 2.0
GRACE_AFTER_STOP_S = 60.0
"""A run asked to stop writes a checkpoint first."""
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
"""Loaded here, because little is safe to do between fork and exec."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    codes: tuple[int, ...]
    """Exit code of each rank; negative is a signal."""
    died: tuple[int, ...]
    """Ranks that failed by themselves, in the order that it was seen."""
    timed_out: bool
    stopped: bool
    """Whether somebody asked this process to stop (SIGTERM, Ctrl-C), and it passed that on."""
    seconds: float

    @property
    def good(self) -> bool:
        return not self.timed_out and all(code == 0 for code in self.codes)


def log_path(out: Path, rank: int) -> Path:
    return out / "logs" / f"rank{rank}.log"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rank_environment(rank: int, world: int, port: int, env: Mapping[str, str], *, threads: int) -> dict[str, str]:
    return {
        **env,
        "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        # Nothing listens on, or asks for, an address outside this machine.
        "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": env.get("OMP_NUM_THREADS", str(threads)),
        "TORCH_FR_BUFFER_SIZE": env.get("TORCH_FR_BUFFER_SIZE", "2000"),
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip


def launch(argv: Sequence[str], *, world: int, out: Path, timeout_s: float, env: Mapping[str, str] | None = None,
           threads: int | None = None, on_line: Callable[[str], None] | None = None) -> Finished:
    """Runs `argv` once a rank and waits. `on_line` hears rank 0's log as it is written."""
    (out / "logs").mkdir(parents=True, exist_ok=True)
    port = free_port()
    threads = threads or max(1, len(os.sched_getaffinity(0)) // world)
    start = time.monotonic()
    ranks: list[subprocess.Popen[bytes]] = []
    asked: list[int] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(_passing_on_signals(asked))
        stack.callback(_end, ranks)
        for rank in range(world):
            log = stack.enter_context(log_path(out, rank).open("wb"))
            ranks.append(subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, preexec_fn=_die_with_parent,
                env=rank_environment(rank, world, port, os.environ if env is None else env, threads=threads)))
        heard = stack.enter_context(log_path(out, 0).open("rb"))
        died, timed_out = _wait(ranks, until=start + timeout_s, asked=asked, hear=_hearing(heard, on_line))
        _end(ranks)
    return Finished(codes=tuple(int(r.returncode) for r in ranks), died=tuple(died), timed_out=timed_out,
                    stopped=bool(asked), seconds=time.monotonic() - start)


def _wait(ranks: list[subprocess.Popen[bytes]], *, until: float, asked: list[int],
          hear: Callable[[], None]) -> tuple[list[int], bool]:
    died: list[int] = []
    passed_on = False
    while True:
        now = time.monotonic()
        for rank, process in enumerate(ranks):
            if process.poll() not in (None, 0) and rank not in died:
                if not died:
                    until = min(until, now + GRACE_AFTER_FAILURE_S)
                died.append(rank)
        hear()
        if all(process.returncode is not None for process in ranks):
            return died, False
        if asked and not passed_on:
            passed_on, until = True, min(until, now + GRACE_AFTER_STOP_S)
            for process in ranks:
                process.send_signal(asked[0])
        if died and all(process.returncode is not None or _is_stopped(process.pid) for process in ranks):
            return died, False  # a stopped process will not say anything more
        if now > until:
            return died, not died and not asked
        time.sleep(POLL_S)


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _hearing(file: IO[bytes], on_line: Callable[[str], None] | None) -> Callable[[], None]:
    rest = b""

    def hear() -> None:
        nonlocal rest
        if on_line is None:
            return
        *lines, rest = (rest + file.read()).split(b"\n")
        for line in lines:
            on_line(line.decode(errors="replace"))

    return hear


@contextlib.contextmanager
def _passing_on_signals(asked: list[int]) -> Iterator[None]:
    """SIGTERM and Ctrl-C reach the ranks as SIGTERM; a second one is not waited for."""

    def note(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(signal.SIGTERM)

    before = {}
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, note)
    except ValueError:
        pass  # only the main thread may: a sweep's worker leaves signals to its controller
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(ranks: list[subprocess.Popen[bytes]]) -> None:
    """All gone when this returns: asked first, then killed (a stopped process can only be killed)."""
    alive = [r for r in ranks if r.poll() is None]
    for process in alive:
        process.terminate()
    until = time.monotonic() + GRACE_AFTER_TERM_S
    while any(r.poll() is None for r in alive) and time.monotonic() < until:
        time.sleep(POLL_S)
    for process in alive:
        if process.poll() is None:
            process.kill()
        process.wait()


def _die_with_parent() -> None:
    # A session of their own keeps the terminal's Ctrl-C from reaching the ranks before we have noted it.
    os.setsid()
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
