"""A process that outlives the launcher by a moment, so that nothing of its trials outlives it for longer.

    guard = Guard()
    guard.watch(run_dir)            … the trial runs …          guard.forget(run_dir)

A rank dies with its launcher, because the kernel sees to it; what a rank has started itself, or somebody else's torchrun, would
not. The guard reads the launcher's words from a pipe. When the pipe closes, however the launcher ended, it kills all that
carries the mark of a trial it was not told to forget. It is run as a file with the standard library alone, to start at once.
"""
from __future__ import annotations

import json
import os
import signal
import sys
import weakref

MARK = "SEATRIAL_RUN_DIR"
"""In the environment of every process of a trial, so that it can be found."""


def end_marked(marks: list[str]) -> list[int]:
    """Kills every process whose environment has one of these; returns the process ids."""
    wanted = {mark.encode() for mark in marks}
    ended = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as file:
                if wanted.isdisjoint(file.read().split(b"\0")):
                    continue
            os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue  # gone, or another user's
        ended.append(int(entry.name))
    return ended


class Guard:
    def __init__(self) -> None:
        self._pid = 0
        self._pipe = -1

    def watch(self, run_dir: os.PathLike[str]) -> None:
        self._say("+", os.fspath(run_dir))

    def forget(self, run_dir: os.PathLike[str]) -> None:
        self._say("-", os.fspath(run_dir))

    def on_death(self, argv: list[str]) -> None:
        """A program to run when the launcher is gone, or closes this guard."""
        self._say("!", argv)

    def _start(self) -> None:
        theirs, self._pipe = os.pipe()
        # Only the guard's end may be inherited, or a rank would keep the pipe open.
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        self._pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", __file__], os.environ,
                                   file_actions=[(os.POSIX_SPAWN_DUP2, theirs, 0), *quiet], setsid=True)
        os.close(theirs)
        self._end = weakref.finalize(self, _close, self._pid, self._pipe)

    def _say(self, word: str, what: object) -> None:
        if not self._pid:
            self._start()
        try:
            os.write(self._pipe, (json.dumps([word, what]) + "\n").encode())
        except OSError:
            pass  # somebody killed the guard: the trials are still ended by their launcher

    def close(self) -> None:
        if self._pid:
            self._end()
            self._pid = 0


def _close(pid: int, pipe: int) -> None:
    os.close(pipe)
    os.waitpid(pid, 0)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it leaves when the launcher does, and not before
    running: set[str] = set()
    last_acts: list[list[str]] = []
    for line in sys.stdin:
        word, what = json.loads(line)
        if word == "!":
            last_acts.append(what)
        else:
            (running.add if word == "+" else running.discard)(what)
    # A child that is just being started may be missed once.
    for _ in range(2):
        if running and end_marked([f"{MARK}={run_dir}" for run_dir in running]):
            continue
        break
    for argv in last_acts:
        try:
            os.waitpid(os.posix_spawnp(argv[0], argv, os.environ), 0)
        except OSError:
            continue  # its program is not there: nothing more can be done


if __name__ == "__main__":
    main()
