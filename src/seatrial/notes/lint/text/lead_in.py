"""Batch, sequence and tokens of a step that sentences above a table state, against what its rates and times give.

    check(sheet)          findings on a setting that all rows deny

    512 sequences per step, 2048 tokens.        though tokens a second times seconds are 2.1 million in every row: 4096
    2.10M tokens per step throughout:           4.19

What all rows of a table take in a step, by rate and time, is tokens of a step, or batch times sequence. Where records name the
line of a setting, `denied.stated_otherwise` says so; here is what a sentence says besides, of two rows too.
"""
from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.figures import Figure
from seatrial.notes.lint.text.reckons import read
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.lint.usual import round_number

MOST_LINES, MOST_ROWS, FEWEST, MOST_ABOVE = 4000, 40, 2, 30
ALIKE, NEAR, OFF = 0.04, 0.045, 0.09
"""Within which the rows agree, a setting is what they give, and beyond which it is another one."""
LEAST, MOST = 1e5, 1e9
"""Tokens of a step."""
BY_HAND = ("two digits exchanged", "the point moved", "a digit too many", "a digit lost")
_OTHERS = re.compile(r"\b(?:unless|except|other|old|before|instead|ramp\w*|from .{1,20} to|starts?|first|paper|until|then)\b|"
                     r"->|→", re.IGNORECASE)  # fmt: skip
Said = dict[str, tuple[Figure, Sentence]]


def check(sheet: Sheet) -> list[Finding]:
    found: dict[tuple[str, int | None, str | None], Finding] = {}
    for mates in sheet.tables.values():
        first = mates[0]
        text = sheet.prose.get(first.record.source_file)
        if text is None or first.record.table is None or len(text.lines) > MOST_LINES or text.has("pair"):
            continue
        rows = [row for row in mates[:MOST_ROWS] if not row.planned and _of_a_step(row)]
        if len(rows) < FEWEST or first.record.source_line is None:
            continue
        lengths = {row.seq for row in rows} - {None} or {row.seq for row in sheet.files[first.record.source_file]}
        known = {"sequence": _one(lengths), "samples": _one({row.record.gbs for row in rows})}
        said = _said(text.sentences, text.lines, first.record.source_line, known)
        for one in _denied(first.record.source_file, rows, said, known):
            found.setdefault((one.file, one.line, one.printed), one)
    return list(found.values())


def _one(values: set[int | None]) -> float:
    """The only one that there is, else 0."""
    return float(next(iter(values)) or 0) if len(values) == 1 else 0.0


def _of_a_step(row: Row) -> float:
    """Tokens that it takes in one, by its rate and its time."""
    rate = row.get("tokens_per_s") or (row.get("tokens_per_s_per_process") or 0.0) * (row.world or 0)
    return rate * (row.get("sec_per_it") or 0.0)


def _said(sentences: tuple[Sentence, ...], lines: tuple[str, ...], top: int, known: dict[str, float]) -> Said:
    """What the sentences between the table and the rows above it state, the nearest first; `known`: as they were read."""
    at = top - 1
    while at and lines[at - 1].lstrip().startswith(("|", "+", "=", "!", "{", "#+")):
        at -= 1
    start = at
    while start and at - start < MOST_ABOVE and not lines[start - 1].lstrip().startswith(("|", "+-", "==")):
        start -= 1
    found: Said = {}
    for sentence in reversed([one for one in sentences if start < one.first and one.last <= at]):
        if _OTHERS.search(sentence.text):
            continue
        told = read(sentence.text)
        counts = [one for one in told.get("tokens", ()) if one.scale == 1.0 and one.value == known["sequence"]]
        for kind, its in [*told.items(), ("sequence", counts)]:
            kind = "tokens of a step" if kind == "tokens" and "samples" in told else kind
            open_ = kind == "tokens of a step" and not LEAST <= its[0].value < MOST if its else True
            if kind in ("samples", "sequence", "tokens of a step") and len(its) == 1 and not its[0].bound and not open_:
                found.setdefault(kind, (its[0], sentence))
    return found


def _denied(file: str, rows: list[Row], said: Said, known: dict[str, float]) -> Iterator[Finding]:
    takes = [_of_a_step(row) for row in rows]
    each = {"tokens of a step": takes}
    if all(row.shows("seq") and row.seq for row in rows):
        each["samples"] = [tokens / (row.seq or 1) for tokens, row in zip(takes, rows)]
    elif length := said["sequence"][0].value if "sequence" in said else known["sequence"]:
        each["samples"] = [tokens / round(length) for tokens in takes] if length == round(length) else []
    if all(row.shows("gbs") and row.record.gbs for row in rows):
        each["sequence"] = [tokens / (row.record.gbs or 1) for tokens, row in zip(takes, rows)]
    elif batch := said["samples"][0].value if "samples" in said else known["samples"]:
        each["sequence"] = [tokens / batch for tokens in takes]
    ways: list[tuple[str, Figure, Sentence, float, str]] = []
    for kind, values in each.items():
        if kind not in said or not values or any(row.shows(_FIELD[kind]) for row in rows if kind in _FIELD):
            continue
        one, sentence = said[kind]
        meant = statistics.median(values)
        if max(values) > (1 + ALIKE) * min(values) or any(one.near(value, OFF) for value in (*values, meant)):
            continue
        if kind != "tokens of a step":
            whole = (round(meant), 2 ** max(0, round(meant).bit_length() - 1), 2 ** round(meant).bit_length())
            near = [value for value in whole if abs(value / meant - 1) < NEAR and round_number(value)]
            if not near:
                continue
            meant = float(min(near, key=lambda value: abs(value / meant - 1)))
        width = one.half + NEAR * meant if kind == "tokens of a step" else 0.0
        slips = digits.slips(one.text.replace(" ", ""), ((meant - width) / one.scale, (meant + width) / one.scale))
        typed = next((slip.how for slip in slips if slip.how in BY_HAND and one.fine > 1), "")
        # Four or eight times as many is a rate of a node or a device.
        if typed or any(abs(one.closest(meant) / meant / times - 1) < ALIKE for times in (0.5, 2.0)):
            ways.append((kind, one, sentence, meant, typed))
    # What is said with the right number of tokens is right; where batch and sequence would both do, the batch is what people
    # change.
    total, right_one = said.get("tokens of a step"), None
    if total is not None and any(total[0].near(tokens, NEAR) for tokens in takes):
        right_one = total[1]
    ways = [way for way in ways if way[2] is not right_one]
    sure = [way for way in ways if way[4]] or ways[:1]
    if not sure:
        return
    kind, one, sentence, meant, typed = sure[0]
    level: Level = "error" if typed and len(sure) == 1 and len(rows) > FEWEST else "warning"
    right = one.like(meant)
    how = f" ({typed})" if typed else ""
    message = f"{one.text} -> {right}{how}: by rate and time of all {len(rows)} rows below it is {right}"
    yield Finding(file=file, line=sentence.line_at(one.start), code="aggregate", level=level, message=message, column=kind,
                  printed=one.text, proposed=right)  # fmt: skip


_FIELD = {"samples": "gbs", "sequence": "seq"}
