"""What a rank says when it fails: the status, the place and one line, in an event of its own.

    except Exception as error:
        sys.exit(report(error, out=out, rank=3, heartbeat=beat))

The first rank that fails is the cause. What the others then meet (a connection closed by a peer) is marked as a consequence, so
that nobody has to guess it from the words.
"""
from __future__ import annotations

import errno
import resource
import sys
import traceback
from pathlib import Path

import torch

from seatrial.engine.watch.events import EventWriter, rank_file_name
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.errors import EXIT_BAD_INPUT, EXIT_OTHER_OUTCOME, BadInput

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
