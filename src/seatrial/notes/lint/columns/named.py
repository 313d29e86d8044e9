"""Columns that are worked out from others, known by their headings: speed-ups, efficiencies, days, GPU hours, costs.

    learn(sheet)          what such columns of a table follow from, in few rows already: (relation, its rules) for each

What a heading says is tried in the ways that people mean it, and a way counts where the rows keep to it to their digits. A
speed-up and an efficiency are shares of a row that is printed as 1 or 100 %: of the one of the table, or of the nearest above;
what a price or a model changes is learned for each device and model.
"""
from __future__ import annotations

import functools
import math
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from seatrial.notes.lint.columns import factors
from seatrial.notes.lint.headings import EXTRA, extras, field_of, is_extra
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.elsewhere import is_elsewhere
from seatrial.tables.headings import batch_of_tokens, clean, normal, older, plainly, read_heading, without_version
from seatrial.tables.worded import heading_in_english

Terms = tuple[tuple[str, int], ...]
_ALL = ((("tokens_per_s", -1),), (("samples_per_s", -1),), (("tokens_per_s_per_process", -1), ("world", -1)),
        (("tflops", -1), ("world", -1)), (("sec_per_it", 1), ("gbs", -1)), (("sec_per_it", 1),))  # fmt: skip
_EACH = ((("tokens_per_s_per_process", -1),), (("tokens_per_s", -1), ("world", 1)), (("samples_per_s", -1), ("world", 1)),
         (("tflops", -1),), (("mfu", -1),), (("sec_per_it", 1), ("world", 1), ("gbs", -1)), (("sec_per_it", 1), ("world", 1)),
         (("sec_per_it", 1),))  # fmt: skip
"""What a speed of the whole, and of one device, goes with: the product with it is the same in every row."""


def _against(ways: tuple[Terms, ...]) -> tuple[Terms, ...]:
    return tuple(tuple((name, -power) for name, power in way) for way in ways)


_MONEY = re.compile(r"\b(?:costs?|price|usd|eur|kosten|cout|coste|dollars?)\b|[$€£]")
KINDS: tuple[tuple[re.Pattern[str], str, tuple[Terms, ...]], ...] = (
    (re.compile(r"\b(?:gpu|device|card|tpu|node|accelerator) (?:hours?|days?|h)\b"), "share", _against(_EACH)),
    (_MONEY, "price", _against(_EACH)),
    (re.compile(r"\bdays?\b|\bhours?\b|\btime h\b|\bmin(?:ute)?s?\b|\btime to (?:train|solution)\b|\bweeks?\b|\beta\b"),
     "share", (*_against(_ALL), (("iteration", -1), ("sec_per_it", -1)))),
    (re.compile(r"\beff(?:iciency|izienz)?\b|\bscaling\b|\bweak\b|\bstrong\b"), "base", _EACH),
    (re.compile(r"speed ?up|\bfaster\b|\bvs\b|\brelative\b|\bgain\b|\bacceleration\b|\bbeschleunigung\b|\baceleracion\b|"
                r"\brel\b"), "base", (*_ALL, *_EACH[:1], *_EACH[3:5])),
)  # fmt: skip
"""What a heading says, what its rows have in common, and what it goes with."""
_HOURLY = re.compile(r"\b(?:gpu|node|device) ?(?:h|hr|hour)\s*$|\bper (?:\w+ (?:and )?)?(?:h|hr|hour)\b|\bhourly\b|\ban hour\b")
_LET: tuple[str, tuple[Terms, ...]] = "share", ()
"""Money for an hour: what a device is let for, however fast it is."""
_OF_DEVICES_LET: tuple[Terms, ...] = ((("world", -1),),)
"""And for that of all of them: so many times as much."""
_SO_LONG = re.compile(r"~?\d[\d.,]* ?(?:h|hrs?|hours?|d|days?|min|minutes?)")
_AS_LONG = _against(_ALL)
"""How long so much work takes, where every cell says its unit."""
_OF_A_BASE = (*_ALL, *_EACH)
_ONE = re.compile(r"1[.,]0+ ?[x×]?|1 ?[x×]|[x×] ?1(?:[.,]0+)?|100(?:[.,]0+)? ?%")
UNTOLD = 10
"""How many ways a heading that says nothing may be meant in, before the first that is tried."""
_OF_A_STEP: tuple[str, tuple[Terms, ...]] = "share", (
    (("tokens_per_s", -1), ("sec_per_it", -1)), (("gbs", -1), ("seq", -1)), (("gbs", -1),),
    (("tokens_per_s_per_process", -1), ("sec_per_it", -1), ("world", -1)),
)  # fmt: skip
"""The same of a batch in tokens."""
FEWEST, MOST_ROWS = 3, 60
CLOSE, NEARLY, LOOSELY = 0.002, 0.1, 0.035
FEWEST_LOOSE = 4
CHANCE = 0.1
"""How likely rows would agree so by accident, at most: the heading has said it already."""
COARSE = 0.01
MOST_ASKED = 4
"""Rows that are asked whether they have the columns of a way."""
COUNTED = ("world", "nodes", "gbs", "seq", "price")


@dataclass
class Way:
    """A column, what it follows from, and how the rows of the table keep to that."""

    terms: Terms
    constants: dict[object, float] = field(default_factory=dict)
    """Group -> the logarithm of the product."""
    groups: dict[Row, object] = field(default_factory=dict)
    kept: int = 0
    scatter: float = 0.0
    open_: float = 0.0
    """What the digits of its rows leave open, mostly: coarse ones agree with much."""


def found(rows: list[Row]) -> Iterator[Way]:
    """For each column of a table the way that most rows keep to."""
    rows = [row for row in rows[:MOST_ROWS] if row.tabular and not row.planned]
    defined = {way.terms[0][0]: way for way in (_hours(rows) if len(rows) > 1 else ())}
    yield from defined.values()
    basis = ""
    for heading, kind in _kinds(tuple(rows[0].record.printed)) if len(rows) >= FEWEST else ():
        first = 1 if kind is not None else UNTOLD
        if kind is None and _ONE.fullmatch(rows[0].cells[heading]):
            kind = "base", _OF_A_BASE  # shares of the first row, whatever they are called
        if kind is _LET:
            kind = "share", _OF_DEVICES_LET
        if kind is None and all(_SO_LONG.fullmatch(cell) for row in rows if (cell := row.cells[heading])):
            kind = "share", _AS_LONG  # `epoch | 1219 min`
        if kind is None or heading == rows[0].columns.get("gbs") and any(row.record.gbs for row in rows):
            continue
        name, (shared, ways) = EXTRA + heading, kind
        if name in defined or shared == "base" and ways is not _EACH and _are_changes(rows, heading):
            continue
        others = [EXTRA + other for other in rows[0].record.printed if other != heading and _kind(other)]
        for other in others:
            ways += (((other, -1),), ((other, -1), ("world", -1)), ((other, -1), ("world", 1)))
        if shared == "price" and all(price_of(row) for row in rows):
            ways += tuple((("price", -1), *way) for way in (*_against(_EACH), *(((other, -1),) for other in others)))
        if shared == "price":
            ways += tuple(((other, -1), *way) for other in others for way in ways[: len(_EACH)])
        # The first that a heading is likely to mean needs the least proof.
        if shared == "base":  # what the rows have no columns for is no way
            ways = tuple(way for way in ways if any(_product(row, ((name, 1), *way)) is not None for row in rows[:MOST_ASKED]))
        tried = [way for at, terms in enumerate(ways, first) for groups in _groupings(rows, name, shared)
                 if (way := _tried(rows, ((name, 1), *terms), groups, at)) is not None]  # fmt: skip
        if not tried and len(rows) >= FEWEST_LOOSE:  # means over other iterations
            tried = [way for at, terms in enumerate(ways, first) for groups in _groupings(rows, name, shared)
                     if (way := _tried(rows, ((name, 1), *terms), groups, at, LOOSELY)) is not None][:1]  # fmt: skip
        if shared == "base" and (both := _twins(rows[0])):
            tried = [way for terms in both if (way := _tried(rows, ((name, 1), *terms), dict.fromkeys(rows, ""), 1))] or tried
        if shared == "base" and not tried:
            tried = [way for terms in ways for before in (_in_earlier_table(rows), *_above(rows, name))
                     if (way := _against_other(rows, before, ((name, 1), *terms), ways)) is not None]  # fmt: skip
        if tried:
            # An efficiency is of the figure that the speed-up beside it is of.
            best = max(tried, key=lambda way: (way.kept, way.open_ < COARSE, shared == "base" and way.terms[1][0] == basis,
                                               -len(way.terms), -len(way.constants)))  # fmt: skip
            basis = best.terms[1][0] if shared == "base" else basis
            yield best


def _are_changes(rows: list[Row], heading: str) -> bool:
    """Whether the cells are of percents by which something is more or less: no product of columns."""
    shares = [value for row in rows if (value := row.figure(heading)) is not None and "%" in row.cells[heading]]
    most = sorted(shares)[-1 - (len(shares) > FEWEST)] if shares else 0.0  # one of several may be a slip
    return len(shares) > 1 and most < 75


_OF_DEVICES = re.compile(r"(?:total )?(?:gpu|device|card|tpu|npu|hpu|chip|accelerator|(node)) (?:hours?|h)")
_LASTS = re.compile(r"(?:wall ?(?:clock )?)?(?:(?:run ?|training |total |job )?time )?(?:(days?|d)|(weeks?)|hours?|h)"
                    r"(?: all runs| total)?")


def _hours(rows: list[Row]) -> Iterator[Way]:
    """Device or node hours: the devices or nodes times the time by definition, where two rows and no less than half of them
    keep to that and the others are far from it; of two rows one."""
    for spent, time, day, count in _spent(tuple(rows[0].record.printed)):
        terms = ((spent, 1), (time, -1), (count, -1))
        offs = [(abs(one[0] - math.log(day)), one[1]) for row in rows if (one := _product(row, terms)) and row.world != 1]
        kept = [may for off, may in offs if off <= may + CLOSE]
        far = sum(off > may + NEARLY for off, may in offs)
        enough = min(kept, default=1.0) + CLOSE < COARSE if len(offs) == 2 else 2 <= len(kept) <= len(offs) <= 2 * len(kept)
        if enough and kept and far and len(kept) + far == len(offs):
            yield Way(terms, {"": math.log(day)}, dict.fromkeys(rows, ""), 2)


@functools.lru_cache(maxsize=4096)
def _spent(headings: tuple[str, ...]) -> list[tuple[str, str, float, str]]:
    """Columns of device or node hours, with the one that says how long it took, how many hours its unit has and what they are
    hours of."""
    names = {heading: normal(heading_in_english(clean(heading), surely=True)) for heading in extras(headings)}
    times = [(EXTRA + heading, 24.0 if unit[1] else 168.0 if unit[2] else 1.0) for heading, words in names.items()
             if (unit := _LASTS.fullmatch(words))]  # fmt: skip
    return [(EXTRA + heading, *times[0], "nodes" if of[1] else "world") for heading, words in names.items()
            if times and (of := _OF_DEVICES.fullmatch(words))]  # fmt: skip


def _twins(row: Row) -> list[Terms]:
    """What a speed-up is where one measure stands in the row twice, before a change and after it."""
    found = [(field_of(heading), EXTRA + heading) for heading in older(tuple(row.record.printed))]
    return [((name, -1), (field, 1)) if field == "sec_per_it" else ((name, 1), (field, -1)) for field, name in found]


_Kind = tuple[str, tuple[Terms, ...]]


@functools.lru_cache(maxsize=4096)
def _kinds(headings: tuple[str, ...]) -> list[tuple[str, _Kind | None]]:
    """Columns with what their headings say, and those that no field takes whose headings say nothing."""
    said = [(heading, _kind(heading) or _counted_twice(heading, headings)) for heading in headings]
    return [(heading, kind) for heading, kind in said if kind is not None or is_extra(heading)]


@functools.lru_cache(maxsize=4096)
def _kind(heading: str) -> _Kind | None:
    if not is_extra(heading):
        return None
    if batch_of_tokens(heading) is not None:
        return _OF_A_STEP
    plain = plainly(heading)
    words = f"{normal(heading_in_english(plain, surely=True))} {' '.join(re.findall('[$€£]', plain))}"
    if is_elsewhere(words):
        return None
    if _HOURLY.search(words) and _MONEY.search(words):
        return _LET
    return next(((shared, ways) for pattern, shared, ways in KINDS if pattern.search(words)), None)


def is_let_for(heading: str) -> bool:
    """Whether it is the price of an hour."""
    return _kind(heading) is _LET


def _counted_twice(heading: str, headings: tuple[str, ...]) -> _Kind | None:
    """Of a figure that another column has in another way, as TFLOPs of the model beside those of the hardware, or steps a
    second beside the time of one."""
    field = field_of(heading) if heading in older(headings) and without_version(heading) == heading else ""
    if field == "sec_per_it" and read_heading(heading).unit == "it/s":
        return "share", ((("sec_per_it", 1),),)
    each = {words[-1] for other in headings if (words := normal(other).split())
            and field_of(other) == field and read_heading(other).per == "process"}  # fmt: skip
    if len(each) > 1:
        return None  # of a socket beside that of a rank: as many ranks as each row has
    return ("share", (((field, -1),),)) if field in ("tflops", "mfu", "hfu") else None


def _groupings(rows: list[Row], name: str, shared: str) -> Iterator[dict[Row, object]]:
    if shared == "base":
        based = _by_base(rows, name)
        if based:
            yield based
            return
    yield dict.fromkeys(rows, "")
    apart = {row: (row.record.size_label, row.record.machine, row.devices, row.seq) for row in rows}
    if len(set(apart.values())) > 1:
        yield apart  # type: ignore[misc]


def _by_base(rows: list[Row], name: str) -> dict[Row, object]:
    """Row -> the place of the row that it is compared with."""
    bases = [at for at, row in enumerate(rows) if _is_base(row, name)]
    return {row: max((base for base in bases if base <= at), default=bases[0]) for at, row in enumerate(rows)} if bases else {}


def _is_base(row: Row, name: str) -> bool:
    value = row.get(name)
    return value == 1.0 or value == 100.0 and "%" in name + row.cell(name)


def _tried(
    rows: list[Row], terms: Terms, groups: dict[Row, object], ways: int, close: float = CLOSE
) -> Way | None:
    offs: dict[object, list[tuple[float, float, Row]]] = {}
    for row in rows:
        off = _product(row, terms)
        if off is not None:
            # The row that others are shares of is 1 by definition, and not rounded.
            figure = row.printed(terms[0][0]) if _is_base(row, terms[0][0]) else None
            may = max(0.0, off[1] - figure.slack) if figure is not None else off[1]
            offs.setdefault(groups[row], []).append((off[0], may, row))
    many = sum(map(len, offs.values()))
    if many < FEWEST or many < 0.6 * len(rows):
        return None
    way = Way(terms, groups=groups, scatter=0.0 if close == CLOSE else LOOSELY / 2,
              open_=statistics.median(may for each in offs.values() for _, may, _ in each))  # fmt: skip
    name, chance, nearly, others = terms[0][0], float(ways), 0, 0
    for group, each in offs.items():
        middle = max(each, key=lambda one: (sum(abs(off - one[0]) <= may + one[1] + close for off, may, _ in each),
                                            _is_base(one[2], name), -one[1]))  # fmt: skip
        kept = [(off, may) for off, may, _ in each if abs(off - middle[0]) <= may + middle[1] + close]
        fine = sorted(kept, key=lambda one: one[1])[: max(1, len(kept) // 2)]
        if len(kept) > 1 or _is_base(middle[2], name):
            way.constants[group] = statistics.median(off for off, _ in fine)
        way.kept += len(kept) - 1
        nearly += sum(close < abs(off - middle[0]) - may - middle[1] <= NEARLY for off, may, _ in each)
        others += len(each) - len(kept)
        for _, may in sorted(kept, key=lambda one: one[1])[1:]:
            chance *= min(1.0, 2 * (may + middle[1] + close) / SPREAD)
    few = others <= max(1, 0.75 * way.kept) and nearly <= max(1, 0.15 * many) and way.kept >= others
    few = few and (way.kept > others or chance < 0.5 * CHANCE)
    return way if few and chance < CHANCE and _changes(rows, name) else None


def _in_earlier_table(rows: list[Row]) -> dict[Row, Row]:
    """Rows that stand for the same in an earlier table: before a change, and after it."""
    first = rows[0].record.table or 0
    earlier: dict[tuple[object, ...], list[Row]] = {}
    for other in rows[0].elsewhere:
        if other.tabular and (other.record.table or 0) < first:
            earlier.setdefault(_asked(other), []).append(other)
    return {row: match[0] for row in rows if len(match := earlier.get(_asked(row), [])) == 1}


def _above(rows: list[Row], name: str) -> Iterator[dict[Row, Row]]:
    """The nearest row above without a figure of its own, which others are shares of, or the row above."""
    bare = [row.get(name) is None for row in rows]
    if bare[0]:
        last = rows[0]
        base = {row: last for row, empty in zip(rows, bare) if not empty or (last := row) is None}
        yield base
        if sum(bare) == 1:
            yield dict(zip(rows[1:], rows))


def _against_other(rows: list[Row], before: dict[Row, Row], terms: Terms, ways: tuple[Terms, ...]) -> Way | None:
    """Shares of what other rows have."""
    way, others, besides = Way(terms), 0, 0
    chance = float(sum(_product(rows[0], each) is not None for each in ways) or len(ways))
    for at, row in enumerate(rows):
        measured = _share_of(row, before[row], terms) if row in before else None
        if measured is None:
            continue
        base, off, may = measured
        if abs(off) <= may:
            way.kept += 1
            chance *= min(1.0, 2 * may / 0.1)  # people compare what is nearly alike
        else:
            by_others = (_share_of(row, before[row], (terms[0], *each)) for each in ways if each != terms[1:])
            right = any(other is not None and abs(other[1]) <= other[2] for other in by_others)
            if right and not _of_all(row, before[row], off, may):
                besides += 1
                continue  # it is right by another figure: this one is not, here or there
            others += 1
        way.groups[row], way.constants[at] = at, base
    return way if way.kept >= max(2, besides) and way.kept > 1.5 * others and chance < CHANCE else None


def _of_all(row: Row, match: Row, off: float, may: float) -> bool:
    """Whether a share is off by as much as the devices are more or fewer: that of all, where others are of one."""
    return bool(row.world and match.world and row.world != match.world
                and abs(abs(off) - abs(math.log(row.world / match.world))) <= may + CLOSE)  # fmt: skip


def _share_of(row: Row, match: Row, terms: Terms) -> tuple[float, float, float] | None:
    """What the other row has, by how much the printed share is off, and how much it may be."""
    off, base = _product(row, terms), _product(match, terms[1:])
    return None if off is None or base is None else (base[0], off[0] - base[0], off[1] + base[1] + CLOSE)


def _asked(row: Row) -> tuple[object, ...]:
    record = row.record
    return (record.size_label, row.world, record.tp, record.pp, row.beside("cp"), record.mbs, record.gbs, row.seq)


SPREAD = 0.7
"""Over how much, as a logarithm, such columns differ from row to row."""


def _changes(rows: list[Row], name: str) -> bool:
    values = [value for row in rows if (value := row.get(name))]
    return len(values) >= FEWEST and max(values) > 1.01 * min(values)


def price_of(row: Row) -> float | None:
    """Of an hour of the row's device, as the text has it."""
    prices = row.sheet.text(row).prices
    return next((price for device, price in prices.items() if re.search(rf"\b{device}\b", row.record.machine.upper())), None)


def _product(row: Row, terms: Terms) -> tuple[float, float] | None:
    """The logarithm of the product, and what the printed digits leave open."""
    total = open_ = 0.0
    for name, power in terms:
        given = {"world": row.world, "seq": row.seq}
        value = price_of(row) if name == "price" else given[name] if name in given else row.get(name)
        if not value or value <= 0 or name in row.record.inferred and name not in COUNTED:
            return None
        total += power * math.log(value)
        figure = row.printed(name) if name not in COUNTED else None
        open_ += figure.slack if figure is not None else 0.0
    return total, open_


def learn(sheet: Sheet) -> dict[tuple[str, int | None], list[Way]]:
    """Of every table."""
    made = {key: _with_factors(rows, list(found(rows))) for key, rows in sheet.tables.items() if key[1] is not None}
    return {key: ways for key, ways in made.items() if ways}


def _with_factors(rows: list[Row], ways: list[Way]) -> list[Way]:
    """And what follows, by a factor that everybody knows, where nothing else explains a column."""
    some = [row for row in rows if row.tabular and not row.planned] if len(rows) <= MOST_ROWS else []
    known = {way.terms[0][0] for way in ways} | {one.terms[0][0] for one in rows[0].sheet.found.get(rows[0].key, ())}
    told = [{name for name, _ in way.terms} for way in ways]  # of another of its columns
    return ways + [Way(one.terms, {"": one.constant}, dict.fromkeys(one.rows, ""), one.kept)
                   for one in factors.found(some, known) if {name for name, _ in one.terms} not in told]
