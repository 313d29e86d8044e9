"""Columns that hardly differ, and that nothing else follows from: losses, perplexities, scores, temperatures.

    check(sheet)          findings on the one figure that is ten times, or a tenth of, the others, or has two digits exchanged

What differs by a quarter at most in all other rows does not do so by a factor of ten in one; a loss or a perplexity is known by
its heading, and may differ by more in fewer rows.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import EXTRA, field_of, is_extra
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean, normal
from seatrial.tables.worded import heading_in_english

_QUALITY = re.compile(r"\b(?:loss(?:es)?|ppl|perplexity|nll|bpb|bits per byte|cross entropy|train|val|valid|validation|eval|"
                      r"perte|verlust|perdida|perplexite|rouge\w*|bleu|acc(?:uracy)?)\b|损失|困惑度|損失|потер",
                      re.IGNORECASE)  # fmt: skip
_OTHER = re.compile(r"\b(?:time|hours?|h|min|sec|s|ms|cost|tokens?|steps?|samples|batch|size|lr|rate|coeff\w*|weight)\b")
LITTLE, OF_QUALITY, CLOSE = 1.25, 2.0, 1.1
"""Most over least of the other rows: of any column, of a loss, and of a loss of which one digit tells."""
FEWEST, FEWEST_OF_QUALITY, MOST_ROWS = 5, 3, 500


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        rows = [row for row in mates[:MOST_ROWS] if row.tabular] if len(mates) >= FEWEST_OF_QUALITY else []
        for heading in rows[0].record.printed if rows else ():
            if is_extra(heading) or field_of(heading) == "loss":
                found += _odd(rows, heading)
    return found


@functools.lru_cache(maxsize=4096)
def _of_quality(heading: str) -> bool:
    words = normal(heading_in_english(clean(heading), surely=True))
    return bool(_QUALITY.search(words) or _QUALITY.search(heading)) and not _OTHER.search(words)


def _odd(rows: list[Row], heading: str) -> Iterator[Finding]:
    quality = _of_quality(heading)
    fewest = FEWEST_OF_QUALITY if quality else FEWEST
    if len(rows) < fewest:
        return
    figures = sorted([(value, at) for at, row in enumerate(rows) if (value := row.figure(heading)) and value > 0])
    if len(figures) < fewest:
        return
    most = OF_QUALITY if quality else LITTLE
    for (value, at), others in ((figures[-1], figures[:-1]), (figures[0], figures[1:])):
        row, low, high = rows[at], others[0][0], others[-1][0]
        # What was chosen has few values, and what was measured has several.
        several = len({other for other, _ in others}) >= (2 if quality else 4)
        if not several or high > most * low or 0.85 * low < value < 1.18 * high:
            continue
        if row.settled or EXTRA + heading in row.reasons or not quality and _is_apart(rows, at, heading):
            continue
        cell = row.record.printed[heading].strip()
        scale = value / float(digits.plain(cell) or 1)
        far = not 0.3 * low < value < 3 * high
        open_ = 1.2 if far else 1.03
        told = quality and len(others) > FEWEST_OF_QUALITY and high < CLOSE * low
        how = "the point moved" if far else "two digits exchanged" if told else ""
        slips = digits.slips(digits.plain(cell), (low / open_ / scale, high * open_ / scale)) if how else []
        typed = next((slip for slip in slips if slip.how == how), None)
        if typed is not None:
            proposed = digits.as_there(cell, None, typed.text)
            there = f"the other rows have {low / scale:g} to {high / scale:g}"
            message = f"{heading} {cell} -> {proposed} ({typed.how}): {there}"
            yield row.find("outlier", "error", message, column=heading, printed=cell, proposed=proposed)
            return


def _is_apart(rows: list[Row], at: int, but: str) -> bool:
    """Whether a row is far from the others in another column as well: then it is of another kind."""
    for heading in rows[at].record.printed:
        if heading != but and is_extra(heading) and (value := rows[at].figure(heading)) is not None:
            others = [other for row in rows if row is not rows[at] and (other := row.figure(heading))]
            if len(others) >= FEWEST - 1 and not 0.6 * min(others) <= value <= 1.7 * max(others):
                return True
    return False
