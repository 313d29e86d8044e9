"""What a layout may do to a figure: four devices for one take no more than the fourth part of the time off, and twice the
micro-batch no more than twice the memory. A row that its neighbours deny all together was mistyped.

    check(sheet, doubted)                findings on figures that lie outside what the rows most like theirs allow

It takes no formula and no second column: each setting has a least and a most power by which a figure follows it, and whatever
two rows differ in adds up. Where one row breaks that with most of the rows that it can be compared with, and those keep to it
among themselves, it is the one.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

from seatrial.notes.lint import digits
from seatrial.notes.lint.columns.broken import broken_and_kept
from seatrial.notes.lint.digits import places, slips
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.row import CONFIGURATION, Row
from seatrial.notes.lint.rows import bounds
from seatrial.notes.lint.rows.bounds import LEAST, MOST, POWERS, SWITCHED, Ends
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.exceptions import is_excepted

BEYOND, WIDEST = math.log(1.3), math.log(20.0)
"""How far outside of what a row allows another one is no scatter; and how much it may allow to say anything at all."""
SCATTER = 1.15
"""Within which a figure is as another row has it."""
FEWEST, AT_ONCE, SHARE, ODD = 4, 40, 0.6, 6
"""Rows; that are compared with each other; which share of them has to deny a row; and one in how many may be odd."""
_OF_INFERENCE = re.compile(r"\b(?:m?s|time|latency) ?(?:/|per) ?tok(?:en)?\b|\b(?:TTFT|TPOT|ITL)\b|\bprefill|\bdecod",
                           re.IGNORECASE)  # fmt: skip
"""Headings of tables on generating text, which follows a batch in other ways than training does."""


@lru_cache(maxsize=4096)
def _is_of_inference(headings: tuple[str, ...]) -> bool:
    return _OF_INFERENCE.search("\n".join(headings)) is not None


MOST_ROWS = 500
CERTAIN, DENIED = math.log(2.5), 3
"""How far beyond what is allowed, and by how many rows, a point that moved is certain."""


def check(sheet: Sheet, doubted: set[tuple[str, int | None]]) -> list[Finding]:
    """`doubted`: files and lines of which something is said already."""
    found: list[Finding] = []
    for key, mates in sheet.tables.items():
        names = [name for name in POWERS if name in sheet.filled(key)]
        if len(mates) < FEWEST - 1 or not names or _is_of_inference(tuple(mates[0].record.printed)):
            continue
        rows = [row for row in mates if row.tabular and not row.planned
                and (row.record.source_file, row.record.source_line) not in doubted]  # fmt: skip
        for start in range(0, len(rows), AT_ONCE) if len(mates) >= FEWEST else ():
            found += _among(rows[start : start + AT_ONCE], names)
        found += _memory_points(rows[:MOST_ROWS]) if "mem_value" in names else []
    return found


def _among(rows: list[Row], names: list[str]) -> Iterator[Finding]:
    """What columns say of pairs of rows: first of all that have the same settings, then of those that can be compared."""
    columns = {name: [_figure(row, name) for row in rows] for name in names}
    columns = {name: column for name, column in columns.items() if _spread(column) > BEYOND}
    if not columns:
        return
    values, drivers = np.array([*columns.values()]), np.array([bounds.drivers(row) for row in rows])
    least, most = (np.array([ends[name] for name in columns]) for ends in (LEAST, MOST))
    told, logs = drivers > 0, np.log(np.where(drivers > 0, drivers, 1.0))
    one, two = _pairs(len(rows))
    # Rows that tell different things of their layout, or nothing, cannot be compared.
    keep = (told[one] == told[two]).all(axis=1) & told[one].any(axis=1)
    one, two = one[keep], two[keep]
    if not _beyond(bounds.allowed(logs[one] - logs[two], least, most), values[:, one] - values[:, two]).any():
        return
    things = _coded(map(bounds.thing, rows))
    switches = [_coded(words) for words in zip(*map(bounds.switches, rows)) if len({*words}) > 1]
    switched = sum((words[one] != words[two] for words in switches), np.zeros(len(one), dtype=int))
    keep = (things[one] == things[two]) & (switched < 2)
    one, two, switched = one[keep], two[keep], SWITCHED * switched[keep]
    allowed = bounds.allowed(logs[one] - logs[two], least, most, switched)
    off = _beyond(allowed, values[:, one] - values[:, two])
    for name, column, apart, low, high in zip(columns, values, off, *allowed):
        if apart.any():
            compared = (high - low < WIDEST) & np.isfinite(column[one] - column[two])
            table = _Compared(len(rows), one[compared], two[compared], apart[compared], low[compared], high[compared])
            yield from (finding for row in table.odd() for finding in _said(rows, row, table, name, column))


def _spread(column: list[float]) -> float:
    known = [value for value in column if value == value]
    return max(known) - min(known) if known else 0.0


def _beyond(allowed: Ends, step: np.ndarray) -> np.ndarray:
    """By how much figures differ by more than they may; 0 where that is scatter, or where they may differ by anything."""
    least, most = allowed
    off = np.maximum(step - most, 0) + np.minimum(step - least, 0)
    return np.where((most - least < WIDEST) & (np.abs(off) > BEYOND), off, 0.0)  # nan is not


@lru_cache(maxsize=AT_ONCE + 1)
def _pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(count, 1)


class _Compared:
    """What pairs of rows say of each other in one column, for both of them."""

    def __init__(self, count: int, one: np.ndarray, two: np.ndarray, off: np.ndarray, least: np.ndarray, most: np.ndarray):
        self.off, self.least, self.most = (np.full((count, count), np.nan) for _ in range(3))
        self.off[one, two], self.least[one, two], self.most[one, two] = off, least, most
        self.off[two, one], self.least[two, one], self.most[two, one] = -off, -most, -least

    def odd(self) -> list[int]:
        """The fewest rows without which the rest agree, where most rows deny them, and all to the same side."""
        denied = np.abs(np.nan_to_num(self.off)) > BEYOND
        left = np.ones(len(denied), dtype=bool)
        taken: list[int] = []
        while (counts := (denied & left & left[:, None]).sum(axis=1)).max() > 0:
            taken.append(int(counts.argmax()))
            left[taken[-1]] = False
            if len(taken) > max(1, len(denied) // ODD):
                return []
        self.denied = denied & left
        compared = np.isfinite(self.off) & left
        return [row for row in taken if (count := self.denied[row].sum()) >= max(2, SHARE * compared[row].sum())
                and abs(np.sign(self.off[row, self.denied[row]]).sum()) == count]  # fmt: skip

    def nearest(self, row: int) -> int:
        """The row that denies it and differs the least."""
        others = np.flatnonzero(self.denied[row])
        return int(min(others, key=lambda other: (self.most[row, other] - self.least[row, other], abs(other - row))))


_MOVED_OUT = re.compile(r"off-?load|lora|quant|\b(?:int|nf|fp)-?4\b|\b[48]-?bit|nvme", re.IGNORECASE)
"""What takes weights or states from a device, or most of their bits."""
_NARROW, _OUTSIDE = 2.0, 3.3
"""Most over least of the memory of the other rows, and how far beyond them one is whose point has moved."""


def _memory_points(rows: list[Row]) -> list[Finding]:
    """The one row of a model that needs a tenth, or ten times, of what all others need within a factor of two."""
    groups: dict[object, list[tuple[float, Row]]] = {}
    for row in rows:
        record = row.record
        if record.mem_gib and row.cell("mem_value"):
            alike = record.size_label, record.machine, record.mem_unit, record.layers, record.hidden
            groups.setdefault(alike, []).append((record.mem_gib, row))
    found = []
    for group in (group for group in groups.values() if len(group) >= FEWEST - 1):
        group.sort(key=lambda each: each[0])
        for (memory, row), others in ((group[0], group[1:]), (group[-1], group[:-1])):
            if len(group) < FEWEST and not _is_shorter(row, [mate for _, mate in others]):
                continue
            low, high = others[0][0], others[-1][0]
            if high > _NARROW * low or low / _OUTSIDE < memory < high * _OUTSIDE:
                continue
            if row.settled or "mem_value" in row.reasons or _MOVED_OUT.search(row.text):
                continue
            if (figure := row.printed("mem_value")) is None:
                continue
            scale = figure.value / memory
            open_ = slips(figure.like(figure.value), figure.span(0.85 * low * scale, 1.18 * high * scale))
            typed = next((one for one in open_ if one.how == "the point moved"), open_[0] if open_ else None)
            if typed is None or typed.how not in ("the point moved", "a digit too many", "a digit lost"):
                continue
            row.reasons["mem_value"] = "outlier"
            there = f"the other rows have {figure.shown(low * scale):g} to {figure.shown(high * scale):g}"
            message = f"{row.cell('mem_value')} -> {typed.text} ({typed.how}): {there}"
            found.append(row.find("outlier", "warning", message, name="mem_value", proposed=typed.text))
    return found


def _is_shorter(row: Row, others: list[Row]) -> bool:
    """Whether a cell has other digits behind its point than all others have: 6.10 among 66.3 and 58.7."""
    usual = {places(mate.cell("mem_value")) for mate in others}
    return len(usual) == 1 and places(row.cell("mem_value")) not in usual


def _figure(row: Row, name: str) -> float:
    value = row.get(name) if name not in row.reasons and row.cell(name) else None
    return math.log(value) if value and 0 < value < math.inf else math.nan


def _coded(words: Iterable[object]) -> np.ndarray:
    """Words as numbers, equal where they are alike."""
    codes: dict[object, int] = {}
    return np.array([codes.setdefault(word, len(codes)) for word in words])


def _said(rows: list[Row], at: int, table: _Compared, name: str, values: np.ndarray) -> Iterator[Finding]:
    row, nearest = rows[at], table.nearest(at)
    other, figure = rows[nearest], row.printed(name)
    if figure is None or is_excepted(row):
        return
    ends = (values[nearest] + table.least[at, nearest], values[nearest] + table.most[at, nearest])
    low, high = sorted(figure.shown(math.exp(end)) for end in ends)
    typed = slips(figure.like(figure.value), (low / SCATTER, high * SCATTER))
    moved = next((one.text for one in typed if one.how == "the point moved"), None)
    within = bounds.between(row, name) if moved is None else None
    hand = bounds.typed(row, name, within) if within is not None else None
    how, places = "the point moved", {digits.places(mate.cell(name)) for mate in rows if mate is not row and mate.cell(name)}
    if moved is not None and len(places) == 1 and digits.places(moved) not in places:
        # Of slips that leave as many digits behind the point as the column has, the nearest to a row like it.
        like = {abs(math.log(one.value / figure.shown(math.exp(values[nearest])))): one for one in typed
                if digits.places(one.text) in places and one.value > 0}  # fmt: skip
        moved, how = (like[min(like)].text, like[min(like)].how) if like and min(like) < NEAREST else (moved, how)
    if moved is not None and any(name in dict(relation.terms) and any(its[:1] == EXTRA for its, _ in relation.terms)
                                 for relation, _ in broken_and_kept(row)[1]):  # fmt: skip
        return  # hours, tokens or costs beside it agree with what is printed
    certain = moved is not None and table.denied[at].sum() >= DENIED and abs(table.off[at, nearest]) > CERTAIN
    differ = ", ".join(_differences(row, other))
    if not differ and any(name in relation.measures and len(relation.measures) > 1 for relation, _ in broken_and_kept(row)[1]):
        return  # two figures that agree were measured: what differs is in words, or the run was slow
    if certain and not differ and not row.record.size_label and row.world is None and _differ_unread(row, other):
        certain = False  # of no model, on nobody knows what: a column that nobody reads may be how much was done
    expected = f"with {differ} it may be {low:.3g} to {high:.3g}" if differ else "no setting differs"
    what = f"{row.cell(name)} -> {moved} ({how})" if moved else f"{row.cell(name)} -> {hand}" if hand else row.cell(name)
    message = f"{what}: {other.where} has {other.cell(name)}, and {expected}"
    row.reasons[name] = "outlier"
    yield row.find("outlier", "error" if certain else "warning", message, name=name, proposed=moved or hand)


NEAREST = 0.03


def _differ_unread(row: Row, other: Row) -> bool:
    """Whether several columns that no field takes have other numbers."""
    figures = [(one, other.figure(heading)) for heading in row.extras if (one := row.figure(heading)) is not None]
    return sum(one != its for one, its in figures if its is not None) > 1


def _differences(row: Row, other: Row) -> Iterator[str]:
    for name in ("gpus", *CONFIGURATION, "size_label"):
        here, there = getattr(row.record, name), getattr(other.record, name)
        if here != there and here and there:
            yield f"{row.column(name)} {here} for {there}"
