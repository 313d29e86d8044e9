"""What speaks for another figure of a row: a time, a rate or a share that was measured, or worked out from such.

    repair(row, "tflops", 138.6, (-0.001, 0.001), broken)   with its points: a slip of the hand, another unit, of a whole node
"""
from __future__ import annotations

import math
import re
from dataclasses import replace

from seatrial.notes.lint import digits
from seatrial.notes.lint.columns.broken import Broken
from seatrial.notes.lint.columns.copied import is_fine, source, stale
from seatrial.notes.lint.columns.named import is_let_for
from seatrial.notes.lint.columns.peers import in_line, leaning
from seatrial.notes.lint.columns.points import ABOVE, ANOTHER_RELATION, FAR, WORKED_OUT, Repair
from seatrial.notes.lint.columns.ratios import is_of_two
from seatrial.notes.lint.columns.relations import BY_DEFINITION, GRAVE, MEASURES, is_measure
from seatrial.notes.lint.digits import Printed
from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.models.devices import PEAKS
from seatrial.notes.lint.models.throughput import SLIP, formula_of_another
from seatrial.notes.lint.phases.quantities import OF_A_TOKEN, clock, meanings
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.usual import mode
from seatrial.tables.headings import older

THOUSANDS = ("tokens_per_s", "tokens_per_s_per_process", "tflops", "samples_per_s")
"""What people write in thousands, or in units a thousandth of the column's."""
ONE_TEXT = ("two digits exchanged", "a digit too many")
"""Slips that hardly more than one number can have led to."""
MOVES = 2.6
"""How often by accident a figure is another one with its point elsewhere, times what its last digit hides."""
MOVED = ("the point moved", "two digits exchanged")
"""Those that change a number by far."""
UNIT, PART = 5.0, 4.0
"""A unit; per node or per GPU."""
UNEXPLAINED = 1.0
"""Against a figure that no slip turns into the printed one."""
ASTRAY = 1.0
"""Against a slip that leads to a figure which the digits leave open and rounding does not."""
DOUBLED = 1.5
"""Against a figure that would be exactly twice or half: counts are doubled by people, what is measured is not."""
RECOMPUTED = 2.5
"""TFLOPs are exactly 4/3 or 3/4 of what they should be: the recomputed forward pass is counted, or is not."""
POINTED = 1.0
PEAK = 1.5
"""A share of the peak that is off by the ratio of two devices' peaks, as their data sheets have them for 16 and 8 bits."""
APART, CLOSELY = 0.01, 0.001
"""From how far on a slip is looked for that comes closer; and how close."""
CHOSEN = 3.0
"""Against a figure that no other row has, in a column whose figures come again: tokens to train on, hours of a budget."""
LISTED = 5.0
"""For the price that all other rows of the device have."""
MEANS = 0.04
"""By how much means over other iterations miss each other."""
_TIME_UNITS = {1000.0: ("milliseconds", "ms-not-s"), 1e-3: ("seconds", "time-unit"), 60.0: ("seconds", "time-unit"),
               1 / 60.0: ("minutes", "time-unit"), 1 / 3600.0: ("hours", "time-unit")}  # fmt: skip
"""Printed over meant time -> the unit it is in."""


_OF_A_CLOCK = {1.0: {60.0: "minutes", 1 / 24: "days"}, 24.0: {24.0: "hours"}}
"""Hours that the unit of a column has -> printed over meant time -> the unit it is in."""


def repair(row: Row, name: str, value: float, bounds: tuple[float, float], broken: list[Broken]) -> Repair:
    """`bounds`: how far it may be from the solved value, as logarithms."""
    score = ANOTHER_RELATION * (len(broken) - 1)
    last = {relation.name.endswith(BY_DEFINITION) for relation, _, _ in broken
            if relation.name in row.groups and relation.terms[0][0] == name}  # fmt: skip
    loose = any(rule.misses.is_loose for _, rule, _ in broken)
    counted = name[:1] == EXTRA and all(not is_measure(n) for relation, _, _ in broken for n, _ in relation.terms[1:])
    counted = counted or name[:1] == EXTRA and any(kind.endswith(OF_A_TOKEN) for kind, _ in meanings(name[1:]))
    # A definition says less of what was worked out from what than a heading does.
    last = {said and not is_of_two(name[1:]) for said in last}
    score += WORKED_OUT if counted else WORKED_OUT / 2 if False in last else WORKED_OUT / 4 if last else 0.0
    figure = row.printed(name)
    assert figure is not None
    low, high = (value * math.exp(min(max(bound, -0.05), 0.05)) for bound in (min(bounds), max(bounds)))
    ratio = figure.value / value
    like = _like(row, name, figure)
    shown, why, code = like.like(value), "", ""
    # What was solved may miss a number that was typed by half a digit; where the point moved the last digit did too.
    half = min((figure.step or figure.unit) / 2 * max(1.0, value / figure.value), 0.003 * value)
    half = max(0.0, half - (high - low) / 2) if abs(math.log(value / figure.value)) < FAR else half
    # Means over other iterations miss each other by more than they mostly do.
    loose = loose or 0 < 2 * figure.step < figure.unit  # by as much as its author says
    wide = max(0.0, MEANS - (high / low - 1) / 2) if loose else 0.0
    text, ends = figure.like(figure.value), figure.span(low - half, high + half)
    recomputed = name == "tflops" and min(abs(math.log(ratio * 3 / 4)), abs(math.log(ratio * 4 / 3))) < 0.008
    slip = digits.slip(text, ends)
    if slip is not None and loose and abs(math.log(figure.meant(slip.value) / value)) > APART and _agree(name, broken):
        # What all but hits it is likelier than what hits it as well as the worst of the means do.
        closely = digits.slip(text, figure.span(value * (1 - CLOSELY), value * (1 + CLOSELY)))
        slip = closely if closely is not None and closely.alone else slip
    slip = slip or (digits.slip(text, ends, wide=wide) if wide and not recomputed else None)
    if slip is None and name[:1] == EXTRA:  # what is coarse is rounded by more than that
        rounded = figure.span(value - figure.unit / 2, value + figure.unit / 2)
        chance = MOVES * (like.step or like.unit) / value
        slip = next((replace(one, chance=chance) for one in digits.slips(text, rounded)
                     if one.how in MOVED and one.text == shown), None)  # fmt: skip
    twice = next((times for times in (2.0, 0.5) if abs(math.log(value / figure.value / times)) < max(0.006, wide)), 0.0)
    copied = source(row, name) is not None
    if slip is not None and (copied or slip.how in ("one digit changed", "a digit lost") and twice):
        slip = None  # nobody mistypes one row's figure into another's, nor into half of it
    if twice and loose and not copied:
        shown = like.like(figure.value * twice)
    pointless = figure.value * (like.step or like.unit) / ((figure.step or figure.unit) or math.inf)
    if like is not figure and (low - half) * (1 - wide) <= pointless <= (high + half) * (1 + wide):
        # The point that the other cells of the column have, and this one lost.
        score, why, shown, value = score + SLIP[0][1], " (the point moved)", like.like(pointless), pointless
    elif slip is not None:
        points = next(points for chance, points in SLIP if slip.chance < chance)
        score, why = score + points, f" ({slip.how})"
        score += _pointed(row, name, slip.text) if slip.how == "the point moved" else 0.0
        # Digits were rounded: what misses it by twice as much agrees by accident.
        astray = abs(figure.meant(slip.value) / value - 1) > (high / low - 1) / 4 + figure.unit / value / 2 + CLOSELY
        score -= ASTRAY * (name[:1] == EXTRA and astray)
        near = points >= 2 and abs(figure.meant(slip.value) - value) <= 0.55 * figure.unit
        if points >= 3 or near or loose and slip.alone or slip.how == "the point moved" or points >= 2 and slip.how in ONE_TEXT:
            shown, value = slip.text, figure.meant(slip.value)
    tight = max(high / low - 1 + 0.004, wide)
    for times, (unit, its) in _TIME_UNITS.items() if name == "sec_per_it" else ():
        if abs(math.log(ratio / times)) < tight:
            score, why, code = score + UNIT, f" (the time is in {unit})", its
            shown = digits.as_time(row.cell(name), figure, figure.value / times, unit)
            own = re.fullmatch(r"[\d.,]+(\s*m?s)", row.cell(name))
            if own and all(mate.cell(name).endswith(own[1]) for mate in row.around if mate.cell(name)):  # in the column's unit
                shown = digits.as_printed(figure.shown(figure.value / times), figure.shown(figure.unit / times)) + own[1]
    hours = clock(name[1:]) if name[:1] == EXTRA else None
    for times, unit in _OF_A_CLOCK.get(hours or 0.0, {}).items():
        if abs(math.log(ratio / times)) < tight + APART:
            score, why, shown = score + UNIT, f" (the time is in {unit})", like.like(figure.value / times)
    world = row.world or 1
    each = world / row.record.nodes if row.record.gpus and row.record.nodes else 1
    node = row.procs if row.procs and row.procs > 1 else each if each > 1 else 8  # what nodes have where nobody says it
    parts: dict[float, str] = {node: "of a whole node", world: "of all processes", 1 / world: "of one process"}
    if name in ("tokens_per_s", "samples_per_s", "aggr_pflops") or name[:1] == EXTRA:
        parts = {1 / node: "of one device of a node", node / world: "of one node"} | parts
    if row.seq and name in ("samples_per_s", "tokens_per_s"):
        parts[row.seq if name == "samples_per_s" else 1 / row.seq] = "tokens" if name == "samples_per_s" else "samples"
    if world & (world - 1) and all(mate.world != world for mate in row.around if mate is not row):
        # A number of devices that nobody has is a slip itself.
        parts = {times: what for times, what in parts.items() if times not in (world, 1 / world)}
    for times, what in parts.items() if name != "sec_per_it" and not hours and not is_let_for(name[1:]) else ():
        if times != 1 and abs(math.log(ratio / times)) < tight:
            # An eighth of what more than eight devices do is nothing that anybody measures.
            odd = times == 1 / node and world not in (1, node)
            score, why, shown = score + PART / (1 + odd), f" (that is {what})", like.like(figure.value / times)
            code = "tflops-per-node" if name == "tflops" and times == row.procs else ""
    for times, what in ((1e-3, "in thousands"), (1e3, "of thousands")) if name in THOUSANDS and not why else ():
        if abs(math.log(ratio / times)) < tight:
            score, why = score + PART, f" ({what})"
            shown = digits.as_printed(figure.shown(figure.value / times), (figure.step or figure.unit) * figure.scale / times)
    letter = _letter(row, name) if name in THOUSANDS and ratio < 1 else ""
    if letter and abs(math.log(ratio * _LETTERS[letter.strip()])) < tight:
        score, why, shown = score + UNIT, f" ({letter.strip()} is missing)", row.cell(name) + letter
    if name == "tflops" and not why and min(abs(math.log(ratio * 3 / 4)), abs(math.log(ratio * 4 / 3))) < min(tight, 0.008):
        score, code = score + RECOMPUTED, "formula-mixed"
        why = " (the recomputed forward pass is counted)" if ratio > 1 else " (the recomputed forward pass is not counted)"
    peak = (row.peak or math.inf) if name == "tflops" else math.inf
    score += ABOVE * ((figure.value > peak) - (value > peak))
    score -= ABOVE * 2 if name in ("mfu", "hfu") and value > 1.0 >= figure.value else 0.0
    if name[:1] == EXTRA and name[1:] in row.sheet.shared(row.key) and _is_chosen(row, name, value):
        score -= CHOSEN
    if name[:1] == EXTRA and is_let_for(name[1:]) and _is_of_its_device(row, name, value):
        score += LISTED
    if name in MEASURES:
        score += leaning(row, name, figure.value, value)
    elif name[1:] not in older(tuple(row.record.printed)):  # a time before a change is as long as the model has it
        score += in_line(row, name, figure.value, value)
    if name in ("mfu", "hfu") and (not why or slip is not None and slip.how == "one digit changed"):
        window = MEANS / (4 if abs(math.log(ratio)) < 1 else 2.5)  # of the far peaks there are few
        if name == "mfu" and row.record.recompute == "full" and abs(math.log(ratio * 3 / 4)) < min(tight, MEANS / 2):
            score, why = score + RECOMPUTED, " (the recomputed forward pass is counted)"
            shown = like.like(figure.value * 3 / 4)
        elif not copied and (times := _over_another_peak(row, ratio, min(tight, window))):
            score, why = score + PEAK * (1 + (not why)), " (over the peak of another device)"
            shown = like.like(figure.value / times if loose else value)
        elif not why and (both := _of_two_peaks(ratio))[0] < (0.006 if abs(math.log(ratio)) < 1 else window):
            score, why = score + PEAK, " (over the peak of another device)"
            shown = like.like(figure.value * both[1]) if loose else shown
    if not why and name[:1] == EXTRA and _ROUND.fullmatch(row.cell(name)) and not _ROUND.fullmatch(shown):
        score -= CHOSEN / 2
    unexplained = not why and not copied and name[:1] != EXTRA
    if unexplained and any(abs(abs(math.log(ratio)) - math.log(power)) < 0.006 for power in (2, 4)):
        score -= DOUBLED + (name == "sec_per_it")
    elif unexplained and abs(math.log(ratio)) > GRAVE and row.shows("gbs"):
        score -= UNEXPLAINED
    other = formula_of_another(row) if name == "tflops" and not why else None
    if other is not None:
        score, why, code = score + other.score, f" ({other.message})", other.code
    shown += "%" if row.cell(name).endswith("%") else ""
    return Repair(name=name, value=value, shown=shown, score=score + stale(row, name), why=why, code=code)


_ROUND = re.compile(r"[1-9]0+")
"""As people choose them: 60 or 100 billions of tokens."""
_LETTERS = {"万": 1e4, "萬": 1e4, "亿": 1e8, "億": 1e8, "M": 1e6}
_LETTERED = re.compile(r"[\d.,]+(\s?[万萬亿億M])")


def _letter(row: Row, name: str) -> str:
    """What stands behind the number in all other cells of the column, and not in this one."""
    found = {match[1] if (match := _LETTERED.fullmatch(mate.cell(name))) else "" for mate in row.around
             if mate is not row and mate.cell(name)}  # fmt: skip
    return found.pop() if len(found) == 1 and not _LETTERED.fullmatch(row.cell(name)) else ""


def _agree(name: str, broken: list[Broken]) -> bool:
    """Whether all relations that are broken give nearly the same figure."""
    offs = [off / power for relation, _, off in broken if (power := dict(relation.terms).get(name))]
    return len(offs) == len(broken) and max(offs) - min(offs) < APART / 4


def _is_of_its_device(row: Row, name: str, value: float) -> bool:
    """Whether all other rows of the device are let for such a price."""
    others = [figure.value for mate in row.around if mate is not row and row.record.machine
              and mate.record.machine == row.record.machine and (figure := mate.printed(name)) is not None]  # fmt: skip
    return len(others) > 1 and all(abs(other / value - 1) < 0.006 for other in others)


def _is_chosen(row: Row, name: str, value: float) -> bool:
    """Whether the column holds plain numbers or prices that somebody chose, and the figure is none of them."""
    others = [mate for mate in row.around if mate is not row]
    figures = [figure.value for mate in others if (figure := mate.printed(name)) is not None]
    # What another row of the device pays for an hour is in the list of prices.
    listed = is_let_for(name[1:]) and any(mate.cell(name) == row.cell(name) and mate.record.machine == row.record.machine
                                          for mate in others)  # fmt: skip
    plain = listed or not any(is_fine(mate.cell(name)) for mate in others)
    return plain and not any(abs(its / value - 1) < 0.006 for its in figures)


def _over_another_peak(row: Row, ratio: float, near: float) -> float:
    """The peak of the row's device over that of another one, where a share is off by just that; else 0."""
    own = row.device.peak_tflops.get("bf16") if row.device is not None else None
    mates = [mate for mate in row.around if mate is not row and mate.record.machine == row.record.machine]
    if row.states("machine") and 2 * sum(_is_as_fast(row, mate) for mate in mates) <= len(mates):
        return 0.0  # it may as well be the device that is another one
    times = [own / other for other in PEAKS if own and abs(math.log(own / other)) > GRAVE]
    return next((each for each in times if abs(math.log(ratio / each)) < near), 0.0)


def _of_two_peaks(ratio: float) -> tuple[float, float]:
    """How near a ratio is to that of two peaks, and the nearest one the other way round."""
    return min((abs(math.log(ratio * a / b)), a / b) for a in PEAKS for b in PEAKS if a != b)


def _is_as_fast(row: Row, other: Row) -> bool:
    """As two rows of one device may be."""
    both = [each.get("tflops") or each.get("tokens_per_s_per_process") or math.nan for each in (row, other)]
    return 1 / FASTER < both[0] / both[1] < FASTER


FASTER = 1.6


def _like(row: Row, name: str, figure: Printed) -> Printed:
    """A figure with the digits that its column has, where the row's own cell holds another figure."""
    others = [its for mate in row.around if mate is not row and (its := mate.printed(name)) is not None]
    step, usual = figure.step or figure.unit, mode((its.step or its.unit) for its in others)[0]
    return replace(figure, step=usual) if isinstance(usual, float) and usual < step and not figure.inverse else figure


def _pointed(row: Row, name: str, text: str) -> float:
    """Above 0 when a point that moved leaves as many digits behind it as all other cells of the column have, and what is
    printed does not; below 0 the other way round, and for a whole number that would get a zero which nobody typed."""
    shown = digits.plain(row.cell(name))
    zeros = len(text) - len(shown) if shown.isdecimal() and text.startswith(shown) else 0
    if zeros > 1 or zeros and row.cell(name).isdecimal():
        return 0.0 if all(mate.cell(name).endswith("0") for mate in row.around if mate is not row) else -POINTED
    places = {digits.places(cell) for mate in row.around if mate is not row and (cell := mate.cell(name))}
    return POINTED * ((digits.places(text) in places) - (digits.places(row.cell(name)) in places)) if len(places) == 1 else 0.0
