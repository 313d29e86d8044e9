"""The one cell of a row whose change makes all relations of its table agree.

    check(sheet)                         findings

A wrong cell breaks every relation that it is part of and no other (`relations.py`), so that two broken ones usually tell which
cell it is; where they leave several, what else speaks for a value decides: a slip of the hand, the rest of the column, the row
above, the text.
"""
from __future__ import annotations

import bisect

from seatrial.notes.lint.columns import exchanged
from seatrial.notes.lint.columns.broken import Broken, Kept, broken_and_kept
from seatrial.notes.lint.columns.exchanged import Suspects
from seatrial.notes.lint.columns.habits import counted_otherwise, habits
from seatrial.notes.lint.columns.mending import mended
from seatrial.notes.lint.columns.points import Repair
from seatrial.notes.lint.columns.relations import GRAVE, TERA
from seatrial.notes.lint.columns.verdict import CLEAR, report
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.denied import accumulated_otherwise, either, stated_otherwise

OF_TIME = "TFLOPs and time"


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    rows = [row for row in sheet.rows if row.tabular and not row.fixed and not row.settled]
    judged = {row: both for row in rows if (both := broken_and_kept(row))[0]}
    habitual = habits(judged)
    found += either([finding for mates in sheet.tables.values() for finding in stated_otherwise(mates)])
    found += [finding for mates in sheet.tables.values() for finding in accumulated_otherwise(mates)]
    for mates in sheet.tables.values():
        suspects: Suspects = {}
        for row in mates:
            if row in judged:
                broken, kept = judged[row]
                broken = [each for each in broken if (row, each[0].name) not in habitual]
                if broken and _concerns(row, broken, kept):
                    suspects[row] = mended(row, broken, kept)
        exchanged.between_rows(suspects)
        unmended = _factors(suspects)
        for row, (broken, repairs) in suspects.items():
            if broken and all(counted_otherwise(row, *each) for each in broken) and not any(map(_slipped, repairs)):
                row.settled = True
                continue
            if broken and (repairs or not _of_another_kind(broken, unmended)):
                found += report(row, broken, repairs)
    return found


def _slipped(repair: Repair) -> bool:
    """Whether a slip of the hand explains it, and no habit of counting."""
    return bool(repair.why) and repair.code != "formula-mixed" and repair.score >= CLEAR


def _factors(suspects: Suspects) -> dict[str, list[float]]:
    """Relation -> by what the rows that nothing mends are off, the least first."""
    found: dict[str, list[float]] = {}
    for broken, repairs in suspects.values():
        for name, off in _by_relation(broken).items() if not repairs else ():
            found.setdefault(name, []).append(off)
    return {name: sorted(offs) for name, offs in found.items()}


def _by_relation(broken: list[Broken]) -> dict[str, float]:
    return {relation.name: off for relation, _, off in broken}


def _of_another_kind(broken: list[Broken], unmended: dict[str, list[float]]) -> bool:
    """Whether nothing mends the row and another one is off by the same factor: rows of a model that nobody names."""
    for name, off in _by_relation(broken).items():
        offs = unmended[name]
        at = bisect.bisect_left(offs, off)  # its own, and on either side what is nearest
        if sum(abs(other - off) < 0.01 for other in offs[max(0, at - 1) : at + 2]) > 1:
            return True
    return False


def _concerns(row: Row, broken: list[Broken], kept: list[Kept]) -> bool:
    """Time and TFLOPs alone, with nothing else to tell which of them is wrong, are the question of `throughput`."""
    throughput_can = row.complete and row.reading is not None and row.reading.ratio(row) is not None
    names = {relation.name for relation, _, _ in broken}
    if names == {"the layout"}:
        return False
    # A factor that the rows agree on and the formula does not give is no question of the formula.
    if not throughput_can or any(abs(rule.constant + TERA) > GRAVE for relation, rule, _ in broken if relation.name == OF_TIME):
        return True
    return names != {OF_TIME} or any({"sec_per_it", "tflops"} & {n for n, _ in r.terms} for r, _ in kept)
