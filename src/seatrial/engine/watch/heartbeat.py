"""The watch: a heartbeat per rank, and what is left behind when the heart stops.

    beat = Heartbeat(out, rank=0, stall_s=120)
    beat.beat(step=3, phase="forward", microbatch=5)
    beat.collective("all_reduce", "tp", seq=17)
    read(out)                                       the last words of every rank, from outside

A rank's state is a few bytes of a mapped file: writing them costs about a microsecond and they survive a kill -9. A thread
looks whether they change. After `stall_s` without change it writes this rank's Python stacks and torch's flight recorder, asks
the other ranks (through a file) to do the same, waits a moment for them, and leaves with EXIT_STALL.
"""
from __future__ import annotations

import faulthandler
import json
import mmap
import os
import signal
import struct
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.files import write_whole

if TYPE_CHECKING:
    from seatrial.engine.watch.fault import Fault

FOLDER = "watch"
EXIT_STALL = 83
"""Its own number, so that a launcher can tell a hang from a crash."""
WAIT_FOR_OTHERS_S = 3.0
END = "end"
"""The phase of a rank that is done: one that leaves without it, with whatever exit code, was not."""
START_S = 180.0
"""Before the first step ranks wait for each other's start, which takes its time: no stall is seen sooner."""
LAYOUT = struct.Struct("<qqqqdQ24s24s24s")
"""rank, step, microbatch, collective number, wall clock, beats, phase, collective, group."""


@dataclass(frozen=True, kw_only=True)
class Beat:
    """The last words of one rank."""

    rank: int
    step: int
    microbatch: int
    phase: str
    collective: str
    group: str
    seq: int
    """Number of the last collective in its group."""
    time: float
    beats: int


class Heartbeat:
    def __init__(self, folder: Path | str | None, rank: int, stall_s: float = 0.0, *, world: int = 1, start_s: float = START_S,
                 slow_steps: int = 0, fault: Fault | None = None):
        """`folder` None or `stall_s` 0: the state is kept in memory alone, or nobody looks at it.

        Until `slow_steps` steps are done (the first one compiles), silence of `start_s` is no stall.
        """
        self.start_s, self.slow_steps, self._steps_begun = start_s, slow_steps, 0
        self.fault = fault
        self.rank, self.world, self.stall_s = rank, world, stall_s
        self.folder = None if folder is None else Path(folder) / FOLDER
        self.step, self.microbatch, self.seq, self.beats = 0, 0, 0, 0
        self.phase, self.collective_name, self.group = "start", "", ""
        self.groups: dict[str, int] = {}
        """The last collective's number in each kind of group."""
        self._map: mmap.mmap | bytearray = bytearray(LAYOUT.size)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(self.folder / f"rank{rank}.beat", "w+b") as file:
                file.truncate(LAYOUT.size)
                self._map = mmap.mmap(file.fileno(), LAYOUT.size)
        self._write()
        if self.folder is not None and stall_s > 0:
            self._stacks = (self.folder / f"rank{rank}.stacks").open("w")
            # Asked from outside, a rank writes the line it stands at: also one that was stopped, or keeps the interpreter busy.
            faulthandler.register(signal.SIGUSR2, file=self._stacks, all_threads=True)
            self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
            self._thread.start()

    def beat(self, *, step: int | None = None, phase: str | None = None, microbatch: int | None = None) -> None:
        if step is not None:
            self._steps_begun += step != self.step
            self.step = step
        if phase is not None:
            self.phase = phase
        if microbatch is not None:
            self.microbatch = microbatch
        self._write()
        if self.fault is not None:
            self.fault.at(self.rank, self.step, self.phase)

    def collective(self, name: str, group: str, seq: int) -> None:
        self.collective_name, self.group, self.seq = name, group, seq
        self.groups[group] = seq
        self._write()

    def _write(self) -> None:
        self.beats += 1
        LAYOUT.pack_into(self._map, 0, self.rank, self.step, self.microbatch, self.seq, time.time(), self.beats,
                         self.phase.encode()[:24], self.collective_name.encode()[:24], self.group.encode()[:24])

    def close(self) -> None:
        """The end of a run is no stall."""
        self._stop.set()
        faulthandler.cancel_dump_traceback_later()
        if self._thread is not None:
            self._thread.join(timeout=5)
            faulthandler.unregister(signal.SIGUSR2)
            self._stacks.close()

    def _look(self) -> None:
        assert self.folder is not None
        alarm = self.folder / "stalled"
        tick_s = min(1.0, self.stall_s / 4)
        seen, since = -1, time.monotonic()
        while not self._stop.wait(tick_s):
            # Code that never gives up the interpreter also stops this thread; faulthandler's own thread does not need it.
            faulthandler.dump_traceback_later(max(self.stall_s, self.start_s) + 10, exit=True, file=self._stacks)
            now = time.monotonic()
            if self.beats != seen:
                seen, since = self.beats, now
            limit_s = self.stall_s if self._steps_begun > self.slow_steps else max(self.stall_s, self.start_s)
            if now - since > limit_s or alarm.exists():
                self._give_up(alarm, silent_s=now - since)

    def _give_up(self, alarm: Path, *, silent_s: float) -> None:
        assert self.folder is not None
        first = not alarm.exists()
        alarm.touch()
        faulthandler.cancel_dump_traceback_later()
        faulthandler.dump_traceback(file=self._stacks, all_threads=True)
        self._stacks.flush()
        report = {"rank": self.rank, "silent_s": round(silent_s, 3), "first": first, "groups": self.groups, **_plain(self._map)}
        (self.folder / f"rank{self.rank}.flight.json").write_text(json.dumps(flight_recorder()))
        # A node that stands still may have a disk that does: what the launcher reads need not be on it yet.
        write_whole(self.folder / f"rank{self.rank}.stall.json", json.dumps(report), durable=False)
        until = time.monotonic() + WAIT_FOR_OTHERS_S
        # Leaving closes connections, and the others would report that instead of where they stood.
        while time.monotonic() < until and len(list(self.folder.glob("rank*.stall.json"))) < self.world:
            time.sleep(0.05)
        os._exit(EXIT_STALL)


def flight_recorder() -> dict:
    """What torch recorded of the last collectives (TORCH_FR_BUFFER_SIZE entries of them), or why there is nothing."""
    import torch._C._distributed_c10d as c10d

    found: dict = {"unavailable": "this build of torch has no flight recorder"}
    # NCCL has a recorder of its own in some versions; the general one is then there, and empty.
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        try:
            found = json.loads(getattr(c10d, name)())
        except (AttributeError, RuntimeError, ValueError, TypeError):
            continue
        if found.get("entries"):
            break
    return found


def _plain(data: bytes | bytearray | mmap.mmap) -> dict:
    return asdict(decode(bytes(data[: LAYOUT.size])))


def decode(data: bytes) -> Beat:
    rank, step, microbatch, seq, clock, beats, phase, collective, group = LAYOUT.unpack(data)

    def word(raw: bytes) -> str:
        return raw.rstrip(b"\0").decode(errors="replace")

    return Beat(rank=rank, step=step, microbatch=microbatch, seq=seq, time=clock, beats=beats, phase=word(phase),
                collective=word(collective), group=word(group))


def read(folder: Path | str) -> list[Beat]:
    """The last words of all ranks that ever beat, by rank."""
    files = Path(folder, FOLDER).glob("rank*.beat")
    return sorted((decode(data) for f in files if len(data := f.read_bytes()) == LAYOUT.size), key=lambda b: b.rank)


def clear(folder: Path | str) -> None:
    """Forgets the last run's words, so that its alarm does not stop the next one."""
    for path in Path(folder, FOLDER).glob("*"):
        if path.name == "stalled" or path.suffix in (".beat", ".stacks", ".json", ".part"):
            path.unlink()
