"""How fast a device is by one figure of a row, against the other rows: ten times as fast is a slip, whatever the layout.

    check(sheet)                         findings on figures that nothing else in their row tells

Tokens of all devices, times and samples are turned into tokens of one device; of several models they are weighed by their
sizes, of several devices by their peaks. What a slip of the hand, a unit or the devices of a node turn into the speed of the
others is proposed.
"""
from __future__ import annotations

import bisect
import math
import re
import statistics
from collections.abc import Iterator

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint import digits
from seatrial.notes.lint.columns.broken import broken_and_kept
from seatrial.notes.lint.columns.derived import RATES, rate_fits
from seatrial.notes.lint.digits import Printed
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet

NAMES = ("sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "tflops", "mfu", "hfu")
FEWEST, MOST_ROWS = 3, 500
FAST, SLOW = math.log(2.5), math.log(6.0)
"""From which factor on a row is doubted: layouts may be slow, but hardly fast beyond all others."""
SPREAD = 1.5
"""Times what the other rows differ by."""
SURE = math.log(4.0)
ABOVE, BELOW = 1.15, 0.8
"""How far beyond the others' speeds a value may lie that is proposed."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        rows = [row for row in mates[:MOST_ROWS] if row.tabular and not row.planned]
        table = _Table(rows)
        if table.uncounted and rows and rows[0].sheet.has_unknown(rows[0].key):
            continue  # what nobody reads may be the number of devices
        there = sheet.filled(mates[0].key)
        # Where nobody says the batch, what nobody reads may be how much is done: sizes of matrices and of messages.
        bare = "sec_per_it" in there and not any(row.record.gbs or row.record.mbs or row.record.size_label for row in rows)
        if bare and table.uncounted and not any(row.seq for row in rows):
            there = there - {"sec_per_it"}  # nor the devices: then it may be the time of anything
        kernels = bare and rows and len([one for one in rows[0].extras if _SIDE.fullmatch(one.strip("`*_ "))]) > 1
        for name in [name for name in NAMES if name in there] if len(rows) > FEWEST and not kernels else ():
            speeds = {row: speed for row in rows if (speed := _speed(row, name, table)) is not None}
            if len(speeds) <= FEWEST:
                continue
            middle, counted = statistics.median(speeds.values()), _counted(speeds, name)
            for row, speed in speeds.items():
                if abs(speed - middle) <= NEAR or row.settled or name in row.reasons or not row.cell(name):
                    continue
                others = [*counted]
                del others[bisect.bisect_left(others, speed)]
                if doubts := [*_doubted(row, name, others, speeds, table)]:
                    found += doubts
                    counted = _counted(speeds, name)
    return found


def _counted(speeds: dict[Row, float], name: str) -> list[float]:
    """The speeds of rows whose figure is in no doubt, the least first."""
    return sorted([speed for row, speed in speeds.items() if name not in row.reasons])


NEAR, ASIDE = 0.5, 1.5
"""From the middle of all rows, the row among them: nearer than this nothing is doubted; and how far beyond the speeds of the
others a point that moved may lead."""


_SIDE = re.compile(r"[mnkbhsd]|bytes|size|message(?: size)?|shape|rows|cols|columns|count", re.IGNORECASE)


class _Table:
    """In what the rows of a table differ."""

    def __init__(self, rows: list[Row]) -> None:
        self.machines = len({row.record.machine for row in rows}) > 1
        self.models = len({row.record.size_label for row in rows}) > 1
        self.batches = len({row.record.gbs is None for row in rows}) == 1
        self.uncounted = all(row.world is None for row in rows)


def _speed(row: Row, name: str, table: _Table) -> float | None:
    """The logarithm of what one device does by a figure; None where the row does not say enough."""
    value, record = row.get(name), row.record
    if not value or value <= 0 or name in record.inferred or name in record.estimated:
        return None
    if name in ("mfu", "hfu"):
        return math.log(value)
    peak = (row.device.peak_tflops.get("bf16") if row.device else None) if table.machines else 1.0
    if peak is None:
        return None
    if name == "tflops":
        return math.log(value / peak)
    size = label_parameters(record.size_label) if table.models else (1.0, 0.0)
    world = row.world or (1 if table.uncounted else None)
    if size is None or not size[0] or not world and name != "tokens_per_s_per_process":
        return None
    if name == "sec_per_it":
        each = (row.seq or 1) * (record.gbs or 1) / value if table.batches else None
    else:
        each = value * (row.seq or 1) if name == "samples_per_s" else value
    devices = 1 if name == "tokens_per_s_per_process" else world
    return math.log(each * size[0] / peak / devices) if each and devices else None


def _exchanged(row: Row, speeds: dict[Row, float], table: _Table) -> Finding | None:
    """A time in the place of a rate and the rate in that of the time: the product is the same, but no other row is like it."""
    time = row.printed("sec_per_it")
    for name in NAMES[1:] if time is not None and not time.inverse else ():
        figure, of_all = row.printed(name), {mate: speed for mate in speeds if (speed := _speed(mate, name, table)) is not None}
        if time is None or figure is None or row not in of_all or len(of_all) <= FEWEST:
            continue
        as_time, as_rate = time.meant(figure.shown(figure.value)), figure.meant(time.shown(time.value))
        if not (as_time > 0 and as_rate > 0):
            continue  # a slip beyond what a float holds
        if any(rate_fits(row, other, time.rounded) for other in RATES if other != name):
            continue  # another rate has the time as it is printed
        there = ((speeds, math.log(time.value / as_time)), (of_all, math.log(as_rate / figure.value)))
        enough = abs(abs(there[0][1]) - abs(speeds[row] - statistics.median(speeds.values()))) <= NEAR
        if any(len({"sec_per_it", name} & {*dict(relation.terms)}) == 1 for relation, *_ in broken_and_kept(row)[1]):
            continue  # as they are printed they belong to the rest of the row
        if not enough or any(_between(row, given, 0.0) or not _between(row, given, moved) for given, moved in there):
            continue
        row.reasons["sec_per_it"] = row.reasons[name] = "swap-twin"
        cells = f"{row.column('sec_per_it')} {row.cell('sec_per_it')} and {row.column(name)} {row.cell(name)}"
        message = f"{cells} are exchanged: no other row is like it, by devices and batch; the product is the same"
        return row.find("swap-twin", "error", message, name="sec_per_it", proposed=row.cell(name))
    return None


def _between(row: Row, speeds: dict[Row, float], moved: float) -> bool:
    """Whether the row is among the speeds of the others when its own is so much more."""
    others = [speed for mate, speed in speeds.items() if mate is not row]
    return min(others) + math.log(BELOW) <= speeds[row] + moved <= max(others) + math.log(ABOVE)


def _doubted(row: Row, name: str, others: list[float], speeds: dict[Row, float], table: _Table) -> Iterator[Finding]:
    """`others`: the speeds of the rows that count, the least first."""
    if len(others) < FEWEST:
        return
    middle = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2
    off = speeds[row] - middle
    if -SLOW < off < FAST:
        return
    away = sorted([abs(other - middle) for other in (*others[:2], *others[-2:])])
    spread = away[-1] if len(others) < 5 else away[-2]  # one of them may be a slip as well
    if abs(off) < SPREAD * spread + 0.7:
        return
    if name == "sec_per_it" and abs(off) > SURE and (exchanged := _exchanged(row, speeds, table)):
        yield exchanged
        return
    if name == "sec_per_it" and row.record.gbs is None:
        usual = statistics.median(mate.get(name) or math.inf for mate in speeds if mate is not row)
        if abs(math.log((row.get(name) or usual) / usual)) < FAST:
            return  # a batch that nobody says may grow with the devices
    if any(name in dict(relation.terms) for relation, _ in broken_and_kept(row)[1]):
        return  # what else the row says agrees with it
    lengths = [mate.seq for mate in speeds if mate is not row and mate.seq]
    if off < 0 and row.seq and lengths and off > -math.log(max(1.0, row.seq / statistics.median(lengths))) - SLOW / 2:
        return  # of a long sequence every token attends to more
    figure = row.printed(name)
    if figure is None:
        return
    sign = -1.0 if name == "sec_per_it" else 1.0
    meant = figure.value * math.exp(-sign * off)
    near = [speed for speed in others if abs(speed - middle) <= spread]
    ends = [figure.value * math.exp(sign * (edge - speeds[row])) for edge in (min(near), max(near))]
    shown, why = _explained(row, name, figure, meant, min(ends) * BELOW, max(ends) * ABOVE)
    known = off > 0 or row.seq is not None or name in ("mfu", "hfu", "tflops")  # a length that nobody says may be a long one
    level: Level = "error" if abs(off) > SURE and (shown or off > 0) and known else "warning"
    times = f"{math.exp(abs(off)):.3g} times as {'fast' if off > 0 else 'slow'} as the other rows, by devices and batch"
    code = "ms-not-s" if shown is not None and why == "milliseconds" else "outlier"
    if shown is not None:
        row.reasons[name] = code
    about = f" -> {shown} ({why})" if shown else f", about {meant:.3g} to be expected"
    message = f"{row.column(name)} {row.cell(name)}{about}: {times}"
    yield row.find(code, level, message, name=name, proposed=shown)


def _explained(row: Row, name: str, figure: Printed, meant: float, low: float, high: float) -> tuple[str | None, str]:
    """What was meant within the speeds of the other rows, and which slip made it what is printed; the likeliest one."""
    node, world = row.procs if row.procs and row.procs > 1 else 8, row.world or 1
    parts = {"seconds": 1e-3, "milliseconds": 1e3} if name == "sec_per_it" else {"in thousands": 1e-3, "not in thousands": 1e3}
    if name != "sec_per_it" and name not in ("mfu", "hfu"):
        whole = name in ("tokens_per_s", "samples_per_s")
        parts |= {"of one process": 1 / world, "of a node": node / world} if whole else {"of a node": node, "of all": world}
    unit = (figure.step or figure.unit) * figure.scale
    moved = {} if figure.inverse else {10.0**places: "the point moved" for places in (1, -1, 2, -2)}
    ways = [(1 / times, what) for what, times in parts.items() if times != 1] + list(moved.items())
    fitting = [(abs(math.log(figure.value * times / meant)), times, what) for times, what in ways
               if low <= figure.value * times <= high]  # fmt: skip
    if fitting:
        _, times, what = min(fitting)
        if what in ("of one process", "of a node", "of all"):
            return figure.like(figure.value * times), what
        return digits.as_printed(figure.shown(figure.value * times), unit * times), what
    # A point that moved explains more than a digit does, of a row that may well be a little slower or faster than the others.
    aside = [times for times, what in moved.items() if low / ASIDE <= figure.value * times <= high * ASIDE]
    fast = (figure.value > meant) != (name == "sec_per_it")  # what is slow may well be so
    if fast and len(aside) == 1 and "." in figure.like(figure.value):
        return digits.as_printed(figure.shown(figure.value * aside[0]), unit * aside[0]), "the point moved"
    ends = figure.span(low, high)
    slip = digits.slip(figure.like(figure.value), ends) if ends[0] > 0 else None
    return (slip.text, slip.how) if slip is not None and slip.how in ("a digit too many", "a digit lost") else (None, "")
