"""Products of columns with a factor that everybody knows, in tables too short to learn one: 24 hours, 1000 of anything.

    found(rows)          products, with their factor and their rows: GPU hours = 24 x GPUs x days, cost = count x each

Two rows that keep to such a factor to their digits prove it where each has digits enough; nearly all others have to, then.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from seatrial.notes.lint.headings import EXTRA, is_chosen
from seatrial.notes.lint.row import Row

Terms = tuple[tuple[str, int], ...]
WHOLE = ("world", "nodes", "gbs", "seq", "iteration")
FIELDS = (*WHOLE, "sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s")
FEWEST, MOST_ROWS, MOST_COLUMNS = 3, 12, 8
CLOSE, NEARLY, CHANGES = 0.0004, 0.08, 0.01
"""Beyond the digits: within which a row keeps to a factor, and within which it nearly does; by how much a column differs."""
CHANCE = 0.003
BASES = (1.0, 24.0, 60.0, 3600.0, 86400.0, 7.0, 168.0, 100.0, 8.0)
"""And their inverses, each with any power of 1000."""
TWO, TEN, THOUSAND = math.log(2.0), math.log(10.0), math.log(1000.0)
KNOWN = np.array(sorted({round(sign * math.log(base) % THOUSAND, 9) for base in BASES for sign in (1, -1)} | {THOUSAND}))


@dataclass(frozen=True, kw_only=True)
class Product:
    terms: Terms
    """What people work out, and what they work it out from."""
    constant: float
    """The logarithm of the factor."""
    kept: int
    rows: tuple[Row, ...]
    chance: float


def found(rows: Sequence[Row], known: Container[str] = ()) -> list[Product]:
    """For each column that no field takes, but those that are known, the product that most rows keep to."""
    extras = [EXTRA + heading for heading in rows[0].extras] if FEWEST <= len(rows) <= MOST_ROWS else []
    columns = {name: column for name in (*extras, *(FIELDS if extras else ())) if (column := _column(rows, name)) is not None}
    names = list(columns)[:MOST_COLUMNS]
    made: dict[frozenset[str], Product] = {}
    for name in extras if len(names) > 1 else ():
        if name in known or name not in names or np.nanmax(columns[name][0]) - np.nanmin(columns[name][0]) < CHANGES:
            continue
        others = [other for other in names if other != name]
        counts = range(1, min(3, len(others)) + 1)
        products = [product for many in counts for product in _kept(name, others, many, columns, rows)]
        if not products and _chosen(rows, name):
            exactly = {**columns, name: columns[name] * [[1.0], [0.0]]}
            products = [product for many in counts for product in _kept(name, others, many, exactly, rows)]
        products = [one for one in products if len(one.terms) < 3 or not any(is_chosen(n) for n, _ in one.terms)]
        if products:
            best = max(products, key=lambda one: (one.kept, -len(one.terms), -one.chance))
            same = frozenset(n for n, _ in best.terms)
            # What people work out is the product, and none of its factors.
            made[same] = min((made.get(same, best), best), key=lambda one: sum(power for _, power in one.terms))
    return list(made.values())


def _chosen(rows: Sequence[Row], name: str) -> bool:
    """Whether a column has figures of one or two digits, as 1.2T tokens, which may have been chosen and not rounded."""
    return all(_digits(row, name) <= 2 for row in rows if row.get(name))


def _digits(row: Row, name: str) -> int:
    return len(re.sub(r"\D", "", row.cell(name)).strip("0"))


def _column(rows: Sequence[Row], name: str) -> np.ndarray | None:
    """Logarithms, and what the digits leave open; None where too few rows have it."""
    column = np.full((2, len(rows)), np.nan)
    for at, row in enumerate(rows):
        value = {"world": row.world, "seq": row.seq}[name] if name in ("world", "seq") else row.get(name)
        if value and 0 < value < math.inf and name not in row.record.inferred:
            figure = row.printed(name) if name not in WHOLE else None
            column[:, at] = math.log(value), figure.slack if figure is not None else 0.0
    return column if np.isfinite(column[0]).sum() >= FEWEST else None


@functools.cache
def _powers(others: int, many: int) -> np.ndarray:
    """A product of the others, or of two one over the other."""
    made = []
    for places in itertools.combinations(range(others), many):
        for signs in ((-1,) * many, *(((-1, 1), (1, -1)) if many == 2 else ())):
            made.append(np.zeros(others))
            made[-1][list(places)] = signs
    return np.array(made)


def _kept(name: str, others: list[str], many: int, columns: dict[str, np.ndarray], rows: Sequence[Row]) -> list[Product]:
    powers = _powers(len(others), many)
    logs, open_ = (np.array([columns[other][at] for other in others]) for at in (0, 1))
    used = np.abs(powers) @ np.isnan(logs) == 0
    off = np.where(used, columns[name][0] + powers @ np.nan_to_num(logs), np.nan)
    may = columns[name][1] + np.abs(powers) @ np.nan_to_num(open_) + CLOSE
    rest = np.nan_to_num(off % THOUSAND, nan=0.5)
    right = np.searchsorted(KNOWN, rest).clip(1, len(KNOWN) - 1)
    near = np.where(rest - KNOWN[right - 1] < KNOWN[right] - rest, KNOWN[right - 1], KNOWN[right])
    factor = np.where(np.abs(near - rest) <= may, off - rest + near, np.nan)
    made = []
    there, near_one = np.isfinite(off).sum(axis=1), np.isfinite(factor).sum(axis=1)
    # Coarse figures are near to one of them always: what chance does at least.
    least = len(powers) * np.where(np.isfinite(factor), np.minimum(1.0, 2 * may), 1.0).prod(axis=1)
    for at in np.flatnonzero((near_one >= 2) & (there >= FEWEST) & (2 * near_one >= there) & (least < CHANCE)):
        # What changes from row to row comes first.
        its = [(other, int(power)) for other, power in zip(others, powers[at]) if power]
        terms = ((name, 1), *sorted(its, key=lambda one: -np.ptp(columns[one[0]][0][np.isfinite(off[at])])))
        product = _judged(terms, off[at], may[at], factor[at], columns, len(powers), rows)
        made += [product] if product is not None else []
    return made


def _judged(terms: Terms, off: np.ndarray, may: np.ndarray, factor: np.ndarray, columns: dict[str, np.ndarray], tried: int,
            rows: Sequence[Row]) -> Product | None:  # fmt: skip
    """A product that so many rows keep to that chance does not do it, and none nearly does."""
    seen = Counter(factor[np.isfinite(factor)].round(6))
    constant = float(max(seen, key=lambda one: seen[one]))
    with np.errstate(invalid="ignore"):
        keep = np.abs(off - constant) <= may
        nearly = (np.abs(off - constant) <= may + NEARLY) & ~keep
    if len(terms) == 2 and abs(constant) < CLOSE:
        return None  # two columns that are often the same
    there, kept = int(np.isfinite(off).sum()), int(keep.sum())
    values = np.array([columns[name][0][keep] for name, _ in terms])
    # Rows that repeat another one prove nothing.
    alone = np.unique(values.round(6), axis=1, return_index=True)[1]
    if nearly.any() or len(alone) < 2 or there - kept > max(1, kept) or (np.ptp(values, axis=1)[:2] < CHANGES).any():
        return None
    if kept < there and (np.abs(values[0] / TWO - (values[0] / TWO).round()) < CLOSE).all():
        return None  # counts that double were chosen, and go with each other anyhow
    if kept < there and all(_digits(row, name) < 2 for row, its in zip(rows, keep) if its for name, _ in terms):
        return None  # and so do 2000 and 20 000 with 2 and 20
    rest = np.sort(off[np.isfinite(off) & ~keep]) - constant
    moved = np.abs(rest / TEN - (rest / TEN).round()) < CLOSE * 10  # a point may move in two rows
    if (np.diff(rest[~moved]) < NEARLY).any():
        return None  # rows of another kind, and no slips
    windows = np.sort(2 * may[keep][alone])
    chance = tried * math.comb(there, kept) * windows[-1] * len(KNOWN) / THOUSAND
    chance *= float(np.minimum(1.0, windows[:-1] / min(1.0, np.ptp(values[0]))).prod())
    its = tuple(row for row, known in zip(rows, np.isfinite(off)) if known)
    return Product(terms=terms, constant=constant, kept=kept, rows=its, chance=chance) if chance < CHANCE else None
