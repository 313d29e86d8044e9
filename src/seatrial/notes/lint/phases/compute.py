"""FLOPs of whole runs: 6 of each parameter and token, done in device hours at a share of the peak.

    check(sheet)          findings on rows of which nothing else is said

    | run | params_b | tokens_b | peak | mfu  | gpu_hours |
    | s2  |     0.41 |        8 |  312 | 0.39 |      44.9 |       6 N D = MFU x peak x hours
    | run | N [B] | D [B] | C [FLOP] | GPU-h |                  C = 6 N D, and hours go with C at one and the same share

A row is doubted where most others keep to the law to their digits; of its cells the one that no other law of the row holds.
"""
from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import field_of
from seatrial.notes.lint.models.formulas import LABELS
from seatrial.notes.lint.phases.ledger import like
from seatrial.notes.lint.phases.quantities import many, meanings
from seatrial.notes.lint.phases.totals import is_aggregate
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import decimal, normal, plainly
from seatrial.tables.tongues import in_english

FEWEST, MOST_ROWS, MOST_HEADINGS, SHARE = 4, 60, 48, 0.6
CLOSE, OFF, GROSS = 0.025, 0.1, 0.6
"""Beyond the digits: within which a row keeps to a law, from where on it breaks it, and from where on if no share is said."""
SURE, TYPED, MARGIN = 4.0, 3.0, 0.5
_FLOP = re.compile(r"(?:total |training |train |compute |rechenaufwand |c )*(?:flops?|fp ops?)(?: total| c)?")
_SIZE = re.compile(r"(?:n|params?|parameters?|size)(?: n)? (b|bn|mrd|m|mio|md|billions?|millions?)|"
                   r"(?:(b|bn|mrd|m|mio|md) )?(?:params?|parameters?)")
_DATA = re.compile(r"d (b|bn|mrd|md|t|billions?)")
_PEAK = re.compile(r"peak(?: bf ?16)?(?: dense)? ?t ?flops?(?: per s)?(?: per (?:gpu|device|chip))?")
_USED = re.compile(r"mfu|(?:model )?(?:flops? )?utili[sz]ation|rendement|auslastung|rendimiento|rendimento|efficiency")
_POWER = re.compile(r"\s*([\d.,]+)\s*(?:e\+?|[·x×*⋅]\s?10\s?\^?\{?)(\d{1,2}|[⁰¹²³⁴-⁹]{1,2})\}?(.*)", re.IGNORECASE)
_IN_A_NAME = re.compile(r"[A-Za-z]{3}")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
Figure = tuple[float, float]
"""The logarithm of a cell, and what its digits leave open."""


@dataclass(frozen=True)
class Law:
    """Headings with their powers, whose product is the same in nearly all rows."""

    powers: dict[str, int]
    offs: dict[Row, Figure]
    least: float

    def breaks(self, row: Row) -> bool:
        off, may = self.offs.get(row, (0.0, 0.0))
        return abs(off) > may + self.least

    def keeps(self, row: Row) -> bool:
        off, may = self.offs.get(row, (math.inf, 0.0))
        return abs(off) <= may + CLOSE


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for key, mates in sheet.tables.items():
        rows = [row for row in mates[:MOST_ROWS] if row.tabular and not is_aggregate(row)]
        columns = _columns(rows) if len(rows) >= FEWEST and key[1] is not None else {}
        laws = [*_laws(rows, columns)] if "hours" in columns or "flop" in columns else []
        for row in rows if laws else ():
            if any(law.breaks(row) for law in laws) and not row.settled:
                found += _told(row, laws, columns, rows)
    return found


def _columns(rows: list[Row]) -> dict[str, str]:
    """What a column is -> its heading."""
    found: dict[str, str] = {}
    kinds = {heading: kind for heading in list(rows[0].record.printed)[:MOST_HEADINGS] if (kind := _kind(heading))}
    for heading, kind in kinds.items() if not {"hours", "flop"}.isdisjoint(kinds.values()) else ():
        if sum(_figure(row, kind, heading) is not None for row in rows) >= FEWEST:
            found.setdefault(kind, heading)
    return found


@lru_cache(maxsize=4096)
def _kind(heading: str) -> str:
    words = normal(in_english(plainly(heading), surely=True)).strip()
    kinds = {kind for kind, _ in meanings(heading)[:1]}
    return ("size" if field_of(heading) == "size_label" or _SIZE.fullmatch(words) else
            "used" if field_of(heading) == "mfu" or _USED.fullmatch(words) else
            "hours" if "device hours" in kinds else "data" if "tokens" in kinds or _DATA.fullmatch(words) else
            "peak" if _PEAK.fullmatch(words) else "flop" if _FLOP.fullmatch(words) else "")  # fmt: skip


def _figure(row: Row, kind: str, heading: str) -> Figure | None:
    text = row.cells.get(heading, "")
    shown = digits.plain(text)
    if kind == "flop":
        match = _POWER.fullmatch(text)
        if match is None:
            return None
        shown, power = decimal(match[1]), int(match[2].translate(_RAISED))
        value = float(shown) * 10.0 ** power if power < 40 else 0.0
    elif kind == "size":
        name = row.record.size_label if row.columns.get("size_label") == heading else ""
        label = label_parameters(name) if name else None
        if label and _IN_A_NAME.search(text):  # `Llama-3.2-1B` has 1.24
            return (math.log(label[0]), max(LABELS, label[1] / label[0])) if label[0] else None
        unit_of_size = _SIZE.fullmatch(normal(in_english(plainly(heading), surely=True)).strip())
        each = many(unit_of_size[1] or unit_of_size[2]) if unit_of_size else 0.0
        value = label[0] if label else (digits.alone(text) or 0.0) * each
    elif kind == "used":
        value = digits.alone(text) or 0.0
        value = value / 100 if value > 1.0 or "%" in text else value
    else:
        unit_of = {"peak": 1e12, "data": many((_DATA.fullmatch(normal(plainly(heading)).strip()) or ["", ""])[1])}
        unit = next((unit for its, unit in meanings(heading) if its in ("device hours", "tokens")), unit_of.get(kind, 1.0))
        value = (digits.alone(text) or 0.0) * unit
    if not 0 < value < 1e40 or not shown or not float(shown):
        return None
    return math.log(value), 0.5 * 10.0 ** -len(shown.partition(".")[2]) / float(shown) if kind != "data" else 0.0


_LAWS: tuple[tuple[dict[str, int], float | None, float], ...] = (
    ({"flop": 1, "size": -1, "data": -1}, math.log(6), OFF),
    ({"hours": 1, "flop": -1, "used": 1, "peak": 1}, -math.log(3600), OFF),
    ({"hours": 1, "size": -1, "data": -1, "used": 1, "peak": 1}, math.log(6 / 3600), OFF),
    ({"hours": 1, "flop": -1, "used": 1}, None, OFF), ({"hours": 1, "size": -1, "data": -1, "used": 1}, None, OFF),
    ({"hours": 1, "flop": -1}, None, GROSS),
)  # fmt: skip
"""Powers; the logarithm of their product, where rows need not agree on it; from where on a row breaks it."""


def _laws(rows: list[Row], columns: dict[str, str]) -> Iterator[Law]:
    figures = {kind: {row: one for row in rows if (one := _figure(row, kind, heading))} for kind, heading in columns.items()}
    for powers, known, least in _LAWS:
        if not powers.keys() <= columns.keys() or known is None and ({"peak", "used"} - powers.keys()) & columns.keys():
            continue
        offs = {row: (sum(power * figures[kind][row][0] for kind, power in powers.items()),
                      sum(figures[kind][row][1] for kind in powers)) for row in rows
                if all(row in figures[kind] for kind in powers)}  # fmt: skip
        if "used" in powers and "peak" not in powers:  # which is another for each device
            (usual, _), *others = Counter(map(_peak, offs)).most_common()
            offs = {row: one for row, one in offs.items() if _peak(row) == usual} if others else offs
        if len(offs) < FEWEST:
            continue
        constant = statistics.median(off for off, _ in offs.values()) if known is None else known
        law = Law({columns[kind]: power for kind, power in powers.items()},
                  {row: (off - constant, may) for row, (off, may) in offs.items()}, least)  # fmt: skip
        kept = sum(map(law.keeps, offs))
        if kept >= max(FEWEST - 1, SHARE * len(offs)) and kept + sum(map(law.breaks, offs)) >= len(offs) - (known is not None):
            yield law


def _peak(row: Row) -> float | None:
    """That of the device that the row names."""
    own = row.device.peak_tflops if row.device is not None and row.record.machine else {}
    return own.get("bf16") or own.get("fp16")


def _told(row: Row, laws: list[Law], columns: dict[str, str], rows: list[Row]) -> Iterator[Finding]:
    broken = [law for law in laws if law.breaks(row)]
    sound = {heading for law in laws if law.keeps(row) for heading in law.powers}
    sound |= {cell.heading for law in row.sheet.laws.get(row.key, ()) if law.keeps(row) for cell, _ in law.cells}
    changes: list[tuple[float, str, str, str]] = []
    for kind, heading in columns.items():
        if heading not in sound and all(heading in law.powers for law in broken):
            needs = [-law.offs[row][0] * law.powers[heading] for law in broken]
            if max(needs) - min(needs) <= 2 * CLOSE:
                changes += _change(row, kind, heading, statistics.median(needs), rows)
    changes.sort(key=lambda one: -one[0])
    if not changes:
        return
    clear = changes[0][0] >= TYPED - 1 and (len(changes) == 1 or changes[0][0] > changes[1][0] + MARGIN)
    _, heading, text, why = changes[0]
    options = "" if clear else ": one of " + ", ".join(f"{at} {new}{how}" for _, at, new, how in changes[:3])
    law = broken[0]
    off = f"{math.expm1(min(law.offs[row][0], 50.0)):+.1%}"
    said = f"by the FLOPs of the run it is off by {off}, as {sum(map(law.keeps, rows))} other rows have it"
    message = f"{heading} {row.cells[heading]} -> {text}{why}: {said}" if clear else f"{said}{options}"
    yield row.find("aggregate", "error", message, column=heading, printed=row.cells[heading], proposed=text if clear else None)


def _change(row: Row, kind: str, heading: str, more: float, rows: list[Row]) -> Iterator[tuple[float, str, str, str]]:
    """Points, heading, text and explanation of what would do."""
    text, figure = row.cells[heading], _figure(row, kind, heading)
    if figure is None or abs(more) > 50 or kind == "size" and _IN_A_NAME.search(text):
        return
    others = [one[0] for mate in rows if mate is not row and (one := _figure(mate, kind, heading))]
    was, now = (min(others) - 0.2 <= at <= max(others) + 0.2 for at in (figure[0], figure[0] + more))
    points, tens = 1.5 * (now - was), round(more / math.log(10))
    if kind == "used" and not math.log(0.03) < figure[0] + more < 0.0:
        return
    if kind == "flop":
        match = _POWER.fullmatch(text)
        if match is not None and tens and abs(more - tens * math.log(10)) < CLOSE + figure[1]:
            power = str(int(match[2].translate(_RAISED)) + tens)
            raised = match[2] if match[2].isascii() else ""
            power = power if raised else power.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
            yield points + SURE, heading, f"{text[: match.start(2)]}{power}{text[match.end(2) :]}", " (the exponent)"
        return
    shown = digits.plain(text)
    value = float(shown) * math.exp(more)
    kin = [mate for mate in rows if mate is not row and row.record.machine and mate.record.machine == row.record.machine]
    same = [mate for mate in kin if (one := _figure(mate, kind, heading)) and abs(one[0] - figure[0] - more) < CLOSE]
    if kind == "peak" and same:
        yield points + SURE, heading, same[0].cells[heading], f" (as in {same[0].where})"
        return
    slip = digits.slip(shown, (value * math.exp(-CLOSE / 2), value * math.exp(CLOSE / 2)))
    if slip is None:
        yield points, heading, like(text, value), ""
    else:
        score = SURE if slip.how == "the point moved" else TYPED if slip.how != "one digit changed" else 1.0
        yield points + score, heading, like(text, slip.value, slip.text), f" ({slip.how})"
