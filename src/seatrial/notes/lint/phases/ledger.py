"""Rows of whole runs as a ledger: hours, devices, steps, tokens, money, energy and what they give each other, by definition.

    check(sheet)          findings on rows in which one of them does not belong to the others

    | phase | GPUs | tokens | tokens/s  | days | GPU-hours | EUR    |
    | main  |  256 |  2000B | 1,093,000 | 21.2 |   130,121 | 273,254|

The definitions are in `quantities`: nothing has to be learned but what rows have in common and nobody states, as a price or
how much longer the clock ran than the steps. One of them counts where the rows keep to it, and is a relation like others then
(`columns.relations`): what mends a row is asked there of all of them together. `check` is for rows that this leaves open: two
cells that were pasted, a slip in a table of three rows.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from seatrial.notes.lint import digits
from seatrial.notes.lint.columns import named
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.models.devices import devices_in, names_device
from seatrial.notes.lint.phases.quantities import AMOUNTS, DEVICE, FIELDS, GAIN, Equation, equations, meanings
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.usual import round_number
from seatrial.tables.headings import NUMBER, clean, decimal, normal

FEWEST, MOST_ROWS, MOST_COLUMNS, MOST_HEADINGS, MOST_EQUATIONS = 2, 60, 16, 48, 60
CLOSE, LOOSE, OFF = 0.012, 0.03, 0.077
"""Beyond the digits: within which a row keeps to a law, within which means over other steps do, and from where on it breaks
it."""
MOST, COARSE = 0.06, 0.3
"""The most that digits may leave open where rows are to show a law, and where they are held against one."""
OVERHEAD = 0.25
"""By how much hours on the clock may exceed those of the steps, where rows agree on it."""
THOUSAND = math.log(1000.0)
CHOSEN = frozenset(("devices", "nodes", "batch", "sequence", "steps", "epochs", "devices of a node"))
"""What is counted, to its last digit."""
ROUND = frozenset(("devices", "nodes", "batch", "sequence"))
"""What nobody has 513 of."""
BATCHES = frozenset(("batch", "sequence", "steps", "tokens", "samples", "tokens of a step"))
OF_THE_SITE = frozenset(("price of energy", "carbon of energy", "overhead of the site"))
"""What no device has of its own."""
WORKED_OUT = (GAIN, "carbon", "price of tokens", "energy of a token", "device hours of a token", "hours of a token", "money",
              "energy of the site", "energy", "device hours", "node hours", "hours")  # fmt: skip
"""What people work out from the rest, the last first."""
LIST = ("price of a device hour", "price of a node hour", "price of an hour", "price of energy", "carbon of energy",
        "power of a device", "power of a node", "overhead of the site", "sequence", "batch")  # fmt: skip
"""What rows have in common by nature: that it is another row's as well says nothing."""
CLEAR = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost")
_UNITS = {24.0: "those are days", 1 / 24: "those are hours", 1 / 60: "those are minutes", 60.0: "those are seconds",
          1000.0: "a thousand times", 1e-3: "a thousand times"}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A column as one kind of quantity."""

    heading: str
    """Empty of what the text says for all rows: `stated`."""
    kind: str
    unit: float = 1.0

    @property
    def name(self) -> str:
        return self.heading or self.kind


@dataclass(frozen=True)
class Law:
    """An equation between columns, and how the rows keep to it."""

    equation: Equation
    cells: tuple[tuple[Cell, int], ...]
    groups: dict[Row, str]
    """Which rows share what is free."""
    constants: dict[str, float]
    """Group -> the logarithm of the product, beside the equation's own."""
    offs: dict[Row, tuple[float, float]]
    """By which logarithm a row is off, and what its digits leave open."""
    kept: int

    @property
    def of_batches(self) -> bool:
        """Whether it is between counts alone, which are another batch's as often as they are wrong."""
        return self.equation.free == "tokens of a step" or all(cell.kind in BATCHES for cell, _ in self.cells)

    @property
    def of_money(self) -> bool:
        return any(cell.kind == "money" for cell, _ in self.cells)

    def power(self, heading: str) -> int:
        return next((power for cell, power in self.cells if cell.heading == heading), 0)

    def with_rows(self, offs: dict[Row, tuple[float, float]]) -> Law:
        """And the rows whose digits show nothing, but may deny it, where nothing is to be agreed on."""
        if self.equation.free:
            return self
        told = {row: (off - self.constants[""], may) for row, (off, may) in offs.items()}
        return replace(self, groups=dict.fromkeys(offs, ""), offs=told)

    def breaks(self, row: Row) -> bool:
        off, may = self.offs.get(row, (0.0, 0.0))
        return abs(off) > OFF + may and not (self.of_batches and _is_chosen(off, may))

    def keeps(self, row: Row) -> bool:
        off, may = self.offs.get(row, (math.inf, 0.0))
        return abs(off) <= LOOSE + may

    @property
    def text(self) -> str:
        first = next(cell for cell, power in self.cells if power > 0)
        rest = [("x" if power < 0 else "/") + f" {cell.name}" for cell, power in self.cells if cell != first]
        return f"{first.name} = {' '.join(rest).removeprefix('x ')}"


def _is_chosen(off: float, may: float) -> bool:
    """Whether it is a factor by which somebody chooses another batch: 2, 3/4."""
    factors = {one / other for one in range(2, 17) for other in (1, 2, 3, 4) if one > other}
    return any(abs(abs(off) - math.log(factor)) <= may + CLOSE for factor in factors)


def is_listed(heading: str) -> bool:
    """Whether a column has what rows of one place or one device have in common by nature."""
    return any(kind in LIST and "price" not in kind for kind, _ in meanings(heading)[:1])


def learn(mates: list[Row]) -> list[Law]:
    """The laws that the rows of a table keep to."""
    columns = _columns(mates) if len(mates) >= FEWEST and mates[0].tabular else {}
    rows = [row for row in mates[:MOST_ROWS] if not is_aggregate(row)] if columns else []
    return [_of_what_is_paid(law, rows) for law in _laws(rows, columns)] if columns else []


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for key, laws in sheet.laws.items():
        rows = [row for row in sheet.tables[key][:MOST_ROWS] if not is_aggregate(row)]
        for row in rows:
            found += _told(row, laws, rows)
    return found


def _columns(mates: list[Row]) -> dict[str, list[Cell]]:
    """Kind -> the columns that may be of it."""
    found: dict[str, list[Cell]] = {}
    fields = {heading: FIELDS[name] for name, heading in mates[0].columns.items() if name in FIELDS}
    # What an export has besides, names and dates and rates of learning, leaves no room for less.
    counted = [heading for heading in mates[0].record.printed if heading in fields or meanings(heading) or _is_device(heading)]
    for heading in counted[:MOST_COLUMNS]:
        for kind, unit in [(fields[heading], 1.0)] if heading in fields else meanings(heading):
            found.setdefault(kind, []).append(Cell(heading, kind, unit))
        if _is_device(heading) and all(row.cells[heading].isdecimal() for row in mates[:MOST_ROWS] if row.cells.get(heading)):
            found.setdefault("devices", []).append(Cell(heading, "devices", 1.0))
    if any(map(_is_discounted, mates[0].record.printed)):
        found = {kind: cells for kind, cells in found.items() if not kind.startswith("price")}  # that is paid in part
    if found.keys().isdisjoint(AMOUNTS) or len(found) < 2:
        return {}
    batch = mates[0].columns.get("gbs", "")
    printed = [cell for row in mates[:MOST_ROWS] if (cell := row.cells.get(batch, ""))]  # a total has none
    read = {row.record.gbs is None for row in mates[:MOST_ROWS] if row.cells.get(batch)}
    if len(read) > 1:  # of tokens, rounded so that some are no whole number of sequences
        found["batch"] = [cell for cell in found.get("batch", []) if cell.heading != batch]
    elif "tokens of a step" not in found and all(map(_MANY_TOKENS.fullmatch, printed)) and (printed or not batch):
        found["tokens of a step"] = [Cell(batch, "tokens of a step")]  # `4.19M` under `batch`
    for kind in STATED:
        if kind not in found and any(stated(row, kind) for row in mates[:FEWEST]):
            found[kind] = [Cell("", kind)]
    return found


@functools.lru_cache(maxsize=4096)
def _is_device(heading: str) -> bool:
    return re.fullmatch(DEVICE, normal(clean(heading))) is not None


@functools.lru_cache(maxsize=4096)
def _is_discounted(heading: str) -> bool:
    return _DISCOUNT.search(heading) is not None


_DISCOUNT = re.compile(r"discount|rebate|rabatt|remise|sconto|descuento|desconto|korting|скидк|折扣|割引|할인", re.IGNORECASE)
_MANY_TOKENS = re.compile(r"\d+(?:[.,]\d+)? ?Mi?(?: ?tok(?:en)?s?)?")
STATED = ("devices", "nodes", "batch", "sequence", "price of a device hour", "price of energy", "peak of a device")


def stated(row: Row, kind: str) -> float | None:
    """What the text says of a row, in units of its kind."""
    lines = row.sheet.text(row).lines
    if kind in FROM_FIELDS:
        said = row.world if kind == "devices" else row.seq if kind == "sequence" else row.get(FROM_FIELDS[kind])
    elif kind == "peak of a device":
        peaks = row.device.peak_tflops if row.device is not None and (row.record.machine or row.names_device) else {}
        said = peaks.get("bf16") or peaks.get("fp16")
    elif kind == "price of energy":
        said = prices(lines).get("kwh")
    else:
        said = listed_price(row) or named.price_of(row) or prices(lines).get("hour")
        if said and not _is_for(row, said):
            return None
    return said if said and 0 < said < digits.MOST_WORKED_OUT else None


FROM_FIELDS = {kind: name for name, kind in FIELDS.items() if kind in STATED}


def figure(row: Row, cell: Cell) -> tuple[float, float] | None:
    """The logarithm of a cell in units of its kind, and what its digits leave open; None where it has no figure."""
    if not cell.heading:
        said = stated(row, cell.kind)
        return (math.log(said), 0.0) if said is not None else None
    name = name_of(row, cell.heading)
    if name[:1] != EXTRA:
        value, printed = row.get(name), row.printed(name)
        if name in row.record.inferred or not value or not 0 < value < digits.MOST_WORKED_OUT or printed is None:
            return None
        return math.log(value), 0.0 if cell.kind in CHOSEN else printed.slack
    text = row.record.printed.get(cell.heading, "")
    value, shown = row.fixed.get(name, digits.alone(text)), digits.plain(text)
    if not value or not 0 < value < digits.MOST_WORKED_OUT or not shown or not float(shown):
        return None
    open_ = 0.5 * 10.0 ** -digits.places(text) / float(shown)
    # 2T tokens were chosen, and so were 500 steps.
    exact = cell.kind in CHOSEN and "." not in shown or cell.kind == "tokens" and open_ > 0.02
    return math.log(value * cell.unit), 0.0 if exact else open_


def name_of(row: Row, heading: str) -> str:
    name = next((name for name, its in row.columns.items() if its == heading and name in FIELDS), EXTRA + heading)
    return EXTRA + heading if name == "gbs" and row.record.gbs is None else name


def terms(row: Row, law: Law) -> tuple[tuple[tuple[str, int], ...], float] | None:
    """A law as a product of fields and columns of a row, and the logarithm of their units: what people work out comes first."""
    made = []
    units = 0.0
    for cell, power in sorted(law.cells, key=lambda one: (*WORKED_OUT, one[0].kind).index(one[0].kind)):
        name = name_of(row, cell.heading) if cell.heading else "peak" if cell.kind == "peak of a device" else FROM_FIELDS.get(
            cell.kind, "")  # fmt: skip
        if not name:  # a price of the text
            same = {stated(mate, cell.kind) for mate in row.mates[:MOST_ROWS]}
            if len(same) > 1 or not (price := same.pop()):
                return None
            units += power * math.log(price)
            continue
        made.append(("world" if name == "gpus" else name, power))
        units += power * math.log(cell.unit) if name[:1] == EXTRA else 0.0
    return tuple(made), units


# ---- prices of the text

_A_PRICE = re.compile(rf"(?<![\w.,])(?:[$€£]\s?({NUMBER.pattern})|({NUMBER.pattern})\s?"
                      r"(?:[$€£]|EUR|USD|CHF|euros?|dollars?))\s?"
                      r"(?:/|per |an? |pro |par |por |je |l[’'])\s?"
                      r"(?:(kWh)|(?:[\w-]+[ -]?)?(?:h\b|hour|hr\b|Stunde|heure|hora))",
                      re.IGNORECASE)  # fmt: skip
_AN_AMOUNT = re.compile(r"[$€£]\s?\d|\d\s?(?:[$€£]|EUR|USD|CHF|euros?\b|dollars?\b)", re.IGNORECASE)


@functools.lru_cache(maxsize=64)
def prices(lines: tuple[str, ...]) -> dict[str, float]:
    """The one price of a device's hour, and of a kWh, that a text gives."""
    found: dict[str, set[float]] = {}
    for line in lines:
        one = len(line) <= 2000 and len(_AN_AMOUNT.findall(line)) == 1 and len(_list_in(line)) < 2
        one = one and not _ON_AVERAGE.search(line)
        for match in _A_PRICE.finditer(line) if one else ():
            found.setdefault("kwh" if match[3] else "hour", set()).add(float(decimal(match[1] or match[2])))
    return {unit: prices.pop() for unit, prices in found.items() if len(prices) == 1 and min(prices) > 0}


_ON_AVERAGE = re.compile(r"\b(?:mean|average[ds]?|avg|Mittel|Schnitt|durchschnittlich\w*|moyenne|promedio|media|"
                         r"gemiddeld)\b|平均|среднем|평균", re.IGNORECASE)  # fmt: skip
"""Such a price is no one's."""
_PER_HOUR = re.compile(rf"(?:per|a|an|/|je|pro|par|por|al|all['’]|l['’]) ?(?:{DEVICE}[ -]?)?"
                       r"(?:hour|hr|h|stunde|heure|hora|ora)\b", re.IGNORECASE)  # fmt: skip
_LISTED = re.compile(rf"(?<![\w.-])([A-Za-z][\w.]*\d\w*)(?: at|:| =| \()? ?"
                     rf"(?:[$€£]\s?({NUMBER.pattern})|({NUMBER.pattern})\s?[$€£])")  # fmt: skip
_MONEY_LISTED = re.compile(rf"(?<![\w.-])([A-Za-z]{{1,6}} ?\d[\w.]*)(?: (?:at|à|a|zu|por))?[:=]? ({NUMBER.pattern})"
                           r"(?=\s?(?:euros?|EUR|USD|dollars?|CHF|руб|元|円|원)|\s?(?:[,;)–—-](?: |$)|$|/ ?h|\.\s|\.$))")
"""`A100 1,60 euro/h per GPU - H100 2,90 - L40S 0,95`: the money is said once."""


@functools.lru_cache(maxsize=64)
def price_list(lines: tuple[str, ...]) -> dict[str, float]:
    """Device -> price of its hour, from the one line that lists several, `v5e $1.20, v5p $4.20`, or two of a sentence."""
    lists = [found for line in lines if len(found := _list_in(line)) > 1]
    if not lists:
        pairs = [f"{line} {after.lstrip()}" for line, after in itertools.pairwise(lines)
                 if _AN_AMOUNT.search(line) and line.strip() and after[:1] not in "|#-*"]  # fmt: skip
        lists = [found for line in pairs if len(found := _list_in(line)) > 1]
    return lists[0] if len(lists) == 1 else {}


def _list_in(line: str) -> dict[str, float]:
    if len(line) > 2000 or line[:1] == "|" or not _PER_HOUR.search(line):
        return {}
    found = {name.casefold(): float(decimal(one or other)) for name, one, other in _LISTED.findall(line)}
    if len(found) < 2 and _AN_AMOUNT.search(line):
        found = {name.casefold(): float(decimal(price)) for name, price in _MONEY_LISTED.findall(line) if names_device(name)}
    return found


def listed_price(row: Row) -> float | None:
    """The price of an hour of the device that the row names, be it in its first cell or in one for the device."""
    prices = price_list(row.sheet.text(row).lines)
    cells = [cell.casefold() for cell in row.cells.values()] if prices else []
    return next((price for cell in cells for name, price in prices.items()
                 if price and re.match(rf"(?:\d+ ?[x×] ?)?{re.escape(name)}(?!\w)", cell)), None)  # fmt: skip


def _is_for(row: Row, price: float) -> bool:
    """Whether a price of the text is that of the row's device, as far as the line that gives it names one."""
    if not row.devices:
        return True
    lines = [line for line in row.sheet.text(row).lines if _A_PRICE.search(line) and any(
        float(decimal(match[1] or match[2])) == price for match in _A_PRICE.finditer(line))]  # fmt: skip
    said = frozenset().union(*(devices_in(line) for line in lines))
    return not said or bool(said & row.devices)


# ---- which laws the rows keep to


def _laws(rows: list[Row], columns: dict[str, list[Cell]]) -> list[Law]:
    figures = {cell: {row: one for row in rows if (one := figure(row, cell)) is not None}
               for cells in columns.values() for cell in cells}  # fmt: skip
    columns = {kind: some for kind, cells in columns.items() if (some := [one for one in cells if len(figures[one]) >= FEWEST])}
    groupings = _groupings(rows)
    found: dict[tuple[tuple[str, int], ...], Law] = {}
    for equation in equations(frozenset(columns))[:MOST_EQUATIONS]:
        for cells in itertools.islice(itertools.product(*(columns[kind] for kind, _ in equation.powers)), 12):
            headings = [cell.heading for cell in cells if cell.heading]
            if len({*headings}) < len(headings) or len(headings) < 2:
                continue
            both = tuple((cell, power) for cell, (_, power) in zip(cells, equation.powers))
            offs = dict(_offs(rows, equation, both, figures))
            telling = {row: one for row, one in offs.items() if one[1] <= MOST}
            if telling and 2 * len(telling) <= len(offs) > FEWEST and not equation.free:
                telling = offs  # `0.4` days say little, and more than nothing where all rows agree
            if len(telling) < FEWEST:
                continue
            law = _free(equation, both, telling, groupings) if equation.free else _defined(equation, both, telling)
            if law is not None and equation.free in UNSAID and not _of_as_many(law):
                law = None
            law = law.with_rows(offs) if law is not None else None
            key = tuple(sorted((cell.heading, power) for cell, power in both))
            if law is not None and (key not in found or found[key].kept < law.kept):
                found[key] = law
    return [law for law in found.values() if not any(_better(other, law) for other in found.values())]


UNSAID = ("devices", "nodes")
"""What rows of one table need not have in common."""


def _of_as_many(law: Law) -> bool:
    """Whether all rows but one are of as many devices to their digits, and that one is far off."""
    offs = [(abs(off), may) for off, may in law.offs.values()]
    near = sum(off <= may + CLOSE for off, may in offs)
    return near >= max(3, len(offs) - 1) and all(off <= may + CLOSE or off > may + OFF for off, may in offs)


def _better(other: Law, law: Law) -> bool:
    """Whether rows show another thing of columns that a law takes otherwise, as hours of one device for those of all."""
    shared = {cell.heading for cell, _ in other.cells} & {cell.heading for cell, _ in law.cells} - {""}
    if len(shared) < 2 or other.kept <= law.kept:
        return False
    odd = [row for row in law.offs if law.breaks(row)]
    more = [cell for cell, _ in law.cells if cell.heading not in {its.heading for its, _ in other.cells}]
    if len(more) == 1 and odd and len(other.cells) < len(law.cells) and all(other.keeps(row) for row in odd):
        # What all rows but these have alike, one card, was never shown to be part of it: `W` are those of all.
        return len({figure(row, more[0]) for row in law.offs if law.keeps(row)}) == 1
    return law.kept == 1 or len(odd) > 1 and 2 * sum(other.keeps(row) for row in odd) > len(odd)


def _offs(rows: list[Row], equation: Equation, cells: tuple[tuple[Cell, int], ...],
          figures: dict[Cell, dict[Row, tuple[float, float]]]) -> Iterator[tuple[Row, tuple[float, float]]]:  # fmt: skip
    for row in rows:
        there = [figures[cell].get(row) for cell, _ in cells]
        if None not in there:
            off = equation.constant + sum(power * one[0] for (_, power), one in zip(cells, there) if one is not None)
            may = sum(one[1] for one in there if one is not None)
            if may <= COARSE:
                yield row, (off, may)


def _defined(equation: Equation, cells: tuple[tuple[Cell, int], ...], offs: dict[Row, tuple[float, float]]) -> Law | None:
    """A law without anything free: it holds as it is, but for thousands that a heading leaves out, and for what the clock
    counts beside the steps."""
    times = Counter(round(off / THOUSAND) for off, _ in offs.values()).most_common(1)[0][0] * THOUSAND
    given = [(off - times, may) for off, may in offs.values()]
    constant = 0.0
    if equation.clocked:
        near = [(off, may) for off, may in given if abs(off) <= OVERHEAD]
        constant = statistics.median(off for off, _ in near) if near else 0.0
        constant = 0.0 if all(abs(off) <= CLOSE + may for off, may in near) or abs(constant) <= CLOSE else constant
    if equation.past and any(may + CLOSE / 2 < abs(off - constant) <= may + OFF for off, may in given):
        return None
    for close in (CLOSE, LOOSE):
        kept = sum(abs(off - constant) <= may + close for off, may in given)
        enough = 2 * kept > len(given) if constant or times else 2 * kept >= len(given) or _are_slips(given) and (
            kept > 1 or len(given) <= FEWEST + 1)
        if kept >= (2 if constant or times or len(cells) == 2 else 1) and enough:
            told = {row: (off - times - constant, may) for row, (off, may) in offs.items()}
            return Law(equation, cells, dict.fromkeys(offs, ""), {"": times + constant}, told, kept)
    return None


def _are_slips(offs: list[tuple[float, float]]) -> bool:
    """Whether the rows that do not agree are far off, and each by another factor."""
    rest = sorted(off for off, may in offs if abs(off) > may + LOOSE)
    far = all(abs(off) > may + OFF for off, may in offs if abs(off) > may + LOOSE)
    return far and all(two - one > OFF for one, two in itertools.pairwise(rest))


def _groupings(rows: list[Row]) -> list[dict[Row, str]]:
    """All rows as one, and by each column of words that comes again: the device, the model."""
    found: list[dict[Row, str]] = [dict.fromkeys(rows, "")]
    for heading in list(rows[0].record.printed)[:MOST_HEADINGS]:
        words = {row: re.sub(r"^\d+ ?[x×] ?", "", row.cells.get(heading, "")) for row in rows}
        apart = Counter(words.values())
        if 1 < len(apart) < len(rows) and sum(any(map(str.isalpha, word)) for word in apart) * 2 > len(apart):
            found.append(words)
    return found


def _free(equation: Equation, cells: tuple[tuple[Cell, int], ...], offs: dict[Row, tuple[float, float]],
          groupings: list[dict[Row, str]]) -> Law | None:  # fmt: skip
    """A law with something that rows agree on: all of them, or those of one device or model."""
    best: Law | None = None
    if equation.free in OF_THE_SITE:
        groupings = [groups for groups in groupings if not any(map(names_device, groups.values()))]
    elif len(groupings) > 1 and equation.free.startswith(("price", "power")):
        groupings = [groups for groups in groupings if any(map(names_device, groups.values()))] or groupings
    if equation.free == "parameters of a model":
        groupings = [{row: row.record.size_label for row in offs}]
    for groups in groupings:
        apart: dict[str, list[tuple[float, float]]] = {}
        for row, one in offs.items():
            apart.setdefault(groups[row], []).append(one)
        constants = {name: _agreed(some) for name, some in apart.items()}
        told = {row: (off - constant, may) for row, (off, may) in offs.items()
                if (constant := constants[groups[row]]) is not None}  # fmt: skip
        # Rows that are off alike are of another kind.
        odd = [off for off, may in told.values() if abs(off) > may + LOOSE]
        if equation.free in BATCHES:
            told = {row: (off, may) for row, (off, may) in told.items() if abs(off) <= may + LOOSE or not _is_chosen(off, may)}
        told = {row: (off, may) for row, (off, may) in told.items() if sum(abs(off - one) < 2 * CLOSE for one in odd) < 2}
        kept = sum(abs(off) <= may + LOOSE for off, may in told.values())
        # What is the same in all rows agrees with anything.
        varied = all(len({round(value) for value in _logs(told, cell)}) > 1 for cell, _ in cells if cell.heading)
        enough = kept >= 3 and kept >= 0.6 * len(told) and 2 * len(told) >= len(offs) and varied
        few = varied and len(offs) == len(told) == 3 == kept + 1
        enough = enough or few and _is_usual(equation, list(told.values()), constants)
        if enough and (best is None or kept > best.kept):
            known = {name: constant for name, constant in constants.items() if constant is not None}
            best = Law(equation, cells, {row: groups[row] for row in told}, known, told, kept)
    return best


def _is_usual(equation: Equation, told: list[tuple[float, float]], constants: dict[str, float | None]) -> bool:
    """Whether what two of three rows agree on to fine digits is what somebody would have chosen: $2.20, 400 W, 1024 x 4096."""
    near = [(off, may) for off, may in told if abs(off) <= may + LOOSE]
    far = all(abs(off) > may + OFF for off, may in told if abs(off) > may + LOOSE)
    constant = constants.get("") if len(constants) == 1 else None
    if equation.past or constant is None or not far or max(abs(off) + may for off, may in near) > FINELY:
        return False
    first, finest = min(near, key=lambda one: one[1])  # as the finest digits have it
    constant += first
    values = [math.exp(sign * constant) for sign in (1, -1) if abs(constant) < 80]
    if equation.free == "tokens of a step":
        return any(_is_power(value, finest + CHOSEN_TO) for value in values)
    shown = [float(f"{value:.2g}") for value in values] + [float(f"{2 * value:.2g}") / 2 for value in values]
    return equation.free.startswith(_CHOSEN) and any(
        abs(math.log(value / other)) < finest + CHOSEN_TO for value, other in zip((*values, *values), shown))


_CHOSEN = ("price of", "power", "carbon of", "overhead")
FINELY, CHOSEN_TO = 0.004, 0.0005
"""Within which two rows alone show what all should have in common, and how closely that is what somebody chose."""


def _is_power(value: float, near: float) -> bool:
    """Whether a batch in tokens is a power of two, or a few times one."""
    least = value
    while least >= 32:
        least /= 2
    return value > 1024 and any(abs(least / of - 1) < near for of in range(16, 32, 2))


def _logs(rows: dict[Row, tuple[float, float]], cell: Cell) -> list[float]:
    return [20 * one[0] for row in rows if (one := figure(row, cell)) is not None]


def _agreed(offs: list[tuple[float, float]]) -> float | None:
    """What most rows of a group have, to their digits; None of one row, or where none do."""
    best = max(offs, key=lambda one: (sum(abs(off - one[0]) <= may + one[1] + CLOSE for off, may in offs), -one[1]))
    near = [off for off, may in offs if abs(off - best[0]) <= may + best[1] + CLOSE]
    return statistics.median(near) if len(near) > 1 and 2 * len(near) > len(offs) else None


# ---- which cell it is


@dataclass(frozen=True)
class Change:
    """Another figure in a cell, and what explains the one that is printed."""

    cell: Cell
    text: str
    why: str = ""
    points: float = 0.0
    other: str = ""
    """The heading of the cell that it was exchanged with."""


def _told(row: Row, laws: list[Law], rows: list[Row]) -> Iterator[Finding]:
    if row.settled or row.reasons:
        return
    broken = [law for law in laws if law.breaks(row)]
    fine = [law for law in laws if law.keeps(row)]
    if not broken:
        return
    exchanged = _exchanged(row, broken, laws)
    changes = [exchanged] if exchanged is not None else sorted(_changes(row, broken, fine, rows), key=lambda one: -one.points)
    if not any(change.points >= SLIPPED for change in changes) and (pasted := _pasted(row, broken, rows)):
        changes = [pasted]
    if not exchanged and not any(change.why for change in changes) and all(_may_last(law, row) for law in broken):
        return  # the clock went on while nothing was done
    if all(law.equation.free and abs(law.offs[row][0]) < GROSS for law in broken) and not any(one.why for one in changes):
        return  # what rows agree on may well be another one's own
    best = changes[0] if changes and (len(changes) == 1 or changes[0].points > changes[1].points + 0.5) else None
    facts = "; ".join(f"by {law.text} it is off by {math.expm1(min(law.offs[row][0], 50.0)):+.1%}" for law in broken[:2])
    kept = max(law.kept for law in broken)
    level: Level = "error" if kept > 1 or fine or best is not None and best.why else "warning"
    said = f"{facts}, as {kept} other rows have it"
    row.settled = True
    if best is None:
        cell = changes[0].cell.heading if changes else next(one.heading for one, _ in broken[0].cells if one.heading)
        options = " or ".join(f"{change.cell.heading} {change.text}{change.why}" for change in changes[:3])
        yield row.find("aggregate", level, f"{said}{': ' if options else ''}{options}", column=cell, printed=row.cells[cell])
        return
    heading, name = best.cell.heading, name_of(row, best.cell.heading)
    for its, text in ((name, best.text), *([(name_of(row, best.other), row.cells[heading])] if best.other else [])):
        if (value := digits.alone(text)) and its[:1] == EXTRA:
            row.propose(its, value, "aggregate")
        else:
            row.reasons[its] = "aggregate"
    message = f"{heading} {row.cells[heading]} -> {best.text}{best.why}: {said}"
    yield row.find("aggregate", level, message, column=heading, printed=row.cells[heading], proposed=best.text)


_CHARGED = re.compile(r"\b(?:billed|billable|charge[ds]|chargeable|invoiced|abgerechnet|berechnet|factur|fatturat|naliczon)|"
                      r"оплач|к оплате|计费|課金|請求|청구", re.IGNORECASE)  # fmt: skip
_AT_LEAST = re.compile(r"\b(?:at least|minimum|mindest|less than|au moins|al menos|como mínimo|almeno|co najmniej)|"
                       r"не менее|минимум|最低|至少|최소", re.IGNORECASE)  # fmt: skip


def _of_what_is_paid(law: Law, rows: list[Row]) -> Law:
    """Without the rows whose money is of more than they used."""
    paid = {row for row in law.offs if law.breaks(row) and _charged(row, law, rows)} if law.of_money else set()
    if not paid:
        return law
    return replace(law, groups={row: group for row, group in law.groups.items() if row not in paid},
                   offs={row: off for row, off in law.offs.items() if row not in paid})  # fmt: skip


def _charged(row: Row, law: Law, rows: list[Row]) -> bool:
    """Whether money is of more than the row used: of what another column says is charged, or the least that is by the text."""
    cost = next((cell for cell, _ in law.cells if cell.kind == "money" and cell.heading), None)
    if cost is None:
        return False
    spent = {mate: value for mate in rows if (value := digits.alone(mate.cells.get(cost.heading, "")))}
    if row not in spent:
        return False
    base = next((heading for heading in row.cells if heading != cost.heading and not law.power(heading)
                 and _CHARGED.search(heading) and "money" not in {kind for kind, _ in meanings(heading)}), None)  # fmt: skip
    if base is not None and (charged := digits.alone(row.cells[base])):
        prices = [spent[mate] / value for mate in spent
                  if law.keeps(mate) and (value := digits.alone(mate.cells.get(base, "")))]  # fmt: skip
        return len(prices) > 1 and any(abs(spent[row] / charged / price - 1) <= CLOSE for price in prices)
    more = law.offs[row][0] * law.power(cost.heading) > 0
    said = more and any(_AT_LEAST.search(line) and _CHARGED.search(line) for line in row.sheet.text(row).lines)
    return said and spent[row] == min(spent.values())


def _pasted(row: Row, broken: list[Law], rows: list[Row]) -> Change | None:
    """The first of several cells that were pasted from a neighbour, each law that is broken having some of them."""
    of = {cell: source for law in broken for cell, _ in law.cells
          if cell.heading and (source := _pasted_from(row, cell, rows)) is not None}  # fmt: skip
    if len({cell.heading for cell in of}) < 2 or not all(any(cell in of for cell, _ in law.cells) for law in broken):
        return None
    for law in sorted(broken, key=lambda law: bool(law.equation.free)):
        copied = [cell for cell, _ in law.cells if cell in of]
        if len(copied) == 1 and abs(law.offs[row][0]) < 50:
            cell, text = copied[0], row.cells[copied[0].heading]
            right = like(text, float(digits.plain(text)) * math.exp(-law.offs[row][0] * law.power(cell.heading)))
            others = list(dict.fromkeys(cell.heading for cell in of))
            for other in others:
                _with_it(row, cell, other, -law.offs[row][0] * law.power(cell.heading))
            return Change(cell, right, f" ({' and '.join(others)} are those of {of[cell].where})", SLIPPED)
    return None


def _with_it(row: Row, cell: Cell, other: str, more: float) -> None:
    """What another cell that was pasted with it should be, by a law that both are part of and that holds as it is."""
    for law in row.sheet.laws.get(row.key, ()):
        if other != cell.heading and law.keeps(row) and (one := law.power(cell.heading)) and (its := law.power(other)):
            name, value = name_of(row, other), digits.alone(row.cells[other])
            if value and name[:1] == EXTRA:
                row.propose(name, value * math.exp(-more * one / its), "aggregate")
                return


def _may_last(law: Law, row: Row) -> bool:
    """Whether no more is wrong than that the clock went on longer than in other rows."""
    hours = next((power for cell, power in law.cells if cell.kind in ("hours", "device hours", "node hours", "money")), 0)
    return law.equation.clocked and law.offs[row][0] * hours > 0


def _changes(row: Row, broken: list[Law], fine: list[Law], rows: list[Row]) -> Iterator[Change]:
    """Every cell whose change makes all broken laws hold and leaves those that hold."""
    sound = {cell.heading for law in fine for cell, _ in law.cells} | {""}
    cells = {cell.heading: cell for law in broken for cell, _ in law.cells if cell.heading}
    every = [heading for heading in cells if heading not in sound and all(law.power(heading) for law in broken)]
    # Where no cell is part of all of them, one that is part of most and of none that holds explains most.
    if not every:
        most = Counter(cell.heading for law in broken for cell, _ in law.cells if cell.heading not in sound)
        every = [heading for heading, count in most.items() if count == max(most.values()) and count > 1]
    for heading in every:
        cell, mine = cells[heading], [law for law in broken if law.power(heading)]
        needs = [(-law.offs[row][0] * law.power(heading), law.offs[row][1]) for law in mine]
        low, high = max(need - may for need, may in needs), min(need + may for need, may in needs)
        if low > high + 2 * LOOSE:
            continue  # they need it otherwise
        tight = min(needs, key=lambda one: one[1])
        change = _change(row, cell, tight[0] if abs(tight[0]) < 50 else 50.0, max(CLOSE, tight[1]), rows)
        if change is not None:
            yield change


def _change(row: Row, cell: Cell, more: float, open_: float, rows: list[Row]) -> Change | None:
    text, factor = row.cells[cell.heading], math.exp(more)
    shown = digits.plain(text)
    value = float(shown or 0) * factor
    if not 0 < value < digits.MOST_WORKED_OUT:
        return None
    if cell.kind in ROUND and (not round_number(round(value)) or abs(value - round(value)) > max(LOOSE, open_) * value):
        return None
    points = 1.0 if cell.kind in WORKED_OUT else 0.0 if cell.kind in CHOSEN or cell.kind in LIST else 0.4
    points += _in_line(row, cell, factor, rows)
    unit = next((why for of, why in _UNITS.items() if abs(more - math.log(of)) < max(CLOSE, open_)), "")
    if cell.kind in ("device hours", "tokens a second", "device tokens a second", "money") and row.world and row.world > 1:
        node = row.procs if row.procs and row.procs > 1 else 8
        parts = {float(node): "of one device of each node", row.world: "of one device", 1 / row.world: "of all devices",
                 1 / node: "of a node"}  # fmt: skip
        unit = unit or next((why for of, why in parts.items() if of != 1 and abs(more - math.log(of)) < max(CLOSE, open_)), "")
    stored = _STORED.search(text)
    if stored is not None and abs(abs(more) - THOUSAND) < max(CLOSE, open_):
        prefix = _PREFIXES[max(0, _PREFIXES.index(stored[1].upper()) + (1 if more > 0 else -1))]
        other = f"{text[: stored.start(1)]}{prefix}{text[stored.end(1) :]}"
        return Change(cell, other, f" (in {prefix}{stored[2]})", points + 4.0)
    slip = digits.slip(shown, (value * math.exp(-max(CLOSE, open_)), value * math.exp(max(CLOSE, open_))))
    pasted = _pasted_from(row, cell, rows)
    if slip is not None and slip.how in CLEAR and pasted is None:
        points += 4.0 if slip.how in CLEAR[:2] else 3.0
        return Change(cell, like(text, slip.value, slip.text), f" ({slip.how})", points)
    right = like(text, value)
    if unit:
        return Change(cell, right, f" ({unit})", points + 3.0)
    if pasted is not None:
        return Change(cell, right, f" (what is printed is that of {pasted.where})", points + 2.5)
    if slip is not None and slip.how == "one digit changed" and len(re.sub(r"\D", "", shown).strip("0")) > 2:
        return Change(cell, like(text, slip.value, slip.text), f" ({slip.how})", points + 1.0)
    return Change(cell, right, "", points)


_PREFIXES = "KMGT"
_STORED = re.compile(r"(?<=[\d ])([kKMGT])(i?[Bo])\b")


def _in_line(row: Row, cell: Cell, factor: float, rows: list[Row]) -> float:
    """Whether a figure is far from all others of its column and would be among them, or the other way round."""
    others = [value for mate in rows if mate is not row and (value := digits.alone(mate.cells.get(cell.heading, "")))]
    value = digits.alone(row.cells[cell.heading])
    if len(others) < 2 or not value:
        return 0.0
    was, now = (min(others) / FAR <= one <= max(others) * FAR for one in (value, value * factor))
    return OUTLYING * (now - was)


GROSS = 0.3
FAR, OUTLYING, SLIPPED = 1.6, 1.2, 2.8


def _pasted_from(row: Row, cell: Cell, rows: list[Row]) -> Row | None:
    """The neighbour that has the same figure, in a column whose figures do not come again."""
    text = row.cells[cell.heading]
    if cell.kind in LIST or cell.kind in CHOSEN or "tokens a second" in cell.kind or len(re.sub(r"\D", "", text)) < 2:
        return None
    at = rows.index(row)
    near = [mate for mate in rows[max(0, at - 1) : at + 2] if mate is not row and mate.cells.get(cell.heading) == text]
    column = [mate.cells.get(cell.heading) for mate in rows if mate is not row]
    return near[0] if near and len({*column}) >= 0.7 * len(column) else None


def _exchanged(row: Row, broken: list[Law], laws: list[Law]) -> Change | None:
    """Two cells each of which should be what the other one is: with both exchanged all laws hold."""
    headings = list(dict.fromkeys(cell.heading for law in broken for cell, _ in law.cells if cell.heading))
    kinds = {cell.heading: cell for law in laws for cell, _ in law.cells}
    found = []
    for one, other in itertools.combinations(headings, 2):
        values = [digits.alone(row.cells[heading]) for heading in (one, other)]
        if not all(values) or values[0] == values[1]:
            continue
        moved = math.log(values[1] / values[0])  # type: ignore[operator]
        after = [(law.offs[row][0] + moved * (law.power(one) - law.power(other)), law.offs[row][1]) for law in laws
                 if row in law.offs and (law.power(one) or law.power(other) or law in broken)]  # fmt: skip
        if all(abs(off) <= LOOSE + may for off, may in after):
            found.append((one, other))
    if len(found) != 1:
        return None
    one, other = found[0]
    return Change(kinds[one], row.cells[other], f" (exchanged with {other})", 5.0, other)


def like(cell: str, value: float, text: str = "") -> str:
    """A figure with the sign of money, the thousands and the digits that a cell has."""
    places = digits.places(cell)
    if not text:
        # Where the point is lost or the unit another, so many digits as were there.
        fine = places or (2 if value < 10 else 1 if value < 100 else 0)
        text = f"{value:.{fine}f}"
    whole, _, part = text.partition(".")
    if re.search(r"\d,\d{3}", cell) and digits.plain(cell).isdigit():
        whole = f"{int(whole):,}"
    sign = cell[: len(cell) - len(cell.lstrip("$€£ "))]
    comma = re.fullmatch(r"[^\d]*\d+,\d{1,2}\D*|[^\d]*\d+,\d{4,}\D*", cell) is not None
    return sign + whole + ((("," if comma else ".") + part) if part else "") + (many[0] if (many := _MANY.search(cell)) else "")


_MANY = re.compile(r"(?<=\d)[KMBT]$")


