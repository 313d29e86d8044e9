"""Counts of a table that go in step: GBS over GPUs, sequence times batch, sequence over CP. What most rows have is a law.

    restored(row, "gbs", 512)            1 where a law holds with the new count that did not with the printed one, -1 where one
                                         breaks that held, 0 else
"""
from __future__ import annotations

import itertools
import math

from seatrial.notes.lint.sheet import EXTRA, Row, extras, mode

COUNTED = ("gpus", "nodes", "dp", "tp", "pp", "cp", "mbs", "gbs", "ga", "seq", "ep", "shard", "replicate")
BESIDE = ("cp", "ga", "ep", "shard", "replicate")
FEWEST, SHARE, MOST = 3, 0.7, 40
"""Rows that keep to a law of two counts, and one more of three, all different; which share; and how many are looked at."""
MOST_COLUMNS = 6


def restored(row: Row, name: str, value: int) -> int:
    """By the laws that most rows keep to; one that breaks weighs more than one that is mended."""
    mates = [mate for mate in row.mates[max(0, row.place - MOST) : row.place + MOST] if mate is not row and not mate.planned]
    names = (*(other for other in COUNTED if other in BESIDE or row.shows(other)), *(EXTRA + other for other in extras(row)))
    here = {other: count for other in names if (count := _count(row, other))}
    columns = {other: [_count(mate, other) for mate in mates] for other in here}
    varying = [other for other, column in columns.items() if other != name and len({*column}) > 1][:MOST_COLUMNS]
    if name not in here or len({*columns[name]}) < 2 or len(mates) < FEWEST:
        return 0
    alone = (other for other, column in columns.items() if {*column} == {column[0]} != {here[other]})
    if any(other in COUNTED and other != name for other in alone):
        return 0  # the only row with another TP, say: what the others keep to need not hold
    best, told = 0.0, 0
    for others in (*itertools.combinations(varying, 1), *itertools.combinations(varying, 2)):
        for signs in itertools.product((1, -1), repeat=len(others)):
            rows = zip(columns[name], *(columns[other] for other in others))
            told_by = [counts for counts in rows if None not in counts]
            told_by = told_by if len(others) == 1 else [*dict.fromkeys(told_by)]
            usual, often = mode(_product(counts, signs) for counts in told_by)
            share = often / len(told_by) if often >= FEWEST + len(others) - 1 else 0.0
            if share < max(SHARE, best):
                continue
            there = [here[other] for other in others]
            before, after = (_product((count, *there), signs) == usual for count in (here[name], value))
            signs_of = {after - before} | ({told} if share == best else set())
            best, told = share, -1 if -1 in signs_of else max(signs_of)
    return told


def _product(counts: tuple[int | None, ...], signs: tuple[int, ...]) -> float:
    """Of the first count and the others, each as a factor or below the line."""
    first, *rest = counts
    return round(float(first or 0) * math.prod(float(count or 1) ** sign for count, sign in zip(rest, signs)), 9)


def _count(row: Row, name: str) -> int | None:
    if name in BESIDE:
        return row.beside(name)
    if name[:1] == EXTRA:
        figure = row.figure(name[1:])
        return int(figure) if figure and figure == int(figure) else None
    return row.seq if name == "seq" else row.whole(name)
