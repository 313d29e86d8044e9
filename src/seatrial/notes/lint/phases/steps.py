"""Phases of a run, each from a step to a step: what is worked out from the steps between, and where the next one begins.

    check(sheet)          findings on phases whose tokens, days or ends do not belong to the others

    | from  | to     | tokens | days |
    | 0     | 3,000  | 12.6B  | 0.17 |
    | 3,000 | 9,000  | 25.2B  | 0.34 |

Which columns are the ends is told by the rows: one begins where the last ended. Tokens go with the steps, days with the steps
and their time; either counts where most rows keep to it. A run that was rewound begins before the last phase ended, and its
tokens and days say so too.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import EXTRA, field_of
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import NUMBER, clean

FEWEST, MOST_ROWS, MOST_COLUMNS = 3, 100, 8
KEPT, CLOSE, CHANCE = 0.6, 0.004, 0.02
"""Share of the rows that keep to a relation, at least; within what beyond their digits; how likely by accident, at most."""
SPREAD = 0.7
"""Over how much, as a logarithm, phases differ."""
LOOSE, LOOSE_ROWS, GROSS = 0.2, 5, 0.6
"""Days of phases whose speed nobody prints: within what they go with the steps, in how many rows; from when on one is off."""
OFF = 0.02
_RANGE = re.compile(rf"({NUMBER.pattern}\s?[kKM]?)\s*(?:-+>?|–|—|→|\.\.+|\bto\b|\bbis\b|~|〜|～)\s*({NUMBER.pattern}\s?[kKM]?)")
_DOTTED = re.compile(r"\d{1,3}(?:\.\d{3})*")
_STEP = ("", "iteration", "sec_per_it")
"""Fields that the heading of a step may be taken for."""
_CLEAR = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost")
_UNITS = tuple(math.log(1 / seconds) for seconds in (1.0, 60.0, 3600.0, 86400.0))
"""Of a step's time in days, hours or minutes: known, and nothing to be learned."""


@dataclass(frozen=True)
class _Phase:
    row: Row
    cells: tuple[str, str]
    """The headings of both ends, which may be one."""
    first: float
    last: float
    next: int = 0
    """1 where a phase begins with the step behind the last one's."""

    @property
    def steps(self) -> float:
        return self.last - self.first + (self.next if self.first else 0)


@dataclass(frozen=True)
class _Goes:
    """A column that goes with the steps, and with other columns."""

    name: str
    others: tuple[str, ...]
    constant: float
    close: float
    kept: int


Figures = dict[str, list[tuple[float, float] | None]]
"""Heading -> the logarithm of each row's figure, and what its digits leave open."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        phases = phases_of(mates)
        found += _told(phases) if phases else ()
    return found


def phases_of(mates: list[Row]) -> list[_Phase]:
    """The rows of a table as phases; none where no columns say from which step to which each one went."""
    if not FEWEST <= len(mates) <= MOST_ROWS:
        return []
    first = next((row for row in mates if row.tabular and not is_aggregate(row)), None)
    ranges, pairs = _columns(first) if first is not None else ([], [])
    rows = [row for row in mates if row.tabular and not is_aggregate(row)] if ranges or pairs else []
    return _phases(rows, ranges, pairs) if len(rows) >= FEWEST else []


def _columns(first: Row) -> tuple[list[str], list[tuple[str, str]]]:
    """Those that may hold a first and a last step: ranges, and neighbours that count from the beginning."""
    printed = first.record.printed
    ranges = [heading for heading, cell in printed.items() if _may_be_range(cell) and _RANGE.fullmatch(clean(cell))]
    return ranges, [pair for pair in _neighbours(tuple(printed)) if first.figure(pair[0]) in (0, 1)]


def _may_be_range(cell: str) -> bool:
    """Whether a cell has what stands between two numbers: most have one."""
    return not _BETWEEN.isdisjoint(cell) or ".." in cell or not cell.isascii()


_BETWEEN = frozenset("-~tb&")


@functools.lru_cache(maxsize=1024)
def _neighbours(headings: tuple[str, ...]) -> list[tuple[str, str]]:
    return [pair for pair in itertools.pairwise(headings) if all(field_of(heading) in _STEP for heading in pair)]


def _phases(rows: list[Row], ranges: list[str], pairs: list[tuple[str, str]]) -> list[_Phase]:
    for heading in ranges:
        said = [_RANGE.fullmatch(clean(row.record.printed.get(heading, ""))) for row in rows]
        ends = [(digits.alone(one[1]), digits.alone(one[2])) if one is not None else (None, None) for one in said]
        if made := _chained(rows, (heading, heading), ends):
            return made
    for one, other in pairs:
        if made := _chained(rows, (one, other), list(zip(_column(rows, one), _column(rows, other)))):
            return made
    return []


def _column(rows: list[Row], heading: str) -> list[float | None]:
    """Steps of a column, in which three digits behind each point are thousands where all cells have them."""
    cells = [clean(row.record.printed.get(heading, "")) for row in rows]
    dotted = all(_DOTTED.fullmatch(cell) for cell in cells) and any("." in cell for cell in cells)
    return [digits.alone(cell.replace(".", "") if dotted else cell) for cell in cells]


def _chained(rows: list[Row], cells: tuple[str, str], ends: list[tuple[float | None, float | None]]) -> list[_Phase]:
    """Phases, where most begin at the step at which the last one ended, or at the next."""
    both = [(first, last) for first, last in ends if first is not None and last is not None]
    if len(both) < len(rows) or not all(float(end).is_integer() for pair in both for end in pair):
        return []
    apart = Counter(now[0] - was[1] for was, now in itertools.pairwise(both) if now[0] > 0)
    next_ = 1 if apart[1] > apart[0] else 0
    linked, rising = apart[next_], sum(first < last for first, last in both)
    if linked < max(2, (len(both) - 1) / 2) and not (len(both) == FEWEST and linked) or rising < len(both) - 1:
        return []
    doubled = Counter(last / first for first, last in both if first)
    if both[0][0] > 1 or max(doubled.values()) > 1:
        return []  # what doubles from row to row is no phase
    return [_Phase(row, cells, *pair, next_) for row, pair in zip(rows, both)]


def _told(phases: list[_Phase]) -> Iterator[Finding]:
    rows, ends = [phase.row for phase in phases], phases[0].cells
    names = [heading for heading in rows[0].record.printed if heading not in ends]
    columns = {name: [_figure(row, name) for row in rows] for name in names}
    columns = {name: column for name, column in columns.items() if len(column) - column.count(None) >= FEWEST
               and [round(math.exp(one[0])) for one in column if one is not None][:FEWEST] != [1, 2, 3]}  # its number
    goes = list(_going(phases, dict(list(columns.items())[:MOST_COLUMNS])))
    for at, phase in enumerate(phases):
        if phase.row.settled:
            continue
        before, after = phases[at - 1] if at else None, phases[at + 1] if at + 1 < len(phases) else None
        mine = [one for one in goes if all(columns[name][at] is not None for name in (one.name, *one.others))]
        if mine:
            yield from _by_figures(phase, at, before, after, mine, columns)
        elif not goes and before is not None and phase.first > before.last + 1:
            yield _gap(phase, before)


def _figure(row: Row, heading: str) -> tuple[float, float] | None:
    cell = row.record.printed.get(heading, "")
    value, shown = digits.alone(cell), digits.plain(cell)
    if not value or value <= 0 or not float(shown):
        return None
    field = field_of(heading)
    whole = float(shown).is_integer() and field in ("gbs", "seq", "gpus", "nodes")
    if whole:
        return math.log(row.fixed.get(field, value)), 0.0
    return math.log(value), 0.5 * 10.0 ** -digits.places(cell) / float(shown)


# ---- what goes with the steps


def _going(phases: list[_Phase], columns: Figures) -> Iterator[_Goes]:
    steps = [(math.log(phase.steps), 0.0) if phase.steps > 0 else None for phase in phases]
    for name, column in columns.items():
        if field_of(name) or "batch" in name.lower():
            continue  # chosen or measured, and not worked out from the steps
        beside = [other for other in columns if other != name]
        best: _Goes | None = None
        for many in (0, 1, 2):
            tried = [one for others in itertools.combinations(beside, many)
                     if (one := _kept(name, others, [column, steps, *(columns[other] for other in others)],
                                      1 if _meant(name, others) else 1 + len(beside) ** many)) is not None]  # fmt: skip
            # One column more has to explain one row more.
            tried += [best] if best is not None else []
            best = max(tried, key=lambda one: (one.kept, -len(one.others), -one.close), default=None)
        if best is None:
            for others in ((), *((other,) for other in beside if field_of(other) == "gbs")):
                best = _kept(name, others, [column, steps, *(columns[other] for other in others)], 1, LOOSE) or best
        if best is not None:
            yield best


def _meant(name: str, others: tuple[str, ...]) -> bool:
    """Whether headings say it: tokens of a batch and the steps."""
    return "token" in name.lower() and all(
        field_of(other) in ("gbs", "seq") or "batch" in other.lower() for other in others)


def _kept(name: str, others: tuple[str, ...], columns: list[list[tuple[float, float] | None]], ways: int,
          close: float = CLOSE) -> _Goes | None:  # fmt: skip
    offs: list[tuple[float, float, float]] = []
    for each in zip(*columns):
        if None not in each:
            one, *rest = (figure for figure in each if figure is not None)
            offs.append((one[0] - sum(value for value, _ in rest), one[1] + sum(open_ for _, open_ in rest), one[0]))
    if len(offs) < max(FEWEST, KEPT * len(columns[0])):
        return None
    middle = max(offs, key=lambda one: (sum(abs(off - one[0]) <= may + one[1] + close for off, may, _ in offs), -one[1]))
    kept = [one for one in offs if abs(one[0] - middle[0]) <= one[1] + middle[1] + close]
    if len({round(value, 3) for _, _, value in kept}) < min(FEWEST, len(kept)):
        return None  # what is alike goes with anything
    known = len(others) == 1 and any(abs(middle[0] - unit) <= middle[1] + close for unit in _UNITS)
    if close == LOOSE:
        enough = len(kept) >= max(LOOSE_ROWS, 0.8 * len(offs)) and max(v for *_, v in kept) - min(v for *_, v in kept) > SPREAD
    else:
        chance = ways * math.prod(min(1.0, 2 * (may + middle[1] + close) / SPREAD) for _, may, _ in sorted(kept)[1:])
        enough = chance < CHANCE and (len(kept) >= max(FEWEST, KEPT * len(offs)) or known and 2 * len(kept) > len(offs))
    fine = min(kept, key=lambda one: one[1])
    return _Goes(name, others, fine[0], close + fine[1], len(kept)) if enough else None


def _off(one: _Goes, at: int, columns: Figures, steps: float) -> tuple[float, float]:
    """By how much a row misses it, and what its digits leave open."""
    figures = [figure for name in (one.name, *one.others) if (figure := columns[name][at]) is not None]
    if steps <= 0:
        return math.inf, 0.0
    (value, _), *rest = figures
    return (value - math.log(steps) - sum(other for other, _ in rest) - one.constant,
            sum(open_ for _, open_ in figures) + one.close)


def _holds(one: _Goes, at: int, columns: Figures, steps: float) -> bool:
    off, open_ = _off(one, at, columns, steps)
    return abs(off) <= (GROSS if one.close > LOOSE else max(open_, OFF))


# ---- what a phase has wrong


def _by_figures(phase: _Phase, at: int, before: _Phase | None, after: _Phase | None, goes: list[_Goes],
                columns: Figures) -> Iterator[Finding]:  # fmt: skip
    broken = [one for one in goes if not _holds(one, at, columns, phase.steps)]
    if not broken or {field_of(name) for one in broken for name in (one.name, *one.others)} & {*phase.row.reasons}:
        return
    near = [(0, before.last + phase.next)] if before is not None else []
    near += [(1, after.first - phase.next)] if after is not None else []
    for end, value in near:
        steps = replace(phase, first=value).steps if end == 0 else replace(phase, last=value).steps
        if all(_holds(one, at, columns, steps) for one in goes):
            where = "the phase above ends there" if end == 0 else "the phase below begins there"
            yield _end(phase, end, value, f"{where}, and {broken[0].name} needs {steps:,.0f} steps")
            return
    tight = [one for one in broken if one.close <= LOOSE]
    lone = len(tight) == len(broken) == 1 and _slip(phase, tight[0], *_off(tight[0], at, columns, phase.steps)) is None
    kept = [one for one in goes if one not in broken]
    if (len(broken) == len(goes) > 1 or lone) and all(one.close > LOOSE for one in kept) and (
            typed := _typed(phase, at, goes, columns)):  # fmt: skip
        end, value = typed
        yield _end(phase, end, value, f"{' and '.join(one.name for one in broken)} need as many steps")
        return
    for other in broken[0].others:
        if all(other in one.others for one in broken) and (chosen := _setting(phase, at, other, broken, goes, columns)):
            why = f"{broken[0].name} goes with it and the steps, as in {broken[0].kept} rows"
            yield _cell(phase.row, other, digits.plain(chosen), why)
            return
    laws = phase.row.sheet.laws.get(phase.row.key, ())
    sound = {cell.heading for law in laws if law.keeps(phase.row) for cell, _ in law.cells}
    if len(broken) == 1 or len(tight) == 1 and len(goes) > len(broken):
        one = (tight or broken)[0]
        if one.name in sound or EXTRA + one.name in phase.row.sure:
            return  # what else of the row goes with it says so
        off, open_ = _off(one, at, columns, phase.steps)
        if math.isfinite(off):
            yield _figure_off(phase, one, off, open_)
            return
    cell = phase.row.record.printed[phase.cells[1]].strip()
    message = f"{phase.cells[1]} {cell}: {phase.steps:,.0f} steps, and {' and '.join(one.name for one in broken)} deny them"
    yield phase.row.find("aggregate", "error", message, column=phase.cells[1], printed=cell)


def _figure_off(phase: _Phase, one: _Goes, off: float, open_: float) -> Finding:
    cell = phase.row.record.printed[one.name].strip()
    meant, typed = float(digits.plain(cell)) / math.exp(off), _slip(phase, one, off, open_)
    right = typed.text if typed is not None else f"{meant:.{digits.places(cell)}f}"
    with_ = " and ".join(("steps", *one.others))
    return _cell(phase.row, one.name, right, f"by {with_}, as in {one.kept} rows, it is {meant:.4g}")


def _slip(phase: _Phase, one: _Goes, off: float, open_: float) -> digits.Slip | None:
    """The slip of the hand that a figure has for the one that goes with the steps; none where its digits leave all open."""
    if open_ > 1:
        return None
    shown = digits.plain(phase.row.record.printed[one.name])
    meant = float(shown) / math.exp(min(off, 50.0))
    slips = digits.slips(shown, (meant * math.exp(-open_), meant * math.exp(open_)))
    return min((typed for typed in slips if typed.how in _CLEAR), key=lambda typed: _CLEAR.index(typed.how), default=None)


def _typed(phase: _Phase, at: int, goes: list[_Goes], columns: Figures) -> tuple[int, float] | None:
    """The end that one slip of the hand turned into what is printed, by all that goes with the steps."""
    low, high = 0.0, math.inf
    for one in goes:
        off, open_ = _off(one, at, columns, max(phase.steps, 1.0))
        steps = max(phase.steps, 1.0) * math.exp(min(off, 50.0))
        low, high = max(low, steps * math.exp(-open_)), min(high, steps * math.exp(open_))
    if low > high:
        return None
    spans = (phase.last - high, phase.last - low), (phase.first + low, phase.first + high)
    slips = [(end, typed) for end, (value, span) in enumerate(zip((phase.first, phase.last), spans))
             if (typed := digits.slip(f"{value:.0f}", span)) is not None and typed.how in _CLEAR]  # fmt: skip
    return (slips[0][0], slips[0][1].value) if len(slips) == 1 else None


def _setting(phase: _Phase, at: int, name: str, broken: list[_Goes], goes: list[_Goes], columns: Figures) -> str:
    """What other rows have in a column of chosen values, where with it all that is broken holds, and nothing else breaks."""
    if any(name in one.others for one in goes if one not in broken) or all(one.close > LOOSE for one in broken):
        return ""
    cells = {row.record.printed.get(name, "").strip() for row in phase.row.mates} - {phase.row.record.printed[name].strip()}
    for cell in sorted(cells):
        figure = _figure(phase.row, name) and digits.alone(cell)
        if figure and figure > 0 and float(figure).is_integer():
            with_it = {**columns, name: [*columns[name][:at], (math.log(figure), 0.0), *columns[name][at + 1 :]]}
            if all(_holds(one, at, with_it, phase.steps) for one in broken):
                return cell
    return ""


def _end(phase: _Phase, end: int, value: float, why: str) -> Finding:
    return _cell(phase.row, phase.cells[end], f"{value:.0f}", why, end if phase.cells[0] == phase.cells[1] else 0)


def _cell(row: Row, heading: str, right: str, why: str, which: int = 0) -> Finding:
    """With the number in question as the cell writes numbers."""
    cell = row.record.printed[heading].strip()
    match = list(NUMBER.finditer(cell.replace("\u202f", ",")))[which]
    number = f"{int(right):,}" if right.isdigit() and re.search(r"\d[.,]\d{3}", match[0]) else right
    number = number.replace(",", ".") if _DOTTED.fullmatch(match[0]) and "." in match[0] else number
    number = digits.as_there(match[0], None, number) or number
    number = number.replace(",", "\u202f") if "\u202f" in cell else number
    proposed = cell[: match.start()] + number + cell[match.end() :]
    if not field_of(heading) and (value := digits.alone(proposed)):
        row.propose(EXTRA + heading, value, "aggregate")  # for what is added up
    return row.find("aggregate", "error", f"{heading} {cell} -> {proposed}: {why}", column=heading, printed=cell,
                    proposed=proposed)  # fmt: skip


def _gap(phase: _Phase, before: _Phase) -> Finding:
    heading = phase.cells[0]
    cell = phase.row.record.printed[heading].strip()
    message = f"{heading} {cell}: the phase above ends at {before.last:,.0f}, and nothing is said of the steps between"
    return phase.row.find("aggregate", "warning", message, column=heading, printed=cell)
