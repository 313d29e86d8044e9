"""How long a phase lasts, told in several columns at once: hours, tokens over their rate, steps times their time, GPU hours.

    check(sheet)          findings on rows in which one of them does not belong to the others

    | phase | GPUs | tokens | tokens/s  | days | GPU-hours | EUR    |
    | main  |  256 |  2000B | 1,093,000 | 21.2 |   130,121 | 273,254|

Each is a number of hours by what its words mean, so that nothing has to be learned: a plan of three rows of which two are wrong
still tells which. Two of them count where another row of the table keeps to them, restarts and all.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import EXTRA, field_of
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.usual import round_number
from seatrial.tables.headings import NUMBER, clean, decimal, normal
from seatrial.tables.tongues import in_english

FEWEST, MOST_ROWS = 2, 40
CLOSE, OFF, MOST = 0.012, 0.077, 0.06
"""Beyond the digits: within which two ways to tell the hours agree, and from where on they do not; and the most that digits may
leave open."""
OVERHEAD = 0.25
"""By how much hours on the clock may exceed those of the steps, where rows agree on it."""
COUNTS = ("gpus", "nodes", "gbs")
"""What nobody has 513 of."""
THOUSAND = math.log(1000.0)
CLEAR = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost")
_BEFORE = r"(?:(?:wall|run|training|train|total|net|est|estimated|elapsed|job|duration) ?(?:clock|time)? ?)?(?:time )?(?:in )?"
_TIMES = {re.compile(rf"{_BEFORE}(?:hours?|hrs?|h)(?: net| total| wall)?"): 1.0,
          re.compile(rf"{_BEFORE}(?:days?|d)(?: net| total| wall)?"): 24.0}  # fmt: skip
_OF_DEVICE = r"(?:gpu|device|card|tpu|npu|hpu|chip|gcd|accelerator|[ahvb]\d{2,3}|mi\d+x?)s?"
_SPENT = {re.compile(rf"(?:total )?{_OF_DEVICE} ?(?:hours?|hrs?|h)|(?:hours?|ore|h) (?:de )?{_OF_DEVICE}"): "world",
          re.compile(r"(?:total )?node ?(?:hours?|hrs?|h)"): "nodes"}  # fmt: skip
_TOKENS = re.compile(r"(?:(?:total|training|train|seen|trained) )?(?:tokens?|toks?)(?: seen| trained| total)?(?: in)?"
                     r"(?: ([bmtgk]|billions?|millions?|trillions?|1e\d+))?|"
                     r"(?:d )?([bmtg]) ?tokens?|gtok(en)?s?")  # fmt: skip
_EACH = rf"(?: (?:per|a|each|pro|je|par|por))? {_OF_DEVICE}"
_ENERGY = {re.compile(r"(?:energy |total )?kwh"): ("energy", 1.0), re.compile(r"(?:energy |total )?mwh"): ("energy", 1e3),
           re.compile(r"(?:power |draw )?kw"): ("power", 1.0), re.compile(r"(?:power |draw )?w"): ("power", 1e-3),
           re.compile(rf"(?:(?:mean |avg )?(?:power |draw ))?kw{_EACH}"): ("power each", 1.0),
           re.compile(rf"(?:(?:mean |avg )?(?:power |draw ))?w{_EACH}"): ("power each", 1e-3)}  # fmt: skip
_AT_POWER = re.compile(rf"kWh ?\((?:at |bei |a |@ ?)?({NUMBER.pattern}) ?(k?)W\)", re.IGNORECASE)
"""Energy of a power that the heading says."""
_A_PRICE_EACH = re.compile(rf"(?:(?:price|rate|usd|eur|chf|dollars?|euros?)? ?)*(?:per|a)?(?: {_OF_DEVICE})?(?: and)? ?"
                           r"(?:per |a )?(?:h|hr|hour)")  # fmt: skip
"""Of one device's hour, under a heading that names money."""
_MONEY = re.compile(r"\b(?:costs?|usd|eur|kosten|cout|coste|custo|dollars?|euros?|chf)\b|[$€£]")
_A_PRICE = re.compile(rf"(?<![\w.,])(?:[$€£]\s?({NUMBER.pattern})|({NUMBER.pattern})\s?"
                      r"(?:[$€£]|EUR|USD|CHF|euros?|dollars?))\s?"
                      r"(?:/|per |an? |pro |par |por |je |l[’'])\s?"
                      r"(?:(kWh)|(?:[\w-]+[ -]?)?(?:h\b|hour|hr\b|Stunde|heure|hora))",
                      re.IGNORECASE)  # fmt: skip
_AN_AMOUNT = re.compile(r"[$€£]\s?\d|\d\s?(?:[$€£]|EUR|USD|CHF|euros?\b|dollars?\b)", re.IGNORECASE)
_SCALES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


@dataclass(frozen=True)
class _Way:
    """One way to tell the hours of a row, as logarithms."""

    name: str
    hours: float
    open_: float
    cells: tuple[tuple[str, int], ...]
    """The cells that it is worked out from, and the power of each."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        if FEWEST <= len(mates) <= MOST_ROWS and mates[0].tabular:
            columns = _columns(tuple(mates[0].record.printed))
            if len(columns) > 1 or columns and mates[0].record.iteration:
                found += _told([row for row in mates if not is_aggregate(row)], columns)
    return found


@functools.lru_cache(maxsize=4096)
def _columns(headings: tuple[str, ...]) -> dict[str, tuple[str, float]]:
    """Heading -> what it tells, and its unit: hours of the clock, of devices or of nodes, tokens."""
    found: dict[str, tuple[str, float]] = {}
    for heading in headings:
        words = normal(in_english(clean(heading), surely=True)).strip()
        times, words = (1e3, words[2:]) if words.startswith("k ") else (1.0, words)
        hours = next((unit for pattern, unit in _TIMES.items() if pattern.fullmatch(words)), None)
        of = next((of for pattern, of in _SPENT.items() if pattern.fullmatch(words)), None)
        tokens = _TOKENS.fullmatch(words)
        at_power = _AT_POWER.fullmatch(clean(heading))
        energy = next((one for pattern, one in _ENERGY.items() if pattern.fullmatch(words)), None)
        if hours is not None:
            found[heading] = "hours", hours * times
        elif of is not None:
            found[heading] = of, times
        elif energy is not None:
            found[heading] = energy
        elif at_power is not None and (kilowatts := float(decimal(at_power[1])) * (1.0 if at_power[2] else 1e-3)) > 0:
            found[heading] = "energy of hours", 1 / kilowatts
        elif _MONEY.search(f"{words} {heading}") and _A_PRICE_EACH.fullmatch(words):
            found[heading] = "price each", 1.0
        elif _MONEY.search(f"{words} {heading}") and not re.search(r"\bper\b|/", f"{words} {heading}"):
            found[heading] = "money", 1.0
        elif tokens is not None and field_of(heading) in ("", "iteration"):
            unit = next(filter(None, (tokens[1], tokens[2])), "g" if words.startswith("gtok") else "")
            found[heading] = "tokens", float(unit) if unit[:2] == "1e" else _SCALES.get(unit[:1], 1.0)
    kinds = [kind for kind, _ in found.values()]
    return {heading: one for heading, one in found.items() if kinds.count(one[0]) == 1 and 0 < one[1] < math.inf}


def lasts(heading: str) -> float | None:
    """The hours of a unit of time on the clock that stands above a column; None where it is no such time."""
    kind, unit = _columns((heading,)).get(heading, ("", 0.0))
    return unit if kind == "hours" else None


def _of_steps(row: Row) -> bool:
    return bool(row.record.iteration and row.record.sec_per_it)


def _figure(row: Row, heading: str) -> tuple[float, float] | None:
    """A figure as it is printed, and what its digits leave open."""
    cell = row.record.printed.get(heading, "") if heading else ""
    value, shown = digits.alone(cell), digits.plain(cell)
    if not value or value <= 0 or not shown or not float(shown):
        return None
    # What was chosen is exact: 2T tokens.
    chosen = "." not in shown
    return value, 0.0 if chosen and float(shown) >= 100 else 0.5 * 10.0 ** -digits.places(cell) / float(shown)


def _ways(row: Row, columns: dict[str, tuple[str, float]]) -> list[_Way]:
    found: list[_Way] = []
    named = {kind: heading for heading, (kind, _) in columns.items()}
    many = row.world if row.world and row.world > 1 and (row.shows("gpus") or row.shows("nodes") or _counts(row)) else None
    # Where nobody says of how many devices they are, hours of devices are compared with each other.
    each = math.log(many) if many else None if {"hours", "tokens"} & {*named} or _of_steps(row) else 0.0
    prices = _prices(row.sheet.text(row).lines) if "money" in named else {}
    for heading, (kind, unit) in columns.items():
        figure = _figure(row, heading)
        if figure is None:
            continue
        value, open_ = math.log(figure[0] * unit), figure[1]
        own = (EXTRA + heading, 1)
        if kind in ("hours", "energy of hours"):
            found.append(_Way(heading, value, open_, (own,)))
        elif kind in ("world", "nodes"):
            count = row.world if kind == "world" else row.get("nodes")
            name = ("nodes" if row.record.gpus is None and row.record.nodes else "gpus") if kind == "world" else "nodes"
            if count and count > 1 and row.shows(name):
                found.append(_Way(heading, value - math.log(count), open_, (own, (name, -1))))
            elif kind == "world" and each is not None:
                found.append(_Way(heading, value - each, open_, (own,)))
        elif _BY.get(kind) in named and each is not None and (by := _figure(row, named[_BY[kind]])) is not None:
            cells = (own, (EXTRA + named[_BY[kind]], -1))
            found.append(_Way(heading, value - math.log(by[0] * columns[named[_BY[kind]]][1]) - each, open_ + by[1], cells))
        elif kind == "energy" and (power := _figure(row, named.get("power", ""))) is not None:
            hours = value - math.log(power[0] * columns[named["power"]][1])
            found.append(_Way(heading, hours, open_ + power[1], (own, (EXTRA + named["power"], -1))))
        elif kind == "money" and each is not None and (own_price := _listed(row)) is not None:
            found.append(_Way(heading, value - math.log(own_price) - each, open_, (own,)))
        elif kind == "money":
            power, price = _figure(row, named.get("power", "")), prices.get("kwh")
            if price and (at := named.get("energy of hours")) is not None:
                found.append(_Way(heading, value - math.log(price / columns[at][1]), open_, (own,)))
            elif price and power is not None:
                hours = value - math.log(price * power[0] * columns[named["power"]][1])
                found.append(_Way(heading, hours, open_ + power[1], (own,)))
            elif (price := prices.get("hour")) and row.world and row.shows("gpus") and _of_one_device(row):
                found.append(_Way(heading, value - math.log(price * row.world), open_, (own, ("gpus", -1))))
        elif kind == "tokens" and (rate := _rate(row)) is not None:
            # 2T tokens were chosen.
            open_ = 0.0 if open_ > 0.02 else open_ + rate[1]
            found.append(_Way(heading, value - rate[0] - math.log(3600), open_, (own, *rate[2])))
    samples = row.printed("samples_per_s") if row.shows("samples_per_s") else None
    if samples is not None and samples.value > 0 and row.record.iteration and row.shows("iteration") and row.shows("gbs"):
        hours = math.log(row.record.iteration * (row.record.gbs or 1) / samples.value / 3600)
        found.append(_Way("samples", hours, samples.slack, (("samples_per_s", -1), ("iteration", 1), ("gbs", 1))))
    if _of_steps(row) and row.shows("iteration") and row.shows("sec_per_it") and row.record.time_unit != "it/s":
        step = row.printed("sec_per_it")
        if step is not None and row.record.iteration and step.value > 0:
            hours = math.log(row.record.iteration * step.value / 3600)
            found.append(_Way("steps", hours, step.slack, (("iteration", 1), ("sec_per_it", 1))))
    return found


_BY = {"energy": "power each", "money": "price each"}


def _counts(row: Row) -> bool:
    """Whether the cell of the device says how many of them there are: `8x H100`."""
    return re.match(r"\d+ ?[x×]", clean(row.record.machine or row.cell("machine"))) is not None


def _of_one_device(row: Row) -> bool:
    return all(mate.record.machine == row.record.machine for mate in row.mates[:MOST_ROWS])


@functools.lru_cache(maxsize=64)
def _prices(lines: tuple[str, ...]) -> dict[str, float]:
    """The one price of a device's hour, and of a kWh, that a text gives."""
    found: dict[str, set[float]] = {}
    for line in lines:
        for match in _A_PRICE.finditer(line) if len(line) <= 2000 and len(_AN_AMOUNT.findall(line)) == 1 else ():
            found.setdefault("kwh" if match[3] else "hour", set()).add(float(decimal(match[1] or match[2])))
    return {unit: prices.pop() for unit, prices in found.items() if len(prices) == 1 and min(prices) > 0}


_PER_HOUR = re.compile(rf"(?:per|a|an|/) ?(?:{_OF_DEVICE}[ -]?)?(?:hour|hr|h)\b", re.IGNORECASE)
_LISTED = re.compile(rf"(?<![\w.-])([A-Za-z][\w.]*\d\w*)(?: at|:| =)? ?"
                     rf"(?:[$€£]\s?({NUMBER.pattern})|({NUMBER.pattern})\s?[$€£])")  # fmt: skip


@functools.lru_cache(maxsize=64)
def _price_list(lines: tuple[str, ...]) -> dict[str, float]:
    """Device -> price of its hour, from the one line that lists several: `v5e $1.20, v5p $4.20`."""
    lists = [found for line in lines if len(line) <= 2000 and line[:1] != "|" and _PER_HOUR.search(line)
             and len(found := _LISTED.findall(line)) > 1]  # fmt: skip
    return {name.casefold(): float(decimal(one or other)) for name, one, other in lists[0]} if len(lists) == 1 else {}


def _listed(row: Row) -> float | None:
    """The price of an hour of the device that the row names first."""
    prices = _price_list(row.sheet.text(row).lines)
    cell = next(iter(row.cells.values()), "").casefold() if prices else ""
    return next((price for name, price in prices.items() if price and re.match(rf"{re.escape(name)}(?!\w)", cell)), None)


def _rate(row: Row) -> tuple[float, float, tuple[tuple[str, int], ...]] | None:
    """Tokens a second of all devices, as a logarithm, with what it is worked out from."""
    figure = row.printed("tokens_per_s") if row.shows("tokens_per_s") else None
    if figure is not None and figure.value > 0:
        return math.log(figure.value), figure.slack, (("tokens_per_s", -1),)
    each = row.printed("tokens_per_s_per_process") if row.shows("tokens_per_s_per_process") else None
    if each is not None and each.value > 0 and row.world and row.world > 1:
        return math.log(each.value * row.world), each.slack, (("tokens_per_s_per_process", -1),)
    step = row.printed("sec_per_it") if row.shows("sec_per_it") and row.record.time_unit != "it/s" else None
    if step is not None and step.value > 0 and row.record.gbs and row.shows("gbs") and row.seq and row.shows("iteration"):
        return math.log(row.record.gbs * row.seq / step.value), step.slack, (("gbs", -1), ("sec_per_it", 1))
    return None


def _told(rows: list[Row], columns: dict[str, tuple[str, float]]) -> Iterator[Finding]:
    ways = {row: {way.name: way for way in made} for row in rows if len(made := _ways(row, columns)) > 1}
    names = list(dict.fromkeys(name for its in ways.values() for name in its))
    law: dict[tuple[str, str], tuple[float, int]] = {}
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            offs = [(its[one].hours - its[other].hours, its[one].open_ + its[other].open_) for its in ways.values()
                    if one in its and other in its]  # fmt: skip
            offs = [each for each in offs if each[1] <= MOST]
            constant = max([0.0, *(off for off, _ in offs)], key=lambda off: (_kept(offs, off), -abs(off)))
            kept, overhead = _kept(offs, constant), abs(constant) > CLOSE
            most = len(offs) // 2 + 1 if overhead else max(1, (len(offs) + 1) // 2)
            enough = kept >= max(2 if overhead else 1, most) or not overhead and kept > 1 and _are_slips(offs)
            if enough and abs(constant) <= OVERHEAD:
                law[one, other] = constant, kept
    for row, its in ways.items():
        offs_of = {(one, other): (abs(its[one].hours - its[other].hours - constant), its[one].open_ + its[other].open_)
                   for (one, other), (constant, _) in law.items() if one in its and other in its}  # fmt: skip
        broken = [pair for pair, (off, may) in offs_of.items() if off > OFF + may]
        fine = [pair for pair, (off, may) in offs_of.items() if off <= 2 * CLOSE + may]
        if broken and not row.settled and not row.reasons:
            yield _finding(row, its, law, broken, fine)


def _are_slips(offs: list[tuple[float, float]]) -> bool:
    """Whether the rows that do not agree are far off, and each by another factor."""
    rest = sorted(off for off, may in offs if abs(off) > may + CLOSE)
    far = all(abs(off) > may + OFF for off, may in offs if abs(off) > may + CLOSE)
    return far and all(two - one > OFF for one, two in itertools.pairwise(rest))


def _kept(offs: list[tuple[float, float]], constant: float) -> int:
    return sum(abs(off - constant) <= may + CLOSE for off, may in offs)


def _finding(row: Row, ways: dict[str, _Way], law: dict[tuple[str, str], tuple[float, int]],
             broken: list[tuple[str, str]], fine: list[tuple[str, str]]) -> Finding:  # fmt: skip
    """Which cell it is: one that is part of no pair that agrees, and that a slip of the hand explains."""
    # What two ways have in common cancels: that they agree says nothing of it.
    sound = {cell for pair in fine for cell, _ in {*ways[pair[0]].cells} ^ {*ways[pair[1]].cells}}
    meant: dict[str, tuple[str, str]] = {}
    agreeing = {name for pair in fine for name in pair}
    for one, other in broken:
        off = ways[one].hours - ways[other].hours - law[one, other][0]
        for name, against, more in ((one, other, off), (other, one, -off)):
            if agreeing and against not in agreeing:
                continue
            for cell, power in ways[name].cells:
                if cell in sound:
                    continue
                made = _mended(row.cell(cell), math.exp(-more * power), whole=cell in COUNTS, timed=len(ways[name].cells) == 1)
                if made is not None and not meant.get(cell, ("", ""))[1]:
                    meant[cell] = made
    clear = {cell: made for cell, made in meant.items() if made[1]}
    chosen = clear if len(clear) == 1 else meant if len(meant) == 1 else {}
    if not chosen and "iteration" in meant and _as_many_tokens(row, meant["iteration"][0]):
        chosen = {"iteration": meant["iteration"]}
    chosen = chosen or _exchanged(row, meant)
    one, other = broken[0]
    kept = max(law[pair][1] for pair in broken)
    level: Level = "error" if kept > 1 or fine else "warning"
    said = f"the row lasts {_hours(ways[one])} and {_hours(ways[other])}, which agree in {kept} other rows"
    if len(clear) > 1:  # of a unit that was mistaken it is what was worked out
        chosen = {cell: made for cell, made in clear.items() if cell == ways[broken[0][1]].cells[0][0]}
    cell = next(iter(chosen), ways[one].cells[0][0])
    column, printed = row.column(cell), row.cell(cell)
    if not chosen:
        options = " or ".join(f"{row.column(name)} {text}" for name, (text, _) in meant.items())
        return row.find("aggregate", level, f"{said}: {options}", column=column, printed=printed)
    text, how = chosen[cell]
    message = f"{column} {printed} -> {text}{how}: {said}"
    return row.find("aggregate", level, message, column=column, printed=printed, proposed=text)


def _exchanged(row: Row, meant: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """The first of two cells each of which should be what the other one is."""
    pairs = [(one, other) for one, other in itertools.combinations(meant, 2) if all(
        (value := digits.alone(row.cell(there))) and abs(float(meant[here][0].replace(",", "")) / value - 1) < 2 * CLOSE
        for here, there in ((one, other), (other, one)))]  # fmt: skip
    return {one: (row.cell(other), f" (exchanged with {row.column(other)})") for one, other in pairs[:1]}


def _as_many_tokens(row: Row, steps: str) -> bool:
    """Whether the row trains on as many tokens as all others with so many steps, and as it stands does not."""
    def tokens(one: Row, count: float) -> float:
        return count * (one.record.gbs or 0) * (one.seq or 1)

    others = [tokens(mate, mate.record.iteration or 0) for mate in row.mates[:MOST_ROWS] if mate is not row]
    now, then = tokens(row, row.record.iteration or 0), tokens(row, float(steps.replace(",", "")))
    alike = len(others) > 1 and min(others) > 0 and max(others) < (1 + CLOSE) * min(others)
    return alike and abs(then / others[0] - 1) < CLOSE and abs(now / others[0] - 1) > CLOSE


def _mended(cell: str, factor: float, *, whole: bool, timed: bool) -> tuple[str, str] | None:
    """The cell with another value, and which slip of the hand explains it; none where nobody has so many."""
    shown = digits.plain(cell)
    value = float(shown) * factor if shown else 0.0
    if not 0 < value < math.inf or whole and (not round_number(round(value)) or abs(value - round(value)) > CLOSE * value):
        return None
    slip = digits.slip(shown, (value * (1 - CLOSE), value * (1 + CLOSE)))
    typed = slip if slip is not None and slip.how in CLEAR else None
    in_units = abs(abs(math.log(factor)) - THOUSAND) < 2 * CLOSE
    places = max(digits.places(cell), 1) if in_units and value < 100 else digits.places(cell)
    text = f"{value if typed is None else typed.value:,.{places}f}"
    text = text if re.search(r"\d,\d{3}", cell) else text.replace(",", "")
    unit = next((why for of, why in _UNITS.items() if abs(math.log(factor / of)) < CLOSE), "") if timed else ""
    return text, unit or " (a thousand times)" if in_units else unit if typed is None else f" ({typed.how})"


_UNITS = {24.0: " (those are days)", 1 / 24: " (those are hours)", 1 / 60: " (those are minutes)"}


def _hours(way: _Way) -> str:
    return f"{math.exp(way.hours):.4g} h by {way.name}"
