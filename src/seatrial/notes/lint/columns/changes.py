"""Columns of changes in percent: against the row above, against the first row, or between two columns of the row.

    check(sheet)          findings on changes that the figures they are worked out from do not give

    | change          | before (ms) | after (ms) | gain   |
    | flash attention |        1480 |       1262 | 14.7 % |

Whichever way of working it out most rows keep to, to their digits, is what the column means; a sign may be left off.
"""
from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import field_of, is_extra
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import MEASURES, NUMBER, clean, decimal, normal, read_heading
from seatrial.tables.tongues import in_english

FEWEST, MOST_ROWS, MOST_COLUMNS = 3, 200, 10
FEWEST_NAMED = 2
"""Rows that tell a way: of any column of percentages, and of one whose heading says that it is of changes."""
_OF_CHANGE = re.compile(r"\b(?:gain|over|vs|versus|against|change|faster|slower|speed ?up|improvement|saved|savings?|"
                        r"delta|relative|compared|diff(?:erence)?|gegen|gewinn|ganho|ganancia|guadagno|mejora|zysk)\b")
KEPT = 0.6
"""Share of the rows that keep to a way, at least."""
GROSS = 1.5
"""Points, beyond the digits, from which on a row is told."""
NEAR = 3.0
"""Within how many times what other rows have a figure is near to them."""
PERCENT = re.compile(r"([+-]?)\s*(\d+(?:[.,]\d+)?)\s*%")
_FIGURE = re.compile(rf"({NUMBER.pattern})\s*(?:s|ms|tok/s|TFLOPs?|GB|GiB)?")
WAYS: dict[str, Callable[[float, float], float]] = {
    "more": lambda now, was: now / was - 1, "less": lambda now, was: 1 - now / was, "faster": lambda now, was: was / now - 1,
}
"""What a figure is against another, as a share."""
RATIOS: dict[str, Callable[[float], float]] = {
    "more": lambda share: 1 + share, "less": lambda share: 1 - share, "faster": lambda share: 1 / (1 + share),
}
"""The same the other way round: the figure over the other one, by the share."""
CLEAR = ("the point moved", "two digits exchanged", "a digit too many")
Figure = tuple[float, float]
"""And half a step of its last digit, as a share of it."""
Pairs = list[tuple[Figure, Figure] | None]


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        rows = [row for row in mates[:MOST_ROWS] if row.tabular]
        headings = list(rows[0].record.printed) if len(rows) >= FEWEST else []
        for heading in headings:
            if len(rows) == FEWEST and not _is_of_change(heading):
                continue
            cells = [row.record.printed.get(heading, "") for row in rows] if is_extra(heading) else []
            if sum(("%" in cell or "&" in cell) and PERCENT.fullmatch(_plain(cell)) is not None for cell in cells) >= FEWEST:
                found += _told(rows, heading, [other for other in headings if _is_measured(other)][:MOST_COLUMNS])
    return found


def _is_measured(heading: str) -> bool:
    return read_heading(heading).field in (*MEASURES, "throughput")


def _cell(row: Row, heading: str) -> str:
    return _plain(row.record.printed.get(heading, ""))


def _plain(cell: str) -> str:
    return clean(cell).replace("−", "-")


@functools.lru_cache(maxsize=4096)
def _is_of_change(heading: str) -> bool:
    return _OF_CHANGE.search(normal(in_english(heading, surely=True))) is not None


def _told(rows: list[Row], heading: str, others: list[str]) -> Iterator[Finding]:
    said = [PERCENT.fullmatch(_cell(row, heading)) for row in rows]
    if said[0] is not None and float(said[0][2].replace(",", ".")) == 100:
        return  # shares of the first row
    columns = {other: _column(rows, other) for other in others}
    columns = {other: column for other, column in columns.items() if len(column) - column.count(None) >= FEWEST}
    best: tuple[int, str, list[Figure | None], Pairs, str] = (0, "", [], [], "")
    for what, pairs in _bases(columns, [match is None for match in said]):
        for name, way in WAYS.items():
            # The digits of a ratio are open by those of both.
            meant = [None if pair is None else (100 * way(pair[0][0], pair[1][0]), 100 * (pair[0][1] + pair[1][1]) * 1.2)
                     for pair in pairs]  # fmt: skip
            kept = sum(_keeps(match, one) for match, one in zip(said, meant) if match is not None and one is not None)
            best = max(best, (kept, what, meant, pairs, name), key=lambda one: one[0])
    kept, what, meant, pairs, name = best
    both = [(row, match, one) for row, match, one in zip(rows, said, meant) if match is not None and one is not None]
    fewest = FEWEST_NAMED if _is_of_change(heading) else FEWEST
    if kept < fewest or kept < KEPT * len(both) or len({match[2] for _, match, one in both if _keeps(match, one)}) < fewest:
        return
    used = [heading for heading in what.split(" against ") if heading in columns]
    for row, match, one in both:
        if not _keeps(match, one, GROSS) and not row.settled and not {*map(field_of, used)} & {*row.reasons}:
            places = len(match[2].replace(",", ".").partition(".")[2])
            right = f"{abs(one[0]):.{places}f}"
            shown = match[0].replace(match[2], right.replace(".", ",") if "," in match[2] else right)
            typed = digits.slip(match[2], (abs(one[0]) - one[1] - 0.1, abs(one[0]) + one[1] + 0.1))
            other = _another_cell(row, used, float(match[2].replace(",", ".")) / 100, name)
            if other is not None and (typed is None or typed.how not in CLEAR):
                cell, slip = other
                printed = _cell(row, cell)
                message = f"{cell} {printed} -> {slip.text} ({slip.how}): {heading} {match[0]} needs it, as in {kept} rows"
                yield row.find("aggregate", "error", message, column=cell, printed=printed, proposed=slip.text)
                continue
            why = f" ({typed.how})" if typed is not None else ""
            message = f"{heading} {match[0]} -> {shown}{why}: {what} gives {right} %, as it does in {kept} other rows"
            yield row.find("aggregate", "error", message, column=heading, printed=_cell(row, heading), proposed=shown)


def _another_cell(row: Row, used: list[str], share: float, way: str) -> tuple[str, digits.Slip] | None:
    """Of two columns that a change is between the one whose cell a slip of the hand turned into what is printed."""
    cells = [digits.plain(_cell(row, heading)) for heading in used]
    if len(used) != 2 or not all(cells) or not all(map(float, cells)):
        return None
    now, was, ratios = float(cells[0]), float(cells[1]), [RATIOS[way](sign * share) for sign in (1, -1)]
    found = []
    for ratio in ratios:
        for heading, meant, cell in ((used[0], was * ratio, cells[0]), (used[1], now / ratio if ratio > 0 else 0.0, cells[1])):
            typed = digits.slip(cell, (0.985 * meant, 1.015 * meant)) if meant > 0 else None
            if typed is not None and typed.how in CLEAR:
                found.append((heading, typed))
    if len({heading for heading, _ in found}) > 1:  # the one that is far from its column, and no longer then
        found = [(heading, typed) for heading, typed in found if _is_among(row, heading, typed.value)
                 and not _is_among(row, heading, float(digits.plain(_cell(row, heading))))]  # fmt: skip
    return found[0] if len({heading for heading, _ in found}) == 1 else None


def _is_among(row: Row, heading: str, value: float) -> bool:
    """Whether a figure is near to what other rows have in a column."""
    others = [float(text) for mate in row.around if mate is not row and (text := digits.plain(_cell(mate, heading)))]
    return bool(others) and min(others) / NEAR <= value <= max(others) * NEAR


def _column(rows: list[Row], heading: str) -> list[Figure | None]:
    found: list[Figure | None] = []
    for row in rows:
        match = _FIGURE.fullmatch(_cell(row, heading))
        text = decimal(match[1]) if match else ""
        value = float(text) if text else 0.0
        step = 10.0 ** -len(text.partition(".")[2]) if "e" not in text.lower() else 0.0
        found.append((value, step / 2 / value) if 0 < value < 1e18 else None)
    return found


def _bases(columns: dict[str, list[Figure | None]], bare: list[bool]) -> Iterator[tuple[str, Pairs]]:
    """What each row's figure may be held against, and in words; `bare`: the rows that are no change of another."""
    last: list[int] = []
    for at, is_base in enumerate(bare):
        last.append(at if is_base or not last else last[-1])
    for name, column in columns.items():
        yield f"{name} against the row above", [None, *map(_both, column[1:], column)]
        yield f"{name} against the first row", [None, *(_both(one, column[0]) for one in column[1:])]
        if sum(bare) > 1:
            yield f"{name} against the last row without a change", [
                None if is_base else _both(one, column[at]) for one, is_base, at in zip(column, bare, last)]  # fmt: skip
    for (one, first), (other, second) in itertools.permutations(columns.items(), 2):
        yield f"{one} against {other}", [*map(_both, first, second)]


def _both(now: Figure | None, was: Figure | None) -> tuple[Figure, Figure] | None:
    return (now, was) if now is not None and was is not None else None


def _keeps(match: re.Match[str], meant: Figure, more: float = 0.0) -> bool:
    """Whether what is printed is what is meant; without a sign it may be either way round."""
    printed, step = float(match[2].replace(",", ".")), 0.5 * 10.0 ** -len(match[2].replace(",", ".").partition(".")[2])
    value = meant[0] if match[1] else abs(meant[0])
    return abs((-printed if match[1] == "-" else printed) - value) <= step + meant[1] + 0.02 + more
