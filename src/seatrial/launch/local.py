"""Ranks on this machine: one process each, on loopback, none left behind.

    local = Local()
    handle = local.submit(Job(name="a", run_dir=Path("out"), argv=("python", "-m", "seatrial.engine", …), world=8))
    wait(local, handle)                         Finished(codes=(0, 0, …), …)

The processes are children of this one: `poll` is what moves a job on, and when this process dies, so do they.
"""
from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from seatrial.errors import BadInput
from seatrial.launch import files
from seatrial.launch.base import POLL_S, Finished, Handle, Job, Launcher, State
from seatrial.launch.guard import Guard
from seatrial.launch.processes import Processes

__all__ = ["Finished", "Local", "launch", "wait"]


class Local:
    name = "local"
    poll_s = POLL_S

    def __init__(self) -> None:
        self._running: dict[str, Processes] = {}
        self._cores: dict[str, list[int]] = {}
        """Of the jobs that run, so that two side by side do not share one."""
        self._count = 0
        self._guard = Guard()

    def submit(self, job: Job) -> Handle:
        if job.nodes > 1:
            raise BadInput(f"{job.world} processes at {job.local_world} a node are {job.nodes} nodes, and this machine is one")
        taken = {core for cores in self._cores.values() for core in cores}
        free = [core for core in sorted(os.sched_getaffinity(0)) if core not in taken]
        self._count += 1
        key = f"{job.run_dir}#{self._count}"
        # Cores are given out only where all ranks can have one of their own; else the kernel divides them.
        mine = free[: job.world * (job.threads or 1)] if job.world <= len(free) and taken else free
        ranks = range(job.world) if job.per == "rank" else range(1)
        self._guard.watch(job.run_dir)
        try:
            self._running[key] = Processes(job, ranks=ranks, cores=mine)
        except OSError as error:
            raise BadInput(f"{job.argv[0]}: {error.strerror}: the ranks cannot be started") from None
        self._cores[key] = mine if job.world <= len(mine) else []
        return Handle(key=key, job=job, job_id=str(os.getpid()), submitted=time.time())

    def poll(self, handles: Sequence[Handle]) -> dict[str, State]:
        found: dict[str, State] = {}
        for handle in handles:
            processes = self._running[handle.key]
            processes.look()
            if processes.done:
                self._cores.pop(handle.key, None)
            found[handle.key] = "done" if processes.done else "running"
        return found

    def cancel(self, handle: Handle) -> None:
        self._running[handle.key].ask_to_stop()

    def kill(self, handle: Handle) -> None:
        """At once, and gone when this returns."""
        self._running[handle.key].found.stopped = True
        self._running[handle.key].kill()

    def finished(self, handle: Handle) -> Finished:
        """Once: the launcher then forgets the job."""
        found = self._running.pop(handle.key).result()
        self._guard.forget(handle.job.run_dir)
        return Finished(
            codes=tuple(found.codes[r] for r in sorted(found.codes)), died=tuple(found.died), timed_out=found.timed_out,
            stopped=found.stopped, seconds=found.seconds, frozen=tuple(found.frozen), rss_peak_bytes=found.rss_peak_bytes,
            data_peak_bytes=found.data_peak_bytes, shot=tuple(found.shot), hosts=(found.host,))

    def find(self, name: str) -> str:
        return ""  # processes of an earlier controller died with it

    def close(self) -> None:
        self._guard.close()

    def room_for(self, job: Job, running: Sequence[Handle]) -> bool:
        """Beside others only where every rank has a core of its own: trials that share cores measure each other."""
        wanted = sum(h.job.world * (h.job.threads or 1) for h in running) + job.world * (job.threads or 1)
        return not running or wanted <= len(os.sched_getaffinity(0))


def wait(launcher: Launcher, handle: Handle, *, on_line: Callable[[str], None] | None = None) -> Finished:
    """Until it is done; SIGTERM and Ctrl-C are passed on. `on_line` hears rank 0's log as it is written."""
    asked: list[int] = []
    passed_on = False
    with contextlib.ExitStack() as stack:
        stack.enter_context(_passing_on_signals(asked))
        hear = _hearing(stack, files.log(handle.job.run_dir, 0), on_line)
        try:
            while launcher.poll([handle])[handle.key] != "done":
                hear()
                if asked and not passed_on:
                    passed_on = True
                    launcher.cancel(handle)
                time.sleep(launcher.poll_s)
        except BaseException:
            launcher.kill(handle)
            raise
        hear()
    return launcher.finished(handle)


def launch(argv: Sequence[str], *, world: int, out: Path, timeout_s: float, env: Mapping[str, str] | None = None,
           threads: int | None = None, on_line: Callable[[str], None] | None = None) -> Finished:
    """Runs `argv` once a rank on this machine and waits."""
    local = Local()
    job = Job(name=out.name, run_dir=out, argv=tuple(argv), world=world, env=dict(env or {}), threads=threads,
              time_limit_s=timeout_s)
    try:
        return wait(local, local.submit(job), on_line=on_line)
    finally:
        local.close()


def _hearing(stack: contextlib.ExitStack, path: Path, on_line: Callable[[str], None] | None) -> Callable[[], None]:
    rest = b""
    file: IO[bytes] | None = None

    def hear() -> None:
        nonlocal rest, file
        if on_line is None or file is None and not path.exists():
            return
        if file is None:
            file = stack.enter_context(path.open("rb"))
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
        asked.append(number)

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
