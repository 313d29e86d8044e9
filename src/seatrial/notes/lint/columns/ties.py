"""Of several changes that would each mend a row those that leave standing what else the table says of their cells.

    untied(row, repairs)                 fewer of them, or all

A gain of two columns, the sum in a row below and the rows that share a name speak for the figures as they are printed: a change
that upsets what holds is not the one that is meant.
"""
from __future__ import annotations

import itertools
import math
import statistics

from seatrial.notes.lint import digits
from seatrial.notes.lint.columns.changes import PERCENT, WAYS
from seatrial.notes.lint.columns.points import Repair
from seatrial.notes.lint.columns.relations import off_by, relations_of, rule_of
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row

MOST, OPEN = 8, 0.02
"""Figures of a row between which a gain may be; what its digits leave open beside their own half step, in percent."""
NEARLY, CLOSELY = 0.002, 0.012
FAR = 0.05


def untied(row: Row, repairs: list[Repair]) -> list[Repair]:
    """In the order they come in."""
    for speaks in (_upsets_no_gain, _upsets_no_sum, _as_fast_as_kin, _keeps_closely, _as_its_kind):
        told = [speaks(row, repair) for repair in repairs]
        repairs = [repair for repair, points in zip(repairs, told) if points == max(told)]
    return repairs


def _keeps_closely(row: Row, repair: Repair) -> int:
    """How many relations of the row hold with it whatever its digits leave open: of `2` days half a day."""
    new = {repair.name: repair.value}
    return sum(found is not None and abs(found[0]) <= CLOSELY for relation in relations_of(row)
               if (rule := rule_of(row, relation)) is not None for found in [off_by(row, relation, rule, new)])  # fmt: skip


def _as_fast_as_kin(row: Row, repair: Repair) -> int:
    """Not where a rate is what the other rows of the model have for a device, by what devices can do, and only as printed."""
    if repair.name not in ("tokens_per_s", "tokens_per_s_per_process") or not isinstance(repair.value, float):
        return 1
    own, was = _rate(row, repair.name), row.get(repair.name)
    kin = [rate for mate in row.around if mate is not row and mate.record.size_label == row.record.size_label
           and (rate := _rate(mate, repair.name)) is not None]  # fmt: skip
    if own is None or not was or len(kin) < 2:
        return 1
    middle = statistics.median(kin)
    return int(not abs(own - middle) < math.log(SLOWER) < abs(own + math.log(repair.value / was) - middle) / 2)


SLOWER = 1.6
"""How many times as fast rows of one model may be for what their devices can do."""


def _rate(row: Row, name: str) -> float | None:
    """The logarithm of a rate of one device, over its peak."""
    rate, peak = row.get(name), row.device.peak_tflops.get("bf16") if row.device is not None else None
    world = (row.world or 0) if name == "tokens_per_s" else 1
    return math.log(rate / world / peak) if rate and peak and world else None


def _figures(row: Row) -> dict[str, tuple[float, float]]:
    """Heading -> the figure of its cell, and half a step of its last digit as a share of it."""
    found: dict[str, tuple[float, float]] = {}
    for heading, cell in row.record.printed.items():
        value, shown = digits.alone(cell), digits.plain(cell)
        if value and shown and value > 0 and "%" not in cell and not cell.strip().isalpha():
            found[heading] = value, 0.5 * 10.0 ** -digits.places(cell) / float(shown) if float(shown) else 0.0
    return found


def _upsets_no_gain(row: Row, repair: Repair) -> int:
    """Not where a percentage of the row is what the cell is against another one, and only as it is printed."""
    heading, new = row.column(repair.name), digits.alone(repair.shown)
    figures = _figures(row)
    if heading not in figures or not new or abs(math.log(new / figures[heading][0])) < FAR:
        return 1
    (was, open_), others = figures.pop(heading), list(figures.values())[:MOST]
    gains = [said[2].replace(",", ".") for cell in row.record.printed.values() if (said := PERCENT.fullmatch(cell.strip()))]

    def gives(value: float, gain: str) -> bool:
        half = 0.5 * 10.0 ** -len(gain.partition(".")[2]) + OPEN
        return any(abs(abs(100 * way(*pair)) - float(gain)) <= half + 120 * (open_ + its)
                   for other, its in others if max(value / other, other / value) < 3
                   for way, pair in itertools.product(WAYS.values(), ((value, other), (other, value))))  # fmt: skip

    return int(not any(float(gain) and gives(was, gain) and not gives(new, gain) for gain in gains))


def _upsets_no_sum(row: Row, repair: Repair) -> int:
    """Not where the next row of sums below adds the cell up as it is printed."""
    ends = [mate for mate in row.mates[row.place + 1 :] if is_aggregate(mate)][:1]
    meant = _in(ends[0], row.column(repair.name)) if ends else None
    if not meant:
        return 1
    first = max((mate.place + 1 for mate in row.mates[: row.place] if is_aggregate(mate)), default=0)
    parts = [_in(mate, row.column(repair.name)) for mate in row.mates[first : ends[0].place]]
    return int(None in parts or abs(sum(filter(None, parts)) / meant - 1) >= NEARLY)


def _as_its_kind(row: Row, repair: Repair) -> int:
    """Where all rows that share a word with this one have the new value, and others have not."""
    heading, new = row.column(repair.name), digits.alone(repair.shown)
    around = [mate for mate in row.around if mate is not row]
    for name, cell in row.record.printed.items():
        if any(letter.isalpha() for letter in cell) and not cell.strip()[:1].isdecimal():
            kin = [mate.record.printed.get(name) == cell for mate in around]
            alike, others = ({_in(mate, heading) for mate, its in zip(around, kin) if its is one} for one in (True, False))
            if sum(kin) > 1 and alike == {new} and others - {new}:
                return 1
    return 0


def _in(row: Row, heading: str) -> float | None:
    return digits.alone(row.record.printed.get(heading, ""))
