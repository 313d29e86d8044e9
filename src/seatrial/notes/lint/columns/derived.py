"""Columns that follow from others: aggregate PetaFLOPs, samples and tokens per second, MFU.

Those who keep such tables divide by 1000 or by 1024, count nodes or processes, round or cut off; only what no such habit gives
is wrong.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.notes.labels import bits_of
from seatrial.notes.lint.columns.relations import GRAVE, SMALL, scatters
from seatrial.notes.lint.digits import Printed, overlap
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.exceptions import excepted


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
USUAL = HABITS[:2]
LITTLE, MANY = 0.025, 5
"""From which difference on a rate is another one for certain where few rows, or scattered ones, tell; and how many are many."""
SAME_PEAK, MOST_SHARES = 0.03, 200
RATES = ("samples_per_s", "tokens_per_s", "tokens_per_s_per_process")


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
    """Whether samples or tokens per second follow from the batch and a range of times."""
    shown, gbs = row.printed(name), row.get("gbs")
    if shown is None or not gbs or sec[0] <= 0:
        return None
    seq = row.seq if name.startswith("tokens") else 1
    if not seq:
        return None
    rates = [(gbs * seq / sec[1] / share, gbs * seq / sec[0] / share) for share in (1, row.world or 1, row.counted or 1)]
    return any(overlap(rate, shown.rounded) or overlap(rate, shown.truncated) for rate in rates)


def may_vote(row: Row) -> bool:
    """Whether the row has a column that follows from its time or TFLOPs."""
    return any(getattr(row.record, name) is not None for name in ("mfu", "aggr_pflops", *RATES))


def vote(row: Row, name: str, value: float) -> bool | None:
    """What the derived columns say to a corrected time or TFLOPs; None when there are none or they accept both."""
    figure = row.printed(name)
    if figure is None:
        return None
    if name == "tflops":
        by_mfu = _mfu_vote(row, value)
        shown = row.printed("aggr_pflops")
        if by_mfu is not None or shown is None or shown.value <= 0:
            return by_mfu
        after, before = aggregate_fits(row, value, slack=0.0), aggregate_fits(row, figure.value)
        return None if (after is None) == (before is None) else after is not None
    votes = []
    for rate in RATES:
        after_fits = rate_fits(row, rate, (value * (1 - figure.slack), value * (1 + figure.slack)))
        before_fits = rate_fits(row, rate, figure.rounded)
        if after_fits is not None and after_fits != before_fits:
            votes.append(after_fits)
    return votes[0] if votes else None


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for key, mates in sheet.tables.items():
        there = sheet.filled(key)
        found += [*(_aggregates(mates) if "aggr_pflops" in there else ()),
                  *(_of_other_precision(mates) if {"mfu", "tflops"} <= there and mates[0].record.dtype else ()),
                  *(_rates(mates, [name for name in RATES if name in there]))]  # fmt: skip
    return found


def _of_other_precision(mates: list[Row]) -> Iterator[Finding]:
    """A share of the peak of twice or half the bits, where the other rows of the device and precision are of their own."""
    groups: dict[object, dict[int, list[tuple[Row, float]]]] = {}
    for row in mates[:MOST_SHARES]:
        bits, mfu, tflops = bits_of(row.record.dtype), row.get("mfu"), row.get("tflops")
        if bits and mfu and tflops and row.shows("mfu") and row.shows("tflops") and not {"mfu", "tflops"} & {*row.reasons}:
            groups.setdefault(row.record.machine, {}).setdefault(bits, []).append((row, tflops / mfu))
    for by_bits in groups.values():
        usual = {bits: statistics.median(peak for _, peak in some) for bits, some in by_bits.items()}
        for own, some in by_bits.items():
            odd = [(row, peak) for row, peak in some if abs(peak / usual[own] - 1) > SAME_PEAK]
            row, peak = odd[0] if len(odd) == 1 and len(some) > 2 else (some[0][0], 0.0)
            other = next((of for of, its in usual.items() if of != own and abs(peak / its - 1) <= SAME_PEAK), None)
            shown = row.printed("mfu")
            if other is not None and shown is not None:
                message = (f"{row.cell('mfu')} is of the peak of {other} bits, {peak:.4g}; "
                           f"the other rows of {own} bits divide by {usual[own]:.4g}")  # fmt: skip
                row.reasons["mfu"] = "rate-mismatch"
                meant = shown.like(shown.value * peak / usual[own])
                yield row.find("rate-mismatch", "error", message, name="mfu", proposed=meant)


def _aggregates(mates: list[Row]) -> Iterator[Finding]:
    rows = [
        row
        for row in mates
        if (shown := row.printed("aggr_pflops")) is not None and shown.value > 0 and row.record.tflops and row.world
        and not row.settled
    ]
    reported: set[float] = set()
    # Asked for by few rows, and then of all of them.
    usual_divisor, usual_of_all = functools.cache(lambda: _usual_divisor(rows)), functools.cache(lambda: _usual_of_all(rows))
    kept = functools.cache(lambda: sum(aggregate_fits(mate, mate.record.tflops or 0.0) is not None for mate in rows))
    for row in rows:
        assert row.record.tflops is not None
        corrected = row.get("tflops") if row.reasons.get("tflops") == "tflops-mismatch" else None
        habit = aggregate_fits(row, corrected or row.record.tflops)
        shown = row.printed("aggr_pflops")
        assert shown is not None
        if habit is None:
            count, divisor = row.world or 1, usual_divisor()
            exact = row.record.tflops * count / divisor
            off = shown.value / exact - 1
            work = f"{row.record.tflops:g} TFLOPs x {count} / {divisor:g} = {exact:.4g} PetaFLOPs"
            message = f"{work}, printed {shown.value:g} ({off:+.0%})"
            level: Level = "info" if kept() < max(2, 0.5 * len(rows)) else "error" if abs(off) > 0.1 else "warning"
            yield row.find("aggregate", level, message, name="aggr_pflops", proposed=shown.like(exact))
        elif (divisor := _only(row)) and (usual := usual_of_all()) and divisor != usual:
            exact = row.record.tflops * (row.world or 1) / usual
            message = f"{row.record.tflops:g} TFLOPs x {row.world} / {divisor:g}: the other rows divide by {usual:g}"
            yield row.find("aggregate", "warning", message, name="aggr_pflops", proposed=shown.like(exact))
        elif habit.cut or habit.divisor == 1024 and 1024 not in reported and not aggregate_fits(row, row.record.tflops, USUAL):
            reported.add(habit.divisor)
            yield row.find("aggregate", "info", f"{row.record.tflops:g} TFLOPs x {row.world} {habit}", name="aggr_pflops")


def _only(row: Row) -> float:
    """The one divisor that gives the printed aggregate of all processes; 0 where both do or none."""
    fits = [divisor for divisor in (1000.0, 1024.0)
            if aggregate_fits(row, row.record.tflops or 0.0, (Habit(divisor, "processes", cut=False),))]  # fmt: skip
    return fits[0] if len(fits) == 1 else 0.0


def _usual_of_all(rows: list[Row]) -> float:
    """The divisor that all rows but one or two have, of those that tell."""
    told = [divisor for row in rows if (divisor := _only(row))]
    return next((each for each in (1000.0, 1024.0) if told.count(each) >= max(3, 0.75 * len(told))), 0.0)


def _usual_divisor(rows: list[Row]) -> float:
    """Whether the other rows of the table were divided by 1000 or by 1024."""

    def agreeing(divisor: float) -> int:
        habits = tuple(habit for habit in HABITS if habit.divisor == divisor and not habit.cut)
        return sum(aggregate_fits(row, row.record.tflops or 0.0, habits) is not None for row in rows)

    return max((1000.0, 1024.0), key=agreeing)


def _rates(mates: list[Row], names: list[str]) -> Iterator[Finding]:
    """Rows that break what most rows of the table keep to, each by a factor of its own; `relations` has settled the others."""
    for name in names:
        fitting, off = 0, {}
        for row in mates:
            sec, seconds = row.printed("sec_per_it"), row.get("sec_per_it")
            if sec is None or not seconds or name in row.record.inferred:
                continue
            fits = rate_fits(row, name, (seconds * (1 - sec.slack), seconds * (1 + sec.slack)))
            if fits:
                fitting += 1
            elif fits is False and not row.settled:
                off[row] = _by_rate(row, name, seconds)
        if fitting < 2 or fitting < len(off):
            continue
        # Where more rows than one miss it by a little, or few keep to it, what is little is a mean over other iterations.
        nearly = sum(abs(math.log(shown.value / rate)) < GRAVE for shown, rate in off.values())
        little = LITTLE if nearly > 1 or fitting < MANY else SMALL
        for row, (shown, rate) in off.items():
            ratio = math.log(shown.value / rate)
            shared = any(other is not row and abs(math.log(s.value / r) - ratio) < 0.006 for other, (s, r) in off.items())
            odd = abs(ratio) > (GRAVE if scatters(row) else little) and not shared and row.shows("gbs")
            if odd and not excepted(row, ratio):
                message = f"the batch and the time give {rate:.5g} a second, printed {shown.value:g} ({math.expm1(ratio):+.1%})"
                level: Level = "error" if abs(ratio) > 0.05 else "warning"
                yield row.find("rate-mismatch", level, message, name=name, proposed=shown.like(rate))


def _by_rate(row: Row, name: str, seconds: float) -> tuple[Printed, float]:
    """The printed rate, and what batch and time give."""
    shown, gbs = row.printed(name), row.get("gbs") or 0
    assert shown is not None
    rate = gbs / seconds * ((row.seq or 1) if name.startswith("tokens") else 1)
    return shown, rate / ((row.world or 1) if name == "tokens_per_s_per_process" else 1)


def _peak(rows: list[Row]) -> float | None:
    """The peak that a column of MFU was worked out with, from what most rows agree on."""
    peaks = [row.record.tflops / row.record.mfu for row in rows if row.record.tflops and row.record.mfu]
    if len(peaks) < 3:
        return None
    middle = statistics.median(peaks)
    return middle if sum(abs(peak / middle - 1) < 0.02 for peak in peaks) > len(peaks) / 2 else None


def _mfu_fits(row: Row, tflops: float, peak: float) -> bool:
    mfu, figure = row.printed("mfu"), row.printed("tflops")
    if mfu is None or figure is None:
        return True
    half = figure.unit / 2
    expected = ((tflops - half) / peak, (tflops + half) / peak)
    slack = 0.004 * expected[1]
    return overlap((expected[0] - slack, expected[1] + slack), mfu.rounded) or overlap(expected, mfu.truncated)


def _mfu_vote(row: Row, tflops: float) -> bool | None:
    peak = _peak([mate for mate in row.around if mate is not row])
    if peak is None or not row.record.mfu or not row.record.tflops:
        return None
    after, before = _mfu_fits(row, tflops, peak), _mfu_fits(row, row.record.tflops, peak)
    return None if after == before else after
