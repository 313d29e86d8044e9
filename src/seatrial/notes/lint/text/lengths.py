"""Lengths of sequences that no run has: a part of a token, and powers of two with two digits exchanged.

    check(sheet)          findings on tokens of a sequence

    sequences of 409.6 tokens           4096
    8192 tokens per sequence            though it says 1892

Lengths are chosen, and nearly all of them powers of two; what stands in a cell or another line besides was meant.
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.figures import Figure, figures
from seatrial.notes.lint.text.sentences import Sentence

MOST_LINES = 4000
LENGTHS = tuple(2**power for power in range(9, 21))
_MEAN = re.compile(r"\b(?:mean|average|avg|mittel\w*|durchschnitt\w*|moyenne|media|promedio|per (?:second|day|hour)|median)\b|"
                   r"平均|среднем", re.IGNORECASE)  # fmt: skip


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        if len(text.lines) > MOST_LINES:
            continue
        for sentence in text.sentences:
            for one in figures(sentence.text):
                if one.kind == "tokens" and one.scale == 1.0 and not one.about and not one.bound:
                    found += _of(file, text.lines, sentence, one)
    return found


def _of(file: str, lines: tuple[str, ...], sentence: Sentence, one: Figure) -> Iterator[Finding]:
    shown = digits.plain(one.text.replace(" ", ""))
    parts = len(one.values) == 1 and not float(shown).is_integer()
    if float(shown) in LENGTHS or parts and _MEAN.search(sentence.text) or len(shown) < 4:
        return
    meant = {length: slip.how for length in LENGTHS for slip in digits.slips(shown, (length, length))
             if slip.how == ("the point moved" if parts else "two digits exchanged")}  # fmt: skip
    if not meant and not parts and float(shown) / 10 in LENGTHS[1:]:
        meant[round(float(shown) / 10)] = "a digit too many"
    form = re.compile(rf"(?<![\d.,]){re.escape(one.text)}(?![.,]?\d)")
    if len(meant) != 1 or any(form.search(line) for at, line in enumerate(lines, 1)
                              if one.text in line and not sentence.first <= at <= sentence.last):  # fmt: skip
        return
    (value, how), sure = meant.popitem(), not shown.endswith("0")
    right = str(value) if parts else one.like(value)
    message = f"{one.text} -> {right} ({how}): sequences are of {value} tokens, and hardly of {one.text}"
    yield Finding(file=file, line=sentence.line_at(one.start), code="aggregate", level="error" if sure else "warning",
                  message=message, column="sequence", printed=one.text, proposed=right)  # fmt: skip
