"""What a rank says when it fails: the status, the place and one line, in an event of its own.

    except Exception as error:
        sys.exit(report(error, out=out, rank=3, heartbeat=beat))

The first rank that fails is the cause. What the others then meet (a connection closed by a peer) is marked as a consequence, so
that nobody has to guess it from the words.
"""
from __future__ import annotations

import sys
import traceback
from pathlib import Path

import torch

from seatrial.engine.events import EventWriter, rank_file_name
from seatrial.engine.watch import Heartbeat
from seatrial.errors import EXIT_BAD_INPUT, EXIT_OTHER_OUTCOME, BadInput

_PEER_GONE = ("connection closed by peer", "connection reset by peer", "broken pipe", "connection refused",
              "remote process exited", "socket closed", "connection was likely closed", "timed out waiting",
              "nccl communicator was aborted")


def status_of(error: BaseException) -> str:
    """The outcome's word for an exception."""
    if isinstance(error, BadInput):
        return "invalid"
    if isinstance(error, torch.OutOfMemoryError):
        return "oom_device"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)):
        return "oom_host"
    return "crash"


def is_consequence(error: BaseException) -> bool:
    """Whether it only says that another rank is gone."""
    if isinstance(error, ConnectionError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _PEER_GONE)


def report(error: BaseException, *, out: Path | str | None, rank: int, heartbeat: Heartbeat | None = None) -> int:
    """Writes the event and the traceback; returns the exit code."""
    status = status_of(error)
    where = traceback.extract_tb(error.__traceback__)[-1:] if error.__traceback__ else []
    lines = str(error).strip().splitlines()
    event = {
        "rank": rank, "status": status, "error": type(error).__name__, "message": lines[0] if lines else type(error).__name__,
        "consequence": is_consequence(error), "line": f"{Path(where[0].filename).name}:{where[0].lineno}" if where else "",
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
