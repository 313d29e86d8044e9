"""Figures that stand in each other's place: two of one row, or those of two rows.

    in_row(row, broken, kept)            exchanges within the row after which all its relations hold
    between_rows(suspects)               favours what two rows each need of the other
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from seatrial.notes.lint.columns.broken import Broken, Kept, is_part
from seatrial.notes.lint.columns.peers import like_peers
from seatrial.notes.lint.columns.points import ABOVE, ANOTHER_RELATION, Repair
from seatrial.notes.lint.columns.relations import MEASURES, is_measure, off_by
from seatrial.notes.lint.digits import Printed
from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.row import Row
from seatrial.tables.headings import older

Suspects = dict[Row, tuple[list[Broken], list[Repair]]]
"""Row -> what it breaks, and what would mend it."""
IN_ROW, NARROW = 3.0, 0.03
"""Two figures of the row exchanged, where all relations then hold, and within how much they do at most."""
COUNTS = ("gpus", "nodes", "dp", "tp", "pp", "mbs", "ga", "gbs")
EXCHANGED = 5.0
"""Another row has it, and this row's in its place."""


def in_row(row: Row, broken: list[Broken], kept: list[Kept]) -> Iterator[Repair]:
    """Two figures of the row after whose exchange all agrees: a time and a rate, or a measure before a change and after it."""
    headings = [*row.record.printed]
    worked = [name for relation, _, _ in broken for name in relation.measures if name[:1] == EXTRA]
    names = {name: headings.index(heading)
             for name in dict.fromkeys((*MEASURES, *(EXTRA + heading for heading in older(tuple(headings))), *worked))
             if (heading := row.column(name)) in row.record.printed}  # fmt: skip
    values: dict[str, object]
    whole = [name for name in COUNTS if isinstance(row.said(name), int) and row.column(name) in row.record.printed]
    for one, other in itertools.combinations(whole, 2):
        if abs(headings.index(row.column(one)) - headings.index(row.column(other))) != 1 or row.said(one) == row.said(other):
            continue
        columns = [{mate.said(name) for mate in row.around if mate is not row} for name in (one, other)]
        if {row.said(other) in columns[0], row.said(one) in columns[1]} != {True} or row.said(one) in columns[0]:
            continue  # each is one of the other's column
        values = {one: row.said(other), other: row.said(one)}
        found = [off_by(row, relation, rule, values) for relation, rule in [*((r, rule) for r, rule, _ in broken), *kept]]
        if all(each is not None and abs(each[0]) <= each[1] + 0.002 for each in found):
            score = IN_ROW + ANOTHER_RELATION * len(broken) + ABOVE
            yield Repair(name=one, value=values[one], shown=str(values[one]), score=score,
                         why=f" (exchanged with {row.column(other)})")  # fmt: skip
    for one, other in itertools.combinations(names, 2):
        mine, its = row.printed(one), row.printed(other)
        if mine is None or its is None or not any(is_part(one, r) or is_part(other, r) for r, _, _ in broken):
            continue
        values = {one: mine.meant(its.shown(its.value)), other: its.meant(mine.shown(mine.value))}
        found = [off_by(row, relation, rule, values) for relation, rule in [*((r, rule) for r, rule, _ in broken), *kept]]
        if all(each is not None and abs(each[0]) <= min(each[1], NARROW) + 0.002 for each in found):
            beside = abs(names[one] - names[other]) == 1
            score = IN_ROW + ANOTHER_RELATION * (len(broken) - 1) + (ABOVE if beside else 0.0)
            for name, was in ((one, mine.value), (other, its.value)):
                score += like_peers(row, name, was, float(values[name]))  # type: ignore[arg-type]
            yield Repair(name=one, value=values[one], shown=row.cell(other), score=score, other=other,
                         why=f" (exchanged with {row.column(other)})")  # fmt: skip


def between_rows(suspects: Suspects) -> None:
    """Two rows each of which needs what the other has."""
    needs: dict[str, dict[Row, Repair]] = {}
    for row, (_, repairs) in suspects.items():
        for repair in repairs:
            if is_measure(repair.name) and row.printed(repair.name) is not None:
                needs.setdefault(repair.name, {}).setdefault(row, repair)
    for name, firsts in needs.items():
        each = [(row, repair, figure) for row, repair in firsts.items() if (figure := row.printed(name)) is not None]
        for at, (row, _, mine) in enumerate(each):
            repairs = suspects[row][1]
            for i, repair in enumerate(repairs):
                # Of a log with hundreds of such rows those that stand near.
                for other, back, its in each[max(0, at - _NEAR) : at + _NEAR] if repair.name == name else ():
                    near = other is not row and _near(repair.value, its) and _near(back.value, mine)
                    if near or other is not row and _mend_each_other((row, mine), (other, its), name, suspects):
                        why = f" (exchanged with {other.where})"
                        repairs[i] = replace(repair, score=repair.score + EXCHANGED, shown=other.cell(name), why=why,
                                             ground="exchange")  # fmt: skip


_NEAR, ENOUGH = 150, 0.02
"""How many of them, and within how much figures that are means may agree then."""


def _mend_each_other(one: tuple[Row, Printed], other: tuple[Row, Printed], name: str, suspects: Suspects) -> bool:
    """Whether all that either row breaks holds with what stands in the other one."""
    if abs(math.log(one[1].value / other[1].value)) < 4 * ENOUGH:
        return False
    tried = [off_by(row, relation, rule, {name: its.value}) for (row, _), (_, its) in ((one, other), (other, one))
             for relation, rule, _ in suspects[row][0]]  # fmt: skip
    return all(found is not None and abs(found[0]) <= max(found[1], ENOUGH) for found in tried)


def _near(value: object, figure: Printed) -> bool:
    return abs(float(value) / figure.value - 1) < 0.006 + figure.slack  # type: ignore[arg-type]
