"""How long it is from one time of the day to another, as a sentence says, in digits or in words.

    check(sheet)          findings on durations that the clock denies

    Maintenance from 9:00 to 14:30, three and a half hours.         five and a half
    Ausfall 22:15-01:45 (2,5 h)                                     3.5, over midnight
"""
from __future__ import annotations

import re
from collections.abc import Iterator

from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text import words
from seatrial.notes.lint.text.sentences import Sentence

MOST_LINES, NEAR, NOON, EVENING = 4000, 0.13, 12.0, 16.0
"""Within how many hours a duration is that of the clock: quarters are left out."""
_TIME = r"(?P<h#>[01]?\d|2[0-4])(?:[:.](?P<m#>[0-5]\d)(?![.:]?\d)| ?h ?(?P<n#>[0-5]\d)?\b| ?(?=uhr\b|Uhr\b|часов\b))"
_SPAN = re.compile(
    rf"(?<![\w.,:/-]){_TIME.replace('#', '1')}(?: ?Uhr| UTC| CET| CEST| h)?\s?(?:to|until|till?|and|–|—|-|→|->|bis|a|al|alle|"
    rf"hasta(?: las)?|fino alle|as|ate(?: as)?|tot|do|по|до|и|至|到|から|~)\s?(?:the |las |les )?{_TIME.replace('#', '2')}"
    r"(?: ?Uhr| UTC| CET| CEST| h)?", re.IGNORECASE)  # fmt: skip
_HOUR = r"(?:hours?|hrs?|h|stunden?|std\.?|heures?|horas?|or[ae]|uur|uren|godzin\w*|час\w*|小时|個?小時|時間|timmar|timer)"
_LASTS = re.compile(rf"(?<![\w.,:])(?P<n>{words.WORD}|\d{{1,3}}[.,]\d{{1,2}})(?P<half> and a half)? ?-?{_HOUR}(?![\w:])"
                    r"(?P<after> et demie?| y media| e mezza?| e meia)?", re.IGNORECASE)  # fmt: skip
_BESIDE = re.compile(r"[\s,;:=(≈~]*(?:[a-zа-я']+[\s,:(]*){0,4}|[\s,，、(（:]*(?:共|计|总共|停了?|约|で|の|計)*", re.IGNORECASE)
_OTHERS = re.compile(r"\b(?:later|ago|after|before|every|each|more|less|than|net|without|of (?:which|them)|out of|lost|"
                     r"between (?:checks|runs)|"
                     r"spater|nach|vor|alle|jede|mehr|weniger|davon|ohne|apres|avant|chaque|despues|antes|cada|dopo|prima|"
                     r"ogni)\b",
                     re.IGNORECASE)  # fmt: skip


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        for sentence in text.sentences if len(text.lines) <= MOST_LINES else ():
            if (span := _SPAN.search(sentence.text)) is not None:
                found += _judged(file, sentence, span)
    return found


def _judged(file: str, sentence: Sentence, span: re.Match[str]) -> Iterator[Finding]:
    text = sentence.text
    if _SPAN.search(text, span.end()) or not (span["m1"] or span["n1"] or span["m2"] or span["n2"]):
        return
    start, end = (int(span[f"h{at}"]) + int(span[f"m{at}"] or span[f"n{at}"] or 0) / 60 for at in (1, 2))
    if end <= start and (start < EVENING or end > NOON):
        return  # over midnight, or no times of the day
    hours = end - start + (24.0 if end <= start else 0.0)
    its = [match for match in _LASTS.finditer(text) if match.start() >= span.end() or match.end() <= span.start()]
    beside = [match for match in its if _BESIDE.fullmatch(
        text[span.end() : match.start()] if match.start() >= span.end() else text[match.end() : span.start()])]  # fmt: skip
    if len(its) != 1 or len(beside) != 1:
        return
    one = beside[0]
    between = text[min(span.end(), one.end()) : max(span.start(), one.start())]
    said = words.value(one["n"] + (" and a half" if one["half"] and not one["n"][0].isdigit() else ""))
    if said is None or _OTHERS.search(between):
        return
    said += 0.5 if one["after"] else 0.0
    if said > 24 or abs(said - hours) <= NEAR or said == int(said) and one["n"][0].isdigit() and abs(said - hours) < 0.51:
        return
    if not one["n"][0].isdigit() and said == int(said) and abs(said - hours) < 0.51:
        return  # `five hours`, roughly
    if one["n"][0].isdigit() or one["after"]:
        shown = f"{round(hours, 2):g}".replace(".", "," if "," in one["n"] else ".")
        printed = one["n"]
    else:
        printed = one["n"] + (one["half"] or "")
        shown = words.like(printed, round(2 * hours) / 2)
    message = f"{printed} -> {shown}: from {span[0].strip()} it is {round(hours, 2):g} hours"
    yield Finding(file=file, line=sentence.line_at(one.start()), code="date-order", level="error", message=message,
                  column="hours", printed=printed, proposed=shown)  # fmt: skip
