"""Every change of one cell of a row that mends all relations that it breaks, and breaks none that it keeps.

    mended(row, broken, kept)            what is broken, and what would mend it
"""
from __future__ import annotations

import math
from collections.abc import Iterator

from seatrial.notes.lint import digits
from seatrial.notes.lint.columns import chosen, exchanged, measured
from seatrial.notes.lint.columns.broken import Broken, Kept, has_flops, is_found
from seatrial.notes.lint.columns.points import FAR, Repair
from seatrial.notes.lint.columns.relations import (
    BELONGS,
    GRAVE,
    MEASURES,
    Relation,
    belongs,
    composing,
    is_measure,
    off_by,
    slack,
    wobble,
)
from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.models.model_size import MODELS_DIFFER, fits_label, of_another_shape
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.usual import mode, round_number

COUNTS = ("gbs", "gpus", "nodes", "dp", "tp", "pp", "cp", "mbs", "ga", "iteration")
SEVERAL = ("layers", "hidden", "seq", "size_label", "machine")
"""Of which every value that other rows have is tried."""
LENIENT, GROSSLY = 1.5, 0.02
"""How many times what others miss a relation by a row may after a change of a count, which no digits can be fitted to."""
FARTHEST = 100.0
"""Of a logarithm: no figure that anybody printed is so far from the right one."""


def mended(row: Row, broken: list[Broken], kept: list[Kept]) -> tuple[list[Broken], list[Repair]]:
    """What is broken and what would mend it; where nothing does, without what was found in the table and may be no rule."""
    repairs = [*_repairs(row, broken, kept), *exchanged.in_row(row, broken, kept)]
    # Beside what is far off, what is a little off is none of the slip's.
    most = max(abs(off) for _, _, off in broken)
    grave = [each for each in broken if abs(each[2]) > max(GRAVE, most / 5)]
    if not repairs and 0 < len(grave) < len(broken):
        broken, repairs = grave, list(_repairs(row, grave, kept))
    # A law of counting holds whatever the model; what a table's rows were taken to agree on may be an accident of a few.
    laws = [each for each in broken if each[0].exact]
    if not repairs and 1 < len(laws) < len(broken):
        repairs = list(_repairs(row, laws, kept))
        broken = laws if repairs else broken
    if all(has_flops(relation) and of_another_shape(row, off) for relation, _, off in broken):
        fits = fits_label(row)  # then only a slip of the hand tells
        repairs = [r for r in repairs if r.name in ("layers", "hidden") and r.why and not (fits and "row" in r.why)]
        broken = broken if repairs else []
    if all(_of_a_model(row, relation) and abs(off) < MODELS_DIFFER for relation, _, off in broken):
        return [], []
    told = [each for each in broken if not is_found(each[0])]
    if not repairs and all(("peak", 1) in relation.terms for relation, _, _ in broken):
        # What was found in the table holds for shares of another device's peak as well.
        repairs = list(_repairs(row, broken, [each for each in kept if not is_found(each[0])]))
    if repairs or len(told) == len(broken) or not told:
        return broken, repairs
    return told, list(_repairs(row, told, [each for each in kept if not is_found(each[0])]))


def _of_a_model(row: Row, relation: Relation) -> bool:
    """Whether a row is the only one of its model, whose FLOPs other models tell but for what nobody describes."""
    alone = not any(mate.record.size_label == row.record.size_label for mate in row.around if mate is not row)
    return alone and not row.record.family and has_flops(relation)


def _repairs(row: Row, broken: list[Broken], kept: list[Kept]) -> Iterator[Repair]:
    """Every change of one cell that mends all that is broken and breaks nothing."""
    for name in _cells(row, broken):
        for value in dict.fromkeys(_values(row, name, broken)):
            bounds = None if _is_sure(row, name, value) else _bounds(row, name, value, broken, kept)
            if bounds is not None:
                if is_measure(name):
                    yield measured.repair(row, name, float(value), bounds, broken)  # type: ignore[arg-type]
                elif (repair := chosen.repair(row, name, value, broken)) is not None:
                    yield repair
                if name not in SEVERAL:
                    break


def _is_sure(row: Row, name: str, value: object) -> bool:
    """Whether something else proves that a figure is no such other one."""
    if name in ("mfu", "hfu") and isinstance(value, float) and value > MOST_USED >= (row.get(name) or 0.0):
        return True
    was = row.get(name) if name in row.sure else None
    return bool(was) and isinstance(value, (int, float)) and abs(math.log(value / was)) > row.sure[name]  # type: ignore[operator]


MOST_USED = 0.85
"""Of the peak, whatever is trained."""


def _cells(row: Row, broken: list[Broken]) -> list[str]:
    """Fields that every broken relation has, and that stand in the row."""
    counted = [name for name in ("gpus", "nodes") if getattr(row.record, name) is not None]
    world = set(counted[:1]) or {"dp", "tp", "pp", "cp"}
    every = [{name for name, _ in relation.terms} for relation, _, _ in broken]
    through = {"world", "dp"} if row.record.dp is None else {"world"}
    batch = {*composing(row)} if row.composed else set()
    common = set.intersection(*(names | (world if names & through else set()) | (batch if "gbs" in names else set())
                                for names in every))  # fmt: skip
    if all({"flops", "token_flops", "seq"} & {name for name, _ in relation.terms} for relation, _, _ in broken):
        common |= {"layers", "hidden", "seq"}
    common |= {name for name in BELONGS if all(belongs(row, relation, name) for relation, _, _ in broken)}
    order = (*MEASURES, *sorted(name for name in common if name[:1] == EXTRA), *COUNTS, *SEVERAL)
    return [name for name in order if name in common and row.shows(name)]


def _values(row: Row, name: str, broken: list[Broken]) -> Iterator[object]:
    if is_measure(name) or name in COUNTS:
        was = row.beside(name) if name in ("cp", "ga") else row.get(name)
        for relation, rule, off in sorted(broken, key=lambda b: slack(row, b[0]) + wobble(row, *b[:2])):
            powers = dict(relation.terms)
            through = powers.get("world") or (powers.get("dp") if row.record.dp is None else None)
            power = powers.get(name, through if name in ("gpus", "nodes", "dp", "tp", "pp", "cp") else None)
            if row.composed and name in composing(row):
                power = (power or 0) + powers.get("gbs", 0)
            if was and power and abs(off) < FARTHEST:
                value = was * math.exp(-off / power)
                if is_measure(name):
                    yield value
                else:
                    yield from _counts(row, name, value, slack(row, relation) + 0.005, wobble(row, relation, rule))
        return
    seen = [value for value in row.sheet.in_file(row, name) if value]
    if name == "seq" and row.seq:
        seen += [row.seq * 2, row.seq // 2, row.seq * 4, row.seq // 4]
        seen += [] if round_number(row.seq) else digits.powers_that_lost_one(str(row.seq))
    if name == "layers" and row.layers:
        seen += [max(1, round(row.layers * math.exp(power * broken[0][2]))) for power in (1, -1)]
    yield from (value for value in seen if value != getattr(row.record, name))


def _counts(row: Row, name: str, value: float, open_: float, loose: float) -> Iterator[int]:
    """Whole numbers near a solved one, those first that somebody would choose."""
    if not 0.5 <= value < 1e12:
        return
    stated = row.stated_above(name)
    column = [mate.said(name) for mate in row.around if mate is not row]
    likely = [stated[0] if stated else None, mode(column)[0], *column, 2 ** round(math.log2(max(1.0, value)))]
    yield from dict.fromkeys(n for n in likely if isinstance(n, int) and n > 0 and abs(math.log(n / value)) <= open_ + loose)
    low, high = math.ceil(value * (1 - open_)), math.floor(value * (1 + open_))
    was = row.get(name) or value
    if name == "iteration" and (was in column or abs(abs(math.log10(was / value)) - 1) < open_):
        yield from _plainest(low, high)  # typed over by another row's, or with a zero too many
    near = sorted(range(max(1, low), high + 1)[:200], key=lambda n: abs(n - value))
    yield from [n for n in near if round_number(n)][:1]
    yield max(1, round(value))


def _plainest(low: int, high: int) -> Iterator[int]:
    """The one number of steps in a range that ends in most zeros, and in as many but for a 5."""
    for step in (10**power // part for power in range(9, 2, -1) for part in (1, 2)):
        if (count := high // step - (low - 1) // step) > 0:
            yield from [high // step * step][: count < 2]
            return


def _bounds(row: Row, name: str, value: object, broken: list[Broken], kept: list[Kept]) -> tuple[float, float] | None:
    """How far the new value may be from the solved one, as logarithms, where everything agrees with it; else None."""
    low, high = -math.inf, math.inf
    # Of a row that is far off a number that mends it nearly is the right one.
    gross = len(broken) > 1 and min(abs(off) for _, _, off in broken) > FAR / 4
    for at, (relation, rule) in enumerate([*((relation, rule) for relation, rule, _ in broken), *kept]):
        found = off_by(row, relation, rule, {name: value})
        if found is None and name in BELONGS and at:
            continue
        if found is None:
            return None
        off, may = found
        power = dict(relation.terms).get(name)
        if is_measure(name) and power:
            ends = sorted(((-may - off) / power, (may - off) / power))
            low, high = max(low, ends[0]), min(high, ends[1])
        elif abs(off) > max(LENIENT * may if rule.misses.is_loose else may, GROSSLY if gross else 0.0) + 0.002:
            return None
    if gross and high + 0.004 < low <= high + GROSSLY:
        low, high = high, low  # between what each of them gives
    return (low, high) if low <= high + 0.004 else None
