"""What an engine's adapter does: checks a trial, says what to start, reads what it left.

    adapter.check(trial, recipe, here=True)       raises BadInput; nothing has been written then
    adapter.argv(trial, recipe, run_dir)          what a rank, or a node, starts
    adapter.events(run_dir)                         as our engine writes them, whoever did
    adapter.status_of(run_dir)                      of one that ended without a word

Where it runs is the launcher's business: an adapter knows nothing of this machine's GPUs, and of its files only `here`.
"""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from seatrial.engine.watch import events

if TYPE_CHECKING:
    from seatrial.recipe import Recipe
    from seatrial.record import Status
    from seatrial.spec import Trial

Event = dict[str, Any]
Per = Literal["rank", "node"]
RUN, LOGS = "run.json", "logs"
"""In the run folder: what was asked, and what each process printed, `*.log`."""


class Adapter(Protocol):
    """Explicit subclasses inherit how a program is read that writes events.jsonl as ours does."""

    def per(self, trial: Trial) -> Per:
        """Whether it is started once per rank, or once per node because it starts the ranks itself (torchrun)."""
        return "rank"

    says_end: bool = False
    """Whether its ranks beat, and say in their last one that they are done; see `engine.watch.heartbeat`."""

    def device(self, trial: Trial) -> str:
        """`cpu`, `cuda` or `auto`, for the launcher's check; empty where only the program knows."""
        return ""

    def check(self, trial: Trial, recipe: Recipe, *, here: bool) -> None:
        """Raises BadInput for what cannot run anywhere; `here`: and for files that are not on this machine."""

    def argv(self, trial: Trial, recipe: Recipe, run_dir: Path) -> tuple[str, ...]:
        """The program and its arguments, its configuration file written; run.json lies in the run folder already."""

    def events(self, run_dir: Path) -> list[Event]:
        """Of all ranks in the order of their time."""
        return read_events(run_dir)

    def ended(self, events: list[Event]) -> bool:
        """Whether a program that left with exit code 0 came to its end."""
        return any(e["event"] == "end" for e in events)

    def status_of(self, run_dir: Path) -> Status:
        """The outcome of one that ended without an event that says why."""
        return "crash"


def read_events(run_dir: Path) -> list[Event]:
    paths = [run_dir / events.FILE_NAME, *sorted(run_dir.glob("events.rank*.jsonl"))]
    found = [event for path in paths if path.exists() for event in events.read_events(path)]
    return sorted((e for e in found if isinstance(e.get("event"), str)), key=_time)


def _time(event: Event) -> float:
    time = event.get("time", 0.0)
    return time if isinstance(time, int | float) else 0.0
