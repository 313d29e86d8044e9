"""Sums of a part of the rows that a sentence names, and what one of something costs on average over all of them.

    check(sheet)          findings on those that the rows do not give

    Reserved capacity alone is $866k.                   the rows of reserved pools add up to 1,014
    The two main runs together took 74,392 GPU hours.   47,392
    On average a GPU hour cost us 3.65 €.               2.52 are all costs over all hours

Rows are named as `mentions` has them. A figure is fine that any row gives, or all together.
"""
from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.columns_of import Column, Columns
from seatrial.notes.lint.text.figures import Figure, figures
from seatrial.notes.lint.text.mentions import mentions, spoken_of
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.notes.lint.text.summed import ADDED, counted, rows_above, spoken_column

FEWEST, OFF, NEAR, PLAINLY, CLOSE = 2, 0.08, 0.02, 3.0, 0.035
"""Rows of a part; from which logarithm on a sum is off, within which share it is meant, up to which factor it is doubted
without a slip of the hand; and within which share an average is meant."""
_ALONE = re.compile(r"\b(?:alone|by (?:itself|themselves)|on (?:its|their) own|together|combined|in all|allein|zusammen|"
                    r"seule?s?|"
                    r"ensemble|sol[oa]s?|juntos|insieme|da sol[oi]|sozinh\w+|samen|alleen|razem|вместе|только)\b|"
                    r"合わせ|だけで|一共|合计|单独|仅|만으로|합쳐", re.IGNORECASE)  # fmt: skip
_SPENT = re.compile(r"\b(?:costs?|took|takes?|went|goes?|used?|uses|spent|consumed?|burn\w*|ate|make up|account\w*|add up|"
                    r"kost\w+|"
                    r"brauch\w+|verbrauch\w+|entfallen|coute\w*|pris|consomm\w+|cuesta\w*|costaron|consum\w+|gast\w+|costa\w*|"
                    r"kostte\w*|стоил\w*|заняли)\b|花|用了|消耗|かかっ|들었", re.IGNORECASE)  # fmt: skip
_OTHERS = re.compile(r"\b(?:budget|quota|limit|plan\w*|left|remain\w*|than|less|more|save[sd]?|saving|each|every|per|would|"
                     r"could|"
                     r"longest|most|least|cheapest|dearest|average|mean|without|not|except|of which|jede\w*|chaque|cada|ogni|"
                     r"weniger|mehr|moins|plus|menos|mas|meno|piu)\b|[%×]", re.IGNORECASE)  # fmt: skip
_WORDS = ("alone", "together", "combined", "allein", "zusammen", "seul", "ensemble", "solo", "sola", "insieme", "samen",
          "razem", "cost", "took", "went", "used", "spent", "consum", "kost", "brauch", "average", "mean", "mittel", "schnitt",
          "moyenne", "media", "promedio", "gemiddeld", "平均", "средн", "평균", "вместе", "合")  # fmt: skip
_MEAN = re.compile(r"\b(?:mean|average[ds]?|averages? out|avg\.?|im (?:Mittel|Schnitt)|Mittelwert|durchschnittlich\w*|moyenne|"
                   r"promedio|media|em media|gemiddeld|srednio)\b|平均|среднем|평균", re.IGNORECASE)  # fmt: skip
_HOUR = r"(?:hours?|hrs?|h|stunden?|std|heures?|horas?|or[ae]|uur|uren|godzin\w*|час\w*|时|小时|時間|시간)"
_DEVICE = r"(?:GPU|[HN]PU|TPU|device|card|chip|GCD|karten|carte|tarjeta|卡|카드)s?"
_A = r"(?:(?:per|a|an|each|pro|je|die|eine|par|l'|une|por|la|una|al|all'|na|за|на) ?|[/每])"
_OF: tuple[tuple[str, re.Pattern[str], float], ...] = (
    ("device hours", re.compile(rf"{_A}(?:{_DEVICE}[ ·-]?{_HOUR}|{_HOUR}[ -](?:de )?{_DEVICE})(?![a-z])|卡时|GPU ?時間あたり|"
                                r"카드시간당",
                                re.IGNORECASE), 1.0),
    ("tokens", re.compile(rf"{_A}(?:1 )?(?:billion|bn|B|G|Mrd\.?|milliard de|mil millones de|miliardo di|"
                          rf"млрд)[ -]?(?:tok\w*|jetons?|"
                          r"токен\w*)", re.IGNORECASE), 1e9),
    ("tokens", re.compile(rf"{_A}(?:1 )?(?:million|M|Mio\.?|million de|millon de|milione di|млн)[ -]?(?:tok\w*|jetons?|"
                          rf"токен\w*)",
                          re.IGNORECASE), 1e6),
)  # fmt: skip


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        tables = [rows for rows in sheet.tables_of(file) if rows[0].key not in sheet.thinned] if text.has(*_WORDS) else []
        for sentence in text.sentences if tables else ():
            mean = _MEAN.search(sentence.text)
            if mean or _ALONE.search(sentence.text) or _SPENT.search(sentence.text):
                rows = rows_above(tables, text.lines, sentence.line)
                if len(rows) >= FEWEST:
                    found += _mean(file, sentence, rows) if mean else _of_part(file, sentence, rows)
    return found


# ---- of a part of the rows


def _of_part(file: str, sentence: Sentence, rows: list[Row]) -> Iterator[Finding]:
    text = sentence.text
    its = [one for one in figures(text) if one.kind in ADDED and not one.bound]
    if not its or len({one.kind for one in its}) < len(its) or _OTHERS.search(text):
        return
    places = [(one.start, one.end) for one in its]
    some = [one for one in mentions(text, rows) if not any(start <= one.start < end for start, end in places)]
    named = spoken_of(some, rows)
    alone = _ALONE.search(text) is not None
    many = counted(text)
    if not FEWEST <= len(named) < len(rows) or many and len(named) not in many:
        return
    for one in its:
        column = _column(one.kind, rows, text)
        if column is None or one.kind == "hours" and not alone:
            continue
        meant = math.fsum(column.values[row] for row in named)
        every = [meant, math.fsum(column.printed[row] for row in named), math.fsum(column.values.values()),
                 math.fsum(column.printed.values()), *column.values.values()]  # fmt: skip
        if any(one.near(value, 0.15 if one.about else NEAR) for value in every):
            continue
        level: Level = "error" if alone or many else "warning"
        why = f"{len(named)} rows that it names add up to"
        yield from _told(file, sentence, one, meant, why, level, column.heading, PLAINLY)


def _column(kind: str, rows: list[Row], text: str) -> Column | None:
    its = [column for column in Columns(tuple(rows)).of(kind) if column.kind == kind and len(column.values) == len(rows)]
    return spoken_column(its, text)


# ---- on average


def _mean(file: str, sentence: Sentence, rows: list[Row]) -> Iterator[Finding]:
    text = _of_the_mean(sentence.text)
    its = [one for one in figures(text) if one.kind in ("money", "energy", "price of a device hour", "carbon")]
    energy = _ENERGY.search(text)
    of = [(kind, unit) for kind, pattern, unit in _OF if pattern.search(text)]
    if len(of) != 1 or len(its) + (energy is not None and not its) != 1:
        return
    (kind, unit), = of
    one = its[0] if its else None
    if one is None and energy is not None:
        scale = {"k": 1.0, "M": 1e3}.get(energy[2], 1e-3)
        one = Figure("energy", energy[1], energy.start(1), energy.end(), (float(digits.plain(energy[1])) * scale,), scale)
    if one is None or one.bound or not 0 < one.value < digits.MOST_WORKED_OUT:
        return
    below = _column(kind, rows, text)
    wanted = "money" if one.kind.startswith("price") else one.kind
    columns = [column for column in Columns(tuple(rows)).of(wanted)
               if column.kind == wanted and len(column.values) == len(rows)]  # fmt: skip
    if below is None or not columns:
        return
    ways: dict[str, float] = {}
    for above in columns:
        values = [unit * above.values[row] / below.values[row] for row in rows]
        ways[above.heading] = unit * math.fsum(above.values.values()) / math.fsum(below.values.values())
        if any(one.near(value, 0.15 if one.about else CLOSE) for value in (
                ways[above.heading], statistics.fmean(values), statistics.median(values))):  # fmt: skip
            return
    spoken = spoken_column(columns, text)
    if spoken is not None:
        why = f"all of the {len(rows)} rows over their {kind} are"
        yield from _told(file, sentence, one, ways[spoken.heading], why, "error", spoken.heading, 5.0)


def _of_the_mean(text: str) -> str:
    """Without what semicolons part from it, each letter where it was."""
    said = _MEAN.search(text)
    start = text.rfind(";", 0, said.start()) + 1 if said is not None else 0
    end = text.find(";", start)
    return " " * start + (text[start:end].ljust(len(text) - start) if end > 0 else text[start:])


_ENERGY = re.compile(r"(?<![\w.,])(\d+(?:[.,]\d+)?) ?([kM]?)Wh\b")


def _told(file: str, sentence: Sentence, one: Figure, meant: float, why: str, level: Level, heading: str,
          far: float) -> Iterator[Finding]:  # fmt: skip
    value = one.closest(meant)
    ends = (meant / one.scale * (1 - NEAR / 2), meant / one.scale * (1 + NEAR / 2))
    slip = digits.slip(one.text.replace(" ", ""), ends)
    typed = slip is not None and slip.how in ("the point moved", "two digits exchanged", "a digit too many")
    off = abs(math.log(value / meant))
    thousand = abs(off - math.log(1000)) < NEAR
    if off < (OFF / 2 if typed and one.fine > 3 else OFF) + one.half / value or not (off < math.log(far) or typed or thousand):
        return
    if thousand:  # the unit is another one
        unit = sentence.text[one.end - 3 : one.end] if one.kind == "energy" else ""
        smaller = {"MWh": "kWh", "kWh": "MWh" if value < meant else "Wh"}.get(unit, "")
        tail = sentence.text[one.start + len(one.text) : one.end]
        if smaller and unit in tail:
            printed = f"{one.text}{tail}"
            message = f"{printed} -> {one.text}{tail.replace(unit, smaller)}: {why} {meant:.4g}"
            yield Finding(file=file, line=sentence.line_at(one.start), code="aggregate", level="error", message=message,
                          column=heading, printed=printed, proposed=f"{one.text}{tail.replace(unit, smaller)}")  # fmt: skip
            return
    right = one.like(meant)
    message = f"{one.text} -> {right}: the {why} {right}"
    level = "error" if typed else level
    yield Finding(file=file, line=sentence.line_at(one.start), code="aggregate", level=level, message=message, column=heading,
                  printed=one.text, proposed=right)  # fmt: skip
