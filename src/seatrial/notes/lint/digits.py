"""A number as it was printed: how much its last digit hides, and whether two numbers differ by a slip of the hand.

digits.read("0.43", 0.43).rounded          (0.425, 0.435)
digits.slip("183.64", 138.64)              'two digits exchanged'
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from seatrial.notes.lint.once import once
from seatrial.notes.read.sound import MOST_MEASURED
from seatrial.tables.headings import NUMBER, clean, decimal

_FINEST = 1e-6
"""A figure that was worked out by a program is taken to be this exact and no more."""

_SPREAD = re.compile(rf"\s*(?:(±|\+/-|\+-)|[-–—~…]|to\b|\.\.\.?)\s*({NUMBER.pattern})")
_FINEST_STEP = 1e-200
"""Of a cell that somebody printed, be it by a program that has lost its way."""
_MOST_EXPONENT = 308
"""Of a float."""


@dataclass(frozen=True)
class Printed:
    value: float
    unit: float
    """How far apart two values must be to be reported apart: a step of the last digit, or more in a coarse column."""
    text: str = ""
    step: float = 0.0
    """A step of the last digit; 0 where it is `unit`."""
    scale: float = 1.0
    """What is printed over the value: 100 under a heading of percent, 1000 under one of ms."""
    inverse: bool = False
    """Steps a second for the seconds of a step, or the time of one token for their rate: `scale` over the value."""

    @once
    def rounded(self) -> tuple[float, float]:
        return self.value - self.unit / 2, self.value + self.unit / 2

    @once
    def truncated(self) -> tuple[float, float]:
        return self.value, self.value + self.unit

    @once
    def slack(self) -> float:
        """Half of the last digit as a share of the value."""
        return self.unit / 2 / abs(self.value) if self.value else 1.0

    def shown(self, value: float) -> float:
        """A value as the column has it; the same turns what is printed into a value where it is inverse."""
        return self.scale / value if self.inverse else value * self.scale

    def span(self, low: float, high: float) -> tuple[float, float]:
        """Two values as the column has them, the lesser first: 0.41 as 41 under a heading of percent."""
        one, other = self.shown(low), self.shown(high)
        return (other, one) if other < one else (one, other)

    def meant(self, number: float) -> float:
        return self.scale / number if self.inverse else number / self.scale

    def like(self, value: float) -> str:
        """Another value with as many decimals, in the unit of the column."""
        step = self.step or self.unit
        return as_printed(self.shown(value), self.scale * step / self.value / self.value if self.inverse else step * self.scale)


@dataclass(frozen=True)
class Steps:
    """How fine a column is. Where every figure ends in 0 or 5 it holds means of two rounded figures, coarser than it looks."""

    halves_of: float | None = None

    @classmethod
    def of(cls, column: list[Printed]) -> Steps:
        finest = min((p.unit for p in column), default=0.0)
        fine = [p for p in column if p.unit == finest]
        last = [round(p.value / finest) % 10 for p in fine] if finest > _FINEST_STEP else []
        return cls(finest) if len(column) >= 4 and len(fine) >= 3 and set(last) <= {0, 5} and 5 in last else cls()

    def applied(self, figure: Printed) -> Printed:
        if figure.unit != self.halves_of:
            return figure
        return replace(figure, unit=10 * figure.unit, step=figure.unit)


def as_printed(value: float, unit: float) -> str:
    decimals = max(0, -_exponent(unit * (1 + 1e-9))) if math.isfinite(unit) else 0
    return f"{value:.{decimals}f}"


def _exponent(unit: float) -> int:
    return int(f"{unit:e}".split("e")[1])


def as_there(cell: str, figure: Printed | None, proposed: str | None) -> str | None:
    """A proposal with the decimal comma and the thousands that the cell has."""
    if proposed is None or not re.fullmatch(r"\d+(?:\.\d+)?", proposed):
        return proposed
    times = re.fullmatch(r"\s*[\d.,]+ ?([kKM])", cell)
    number = re.search(r"(?<![\d.,])\d+,\d+(?![\d.,])", cell)
    there = number and float(number[0].replace(",", "."))
    comma = there and (len(number[0].partition(",")[2]) != 3 if figure is None else abs(figure.value - there) < 1e-9)  # type: ignore[index]
    if money := re.match(r"[$€£]\s?", cell):
        return money[0] + (f"{int(proposed):,}" if proposed.isdigit() and "," in cell else proposed)
    if comma and re.fullmatch(r"\d+\.\d\d0", proposed):
        proposed = proposed[:-1]  # three digits behind a comma are thousands
    return (proposed.replace(".", ",") if comma else proposed) + (times[1] if times else "")


@lru_cache(maxsize=16384, typed=True)
def read(text: str, value: float | None) -> Printed | None:
    """The first number of a cell. `value` is what the importer made of it, which may be in another unit (ms to s)."""
    if value is None:
        return None
    plain = text.isascii() and text.replace(".", "", 1).isdecimal()  # as nearly all are
    bare = text if plain else unspaced(clean(text))
    match = None if plain else NUMBER.search(bare)
    if match is None and not plain:
        return from_value(value)
    shown = text if match is None else decimal(match.group())
    number = float(shown)
    if match is None and number == value < math.inf:
        return Printed(value, 10.0 ** -len(shown.partition(".")[2]), text)
    if not number:
        return Printed(value, 10.0 ** -_decimals(shown), text)
    wide, width = _SPREAD.match(bare, match.end()) if match is not None else None, 0.0
    if wide is not None and 0 < (other := float(decimal(wide[2]))) < math.inf:
        # Between two numbers, or so much on both sides of one, as the author says it.
        middle, between = (number, 2 * other) if wide[1] else ((number + other) / 2, abs(other - number))
        if value and any(abs(middle / value / times - 1) < 1e-6 for times in (1.0, 1e3, 100.0)):
            number, width = middle, between
    scale, unit = number / value if value else 1.0, 10.0 ** -_decimals(shown) * abs(value / number)
    if not math.isfinite(scale) or not scale or not math.isfinite(unit):
        return from_value(value)  # the cell is beyond any float, and the value from elsewhere
    if width:
        return Printed(value, max(unit, width / abs(scale)), text, unit, scale if abs(scale - 1) > 1e-9 else 1.0)
    return Printed(value, unit, text, scale=scale if abs(scale - 1) > 1e-9 else 1.0)


_ABBREVIATED = {"milliseconds": "ms", "seconds": "s", "minutes": "min", "hours": "h"}


def as_time(cell: str, figure: Printed, value: float, unit: str) -> str:
    """A time as its column has it; a cell that names its unit keeps its digits, and has the right one."""
    said = re.fullmatch(r"([\d.,]+\s*)(?:m?s|m?secs?|seconds|milliseconds|min)", cell)
    if said and unit in _ABBREVIATED:
        return said[1] + _ABBREVIATED[unit]
    step = figure.shown(figure.step or figure.unit) * value / figure.value
    return f"{figure.shown(value):.6g}" if figure.inverse else as_printed(figure.shown(value), step)


def from_value(value: float) -> Printed:
    shown = repr(float(value))
    unit = 10.0 ** -_decimals(shown[:-2] if shown.endswith(".0") else shown)
    return Printed(value, max(unit, _FINEST * abs(value)))


def _decimals(shown: str) -> int:
    if "e" not in shown and "E" not in shown:
        return len(shown.partition(".")[2])
    mantissa, _, exponent = shown.lower().partition("e")
    return len(mantissa.partition(".")[2]) - int(min(max(float(exponent or 0), -_MOST_EXPONENT), _MOST_EXPONENT))


def overlap(a: tuple[float, float], b: tuple[float, float]) -> bool:
    slack = 1e-9 * max(abs(a[1]), abs(b[1]))
    return a[0] <= b[1] + slack and b[0] <= a[1] + slack


@dataclass(frozen=True)
class Slip:
    """A value that a slip of the hand turns into the printed one."""

    value: float
    text: str
    how: str
    chance: float
    """How likely such a value turns up by accident in the range that was asked for."""
    alone: bool = False
    """Whether no other number in that range is a slip away from the printed one."""


def slip(text: str, meant: tuple[float, float], *, wide: float = 0.0) -> Slip | None:
    """How a hand could have typed `text` for a number within `meant`: the least accidental way, or None.

    slip("138.64", (183.60, 183.70))          183.64, two digits exchanged

    `wide`: by which share more a number may miss it that one of the few slips explains, other than of any one digit.
    """
    match = NUMBER.search(unspaced(clean(text)))
    low, high = meant
    if match is None or not 0 < low <= high:
        return None
    shown = decimal(match.group())
    width = math.log(high / low)
    found = []
    by_hand = len(shown) <= _BY_HAND and _PLAIN.fullmatch(shown) is not None
    kinds = [(how, count, [t for value, t in typed if low * (1 - wide) <= value <= high * (1 + wide)]) for how, count, typed in
             (_typed(shown) if by_hand else _typed.__wrapped__(shown, few=False))]  # fmt: skip
    kinds += _one_digit(shown, low, high) if by_hand else []
    alone = len({text for _, _, inside in kinds for text in inside}) == 1
    for how, count, inside in kinds:
        if inside:
            # A slip lands anywhere within a factor of ten or so of what was meant.
            best = min(inside, key=lambda t: (abs(math.log(float(t) / low) - math.log(high / float(t))), float(t), t))
            found.append(Slip(float(best), best, how, min(1.0, count * width / 2.3), alone))
    return min(found, key=lambda s: s.chance, default=None)


_SPACED = re.compile(r"\s*[$€£]?\s?\d{1,3}(?: \d{3})+(?![\d.])(?:,\d+)?(?:\s?(?:%|[$€£]|[^\W\d_]+))?\s*")


def unspaced(cell: str) -> str:
    """A cell without the spaces between its thousands: `84 162`."""
    return re.sub(r"(?<=\d) (?=\d{3})", "", cell) if " " in cell and _SPACED.fullmatch(cell) else cell


def plain(text: str) -> str:
    """The first number of a cell, as Python reads it."""
    match = NUMBER.search(unspaced(clean(text)))
    return decimal(match.group()) if match else ""


_A_FIGURE = re.compile(rf"[~≈<>×x]?\s*[$€£]?\s*({NUMBER.pattern})\s*(?:([kKMBT]|[만万萬억億亿])(?:\b|(?=[원元円])))?\s*"
                       r"(?:%|[원元円]|[x×]|[$€£]|hrs?|h|d|days?|hours?|min|minutes?|tokens?|"
                       r"([kMGTPmuµn]?)(?:s|W|Wh|i?B|b|i?B/s|b/s|FLOPs?))?")
MOST_WORKED_OUT = 1e30
"""As the FLOPs of a whole training are."""
_TIMES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, **dict.fromkeys("만万萬", 1e4), **dict.fromkeys("억億亿", 1e8)}


_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


@lru_cache(maxsize=65536)
def alone(cell: str) -> float | None:
    """The number of a cell that holds one and hardly anything else: `3.68x`, `95.2%`, `$1.4k`."""
    match = _A_FIGURE.fullmatch(unspaced(clean(cell)))
    if match is None:
        return None
    value = float(decimal(match[1])) * _TIMES.get(match[2] or "", 1.0) * _PREFIXES.get(match[3] or "", 1.0)
    return value if not value or 1 / MOST_MEASURED <= abs(value) <= MOST_WORKED_OUT else None


def places(text: str) -> int:
    """How many digits stand behind the point."""
    return len(plain(text).partition(".")[2])


def slips(text: str, meant: tuple[float, float]) -> list[Slip]:
    """Every number within `meant` that one of the few slips, other than of any one digit, turns into `text`."""
    shown = plain(text)
    kinds = _typed(shown) if len(shown) <= _BY_HAND and _PLAIN.fullmatch(shown) else []
    return [Slip(value, typed, how, 1.0) for how, _, each in kinds for value, typed in each if meant[0] <= value <= meant[1]]


_BY_HAND = 12
"""Letters of the longest number that is worth remembering, and exact enough to reckon with its digits."""
_PLAIN = re.compile(r"\d+(?:\.\d+)?")


@lru_cache(maxsize=2048)
def _typed(shown: str, *, few: bool = True) -> list[tuple[str, int, list[tuple[float, str]]]]:
    """By the kind of slip how many texts one turns into `shown`, and those that are numbers; `few`: without those of one other
    digit, which are many and can be reckoned where the number is a plain one."""
    return [(how, len(typed), [(_or_nan(text), text) for text in typed if text != shown])
            for how, typed in _slips(shown, few=few).items()]  # fmt: skip


def _one_digit(shown: str, low: float, high: float) -> list[tuple[str, int, list[str]]]:
    """Numbers within the range that one changed digit, or one that was lost, turns into `shown`; of how many in all."""
    found = []
    for how, count, places in _places(shown):
        inside = []
        for at, after, without, weight in places:
            first, last = (low - without) / weight, (high - without) / weight
            if last > -0.01 and first < 9.01:  # a little beyond, since numbers are rounded
                for digit in "0123456789"[math.ceil(max(0.0, first - 0.01)) : math.floor(min(9.0, last + 0.01)) + 1]:
                    text = shown[:at] + digit + shown[after:]
                    if text != shown and low <= float(text) <= high:
                        inside.append(text)
        found += [(how, count, inside)] if inside else []
    return found


@lru_cache(maxsize=2048)
def _places(shown: str) -> list[tuple[str, int, list[tuple[int, int, float, float]]]]:
    """By the kind of slip how many texts there are, and where a digit may stand: between which letters, the number with a 0
    there, and what a 1 adds."""
    point = (shown + ".").index(".")
    digits = [i for i in range(len(shown)) if i != point]
    changed = [(i, i + 1, float(f"{shown[:i]}0{shown[i + 1:]}"), 10.0 ** (point - i - (i < point))) for i in digits]
    lost = [(i, i, float(f"{shown[:i]}0{shown[i:]}"), 10.0 ** (point - i)) for i in range(len(shown) + 1)]
    return [("one digit changed", 9 * len(digits) + 1, changed), ("a digit lost", 10 * (len(shown) + 1) - len(digits), lost)]


def _or_nan(typed: str) -> float:
    """Where the slip hits an exponent, what comes may be no number."""
    try:
        return float(typed)
    except ValueError:
        return math.nan


def _slips(shown: str, *, few: bool = False) -> dict[str, set[str]]:
    """Every text that one slip turns into `shown`, by the kind of slip; `few`: without those of one other digit."""
    whole, _, part = shown.partition(".")
    plain, point = whole + part, len(whole)
    digits = [i for i, c in enumerate(shown) if c.isdigit()]
    exchanged = {shown[:i] + shown[j] + shown[i + 1 : j] + shown[i] + shown[j + 1 :] for i, j in pairwise(digits)}
    exchanged = {text for text in exchanged if text[0] != "0" or not text[1:2].isdigit()}  # nobody means 01000
    moved = {f"{plain[:at].lstrip('0') or '0'}.{plain[at:]}".rstrip(".") for at in range(len(plain) + 1) if at != point}
    moved |= {plain + "0" * zeros for zeros in (1, 2, 3)} if not part else set()
    added = {shown[:i] + shown[i + 1 :] for i in digits if len(digits) > 1}
    kinds = {"the point moved": moved, "two digits exchanged": exchanged, "a digit too many": added}
    if not few:
        kinds["one digit changed"] = {shown[:i] + d + shown[i + 1 :] for i in digits for d in "0123456789"}
        kinds["a digit lost"] = {shown[:i] + d + shown[i:] for i in range(len(shown) + 1) for d in "0123456789"}
    return {how: {t for t in typed if t[:1] != "." and t[-1:] not in (".", "")} for how, typed in kinds.items()}


def powers_that_lost_one(shown: str) -> list[int]:
    """Powers of two that lose one digit to what is printed: 13107 is 131072."""
    powers = (str(2**n) for n in range(4, 31))
    return [int(power) for power in powers if len(power) == len(shown) + 1
            and any(power[:i] + power[i + 1 :] == shown for i in range(len(power)))]  # fmt: skip
