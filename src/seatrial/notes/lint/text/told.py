"""Figures of a table that a sentence repeats beside the settings of another row, and a rate beside its share of the peak.

    check(sheet)          findings on sentences that the rows do not give

    The winner is TP 8 with 3481 tokens/s/GPU.          though that is the row of TP 4
    A GPU does 391 TFLOP/s (51 % of peak).              391 of the 989 that the text says are 40 %
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import field_of
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import each_sentence, scope_of
from seatrial.notes.lint.text.prose import LONGEST, Prose, peaks_in
from seatrial.tables.headings import NUMBER, clean
from seatrial.tables.tongues import in_english, plain_letters

MOST_LINES = 4000
_OTHERS = re.compile(r"\b(?:papers?|report(?:ed|s)?|others|elsewhere|published|claims?|vendor|they|their|theor\w+|target|goal|"
                     r"expect\w*|hope|should|would|could|data ?sheet|spec|not in (?:the|this) tables?)\b", re.IGNORECASE)
_EARLIER = re.compile(r"\b(?:last (?:year|autumn|week|month|time)|previous\w*|before|older?|earlier|was|used to|dense|"
                      r"peak (?:of|is|rate)|of the peak|limit|capacity)\b", re.IGNORECASE)  # fmt: skip
"""Figures of somebody else, and of what stands in no table any more."""
_N = rf"(?<![\w.,/$€£-])({NUMBER.pattern})"
_COMPARES = re.compile(r"\b(?:than|against|compared|versus|vs|over|gegen(?:uber)?|contre|instead|not|without|if|with \w+ off|"
                       r"after|from|to|between|more|less|up|down|would|wenn|si|until|first)\b", re.IGNORECASE)  # fmt: skip


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        for number, line in each_sentence(text.said, LONGEST) if text.has(" %", "% ") else ():
            found += _of_peak(file, number, line, text) if "%" in line else ()
        tables = [rows for rows in sheet.tables_of(file) if rows[0].tabular]
        for sentence in text.sentences if tables and len(text.lines) <= MOST_LINES else ():
            scope = scope_of(tables, text.lines, sentence.line)
            words = in_english(sentence.text) if scope.near else ""
            if words and not _OTHERS.search(words) and not _EARLIER.search(words):
                found += _otherwise(file, sentence.line, words, list(scope.last))
    return found


# ---- settings of another row


def _otherwise(file: str, number: int, sentence: str, rows: list[Row]) -> Iterator[Finding]:
    """Settings beside a figure that one row alone has, of which one is that of other rows."""
    if not rows or _COMPARES.search(sentence):
        return
    shown = {digits.plain(match[0]) for match in re.finditer(_N, sentence)}
    having = {row for row in rows for heading, cell in row.record.printed.items()
              if field_of(heading) in _RESULTS and len(re.sub(r"\D", "", its := digits.plain(cell)).strip("0")) > 2
              and its in shown}  # fmt: skip
    if len(having) != 1:
        return
    row = having.pop()
    said: dict[str, set[str]] = {}
    for heading in row.record.printed:
        name = plain_letters(clean(heading)).casefold().strip()
        if 1 < len(name) < 16 and field_of(heading) not in _RESULTS:
            words = re.findall(rf"(?<![\w-])({re.escape(name)}[ =:]{{1,2}})([\w.+-]*\w)", sentence, re.IGNORECASE)
            column = {mate.cells.get(heading, "").casefold() for mate in rows}
            values = {f"{word}\n{value}" for word, value in words if value.casefold() in column}
            said |= {heading: values} if values else {}
    odd = [(heading, values) for heading, values in said.items()
           if row.cells[heading].casefold() not in {one.partition("\n")[2].casefold() for one in values}]  # fmt: skip
    if len(odd) == 1 and len(odd[0][1]) == 1 and row.cells[odd[0][0]]:
        word, _, value = next(iter(odd[0][1])).partition("\n")
        printed, proposed = f"{word}{value}", f"{word}{row.cells[odd[0][0]]}"
        message = f"{printed} -> {proposed}: the figures of the sentence are those of {row.where}"
        yield Finding(file=file, line=number, code="header-vs-row", level="error", message=message, column=odd[0][0],
                      printed=printed, proposed=proposed)  # fmt: skip


_RESULTS = ("sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "tflops", "mfu", "hfu", "mem_value",
            "loss")  # fmt: skip


# ---- a share of the peak

_OF_PEAK = re.compile(r"(?<![\d.,])(\d{2,4}(?:\.\d+)?) ?TFLOP\S*[^.;|\n%\d]{0,24}?(?<![\d.,])(\d{1,2}(?:\.\d+)?) ?% "
                      r"(?:of (?:the |its )?(?:\w+ )?peak|MFU|utili[sz]ation)", re.IGNORECASE)  # fmt: skip
POINTS, SHARE = 1.0, 0.05
"""By how many points, and which share of them, a percentage may be off that was rounded or taken from other digits."""


def _of_peak(file: str, number: int, line: str, text: Prose) -> Iterator[Finding]:
    for match in _OF_PEAK.finditer(line):
        tflops, said = float(match[1]), float(match[2])
        told = {*peaks_in(text.spoken)}
        # Where the sentence says which peak it means, no other one excuses it.
        own = {peak for peak in told if re.search(rf"(?<![\d.,]){peak:g}(?![\d.,]*\d)", line)}
        known = {*(text.device.peak_tflops.values() if text.device is not None and not own else ())}
        told = own or told
        if len(told) == 1 and min(told) > 0 and not any(_near(said, 100 * tflops / peak) for peak in told | known if peak):
            peak = told.pop()
            meant = f"{100 * tflops / peak:.{digits.places(match[2])}f}"
            message = f"{match[2]} % -> {meant} %: {match[1]} of the {peak:g} TFLOPs that the text says"
            yield Finding(file=file, line=number, code="rate-mismatch", level="error", message=message, column="MFU",
                          printed=f"{match[2]} %", proposed=f"{meant} %")  # fmt: skip


def _near(said: float, meant: float) -> bool:
    return abs(said - meant) <= max(POINTS, SHARE * meant)
