"""Figures of a table that a sentence repeats: the best of a column, its mean, its span.

    check(sheet)          findings on sentences that the rows do not give

    Mean over the four batch sizes: MFU 40.1%.          though the four rows above have 32.0 to 35.1
    The best is 312 TFLOPs at TP 4.                     though no row has more than 231

A mean lies between the least and the most of what it is of, and where a sentence counts as many as the table has rows it is
that of the column. What is best stands in a row.
"""
from __future__ import annotations

import functools
import math
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import EXTRA, is_extra
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import NUMBER, clean, decimal, normal
from seatrial.tables.tongues import in_english

MOST_ROWS, MOST_LINES = 60, 4000
CLEAR = ("the point moved", "two digits exchanged")
NEAR, FAR = 0.03, 4.0
"""Within which a figure of a sentence is one of the rows; beyond which factor it is none of that column at all."""
_MEAN = re.compile(r"\b(?:mean|average[ds]?|averages? out|avg\.?|on average|im (?:Mittel|Schnitt)|Mittelwert|durchschnittlich|"
                   r"en moyenne|moyenne|en promedio|promedio|media|in media|em média|média|gemiddeld|średnio|średnia)\b|"
                   r"平均|среднем|среднее|평균", re.IGNORECASE)  # fmt: skip
_OF_STEPS = re.compile(r"\b(?:mean|average|median|averaged)s?\b.{0,30}?\b(?:steps?|iterations?|its?|minutes|batches|"
                       r"updates|runs|"
                       r"windows?|seeds|repeats|hours|days of)\b", re.IGNORECASE)  # fmt: skip
_BEST = re.compile(r"\b(?:best|highest|fastest|peaks? at|maximum|at most|record|winner|top|beste[rn]?|höchste\w*|schnellste\w*|"
                   r"meilleure?|mejor|migliore|melhor|sweet spot)\b|最高|最佳|最快|最好|лучш|최고", re.IGNORECASE)  # fmt: skip
_OTHERS = re.compile(r"\b(?:papers?|report(?:ed|s)?|others|elsewhere|published|claims?|vendor|they|their|theor\w+|target|goal|"
                     r"expect\w*|hope|should|would|could|data ?sheet|spec|not in (?:the|this) tables?)\b", re.IGNORECASE)
_EARLIER = re.compile(r"\b(?:last (?:year|autumn|week|month|time)|previous\w*|before|older?|earlier|was|used to|dense|"
                      r"peak (?:of|is|rate)|of the peak|limit|capacity)\b", re.IGNORECASE)  # fmt: skip
"""Figures of somebody else, and of what stands in no table any more."""
_DEVICE = r"(?:GPU|device|chip|card|GCD|process)"
_N = rf"(?<![\w.,/$€£-])({NUMBER.pattern})"
_UNITS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(rf"{_N}\s?[kK]? ?(?:tok(?:en)?s?|TPS)(?: ?/ ?s(?:ec(?:ond)?)?)? ?(?:/|per|and) ?{_DEVICE}\b|"
                rf"{_N}\s?[kK]? ?tok(?:en)?s? ?(?:/|per|a) ?{_DEVICE}", re.IGNORECASE),
     ("tokens_per_s_per_process",)),
    (re.compile(rf"{_N}\s?[kKM]? ?tok(?:en)?s? ?(?:/ ?|per |a )s(?:ec(?:ond)?)?\b(?! ?(?:/|per|and) ?{_DEVICE})",
                re.IGNORECASE), ("tokens_per_s", "tokens_per_s_per_process")),
    (re.compile(rf"{_N}\s?(?:model )?TFLOP(?:/s|s|S)?\b", re.IGNORECASE), ("tflops",)),
    (re.compile(rf"\bMFU (?:of |is |was |at |: ?)?{_N}\s?%|{_N}\s?%\s?(?:of )?MFU\b", re.IGNORECASE), ("mfu",)),
    (re.compile(rf"\bHFU (?:of |is |was |at |: ?)?{_N}\s?%|{_N}\s?%\s?HFU\b", re.IGNORECASE), ("hfu",)),
    (re.compile(rf"{_N}\s?(?:s|sec|seconds?)(?: ?(?:/|per|a) ?(?:step|it(?:eration)?|update))\b", re.IGNORECASE),
     ("sec_per_it",)),
    (re.compile(rf"\b(?:steps?|iterations?)(?: times?)?(?: of| takes?| is| in| at|:)? {_N}\s?s\b"), ("sec_per_it",)),
    (re.compile(rf"{_N}\s?Gi?B(?= (?:of memory|peak|per GPU|a GPU|/ ?GPU|allocated|reserved|in use)\b)"), ("mem_value",)),
    (re.compile(rf"{_N}\s?(?:samples?|sequences|seqs?) ?(?:/|per|a) ?s(?:ec(?:ond)?)?\b", re.IGNORECASE), ("samples_per_s",)),
    (re.compile(rf"speed[- ]?up\b[^.;\d]{{0,20}}?{_N}\s?[x×]|{_N}\s?[x×] (?:speed[- ]?up|faster|gain)", re.IGNORECASE),
     ("+speedup",)),
)  # fmt: skip
_CUES = (("/", "per"), ("/", "per", " a "), ("flop",), ("mfu",), ("hfu",), ("/", "per", " a "), ("step", "iteration"),
         ("gb ", "gib "), ("/", "per", " a "), ("speed", "faster", "gain"))  # fmt: skip
"""Letters one of which each of them needs."""
_COUNTS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "zwei": 2,
           "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "dos": 2, "tres": 3,
           "cuatro": 4, "cinco": 5, "due": 2, "tre": 3, "quattro": 4, "cinque": 5}  # fmt: skip
_COUNTED = re.compile(rf"\b(?:all|the|der|des|die|les|los|las|delle|dei|i|le|of|over|aller) "
                      rf"(\d{{1,2}}|{'|'.join(_COUNTS)}) (?!s\b|%|slow|fast|last|first)[a-zA-Z]{{3,}}",
                      re.IGNORECASE)  # fmt: skip
_ALL_ROWS = re.compile(r"\b(?:all|the) (?:rows|runs|settings|table)\b|\b(?:table|rows) above\b|\bof the column\b",
                       re.IGNORECASE)  # fmt: skip
_SENTENCES = re.compile(r"(?<=[^\d])[.;!?](?:\s|$)|(?<=\d)[.;]\s(?=[A-Z])|[。；！？]")
_SPEEDUP = re.compile(r"\bspeed ?up\b|\bgain\b|\bfaster\b|\bbeschleunigung\b|\bacceleration\b")


@dataclass(frozen=True)
class _Figure:
    text: str
    value: float
    fields: tuple[str, ...]


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    by_file: dict[str, list[list[Row]]] = {}
    for (file, table), rows in sheet.tables.items():
        if table is not None and rows[0].tabular:
            by_file.setdefault(file, []).append(rows)
    for file, text in sheet.prose.items():
        tables = by_file.get(file, [])
        if tables and len(text.lines) <= MOST_LINES:
            for number, line in enumerate(text.lines, 1):
                if line[:1] not in ("|", "#", "") and len(line) <= 1000 and any(map(str.isdigit, line)):
                    found += _line(file, number, line, text.lines, tables)
    return found


def _line(file: str, number: int, line: str, lines: tuple[str, ...], tables: list[list[Row]]) -> Iterator[Finding]:
    near = _near(tables, lines, number)
    if not near and not _MEAN.search(line):
        return
    for sentence in _SENTENCES.split(in_english(line)):
        figures = list(_figures(sentence))
        mean, best = (_MEAN.search(sentence), _BEST.search(sentence)) if figures else (None, None)
        others = not figures or _OTHERS.search(sentence) or (_OF_STEPS if mean else _EARLIER).search(sentence)
        if others:
            continue
        if not mean and not best:
            for figure in figures:
                yield from _repeated(file, number, figure, near, tables)
        elif len(figures) == 1:  # else which of them is the mean nobody can tell
            yield from _told(file, number, figures[0], sentence, near, tables, bool(mean))


def _figures(sentence: str) -> Iterator[_Figure]:
    seen: set[int] = set()
    letters = sentence.casefold()
    for (pattern, fields), cues in zip(_UNITS, _CUES, strict=True):
        for match in pattern.finditer(sentence) if any([cue in letters for cue in cues]) else ():
            at = next(place for place in range(1, len(match.groups()) + 1) if match[place])
            if match.start(at) not in seen:
                seen.add(match.start(at))
                times = re.match(r"\s?([kKM])(?![a-zA-Z])", sentence[match.end(at) :])
                scale = {"k": 1e3, "K": 1e3, "M": 1e6}[times[1]] if times else 1.0
                scale *= 0.01 if fields[0] in ("mfu", "hfu") else 1.0
                yield _Figure(match[at], float(decimal(match[at])) * scale, fields)


def _near(tables: list[list[Row]], lines: tuple[str, ...], number: int) -> list[Row]:
    """The rows of the last table above a line, where no heading stands between; else of the next below."""
    above = [rows for rows in tables if (rows[-1].record.source_line or 0) < number]
    last = max(above, key=lambda rows: rows[-1].record.source_line or 0, default=[])
    if last and not any(one.startswith("#") for one in lines[(last[-1].record.source_line or 0) : number]):
        return last
    return []


def _values(rows: list[Row], fields: tuple[str, ...]) -> list[float]:
    """What the rows have in the first of some fields that any has: as it is printed, and as findings mend it."""
    for field in fields:
        if field == "+speedup":
            heading = next((one for one in rows[0].record.printed if is_extra(one) and _is_speedup(one)), None)
            names = [EXTRA + heading] if heading else []
        else:
            names = [field]
        for name in names:
            values = [value for row in rows if not is_aggregate(row) and name not in row.record.inferred
                      and (value := row.get(name))]  # fmt: skip
            if len(values) > 1:
                return values
    return []


@functools.lru_cache(maxsize=4096)
def _is_speedup(heading: str) -> bool:
    return _SPEEDUP.search(normal(in_english(clean(heading), surely=True))) is not None


def _told(file: str, number: int, figure: _Figure, sentence: str, rows: list[Row], tables: list[list[Row]],
          mean: bool) -> Iterator[Finding]:  # fmt: skip
    shown = float(digits.plain(figure.text) or 0)
    if not 0 < shown < math.inf:
        return
    half = 0.5 * 10.0 ** -digits.places(figure.text) / shown
    near = _values(rows, figure.fields) if rows else []
    every = [value for each in tables for value in _values(each[:MOST_ROWS], figure.fields)]
    if not every or not figure.value:
        return
    value = figure.value
    low, high = min(every), max(every)
    open_ = half + NEAR
    if mean:
        counted = _COUNTED.search(sentence)
        many = (_COUNTS.get(counted[1].lower()) or (int(counted[1]) if counted[1].isdecimal() else 0)) if counted else 0
        if near and (many == len(near) or _ALL_ROWS.search(sentence)):
            ways = [statistics.fmean(near), statistics.median(near), statistics.harmonic_mean(near)]
            if all(abs(value / way - 1) > open_ + 0.02 for way in ways):
                yield _finding(file, number, figure, ways[0], f"the mean of the {len(near)} rows above is", "error")
            return
        if not low * (1 - open_) <= value <= high * (1 + open_) and low / FAR < value < high * FAR:
            span = f"a mean lies between {_shown(figure, low)} and {_shown(figure, high)}, as the rows have it, and"
            yield _finding(file, number, figure, None, span, "error")
        return
    if not near or any(abs(value / one - 1) <= half + 0.011 for one in every) or not low / FAR < value < high * FAR:
        return
    best = min(near) if figure.fields[0] == "sec_per_it" else max(near)
    level: Level = "error" if value > max(every) * (1 + open_) and _slipped(figure, best) else "warning"
    yield _finding(file, number, figure, best, "no row has it; the best of the rows above is", level)


def _repeated(file: str, number: int, figure: _Figure, rows: list[Row], tables: list[list[Row]]) -> Iterator[Finding]:
    """A figure that no row has, and one row has but for two digits or the point."""
    near = _values(rows, figure.fields) if rows else []
    every = [value for each in tables for value in _values(each[:MOST_ROWS], figure.fields)]
    shown = digits.plain(figure.text)
    if not near or len(re.sub(r"\D", "", shown).strip("0")) < 3 or any(abs(figure.value / one - 1) <= NEAR for one in every):
        return
    scale = figure.value / float(shown)
    half = 0.5 * 10.0 ** -digits.places(figure.text)
    meant = {one for one in near for slip in digits.slips(shown, (one / scale - half, one / scale + half)) if slip.how in CLEAR}
    if len(meant) == 1:
        yield _finding(file, number, figure, meant.pop(), "no row has it; one of the rows above has", "warning")


def _slipped(figure: _Figure, meant: float) -> bool:
    scale = figure.value / float(decimal(figure.text))
    return digits.slip(figure.text, (meant / scale * 0.99, meant / scale * 1.01)) is not None


def _shown(figure: _Figure, value: float) -> str:
    scale = figure.value / float(decimal(figure.text))
    text = f"{value / scale:,.{digits.places(figure.text)}f}"
    return text if "," in figure.text else text.replace(",", "")


def _finding(file: str, number: int, figure: _Figure, meant: float | None, why: str, level: Level) -> Finding:
    proposed = _shown(figure, meant) if meant is not None else None
    message = f"{figure.text}{f' -> {proposed}' if proposed else ''}: {why} {proposed or figure.text + ' does not'}"
    return Finding(file=file, line=number, code="aggregate", level=level, message=message, column=figure.fields[0].lstrip("+"),
                   printed=figure.text, proposed=proposed)  # fmt: skip
