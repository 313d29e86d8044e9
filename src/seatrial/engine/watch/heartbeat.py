"""The watch: a heartbeat per rank, and what is left behind when the heart stops.

    beat = Heartbeat(out, rank=0, stall_s=120, save_s=1800)
    beat.beat(step=3, phase="forward", microbatch=5)
    beat.collective("all_reduce", "tp", seq=17)
    with beat.work("save", total=size_bytes):       what moves by bytes, in whatever thread does it
        beat.moved(piece_bytes)
    read(out)                                       the last words of every rank, from outside

A rank's state is a few bytes of a mapped file: writing them costs about a microsecond and they survive a kill -9. A thread
looks whether they change. After too long without change it writes this rank's Python stacks and torch's flight recorder, asks
the other ranks (through a file) to do the same, waits a moment for them, and leaves with EXIT_STALL.

How long is too long depends on the phase, and in a save or a load on bytes alone: a rank that stands still is not
hung while somebody's save moves and somebody waits for it. The ranks of all nodes know that of each other by two files in the
run folder, whose times change: MOVES with the bytes, and WAITS as long as a rank is in such a phase. To look at them costs the
same for any number of ranks.
"""
from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
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
SAY_S = 1.0
"""How often, at most, a save that moves says so to the other ranks."""
MOVES, WAITS = "moves", "waits"
LAYOUT = struct.Struct("<qqqqdQQqq24s24s24s24s")
"""rank, step, microbatch, collective number, wall clock, beats, moves, done, total; phase, collective, group, work."""
BY_BYTES = {"checkpoint": "save", "finish": "save", "load": "load"}
"""Phases in which the main thread does, or waits for, work that moves by bytes."""


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
    work: str = ""
    """What moves by bytes: `save` (also beside training) or `load`; empty when nothing does."""
    done: int = 0
    total: int = 0
    """Bytes of it; a total of 0 is not known."""
    moves: int = 0


class Heartbeat:
    def __init__(self, folder: Path | str | None, rank: int, stall_s: float = 0.0, *, world: int = 1,
                 start_s: float = START_S, slow_steps: int = 0, save_s: float = 0.0, load_s: float = 0.0,
                 clock: Callable[[], float] = time.monotonic, watched: bool = True, fault: Fault | None = None):
        """`folder` None: the state is kept in memory alone; `stall_s` 0 or not `watched`: nobody looks at it.

        Until `slow_steps` steps are done (the first one compiles), silence of `start_s` is no stall. A save or a load may go
        without a byte for `save_s` and `load_s`.
        """
        self.start_s, self.slow_steps, self._steps_begun = start_s, slow_steps, 0
        self.fault = fault
        self.without_a_byte = {"save": save_s or stall_s, "load": load_s or stall_s}
        self.rank, self.world, self.stall_s, self.clock = rank, world, stall_s, clock
        self.folder = None if folder is None else Path(folder) / FOLDER
        self.step, self.microbatch, self.seq, self.beats = 0, 0, 0, 0
        self.phase, self.collective_name, self.group = "start", "", ""
        self.work_name, self.done, self.total, self.moves, self._said = "", 0, 0, 0, float("-inf")
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
        if self.folder is not None and stall_s > 0 and watched:
            self._stacks = (self.folder / f"rank{rank}.stacks").open("w")
            # Asked from outside, a rank writes the line it stands at: also one that was stopped, or keeps the interpreter busy.
            faulthandler.register(signal.SIGUSR2, file=self._stacks, all_threads=True)
            self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
            self._thread.start()

    @property
    def watched(self) -> bool:
        return self._thread is not None

    def beat(self, *, step: int | None = None, phase: str | None = None, microbatch: int | None = None) -> None:
        if step is not None:
            self._steps_begun += step != self.step
            self.step = step
        if phase is not None:
            self.phase = phase
        if microbatch is not None:
            self.microbatch = microbatch
        self.beats += 1
        self._write()
        if self.fault is not None:
            self.fault.at(self.rank, self.step, self.phase)

    def collective(self, name: str, group: str, seq: int) -> None:
        self.collective_name, self.group, self.seq = name, group, seq
        self.groups[group] = seq
        self.beats += 1
        self._write()

    @contextlib.contextmanager
    def work(self, name: str, *, total: int = 0) -> Iterator[None]:
        """What moves by bytes; one at a time."""
        self.work_name, self.done, self.total = name, 0, total
        self.moved(0)
        try:
            yield
        finally:
            self.work_name = ""
            self.moved(0)

    def moved(self, count: int) -> None:
        """So many bytes further; 0: further, though no byte of the whole."""
        self.done += count
        self.moves += 1
        self._write()
        now = self.clock()
        if self.folder is not None and now - self._said >= min(SAY_S, self.stall_s / 4):
            self._said = now
            _touch(self.folder / MOVES)

    def _write(self) -> None:
        words = (self.phase, self.collective_name, self.group, self.work_name)
        LAYOUT.pack_into(self._map, 0, self.rank, self.step, self.microbatch, self.seq, time.time(), self.beats, self.moves,
                         self.done, self.total, *(word.encode()[:24] for word in words))

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
        patience = Patience(self, now=time.monotonic())
        while not self._stop.wait(tick_s):
            # Code that never gives up the interpreter also stops this thread; faulthandler's own thread does not need it.
            faulthandler.dump_traceback_later(max(self.stall_s, self.limit_s()) + 10, exit=True, file=self._stacks)
            late = patience.spent(time.monotonic())
            if late or alarm.exists():
                self._give_up(alarm, silent_s=patience.silent_s, standing=late)

    def limit_s(self) -> float:
        """Of the present phase."""
        if self.phase in BY_BYTES:
            return self.without_a_byte[BY_BYTES[self.phase]]
        return self.stall_s if self._steps_begun > self.slow_steps else max(self.stall_s, self.start_s)

    def _give_up(self, alarm: Path, *, silent_s: float, standing: str) -> None:
        assert self.folder is not None
        first = not alarm.exists()
        alarm.touch()
        faulthandler.cancel_dump_traceback_later()
        faulthandler.dump_traceback(file=self._stacks, all_threads=True)
        self._stacks.flush()
        report = {"rank": self.rank, "silent_s": round(silent_s, 3), "first": first, "standing": standing,
                  "groups": self.groups, **_plain(self._map)}
        (self.folder / f"rank{self.rank}.flight.json").write_text(json.dumps(flight_recorder()))
        # A node that stands still may have a disk that does: what the launcher reads need not be on it yet.
        write_whole(self.folder / f"rank{self.rank}.stall.json", json.dumps(report), durable=False)
        until = time.monotonic() + WAIT_FOR_OTHERS_S
        # Leaving closes connections, and the others would report that instead of where they stood.
        while time.monotonic() < until and len(list(self.folder.glob("rank*.stall.json"))) < self.world:
            time.sleep(0.05)
        os._exit(EXIT_STALL)


class Patience:
    """How long a rank has stood still, and whether that is too long.

        patience = Patience(heart, now=time.monotonic())
        patience.spent(time.monotonic())            "" while all is well; `rank`, `save` or `load`: what stands still
    """

    def __init__(self, heart: Heartbeat, *, now: float):
        assert heart.folder is not None
        self.heart, self._moves, self._waits = heart, Changes(heart.folder / MOVES), Changes(heart.folder / WAITS)
        self._beats = self._own_moves = -1
        self._since = self._own_since = self._said = now
        self._looks = False
        self.silent_s = 0.0

    def spent(self, now: float) -> str:
        heart = self.heart
        if heart.moves != self._own_moves or not heart.work_name:
            self._own_moves, self._own_since = heart.moves, now
        elif now - self._own_since > heart.without_a_byte[heart.work_name]:
            self.silent_s = now - self._own_since
            return heart.work_name
        if heart.beats != self._beats:
            self._beats, self._since, self._looks = heart.beats, now, False
        limit_s = heart.limit_s()
        if heart.phase in BY_BYTES:
            self._say_so(now)
        # Early: a machine that is busy may leave time for few looks, and a change is seen at the second.
        if now - self._since > heart.stall_s / 4 and self._somebody_waits(now):
            limit_s = max(limit_s, *heart.without_a_byte.values())
            if self._moves.changed(now):
                self._since = now
        self.silent_s = now - self._since
        return "rank" if self.silent_s > limit_s else ""

    def _say_so(self, now: float) -> None:
        """That this rank is in a save or a load, once it has been for a moment."""
        pause_s = min(SAY_S, self.heart.stall_s / 4)
        if now - self._since > pause_s and now - self._said >= pause_s:
            self._said = now
            _touch(self._waits.path)

    def _somebody_waits(self, now: float) -> bool:
        if not self._looks:
            # What other times of silence saw is not of this one.
            self._looks = True
            self._waits.forget()
            self._moves.forget()
            self._moves.changed(now)
        self._waits.changed(now)
        return self.heart.phase in BY_BYTES or now - self._waits.at < self.heart.stall_s


class Changes:
    """Whether a file's time changes, whoever's clock that is."""

    def __init__(self, path: Path):
        self.path = path
        self._seen: int | None = None
        self.at = float("-inf")
        """When a change was last seen."""

    def changed(self, now: float) -> bool:
        """Since the last look; at the first one not."""
        try:
            # Opened, because a file system over a network answers a plain stat from memory.
            with self.path.open("rb") as file:
                stamp = os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            stamp = 0
        changed = self._seen is not None and stamp != self._seen
        self._seen = stamp
        if changed:
            self.at = now
        return changed

    def forget(self) -> None:
        self._seen, self.at = None, float("-inf")


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):  # a disk that is full or gone: then nobody hears of it
        stamp = time.time_ns()  # the kernel's own is the same for some milliseconds
        with path.open("ab"):
            os.utime(path, ns=(stamp, stamp))


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
    rank, step, microbatch, seq, clock, beats, moves, done, total, *raw = LAYOUT.unpack(data)
    phase, collective, group, work = (word.rstrip(b"\0").decode(errors="replace") for word in raw)
    return Beat(rank=rank, step=step, microbatch=microbatch, seq=seq, time=clock, beats=beats, phase=phase,
                collective=collective, group=group, work=work, done=done, total=total, moves=moves)


def read(folder: Path | str, ranks: Iterable[int] | None = None) -> list[Beat]:
    """The last words of all ranks that ever beat, or of these, by rank."""
    here = Path(folder, FOLDER)
    files = here.glob("rank*.beat") if ranks is None else [p for r in ranks if (p := here / f"rank{r}.beat").exists()]
    return sorted((decode(data) for f in files if len(data := f.read_bytes()) == LAYOUT.size), key=lambda b: b.rank)


def so_far(done: int, total: int) -> str:
    """3.1 of 12.0 GiB"""
    size = total or done
    unit, name = next((u, n) for u, n in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes")) if size >= u or u == 1)
    digits = 0 if unit == 1 else 1
    return f"{done / unit:.{digits}f}" + (f" of {total / unit:.{digits}f}" if total else "") + f" {name}"


def clear(folder: Path | str) -> None:
    """Forgets the last run's words, so that its alarm does not stop the next one."""
    for path in Path(folder, FOLDER).glob("*"):
        if path.name in ("stalled", MOVES, WAITS) or path.suffix in (".beat", ".stacks", ".json", ".part"):
            path.unlink()
