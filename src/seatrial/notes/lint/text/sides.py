"""The pairs of rows that a ratio of a sentence is of, where it names them in different ways: see `mentions`.

    for pairs in sides(text, claim, its, some, rows):      the likeliest first

    FP8 brings 1.42x on the 13B and 1.49x on the 70B      each claim has its own model, and both have the precisions
    m2 is 5 % faster than the same batch with mbs 1       of the rows with mbs 1 the twin of that of m2
    at accumulation 8 we lose 23 %                        the two rows that have it, of two versions
    FP8 saves 27 % on the H100                            the twin of its row that has no FP8

Twins are rows with the fewest settings that differ.
"""
from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seatrial.notes.lint.headings import field_of, is_extra
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.text.claims import Claim
from seatrial.notes.lint.text.mentions import Mention, by_column, two_sides
from seatrial.tables.headings import clean, read_heading

Pairs = list[tuple[Row, Row]]
MOST_PAIRS, MOST_APART = 12, 3
THAN = re.compile(
    r"\b(?:than|as (?!fast|quick|much|many|long|high|low|well|slow|cheap|expensive|dear|good|large|big)|against|over|vs\.?|"
    r"versus|"
    r"compared|relative to|instead of|rather than|als|wie|gegen(?:uber)?|statt|verglichen|que|contre|rapport a|au lieu|"
    r"frente a|respecto|comparad[oa]|rispetto|contro|di un|dell[ao]|dan|tegen|vergeleken|чем|против|по сравнению|niz|wobec|od|"
    r"jamfort|enn|end|do que|contra|en vez)\b|比(?:べ|起|較|较)?|より|相比|보다|に対し|대비",
    re.IGNORECASE)  # fmt: skip
_CLAUSES = re.compile(r"[,;；、，]\s?(?!\d{3}\b)| (?:and|und|et|y|e|og|en|i|и|while|whereas|och|mientras|but|aber|"
                      r"mais) ", re.IGNORECASE)  # fmt: skip
_COMMAS = re.compile(r",\s?(?!\d)|[、，]|[;:]\s")
_HARDER = re.compile(r";\s?|；|。|: ")
_SINGLE = re.compile(r"\b(?:single|one|an?|eine?[mnrs]?|un[eao]?|uno|een|op een|один|одна|одной|jeden)\s(?:\w+[ -])?(?:\S+-)?"
                     r"(?:node|host|box|knoten|n(?:oe)?ud|nodo|knooppunt|узел|узла|wezel|machine)\b",
                     re.IGNORECASE)  # fmt: skip
BEST = re.compile(r"\b(?:best|fastest|quickest|beste[rnms]?|schnellste\w*|meilleure?|plus rapide|mejor|mas rapid[oa]|"
                   r"miglior\w*|snelste|най|лучш\w+)\b|最快|最好|最速|最良", re.IGNORECASE)  # fmt: skip
_MEASURED = frozenset(("sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s", "tflops", "aggr_pflops",
                       "mfu", "hfu", "mem_value", "loss", "iteration", "notes", "status", "outcome", "params"))  # fmt: skip
FIRST = ("size_label", "machine", "seq")
"""What makes another thing of a row more than its layout does."""


@dataclass(frozen=True)
class Sides:
    pairs: Pairs
    said: bool
    """Whether the sentence names both, and not one or what both have."""
    ordered: bool = False
    """Whether the first of the two is what the sentence speaks of."""


def sides(text: str, claim: Claim, its: Sequence[Claim], some: Sequence[Mention], rows: Sequence[Row]) -> Iterator[Sides]:
    """What the sentence names of the two, each way to read it that leads to rows."""
    own = of_claim(text, claim, its, some)
    if not own:
        return
    both = two_sides(own, rows)
    if both is None and any(len(column) > 2 for column in by_column(own).values()):
        cut = max((match.end() for match in _COMMAS.finditer(text, 0, claim.start)), default=0)
        own = [one for one in own if one.start >= cut] or own
        both = two_sides(own, rows)
    if both is not None:
        yield Sides(twins(text, *both), True)
        return
    split = _held_against(text, own, rows)
    if split is not None:
        yield Sides(twins(text, *split), True)
        return
    left = having_all(own, rows)
    best = list(_best_of_both(own, rows)) if BEST.search(text) else []
    counted = all(one.heading in ("devices", "nodes") for one in own)
    of_others = len(left) == 2 and any(field_of(heading) in FIRST for heading in apart(*left))
    if claim.way == "kept" and len(left) == 1 and counted:
        base = _fewest(left[0], rows)
        yield from [Sides([(left[0], base)], False)] if base is not None else []
    elif best:
        yield from best
    elif len(left) == 2 and not counted and 0 < len(apart(*left)) <= 2 and (not of_others or THAN.search(text)):
        yield Sides([(left[0], left[1])], False)
    elif len(left) == 1 and (THAN.search(text) is None or _NONE.search(text)):
        base = _without(text, left[0], own, rows)
        if base is not None:
            yield Sides([(left[0], base)], False)


def of_claim(text: str, claim: Claim, its: Sequence[Claim], some: Sequence[Mention]) -> list[Mention]:
    """Without what other claims of the sentence have for themselves, each a value of one column."""
    if len(its) < 2:
        return list(some)
    ends, hard = [0], [0]
    for one, other in itertools.pairwise(its):
        between = one.start + len(one.text), other.start
        hard += [match.end() for match in _HARDER.finditer(text, *between)]
        cuts = [match.end() for match in (_HARDER if hard[-1] > between[0] else _CLAUSES).finditer(text, *between)]
        ends.append(cuts[-1] if cuts else between[0])
    ends.append(len(text) + 1)
    first = max(cut for cut in hard if cut <= claim.start)
    last = min((cut for cut in hard if cut > claim.start), default=len(text) + 1)
    some = [one for one in some if first <= one.start < last]
    its = [one for one in its if first <= one.start < last]
    ends = [first, *(end for end in ends if first < end < last), last]
    if len(its) < 2 or len(ends) != len(its) + 1:
        return list(some)
    at = next(place for place, one in enumerate(its) if one.start == claim.start)
    kept: list[Mention] = []
    for column in by_column(some).values():
        heading = column[0].heading
        parts = [{one.rows for one in some if one.heading == heading and ends[place] <= one.start < ends[place + 1]}
                 for place in range(len(its))]  # fmt: skip
        shared = len(column) != len(its) or any(len(part) != 1 for part in parts)
        kept += [one for one in some if one.heading == heading and (shared or one.rows in parts[at])]
    return sorted(kept, key=lambda one: one.start)


def having_all(some: Sequence[Mention], rows: Sequence[Row]) -> list[Row]:
    """Rows that have all of what is named; of one column a word may hold for less than another one does."""
    left = frozenset(range(len(rows))) if some else frozenset()
    for column in by_column(some).values():
        least = min((one.rows for one in column), key=len)
        left &= least if all(least <= one.rows for one in column) else frozenset()
    return [rows[at] for at in sorted(left)]


def _fewest(row: Row, rows: Sequence[Row]) -> Row | None:
    """What an efficiency is held against, where nobody says it: the row with the fewest devices of the same model."""
    alike = [mate for mate in rows if mate is not row and mate.world and row.world and mate.world < row.world
             and not any(field_of(heading) in FIRST for heading in apart(row, mate))]  # fmt: skip
    least = min((mate.world or 0 for mate in alike), default=0)
    first = [mate for mate in alike if mate.world == least]
    return first[0] if len(first) == 1 else None


def _best_of_both(some: Sequence[Mention], rows: Sequence[Row]) -> Iterator[Sides]:
    """`against the best that main can do`, where all other rows are of one other branch."""
    columns = by_column(some)
    heading, column = next(iter(columns.items()))
    values = {row.cells.get(heading, "") for row in rows}
    if len(columns) != 1 or len(column) != 1 or len(values) != 2:
        return
    parts = [[row for at, row in enumerate(rows) if (at in column[0].rows) == named] for named in (False, True)]
    best = [fastest(part) for part in parts]
    if all(len(part) == 1 for part in best):
        yield Sides([(best[0][0], best[1][0])], False)


def _held_against(text: str, some: Sequence[Mention], rows: Sequence[Row]) -> tuple[list[Row], list[Row]] | None:
    """What is named before a word of comparison, and what is behind it: `v=2 instead of 1F1B at p=8` is of p=8 on both."""
    for match in THAN.finditer(text):
        parts = [[one for one in some if one.end <= match.start() + 1], [one for one in some if one.start >= match.end() - 1]]
        if not parts[0] or not parts[1]:
            continue
        found = []
        for part in parts:
            columns = by_column(part)
            if any(len(column) > 1 for column in columns.values()):
                return None
            found.append(frozenset.intersection(*(column[0].rows for column in columns.values())))
        one, other = found
        if not one or not other:
            return None
        if shared := one & other:
            one, other = (shared, other - one) if other - one else (one - other, shared)
        if not one:
            return None
        return [rows[at] for at in sorted(one)], [rows[at] for at in sorted(other)]
    return None


_NONE = re.compile(r"\b(?:none|no|without|ohne|keine?|sans|aucune?|sin|ninguna?|senza|nessuna?|sem|zonder|geen|без|bez)\b|"
                   r"ない|无|無", re.IGNORECASE)  # fmt: skip
_OFF = re.compile(r"(?:none|no|off|0|1|-|–|—||default|baseline)", re.IGNORECASE)


def _without(text: str, row: Row, some: Sequence[Mention], rows: Sequence[Row]) -> Row | None:
    """The one other row that has the same settings but for one that is named, and what else is named."""
    at = next(place for place, one in enumerate(rows) if one is row)
    found: dict[Row, None] = {}
    for one in some:
        if one.heading in ("devices", "nodes"):
            continue  # how many are held against which nobody knows
        rest = [other.rows for other in some if other.heading != one.heading or other.rows > one.rows]
        mates = [mate for place, mate in enumerate(rows) if place != at and place not in one.rows
                 and all(place in others for others in rest)]  # fmt: skip
        if len(mates) > 1 and _NONE.search(text) and one.heading in row.record.printed:
            mates = [mate for mate in mates if _OFF.fullmatch(mate.cells.get(one.heading, "x").strip())] or mates
        weights = {mate: _weight(mate, row) for mate in mates if one.heading in apart(row, mate)}
        least = [mate for mate, weight in weights.items() if weight == min(weights.values())]
        if len(least) == 1 and weights[least[0]] <= MOST_APART:
            found[least[0]] = None
    return next(iter(found)) if len(found) == 1 else None


def twins(text: str, one: list[Row], other: list[Row]) -> Pairs:
    """Of each two rows those that have most in common, and of several those of one node where the text speaks of one."""
    if _SINGLE.search(text):
        one, other = ([row for row in side if (row.record.nodes or row.record.gpus) == 1] or side for side in (one, other))
    if BEST.search(text):
        one, other = (fastest(side) for side in (one, other))
    if len(one) == len(other) == 1 or len(one) * len(other) > 20 * MOST_PAIRS:
        return [(a, b) for a in one for b in other]
    far = {(a, b): _weight(a, b) for a in one for b in other}
    least = min(far.values())
    return [pair for pair, weight in far.items() if weight == least]


def fastest(some: list[Row]) -> list[Row]:
    """The one of several that does most; none where nothing tells."""
    for name in ("tokens_per_s", "tokens_per_s_per_process", "tflops", "samples_per_s"):
        known = [(rate, row) for row in some if (rate := row.get(name))]
        if len(some) > 1 and known:
            return [max(known, key=lambda one: one[0])[1]]
    return some if len(some) == 1 else []


def _weight(one: Row, other: Row) -> int:
    return sum(3 if field_of(heading) in FIRST else 1 for heading in apart(one, other))


def apart(one: Row, other: Row) -> frozenset[str]:
    """The settings in which two rows differ."""
    return frozenset(heading for heading, cell in one.record.printed.items() if is_setting(heading, one)
                     and clean(cell).strip().casefold() != clean(other.record.printed.get(heading, "")).strip().casefold())


def is_setting(heading: str, row: Row) -> bool:
    name = field_of(heading)
    if name:
        return name not in _MEASURED
    if read_heading(heading).parts:
        return True
    first = heading == next(iter(row.record.printed))
    return is_extra(heading) and (first or _is_chosen(heading, row))


def _is_chosen(heading: str, row: Row) -> bool:
    """Whether a column that no field takes has words or small counts of which rows share some."""
    cells = [clean(mate.record.printed.get(heading, "")).strip() for mate in row.mates[:40]]
    words = sum(cell.upper() != cell.lower() and not re.search(r"\d(?:[.,]\d+)? ?[kKMGT%]?$", cell) for cell in cells)
    counts = [cell for cell in cells if re.fullmatch(r"\d{1,5}", cell)]
    return 2 * words > len(cells) or len(counts) == len(cells) and len({*counts}) < len(counts)
