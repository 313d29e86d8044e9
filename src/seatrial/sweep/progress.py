"""How a sweep is shown while it runs: a table that is drawn anew on a terminal, plain lines everywhere else.

    listener = listener_for(sys.stderr)         rich on a terminal; else a line for every trial that ends

What the live page shows of it is in `board.py`.
"""
from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from seatrial.outcomes import OUTCOMES
from seatrial.record import Record
from seatrial.sweep.board import best_in_words, time_left_s
from seatrial.sweep.controller import Listener, View
from seatrial.sweep.file import Task
from seatrial.terminal import drawn_on, visible

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

DRAW_EVERY_S = 0.25
LAST_SHOWN = 8


def figures(record: Record) -> str:
    """One row's result in a few words."""
    outcome = record.outcome
    if record.sec_per_it is None or outcome is not None and not OUTCOMES[outcome.status].timed:
        return outcome.message if outcome is not None else ""
    low, high = record.measurement.get("low_s"), record.measurement.get("high_s")
    sure = f" ± {(high - low) / 2 / record.sec_per_it:.1%}" if isinstance(low, float) and isinstance(high, float) else ""
    mark = " (estimated)" if record.state == "estimated" else ""
    tflops = f", {record.tflops:.3g} TFLOPs" if record.tflops is not None else ""
    return f"{record.sec_per_it:.4g} s/it{sure}{mark}{tflops}"


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def summary(view: View) -> str:
    counts: dict[str, int] = {}
    for row in view.rows.values():
        counts[row.status] = counts.get(row.status, 0) + 1
    parts = [f"{len(view.rows)} of {view.total} trials", *(f"{n} {status}" for status, n in sorted(counts.items()))]
    if view.best:
        parts.append(best_in_words(view.best))
    return ", ".join(parts)


class Lines:
    """For logs and pipes."""

    def __init__(self, out: IO[str]):
        self.out = out

    def say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def resumed(self, view: View) -> None:
        if view.rows:
            self.say(f"{len(view.rows)} of {view.total} trials are in the logbook already")

    def started(self, view: View, task: Task) -> None:
        pass

    def finished(self, view: View, task: Task, record: Record) -> None:
        status = record.outcome.status if record.outcome is not None else record.state
        again = f" repeat {task.repeat}" if task.repeat else ""
        self.say(f"[{len(view.rows):{len(str(view.total))}d}/{view.total}] {status:<10} {task.label}{again}: {figures(record)}")

    def waiting(self, view: View) -> None:
        pass


class Screen:
    """For people at a terminal."""

    def __init__(self, live: Live):
        self.live = live
        self.last: list[tuple[str, str, str]] = []
        self._drawn = 0.0

    def resumed(self, view: View) -> None:
        self._draw(view)

    def started(self, view: View, task: Task) -> None:
        self._draw(view)

    def finished(self, view: View, task: Task, record: Record) -> None:
        status = record.outcome.status if record.outcome is not None else record.state
        self.last = [*self.last, (status, task.label, figures(record))][-LAST_SHOWN:]
        self._draw(view)

    def waiting(self, view: View) -> None:
        if time.monotonic() - self._drawn > DRAW_EVERY_S:
            self._draw(view)

    def _draw(self, view: View) -> None:
        self._drawn = time.monotonic()
        self.live.update(table(view, self.last))


def table(view: View, last: list[tuple[str, str, str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    left_s = time_left_s(view)
    title = summary(view) + (f", about {clock(left_s)} left" if left_s is not None and view.running else "")
    drawn = Table(title=Text(title), title_justify="left", expand=True)
    for name in ("outcome", "trial", "result"):
        drawn.add_column(name, no_wrap=name == "outcome", overflow="ellipsis")
    for status, label, text in last:
        drawn.add_row(Text(status, style="green" if status == "ok" else "red"), Text(visible(label)), Text(visible(text)))
    for running in view.running:
        since = clock(time.monotonic() - running.since)
        drawn.add_row(Text("running", style="bold"), Text(visible(running.task.label)), Text(since))
    return drawn


@contextlib.contextmanager
def listener_for(out: IO[str]) -> Iterator[Listener]:
    if not out.isatty():
        yield Lines(out)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=drawn_on(out)), auto_refresh=True, refresh_per_second=4) as live:
        yield Screen(live)
