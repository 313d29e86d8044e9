"""What a sentence says that a row has in a column which it calls by its heading: a speed-up, a share, a count without a unit.

    check(sheet)          findings on figures that are not in the cell

    Aceleración con 16 GPU: 8,49.                    though the row of 16 GPUs has 13,69 there
    The bubble of the second schedule is 12 %.       7.3

Only where one row is named, one column is, and one number is left that nothing else of the sentence explains.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from seatrial.notes.either import either
from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import field_of, is_extra
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import OTHERS, scope_of
from seatrial.notes.lint.text.figures import figures
from seatrial.notes.lint.text.mentions import mentions
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.lint.text.sides import having_all, is_setting
from seatrial.tables.headings import NUMBER, clean, decimal
from seatrial.tables.tongues import in_english, plain_letters

MOST_LINES, MOST_ROWS, OFF, FAR, SHORT = 4000, 40, 0.06, 20.0, 4
"""By which share a figure is off at least; up to which factor it is of that column; and letters of a word that calls none."""
_COMPARES = either(r"\b(?:than|against|compared|versus|vs|instead|not|without|from|between|more|less|until|als|que|"
                   r"niz|both|"
                   r"mean|average|median|all|each|every|except|would|if|gegen|statt|ohne|mehr|weniger|contre|sans|"
                   r"plus|moins|"
                   r"contra|sin|mas|menos|contro|senza|piu|meno|moyenne|media|mittel|alle|tous|todos|tutti|range|over|"
                   r"under|"
                   r"above|below|by|points?|punkte?|puntos|punti)\b|→|->|より|比|平均")  # fmt: skip
_FREE = re.compile(rf"(?<![\w.,/#$€£=~<>+-])({NUMBER.pattern})(?![\w/]|[.,]\d|\s?(?:[kKMGT](?![a-z])|x\b|×))(?P<percent>\s?%)?")
_COMMON = frozenset("model modell modele modelo modello params tokens token batch steps step seconds time memory speed "
                    "total notes "
                    "hours state status result comment remarks config layout setup nodes throughput sequence length "
                    "context device "
                    "parallel micro global local value change flops flop part "
                    "share cost price energy hours number before after against other".split())  # fmt: skip


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = [rows for rows in sheet.tables_of(file) if len(rows) > 2]
        for sentence in text.sentences if tables and len(text.lines) <= MOST_LINES else ():
            if _FREE.search(sentence.text) and not _COMPARES.has(sentence.text):
                scope = scope_of(tables, text.lines, sentence.line)
                rows = [row for row in scope.last if not is_aggregate(row)][:MOST_ROWS] if scope.near else []
                found += _sentence(file, sentence, rows) if len(rows) > 2 else ()
    return found


def _sentence(file: str, sentence: Sentence, rows: Sequence[Row]) -> Iterator[Finding]:
    text = sentence.text
    called = [heading for heading in rows[0].record.printed if _calls(heading, text.casefold()) and (
        is_extra(heading) and not is_setting(heading, rows[0]) or field_of(heading) in ("mfu", "hfu"))]  # fmt: skip
    if len(called) != 1 or OTHERS.search(in_english(text)):
        return
    heading = called[0]
    some = mentions(text, rows)
    units = [one for one in figures(text) if one.kind not in ("percent", "mfu", "hfu", "efficiency", "factor")]
    taken = [(one.start, one.end) for one in some] + [(one.start, one.end) for one in units]
    free = [match for match in _FREE.finditer(text)
            if not any(start < match.end(1) and match.start(1) < end for start, end in taken)]  # fmt: skip
    named = having_all([one for one in some if one.heading != heading], list(rows))
    if len(free) != 1 or len(named) != 1:
        return
    match, row = free[0], named[0]
    said, cell = float(decimal(match[1])), clean(row.record.printed.get(heading, "")).strip()
    own = digits.alone(cell.lstrip("+-−~ "))
    percents = "%" in heading + cell
    if not own or own <= 0 or not said or (match["percent"] is not None) != percents:
        return
    cells = [value for mate in rows for value in (digits.alone(clean(one)) for one in mate.record.printed.values()) if value]
    if any(abs(abs(value) - said) <= 0.5 * 10.0 ** -digits.places(match[1]) * 1.01 for value in cells):
        return
    if abs(said / own - 1) < OFF or not 1 / FAR < said / own < FAR:
        return
    right = f"{own:.{digits.places(match[1])}f}".replace(".", "," if "," in match[1] else ".")
    message = f"{match[1]} -> {right}: {heading} of {row.where} is {right}"
    yield Finding(file=file, line=sentence.line_at(match.start(1)), code="aggregate", level="error", message=message,
                  column=heading, printed=match[1], proposed=right)  # fmt: skip


_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


def _calls(heading: str, letters: str) -> bool:
    words = {word for word in _WORD.findall(plain_letters(clean(heading)).casefold()) if len(word) > SHORT} - _COMMON
    return any(word in letters and re.search(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", letters) for word in words)
