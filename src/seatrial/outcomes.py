"""What an outcome's status may be, and what each means for whoever reads one: a row of one table.

    OUTCOMES["hang"].kind                   "failed"; `ok`, or `not run` where nobody learned anything of the trial
    OUTCOMES["oom_host"].short              "oom", the word of a table's Status column
    having("retry")                         ("hang", "crash")
    BY_SCHEDULER["NODE_FAIL"]               "crash"

A new status is a row here and its name in `Status`; then what finds it: `launch/outcome.py`, or a log's words in an importer.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from seatrial.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_OTHER_OUTCOME

Status = Literal["ok", "oom_device", "oom_host", "hang", "crash", "nan", "timeout", "invalid", "cancelled",
                 "not_started", "crowded"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    kind: Literal["ok", "failed", "not run"] = "failed"
    """`failed` is the trial's own doing, and a search avoids its like; `not run` says nothing of others."""
    short: str
    """In a table that has one word for it."""
    timed: bool = False
    """Whether what it measured before counts: it was cut off, and nothing was wrong with it."""
    out_of_memory: bool = False
    retry: bool = False
    """Whether running it again with blocking launches could tell more."""
    rerun: bool = False
    """Whether a resumed sweep runs it again."""
    exit_code: int = EXIT_OTHER_OUTCOME
    """Of `seatrial run`."""
    scheduler: tuple[str, ...] = ()
    """What a batch system says of a job that it ended so itself."""


OUTCOMES: dict[str, Kind] = {
    "ok": Kind(kind="ok", short="ok", timed=True, exit_code=EXIT_GOOD),
    "oom_device": Kind(short="oom", out_of_memory=True),
    "oom_host": Kind(short="oom", out_of_memory=True, scheduler=("OUT_OF_MEMORY",)),
    "hang": Kind(short="hang", retry=True),
    "crash": Kind(short="fail", retry=True, scheduler=("NODE_FAIL", "BOOT_FAIL")),
    "nan": Kind(short="nan"),
    "timeout": Kind(short="timeout", timed=True, scheduler=("TIMEOUT",)),
    "invalid": Kind(kind="not run", short="invalid", exit_code=EXIT_BAD_INPUT),
    "cancelled": Kind(kind="not run", short="cancelled", timed=True, rerun=True,
                      scheduler=("CANCELLED", "PREEMPTED", "REVOKED", "DEADLINE")),
    "not_started": Kind(kind="not run", short="no start", rerun=True),
    "crowded": Kind(kind="not run", short="crowded", timed=True, rerun=True),
}  # fmt: skip
BY_SCHEDULER: dict[str, Status] = {word: status for status in get_args(Status) for word in OUTCOMES[status].scheduler}


def having(flag: str, value: object = True) -> tuple[str, ...]:
    """The statuses whose `flag` is that: `having("retry")`, `having("kind", "failed")`."""
    return tuple(status for status, kind in OUTCOMES.items() if getattr(kind, flag) == value)
