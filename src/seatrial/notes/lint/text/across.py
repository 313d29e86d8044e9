"""The two rows that a sentence compares where they stand in two tables.

    across(text, claim, its, tables, captions)

    v5p-512 vs v6e-256 (tensor=2): v6e does 1.55x the tokens per second.       each named by a word of its own table
    JEDI (1 Knoten) ist 2,9-mal so schnell wie der beste Booster-Lauf           by the heading above its table
    8 nodes are 1.46 times as fast now.                                         the same row of two tables with one heading
"""
from __future__ import annotations

import re
from collections.abc import Sequence

from seatrial.notes.lint.row import Row
from seatrial.notes.lint.text.claims import Claim, tokens
from seatrial.notes.lint.text.mentions import Mention, mentions
from seatrial.notes.lint.text.sides import BEST, THAN, Sides, fastest, having_all, of_claim

MOST_TABLES = 4
_COUNTED = ("devices", "nodes", "#")
Table = Sequence[Row]


def across(text: str, claim: Claim, its: Sequence[Claim], tables: Sequence[Table], captions: Sequence[str]) -> Sides | None:
    """Of the last table with each one before it, the nearest first."""
    said = [of_claim(text, claim, its, _named(text, rows, caption)) for rows, caption in zip(tables, captions)]
    last = len(tables) - 1
    for at in range(last - 1, max(-1, last - MOST_TABLES), -1):
        pair = _of_two(text, claim, (tables[last], tables[at]), (said[last], said[at]))
        if pair is not None:
            return pair
    return None


def _named(text: str, rows: Table, caption: str) -> list[Mention]:
    """Mentions, and words of the caption or of cells that all rows have."""
    every = frozenset(range(len(rows)))
    letters = text.casefold()
    words = {word for row in rows for cell in row.worded.values() for word in tokens(cell)}
    words = {word for word in words if all(any(word in tokens(cell) for cell in row.worded.values()) for row in rows)}
    words |= {word for word in re.findall(r"[^\W\d_][\w-]{2,}\w", caption) if word not in _PLAIN}
    found = [Mention(match.start(), match.end(), "", word, every) for word in words if word in letters
             for match in re.finditer(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", letters)]  # fmt: skip
    return sorted([*mentions(text, rows), *found], key=lambda one: one.start)


_PLAIN = frozenset("the and for with nodes node gpus gpu tokens step batch speed runs run table results scaling training model "
                   "all throughput time faster times per single more same setup hours cost tests measured".split())  # fmt: skip


def _of_two(text: str, claim: Claim, tables: tuple[Table, Table], said: tuple[list[Mention], list[Mention]]) -> Sides | None:
    own = [[one for one in some if one.heading not in _COUNTED and not one.value.isdecimal()
            and not any(one.start < other.end and other.start < one.end for other in others)]
           for some, others in (said, said[::-1])]  # fmt: skip
    if own[0] and own[1]:
        sides = [_rows(text, rows, some, its) for rows, some, its in zip(tables, said, own)]
        if THAN.search(text) is None or any(len(side) != 1 for side in sides):
            return None
        first, second = sides[0][0], sides[1][0]
        before = [max((one.start for one in its if one.start < claim.start), default=-1) for its in own]
        ordered = before[0] != before[1]
        return Sides([(first, second) if before[0] > before[1] else (second, first)], said=True, ordered=ordered)
    if not own[0] and not own[1] and [*tables[0][0].record.printed] == [*tables[1][0].record.printed]:
        found = [having_all(some, list(rows)) for some, rows in zip(said, tables)]
        same = [{(one.heading, one.value) for one in some} for some in said]
        if all(len(one) == 1 for one in found) and same[0] == same[1]:
            return Sides([(found[0][0], found[1][0])], said=False)
    return None


def _rows(text: str, rows: Table, some: list[Mention], own: list[Mention]) -> list[Row]:
    left = frozenset.intersection(*(one.rows for one in own))
    for one in some:
        left = left & one.rows or left
    found = [rows[at] for at in sorted(left)]
    return fastest(found) if len(found) > 1 and BEST.search(text) else found
