"""Columns that follow from others: aggregate PetaFLOPs, samples and tokens a second.

Those who keep such tables divide by 1000 or by 1024, count nodes or processes, round or cut off; only what no such habit gives
is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.lint.digits import overlap
from seatrial.lint.finding import Finding
from seatrial.lint.view import Row, Sheet


@dataclass(frozen=True)
class Habit:
    divisor: float
    each: str
    """Per what the TFLOPs are multiplied: process or node."""
    cut: bool

    def __str__(self) -> str:
        return f"/ {self.divisor:g}, times {self.each}" + (", digits cut off" if self.cut else "")


HABITS = tuple(
    Habit(divisor, each, cut) for cut in (False, True) for divisor in (1000.0, 1024.0) for each in ("processes", "nodes")
)


def aggregate_fits(row: Row, tflops: float, habits: tuple[Habit, ...] = HABITS, *, slack: float | None = None) -> Habit | None:
    """The first habit that gives the printed aggregate."""
    shown, figure, world = row.printed("aggr_pflops"), row.printed("tflops"), row.world
    if shown is None or not world:
        return None
    half = slack if slack is not None else (figure.unit / 2 if figure else 0.0)
    for habit in habits:
        count = world if habit.each == "processes" else world / (row.procs or 1)
        bounds = ((tflops - half) * count / habit.divisor, (tflops + half) * count / habit.divisor)
        if overlap(bounds, shown.truncated if habit.cut else shown.rounded):
            return habit
    return None


def rate_fits(row: Row, name: str, sec: tuple[float, float]) -> bool | None:
    """Whether samples or tokens a second follow from the batch and a range of times."""
    shown, gbs = row.printed(name), row.get("gbs")
    if shown is None or not gbs or sec[0] <= 0:
        return None
    seq = row.get("seq") if name == "tokens_per_s" else 1
    if not seq:
        return None
    rates = [(gbs * seq / sec[1] / share, gbs * seq / sec[0] / share) for share in (1, row.world or 1, row.counted or 1)]
    return any(overlap(rate, shown.rounded) or overlap(rate, shown.truncated) for rate in rates)


def vote(row: Row, name: str, value: float) -> bool | None:
    """What the derived columns say to a corrected time or TFLOPs; None when there are none or they accept both."""
    figure = row.printed(name)
    if figure is None:
        return None
    if name == "tflops":
        shown = row.printed("aggr_pflops")
        if shown is None or shown.value <= 0:
            return None
        after, before = aggregate_fits(row, value, slack=0.0), aggregate_fits(row, figure.value)
        return None if (after is None) == (before is None) else after is not None
    votes = []
    for rate in ("samples_per_s", "tokens_per_s"):
        after_fits = rate_fits(row, rate, (value * (1 - figure.slack), value * (1 + figure.slack)))
        before_fits = rate_fits(row, rate, figure.rounded)
        if after_fits is not None and after_fits != before_fits:
            votes.append(after_fits)
    return votes[0] if votes else None


def check(sheet: Sheet) -> list[Finding]:
    return [finding for mates in sheet.tables.values() for finding in [*_aggregates(mates), *_rates(mates)]]


def _aggregates(mates: list[Row]) -> Iterator[Finding]:
    rows = [
        row
        for row in mates
        if (shown := row.printed("aggr_pflops")) is not None and shown.value > 0 and row.record.tflops and row.world
    ]
    told: set[float] = set()
    for row in rows:
        assert row.record.tflops is not None
        tflops = (
            row.get("tflops") if "tflops" in row.fixed and row.reasons["tflops"] == "tflops-mismatch" else row.record.tflops
        )
        habit = aggregate_fits(row, tflops or row.record.tflops)
        shown = row.printed("aggr_pflops")
        assert shown is not None
        if habit is None:
            count = row.world or 1
            exact = row.record.tflops * count / 1000
            off = shown.value / exact - 1
            said = (
                f"{row.record.tflops:g} TFLOPs x {count} = {exact:.4g} PetaFLOPs ({exact * 1000 / 1024:.4g} by 1024), "
                f"printed {shown.value:g} ({off:+.0%})"
            )
            yield row.find(
                "aggregate", "error" if abs(off) > 0.1 else "warning", said, name="aggr_pflops", proposed=shown.like(exact)
            )
        elif (
            habit.cut
            or habit.divisor == 1024
            and 1024 not in told
            and aggregate_fits(row, row.record.tflops, HABITS[:2]) is None
        ):
            told.add(habit.divisor)
            yield row.find("aggregate", "info", f"{row.record.tflops:g} TFLOPs x {row.world} {habit}", name="aggr_pflops")


def _rates(mates: list[Row]) -> Iterator[Finding]:
    for row in mates:
        sec = row.printed("sec_per_it")
        seconds = row.get("sec_per_it")
        if sec is None or not seconds:
            continue
        for name in ("samples_per_s", "tokens_per_s"):
            if (
                name in row.record.inferred
                or rate_fits(row, name, (seconds * (1 - sec.slack), seconds * (1 + sec.slack))) is not False
            ):
                continue
            shown, gbs = row.printed(name), row.get("gbs") or 0
            assert shown is not None
            rate = gbs / seconds * ((row.get("seq") or 1) if name == "tokens_per_s" else 1)
            if abs(shown.value / rate - 1) > 0.005:
                yield row.find(
                    "rate-mismatch",
                    "warning",
                    f"{gbs:g} / {seconds:g} s = {rate:.5g} a second, printed {shown.value:g} ({shown.value / rate - 1:+.1%})",
                    name=name,
                    proposed=shown.like(rate),
                )
