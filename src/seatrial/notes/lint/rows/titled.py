"""A cell that the name of its run denies, in a table whose other names keep to their rows: see `titles`.

    check(sheet)          findings

A name is made before a run and copied from the one before it, so that either may be wrong: the cell is where the other cells,
exchanged or mended, then belong together.
"""
from __future__ import annotations

from seatrial.notes.lint.columns.broken import CLOSELY, broken_and_kept
from seatrial.notes.lint.columns.relations import off_by
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.titles import MOST_ASKED, said


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        for row in mates[:MOST_ASKED] if mates[0].tabular and mates[0].worded else ():
            denied = {field: count for field, count in said(row).items()
                      if getattr(row.record, field) not in (None, count)}  # fmt: skip
            if len(denied) != 1 or row.settled or denied.keys() & row.reasons.keys():
                continue
            found += [finding] if (finding := _judged(row, *denied.popitem())) is not None else []
    return found


def _judged(row: Row, field: str, count: int) -> Finding | None:
    record, printed = row.record, getattr(row.record, field)
    # As many devices with two sides exchanged: each stands in the other's place.
    sides = [name for name in ("dp", "tp", "pp", "cp") if row.cell(name) and getattr(record, name)]
    other = next((name for name in sides if name != field and getattr(record, name) == count), "") if field in sides else ""
    heading = row.column(field)
    message = f"{heading} {row.cell(field)} -> {count}: the name of the run says {count}, as those of the other rows have it"
    if other and count != printed:
        message = (f"{heading} {row.cell(field)} and {row.column(other)} {row.cell(other)} stand in each other's place: the "
                   f"name of the run says {heading} {count}")
        row.propose(field, count, "header-vs-row")
        row.propose(other, printed, "header-vs-row")
        return row.find("cells-shifted", "error", message, name=field, proposed=str(count))
    broken, kept = broken_and_kept(row)
    rules = [*((relation, rule) for relation, rule, _ in broken), *kept]
    tried = [off_by(row, relation, rule, {field: count}) for relation, rule in rules]
    after = sum(abs(off[0]) > off[1] + CLOSELY for off in tried if off is not None)
    if after > len(broken):
        return None  # the name is older than the row
    if after < len(broken):
        row.propose(field, count, "header-vs-row")
    return row.find("header-vs-row", "error" if after < len(broken) else "warning", message, name=field, proposed=str(count))
