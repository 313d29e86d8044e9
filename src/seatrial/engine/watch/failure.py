"""What a rank says when it fails: the status, the place and one line, in an event of its own.

    except Exception as error:
        sys.exit(report(error, out=out, rank=3, heartbeat=beat))

The first rank that fails is the cause. What the others then meet (a connection closed by a peer) is marked as a consequence, so
that nobody has to guess it from the words.
"""
from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import torch

from seatrial.engine.watch.events import EventWriter, rank_file_name
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.errors import EXIT_BAD_INPUT, EXIT_OTHER_OUTCOME, BadInput
from seatrial.fields import nearest

FRAMES = 12
"""How many of the innermost lines of a traceback the event keeps."""


def _data_bytes() -> int:
    """What RLIMIT_DATA counts of this process."""
    try:
        with open("/proc/self/status") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:")), 0)
    except OSError:
        return 0


BASE_BYTES = _data_bytes()
"""Of the interpreter and torch, before there is a model."""
_PEER_GONE = ("connection closed by peer", "connection reset by peer", "broken pipe", "connection refused",
              "remote process exited", "socket closed", "connection was likely closed", "timed out waiting",
              "nccl communicator was aborted")

_REFUSED = ("DefaultCPUAllocator", "std::bad_alloc", "Cannot allocate memory")


def status_of(error: BaseException) -> str:
    """The outcome's word for an exception."""
    if isinstance(error, BadInput):
        return "invalid"
    if isinstance(error, torch.OutOfMemoryError):
        return "oom_device"
    if isinstance(error, MemoryError) or isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "oom_host"
    if isinstance(error, RuntimeError) and any(words in str(error) for words in _REFUSED):
        return "oom_host"
    return "crash"


def is_consequence(error: BaseException) -> bool:
    """Whether it only says that another rank is gone."""
    if isinstance(error, ConnectionError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _PEER_GONE)


def memory_now() -> dict[str, int]:
    """Bytes of this process, what it may have at most, and the same of its GPU."""
    cap = resource.getrlimit(resource.RLIMIT_DATA)[0]
    found = {"data_bytes": _data_bytes(), "base_bytes": BASE_BYTES}
    if cap != resource.RLIM_INFINITY:
        found["cap_bytes"] = cap
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        try:
            free, total = torch.cuda.mem_get_info()
            found |= {"device_bytes": total - free, "device_cap_bytes": total, "reserved_bytes": torch.cuda.memory_reserved(),
                      "allocated_bytes": torch.cuda.memory_allocated()}
        except RuntimeError:
            pass  # a broken context tells nothing more
    return found


def report(error: BaseException, *, out: Path | str | None, rank: int, heartbeat: Heartbeat | None = None) -> int:
    """Writes the event and the traceback; returns the exit code."""
    status = status_of(error)
    frames = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    lines = str(error).strip().splitlines()
    event = {
        "rank": rank, "status": status, "error": type(error).__name__, "message": lines[0] if lines else type(error).__name__,
        "consequence": is_consequence(error), "line": frames[-1] if frames else "", "frames": frames[-FRAMES:],
        "memory": memory_now(),
    }  # fmt: skip
    if heartbeat is not None:
        event |= {"step": heartbeat.step, "phase": heartbeat.phase, "microbatch": heartbeat.microbatch,
                  "collective": heartbeat.collective_name, "group": heartbeat.group, "seq": heartbeat.seq}
    if out is not None:
        EventWriter(Path(out) / rank_file_name(rank)).write("failure", **event)
    if status == "invalid":
        print(f"seatrial: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    traceback.print_exception(error)
    return EXIT_OTHER_OUTCOME


# ---- faults on purpose, for tests only: SEATRIAL_FAULT=kind:rank:step makes one rank misbehave at the start of one step


VARIABLE = "SEATRIAL_FAULT"
KINDS = ("stop", "skip", "raise", "nan", "oom", "die")


class InjectedFault(RuntimeError):
    """What `raise` raises: its name tells a test that the failure is the one it asked for."""


@dataclass(kw_only=True)
class Fault:
    kind: str = ""
    """Empty: no fault."""
    rank: int = -1
    step: int = -1
    _due: bool = field(default=False, repr=False)

    @classmethod
    def from_env(cls) -> Fault:
        return cls.parse(os.environ.get(VARIABLE, ""))

    @classmethod
    def parse(cls, text: str) -> Fault:
        if not text:
            return cls()
        kind, *numbers = text.split(":")
        if kind not in KINDS:
            raise BadInput(f"{VARIABLE}={text}: no fault {kind!r}; {nearest(kind, KINDS)}")
        try:
            rank, step = (int(n) for n in numbers)
        except ValueError:
            raise BadInput(f"{VARIABLE}={text}: expected kind:rank:step, for example die:1:3") from None
        return cls(kind=kind, rank=rank, step=step)

    def at(self, rank: int, step: int) -> None:
        """Called at the start of every step."""
        if not self.kind or (rank, step) != (self.rank, self.step):
            return
        if self.kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "raise":
            raise InjectedFault(f"asked to fail on rank {rank} at step {step}")
        elif self.kind == "oom":
            exhaust_memory()
        else:
            self._due = True

    def takes(self, kind: str) -> bool:
        """Whether the fault of this kind is due now; true once."""
        if self._due and self.kind == kind:
            self._due = False
            return True
        return False


def exhaust_memory() -> None:
    """Allocates until the allocator refuses, without harming the rest of the machine."""
    kept = []
    if torch.cuda.is_available():
        while True:
            kept.append(torch.empty(2**30, dtype=torch.uint8, device="cuda"))
    # A CPU node would swap or be shot by the kernel; a limit on the address space makes the same refusal come at once.
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**28, hard))
    try:
        while True:
            kept.append(torch.empty(2**26, dtype=torch.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
