"""Dates of sentences: how long it is from one to another, and the days of the week that they fall on.

    check(sheet)          findings on durations and weekdays that the calendar denies

    3 Nov to 21 Dec, i.e. 39 days with both ends        those are 49
    Laufzeit 18 Monate, vom 01.04.2025 bis zum 31.03.2026          12
    * <2024-11-11 Fri> Longer                           a Monday

A duration is held against the dates where nothing but words like `i.e.` or a bracket stands between; days may count both ends
or one. A weekday is held against a date with its year, or against those of the one year that all others of the file are of.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.figures import Figure, figures, plain
from seatrial.notes.lint.text.sentences import Sentence
from seatrial.tables.headings import decimal

MOST_LINES, LONGEST, FEWEST = 4000, 600, 4
YEARS = range(2017, 2036)
_NAMES = ("jan ene gen янв sty", "feb fev fev fevr фев lut", "mar marz maerz mrt мар", "apr avr abr апр kwi",
          "may mai mayo mag maj май мая",
          "jun juin giu июн cze", "jul juil lug июл lip", "aug aou ago авг sie", "sep set сен wrz",
          "oct okt ott out окт paz",
          "nov ноя lis", "dec dez dic дек gru")  # fmt: skip
_MONTHS = {name: place for place, names in enumerate(_NAMES, 1) for name in names.split()}
_WORD = (r"(?:jan|ene|gen|feb|fev|mar|mrt|apr|avr|abr|may|mai|maj|jun|juin|giu|jul|juil|lug|aug|aou|ago|sep|set|oct|okt|ott|"
         r"out|"
         r"nov|dec|dez|dic|янв|фев|мар|апр|май|мая|июн|июл|авг|сен|окт|ноя|дек)[a-zа-я]{0,7}\.?")
_DATE = (r"(?:(?P<y#a>20\d\d)-(?P<m#a>\d\d)-(?P<d#a>\d\d)|"
         r"(?P<d#b>\d{1,2})\.(?P<m#b>\d{1,2})\.(?P<y#b>20\d\d|(?!\d))|"
         r"(?P<d#c>\d{1,2})(?:\.|st|nd|rd|th|er)?[ -](?:de |of )?(?P<w#c>" + _WORD + r")(?:,? (?:de )?(?P<y#c>20\d\d))?|"
         r"(?P<w#d>" + _WORD + r") (?P<d#d>\d{1,2})(?:st|nd|rd|th)?(?!\d|[.,]\d)(?:,? (?P<y#d>20\d\d))?|"
         r"(?:(?P<y#e>20\d\d) ?[年년] ?)?(?P<m#e>\d{1,2}) ?[月월] ?(?P<d#e>\d{1,2}) ?[日일号]?|"
         r"(?P<d#f>\d{1,2})/(?P<m#f>\d{1,2})/(?P<y#f>20\d\d))")  # fmt: skip
_FIRST, _SECOND = _DATE.replace("#", "1"), _DATE.replace("#", "2")
_ONE = re.compile(r"(?<![\w.,/-])" + _FIRST, re.IGNORECASE)
_DAY_OF_WEEK = (r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?|"
                r"(?:mon|diens|donners|frei|sams|sonn)tag|mittwoch|sonnabend|mo|di|mi|do|fr|sa|so)\.?")
_UNTIL = (r"\s?(?:to|until|till?|through|thru|–|—|-|→|->|bis(?: zum)?|(?:jusqu'?)?au|al?|fino al|hasta(?: el)?|ate|"
          r"tot(?: en met)?|t/m|do|по|до|から|~|〜|至|到|부터)\s?(?:and including |the |el |il |o )?(?:"
          + _DAY_OF_WEEK + r",? )?")  # fmt: skip
_SPAN = re.compile(r"(?<![\w.,/-])(?:" + _FIRST + r"|(?P<d1g>\d{1,2})\.?)" + _UNTIL + _SECOND
                   + r"(?: ?(?:まで|まて|为止|까지))?", re.IGNORECASE)  # fmt: skip
_BESIDE = re.compile(r"[\s,;:=(≈~)]*(?:(?:i\.? ?e\.?|that is|that's|which is|are|is|were|makes?|for|so|or|in all|a total of|"
                     r"das sind|"
                     r"also|d\.? ?h\.?|sind|macht|mithin|insgesamt|soit|c'est-a-dire|sont|es decir|o sea|son|ossia|cioe|"
                     r"sono|ou seja|"
                     r"sao|dus|oftewel|czyli|то есть|т\. ?е\.|всего|さ?で|の|共|计|共计|即|から|total)[\s,:(=]*){0,2}"
                     r"(?:about |rund |etwa |ca\.? |environ |unos |circa )?", re.IGNORECASE)  # fmt: skip
_BESIDE_BEFORE = re.compile(r"[\s,;:=(]*(?:(?:from|vom|von|du|des|del?|desde el|dal|from the|van|od|с|со|between|zwischen|"
                            r"lasts?|ran)"
                            r"[\s]*){0,2}", re.IGNORECASE)  # fmt: skip
_MONTH = re.compile(r"(?P<n>\d{1,2}(?:[.,]5)?) ?(?:months?|monate?n?|mois|mes(?:es)?|mesi|maanden|miesi\w+|месяц\w*|か月|ヶ月|"
                    r"个月|개월)"
                    r"(?![a-z])", re.IGNORECASE)  # fmt: skip
_BOTH_ENDS = re.compile(r"\b(?:both (?:ends|days|included)|inclusive|included|including both|einschliesslich|inkl\w*|"
                        r"inclus\w*|beide|"
                        r"compris|ambos|compresi)\b", re.IGNORECASE)  # fmt: skip
_NET = re.compile(r"\b(?:net|netto|of which|compute|training time|running|uptime|downtime|without|ohne|sans|sin|idle|"
                  r"work(?:ing)? ?days|werktage|arbeitstage|jours ouvres|GPU)\b", re.IGNORECASE)  # fmt: skip


def check(sheet: Sheet) -> list[Finding]:
    found: dict[tuple[str, int | None], Finding] = {}
    whole: dict[str, list[tuple[str, ...]]] = {}
    for name, text in sheet.prose.items():
        if len(text.lines) > MOST_LINES:
            continue
        file = sheet.names.get(name, name)
        for sentence in text.sentences:
            if any(one.kind == "hours" for one in figures(sentence.text)) or _MONTH.search(sentence.text):
                found |= {(file, one.line): one for one in _spans(file, sentence)}
        if text.has(*_WEEKDAYS) and _has_weekday.search(text.letters):
            whole.setdefault(file, []).append(text.lines)
    for file, chapters in whole.items():  # each has the lines of its own
        lines = chapters[0] if len(chapters) == 1 else tuple(next(filter(None, its), "") for its in zip(*chapters))
        found |= {(file, one.line): one for one in _weekdays(file, lines)}
    return list(found.values())


# ---- from one date to another


def _day(match: re.Match[str], place: int) -> tuple[int, int, int] | None:
    """Year, month and day; 0 for a year that is not said."""
    groups = {name[0]: value for name, value in match.groupdict().items() if value and name[1:2] == str(place)}
    if "d" not in groups:
        return None
    month = int(groups["m"]) if "m" in groups else 0
    if "w" in groups:
        word = plain(groups["w"]).casefold()
        month = next((_MONTHS[word[:n]] for n in (5, 4, 3) if word[:n] in _MONTHS), 0)
    return int(groups.get("y", 0)), month, int(groups["d"])


def _length(match: re.Match[str]) -> tuple[date, date] | None:
    first, last = _day(match, 1), _day(match, 2)
    if first is None or last is None or not last[1]:
        return None
    month = first[1] or last[1]
    year = last[0] or first[0]
    start = first[0] or year or 2001
    end = last[0] or (start if last[1:] >= (month, first[2]) else start + 1)
    if not first[0] and last[0]:
        start = end if (month, first[2]) <= last[1:] else end - 1
    try:
        made = date(start, month, first[2]), date(end, last[1], last[2])
    except ValueError:
        return None
    return made if made[0] < made[1] else None


@dataclass(frozen=True)
class _Lasts:
    """A duration beside two dates."""

    text: str
    start: int
    value: float
    unit: str

    def fits(self, first: date, last: date) -> bool:
        return any(abs(self.value - one) <= self._open for one in self._counts(first, last))

    @property
    def _open(self) -> float:
        half = 0.5 * 10.0 ** -digits.places(self.text)
        return {"days": half if half < 0.5 else 0.01, "weeks": half + 0.16, "months": 0.6, "hours": 24.0}[self.unit]

    def _counts(self, first: date, last: date) -> tuple[float, ...]:
        days = (last - first).days
        leap = 0.0 if first.year > 2001 else 1.0
        if self.unit == "months":
            after = last + timedelta(days=1)
            return tuple((to.year - first.year) * 12 + to.month - first.month + (to.day - first.day) / 30.4
                         for to in (last, after))  # fmt: skip
        each = {"days": 1.0, "weeks": 7.0, "hours": 1 / 24}[self.unit]
        return tuple((days + more) / each for more in ((0.0, 1.0, 1.0 + leap) if first.month <= 2 < last.month else (0.0, 1.0)))

    def meant(self, first: date, last: date, both: bool) -> str:
        """As both ends are counted, or as a slip of the hand tells."""
        counts = self._counts(first, last)[:2]
        places = digits.places(self.text)
        if self.unit == "months":
            return str(round(counts[1]))
        made = [f"{one:.{places}f}" for one in counts]
        alike = [one for one in made if _off_by_one(one, self.text.replace(",", "."))]
        text = alike[0] if len(alike) == 1 else made[both]
        return text.replace(".", ",") if "," in self.text else text


def _off_by_one(one: str, other: str) -> bool:
    return len(one) == len(other) and (sum(a != b for a, b in zip(one, other)) == 1 or sorted(one) == sorted(other))


def _spans(file: str, sentence: Sentence) -> Iterator[Finding]:
    text = sentence.text
    if _NET.search(text):
        return
    spans = [(match, ends) for match in _SPAN.finditer(text) if (ends := _length(match)) is not None]
    if len(spans) != 1:
        return
    (match, (first, last)), = spans
    lasts = [_lasting(one) for one in figures(text) if one.kind == "hours" and not one.bound and not one.about]
    lasts += [_Lasts(month["n"], month.start(), float(decimal(month["n"])), "months") for month in _MONTH.finditer(text)]
    beside = [one for one in lasts if one.start >= match.end() and _BESIDE.fullmatch(text[match.end() : one.start])
              or one.start < match.start() and _BESIDE_BEFORE.fullmatch(
                  _UNITS.sub("", text[one.start + len(one.text) : match.start()]))]  # fmt: skip
    if len(beside) != 1 or beside[0].fits(first, last):
        return
    one = beside[0]
    days = (last - first).days
    right = one.meant(first, last, _BOTH_ENDS.search(text) is not None)
    if one.unit == "hours" and one.value < 24 * (days - 1) or math.isclose(one.value, float(decimal(right))):
        return  # so long it ran in them
    message = f"{one.text} -> {right}: from {first:%d %b} to {last:%d %b} it is {right} {one.unit}"
    yield Finding(file=file, line=sentence.line_at(one.start), code="date-order", level="error", message=message,
                  column=one.unit, printed=one.text, proposed=right)  # fmt: skip


_UNITS = re.compile(r"^[ -]?[a-zа-я\u3040-\u9fff]+", re.IGNORECASE)


def _lasting(one: Figure) -> _Lasts:
    unit = {24.0: "days", 168.0: "weeks"}.get(one.scale, "hours")
    return _Lasts(one.text, one.start, one.value / (one.scale if unit != "hours" else 1.0), unit)


# ---- days of the week

_TONGUES = tuple(names.split() for names in (
    "mon tue wed thu fri sat sun", "mon tues wed thurs fri sat sun", "monday tuesday wednesday thursday friday saturday sunday",
    "mo di mi do fr sa so", "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    "lundi mardi mercredi jeudi vendredi samedi dimanche", "lunes martes miercoles jueves viernes sabado domingo",
    "lunedi martedi mercoledi giovedi venerdi sabato domenica", "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    "понедельник вторник среда четверг пятница суббота воскресенье", "пн вт ср чт пт сб вс", "月 火 水 木 金 土 日",
    "周一 周二 周三 周四 周五 周六 周日", "星期一 星期二 星期三 星期四 星期五 星期六 星期日", "월 화 수 목 금 토 일"))
_PLACE = {name: place for names in _TONGUES for place, name in enumerate(names)}
_LONG = "|".join(sorted((name for name in _PLACE if len(name) > 2), key=len, reverse=True))
_ANY = "|".join(sorted(_PLACE, key=len, reverse=True))
_has_weekday = re.compile(r"\b(?:(?:mon|tue|wed|thu|fri|sat|sun)(?:[a-z]*day|s|rs)?\b|(?:mo|di|mi|do|fr|sa|so)[.,] ?\d|"
                          r"(?:lun|mar|mi?er|mer|jeu|gio|ven|vie|sab|sam|dom|dim)[a-z]*[ ,]|(?:пн|вт|ср|чт|пт|сб|вс)\b)|"
                          r"tag\b|周|曜|星期|[(（][月火水木金土日월화수목금토일]")  # fmt: skip
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun", "tag", "mo.", "di.", "mi.", "do.", "fr.", "sa.",
             "so.", "lun", "mar", "mer", "mier", "jeu", "gio", "ven", "vie", "saba", "sam", "dom",
             "dim", "周", "曜", "星期", *(sign + day for sign in "(（" for day in "月火水木金土日월화수목금토일"),
             "пн", "вт", "ср", "чт", "пт", "сб", "вс")  # fmt: skip
"""Without any of which, in small letters, a text has none; `usable` is no Saturday."""
_BEFORE = re.compile(rf"(?<![\w.])(?P<name>{_LONG}|(?:mo|di|mi|do|fr|sa|so)(?=[.,]))(?:[.,]{{1,2}}|, (?:the|den|le|el|il))? "
                     rf"(?:le |den |the |el )?(?={_ONE.pattern})", re.IGNORECASE)  # fmt: skip
_BEHIND = re.compile(rf"(?:,? |, ?|(?= ?[(（]))[ (（\[]{{0,2}}(?P<name>{_ANY})(?:曜日?)?(?=[)\]>）,.;: |]|$)", re.IGNORECASE)


def _weekdays(file: str, lines: tuple[str, ...]) -> list[Finding]:
    said: list[tuple[int, str, int, tuple[int, int, int]]] = []
    for number, line in enumerate(lines, 1):
        if not line or len(line) > LONGEST or not _has_weekday.search(letters := plain(line).casefold()):
            continue
        shown = plain(line)
        taken: set[int] = set()
        for match in _BEFORE.finditer(letters):
            one = _ONE.match(letters, match.end())
            short = len(match["name"]) == 2 and match["name"].isascii() and not shown[match.start("name")].isupper()
            if one is not None and not short and (day := _day(one, 1)) is not None:
                taken.add(one.start())
                said.append((number, shown[match.start("name") : match.end("name")], _PLACE[match["name"]], day))
        for one in _ONE.finditer(letters):
            behind = _BEHIND.match(letters, one.end()) if one.start() not in taken else None
            if behind is not None and (day := _day(one, 1)) is not None:
                said.append((number, shown[behind.start("name") : behind.end("name")], _PLACE[behind["name"]], day))
    years = {day[0] for *_, day in said if day[0]}
    bare = [one for one in said if not one[3][0]]
    if bare and len(bare) >= FEWEST:  # the year that all but one of them are of
        fits = {year: sum(_falls(day, year) == place for _, _, place, day in bare) for year in years or YEARS}
        best = max(fits.values())
        best_years = [year for year, many in fits.items() if many == best]
        year = best_years[0] if best >= len(bare) - 1 else 0
    else:
        year = next(iter(years)) if len(years) == 1 and bare and any(
            _falls(day, next(iter(years))) == place for _, _, place, day in bare) else 0  # fmt: skip
    odd = [(number, name, place, day, right) for number, name, place, day in said
           if (its := day[0] or year) and (right := _falls(day, its)) is not None and right != place]  # fmt: skip
    if len(odd) > max(1, len(said) // 4):
        return []
    return [_finding(file, number, name, right, day, len(said)) for number, name, _, day, right in odd]


def _falls(day: tuple[int, int, int], year: int) -> int | None:
    try:
        return date(day[0] or year, day[1], day[2]).weekday()
    except ValueError:
        return None


def _finding(file: str, number: int, name: str, right: int, day: tuple[int, int, int], many: int) -> Finding:
    names = next(names for names in _TONGUES if name.casefold() in names)
    meant = names[right]
    meant = meant.capitalize() if name[:1].isupper() else meant
    message = f"{name} -> {meant}: on that day of the week {day[2]}/{day[1]} fell{' as the others do' if many > 2 else ''}"
    return Finding(file=file, line=number, code="date-order", level="error" if many > 1 else "warning", message=message,
                   column="weekday", printed=name, proposed=meant)  # fmt: skip
