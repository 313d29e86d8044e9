"""Days and times of day as cells write them: `04.11.`, `29 Jan 2025`, `3/12`, `2025-02-03 14:00`, `5月3日`.

    moments(cells)                       (year, month, day, hour, minute) of each, None where one is no day
    written(cell, was, meant)            the cell with another day

Whether `3/4` is in March or in April the other cells of the columns tell; nobody has a thirteenth month.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from seatrial.tables.headings import clean
from seatrial.tables.tongues import plain_letters

Moment = tuple[int, int, int, int, int]
"""Year, or 0 where none is said; month, day, hour, minute."""
_NAMES = ("jan ene gen янв sty", "feb fev фев lut", "mar mrt maerz мар", "apr avr abr апр kwi",
          "may mai mag мая май maj mei", "jun juin giu июн cze", "jul juil lug июл lip", "aug aou ago авг sie",
          "sep set сен wrz", "oct okt ott out окт paz", "nov ноя lis", "dec dez dic дек gru")  # fmt: skip
_MONTHS = {plain_letters(name): place for place, names in enumerate(_NAMES, 1) for name in names.split()}
_ENGLISH = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WORD = r"[^\W\d_]{3,12}"
_CLOCK = r"(?:(?:,? |T|, )(?P<hour>\d{1,2})(?:[:.h](?P<minute>\d{2})(?::\d{2})?)?(?: ?(?:h|UTC|Uhr|Z|CET|CEST))?)?"
_WEEKDAY = r"(?:[^\W\d_]{2,4}\.?,? )?"
_FORMS = tuple(re.compile(_WEEKDAY + form + _CLOCK, re.IGNORECASE) for form in (
    r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})", r"(?P<month>\d{1,2})-(?P<day>\d{1,2})",
    r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4}|\d{2})?",
    rf"(?P<day>\d{{1,2}})\.?[ -](?:de |d')?(?P<word>{_WORD})\.?(?:,? |-)?(?:de )?(?P<year>\d{{4}})?",
    rf"(?P<word>{_WORD})\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<year>\d{{4}}))?",
    r"(?:(?P<year>\d{4})[年년] ?)?(?P<month>\d{1,2})[月월] ?(?P<day>\d{1,2})[日일号]?"))  # fmt: skip
_STROKES, _STROKES_BACK = (
    re.compile(rf"{_WEEKDAY}(?P<{first}>\d{{1,2}})/(?P<{second}>\d{{1,2}})(?:/(?P<year>\d{{4}}|\d{{2}}))?{_CLOCK}")
    for first, second in (("day", "month"), ("month", "day")))


_UNSURE = re.compile(r"[1-9]\d?/[1-9]\d?")


@functools.lru_cache(maxsize=8192)
def _match(cell: str, *, month_first: bool = False) -> re.Match[str] | None:
    if not any(map(str.isdigit, cell)) or len(cell) > 40:
        return None
    strokes = _STROKES_BACK if month_first else _STROKES
    match = next((found for form in (*_FORMS, strokes) if (found := form.fullmatch(cell)) is not None), None)
    return match if match is not None and _read(match) is not None else None


def _read(match: re.Match[str]) -> Moment | None:
    said = match.groupdict()
    word = plain_letters((said.get("word") or "").casefold())
    month = next((_MONTHS[word[:n]] for n in (5, 4, 3) if word[:n] in _MONTHS), 0) if word else int(said.get("month") or 0)
    year, day, hour = int(said.get("year") or 0), int(said["day"]), int(said["hour"] or 0)
    year += 2000 if 0 < year < 100 else 0
    minute = int(said["minute"] or 0)
    good = 1 <= month <= 12 and 1 <= day <= 31 and hour <= 24 and minute < 60
    return (year, month, day, hour, minute) if good else None


def moments(cells: Sequence[str], *, surely: bool = False) -> list[Moment | None]:
    """Of the cells of columns that belong together. `surely`: by their headings they are days, as `4/8` may be or not."""
    shown = [clean(cell).strip() for cell in cells]
    shown = [cell if surely or not _UNSURE.fullmatch(cell) else "" for cell in shown]
    strokes = [match for cell in shown if "/" in cell and (match := re.match(r"\D*(\d{1,2})/(\d{1,2})(?!\d)", cell))]
    back = any(int(one[2]) > 12 for one in strokes) and not any(int(one[1]) > 12 for one in strokes)
    found = [_match(cell, month_first=back) for cell in shown]
    return [None if match is None else _read(match) for match in found]


@functools.lru_cache(maxsize=8192)
def is_one(cell: str, *, surely: bool = False) -> bool:
    """Whether a cell is a day; asked of every column of every table."""
    return not _A_NUMBER.fullmatch(cell) and moments((cell,), surely=surely)[0] is not None


_A_NUMBER = re.compile(r"[^\d]*|\d*(?:,\d{3})*(?:[.,]\d+)?")


def has_clock(cell: str) -> bool:
    match = _match(clean(cell).strip())
    return match is not None and match["hour"] is not None


def hours(day: Moment, *, leap: bool = False) -> float | None:
    """Since some beginning; None of a day that no month has."""
    try:
        when = datetime(day[0] or (2004 if leap else 2001), *day[1:3]) + timedelta(hours=day[3], minutes=day[4])
    except (ValueError, OverflowError):
        return None
    return (when - datetime(2000, 1, 1)).total_seconds() / 3600


def after(day: Moment, more: float, *, leap: bool = False) -> Moment | None:
    """The moment so many hours later."""
    since = hours(day, leap=leap)
    if since is None or abs(more) > 1e6:
        return None
    when = datetime(2000, 1, 1) + timedelta(hours=since) + timedelta(minutes=round(60 * more))
    return (when.year if day[0] else 0, when.month, when.day, when.hour, when.minute)


def written(cell: str, was: Moment, meant: Moment) -> str:
    """As the cell writes it."""
    shown = clean(cell).strip()
    ways = (_match(shown, month_first=back) for back in (False, True))
    match = next((one for one in ways if one is not None and (its := _read(one)) is not None and its[:3] == was[:3]), None)
    if match is None or shown not in cell:
        return cell
    parts: list[tuple[int, int, str]] = []
    for name, old, new in zip(("year", "month", "day", "hour", "minute"), was, meant):
        if old == new:
            continue
        if name == "month" and "word" in match.re.groupindex and match["word"]:
            parts.append((*match.span("word"), _named(match["word"], new)))
        elif name in match.re.groupindex and match[name]:
            so_many = len(match[name])
            parts.append((*match.span(name), f"{new % 100 if name == 'year' and so_many == 2 else new:0{so_many}d}"))
    text = shown
    for start, end, other in sorted(parts, reverse=True):
        text = f"{text[:start]}{other}{text[end:]}"
    return cell.replace(shown, text, 1)


def _named(word: str, month: int) -> str:
    """Another month, in so many letters."""
    name = _ENGLISH[month - 1]
    return name if word[:1].isupper() else name.lower()
