"""Counts of a table that go in step: GBS over GPUs, sequence times batch, sequence over CP. What most rows have is a law.

    restored(row, "gbs", 512)            1 where a law holds with the new count that did not with the printed one, -1 where one
                                         breaks that held, 0 else
"""
from __future__ import annotations

import itertools
import math
import operator
from collections import Counter
from collections.abc import Iterator

from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.row import Row
from seatrial.notes.read.sound import MOST_COUNTED

COUNTED = ("gpus", "nodes", "dp", "tp", "pp", "cp", "mbs", "gbs", "ga", "seq", "ep", "shard", "replicate")
BESIDE = ("cp", "ga", "ep", "shard", "replicate")
FEWEST, SHARE, MOST = 3, 0.7, 12
"""Rows that keep to a law of two counts, and one more of three, all different; which share; and how many on either side."""
MOST_COLUMNS = 6
Columns = dict[str, list[float | None]]
"""Count -> its logarithm in each row."""
Law = tuple[dict[str, int], float, float]
"""The powers of counts, the logarithm that their product has in most rows, and in which share of them."""


def restored(row: Row, name: str, value: int) -> int:
    """By the laws that most rows keep to; one that breaks weighs more than one that is mended."""
    here, columns, laws = _columns(row)
    if name not in here or len({*columns[name]}) < 2 or len(columns[name]) < FEWEST:
        return 0
    varying = [other for other, column in columns.items() if other != name and len({*column}) > 1][:MOST_COLUMNS]
    alone = (other for other, column in columns.items() if {*column} == {column[0]} != {here[other]})
    if any(other in COUNTED and other != name for other in alone):
        return 0  # the only row with another TP, say: what the others keep to need not hold
    new = math.log2(value)
    best, told = 0.0, 0
    for others in (*itertools.combinations(varying, 1), *itertools.combinations(varying, 2)):
        if len(others) > 1 and told and best == 1.0:
            break  # two columns of all rows tell it
        group = frozenset((name, *others))
        if group not in laws:
            laws[group] = [*_laws({one: columns[one] for one in columns if one in group})]
        for powers, usual, share in laws[group]:
            if share < best:
                continue
            rest = sum(powers[other] * here[other] for other in others)
            before, after = (round(powers[name] * count + rest, 6) == usual for count in (here[name], new))
            signs = {after - before} | ({told} if share == best else set())
            best, told = share, -1 if -1 in signs else max(signs)
    return told


def _laws(columns: Columns) -> Iterator[Law]:
    """What the products of two or three counts are in most rows."""
    names = [*columns]
    known = [each for each in zip(*columns.values()) if None not in each]
    known = known if len(names) == 2 else [*dict.fromkeys(known)]
    fewest = FEWEST + len(names) - 2
    if len(known) < fewest:
        return
    own, one, *two = zip(*known)
    # What most have stands in the middle: where it does not, nothing is to be counted.
    few = len(known) - math.ceil(SHARE * len(known) - 1e-9)
    for last, both in _SIGNS.items() if two else ((1, None),):
        rest = one if both is None else [*map(both, one, *two)]
        for sign, way in _SIGNS.items():
            products = sorted(map(way, own, rest))
            if products[-1 - few] - products[few] > 2e-6:
                continue
            usual, often = Counter([round(product, 6) for product in products]).most_common(1)[0]
            if often >= fewest and often / len(known) >= SHARE:
                yield dict(zip(names, (1, sign, sign * last))), usual, often / len(known)


_SIGNS = {1: operator.add, -1: operator.sub}


def _columns(row: Row) -> tuple[dict[str, float], Columns, dict[frozenset[str], list[Law]]]:
    """The logarithms of the row's counts, and those of the rows around it; several values of each are tried, one by one."""
    kept = row.sheet.in_step
    if kept is None or kept[0] is not row or kept[1] != len(row.fixed):
        around = row.mates[max(0, row.place - MOST) : row.place + MOST]
        mates = [mate for mate in around if mate is not row and not mate.planned]
        names = (*(one for one in COUNTED if one in BESIDE or row.shows(one)), *(EXTRA + other for other in row.extras))
        here = {name: math.log2(count) for name in names if (count := _count(row, name))}
        row.sheet.in_step = kept = row, len(row.fixed), here, {n: [_log(_count(mate, n)) for mate in mates] for n in here}, {}
    return kept[2:]


def _log(count: int | None) -> float | None:
    return math.log2(count) if count else None


def _count(row: Row, name: str) -> int | None:
    if name in BESIDE:
        return row.beside(name)
    if name[:1] == EXTRA:
        figure = row.figure(name[1:])
        return int(figure) if figure and 0 < figure < MOST_COUNTED and figure == int(figure) else None
    return row.seq if name == "seq" else row.whole(name)
