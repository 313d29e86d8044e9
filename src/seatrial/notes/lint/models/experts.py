"""Experts on each device: times the ranks that they are spread over they are the experts of the model.

    check(sheet)          findings on rows whose product is not that of the model's other rows

    | model   | EP | experts/GPU |
    | Mixtral |  8 |           1 |
"""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean, normal
from seatrial.tables.worded import heading_in_english

FEWEST, SHARE, SPREAD, MOST_ROWS = 3, 0.7, 5, 500
_OF_EACH = re.compile(r"(?:number of )?(?:local experts|expert\w* (?:per|on each|on a|each|a|local) ?"
                      r"(?:gpu|rank|device|card|chip|npu|tpu|ep rank)?)")  # fmt: skip


_OF_REPLICAS = re.compile(r"\bEP\b[^.;|]{0,30}\b(?:spans|inside|within|across|over|out of|part of|divides|from)\b"
                          r"[^.;|]{0,15}\bDP\b|"
                          r"\bexperts?\b[^.;|]{0,40}\b(?:across|over|within|inside) (?:the )?(?:DP|data[- ]parallel)|"
                          r"\bDP\b[^.;|]{0,20}\b(?:multiple of|includes|contains) EP\b", re.IGNORECASE)  # fmt: skip
"""Where the ranks that have the experts are those of the replicas."""
_OF_TENSORS = re.compile(r"\b(?:TP ?[x×*·] ?DP|DP ?[x×*·] ?TP)\b(?! ?[x×*·])")


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        if len(mates) < FEWEST:
            continue
        for heading in mates[0].record.printed:
            if "xp" in heading and _OF_EACH.fullmatch(normal(heading_in_english(clean(heading), surely=True))):
                rows = [row for row in mates[:MOST_ROWS] if row.beside("ep") and row.figure(heading)]
                for model in dict.fromkeys((row.record.size_label, row.record.experts) for row in rows):
                    found += _odd([row for row in rows if (row.record.size_label, row.record.experts) == model], heading)
    for file, text in sheet.prose.items():
        if text.has("activ") and text.has("total"):
            found += _more_than_all(file, text.lines)
    return found


def check_spread(sheet: Sheet) -> list[Finding]:
    return [finding for mates in sheet.tables.values() if len(mates) >= SPREAD for finding in _spread(mates[:MOST_ROWS])]


def _spread(mates: list[Row]) -> Iterator[Finding]:
    """The one row whose experts are on more ranks than it has replicas, where they divide those of all other rows."""
    rows = [row for row in mates if row.beside("ep") and row.whole("dp") and not row.settled and row.shows("dp")]
    odd = [row for row in rows if (row.whole("dp") or 1) % (row.beside("ep") or 1)]
    if len(odd) != 1 or len(rows) < SPREAD or len({row.beside("ep") for row in rows}) < 2:
        return
    row, ranks, replicas = odd[0], odd[0].beside("ep") or 1, odd[0].whole("dp") or 1
    if row.product != row.world or row.fixed or row.reasons:
        return  # the replicas are what is wrong
    said = [line for line in row.sheet.text(row).lines if _OF_REPLICAS.search(line)]
    if not said or any(_OF_TENSORS.search(line) for line in said):
        return  # tensor parallel ranks may have experts of their own
    kin = {other.beside("ep") for other in rows if other is not row and other.record.size_label == row.record.size_label
           and other.world == row.world}  # fmt: skip
    fitting = [other for other in kin if other and replicas % other == 0]
    meant = fitting[0] if len(fitting) == 1 else replicas if replicas in (ranks // 2, 2 * ranks) else None
    message = f"EP {ranks} does not divide DP {replicas}, and does in the {len(rows) - 1} other rows"
    yield row.find("experts-divisible", "warning", f"{message}{f': {meant}' if meant else ''}", column=row.column("ep"),
                   printed=str(ranks), proposed=str(meant) if meant else None)  # fmt: skip


_COUNTED = r"\bparam\w*[^\w.]{1,6}(\d{1,4}(?:\.\d+)?) ?([BMT])\b"
_ACTIVE, _ALL = re.compile(rf"\bactiv\w* {_COUNTED}", re.IGNORECASE), re.compile(rf"\btotal {_COUNTED}", re.IGNORECASE)
FEW, MOST_ACTIVE, LEAST_ACTIVE = 6, 0.9, 0.02
"""Lines between what is active and the total; which share of all parameters a token passes."""


def _more_than_all(file: str, lines: tuple[str, ...]) -> Iterator[Finding]:
    """Active parameters that are more than all there are."""
    scales = {"M": 1e6, "B": 1e9, "T": 1e12}
    said = [(number, pattern is _ACTIVE, match[1], scales[match[2].upper()]) for number, line in enumerate(lines, 1)
            for pattern in (_ACTIVE, _ALL) for match in pattern.finditer(line[:2000])]  # fmt: skip
    totals = [(number, float(figure) * scale) for number, active, figure, scale in said if not active]
    for number, active, figure, scale in said:
        near = [whole for there, whole in totals if abs(there - number) <= FEW] if active else []
        if len(near) == 1 and float(figure) * scale > near[0]:
            ends = LEAST_ACTIVE * near[0] / scale, MOST_ACTIVE * near[0] / scale
            typed = [slip.text for slip in digits.slips(figure, ends) if slip.how == "the point moved"]
            message = f"{figure} active of {near[0] / scale:g} in all{f': {typed[0]} is meant' if len(typed) == 1 else ''}"
            yield Finding(file=file, line=number, code="label-vs-params", level="error", message=message,
                          column="active parameters", printed=figure,
                          proposed=typed[0] if len(typed) == 1 else None)  # fmt: skip


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
