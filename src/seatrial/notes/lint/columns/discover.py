"""What columns that no field takes follow from: products of other columns, found in the rows themselves.

    followed(rows, headings)          [(("+speed-up", 1), ("tokens_per_s", -1)), (("+cost", 1), ("+GPU hours", -1)), ...]

Speed-ups, efficiencies, days, GPU hours, costs and tokens are worked out from what stands beside them, under headings of any
language. A product of up to three columns counts as found where so many rows keep to it to their last digit that chance does
not do it, and hardly any row nearly does: figures that are merely alike, as those of one machine are, miss it by a little.
"""
from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint.headings import EXTRA, is_chosen
from seatrial.notes.lint.phases.quantities import meanings
from seatrial.notes.lint.row import Row

FIELDS = ("sec_per_it", "tflops", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "mfu", "aggr_pflops", "world",
          "gbs", "seq", "iteration", "size")  # fmt: skip
Terms = tuple[tuple[str, int], ...]
FEWEST, MOST_SEARCHED, MOST_EXTRA, MOST_FIELDS, MOST_FOUND = 4, 24, 8, 9, 3
CLOSE, NEARLY = 0.0015, 0.1
"""Beyond the printed digits: within which a row keeps to a product, and within which it nearly does."""
ALIKE = 0.02
"""Within which two columns measure much the same, and neither follows from the other."""
KEPT, NEARLY_SHARE, CHANCE = 0.5, 0.15, 0.003
"""Share of the rows that keep to it, at least; that nearly do, at most; how many such products chance would give, at most."""


def followed(rows: Sequence[Row], headings: Sequence[str]) -> list[Terms]:
    """Of rows of one table; `headings` of the columns that may follow from others."""
    rows = rows[:MOST_SEARCHED]
    if len(rows) < FEWEST:
        return []
    names = [EXTRA + heading for heading in headings][:MOST_EXTRA]
    logs = {name: both for name in (*names, *FIELDS) if (both := _logs(rows, name)) is not None}
    given = [name for name in FIELDS if name in logs and np.nanmax(logs[name][0]) - np.nanmin(logs[name][0]) > 1e-9]
    # What hardly changes follows from anything.
    extras = [name for name in names if name in logs and np.nanmax(logs[name][0]) - np.nanmin(logs[name][0]) > 1e-3
              and not _is_difference(rows, name, headings)]  # fmt: skip
    made: list[Terms] = []
    seen: set[frozenset[tuple[str, int]]] = set()
    for name in extras:
        if _is_chosen(logs[name][0]):
            continue
        beside = [other for other in extras if other != name]
        coarse = {other: _whole(rows, other) for other in beside}
        found = [*_found(name, given[:MOST_FIELDS], logs), *_found(name, [*beside, *given][:MOST_FIELDS], logs)]
        if not found and any(coarse.values()):
            exactly = {n: (logs[n][0], 0 * logs[n][1]) if coarse.get(n) else logs[n] for n in logs}
            found = _found(name, [*beside, *given][:MOST_FIELDS], exactly)
        for terms in found:
            if terms[1:] in ((("size", 1),), (("size", -1),)) or len(terms) > 2 and any(is_chosen(n) for n, _ in terms):
                continue  # a name for the size
            powers = dict(terms)
            if {"gbs", "iteration"} <= powers.keys() and "seq" in given and "seq" not in powers:
                terms = (*terms, ("seq", powers["gbs"]))
            other, power = terms[-1]
            if len(terms) == 2 and power < 0 and other[:1] == EXTRA and _alike(logs[name][0], logs[other][0]):
                continue  # two columns that are often alike
            if not _all_change(terms, logs):
                continue  # what is the same in all rows that keep to it has no part in it
            if len(terms) == 2 and other[:1] != EXTRA and any(kind[:5] == "price" for kind, _ in meanings(name[1:])):
                continue  # nobody lets a device by what it does
            if len(terms) == 2 and _SIZED.search(name) and _SIZED.search(other):
                continue  # two models, of which one is larger in most things by as much
            # a / b is the same as b / a.
            if frozenset(terms) not in seen and frozenset((n, -power) for n, power in terms) not in seen:
                seen.add(frozenset(terms))
                made.append(terms)
    return made


def _is_chosen(logs: np.ndarray) -> bool:
    """Whether a column has two or three powers of two alone, each again and again, as lengths and batches have: nobody works
    those out."""
    twos = logs[np.isfinite(logs)] / math.log(2.0)
    few = {*np.round(twos, 6)}
    return 2 * len(few) < len(twos) and len(few) < FEWEST and all(one == round(one) for one in few)


_MEASURES = ("mem_value", "sec_per_it")


def _is_difference(rows: Sequence[Row], name: str, headings: Sequence[str]) -> bool:
    """Whether a column is what two others of its unit differ by, `saved` of GiB before and after: then no product gives it."""
    own = [row.get(name) for row in rows]
    if sum(value is not None for value in own) < FEWEST:
        return False
    others = [[row.get(other) for row in rows] for other in (*(EXTRA + one for one in headings[:MOST_EXTRA]), *_MEASURES)
              if other != name]  # fmt: skip
    for one, two in itertools.combinations(others, 2):
        told = [(abs(abs(a - b) - value), 0.011 * max(a, b)) for a, b, value in zip(one, two, own)
                if a is not None and b is not None and value is not None and value > 0.03 * max(a, b)]  # fmt: skip
        if len(told) >= FEWEST and 4 * sum(off <= may for off, may in told) >= 3 * len(told):
            return True
    return False


_SIZED = re.compile(r"(?<![\w.])\d+(?:\.\d+)?[BM](?!\w)")


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    return 2 * int((np.abs(one - other) < ALIKE).sum()) > int(np.isfinite(one + other).sum())


def _all_change(terms: Terms, logs: dict[str, tuple[np.ndarray, np.ndarray]]) -> bool:
    off = sum((power * logs[name][0] for name, power in terms), np.zeros(()))
    may = sum((logs[name][1] for name, _ in terms), np.zeros(()))
    with np.errstate(invalid="ignore"):
        kept = np.abs(off - np.nanmedian(off)) <= 2 * may + CLOSE
    return all(np.ptp(logs[name][0][kept]) > 1e-9 for name, _ in terms) if kept.any() else True


def _whole(rows: Sequence[Row], name: str) -> bool:
    """Whether a column has round figures that were chosen, as 2T tokens, and not rounded ones."""
    return all(re.fullmatch(r"\d{1,3}(?:,000)*\s?[kKMBT]?", row.cell(name).strip()) for row in rows if row.get(name))


def by_size(rows: Sequence[Row]) -> list[Terms]:
    """Shares and TFLOPs that follow from rates and the models' sizes, as they do where attention is not counted."""
    rows = rows[:MOST_SEARCHED]
    logs = {name: both for name in FIELDS if (both := _logs(rows, name)) is not None}
    made: list[Terms] = []
    for name, rate in itertools.product(("tflops", "mfu"), ("tokens_per_s", "tokens_per_s_per_process", "samples_per_s")):
        others = [rate, "size", *(["world"] if rate != "tokens_per_s_per_process" and "world" in logs else [])]
        if {name, *others} <= {*logs}:
            made += [terms for terms in _found(name, others, logs) if ("size", -1) in terms]
    return made


COUNTED: tuple[tuple[Terms, float | None], ...] = (
    ((("procs_per_node", 1),), None), ((("ep", 1),), None), ((("gbs", -1), ("dp", 1), ("mbs", 1)), 1.0),
)
"""What a whole number goes with, and what the product then is: threads and processes of a node, experts and the ranks that they
lie on, micro-batches and replicas."""
LEAST_KEPT, DISTINCT = 0.75, 3


def counted(rows: Sequence[Row], headings: Sequence[str]) -> list[Terms]:
    """Columns of whole numbers whose product with other counts is the same in nearly every row."""
    rows = rows[:MOST_SEARCHED]
    made: list[Terms] = []
    for heading in headings[:MOST_EXTRA]:
        column = _counts(rows, EXTRA + heading)
        for terms, meant in COUNTED if column is not None and len({*column}) >= DISTINCT else ():
            others = [(given, power) for name, power in terms if (given := _counts(rows, name)) is not None]
            if column is not None and len(others) == len(terms) and _same_products(column, others, meant):
                made.append(((EXTRA + heading, 1), *terms))
                break
    return made


def _counts(rows: Sequence[Row], name: str) -> list[float] | None:
    """A column of whole numbers; None where some rows have none."""
    values = [row.beside(name) if name in ("ep", "cp") else row.seq if name == "seq" else row.get(name) for row in rows]
    whole = [float(value) for value in values if value and float(value).is_integer()]
    return whole if len(whole) == len(rows) >= FEWEST else None


def _same_products(column: list[float], others: list[tuple[list[float], int]], meant: float | None) -> bool:
    """Whether nearly all rows have one product, and no two others agree on another."""
    products = [value * math.prod(other[at] ** power for other, power in others) for at, value in enumerate(column)]
    (most, kept), *rest = Counter(round(product, 9) for product in products).most_common()
    shown = {column[at] for at, product in enumerate(products) if round(product, 9) == most}
    enough = kept >= max(FEWEST, LEAST_KEPT * len(column)) and len(shown) >= DISTINCT and all(n < 2 for _, n in rest)
    return enough and (meant is None or most == meant)


def _value(row: Row, name: str) -> float | None:
    if name == "size":
        return (label_parameters(row.record.size_label) or (None,))[0]
    return row.world if name == "world" else row.seq if name == "seq" else row.get(name)


def _logs(rows: Sequence[Row], name: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Logarithms of a column and what its printed digits leave open; None where too few rows have it."""
    values, slack = np.full(len(rows), np.nan), np.zeros(len(rows))
    for at, row in enumerate(rows):
        value = _value(row, name)
        if value and 0 < value < math.inf and name not in row.record.inferred:
            values[at] = math.log(value)
            figure = row.printed(name) if name not in ("world", "seq", "gbs", "iteration", "size") else None
            slack[at] = figure.slack if figure is not None else 0.0
    return (values, slack) if np.isfinite(values).sum() >= FEWEST else None


def _found(name: str, others: list[str], logs: dict[str, tuple[np.ndarray, np.ndarray]]) -> list[Terms]:
    """Of the products that most rows keep to those with the fewest columns."""
    values, slack = logs[name]
    if not others:
        return []
    place = {n: at for at, n in enumerate(others)}
    column = np.array([np.nan_to_num(logs[n][0]) for n in others])
    missing, open_ = np.array([np.isnan(logs[n][0]) for n in others]), np.array([logs[n][1] for n in others])
    best: list[tuple[int, int, float, Terms]] = []
    for many in (1, 2, 3):
        combos = list(_combos(others, many))
        if not combos or many == 3 and len(others) > 12:
            break
        powers = np.zeros((len(combos), len(others)))
        for at, combo in enumerate(combos):
            for n, power in combo:
                powers[at, place[n]] = power
        known = np.abs(powers) @ missing == 0
        off = np.where(known, values + powers @ column, np.nan)
        may = slack + np.abs(powers) @ open_
        tried = sum(math.comb(len(others), k) * 2**k for k in range(1, many + 1))
        found = [(kept, -many, -float(np.median(may[at])), ((name, 1), *combos[at]))
                 for at, kept in _judged(off, may, values, tried)]  # fmt: skip
        # One column more has to explain one row more.
        if found and (not best or max(found)[0] > max(best)[0]):
            best = found
        # Or what a part of it leaves out: the devices, which most rows have alike.
        for one in found if best is not found else ():
            parts = [other for other in best if other[0] < one[0] and {n for n, _ in {*one[3]} ^ {*other[3]}} == {"world"}]
            if parts and one[0] == max(best)[0]:
                best = [*(other for other in best if other not in parts), one]
    # Shares of peaks agree with what goes with the TFLOPs in the rows of one device.
    alone = {terms[1][0]: kept for kept, _, _, terms in best if len(terms) == 2}
    best = [one for one in best if one[3][1][0] != "mfu" or len(one[3]) > 2 or alone["mfu"] >= alone.get("tflops", 0)]
    top = max(best)[0] if best else 0
    made: dict[frozenset[str], Terms] = {}
    for kept, _, _, terms in sorted(best, reverse=True):
        if kept >= top - 2:  # of the same columns with other powers those that fewer rows keep to are an accident
            made.setdefault(frozenset(n for n, _ in terms), terms)
    return list(made.values())[:MOST_FOUND]


def _combos(others: list[str], many: int) -> Iterator[Terms]:
    for names in itertools.combinations(others, many):
        for powers in itertools.product((-1, 1), repeat=many):
            yield tuple(zip(names, powers))


def _judged(off: np.ndarray, may: np.ndarray, values: np.ndarray, tried: int) -> Iterator[tuple[int, int]]:
    """Which of the products rows keep to, and how many rows do."""
    apart = np.abs(off[:, :, None] - off[:, None, :])
    with np.errstate(invalid="ignore"):
        near = (apart <= may[:, :, None] + may[:, None, :] + CLOSE).sum(axis=2)
        middle = near.argmax(axis=1)
    there = np.isfinite(off).sum(axis=1)
    for at in np.flatnonzero((near.max(axis=1) >= np.maximum(FEWEST, KEPT * there)) & (there >= FEWEST)):
        distance, open_ = apart[at, middle[at]], may[at] + may[at, middle[at]] + CLOSE
        keep = distance <= open_
        kept, rows = int(keep.sum()), int(there[at])
        spread = min(1.0, float(np.ptp(values[keep])))
        windows = np.minimum(1.0, 2 * open_[keep] / max(spread, 1e-3))
        chance = tried * math.comb(rows, kept) * float(windows.prod() / windows.min())
        nearly = int(((distance > open_) & (distance <= open_ + NEARLY)).sum())
        if chance < CHANCE and nearly <= max(1.0, NEARLY_SHARE * rows) and not _another(off[at][~keep], open_[~keep]):
            yield int(at), kept


def _another(off: np.ndarray, open_: np.ndarray) -> bool:
    """Whether rows that do not keep to it agree among themselves: then something differs between rows that is no slip."""
    there = np.isfinite(off)
    off, open_ = off[there], open_[there]
    return any(abs(a - b) <= min(c, d) for (a, c), (b, d) in itertools.combinations(zip(off, open_), 2))
