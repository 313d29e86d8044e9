"""Time and TFLOPs of a row must belong together under the reading of its table; where they do not, which cell is wrong?

    check(sheet)                         findings
    Solved(row, agreeing).best()         what would explain the row, the best first

Each cell that could be wrong is solved for, and scored by what else speaks for the solved value: the text above the table, the
rest of the column, a typing slip that leads from one to the other, figures derived from it in other columns, and whether the
TFLOPs as printed look like those of the neighbours. One clear explanation is proposed; else the row is left open. What most
rows of a table share is no slip of a row: a unit, a habit of truncating digits, or a formula that nobody stated.
"""
from __future__ import annotations

import bisect
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint import digits
from seatrial.notes.lint.columns import derived, relations
from seatrial.notes.lint.digits import Slip, as_time, slip
from seatrial.notes.lint.findings import Finding, Ground, Level
from seatrial.notes.lint.means import WINDOW, Misses
from seatrial.notes.lint.models.formulas import (
    ALIKE,
    ALIKE_SLACK,
    TIME_SCALES,
    Open,
    Reading,
    elsewhere,
    in_unit,
    left_open,
    slack,
)
from seatrial.notes.lint.models.model_size import MODELS_DIFFER, fits_label, of_another_shape
from seatrial.notes.lint.once import once
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.usual import mode, round_number

# Scores of an explanation: what speaks for the value that one cell would have.
UNIT = 6.0
"""Time and TFLOPs agree to the last digit in another unit of time."""
STATED_ABOVE = 5.0
"""The text above the table says so."""
USUAL, USUAL_SHAPE = 4.0, 3.5
"""Most rows of the table have it; a hidden size or sequence changes less often by mistake."""
IN_ANOTHER_ROW = 2.5
SLIP = ((0.03, 3.0), (0.1, 2.0), (0.3, 1.0), (math.inf, 0.3))
"""A typing slip leads from it to what is printed: by the chance that one does so by accident."""
FORMULA = ((0.004, 3.0), (0.01, 2.5), (math.inf, 1.0))
"""Another formula gives it: by the share that the printed digits leave open."""
PER_NODE, EXCHANGED, PASTED = 4.0, 5.0, 2.5
"""TFLOPs of a node; two rows each have what the other needs; the figure of the row above."""
DERIVED_COLUMN = {True: 4.0, False: -3.0}
"""A column worked out from the figure agrees with the change, or did so before."""
ENOUGH, CLEAR_SLIP = 2.0, 3.0
"""From which on an explanation is proposed, and makes a small difference an error too."""
MARGIN = 1.0
"""By how much the best explanation must lead to be proposed."""
ODD, LEAD, ABOUT_HALF = 1.5, 2.5, 0.4
"""From which on the column alone tells which of two figures is unlike the others, by how much it leads, and by how much the
figure is off at least, as a logarithm."""

_SEQUENCES = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    name: str
    """The field whose cell would change."""
    value: float
    shown: str
    """The cell as it would read."""
    score: float
    message: str
    code: str = "tflops-mismatch"
    level: Level = "error"
    why: str = ""
    """What speaks for it, as its message has it."""
    ground: Ground = "law"


def reading_of(row: Row) -> Reading:
    assert row.reading is not None
    return row.reading


_WELL = 4.0
Solver = Callable[[Row, set[Row], Open], Iterator["Explanation"]]


class Solved:
    """What would explain a row, by each cell that could be wrong. `agreeing`: the rows of the table whose own figures belong
    together."""

    def __init__(self, row: Row, agreeing: set[Row]) -> None:
        self._row, self._agreeing = row, agreeing
        self._lean, self._open = _leaning(row, agreeing), left_open(row)
        self._known: dict[Solver, list[Explanation]] = {}

    def _by(self, solve: Solver) -> list[Explanation]:
        if solve not in self._known:
            self._known[solve] = [replace(e, score=e.score + self._leans(e))
                                  for e in solve(self._row, self._agreeing, self._open)]  # fmt: skip
        return self._known[solve]

    def _leans(self, e: Explanation) -> float:
        # A figure by another formula may look like its neighbours or not: that says less about it than about a wrong figure.
        return self._lean * {"formula-mixed": -0.5}.get(e.code, -1.0 if e.name == "tflops" else 1.0)

    def best(self) -> list[Explanation]:
        found = [e for solve in (_unit_of_time, _batch, _layers, _shape, _nodes, _formula, _either_figure)
                 for e in self._by(solve)]  # fmt: skip
        # Of two that lead to the same cell the one that says why is kept, with the better score.
        best: dict[tuple[str, str], Explanation] = {}
        for e in sorted(found, key=lambda e: (e.code != "formula-mixed", -e.score)):
            first = best.get((e.name, e.shown))
            best[e.name, e.shown] = e if first is None else replace(first, score=max(first.score, e.score))
        return sorted(best.values(), key=lambda e: -e.score)

    @once
    def well(self) -> bool:
        """Whether an explanation scores so; what cannot is not worked out."""
        row, lean = self._row, abs(self._lean)
        layers = _layers if max(SLIP[0][1], IN_ANOTHER_ROW) + lean >= _WELL else _layers_said
        solvers: list[Solver] = [_unit_of_time, _batch, layers, _formula]
        solvers += [_shape] if USUAL_SHAPE + lean >= _WELL else []
        above = (row.record.tflops or 0.0) > (row.peak or math.inf)
        solvers += [_either_figure] if SLIP[0][1] + lean >= _WELL or derived.may_vote(row) or above else []
        return any(e.score >= _WELL for solve in solvers for e in self._by(solve))


def _may_be_wrong(row: Row, name: str, agreeing: set[Row]) -> bool:
    """A value from the text above holds for the whole table: it is not wrong for one row where others agree with it."""
    return row.states(name) or not any(mate is not row and mate in agreeing for mate in row.around)


def _leaning(row: Row, agreeing: set[Row]) -> float:
    """Above 0 when the printed TFLOPs look like the neighbours' and the computed ones do not; below 0 the other way round."""
    others = [mate.record.tflops for mate in row.around if mate is not row and mate in agreeing]
    calc, shown = reading_of(row).tflops(row), row.printed("tflops")
    if len(others) < 2 or calc is None or shown is None:
        return 0.0
    logs = [math.log(value) for value in others if value]
    middle = statistics.median(logs)
    usual = 0.03 + statistics.median([abs(value - middle) for value in logs])
    difference = abs(math.log(calc) - middle) - abs(math.log(shown.value) - middle)
    return max(-1.5, min(1.5, 0.4 * difference / usual)) if abs(difference) > 0.05 else 0.0


def _whole(name: str, was: int, value: int, score: float, why: str = "", *, label: str = "",
           said: bool = False) -> Explanation:  # fmt: skip
    """A count that would be another; `said`: by the text."""
    message = f"{label or name} {was} -> {value}{why}"
    return Explanation(name=name, value=value, shown=str(value), score=score, message=message, why=why,
                       ground="text" if said else "law")  # fmt: skip


def _typing_slip(text: str, low: float, high: float) -> tuple[float, str, Slip | None]:
    """What a typing slip counts for: the less likely it comes by accident, the more."""
    found = slip(text, (low, high))
    if found is None:
        return 0.0, "", None
    return next(score for chance, score in SLIP if found.chance < chance), f" ({found.how})", found


def _unit_of_time(row: Row, agreeing: set[Row], open_: Open) -> Iterator[Explanation]:
    reading = reading_of(row)
    for scale, unit in reading.units_left(row, open_, TIME_SCALES):
        if in_unit(reading, scale).fits(row):
            code = "ms-not-s" if scale == 1e-3 else "time-unit"
            message = f"the time is in {unit}"
            yield Explanation(code=code, name="sec_per_it", value=scale, shown="", score=UNIT, message=message)


def _batch(row: Row, agreeing: set[Row], open_: Open) -> Iterator[Explanation]:
    reading, gbs, shown = reading_of(row), row.whole("gbs"), row.printed("tflops")
    expected = reading.expected(row)
    if not gbs or not reading.ratio(row) or expected is None or shown is None:
        return
    low, high = gbs * shown.rounded[0] / expected[1], gbs * shown.rounded[1] / expected[0]
    step = (row.whole("dp") or 1) * (row.whole("mbs") or 1)
    if not math.isfinite(high) or "gbs" in row.record.inferred and not row.shows("gbs"):
        return
    # Coarse digits leave millions of batches open: the first few hundred are more than anybody could tell apart.
    inside = [n * step for n in range(max(1, math.ceil(low / step - 1e-9)), math.floor(high / step + 1e-9) + 1)[:200]]
    if not inside:
        return
    others = [mate.record.gbs for mate in row.around if mate is not row]
    usual, often = mode(others)
    stated = row.stated_above("gbs")
    best: Explanation | None = None
    kin = {mate.record.gbs for mate in row.around if mate in agreeing and mate is not row and mate.world == row.world}
    # Of many that are open a slip of the hand tells less than another row, or the text, does.
    many, told = len(inside) >= 4, {stated[0] if stated else None, *others} - {gbs}
    for value in [n for n in inside if n in told] or inside if many else inside:
        if value == gbs or value not in told and round_number(gbs) and not round_number(value):
            continue  # nobody chooses such a number
        if stated is not None and stated[0] == value:
            score, why = STATED_ABOVE, f" (line {stated[1]} says {value})"
        elif usual == value and often >= max(1, 0.5 * len(others)):
            score, why = USUAL, " (as in the other rows)"
        elif value in others:
            score, why = IN_ANOTHER_ROW, " (as in another row)"
        else:
            score, why, _ = _typing_slip(row.cell("gbs") or str(gbs), value, value)
            score = min(score, 2.0) * (0.5 if many else 1.0) + (1.0 if value & (value - 1) == 0 else 0.0) or -1.0
        if value not in kin and gbs in kin:
            score -= AGAINST_KIN
        if best is None or score > best.score:
            best = _whole("gbs", gbs, value, score, why, label="GBS", said=stated is not None and stated[0] == value)
    if best is not None:
        yield best


AGAINST_KIN = 2.0
"""Rows on as many devices have the batch that is printed, and none has the other one."""


def _layers(row: Row, agreeing: set[Row], open_: Open) -> Iterator[Explanation]:
    """As many as the text says, as most rows or others have, or as the figures leave."""
    if not row.layers or not row.record.layers or not _may_be_wrong(row, "layers", agreeing):
        return
    bounds = reading_of(row).solve_layers(row)
    solved = [math.ceil(bounds[0] - 1e-6)] if bounds is not None and bounds[1] - bounds[0] < 0.8 else []
    yield from _layers_said(row, agreeing, open_, row.sheet.in_file(row, "layers", hidden=row.hidden), solved)


def _layers_said(row: Row, agreeing: set[Row], open_: Open, others: Sequence[object] = (),
                 solved: Sequence[int] = ()) -> Iterator[Explanation]:  # fmt: skip
    if not row.layers or not row.record.layers or not _may_be_wrong(row, "layers", agreeing):
        return
    reading, pp = reading_of(row), row.whole("pp") or 1
    stated, usual = row.stated_above("layers"), mode([mate.record.layers for mate in row.around if mate is not row])[0]
    known = [value for value in (stated[0] if stated else None, usual, *others) if isinstance(value, int)]
    for value in dict.fromkeys((*known, *solved)):
        divides = value % pp == 0 or (value + 2) % pp == 0
        if value < 1 or value == row.layers or not divides or not reading.may_fit(row, open_, layers=value):
            continue
        if not reading.fits(row, layers=value):
            continue
        score, why, _ = _typing_slip(row.cell("layers") or str(row.layers), value, value)
        if stated is not None and stated[0] == value:
            score, why = STATED_ABOVE if usual == value else USUAL, f" (line {stated[1]} says {value})"
        elif usual == value:
            score, why = USUAL, " (as in the other rows)"
        elif value in others:
            score, why = IN_ANOTHER_ROW, " (as in another row)"
        yield _whole("layers", row.layers, value, score, why, said=stated is not None and stated[0] == value)


def _shape(row: Row, agreeing: set[Row], open_: Open) -> Iterator[Explanation]:
    """Hidden size and sequence take only values that are in use."""
    reading = reading_of(row)
    low, high = reading.times_left(row, open_)
    for name, was, extra in (("hidden", row.hidden, ()), ("seq", row.record.seq, _SEQUENCES)):
        if not was or not _may_be_wrong(row, name, agreeing):
            continue
        seen = [value for value in row.sheet.in_file(row, name) if isinstance(value, int)]
        for value in dict.fromkeys(seen + list(extra)):
            # The FLOPs of a sequence grow at least as the hidden size and the length do, and at most as their squares.
            times = sorted((value / was, (value / was) ** 2))
            if value == was or times[1] * 1.3 < low or times[0] > 1.3 * high:
                continue
            if reading.may_fit(row, open_, **{name: value}) and reading.fits(row, **{name: value}):
                near = [getattr(mate.record, name) for mate in row.around if mate is not row]
                if mode(near)[0] == value and row.states(name):
                    score = USUAL_SHAPE
                else:
                    score = IN_ANOTHER_ROW if value in near else 1.0 if row.states(name) else 0.0
                yield _whole(name, was, value, score)


def _nodes(row: Row, agreeing: set[Row], open_: Open) -> Iterator[Explanation]:
    """Only where no product of DP, TP and PP holds the count in place."""
    ratio, world = reading_of(row).ratio(row), row.world
    if not ratio or not world or row.product is not None and row.product == row.counted:
        return
    name = "gpus" if row.states("gpus") else "nodes"
    shared = 1 if name == "gpus" else row.procs or 1
    value = round(world * ratio / shared)
    unlikely = round_number(world) and not round_number(value * shared)
    if value >= 1 and value * shared != world and not unlikely and reading_of(row).fits(row, world=value * shared):
        score, why, _ = _typing_slip(row.cell(name), value, value)
        yield _whole(name, world // shared, value, min(score, 2.0), why, label=row.column(name))


def _formula(row: Row, agreeing: set[Row], open_: Open) -> Iterator[Explanation]:
    """Another habit of counting: only believable when the digits are fine enough to tell formulas apart."""
    reading, shown = reading_of(row), row.printed("tflops")
    followed = _followed(row)
    for other in elsewhere(reading, row):
        if other.per == "node" and (row.procs or 1) == 1 or shown is None:
            continue
        if not other.may_fit(row, open_) or not other.fits(row):
            continue
        score = next(score for coarse, score in FORMULA if slack(row) < coarse) + (2.0 if followed[other] >= 3 else 0.0)
        if other.recompute != reading.recompute:
            score += 2.0 if row.record.recompute == other.recompute else -0.5
        if other.per == "process":
            comparable = reading.tflops(row) or 0.0
            like = shown.like(comparable)
            message = f"TFLOPs counted by {other}, comparable with the table would be {like}"
            yield Explanation(code="formula-mixed", name="tflops", value=comparable, shown=like, score=score, message=message,
                              level="warning")  # fmt: skip
        elif (other.formula, other.recompute) == (reading.formula, reading.recompute):
            # A factor of the processes per node is no coincidence when the other factors are those of the table.
            each = shown.value / (row.procs or 1)
            message = f"TFLOPs {shown.value:g} is per node, {row.procs} x {each:.4g} per process"
            said = row.record.tflops_per == "node"  # by its heading
            yield Explanation(code="tflops-per-node", name="tflops", value=each, shown=shown.like(each), score=score + PER_NODE,
                              message=message, level="info" if said else "warning")  # fmt: skip


def _followed(row: Row) -> Counter[Reading | None]:
    """How many rows of the file follow each reading."""
    known, file = row.sheet.followed, row.record.source_file
    if file not in known:
        known[file] = Counter(mate.reading for mate in row.elsewhere if mate.complete)
    return known[file]


def formula_of_another(row: Row) -> Explanation | None:
    """The best of the other habits of counting that give the printed TFLOPs."""
    return max(_formula(row, set(), left_open(row)), key=lambda e: e.score, default=None) if row.reading is not None else None


def _either_figure(row: Row, agreeing: set[Row], open_: Open) -> Iterator[Explanation]:
    """The time or the TFLOPs themselves, when a typing slip or another column points to one of them."""
    sec, shown, calc = row.printed("sec_per_it"), row.printed("tflops"), reading_of(row).tflops(row)
    expected = reading_of(row).expected(row)
    if sec is None or shown is None or calc is None or expected is None:  # expected: the last digit may hide a time of 0
        return
    work = sec.value * calc
    times = (work / shown.rounded[1], work / max(shown.rounded[0], 1e-12))
    if reading_of(row).formula == ALIKE:
        # The common figure is a mean of rounded ones.
        expected, times = ((low * (1 - ALIKE_SLACK / 2), high * (1 + ALIKE_SLACK / 2)) for low, high in (expected, times))
    for name, figure, value, bounds in (("sec_per_it", sec, work / shown.value, times), ("tflops", shown, calc, expected)):
        # Where the point moved, the last digit did too.
        moved = value / figure.value
        half = min(figure.unit / 2 * (moved if moved < 0.2 else max(1.0, moved)), 0.003 * value + figure.unit / 2)
        ends = sorted((figure.shown(bounds[0] - half), figure.shown(bounds[1] + half)))
        score, why, typed = _typing_slip(figure.like(figure.value), ends[0], ends[1])
        slipped = typed is not None and score >= 2
        meant, text = (figure.meant(typed.value), typed.text) if typed and slipped else (value, figure.like(value))
        vote = derived.vote(row, name, value)
        above = row.mates[row.place - 1] if row.place and not why else None
        near = row.mates[max(0, row.place - 10) : row.place + 11]
        if above is not None and row.cell(name) == above.cell(name) != "" and figure.slack < FINE and len(
                {mate.cell(name) for mate in near}) > 0.7 * len(near):  # fmt: skip
            score, why = score + PASTED, f" (what is printed is that of {above.where})"
        if name == "tflops" and figure.value > (row.peak or math.inf) >= value:
            score, why = score + PER_NODE, f"{why} (more than the device can do)"
        if vote is not None:
            score, why = score + DERIVED_COLUMN[vote], why + (" (another column agrees)" if vote else "")
        message = f"{row.column(name)} {figure.value:g} -> {text}{why}"
        yield Explanation(name=name, value=meant, shown=text, score=score, message=message, why=why)


# ---- the rows of a table

SMALL = 0.015
"""A difference below this may come from averages over other iterations; above it one of the figures is wrong."""
LEAST = -1 + 1e-12
"""A figure that is nothing beside the printed one."""
BY_LABEL = 0.3
"""A difference that a size by its name alone may be believed for."""
FINE = 0.008
"""A difference that a slip of the hand may be believed for."""
TINY = 0.004
"""A difference below this is a digit that was rounded on the way."""
_MOST_EXPLAINED = 500
"""Of one table; a log of thousands of such lines has one cause and not thousands."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for mates in sheet.tables.values():
        found += _times_alone(mates)
        ratios = {row: ratio for row in mates if row.complete and row.reading is not None and not row.settled
                  and (ratio := row.reading.ratio(row)) is not None}  # fmt: skip
        rows = list(ratios)
        fitting = {row for row in rows if _agrees(row)}
        sheet.trusted.update(dict.fromkeys(fitting, True))
        agreeing = fitting | _as_others_miss(ratios)
        wrong = [row for row in rows if row not in agreeing]
        found += [finding for row in rows if row in agreeing for finding in _slow_units(row)]
        if _all_cut(rows, wrong):
            share = f"{len(wrong)} of {len(rows)} rows agree with {wrong[0].reading}"
            message = f"{share} only when their digits were cut off and not rounded"
            found.append(wrong[0].find("tflops-mismatch", "info", message, name="tflops"))
            continue
        # Where many rows miss by so little their times are means over other iterations, and no slip explains one of them.
        small = [row for row in wrong if abs((ratios[row] or 1.0) - 1) <= TINY]
        usual = set(small) if len(small) > max(2, 0.3 * len(rows)) else {row for row in small if slack(row) >= TINY / 8}
        solved = {row: Solved(row, agreeing) for row in wrong[:_MOST_EXPLAINED] if row not in usual}
        factor = _common_factor(ratios, wrong, solved)
        if factor is not None and abs(math.log(factor)) < WINDOW:  # figures that scatter, by the formula that the text states
            wrong, factor = [row for row in wrong if abs(math.log(ratios[row] or 1)) > WINDOW + slack(row)], None
        elif factor is not None:
            found.append(_another_sequence(rows) or _unknown_formula(rows, factor))
            wrong = [row for row in rows if abs(math.log((ratios[row] or 1) / factor)) > 0.02 + slack(row)]
        explained = {row: solved[row].best() for row in wrong if row in solved}
        _exchanges(explained)
        habits = sorted([math.log(ratio) for row in wrong if (ratio := ratios[row])])
        for row in wrong:
            own, open_ = math.log(ratios[row] or 1.0), 0.004 + slack(row)
            at = bisect.bisect_left(habits, own)  # itself, and on either side what is nearest
            shared = sum(abs(habit - own) < open_ for habit in habits[max(0, at - 1) : at + 2]) > 1
            found += _report(row, explained.get(row, []), factor, shared=shared)
    return found


def _exchanges(explained: dict[Row, list[Explanation]]) -> None:
    """Rows that stand near each other and each have what the other one needs."""
    rows = list(explained)
    for at, row in enumerate(rows):
        for other in rows[at + 1 : at + 4]:
            for name in ("sec_per_it", "tflops"):
                pair = [(one, two, next((e for e in explained[one] if e.name == name), None), two.printed(name))
                        for one, two in ((row, other), (other, row))]  # fmt: skip
                if all(e and its and abs(e.value / its.value - 1) < 0.006 + its.slack for _, _, e, its in pair):
                    for one, two, e, _ in pair:
                        assert e is not None
                        why = f"{one.column(name)} {one.cell(name)} -> {two.cell(name)} (exchanged with {two.where})"
                        best = replace(e, score=e.score + EXCHANGED, shown=two.cell(name), message=why,
                                       why=f"exchanged with {two.where}", ground="exchange")  # fmt: skip
                        explained[one] = sorted([best, *(x for x in explained[one] if x is not e)], key=lambda x: -x.score)


def _times_alone(mates: list[Row]) -> list[Finding]:
    """Without TFLOPs: a thousand times the time that the other rows of the model need for a token is another unit."""
    models: dict[str, dict[Row, float]] = {}
    for row in mates[:2000]:
        record = row.record
        if record.sec_per_it and not record.tflops and record.gbs and row.world and "sec_per_it" not in row.fixed:
            models.setdefault(record.size_label, {})[row] = record.sec_per_it * row.world / (record.gbs * (row.seq or 1))
    found = []
    for each in models.values():
        if len(each) < 3 or len({bool(row.seq) for row in each}) > 1:
            continue
        middle = statistics.median(each.values())
        for row, figure in each.items():
            for scale, unit in ((1e-3, "milliseconds"), (1e3, "seconds")):
                if 0.4 < figure / middle * scale < 2.5:
                    sec = row.printed("sec_per_it")
                    assert sec is not None
                    value = sec.value * scale
                    row.propose("sec_per_it", value, "ms-not-s")
                    times = f"{figure / middle:.3g} times what the other rows need for a sample"
                    message = f"{sec.value:g} s is {times}: the time is in {unit}"
                    shown = f"{value:.6g}" if scale == 1e-3 else as_time(row.cell("sec_per_it"), sec, value, unit)
                    code = "ms-not-s" if scale == 1e-3 else "time-unit"
                    found.append(row.find(code, "error", message, name="sec_per_it", proposed=shown))
    return found


def _agrees(row: Row) -> bool:
    return reading_of(row).fits(row)


def _as_others_miss(ratios: dict[Row, float]) -> set[Row]:
    """Rows whose figures miss each other by no more than those of the other rows do: means over other iterations."""
    offs = {row: (abs(math.log(ratio)), slack(row)) for row, ratio in ratios.items() if ratio}
    misses = Misses.of(offs.values())
    return {row for row, (off, digits) in offs.items() if off <= digits + misses.but(off, digits)}


def _slow_units(row: Row) -> list[Finding]:
    """A row that agrees, in a table whose times are all in another unit."""
    scale = reading_of(row).scale
    # By a name alone, and a length that nobody says, a time may be in any unit.
    guessed = reading_of(row).formula == "label" and not row.seq
    if scale == 1.0 or guessed or _has_its_length(row):
        return []
    return [_unit_finding(row, scale, "all such rows of the table agree so")]


def _has_its_length(row: Row) -> bool:
    """Whether the time as it is printed and the tokens a second give the length of a sequence, which nobody says."""
    rate, gbs = row.record.tokens_per_s, row.get("gbs")
    each = row.record.tokens_per_s_per_process
    rate = rate or (each * row.world if each and row.world else None)
    if row.seq or not rate or not gbs or not row.record.sec_per_it:
        return False
    length = rate * row.record.sec_per_it / gbs
    return any(abs(math.log(length / seq)) < WINDOW for seq in (*_SEQUENCES, 2**16, 2**17, 2**18, 2**19, 2**20))


def _unit_finding(row: Row, scale: float, why: str) -> Finding:
    sec = row.printed("sec_per_it")
    assert sec is not None and row.record.sec_per_it is not None
    row.propose("sec_per_it", row.record.sec_per_it * scale, "ms-not-s")
    calc = replace(reading_of(row), scale=scale).tflops(row) or 0.0
    unit = TIME_SCALES.get(scale, "another unit")
    message = f"the time is in {unit}: {sec.value * scale:.6g} s gives {calc:.4g} TFLOPs ({row.record.tflops:g} printed), {why}"
    value = sec.value * scale
    decimals = max(0, -round(math.log10((sec.step or sec.unit) * (1e-3 if scale == 1e-3 else 1.0))))
    code = "ms-not-s" if scale == 1e-3 else "time-unit"
    shown = as_time(row.cell("sec_per_it"), sec, value, unit) if scale == 1e3 else f"{value:.{decimals}f}"
    return row.find(code, "error", message, name="sec_per_it", proposed=shown, slip=f"the time is in {unit}", ground="figures")


def _all_cut(rows: list[Row], wrong: list[Row]) -> bool:
    """Whether the habit of the whole table is to cut digits off."""
    return (
        len(wrong) >= 3
        and len(wrong) >= 0.3 * len(rows)
        and all(reading_of(row).fits_truncated(row) for row in wrong)
    )


def _common_factor(ratios: dict[Row, float], wrong: list[Row], solved: dict[Row, Solved]) -> float | None:
    """A factor that nothing explains but that most rows share: a formula, sequence or vocabulary that nobody stated."""
    if len(wrong) < 3 or len(wrong) < 0.7 * len(ratios):
        return None
    middle = statistics.median(ratio for row in wrong if (ratio := ratios[row]))
    alike = [row for row in wrong if abs(math.log((ratios[row] or 1) / middle)) < 0.015 + slack(row)]
    if len(alike) < 0.6 * len(ratios) or any(row in solved and solved[row].well for row in alike):
        return None
    return middle


def _unknown_formula(rows: list[Row], factor: float) -> Finding:
    message = (
        f"the TFLOPs of this table are {1 / factor:.4g} times those of {rows[0].reading}: "
        "formula, sequence or vocabulary are not what the text states"
    )
    return rows[0].find("tflops-mismatch", "info", message, name="tflops")


def _another_sequence(rows: list[Row]) -> Finding | None:
    """A sequence by which nearly all rows follow the formula that the text writes down, and by that which it states none."""
    first, stated = rows[0], rows[0].stated_above("seq")
    formula = first.sheet.text(first).formula
    if not formula or stated is None or len(rows) <= 3 or any(row.shows("seq") for row in rows):
        return None
    written = Reading(formula=formula, recompute="none")
    follow = {seq: sum(abs(math.log(written.ratio(row, seq=seq) or 9)) < SMALL / 2 + slack(row) for row in rows)
              for seq in (stated[0], *_SEQUENCES) if isinstance(seq, int)}  # fmt: skip
    meant = max(follow, key=lambda seq: follow[seq], default=0)
    if meant == stated[0] or follow[meant] < 0.8 * len(rows) or follow[stated[0]]:  # type: ignore[index]
        return None
    message = f"line {stated[1]} says {first.column('seq')} {stated[0]}, and the TFLOPs of the rows below agree on {meant}"
    return Finding(file=first.record.source_file, line=stated[1], code="header-vs-row", level="error", message=message,
                   column=first.column("seq"), printed=str(stated[0]), proposed=str(meant))  # fmt: skip


def _report(row: Row, explanations: list[Explanation], factor: float | None, *, shared: bool = False) -> list[Finding]:
    """`shared`: another row is off by the same factor, which is a habit rather than a slip where nothing explains it."""
    reading, shown, sec = reading_of(row), row.printed("tflops"), row.printed("sec_per_it")
    calc = reading.tflops(row)
    assert shown is not None and sec is not None and calc is not None
    off = calc / shown.value / (factor or 1.0) - 1
    facts = f"{sec.value:g} s gives {calc / (factor or 1.0):.4g} TFLOPs by {reading}, printed {shown.value:g} ({off:+.1%})"
    if factor is None and reading.fits_truncated(row):
        low, high = reading.cut_time(row)
        message = f"{facts}: explained if digits were cut off and not rounded, the time lies between {low:.4g} and {high:.4g} s"
        middle = digits.as_printed((low + high) / 2, (sec.step or sec.unit) / 100)
        cut: Level = "warning" if abs(off) > SMALL else "info"
        return [row.find("tflops-mismatch", cut, message, name="sec_per_it", proposed=middle)]
    best = explanations[0] if explanations and factor is None else None
    # A small difference is an error too when the digits are fine and one slip of the hand explains it.
    fine = best is not None and best.score >= CLEAR_SLIP and abs(off) > max(5 * slack(row), FINE)
    coarse = slack(row)
    level: Level = "error" if abs(off) > SMALL + coarse or fine else "warning" if abs(off) > TINY + coarse else "info"
    of_shape = best is not None and best.name in ("layers", "hidden") and best.message.endswith(")") and not (
        "row" in best.message and fits_label(row))  # fmt: skip
    proven = _proven(row) if abs(off) > MODELS_DIFFER or row.record.family else _proven(row) and _has_kin(row)
    more = 1 / (1 + max(off, LEAST)) - 1
    proven = proven and (reading.formula != "label" or off > BY_LABEL or off < -BY_LABEL and more > _attended(row, reading))
    proven = proven and abs(off) > row.sheet.text(row).scatter + coarse
    proven = proven and (abs(off) > 2 * SMALL or reading.formula != ALIKE or _to_the_digit(row))
    level = level if proven and (of_shape or not of_another_shape(row, -math.log1p(max(off, LEAST)))) else "info"
    rivals = [e for e in explanations[1:] if best is not None and best.score - e.score < MARGIN]
    if best is not None and best.code in ("ms-not-s", "time-unit") and not rivals:
        return [_unit_finding(row, best.value, "the other rows are in seconds")]
    next_best = max((e.score for e in explanations[1:]), default=-math.inf)
    odd = (best is not None and best.score >= max(ODD, next_best + LEAD) and reading.formula not in ("label", ALIKE)
           and abs(math.log1p(max(off, LEAST))) > ABOUT_HALF)  # fmt: skip
    if best is not None and (best.score >= ENOUGH or odd) and not rivals:
        if level != "info":
            row.propose(best.name, best.value, best.code)
        level = "info" if abs(off) < relations.GRAVE and relations.scatters(row) and not fine else level
        gravity = best.level if best.level != "error" and abs(off) > SMALL / 2 else level if best.level == "error" else "info"
        return [row.find(best.code, gravity, f"{best.message}: {facts}", name=best.name, proposed=best.shown or None,
                         slip=best.why.strip(" ()") or None, ground=best.ground)]  # fmt: skip
    options = "; ".join(dict.fromkeys(e.message for e in explanations[:4] if e.score > -2))
    open_end = f"open: one of both is wrong{f', {options}' if options else ''}"
    if coarse > TINY and abs(off) < 2 * SMALL:
        level = "info" if abs(off) < 4 * coarse else "warning"  # of short figures several roundings may come together
    shared = shared or abs(off) < relations.GRAVE and relations.scatters(row)
    typed = next((why for e in explanations[:4] if e.score > -2 and (why := e.why.strip(" ()")) and why[:6] != "as in "), None)
    return [row.find("tflops-mismatch", "info" if shared else level, f"{facts}; {open_end}", name="tflops", slip=typed)]


def _to_the_digit(row: Row) -> bool:
    """Whether nearly all other rows of the table have what is common to them within their digits: else figures scatter."""
    reading = reading_of(row)
    offs = [(abs(math.log(ratio)), slack(mate)) for mate in row.around if mate is not row and mate.reading == reading
            and mate.complete and (ratio := reading.ratio(mate))]  # fmt: skip
    return sum(off <= may + TINY / 2 for off, may in offs) > 0.8 * len(offs)


def _has_kin(row: Row) -> bool:
    """Whether another row of the file is of the same model."""
    return any(_model(mate) == _model(row) for mate in row.elsewhere if mate is not row)


def _model(row: Row) -> object:
    return row.record.size_label or row.hidden


def _proven(row: Row) -> bool:
    """Whether the reading stands on other rows, and not on a guess."""
    reading, proven = reading_of(row), row.sheet.proven
    if reading.seq and not row.seq and row.sheet.has_unknown(row.key):
        return False  # a column that nobody reads may be the sequence
    model = _model(row)
    key = (row.record.source_file, reading, model)
    if key not in proven:
        agreeing = _readers(row, reading)
        models = {_model(other) for other in agreeing}
        # What holds for one model need not hold for another, whose feed-forward may be a gated one; what holds for two does.
        known = model in models or len(models) > 1
        proven[key] = known and (len(agreeing) >= 2 or any(slack(other) < 0.002 for other in agreeing))
    return proven[key]


def _attended(row: Row, reading: Reading) -> float:
    """The share by which a token costs more than a size by its name says, at most, as it attends to more than in the rows that
    agree with it."""
    size = label_parameters(row.record.size_label)
    longer = (row.seq or 0) - min((other.seq or 0 for other in _readers(row, reading)), default=0)
    # Most models have a layer for each 128 of their width.
    return longer / (6 * (128 / 12 * size[0]) ** (1 / 3)) if size is not None and longer > 0 else 0.0


def _readers(row: Row, reading: Reading) -> list[Row]:
    """The rows of the file that follow a reading and agree with it."""
    key = row.record.source_file, reading
    if key not in row.sheet.readers:
        fits = row.sheet.trusted
        row.sheet.readers[key] = [other for other in row.elsewhere if other.reading == reading and other.complete
                                  and (fits.get(other) or reading.fits(other))]  # fmt: skip
    return row.sheet.readers[key]
