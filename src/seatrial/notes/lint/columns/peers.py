"""Whether a new value looks more like those of the rows around than the printed one does: above 0 where it does."""
from __future__ import annotations

import math
import statistics

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint.columns.points import ABOVE
from seatrial.notes.lint.columns.relations import of_devices
from seatrial.notes.lint.row import Row

SPEEDS = ("tflops", "tokens_per_s_per_process", "mfu", "hfu")
"""What hardly differs from row to row."""
ALIKE = 1.5
"""Within which two others have to be for a third one to be far from them."""
BEYOND = 1.15
"""What lies so far beyond two others is."""


def like_peers(row: Row, name: str, was: float, value: float) -> float:
    """Above 0 when a figure looks more like those of rows on as many devices with the same batch and model."""
    record = row.record
    peers = [float(figure) for mate in row.around if mate is not row and mate.world == row.world
             and (mate.record.gbs, mate.record.size_label) == (record.gbs, record.size_label)
             and (figure := mate.said(name))]  # fmt: skip
    if len(peers) < 2:
        return 0.0
    middle = math.log(statistics.median(peers))
    nearer = abs(math.log(was) - middle) - abs(math.log(value) - middle)
    return ABOVE / 2 * ((nearer > 0.03) - (nearer < -0.03))


def leaning(row: Row, name: str, was: float, value: float, other: dict[str, object] | None = None) -> float:
    """Above 0 when the new value looks more like those of the rows around, of the same model where there are some; `other`:
    where a count is what is new."""
    mates = [mate for mate in row.around if mate is not row and not mate.planned]
    mates = [mate for mate in mates if mate.record.size_label == row.record.size_label] or mates
    alike = [mate for mate in mates if mate.record.machine == row.record.machine and mate.devices == row.devices]
    mates = alike if len(alike) > 1 else mates
    sized = all(map(_size, (row, *mates)))
    logs = [speed for mate in mates if (speed := _speed(mate, name, sized=sized)) is not None]
    before, after = _speed(row, name, was, sized=sized), _speed(row, name, value, other, sized=sized)
    if len(logs) < 3 - (mates is alike) or before is None or after is None:
        return 0.0
    middle = statistics.median(logs)
    usual = 0.03 + statistics.median(abs(log - middle) for log in logs)
    difference = abs(before - middle) - abs(after - middle)
    return max(-1.5, min(1.5, 0.4 * difference / usual)) if abs(difference) > 0.05 else 0.0


def _speed(row: Row, name: str, value: float | None = None, other: dict[str, object] | None = None, *,
           sized: bool) -> float | None:  # fmt: skip
    """The logarithm of how fast one process is by one of the figures, so that rows of a model can be compared."""
    value = row.get(name) if value is None else value
    if not value or value <= 0:
        return None
    other = other or {}
    world = float(of_devices(row, other) or 1)  # type: ignore[arg-type]
    size = _size(row) if sized else 1.0
    if name == "sec_per_it":
        batch = float(other.get("gbs", row.record.gbs) or 1) * float(other.get("seq", row.seq) or 1)  # type: ignore[arg-type]
        return math.log(size * batch / (value * world))
    of_tokens = name.startswith(("tokens", "samples"))
    return math.log((size if of_tokens else 1.0) * value / (1 if name in SPEEDS else world))


def _size(row: Row) -> float:
    """Parameters by the row's label: a token of twice as many takes twice the time; 0 where nobody says them."""
    return (label_parameters(row.record.size_label) or (0.0,))[0]


def in_line(row: Row, name: str, was: float, value: float) -> float:
    """Above 0 when the new value lies nearer to what the other rows of the column have than the printed one does."""
    column = [figure for mate in row.around if mate is not row and (figure := mate.said(name))]
    low, high = min(column, default=0.0), max(column, default=0.0)  # type: ignore[type-var]
    if len(column) < 2 or len(column) == 2 and high > ALIKE * low:  # type: ignore[operator]
        return 0.0
    beyond = 1.1 if len(column) > 2 else max(BEYOND, 1.1 * high / low)  # type: ignore[operator]

    def stands(figure: float) -> float:
        return 1.0 if low / beyond <= figure <= beyond * high else 0.5 if low / 3 <= figure <= 3 * high else 0.0  # type: ignore[operator]

    return 1.5 * (stands(value) - stands(was))
