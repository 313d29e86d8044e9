"""What an engine's adapter does: checks a trial, says what to start, reads what it left.

    adapter.can_run(trial)                        raises Infeasible, by the rules of all engines and by its own
    adapter.check(trial, recipe, here=True)       raises BadInput; nothing has been written then
    adapter.argv(trial, recipe, run_dir)          what a rank, or a node, starts
    adapter.events(run_dir)                         as our engine writes them, whoever did
    adapter.status_of(run_dir)                      of one that ended without a word
    adapter.differs(trial, run_dir)                 what it says that it applied, where that is not what was asked

Where it runs is the launcher's business: an adapter knows nothing of this machine's GPUs, and of its files only `here`.
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from seatrial.engine.watch import events
from seatrial.files import write_whole

if TYPE_CHECKING:
    from seatrial.recipe import Recipe
    from seatrial.record import Status
    from seatrial.spec import Trial

Event = dict[str, Any]
Per = Literal["rank", "node"]
OF_ITERATION = ("event", "step", "sec", "loss", "grad_norm", "gbs", "skipped", "loss_scale", "nan_ranks", "timers",
                "attended_pairs", "balance")
RUN, LOGS = "run.json", "logs"
"""In the run folder: what was asked, and what each process printed, `*.log`."""


class Adapter(Protocol):
    """Explicit subclasses inherit how a program is read that writes events.jsonl as ours does."""

    def per(self, trial: Trial) -> Per:
        """Whether it is started once per rank, or once per node because it starts the ranks itself (torchrun)."""
        return "rank"

    says_end: bool = False
    """Whether its ranks beat, and say in their last one that they are done; see `engine.watch.heartbeat`."""

    def speaks(self, trial: Trial) -> int:
        """The rank whose log has the steps."""
        return 0

    def device(self, trial: Trial) -> str:
        """`cpu`, `cuda` or `auto`, for the launcher's check; empty where only the program knows."""
        return ""

    def needs_gpu(self, trial: Trial) -> str:
        """What of it no CPU can run, in words; nothing where a CPU can."""
        return ""

    def can_run(self, trial: Trial) -> None:
        """Raises Infeasible for a layout that no engine, or this one, can run."""
        from seatrial import rules

        rules.check(trial)

    def check(self, trial: Trial, recipe: Recipe, *, here: bool) -> None:
        """Raises BadInput for what cannot run anywhere; `here`: and for files that are not on this machine."""

    def argv(self, trial: Trial, recipe: Recipe, run_dir: Path) -> tuple[str, ...]:
        """The program and its arguments, its configuration file written; run.json lies in the run folder already."""

    def events(self, run_dir: Path, *, after: int = 0) -> list[Event]:
        """Of rank 0 in the order in which it wrote them, then what other ranks said, in the order of their time; without what
        the first `after` bytes hold (`said_so_far`), and of each iteration what a measurement needs."""
        return read_events(run_dir, after=after)

    def ended(self, events: list[Event]) -> bool:
        """Whether a program that left with exit code 0 came to its end."""
        return any(e["event"] == "end" for e in events)

    def status_of(self, run_dir: Path) -> Status:
        """The outcome of one that ended without an event that says why."""
        return "crash"

    def differs(self, trial: Trial, run_dir: Path) -> dict[str, tuple[Any, Any]]:
        """Column -> (asked, applied): where what it says of itself is not what was asked for."""
        return {}


def said_so_far(run_dir: Path) -> int:
    """The size of what rank 0 has written: a resumed run goes on behind it, whatever its clock says."""
    try:
        return (run_dir / events.FILE_NAME).stat().st_size
    except OSError:
        return 0


def keep_events(run_dir: Path, found: list[Event]) -> None:
    """As if the program had written them itself, where it did not: what shows a run reads one kind of file."""
    path = run_dir / events.FILE_NAME
    if found and not path.exists():
        write_whole(path, "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in found))


def read_events(run_dir: Path, *, after: int = 0) -> list[Event]:
    """A long run says more than fits into memory: of an iteration only what somebody asks for is kept, and of all reports of
    memory the last one's ranks."""
    found: list[Event] = []
    memory: Event = {}
    main = run_dir / events.FILE_NAME
    for event in events.iter_events(main, after=after) if main.exists() else ():
        kind = event.get("event")
        if kind == "iteration":
            event = {key: event[key] for key in OF_ITERATION if key in event}
            if isinstance(timers := event.get("timers"), dict):
                event["timers"] = {sys.intern(name): value for name, value in timers.items()}
        elif kind == "memory":
            memory.pop("ranks", None)
            memory = event
        if isinstance(kind, str):
            found.append(event)
    others = [event for path in sorted(run_dir.glob("events.rank*.jsonl")) for event in events.iter_events(path)]
    return found + sorted((e for e in others if isinstance(e.get("event"), str)), key=_time)


def _time(event: Event) -> float:
    time = event.get("time", 0.0)
    return time if isinstance(time, int | float) else 0.0
