"""Phases with the days that they began and ended on: one ends no earlier than it begins, and no later than the next begins.

    check(sheet)          findings on dates that the rows around deny

    | phase | start  | end    |
    | 1     | 29 Sep | 01 Nov |          the next one began on 3 October
    | 2     | 03 Oct | 04 Oct |

Days of any other column stand in their order, with or without a clock: the one that does not is told where a digit or a month
makes it fit between its neighbours.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from itertools import pairwise

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.phases import days, lasting
from seatrial.notes.lint.phases.days import Moment
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import normal
from seatrial.tables.tongues import in_english

FEWEST, MOST_ROWS = 3, 60


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        rows = [row for row in mates if not is_aggregate(row)] if FEWEST <= len(mates) <= MOST_ROWS else []
        if len(rows) < FEWEST:
            continue
        pair = lasting.named(rows[0])
        headings = [*(pair or (heading for heading, cell in rows[0].cells.items() if days.is_one(cell)))]
        cells = list(dict.fromkeys(row.cells.get(heading, "") for row in rows for heading in headings))
        read = {cell: day for cell, day in zip(cells, days.moments(cells, surely=pair is not None)) if day is not None}
        told = list(_told(rows, read, *pair)) if pair is not None else []
        if not any(one.proposed for one in told):
            told = (_out_of_line(rows, read, pair) if read else []) or told
        found += told
    return found


# ---- days in a line

_LASTS = re.compile(r"(?:wall |run ?|net )?(?:(days?|d)|hours?|h)(?: h)?")
Days = dict[str, Moment]


def _out_of_line(rows: list[Row], read: Days, pair: tuple[str, str] | None) -> list[Finding]:
    """Of days that are in order but for one, what another digit or month of that one makes fit."""
    columns = [heading for heading, cell in rows[0].cells.items() if cell in read]
    for headings in [pair] if pair else [(heading,) for heading in columns]:
        dates = [(row, heading, day) for row in rows for heading in headings if (day := read.get(row.cells.get(heading, "")))]
        line = [day for _, _, day in dates]
        months = {day[1] for day in line if not day[0]}
        if len(line) < 2 * FEWEST - 2 or len(line) < 0.8 * len(rows) * len(headings) or line == sorted(line) or (
                months and max(months) - min(months) > 6):
            continue
        odd = [at for at in range(1, len(line) - 1) if _ordered([*line[:at], *line[at + 1 :]])]
        once = len({*line}) == len(line)
        fits = {at: [one for one in _other_days(line[at]) if line[at - 1] <= one <= line[at + 1]
                     and (not once or line[at - 1] < one < line[at + 1])] for at in odd}  # fmt: skip
        fits = {at: made for at, made in fits.items() if made}
        if len(fits) == 1:
            at, made = next(iter(fits.items()))
            row, heading, was = dates[at]
            made = _that_lasts(row, read, pair, heading, made) if pair and len(made) > 1 else made
            return [_finding(row, heading, was, made)]
    return []


def _ordered(line: list[Moment]) -> bool:
    return all(one <= other for one, other in pairwise(line))


def _other_days(was: Moment) -> list[Moment]:
    """What another digit of the day, its digits exchanged, another month or the year beside it gives."""
    year, month, day, *clock = was
    text = f"{day:02d}"
    days = {int(text[:at] + digit + text[at + 1 :]) for at in (0, 1) for digit in "0123456789"} | {int(text[::-1])}
    made = [(year, month, other) for other in days if 1 <= other <= 31] + [(year, other, day) for other in range(1, 13)]
    made += [(year + 1, month, day), (year - 1, month, day)] if year else []
    return [(*one, *clock) for one in dict.fromkeys(made) if one != was[:3]]  # type: ignore[misc]


def _that_lasts(row: Row, read: Days, pair: tuple[str, str], heading: str, made: list[Moment]) -> list[Moment]:
    """Those that leave the time between start and end that a column says the phase took."""
    taken = next(((value, match) for name in row.cells if (match := _LASTS.fullmatch(normal(in_english(name, surely=True))))
                  and (value := digits.alone(row.cells[name]))), None)  # fmt: skip
    other = read.get(row.cells[pair[0] if heading == pair[1] else pair[1]])
    if taken is None or other is None:
        return made
    hours = taken[0] * (24 if taken[1][1] else 1)
    off = sorted((abs(abs(_hours(one) - _hours(other)) - hours), one) for one in made)
    return [off[0][1]] if off[0][0] < 0.25 * hours + 4 and off[0][0] + 12 < off[1][0] else made


def _hours(day: Moment) -> float:
    first = date(day[0] or 2001, day[1], 1).toordinal() if day[0] < 9999 else 0
    return (first + day[2]) * 24 + day[3] + day[4] / 60


def _finding(row: Row, heading: str, was: Moment, made: list[Moment]) -> Finding:
    shown = row.cells[heading]
    proposed = days.written(shown, was, made[0]) if len(made) == 1 else None
    message = f"{heading} {shown}{f' -> {proposed}' if proposed else ''}: all other dates of the column are in order"
    return row.find("date-order", "error" if proposed else "warning", message, column=heading, printed=shown, proposed=proposed)


# ---- phases


def _told(mates: list[Row], read: Days, start: str, end: str) -> Iterator[Finding]:
    days_of = {row: (read.get(row.cells.get(start, "")), read.get(row.cells.get(end, ""))) for row in mates}
    rows = [(row, one[:3], other[:3]) for row, (one, other) in days_of.items() if one is not None and other is not None]
    firsts = [first for _, first, _ in rows]
    months = [day[1] for _, *days in rows for day in days if not day[0]]
    if len(rows) < FEWEST or months and max(months) - min(months) > 6:
        return  # perhaps over the turn of a year that nobody says
    for at, (row, first, last) in enumerate(rows):
        before, after = rows[at - 1] if at else None, rows[at + 1] if at + 1 < len(rows) else None
        others = [one for place, one in enumerate(firsts) if place != at]
        if others != sorted(others):
            continue  # in no order that anybody could tell
        late = after is not None and last > after[1]
        once = sum(one[2] > other[1] for one, other in pairwise(rows)) == 1  # else several run at a time
        early = before is not None and first < before[2]
        low, high = before[2] if before else (first[0], 1, 1), after[1] if after else (last[0], 12, 31)
        if last >= first and not (late and once and not early):
            continue
        ends, starts = list(_slips(last, first, high)), list(_slips(first, low, last))
        if last < first and not ends and not starts and low <= last and first <= high:  # one stands where the other belongs
            message = f"{start} {row.cells[start]} -> {row.cells[end]}: ends before it begins, and exchanged it fits the others"
            yield row.find("date-order", "error", message, column=start, printed=row.cells[start], proposed=row.cells[end])
            continue
        chosen = (end, last, ends) if ends and not (starts and last <= high and first < low) else (start, first, starts)
        heading, was, meant = chosen
        shown = row.cells[heading]
        proposed = days.written(shown, (*was, 0, 0), (*meant[0], 0, 0)) if len(meant) == 1 else None
        between = before is not None and after is not None and low <= last < first <= high
        exchanged = proposed is None and between
        if exchanged:  # each would do in the other's place
            heading, shown, proposed = start, row.cells[start], row.cells[end]
        why = "ends before it begins" if last < first or after is None else f"ends after {after[0].where} begins"
        message = f"{heading} {shown}{f' -> {proposed}' if proposed else ''}: {why}{f', exchanged with {end}' * exchanged}"
        level: Level = "error" if last < first and proposed else "warning"
        yield row.find("date-order", level, message, column=heading, printed=shown, proposed=proposed)


def _slips(was: tuple[int, int, int], low: tuple[int, int, int], high: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    """Days within others that another month, or the digits of the day exchanged, gives."""
    year, month, day = was
    turned = int(f"{day:02d}"[::-1])
    made = [(year, month + 1, day), (year, month - 1, day), (year, month, turned)]
    yield from (one for one in made if one != was and low <= one <= high and 1 <= one[1] <= 12 and 1 <= one[2] <= 31)
