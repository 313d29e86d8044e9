"""Columns that are one column over another, known by their headings: gains, ratios, `FP8/BF16`.

    learn(rows)           laws as those of whole runs, which a table of three rows shows already

    | model | eager (tok/s) | compiled (tok/s) | gain  |
    | 1B    |        52,300 |           68,500 | 1.31x |

Nothing is learned but which two columns they are: the rows keep to one over the other to their digits, and what does not is
far off.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter

from seatrial.notes.lint import digits
from seatrial.notes.lint.headings import EXTRA, kind_beside
from seatrial.notes.lint.phases.ledger import THOUSAND, Cell, Law, name_of
from seatrial.notes.lint.phases.quantities import GAIN, Equation
from seatrial.notes.lint.row import Row
from seatrial.tables.headings import clean, normal, read_heading
from seatrial.tables.worded import heading_in_english

FEWEST, MOST_ROWS, MOST_COLUMNS = 2, 24, 8
CLOSE, OFF = 0.002, 0.06
"""Beyond the digits: within which a row keeps to it, and from where on it breaks it; what lies between is none worked out."""
SPREAD, CHANCE = 0.7, 0.03
"""Over how much, as a logarithm, gains differ; and how likely rows would agree so by accident, at most."""
MOST = 30.0
"""What one column is over the other."""
_COUNTED = ("size_label", "gpus", "nodes", "tp", "pp", "dp", "mbs", "gbs", "seq")
_OF_TWO = re.compile(r"\b(?:gains?|ratio|factor|times|faster|slower|speed ?ups?|vs|versus|over|improvement|uplift|scaling|"
                     r"verhaltnis|faktor|gewinn|beschleunigung|beschl|schneller|rapport|rapporto|gain|acceleration|accel|"
                     r"razon|relacion|aceleracion|mejora|ganancia|ganho|razao|aceleracao|guadagno|accelerazione|"
                     r"verhouding|versnelling|winst|przyspieszenie|stosunek|zysk|x)\b|"
                     r"^[x×]$|加速|倍|比$|배|ускорение|отношение|выигрыш", re.IGNORECASE)  # fmt: skip
_ONE_OVER = re.compile(r"[\w.+-]*[^\W\d_][\w.+ -]*\s?[/÷:]\s?[\w.+ -]*[^\W\d_][\w.+ -]*")

_STROKE = re.compile(r"\s?[/÷:]\s?|\bvs\.?(?!\w)|\bover\b")


def learn(rows: list[Row]) -> list[Law]:
    rows = [row for row in rows[:MOST_ROWS] if row.tabular and not row.planned]
    headings = tuple(rows[0].record.printed) if FEWEST <= len(rows) == len(rows[:MOST_ROWS]) else ()
    gains = _gains(headings)
    if not gains:
        return []
    rest = [heading for heading in headings if heading not in gains and read_heading(heading).field not in _COUNTED]
    columns = {heading: column for heading in rest if (column := _column(rows, heading))}
    found = []
    for gain in gains:
        column = _column(rows, gain)
        if column and len(columns) <= MOST_COLUMNS and all(1 / MOST < math.exp(log) < MOST for log, _ in column.values()):
            tried = [one for one in _named(gain, headings) if one in columns] or [*columns]
            laws = [law for one, other in itertools.permutations(tried, 2)
                    if (law := _law(rows, (gain, one, other), (column, columns[one], columns[other]), len(tried)))]  # fmt: skip
            found += sorted(laws, key=lambda law: -law.kept)[:1]
    return found


@functools.lru_cache(maxsize=4096)
def is_of_two(heading: str) -> bool:
    """Whether a heading says that one thing is held against another."""
    if read_heading(heading).field or kind_beside(heading) or "%" in heading:
        return False
    words = normal(heading_in_english(clean(heading), surely=True))
    if re.search(r"\b(?:per|hours?|h|s|sec|cost|price|efficiency)\b|[$€£]", words):
        return False
    return bool(_OF_TWO.search(words) or _OF_TWO.search(clean(heading)) or _ONE_OVER.fullmatch(clean(heading)))


@functools.lru_cache(maxsize=4096)
def _gains(headings: tuple[str, ...]) -> list[str]:
    return [heading for heading in headings if is_of_two(heading) or _named(heading, headings)]


def _named(heading: str, headings: tuple[str, ...]) -> list[str]:
    """The two columns whose names stand on either side of a stroke in a heading: `FP8 / BF16`."""
    parts = [part.strip().casefold() for part in _STROKE.split(clean(heading))]
    if len(parts) != 2:
        return []
    found = [other for part in parts for other in headings if len(part) > 1 and other != heading and part in other.casefold()]
    return found if len(found) == len({*found}) == 2 else []


Column = dict[Row, tuple[float, float]]


def _column(rows: list[Row], heading: str) -> Column:
    """The logarithms of a column's figures, and what their digits leave open; empty where a row has none or a share."""
    column: Column = {}
    for row in rows:
        name, cell = name_of(row, heading), row.cells.get(heading, "")
        value = row.get(name) if name[:1] != EXTRA else digits.alone(cell)
        shown = digits.plain(cell)
        if not value or not shown or not 0 < value < digits.MOST_WORKED_OUT or "%" in cell or not float(shown):
            continue
        column[row] = math.log(value), 0.5 * 10.0 ** -digits.places(cell) / float(shown)
    return column if len(column) >= max(FEWEST, len(rows) - 1) else {}


def _law(rows: list[Row], headings: tuple[str, str, str], columns: tuple[Column, Column, Column], many: int) -> Law | None:
    offs: Column = {}
    for row in rows:
        if all(row in column for column in columns):
            (gain, its), (one, first), (other, second) = (column[row] for column in columns)
            offs[row] = gain - one + other, its + first + second
    # Milliseconds beside what was read as seconds.
    times = Counter(round(off / THOUSAND) for off, _ in offs.values()).most_common(1)[0][0] * THOUSAND if offs else 0.0
    offs = {row: (off - times, may) for row, (off, may) in offs.items()}
    kept = {row: may for row, (off, may) in offs.items() if abs(off) <= may + CLOSE}
    far = sum(abs(off) > may + OFF for off, may in offs.values())
    if not kept or len(kept) + far < len(offs) or far > len(kept) or far > 1 and len(kept) < 3 * far:
        return None
    if len({round(columns[0][row][0], 6) for row in kept}) < min(2, len(kept)):
        return None  # one gain again and again
    chance = float(many * (many - 1))
    for may in kept.values():
        chance *= min(1.0, 2 * (may + CLOSE) / SPREAD)
    if chance > CHANCE:
        return None
    cells = tuple((Cell(heading, kind), power) for heading, kind, power in zip(headings, (GAIN, "one", "other"), (1, -1, 1)))
    equation = Equation(tuple((cell.kind, power) for cell, power in cells), 0.0)
    return Law(equation, cells, dict.fromkeys(offs, ""), {"": times}, offs, len(kept))
