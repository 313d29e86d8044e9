"""Columns that belong together: a model has its parameters, layers and width, a device its peak and its price, in every row.

    check(sheet)                         findings on rows whose pair of cells no other row has

A row that has the name of one model and the parameters of another is wrong in one of both; which, its figures tell.
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from seatrial.notes.lint.broken import broken_and_kept
from seatrial.notes.lint.digits import slip
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import NUMBER, clean, normal, read_heading

OF_A_MODEL = re.compile(r"\bparams?\b|\bparameters\b|\blayers\b|\bhidden\b|\bd model\b|\bheads\b|\bffn\b|\bvocab")
OF_A_DEVICE = re.compile(r"\bpeak t?flops?|\btdp\b|\bprice\b|\bper (?:gpu )?(?:h|hr|hour)\b|\bgpu h\b")
NAMED = {"size_label": OF_A_MODEL, "machine": OF_A_DEVICE}
_MODEL = frozenset({"model", "model name", "name", "size", "network", "config"})
FEWEST, MOST_ROWS = 2, 500


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        rows = [row for row in mates[:MOST_ROWS] if row.tabular]
        for name, of in _pairs(rows[0]) if len(rows) > 2 * FEWEST else ():
            found += _odd(rows, name, of)
    return found


def _pairs(row: Row) -> Iterator[tuple[str, str]]:
    """A column of names, and one of what each of them has."""
    headings = list(row.record.printed)
    for name in headings:
        words, field = normal(name), read_heading(name).field
        what = NAMED.get("size_label" if words in _MODEL else field if field == "machine" else "")
        for of in headings if what else ():
            if of != name and what is not None and what.search(normal(of)) and read_heading(of).field not in ("tflops", "mfu"):
                yield name, of


def _odd(rows: list[Row], name: str, of: str) -> Iterator[Finding]:
    said = {row: (clean(row.record.printed.get(name, "")), clean(row.record.printed.get(of, ""))) for row in rows}
    said = {row: pair for row, pair in said.items() if pair[0] and NUMBER.match(pair[1])}
    pairs = Counter(said.values())
    usual = {label: max((pair for pair in pairs if pair[0] == label), key=lambda pair: pairs[pair]) for label, _ in pairs}
    odd = [row for row, pair in said.items() if usual[pair[0]] != pair]
    if not odd or len(odd) > max(2, len(said) // 5) or len({pair[1] for pair in usual.values()}) < len(usual):
        return
    for row in odd:
        label, figure = said[row]
        theirs = usual[label][1]
        if pairs[said[row]] > 1 or pairs[usual[label]] < FEWEST or row.settled:
            continue
        other = next((pair[0] for pair in usual.values() if pair[1] == figure), "")
        meant = float(NUMBER.match(theirs)[0].replace(",", ""))  # type: ignore[index]
        typed = slip(figure, (0.999 * meant, 1.001 * meant))
        both = f"{name} {label} has {of} {theirs} in the other rows, not {figure}"
        if not other and typed is None:
            yield row.find("label-vs-params", "warning", both, column=of, printed=figure)
        elif not other or _denied(row, of):
            yield row.find("label-vs-params", "error", both, column=of, printed=figure, proposed=theirs)
        else:
            message = f"{both}, which is that of {other}: the figures of the row are those of {other} too"
            yield row.find("label-vs-params", "error", message, column=name, printed=label, proposed=other)


def _denied(row: Row, of: str) -> bool:
    """Whether the figures of the row are not those of the model that the column `of` makes it."""
    broken, _ = broken_and_kept(row)
    return bool(broken) == (read_heading(of).field == "size_label")
