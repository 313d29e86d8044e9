"""Figures of a table that a sentence repeats: the best of a column, its mean, its span, what a row has and its settings.

    check(sheet)          findings on sentences that the rows do not give

    Mean over the four batch sizes: MFU 40.1%.          though the four rows above have 32.0 to 35.1
    The best is 312 TFLOPs at TP 4.                     though no row has more than 231
    Run 7 needs 5.4 s.                                  though it has 6.9
    The winner is TP 8 with 3481 tokens/s/GPU.          though that is the row of TP 4
    A GPU does 391 TFLOP/s (51 % of peak).              391 of the 989 that the text says are 40 %

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
from seatrial.notes.lint.headings import EXTRA, field_of, is_extra
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claims import each_sentence, named, scope_of, surely
from seatrial.notes.lint.text.prose import Prose, peaks_in
from seatrial.tables.headings import NUMBER, clean, decimal, normal
from seatrial.tables.tongues import in_english, plain_letters

MOST_ROWS, MOST_LINES = 60, 4000
CLEAR = ("the point moved", "two digits exchanged")
NEAR, FAR, OFF = 0.03, 4.0, 0.1
"""Within which a figure of a sentence is one of the rows; beyond which factor it is none of that column at all; and how
far what a named row has is another figure."""
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
    (re.compile(rf"\b(?:with|at|takes?|needs?|in|is|mit|en|avec|con|em) (?:only |just )?{_N}\s?s(?![\w/]| ?(?:/|per|a) )"),
     ("sec_per_it",)),
    (re.compile(rf"speed[- ]?up\b[^.;\d]{{0,20}}?{_N}\s?[x×]|{_N}\s?[x×] (?:speed[- ]?up|faster|gain)", re.IGNORECASE),
     ("+speedup",)),
)  # fmt: skip
_CUES = (("/", "per"), ("/", "per", " a "), ("flop",), ("mfu",), ("hfu",), ("/", "per", " a "), ("step", "iteration"),
         ("gb ", "gib "), ("/", "per", " a "), (" s", "s "), ("speed", "faster", "gain"))  # fmt: skip
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
        for number, line in each_sentence(text.lines, 2000) if text.has(" %", "% ") else ():
            found += _of_peak(file, number, line, text) if "%" in line else ()
        tables = by_file.get(file, [])
        if tables and len(text.lines) <= MOST_LINES:
            for number, line in each_sentence(text.lines, 1000):
                if any(map(str.isdigit, line)):
                    found += _line(file, number, line, text.lines, tables)
    return found


def _line(file: str, number: int, line: str, lines: tuple[str, ...], tables: list[list[Row]]) -> Iterator[Finding]:
    scope = scope_of(tables, lines, number)
    near = list(scope.last) if scope.near else []
    if not near and not _MEAN.search(line):
        return
    for original, sentence in zip(_SENTENCES.split(line), _SENTENCES.split(in_english(line)), strict=False):
        figures = list(_figures(sentence))
        mean, best = (_MEAN.search(sentence), _BEST.search(sentence)) if figures else (None, None)
        others = not figures or _OTHERS.search(sentence) or (_OF_STEPS if mean else _EARLIER).search(sentence)
        if others:
            continue
        yield from _otherwise(file, number, sentence, near)
        rows = [row for row, _ in surely(named(original, scope, []))]
        of = rows[0] if len(rows) == 1 and rows[0] in near and not _COMPARES.search(sentence) else None
        if not mean and (of is not None or not best):
            for figure in figures:
                yield from _repeated(file, number, figure, near, tables, of)
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


def _repeated(file: str, number: int, figure: _Figure, rows: list[Row], tables: list[list[Row]], of: Row | None
              ) -> Iterator[Finding]:  # fmt: skip
    """A figure that no row has, and one row has but for two digits or the point, or the row that is named has otherwise."""
    near = _values(rows, figure.fields) if rows else []
    every = [value for each in tables for value in _values(each[:MOST_ROWS], figure.fields)]
    shown = digits.plain(figure.text)
    if not near or any(abs(figure.value / one - 1) <= NEAR for one in every) or not float(shown or 0):
        return
    scale = figure.value / float(shown)
    half = 0.5 * 10.0 ** -digits.places(figure.text)
    long = len(re.sub(r"\D", "", shown).strip("0")) > 2
    meant = {one for one in near for slip in digits.slips(shown, (one / scale - half, one / scale + half))
             if slip.how in CLEAR and long}  # fmt: skip
    if len(meant) == 1:
        yield _finding(file, number, figure, meant.pop(), "no row has it; one of the rows above has", "warning")
    elif of is not None and _is_of(of, figure, tables):
        own = [value for name in figure.fields if name in of.columns and (value := of.get(name))]
        if len(own) == 1 and 1 / FAR < (off := figure.value / own[0]) < FAR and abs(off - 1) > OFF + half * scale / own[0]:
            yield _finding(file, number, figure, own[0], f"no row has it, and {of.where} has", "warning")


def _is_of(row: Row, figure: _Figure, tables: list[list[Row]]) -> bool:
    """Whether a figure can only be one of the row: no cell has it, and no rate of more devices or fewer is it."""
    shown = digits.plain(figure.text)
    cells = (cell for rows in tables for mate in rows[:MOST_ROWS] for cell in mate.record.printed.values())
    sizes = [size for size in (row.world, row.record.nodes, row.procs, row.record.gbs) if size and size > 1]
    own = [value for name in (*figure.fields, "tokens_per_s", "tokens_per_s_per_process", "tflops") if (value := row.get(name))]
    others = [value * times for value in own for size in sizes for times in (size, 1 / size)]
    return not any(digits.plain(cell) == shown for cell in cells) and not any(
        abs(figure.value / one - 1) < OFF for one in others)


_COMPARES = re.compile(r"\b(?:than|against|compared|versus|vs|over|gegen(?:uber)?|contre|instead|not|without|if|with \w+ off|"
                       r"after|from|to|between|more|less|up|down|would|wenn|si|until|first)\b", re.IGNORECASE)  # fmt: skip


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
        told = {*peaks_in(text.lines)}
        known = {*(text.device.peak_tflops.values() if text.device is not None else ())}
        if len(told) == 1 and min(told) > 0 and not any(_near(said, 100 * tflops / peak) for peak in told | known if peak):
            peak = told.pop()
            meant = f"{100 * tflops / peak:.{digits.places(match[2])}f}"
            message = f"{match[2]} % -> {meant} %: {match[1]} of the {peak:g} TFLOPs that the text says"
            yield Finding(file=file, line=number, code="rate-mismatch", level="error", message=message, column="MFU",
                          printed=f"{match[2]} %", proposed=f"{meant} %")  # fmt: skip


def _near(said: float, meant: float) -> bool:
    return abs(said - meant) <= max(POINTS, SHARE * meant)


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
