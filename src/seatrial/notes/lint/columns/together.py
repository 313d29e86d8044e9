"""Columns that belong together: a model has its parameters, layers and width, a device its peak and its price, in every row.

    check(sheet)                         findings on rows whose pair of cells no other row has

A row that has the name of one model and the parameters of another is wrong in one of both; which, its figures tell.
"""
from __future__ import annotations

import functools
import operator
import re
from collections import Counter
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.columns.broken import broken_and_kept
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import NUMBER, clean, normal, read_heading

OF_A_MODEL = re.compile(r"\bparams?\b|\bparameters\b|\blayers\b|\bhidden\b|\bd model\b|\bheads\b|\bffn\b|\bvocab")
OF_A_DEVICE = re.compile(r"\bpeak t?flops?|\btdp\b|\bprice\b|\bper (?:gpu )?(?:h|hr|hour)\b|\bgpu h\b")
NAMED = {"size_label": OF_A_MODEL, "machine": OF_A_DEVICE}
_MODEL = frozenset({"model", "model name", "name", "size", "network", "config"})
_SCORE = re.compile(r"\b(?:acc(?:uracy)?|loss|ppl|perplexity|score|f1|bleu|rouge|wer|top-?[15]|mmlu)\b", re.IGNORECASE)
FEWEST, MOST_ROWS = 2, 500
_LAYOUT = operator.attrgetter("size_label", "machine", "dp", "tp", "pp", "zero_stage", "seq", "dtype")


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        rows = [row for row in mates[:MOST_ROWS] if row.tabular]
        if len(rows) > 2 * FEWEST:
            for name, of in _pairs(tuple(rows[0].record.printed)):
                found += _odd(rows, name, of)
            found += _of_a_layout(rows)
    return found


def _of_a_layout(rows: list[Row]) -> Iterator[Finding]:
    """What is worked out from the layout is the same in all rows of it, whatever else they change: the states of a device by
    ZeRO stage and degrees. One that has another layout's figure was pasted."""
    layouts: dict[object, list[Row]] = {}
    for row in rows if rows[0].extras else ():
        layouts.setdefault((row.world, row.all_beside, _LAYOUT(row.record)), []).append(row)
    several = [group for group in layouts.values() if len(group) > 1]
    for heading in rows[0].extras if len(several) > 1 and max(map(len, several)) > 2 else ():
        if _SCORE.search(heading):
            continue  # measured, run by run
        cells = [[clean(row.record.printed.get(heading, "")) for row in group] for group in several]
        if sum(len({*of_group}) > 1 for of_group in cells) != 1:
            continue  # one row alone is odd
        usual = [Counter(of_group).most_common(1)[0] for of_group in cells]
        odd = [(at, row) for at, group in enumerate(several) for row, cell in zip(group, cells[at]) if cell != usual[at][0]]
        if len(odd) != 1 or len({cell for cell, _ in usual}) < len(usual):
            continue
        at, row = odd[0]
        theirs, count = usual[at]
        figure = clean(row.record.printed.get(heading, ""))
        fine = all(NUMBER.match(cell) and len(re.sub(r"\D", "", cell).strip("0")) > 2 for cell, _ in usual)
        others = [mate for mate in rows if mate is not row and clean(mate.record.printed.get(heading, "")) == figure]
        if count < 2 or not fine or not NUMBER.match(figure) or row.settled:
            continue
        meant = float(digits.plain(theirs))
        if others or digits.slip(figure, (0.9999 * meant, 1.0001 * meant)) is not None:
            from_there = f" (what is printed is that of {others[0].where})" if others else ""
            message = f"{heading} {figure} -> {theirs}{from_there}: the other rows of the layout have {theirs}"
            yield row.find("outlier", "error", message, column=heading, printed=figure, proposed=theirs)


@functools.lru_cache(maxsize=1024)
def _pairs(headings: tuple[str, ...]) -> list[tuple[str, str]]:
    """A column of names, and one of what each of them has."""
    found = []
    for name in headings:
        words, field = normal(name), read_heading(name).field
        what = NAMED.get("size_label" if words in _MODEL else field if field == "machine" else "")
        for of in headings if what else ():
            if of != name and what is not None and what.search(normal(of)) and read_heading(of).field not in ("tflops", "mfu"):
                found.append((name, of))
    return found


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
        typed = digits.slip(figure, (0.999 * meant, 1.001 * meant))
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
