"""Counts of a table that go in step: GBS over GPUs, sequence times batch, sequence over CP. What most rows have is a law.

    restored(row, "gbs", 512)            1 where a law holds with the new count that did not with the printed one, -1 where one
                                         breaks that held, 0 else
"""
from __future__ import annotations

import itertools
import math
from collections import Counter

from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.row import Row
from seatrial.notes.read.sound import MOST_COUNTED

COUNTED = ("gpus", "nodes", "dp", "tp", "pp", "cp", "mbs", "gbs", "ga", "seq", "ep", "shard", "replicate")
BESIDE = ("cp", "ga", "ep", "shard", "replicate")
FEWEST, SHARE, MOST = 3, 0.7, 12
"""Rows that keep to a law of two counts, and one more of three, all different; which share; and how many on either side."""
MOST_COLUMNS = 6


def restored(row: Row, name: str, value: int) -> int:
    """By the laws that most rows keep to; one that breaks weighs more than one that is mended."""
    here, columns = _columns(row)
    varying = [other for other, column in columns.items() if other != name and len({*column}) > 1][:MOST_COLUMNS]
    if name not in here or len({*columns[name]}) < 2 or len(columns[name]) < FEWEST:
        return 0
    alone = (other for other, column in columns.items() if {*column} == {column[0]} != {here[other]})
    if any(other in COUNTED and other != name for other in alone):
        return 0  # the only row with another TP, say: what the others keep to need not hold
    own, new = columns[name], math.log2(value)
    best, told = 0.0, 0
    for others in (*itertools.combinations(varying, 1), *itertools.combinations(varying, 2)):
        if len(others) > 1 and told and best == 1.0:
            break  # two columns of all rows tell it
        one, two = columns[others[0]], columns[others[-1]] if len(others) > 1 else [0.0] * len(own)
        known = [(a, b, c) for a, b, c in zip(own, one, two) if a is not None and b is not None and c is not None]
        known = known if len(others) == 1 else [*dict.fromkeys(known)]
        for first, second in ((1, 1), (-1, 1), (1, -1), (-1, -1))[: 2 * len(others)]:
            products = sorted([a + first * b + second * c for a, b, c in known])
            # What most have stands in the middle: where it does not, nothing is to be counted.
            few = len(known) - math.ceil(SHARE * len(known) - 1e-9)
            if not known or products[-1 - few] - products[few] > 2e-6:
                continue
            usual, often = Counter([round(product, 6) for product in products]).most_common(1)[0]
            share = often / len(known) if often >= FEWEST + len(others) - 1 else 0.0
            if share < max(SHARE, best):
                continue
            rest = first * here[others[0]] + (second * here[others[-1]] if len(others) > 1 else 0.0)
            before, after = (round(count + rest, 6) == usual for count in (here[name], new))
            signs = {after - before} | ({told} if share == best else set())
            best, told = share, -1 if -1 in signs else max(signs)
    return told


def _columns(row: Row) -> tuple[dict[str, float], dict[str, list[float | None]]]:
    """The logarithms of the row's counts, and those of the rows around it; several values of each are tried, one by one."""
    kept = row.sheet.in_step
    if kept is None or kept[0] is not row or kept[1] != len(row.fixed):
        around = row.mates[max(0, row.place - MOST) : row.place + MOST]
        mates = [mate for mate in around if mate is not row and not mate.planned]
        names = (*(one for one in COUNTED if one in BESIDE or row.shows(one)), *(EXTRA + other for other in row.extras))
        here = {name: math.log2(count) for name in names if (count := _count(row, name))}
        row.sheet.in_step = kept = row, len(row.fixed), here, {n: [_log(_count(mate, n)) for mate in mates] for n in here}
    return kept[2], kept[3]


def _log(count: int | None) -> float | None:
    return math.log2(count) if count else None


def _count(row: Row, name: str) -> int | None:
    if name in BESIDE:
        return row.beside(name)
    if name[:1] == EXTRA:
        figure = row.figure(name[1:])
        return int(figure) if figure and 0 < figure < MOST_COUNTED and figure == int(figure) else None
    return row.seq if name == "seq" else row.whole(name)
