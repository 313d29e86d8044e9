"""Phases with a first and a last moment, beside how long they took: the one is the difference of the others.

    check(sheet)          findings on the one row whose dates and time deny each other, and which of them it is

    | job | started      | died         | hours |
    | 1   | 27 May 09:00 | 29 May 11:30 |  50.5 |
    | 2   | 29 May 15:00 | 30 May 19:41 |  48.7 |          from then till then are 28.7 hours

What days are counted the other rows tell: both ends, the nights between, or those that are whole. Which cell is wrong the
phases around tell, which leave room for the right days; what else follows from the time; and how a hand slips. A time that its
dates give is right, whatever else of the row is not: `Row.sure`.
"""
from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from seatrial.notes.lint import digits
from seatrial.notes.lint.columns.broken import broken_and_kept, is_part
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.phases import days
from seatrial.notes.lint.phases.days import Moment
from seatrial.notes.lint.phases.ledger import CLEAR, like, name_of
from seatrial.notes.lint.phases.quantities import meanings
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean, normal
from seatrial.tables.tongues import in_english, plain_letters

FEWEST, MOST = 3, 60
DAY = 24.0
SHARE = 0.6
"""Of the rows that keep to one way of counting days."""
NEAR, OFF = 0.3, 0.08
"""Hours by which clocks miss each other; from which share of it on a time is off."""
CLOSELY = 0.03
"""Beyond the days within which a time that follows from other columns fits the dates."""
LEAD = 1.0
"""Points by which one change has to be likelier than the next."""
_GAP = re.compile(r"\b(?:until|till|before) (?:the )?(?:next|restart|resum\w*)|\b(?:pause|gap|downtime|down|idle|outage|"
                  r"lost time|stillstand|ausfall|arret|parada|przerwa|fermo|stilstand)\b|"
                  r"простои|停机|中断|停止|중단", re.IGNORECASE)  # fmt: skip
_A_TIME = re.compile(r"(?:~|≈|ca\.? )?(\d+(?:[.,]\d+)?) ?(d|days?|h|hrs?|hours?|min|minutes?|Tage?|Std\.?|Stunden|jours?|j|"
                     r"heures?|días?|horas?|giorni|ore|dagen|uur)?(?: (\d{1,2}) ?(h|hours?|min))?", re.IGNORECASE)
_UNITS = {"d": DAY, "t": DAY, "j": DAY, "g": DAY, "h": 1.0, "s": 1.0, "o": 1.0, "u": 1.0, "m": 1 / 60}


@dataclass(frozen=True)
class Phase:
    row: Row
    start: Moment
    end: Moment
    span: float
    """Hours from one to the other."""
    took: float
    """Hours that a column says."""
    open_: float
    """Half of the last digit of that."""


@dataclass(frozen=True)
class Way:
    """How days are counted between two dates."""

    name: str
    low: float
    high: float
    """What the time may be more than the difference of the dates, in hours."""

    def off(self, phase: Phase) -> float:
        """By how many hours the time is out of it."""
        more = phase.took - phase.span
        return more - self.high - phase.open_ if more > self.high + phase.open_ else min(0.0, more - self.low + phase.open_)


EXACT = (Way("the nights between", 0.0, 0.0), Way("both ends", DAY, DAY))
WHOLE, ABOUT = Way("whole days", 0.0, DAY - 0.01), Way("about", 0.01 - DAY, DAY - 0.01)
ROOM, MOST_ROOM = Way("no more than there is room for", -math.inf, DAY), 40
BY_CLOCK, BY_HOUR, NET = Way("by the clock", -NEAR, NEAR), Way("by the hour", -1.0, 1.0), Way("and a little beside", -2.0, NEAR)


def check(sheet: Sheet) -> list[Finding]:
    return [finding for mates in sheet.tables.values() if FEWEST <= len(mates) <= MOST for finding in _of_table(mates)]


def _of_table(mates: list[Row]) -> Iterator[Finding]:
    rows = [row for row in mates if not is_aggregate(row)]
    pair = _columns(rows) if len(rows) >= FEWEST else None
    if pair is None:
        return
    kinds = [(heading, kind, unit) for heading in rows[0].cells for kind, unit in meanings(heading)]
    times = [(heading, unit, False) for heading, kind, unit in kinds if kind == "hours"]
    times = times or [(heading, unit, True) for heading, kind, unit in kinds if kind == "device hours"]
    for heading, unit, shared in times:
        phases = _phases(rows, pair, heading, unit, shared=shared)
        way = _way(phases, pair) if len(phases) >= FEWEST else None
        if way is None:
            continue
        odd = [phase for phase in phases if abs(way.off(phase)) > _least(phase, way)]
        for phase in phases:
            if not way.off(phase) and way is not ROOM and not shared:
                known = way.high - way.low + 2 * phase.open_ + 2 * NEAR
                phase.row.sure[name_of(phase.row, heading)] = math.log1p(known / max(phase.took, known / 10))
        if len(odd) <= max(1, len(phases) // 3):
            for phase in odd:
                yield from _told(phase, phases, way, pair, heading, shared=shared)
        return


def _least(phase: Phase, way: Way) -> float:
    """Hours from which on a time is off."""
    return max(OFF * min(phase.took, max(phase.span, 1.0)), 2 * NEAR if way in (BY_CLOCK, BY_HOUR, NET) else 0.75 * DAY)


# ---- which columns, and how they are counted

_STARTS, _ENDS = (re.compile(
    rf"(?:date |job |run )?(?:{words})(?: date| time| utc)?|(?:date de|data|fecha|data de) (?:{dated})", re.IGNORECASE,
) for words, dated in (
    (r"start(?:ed)?|began|begin|from|launch(?:ed)?|submitted|debut|inicio|beginn|anfang|von|ab|inizio|desde|du|de|da|dal|van|od|"
     r"poczatek|с|начало|开始|開始|시작|depart", "debut|inizio|inicio"),
    (r"end(?:ed)?|until|till|to|died|crashed|killed|stopped|fin|ende|bis|fine|hasta|au|a|al|ate|tot|do|eind|einde|koniec|по|до|"
     r"конец|结束|終了|종료|finish(?:ed)?|stop|last|fim", "fin|fine|fim")))  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _ends_of(headings: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(one, other) for one, other in pairwise(headings) if _is_one(_STARTS, one) and _is_one(_ENDS, other)]


def named(row: Row) -> tuple[str, str] | None:
    """The headings that say which days are the first and the last of a phase, side by side."""
    pairs = _ends_of(tuple(row.cells))
    dated = [pair for pair in pairs if all(days.is_one(row.cells[heading], surely=True) for heading in pair)]
    return dated[0] if len(dated) == 1 else None


def _columns(rows: list[Row]) -> tuple[str, str] | None:
    """Those, or the only two columns of days."""
    pair = named(rows[0])
    if pair is not None:
        return pair
    likely = [heading for heading, cell in rows[0].cells.items() if days.is_one(cell)]
    dated = [heading for heading in likely if len(likely) > 1
             and sum(days.is_one(row.cells.get(heading, "")) for row in rows) >= 0.8 * len(rows)]  # fmt: skip
    if len(dated) != 2:
        return None
    beside = [*pairwise(rows[0].cells)]
    return (dated[0], dated[1]) if (dated[0], dated[1]) in beside else None


@functools.lru_cache(maxsize=4096)
def _is_one(words: re.Pattern[str], heading: str) -> bool:
    return words.fullmatch(normal(plain_letters(clean(heading)).casefold()).strip()) is not None


def _phases(rows: list[Row], pair: tuple[str, str], heading: str, unit: float, *, shared: bool) -> list[Phase]:
    """`shared`: of hours of all devices."""
    cells = [row.cells.get(one, "") for row in rows for one in pair]
    found = days.moments(cells, surely=named(rows[0]) is not None)
    years = _years(rows[0])
    leap = bool(years) and all(year % 4 == 0 for year in years)
    phases = []
    for row, start, end in zip(rows, found[::2], found[1::2]):
        took = _hours_in(row.cells.get(heading, ""), unit / (row.world or math.inf) if shared else unit)
        if start is None or end is None or took is None:
            continue
        first, last = days.hours(start, leap=leap), days.hours(end, leap=leap)
        if first is None or last is None:
            continue
        turn = not start[0] and end[1] < start[1] - 6
        phases.append(Phase(row, start, end, last - first + (365 * DAY if turn else 0.0), *took))
    return phases


def _years(row: Row) -> set[int]:
    """That the text names."""
    return {int(year) for line in row.sheet.text(row).lines[:40] for year in _YEAR.findall(line)}


_YEAR = re.compile(r"(?<![\d.,/-])20[12]\d(?![\d.,]\d)")


def _hours_in(cell: str, unit: float) -> tuple[float, float] | None:
    """A time in hours, and half of its last digit."""
    match = _A_TIME.fullmatch(clean(cell).strip())
    if match is not None and match[3] and match[2]:
        small = 1.0 if match[4][0].lower() == "h" else 1 / 60
        return float(match[1].replace(",", ".")) * _UNITS[match[2][0].lower()] + int(match[3]) * small, small / 2
    value = digits.alone(cell) if match is None or not match[2] else float(match[1].replace(",", "."))
    if not value or not 0 < value < 1e6:
        return None
    unit = _UNITS[match[2][0].lower()] if match is not None and match[2] else unit
    return value * unit, 0.5 * unit * 10.0 ** -digits.places(cell)


def _way(phases: list[Phase], pair: tuple[str, str]) -> Way | None:
    """How days are counted: the closest that most rows keep to."""
    clocks = all(days.has_clock(phase.row.cells[heading]) for phase in phases for heading in pair)
    whole = clocks and all(not one[4] for phase in phases for one in (phase.start, phase.end))
    for way in ((BY_HOUR if whole else BY_CLOCK, NET) if clocks else (*EXACT, WHOLE, ABOUT, ROOM)):
        kept = sum(not way.off(phase) for phase in phases)
        if kept >= max(FEWEST if way is ABOUT else 2, SHARE * len(phases)):
            return way
    return None


# ---- which cell it is


@dataclass(frozen=True)
class _Change:
    heading: str
    text: str
    points: float
    why: str = ""


def _told(phase: Phase, phases: list[Phase], way: Way, pair: tuple[str, str], heading: str, *,
          shared: bool) -> Iterator[Finding]:
    row, at = phase.row, phases.index(phase)
    turned = phase.span < 0 and (pair[0] in row.cells) and not way.off(replace(phase, span=-phase.span))
    if row.settled or turned or phase.span > 0 and _proves(phase, way, name_of(row, heading)):
        return  # `dated` tells of days that were exchanged
    before, after = phases[at - 1] if at else None, phases[at + 1] if at + 1 < len(phases) else None
    others = [one for one in phases if one is not phase]
    in_line = all(one.start <= other.start for one, other in pairwise(others))
    apart = in_line and all(_moment(one.end) <= _moment(other.start) for one, other in pairwise(others))
    changes = list(_of_days(phase, way, pair, (before, after) if apart else (None, None)))
    changes += () if shared else _of_time(phase, way, heading, phases)
    if after is not None and (gap := _gap(row, after)) is not None:
        # The time until the next one began tells the end.
        changes = [_Change(one.heading, one.text, one.points + (3.0 if (one.heading == pair[1]) != gap else 0.0), one.why)
                   for one in changes]  # fmt: skip
    changes = sorted(changes, key=lambda one: -one.points)
    if not changes:
        return
    best = changes[0] if len(changes) == 1 or changes[0].points >= changes[1].points + LEAD else None
    between = _in_words(phase.span + way.low if way in EXACT else phase.span)
    span = f"from {row.cells[pair[0]]} to {row.cells[pair[1]]} are {between}"
    row.settled = True
    if best is None or best.points < 0:
        options = ", ".join(f"{one.heading} {one.text}{one.why}" for one in changes[:3])
        message = f"{span}, and not {row.cells[heading]}: one cell is wrong, {options} would each do"
        yield row.find("date-order", "error", message, column=changes[0].heading, printed=row.cells[changes[0].heading])
        return
    level: Level = "error" if len(phases) > FEWEST or best.why or way is not ABOUT else "warning"
    if best.heading == heading:
        row.settled = False
        row.propose(name_of(row, heading), digits.alone(best.text) or 0.0, "date-order")
    shown = row.cells[best.heading]
    message = f"{best.heading} {shown} -> {best.text}{best.why}: {span}, and not {row.cells[heading]}"
    yield row.find("date-order", level, message, column=best.heading, printed=shown, proposed=best.text)


def _in_words(hours: float) -> str:
    return f"{hours / DAY:.0f} days" if hours > 3 * DAY and hours % DAY == 0 else f"{hours:.1f} hours"


def _moment(day: Moment) -> float:
    return days.hours(day) or 0.0


def _of_time(phase: Phase, way: Way, heading: str, phases: list[Phase]) -> Iterator[_Change]:
    row, cell = phase.row, phase.row.cells[heading]
    meant = phase.span + (way.low if way in EXACT else 0.0)
    low, high = _room(phase, way)
    if meant <= 0 or way is ROOM or _A_TIME.fullmatch(clean(cell).strip()) is None:
        return
    points = -4.0 if any(is_part(name_of(row, heading), relation) for relation, _ in broken_and_kept(row)[1]) else 0.0
    scale = phase.took / float(digits.plain(cell) or 1)
    open_ = min(one.open_ for one in phases)
    if way is BY_CLOCK:
        low, high = meant, meant
    slip = digits.slip(cell, ((low - open_) / scale, (high + open_) / scale))
    pasted = any(one.row.cells[heading] == cell and abs(one.row.place - row.place) == 1 for one in phases if one is not phase)
    if slip is not None and way.high - way.low < DAY:
        points += 2.0 if slip.how in CLEAR else 1.0
        yield _Change(heading, like(cell, slip.value, slip.text), points, f" ({slip.how})")
    else:
        text = f"{meant / scale:.{digits.places(cell)}f}"
        yield _Change(heading, like(cell, meant / scale, text), points + (1.5 if pasted else 0.0))


def _room(phase: Phase, way: Way) -> tuple[float, float]:
    """The hours that the dates leave."""
    return max(0.01, phase.span + way.low), max(0.02, phase.span + way.high)


def _proves(phase: Phase, way: Way, name: str) -> bool:
    """Whether what else follows from the time says what the dates say: then a rule of columns tells which it should be."""
    row, (low, high) = phase.row, _room(phase, way)
    found = False
    for relation, _, off in broken_and_kept(row)[0]:
        power = dict(relation.terms).get(name)
        if power and abs(off) < 50 and low * (1 - CLOSELY) <= phase.took * math.exp(-off / power) <= high * (1 + CLOSELY):
            row.sure.update((other, CLOSELY) for other, _ in relation.terms if other != name)
            found = True
    return found


def _of_days(phase: Phase, way: Way, pair: tuple[str, str], around: tuple[Phase | None, Phase | None]) -> Iterator[_Change]:
    """Another first day, or another last one, between the phases around."""
    before, after = around
    row = phase.row
    for heading, was, sign in ((pair[1], phase.end, 1), (pair[0], phase.start, -1)):
        other, shown = phase.start if sign > 0 else phase.end, row.cells[heading]
        beside = after.start if sign > 0 and after is not None else before.end if sign < 0 and before is not None else None
        low, high = (-math.inf, math.inf) if beside is None else (-math.inf, _moment(beside)) if sign > 0 else (
            _moment(beside), math.inf)  # fmt: skip
        found = []
        for more in _lengths(phase, way, days.has_clock(shown)):
            meant = days.after(other, sign * more)
            if meant is None or meant == was:
                continue
            alike = (*meant[:3], *was[3:])  # at the time of day that is said
            if abs(_moment(alike) - _moment(meant)) <= phase.open_ + max(NEAR, -way.low * (way is NET)):
                meant = alike
            points, why = _like_slip(was, meant)
            points += 0.5 * (meant == beside) + _in_order(_moment(was), _moment(meant), low=low, high=high)
            found.append(_Change(heading, days.written(shown, was, meant), points, why))
        if found:
            yield max(found, key=lambda one: one.points)


def _lengths(phase: Phase, way: Way, clock: bool) -> list[float]:
    """Hours from the first moment to the last that keep to a way of counting, the likeliest first."""
    if clock:
        return [phase.took]
    if way in EXACT:
        return [phase.took - way.low]
    first = phase.took - phase.took % DAY
    if way is ROOM:
        return [first + DAY * more for more in range(MOST_ROOM) if first + DAY * (more + 1) + phase.open_ >= phase.took]
    return [first] if way is WHOLE else [first, first + DAY] if phase.took % DAY else [first]


def _like_slip(was: Moment, meant: Moment) -> tuple[float, str]:
    """How likely a hand wrote the one for the other."""
    if was[2:] == meant[2:]:
        return (1.5, " (another month)") if was[1] != meant[1] else (1.5, " (another year)")
    if was[:2] == meant[:2]:
        one, other = f"{was[2]:02d}", f"{meant[2]:02d}"
        if one == other[::-1]:
            return 2.0, " (two digits exchanged)"
        if sum(a != b for a, b in zip(one, other)) == 1:
            return 1.0, " (one digit changed)"
        return 0.0, ""
    return -1.0, ""


def _in_order(was: float, now: float, *, low: float = -math.inf, high: float = math.inf) -> float:
    """What the phase beside it says to another day."""
    fits, fitted = low <= now <= high, low <= was <= high
    return 2.0 if fits and not fitted else -5.0 if not fits else 0.0


def _gap(row: Row, after: Phase) -> bool | None:
    """Whether the time that a column says passed until the next phase fits the last moment; None where no column says one."""
    heading = next((one for one in row.cells if _GAP.search(normal(in_english(plain_letters(clean(one)), surely=True)))), None)
    said = _hours_in(row.cells[heading], 1.0) if heading is not None else None
    if said is None:
        return None
    pair = _columns(row.mates)
    end = days.moments((row.cells[pair[1]],), surely=True)[0] if pair is not None else None
    return None if end is None else abs(_moment(after.start) - _moment(end) - said[0]) <= said[1] + NEAR


