"""Columns that add up: the parts of a step and its time, stages and the whole.

    check(sheet)          findings on rows whose parts are not their sum

    | fwd   | bwd   | other | iteration |
    | 305.9 | 561.6 |  31.0 |     898.5 |

Neighbouring columns beside another count as its parts where at least two rows, and all but one in four, add up to their digits;
of a column that is called the total, all but one in three. There the same may be left over in every row: `+ 5 for the rest`.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
import statistics
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.headings import LATER, field_of, is_extra
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.tables.headings import clean, normal, older
from seatrial.tables.worded import heading_in_english

FEWEST, LEARNED, MOST_ROWS, MOST_COLUMNS = 3, 24, 200, 16
WINDOW = 0.02
"""What the digits of a sum leave open at most, as a share of it: coarse figures add up to much."""
GROSS, WIDE = 0.01, 2.0
CLEAR = ("the point moved", "two digits exchanged", "a digit too many", "a digit lost")
Figure = tuple[float, float]
_TOTAL = re.compile(r"^(?:total|sum|all|together|gesamt|summe|somme|totale?s?|suma|somma|"
                    r"итого|всего|合計|合计|总计|总和|합계)\b")


BY_NAME = " and by the heading"
WHOLE = "100 %"
"""What shares add up to, which stands in no column."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        rows = [row for row in mates[:MOST_ROWS] if row.tabular] if len(mates) >= FEWEST else []
        headings = list(rows[0].record.printed)[:MOST_COLUMNS] if rows else []
        headings = [heading for heading in headings if not LATER.search(heading)]
        headings = headings if sum(map(_is_part, headings)) > 1 or _twins(tuple(headings)) else []
        columns = {heading: column for heading in headings if sum(map(bool, column := _column(rows, heading))) >= FEWEST}
        if len(columns) > 2:
            found += _told(rows, columns)
        shares = {heading: column for heading, column in columns.items() if _is_part(heading) and _in_percent(rows, heading)}
        if len(shares) > 2:
            found += _told(rows, shares | {WHOLE: [(100.0, 0.0)] * len(rows)})
    return found


@functools.lru_cache(maxsize=4096)
def is_total(heading: str) -> bool:
    return _TOTAL.search(normal(heading_in_english(clean(heading), surely=True))) is not None


def _in_percent(rows: list[Row], heading: str) -> bool:
    return "%" in heading or all("%" in cell for row in rows if (cell := row.cells.get(heading)))


_WORDED = ("optimizer", "notes", "env", "recompute", "attention", "engine", "dtype", "schedule")
"""Fields of words: figures below such a heading are of something else, as the memory of the optimizer is."""


def _is_part(heading: str) -> bool:
    return is_extra(heading) or field_of(heading) in _WORDED


def _column(rows: list[Row], heading: str) -> list[Figure | None]:
    """Figures with half a step of their last digit."""
    column: list[Figure | None] = []
    for row in rows:
        cell = row.record.printed.get(heading, "")
        value, shown = digits.alone(cell), digits.plain(cell)
        number = float(shown) if shown else 0.0
        scale = value / number if value and number > 0 else 1.0  # of nothing too
        column.append((value, 0.5 * 10.0 ** -digits.places(cell) * scale) if value is not None and shown else None)
    return column


def _told(rows: list[Row], columns: dict[str, list[Figure | None]]) -> Iterator[Finding]:
    apart = [] if WHOLE in columns else [(whole, parts, kept, 0.0) for whole, parts, kept in differences(rows)]
    for whole, parts, kept, beside in (*_sums(columns), *apart):
        odd: list[tuple[Row, dict[str, float], list[float], float, dict[str, Figure]]] = []
        for at, row in enumerate(rows):
            each = [columns[heading][at] for heading in (whole, *parts)]
            figures = [one for one in each if one is not None]
            if len(figures) < len(each) or row.settled or row.reasons:
                continue
            (total, half), *rest = figures
            added, open_ = math.fsum([beside, *(value for value, _ in rest)]), half + sum(step for _, step in rest)
            if abs(total - added) > open_ + GROSS * max(total, added):
                spans = {part: _span([one for place, one in enumerate(columns[part]) if place != at]) for part in parts}
                wanted = {whole: added, **{part: total - added + value for part, (value, _) in zip(parts, rest)}}
                odd.append((row, wanted, [value for value, _ in figures], open_, spans))
        for row, wanted, values, open_, spans in odd:
            others = {other: (its, dict(zip((whole, *parts), theirs))) for other, its, theirs, *_ in odd if other is not row}
            yield _exchanged(row, wanted, dict(zip((whole, *parts), values)), open_, others) or _finding(
                row, whole, spans, wanted, values, open_, kept)


def _exchanged(row: Row, wanted: dict[str, float], values: dict[str, float], open_: float,
               others: dict[Row, tuple[dict[str, float], dict[str, float]]]) -> Finding | None:  # fmt: skip
    """Two rows that do not add up, and would if they had not each other's figure of one column."""
    for heading, meant in reversed(wanted.items()):
        for other, (its, theirs) in others.items() if heading != WHOLE else ():
            if abs(meant - theirs[heading]) <= open_ and abs(its[heading] - values[heading]) <= open_:
                cell, proposed = (one.record.printed[heading].strip() for one in (row, other))
                message = f"{heading} {cell} -> {proposed} (exchanged with {other.where}): so the columns add up"
                return row.find("aggregate", "error", message, column=heading, printed=cell, proposed=proposed,
                                ground="exchange")  # fmt: skip
    return None


def _span(column: list[Figure | None]) -> Figure:
    """What the other rows have, and somewhat beyond."""
    values = [one[0] for one in column if one is not None and one[0]]
    return min(values, default=0.0) / WIDE, max(values, default=math.inf) * WIDE



def _sums(columns: dict[str, list[Figure | None]]) -> Iterator[tuple[str, tuple[str, ...], int, float]]:
    """The whole, its parts, how many rows add up, and what is left over in all of them."""
    names = list(columns)
    for place, whole in enumerate(names):
        if WHOLE in columns and whole != WHOLE:
            continue
        best: tuple[int, tuple[str, ...], float] = (0, (), 0.0)
        left = list(itertools.takewhile(_is_part, reversed(names[:place])))
        right = list(itertools.takewhile(_is_part, names[place + 1 :]))
        for parts in (*(left[n - 1 :: -1] for n in range(2, len(left) + 1)), *(right[:n] for n in range(2, len(right) + 1))):
            both = columns[whole][:LEARNED], [columns[part] for part in parts]
            kept, broken = _kept(*both)
            # What is called the total is one by definition.
            if kept >= max(2, (2 if is_total(whole) else 3) * broken) and broken + kept >= FEWEST or kept == 2 and broken == 1:
                best = max(best, (kept, tuple(parts), 0.0))
            elif is_total(whole) and (beside := _left_over(*both)):
                kept, broken = _kept(*both, beside)
                best = max(best, (kept, tuple(parts), beside)) if kept >= max(FEWEST, 2 * broken) else best
        if best[0]:
            yield whole, best[1], best[0], best[2]


@functools.lru_cache(maxsize=4096)
def _twins(headings: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Two columns of one figure, before a change and after it, and one that may be their difference."""
    before = older(headings)
    pairs = [(one, other) for one in headings if one in before for other in headings
             if other not in before and field_of(one) == field_of(other) != ""]  # fmt: skip
    return [(*pair, extra) for pair in pairs for extra in headings if _is_part(extra) and "%" not in extra]


def differences(rows: list[Row]) -> list[tuple[str, tuple[str, str], int]]:
    """What a figure before a change is more or less than after it: the whole, its two parts, and how many rows keep to it."""
    found = []
    rows = [row for row in rows[:MOST_ROWS] if row.tabular]
    for one, other, extra in _twins(tuple(list(rows[0].record.printed)[:MOST_COLUMNS])) if len(rows) >= FEWEST else ():
        column = _column(rows, extra)
        for whole, part in ((one, other), (other, one)):
            kept, broken = _kept(_column(rows, whole)[:LEARNED], [_column(rows, part), column])
            if kept >= max(2, 3 * broken) and kept + broken >= FEWEST:
                found.append((whole, (part, extra), kept))
    return found


def _left_over(whole: list[Figure | None], parts: list[list[Figure | None]]) -> float:
    """What most rows have beside their parts; 0 where they do not agree on it."""
    left = []
    for total, *each in zip(whole, *parts):
        figures = [one for one in each if one is not None]
        if total is not None and len(figures) == len(each):
            left.append((total[0] - math.fsum(value for value, _ in figures), total[1] + sum(step for _, step in figures)))
    agreed = [sum(abs(one - other) <= may for other, _ in left) for one, may in left]
    middle = left[agreed.index(max(agreed))][0] if left and 2 * max(agreed) > len(left) else 0.0
    near = [one for one, may in left if abs(one - middle) <= may]
    return max(0.0, float(f"{statistics.median(near):.3g}")) if middle > 0 else 0.0


def _kept(whole: list[Figure | None], parts: list[list[Figure | None]], beside: float = 0.0) -> tuple[int, int]:
    """Rows that add up, counted once where the parts have the same shares, and rows that do not."""
    kept: set[tuple[float, ...]] = set()
    broken = 0
    for total, *each in zip(whole, *parts):
        figures = [one for one in each if one is not None]
        if total is None or len(figures) < len(each):
            continue
        added, open_ = math.fsum([beside, *(value for value, _ in figures)]), total[1] + sum(step for _, step in figures)
        fine = open_ < WINDOW * total[0] and max(value for value, _ in figures) < total[0] - open_
        if abs(total[0] - added) > open_:
            broken += 1
            if broken > LEARNED // 4 or broken > 2 and not kept:
                break
        elif fine:
            kept.add(tuple(round(value / total[0], 3) for value, _ in figures))
    return len(kept), broken


def _finding(row: Row, whole: str, parts: dict[str, Figure], wanted: dict[str, float], values: list[float], open_: float,
             kept: int) -> Finding:  # fmt: skip
    """`parts`: with what their columns have in the other rows; a part that is beyond that was no slip. `wanted`: what each
    figure would have to be."""
    rest, added = values[1:], wanted[whole]
    slips: dict[str, str] = {}
    for (heading, meant), value in zip(wanted.items(), values):
        if not value or heading == WHOLE:
            continue
        cell = row.record.printed[heading]
        shown = digits.plain(cell)
        scale = value / float(shown)
        typed = digits.slip(shown, ((meant - open_) / scale, (meant + open_) / scale)) if meant > open_ else None
        low, high = parts.get(heading, (0.0, math.inf))
        usual = heading == whole or not _is_chosen(row, heading) or _stands(row, heading, meant, open_)
        if typed is not None and typed.how in CLEAR and low <= meant <= high and usual and not re.match(r"0\d", typed.text):
            slips[heading] = digits.as_there(cell, None, typed.text) or typed.text
    pasted = [part for part in parts if _of_the_row_above(row, part, wanted[part], open_)] if not slips else []
    kind = {part: cell for part in parts if (cell := _of_its_kind(row, part, wanted[part], open_))}
    told = next((one for one in ([*kind], [*slips], pasted) if len(one) == 1), [whole])
    at = told[0]
    if at == WHOLE:
        at = max(parts, key=lambda part: abs(wanted[part] / dict(zip(parts, rest))[part] - 1) if wanted[part] > 0 else 0.0)
        message = f"{' + '.join(parts)} are {added:.6g} %, and {WHOLE} in {kept} other rows"
        return row.find("aggregate", "error", message, column=at, printed=row.record.printed[at].strip())
    cell = row.record.printed[at].strip()
    shown = digits.plain(cell)
    meant = wanted[at] * float(shown) / (digits.alone(cell) or 1.0)
    proposed = kind.get(at) or slips.get(at) or f"{meant:.{digits.places(cell)}f}"
    said = row.record.printed[whole].strip() if whole != WHOLE else ""
    message = f"{f'{whole} {said}'.strip()}, but {' + '.join(parts)} are {added:.6g}, as in {kept} other rows"
    message += f"; {at} {cell} is that of {row.mates[row.place - 1].where}" if at in pasted else ""
    message += BY_NAME if is_total(whole) else ""
    return row.find("aggregate", "error", f"{at} {cell} -> {proposed}: {message}", column=at, printed=cell, proposed=proposed,
                    ground="name" if is_total(whole) else "law")  # fmt: skip


def _values(rows: list[Row], part: str) -> list[float]:
    return [value for row in rows if (value := digits.alone(row.record.printed.get(part, ""))) is not None]


def _is_chosen(row: Row, part: str) -> bool:
    """Whether the figures of a column come again and again, as weights of one model in a few layouts do."""
    others = _values([mate for mate in row.around if mate is not row], part)
    return 2 * len({*others}) <= len(others)


def _stands(row: Row, part: str, meant: float, open_: float) -> bool:
    return any(abs(value - meant) <= open_ for value in _values([mate for mate in row.around if mate is not row], part))


def _of_its_kind(row: Row, part: str, meant: float, open_: float) -> str:
    """The part that is needed as all rows that share a word with this one have it, and others have not."""
    others = [mate for mate in row.around if mate is not row]
    for heading, cell in row.worded.items():
        kin = [mate for mate in others if mate.record.printed.get(heading) == cell]
        its = _values(kin, part)
        if len(its) > 1 and all(abs(value - meant) <= open_ for value in its) and any(
                abs(value - meant) > open_ for value in _values(others, part)):
            return kin[-1].record.printed[part].strip()
    return ""


def _of_the_row_above(row: Row, part: str, meant: float, open_: float) -> bool:
    """Whether a part is printed as in the row above, and the one that the sum needs is another row's."""
    above = row.mates[row.place - 1] if row.place else row
    its = [digits.alone(mate.record.printed.get(part, "")) for mate in row.around if mate is not row]
    same = above is not row and above.record.printed.get(part, "").strip() == row.record.printed[part].strip()
    return same and any(value and abs(value - meant) <= open_ for value in its)
