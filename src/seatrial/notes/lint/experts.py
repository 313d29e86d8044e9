"""Experts on each device: times the ranks that they are spread over they are the experts of the model.

    check(sheet)          findings on rows whose product is not that of the model's other rows

    | model   | EP | experts/GPU |
    | Mixtral |  8 |           1 |
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean, normal
from seatrial.tables.tongues import in_english

FEWEST, SHARE, MOST_ROWS = 3, 0.7, 500
_OF_EACH = re.compile(r"(?:number of )?(?:local experts|expert\w* (?:per|on each|on a|each|a|local) ?"
                      r"(?:gpu|rank|device|card|chip|npu|tpu|ep rank)?)")  # fmt: skip


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        if len(mates) < FEWEST:
            continue
        for heading in mates[0].record.printed:
            if "xp" in heading and _OF_EACH.fullmatch(normal(in_english(clean(heading), surely=True))):
                rows = [row for row in mates[:MOST_ROWS] if row.beside("ep") and row.figure(heading)]
                for model in dict.fromkeys((row.record.size_label, row.record.experts) for row in rows):
                    found += _odd([row for row in rows if (row.record.size_label, row.record.experts) == model], heading)
    return found


def _odd(rows: list[Row], heading: str) -> Iterator[Finding]:
    pairs = {row: (row.beside("ep") or 1, round(row.figure(heading) or 0)) for row in rows}
    (whole, kept), *rest = Counter(ranks * each for ranks, each in pairs.values()).most_common() or [(0, 0)]
    if kept < max(FEWEST, SHARE * len(rows)) or any(many > 1 for _, many in rest):
        return
    usual = {pair for pair in pairs.values() if pair[0] * pair[1] == whole}
    for row, (ranks, each) in pairs.items():
        if ranks * each == whole:
            continue
        why = f"{ranks} ranks with {each} experts each are {ranks * each}, and {kept} other rows have {whole}"
        wrong_ranks = whole % ranks != 0 or (ranks, whole // ranks) not in usual and (whole // max(each, 1), each) in usual
        name, right = (row.column("ep"), whole // max(each, 1)) if wrong_ranks else (heading, whole // ranks)
        cell = row.record.printed.get(name, str(ranks)).strip()
        yield row.find("aggregate", "error", f"{name} {cell} -> {right}: {why}", column=name, printed=cell, proposed=str(right))
