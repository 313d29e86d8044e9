"""The one cell of a row whose change makes all relations of its table agree.

    check(sheet)                         findings

A wrong cell breaks every relation that it is part of and no other (`relations.py`), so that two broken ones usually tell which
cell it is; where they leave several, what else speaks for a value decides: a slip of the hand, the rest of the column, the row
above, the text.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from seatrial.columns import LAYOUT
from seatrial.notes.lint import counts, derived, digits
from seatrial.notes.lint.digits import Printed
from seatrial.notes.lint.exceptions import excepted
from seatrial.notes.lint.model_size import MODELS_DIFFER, fits_label, of_another_shape
from seatrial.notes.lint.prose import read_sentence
from seatrial.notes.lint.relations import (
    BELONGS,
    ENOUGH_ROWS,
    GRAVE,
    MEASURES,
    PEAKS,
    RELATIONS,
    SMALL,
    TERA,
    UNSAID,
    Relation,
    Rule,
    belongs,
    is_measure,
    key_of,
    like_row,
    of_devices,
    off_by,
    relations_of,
    rule_of,
    slack,
    term,
    wobble,
)
from seatrial.notes.lint.sheet import EXTRA, Finding, Level, Row, Sheet, extras, kind_beside, mode, round_number
from seatrial.notes.lint.throughput import SLIP, STATED_ABOVE, USUAL, formula_of_another
from seatrial.tables.headings import older

SPEEDS = ("tflops", "tokens_per_s_per_process", "mfu", "hfu")
"""What hardly differs from row to row."""
THOUSANDS = ("tokens_per_s", "tokens_per_s_per_process", "tflops", "samples_per_s")
"""What people write in thousands, or in units a thousandth of the column's."""
COUNTS = ("gbs", "gpus", "nodes", "dp", "tp", "pp", "cp", "mbs", "ga", "iteration")
OF_TIME = "TFLOPs and time"
SEVERAL = ("layers", "hidden", "seq", "size_label", "machine")
"""Of which every value that other rows have is tried."""
CLOSELY = 0.002
"""Beyond its digits by how much a row may miss what others keep to exactly."""
ONE_TEXT = ("two digits exchanged", "a digit too many")
"""Slips that hardly more than one number can have led to."""
LENIENT, GROSSLY = 1.5, 0.02
"""How many times what others miss a relation by a row may after a change of a count, which no digits can be fitted to."""
# Scores: what speaks for a value.
ANOTHER_RELATION, ABOVE, IN_ANOTHER_ROW, UNIT, PART, EXCHANGED = 2.0, 1.5, 2.0, 5.0, 4.0, 5.0
"""One more broken relation that it mends; the cell above says what is printed; a row nearby has it; a unit; per node or per
GPU; another row has it and this row's in its place."""
UNLIKELY = 1.5
"""Against a batch that does not divide, a configuration that another row has, and a number of devices that no other row and
no power of two has."""
UNEXPLAINED = 1.0
"""Against a figure that no slip turns into the printed one."""
DOUBLED = 1.5
"""Against a figure that would be exactly twice or half: counts are doubled by people, what is measured is not."""
WORKED_OUT = 2.0
"""Steps of accumulation follow from batch, micro-batch and devices, which are chosen."""
ODD = 2.0
"""A number that nobody chooses, 526 or 65356, is replaced by one that people do."""
RECOMPUTED = 2.5
"""TFLOPs are exactly 4/3 or 3/4 of what they should be: the recomputed forward pass is counted, or is not."""
POINTED = 1.0
IN_ROW, NARROW = 3.0, 0.03
"""Two figures of the row exchanged, where all relations then hold, and within how much they do at most."""
PEAK = 1.5
"""A share of the peak that is off by the ratio of two devices' peaks, as their data sheets have them for 16 and 8 bits."""
MANY = 3.0
"""Logarithm of a factor by which nobody changes a batch without a word."""
FAR, MEANS = 1.2, 0.04
"""Logarithm of a factor beyond which a value needs more for it than that it would mend the row."""
SURELY, LIKELY = 8.0, 6.0
"""How many times what the others miss a relation by makes a small difference an error, and a doubt."""
ENOUGH, CLEAR, MARGIN, LEAD = 1.0, 3.0, 0.9, 2.0
FARTHEST = 100.0
"""Of a logarithm: no figure that anybody printed is so far from the right one."""
_TIMES = {1000.0: ("milliseconds", "ms-not-s"), 1e-3: ("seconds", "time-unit"), 60.0: ("seconds", "time-unit"),
          1 / 60.0: ("minutes", "time-unit"), 1 / 3600.0: ("hours", "time-unit")}  # fmt: skip
"""Printed over meant time -> the unit it is in."""


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A change of one cell after which everything agrees."""

    name: str
    value: object
    shown: str
    score: float
    why: str = ""
    code: str = ""


Suspects = dict["Row", tuple[list[tuple[Relation, Rule, float]], list[Repair]]]


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    rows = [row for row in sheet.rows if row.tabular and not row.fixed and not row.settled]
    judged = {row: both for row in rows if (both := broken_and_kept(row))[0]}
    habits = _habits(judged)
    for mates in sheet.tables.values():
        suspects: Suspects = {}
        for row in mates:
            if row in judged:
                broken, kept = judged[row]
                broken = [each for each in broken if (row, each[0].name) not in habits]
                if broken and _concerns(row, broken, kept):
                    suspects[row] = _mended(row, broken, kept)
        _exchanges(suspects)
        found += _stated_otherwise(mates)
        for row, (broken, repairs) in suspects.items():
            if broken and all(_counted_otherwise(row, *each) for each in broken) and not any(map(_slipped, repairs)):
                row.settled = True
                continue
            if broken and (repairs or not _of_another_kind(row, broken, suspects)):
                found += _report(row, broken, repairs)
    return found


def _counted_otherwise(row: Row, relation: Relation, rule: Rule, off: float) -> bool:
    """Whether the text counts FLOPs, tokens to train on, or a batch, in two ways that differ by as much as the row is off."""
    text = row.sheet.text(row)
    flops, tokens = text.ratios
    ratios = tokens if _is_found(relation) else flops if _has_flops(relation) else frozenset()
    ratios |= {math.log(2)} if text.paired and ("gbs", -1) in relation.terms else set()
    return any(abs(abs(off) - ratio) <= slack(row, relation) + wobble(row, relation, rule) + 2 * SMALL for ratio in ratios)


def _slipped(repair: Repair) -> bool:
    """Whether a slip of the hand explains it, and no habit of counting."""
    return bool(repair.why) and repair.code != "formula-mixed" and repair.score >= CLEAR


def _of_another_kind(row: Row, broken: list[tuple[Relation, Rule, float]], suspects: Suspects) -> bool:
    """Whether nothing mends the row and another one is off by the same factor: rows of a model that nobody names."""
    factors = {relation.name: off for relation, _, off in broken}
    return any(not repairs and abs(factors.get(relation.name, math.inf) - off) < 0.006
               for other, (theirs, repairs) in suspects.items() if other is not row for relation, _, off in theirs)  # fmt: skip


_FROM_TEXT = ("gbs", "seq", "mbs", "tp")


def _stated_otherwise(mates: list[Row]) -> list[Finding]:
    """A setting that the text states and that nearly all rows deny by one factor: once, at the text's line."""
    first = mates[0]
    told: dict[str, set[float]] = {}
    for relation in RELATIONS:
        rule = first.sheet.rules.get(("table", first.key, key_of(first, relation))) if relation.exact else None
        if rule is None or rule.support < ENOUGH_ROWS or abs(rule.constant) < 0.1:
            continue
        asked = [name for name, power in relation.terms if power == -1 and name in _FROM_TEXT
                 and first.stated_above(name) and not any(row.shows(name) for row in mates)]  # fmt: skip
        if not asked:
            continue
        if UNSAID in key_of(first, relation) or any(term(first, name, {}) is None for name, _ in relation.terms):
            continue
        counts = {row.world or 1 for row in mates} | {first.procs or 1}
        counts |= {4, 8, 16} if first.record.nodes and not first.record.gpus and not first.record.procs_per_node else set()
        if any(abs(abs(rule.constant) - math.log(count)) < 0.01 for count in counts):
            continue  # of one device, or of all of them
        for name in asked:
            was = first.stated_above(name)
            assert was is not None
            meant = float(was[0]) * math.exp(rule.constant)  # type: ignore[arg-type]
            whole = (round(meant), 2 ** max(0, round(math.log2(meant))))
            near = [n for n in whole if abs(n / meant - 1) < 0.01 and round_number(n)]
            if near:
                told.setdefault(name, set()).add(near[-1])
    # Where the batch and the sequence would both do, the batch is what people change, unless the FLOPs of a token tell.
    longer = "seq" in told and len(told["seq"]) == 1 and _attends(mates, first.seq or 0, int(min(told["seq"])))
    name = "seq" if longer else "gbs" if "gbs" in told else next(iter(told), "")
    values = told.get(name, set())
    if len(values) != 1:
        return []
    value, line = first.stated_above(name) or (0, 0)
    meant = min(values)
    words = "\n".join(first.sheet.text(first).lines[line - 1 : line])
    clauses = [one for one in re.split(r"[,;()]", words) if re.search(rf"(?<![\d.]){meant:g}(?![\d.])", one)]
    if any(not re.search(r"hidden|dim|width|ffn|mlp|layers", one, re.IGNORECASE) for one in clauses):
        return []  # it says both, of one thing and of another
    hints = first.sheet.text(first).hints
    loosely, surely = (hints.nearest(first.record, name, surely=sure) for sure in (False, True))
    if loosely is not None and loosely[1] > line and loosely[0] == meant:
        return []  # what is nearer to the rows says so
    value, line = surely if surely is not None and surely[1] > line else (value, line)
    message = f"line {line} says {first.column(name)} {value}, and the figures of the rows below agree on {meant:g}"
    return [Finding(file=first.record.source_file, line=line, code="header-vs-row", level="error", message=message,
                    column=first.column(name), printed=str(value), proposed=f"{meant:g}")]  # fmt: skip


def _attends(mates: list[Row], was: int, seq: int) -> bool:
    """Whether a token needs more or less than in other tables of that sequence, as it does where it attends to another one."""
    here, there = ([math.log(row.record.tflops / tokens) for row in rows
                    if row.record.tflops and (tokens := row.record.tokens_per_s_per_process)]
                   for rows in (mates, [row for row in mates[0].elsewhere if row.key != mates[0].key and row.seq == was
                                        and row.record.size_label == mates[0].record.size_label]))  # fmt: skip
    if min(len(here), len(there)) < ENOUGH_ROWS:
        return False
    more = statistics.median(here) - statistics.median(there)
    return abs(more) > SMALL and (more > 0) == (seq > was)


def broken_and_kept(row: Row) -> tuple[list[tuple[Relation, Rule, float]], list[tuple[Relation, Rule]]]:
    row.judged = row.judged or _judge(row)
    broken, kept = row.judged
    return broken, kept


def _judge(row: Row) -> tuple[list[tuple[Relation, Rule, float]], list[tuple[Relation, Rule]]]:
    broken: list[tuple[Relation, Rule, float]] = []
    unsaid: list[tuple[Relation, Rule, float]] = []
    kept: list[tuple[Relation, Rule]] = []
    for relation in relations_of(row):
        rule = rule_of(row, relation)
        measured = rule and off_by(row, relation, rule)
        if rule is None or not measured or rule.support < 2 and relation.exact:
            continue
        off, may = measured
        if abs(off) <= may:
            kept.append((relation, rule))
        elif excepted(row, off, functools.partial(_keeps, relation=relation, rule=rule)):
            # Then it is what the text says, and no more than that.
            kept.append((relation, replace(rule, constant=rule.constant + off)))
        elif abs(off) > may + (CLOSELY if relation.exact and rule.support >= 4 else 0.004) and not _of_nodes(row, relation):
            (unsaid if _unstated(row, relation, off) else broken).append((relation, rule, off))
    # A row that ran with another batch breaks all that the batch is part of.
    if broken or any(("gbs", -1) in relation.terms for relation, _ in kept):
        broken += unsaid
    return broken, kept


def _keeps(row: Row, relation: Relation, rule: Rule) -> bool:
    measured = off_by(row, relation, rule) if rule_of(row, relation) == rule else None
    return measured is not None and abs(measured[0]) <= measured[1]


def _unstated(row: Row, relation: Relation, off: float) -> bool:
    """A power of two in a relation whose batch or sequence the row does not print: it ran with another one."""
    unsaid = UNSAID in key_of(row, relation) or ("gbs", -1) in relation.terms and not row.shows("gbs") and not (
        row.composed and row.shows("ga"))  # fmt: skip
    if unsaid and any(_source(row, name) is not None for name in relation.measures):
        return False  # a figure that was copied
    return unsaid and abs(off) < MANY and abs(off / math.log(2) - round(off / math.log(2))) < 0.02


def _of_nodes(row: Row, relation: Relation) -> bool:
    """An aggregate that follows from TFLOPs which are a node's: those are what is unlike the other rows, not the aggregate."""
    habit = derived.aggregate_fits(row, row.get("tflops") or 0.0) if relation.name == "the aggregate" else None
    if habit is None or habit.each == "processes":
        return habit is not None
    ratio = row.reading.ratio(row) if row.reading is not None else None
    return not ratio or abs(math.log(ratio)) > GRAVE  # else the TFLOPs are right, and the aggregate is over nodes


def _habits(judged: dict[Row, tuple[list[tuple[Relation, Rule, float]], list[tuple[Relation, Rule]]]]) -> set[tuple[Row, str]]:
    """Rows and relations that they break by a factor that others break them by too: three rows, or two that stand together."""
    offs: dict[tuple[str, str], list[tuple[float, Row]]] = {}
    plain: dict[tuple[Row, str], int] = {}
    for row, (broken, _) in judged.items():
        for relation, rule, off in broken:
            if off > 0 and row.seq is None and ("token_flops", -1) in relation.terms:
                offs.setdefault((row.record.source_file, LONGER), []).append((off, row))
            if not any(abs(abs(off) - math.log(unit)) < 0.05 for unit in (10, 60, 1000)):
                offs.setdefault((row.record.source_file, relation.name), []).append((off, row))
                plain[row, relation.name] = rule.support if _all_said(row, relation, rule) else 0
    found = set()
    for (file, name), each in list(offs.items()):
        if name == LONGER:
            # Rows that need more for a token, each in its own measure, ran with longer sequences that nobody says.
            keys = [row.key for row in dict.fromkeys(row for _, row in each)]
            found |= {(row, other) for _, row in each if keys.count(row.key) > 1 for other in OF_TOKENS}
            del offs[file, name]
    for (_, name), each in offs.items():
        each.sort(key=lambda pair: pair[0])
        for at, (off, row) in enumerate(each):
            alike = [other for other_off, other in each[max(0, at - 20) : at + 20] if abs(other_off - off) < 0.006]
            if name in BY_WHAT_IS_UNSAID and len({other for _, other in each if other.key == row.key}) > 1:
                found.add((row, name))
                continue
            if plain[row, name] >= 2 * len(alike):
                continue  # pasted or typed together
            kin = [other for other in alike if other.key == row.key and abs(other.place - row.place) == 1]
            if len(alike) > 2 or len(alike) == 2 and (len(kin) == 1 or not row.shows("gbs")):
                found.add((row, name))
    return found


BY_WHAT_IS_UNSAID = ("GPUs of a replica", "micro-batches of all replicas")
"""Relations that hold where what nobody says is the same in every row: two rows that deny them show that it is not."""
LONGER = "longer sequences"
OF_TOKENS = tuple(relation.name for relation in RELATIONS if ("token_flops", -1) in relation.terms)


def _all_said(row: Row, relation: Relation, rule: Rule) -> bool:
    """Whether nothing that the relation needs is left to what nobody says: then no habit explains that it does not hold."""
    counts = {"gpus", "nodes", "dp"}
    said = all(is_measure(name) or name == "seq" or row.shows(name) or name in ("world", "cp") and any(map(row.shows, counts))
               for name, _ in relation.terms)  # fmt: skip
    return relation.exact and rule.constant == 0.0 and said


def _concerns(row: Row, broken: list[tuple[Relation, Rule, float]], kept: list[tuple[Relation, Rule]]) -> bool:
    """Time and TFLOPs alone, with nothing else to tell which of them is wrong, are the question of `throughput`."""
    throughput_can = row.complete and row.reading is not None and row.reading.ratio(row) is not None
    names = {relation.name for relation, _, _ in broken}
    if names == {"the layout"}:
        return False
    # A factor that the rows agree on and the formula does not give is no question of the formula.
    if not throughput_can or any(abs(rule.constant + TERA) > GRAVE for relation, rule, _ in broken if relation.name == OF_TIME):
        return True
    return names != {OF_TIME} or any({"sec_per_it", "tflops"} & {n for n, _ in r.terms} for r, _ in kept)


def _mended(
    row: Row, broken: list[tuple[Relation, Rule, float]], kept: list[tuple[Relation, Rule]]
) -> tuple[list[tuple[Relation, Rule, float]], list[Repair]]:
    """What is broken and what would mend it; where nothing does, without what was found in the table and may be no rule."""
    repairs = [*_repairs(row, broken, kept), *_in_each_others_place(row, broken, kept)]
    # Beside what is far off, what is a little off is none of the slip's.
    most = max(abs(off) for _, _, off in broken)
    grave = [each for each in broken if abs(each[2]) > max(GRAVE, most / 5)]
    if not repairs and 0 < len(grave) < len(broken):
        broken, repairs = grave, list(_repairs(row, grave, kept))
    if all(_has_flops(relation) and of_another_shape(row, off) for relation, _, off in broken):
        fits = fits_label(row)  # then only a slip of the hand tells
        repairs = [r for r in repairs if r.name in ("layers", "hidden") and r.why and not (fits and "row" in r.why)]
        broken = broken if repairs else []
    if all(_of_a_model(row, relation) and abs(off) < MODELS_DIFFER for relation, _, off in broken):
        return [], []
    told = [each for each in broken if not _is_found(each[0])]
    if repairs or len(told) == len(broken) or not told:
        return broken, repairs
    return told, list(_repairs(row, told, [each for each in kept if not _is_found(each[0])]))


def _of_a_model(row: Row, relation: Relation) -> bool:
    """Whether a row is the only one of its model, whose FLOPs other models tell but for what nobody describes."""
    alone = not any(mate.record.size_label == row.record.size_label for mate in row.around if mate is not row)
    return alone and not row.record.family and _has_flops(relation)


def _has_flops(relation: Relation) -> bool:
    return any(name in ("flops", "token_flops") for name, _ in relation.terms)


def _is_found(relation: Relation) -> bool:
    return relation.terms[0][0][:1] == EXTRA


def _repairs(
    row: Row, broken: list[tuple[Relation, Rule, float]], kept: list[tuple[Relation, Rule]]
) -> Iterator[Repair]:
    """Every change of one cell that mends all that is broken and breaks nothing."""
    for name in _cells(row, broken):
        for value in dict.fromkeys(_values(row, name, broken)):
            bounds = _bounds(row, name, value, broken, kept)
            if bounds is not None:
                yield from _scored(row, name, value, bounds, broken)
                if name not in SEVERAL:
                    break


def _in_each_others_place(
    row: Row, broken: list[tuple[Relation, Rule, float]], kept: list[tuple[Relation, Rule]]
) -> Iterator[Repair]:
    """Two figures of the row after whose exchange all agrees: a time and a rate, or a measure before a change and after it."""
    headings = [*row.record.printed]
    worked = [name for relation, _, _ in broken for name in relation.measures if name[:1] == EXTRA]
    names = {name: headings.index(heading)
             for name in dict.fromkeys((*MEASURES, *(EXTRA + heading for heading in older(tuple(headings))), *worked))
             if (heading := row.column(name)) in row.record.printed}  # fmt: skip
    for one, other in itertools.combinations(names, 2):
        mine, its = row.printed(one), row.printed(other)
        if mine is None or its is None or not any(is_part(one, r) or is_part(other, r) for r, _, _ in broken):
            continue
        values: dict[str, object] = {one: mine.meant(its.shown(its.value)), other: its.meant(mine.shown(mine.value))}
        found = [off_by(row, relation, rule, values) for relation, rule in [*((r, rule) for r, rule, _ in broken), *kept]]
        if all(each is not None and abs(each[0]) <= min(each[1], NARROW) + 0.002 for each in found):
            beside = abs(names[one] - names[other]) == 1
            score = IN_ROW + ANOTHER_RELATION * (len(broken) - 1) + (ABOVE if beside else 0.0)
            for name, was in ((one, mine.value), (other, its.value)):
                score += _like_peers(row, name, was, float(values[name]))  # type: ignore[arg-type]
            yield Repair(name=one, value=values[one], shown=row.cell(other), score=score,
                         why=f" (exchanged with {row.column(other)})")  # fmt: skip


def _like_peers(row: Row, name: str, was: float, value: float) -> float:
    """Above 0 when a figure looks more like those of rows on as many devices with the same batch and model."""
    record = row.record
    peers = [float(figure) for mate in row.around if mate is not row and mate.world == row.world
             and (mate.record.gbs, mate.record.size_label) == (record.gbs, record.size_label)
             and (figure := _said(mate, name))]  # fmt: skip
    if len(peers) < 2:
        return 0.0
    middle = math.log(statistics.median(peers))
    nearer = abs(math.log(was) - middle) - abs(math.log(value) - middle)
    return ABOVE / 2 * ((nearer > 0.03) - (nearer < -0.03))


def is_part(name: str, relation: Relation) -> bool:
    return any(name == term for term, _ in relation.terms)


def _cells(row: Row, broken: list[tuple[Relation, Rule, float]]) -> list[str]:
    """Fields that every broken relation has, and that stand in the row."""
    counted = [name for name in ("gpus", "nodes") if getattr(row.record, name) is not None]
    world = set(counted[:1]) or {"dp", "tp", "pp", "cp"}
    every = [{name for name, _ in relation.terms} for relation, _, _ in broken]
    through = {"world", "dp"} if row.record.dp is None else {"world"}
    batch = {"mbs", "ga"} if row.composed else set()
    common = set.intersection(*(names | (world if names & through else set()) | (batch if "gbs" in names else set())
                                for names in every))  # fmt: skip
    if all({"flops", "token_flops", "seq"} & {name for name, _ in relation.terms} for relation, _, _ in broken):
        common |= {"layers", "hidden", "seq"}
    common |= {name for name in BELONGS if all(belongs(row, relation, name) for relation, _, _ in broken)}
    order = (*MEASURES, *sorted(name for name in common if name[:1] == EXTRA), *COUNTS, *SEVERAL)
    return [name for name in order if name in common and row.shows(name)]




def _values(row: Row, name: str, broken: list[tuple[Relation, Rule, float]]) -> Iterator[object]:
    if is_measure(name) or name in COUNTS:
        was = row.beside(name) if name in ("cp", "ga") else row.get(name)
        for relation, rule, off in sorted(broken, key=lambda b: slack(row, b[0]) + wobble(row, *b[:2])):
            powers = dict(relation.terms)
            through = powers.get("world") or (powers.get("dp") if row.record.dp is None else None)
            power = powers.get(name, through if name in ("gpus", "nodes", "dp", "tp", "pp", "cp") else None)
            power = powers.get("gbs") if power is None and name in ("mbs", "ga") and row.composed else power
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
    column = [_said(mate, name) for mate in row.around if mate is not row]
    likely = [stated[0] if stated else None, mode(column)[0], *column, 2 ** round(math.log2(max(1.0, value)))]
    yield from dict.fromkeys(n for n in likely if isinstance(n, int) and n > 0 and abs(math.log(n / value)) <= open_ + loose)
    low, high = math.ceil(value * (1 - open_)), math.floor(value * (1 + open_))
    near = sorted(range(max(1, low), high + 1)[:200], key=lambda n: abs(n - value))
    yield from [n for n in near if round_number(n)][:1]
    yield max(1, round(value))


def _bounds(
    row: Row, name: str, value: object, broken: list[tuple[Relation, Rule, float]], kept: list[tuple[Relation, Rule]]
) -> tuple[float, float] | None:
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


def _scored(
    row: Row, name: str, value: object, bounds: tuple[float, float], broken: list[tuple[Relation, Rule, float]]
) -> Iterator[Repair]:
    score = ANOTHER_RELATION * (len(broken) - 1)
    if is_measure(name):
        last = any(relation.name in row.groups and relation.terms[0][0] == name for relation, _, _ in broken)
        loose = any(rule.misses.is_loose for _, rule, _ in broken)
        counted = name[:1] == EXTRA and all(not is_measure(n) for relation, _, _ in broken for n, _ in relation.terms[1:])
        score += WORKED_OUT if counted else WORKED_OUT / 2 if last else 0.0
        yield _measure(row, name, float(value), bounds, score, loose)  # type: ignore[arg-type]
        return
    mates = [mate for mate in row.around if mate is not row]
    # Each size of a model has its micro-batch.
    alike = [mate for mate in mates if mate.record.size_label == row.record.size_label] if name == "mbs" else mates
    column = [_said(mate, name) for mate in alike or mates]
    usual, often = mode(column)
    stated = row.stated_above(name)
    why = ""
    if stated is not None and stated[0] == value:
        score, why = score + STATED_ABOVE, f" (line {stated[1]} says {value})"
    elif usual == value and often > 0.5 * len(column) and 2 * column.count(_said(row, name)) <= often:
        score, why = score + USUAL, " (as in the other rows)"
    elif value in column:
        # In a column where every value comes once, that this one does says little.
        few = len(set(column)) <= min(3, len(column) - 1)
        score, why = score + IN_ANOTHER_ROW * (1.0 if few else 0.5), " (as in another row)"
    elif name in BELONGS:
        return
    else:
        text = row.cell(name) or str(_said(row, name) or "")
        # Of one digit or two nearly every number is a slip of every other.
        slip = digits.slip(text, (value - 0.5, value + 0.5)) if isinstance(value, (int, float)) and len(text) > 2 else None
        most = 1.0 if slip is not None and slip.how == "the point moved" else 2.0  # nobody points a count
        score += min(most, next(points for chance, points in SLIP if slip.chance < chance)) if slip else -1.0
        score += 1.0 if not slip and isinstance(value, int) and value & (value - 1) == 0 and value > 8 else 0.0
        why = f" ({slip.how})" if slip else ""
    was = _said(row, name)
    if isinstance(value, int) and isinstance(was, int) and name not in ("layers", "hidden", "nodes", "iteration"):
        if value not in column and round_number(was) and not round_number(value):
            return  # nobody chooses such a number
        score += ODD * (round_number(value) - round_number(was)) if value in column or round_number(value) else 0.0
    score += UNLIKELY * (_divides(row, name, value) - 1 + (name == "gbs" and not _divides(row, name, _said(row, name))))
    words = _in_words(row, name, column)
    if words is not None and words == was:
        return  # said twice
    if words is not None and words == value:
        score, why = score + USUAL, why or " (as the row says in words)"
    score += WORKED_OUT if name == "ga" else 0.0
    like = like_row(row, name, value) if name in BELONGS else None
    if like is not None and name == "size_label" and row.record.hidden and _shape(like) == _shape(row):
        score, why = score + USUAL, f" (the shape is that of {like.where})"
    if like is not None and name == "machine" and _only_there(row, like):
        score, why = score + ABOVE, f" (more than {row.record.machine} can do)"
    if any(_same_layout(row, mate, name, value) for mate in mates):
        score -= UNLIKELY
    elif any(_same_layout(row, mate, name, was) for mate in mates):
        score += UNLIKELY  # as it stands the row is another one's configuration
    if name in ("gpus", "nodes") and isinstance(value, int) and value not in column:
        score -= UNLIKELY if value & (value - 1) or was in column else 0.0
    if was == usual and often >= 0.6 * len(column):
        score -= USUAL / 2  # what nearly all rows have
    if isinstance(value, int) and isinstance(was, int):
        law = counts.restored(row, name, value)
        # Devices are chosen, and the batch follows from them.
        if law < 0 or name not in ("gpus", "nodes"):
            above = row.mates[row.place - 1] if row.place else row
            score += USUAL / 2 * law + (ABOVE / 2 if law > 0 and above is not row and _said(above, name) == was else 0.0)
            score += 1.0 if law > 0 and not why else 0.0  # which is why, and not a slip of the hand
        why = why or (" (in step with the other columns, as in the other rows)" if law > 0 else "")
        score += _leaning(row, "sec_per_it", row.get("sec_per_it") or 0.0, row.get("sec_per_it") or 0.0, {name: value})
    in_k = _IN_K.fullmatch(row.cell(name)) if name == "seq" and isinstance(value, int) and was == row.seq else None
    thousands = in_k is not None and (in_k[2] or int(in_k[1]) * 1024 == was)
    shown = f"{value // 1024}{in_k[2]}" if in_k and thousands and isinstance(value, int) else str(value)
    yield Repair(name=name, value=value, shown=shown, score=score + _stale(row, name), why=why)


_TIMES_BATCH = re.compile(r"(?:batch(?: ?size)?|\bgbs|\bbs) ?[x×*] ?(\d{1,2})\b|"
                          r"\b(\d{1,2}) ?[x×] (?:the )?(?:global )?(?:batch|gbs|bs)\b|"
                          r"\b(?:(doubl)|(half|halv))\w* (?:the )?(?:global )?(?:batch|gbs)\b", re.IGNORECASE)  # fmt: skip


def _in_words(row: Row, name: str, column: list[int | float | str | None]) -> float | None:
    """What the words of the row say of one of its counts: `MBS 4` as the change, or `batch x2` of what most rows have."""
    for cell in row.worded.values():
        said = read_sentence(cell).get(name)
        if isinstance(said, int):
            return said
        if name == "gbs" and (match := _TIMES_BATCH.search(cell)):
            usual = mode(column)[0]
            times = 2.0 if match[3] else 0.5 if match[4] else float(match[1] or match[2])
            return times * usual if isinstance(usual, int) else None
    return None


_IN_K = re.compile(r"(\d{1,4}) ?([kK]?)")


def _shape(row: Row) -> tuple[int | None, int | None]:
    return row.record.layers, row.record.hidden


def _only_there(row: Row, like: Row) -> bool:
    """Whether the row's device cannot do what it is said to, and another can."""
    most = [max(device.peak_tflops.values()) if device else 0.0 for device in (row.device, like.device)]
    return 0 < most[0] < (row.get("tflops") or 0.0) <= most[1]


def _same_layout(row: Row, mate: Row, name: str, value: object) -> bool:
    """Whether the row would be another one's configuration: nobody runs it twice without a word."""
    names = ("size_label", "machine", "gpus", "nodes", "cp", "seq", *LAYOUT)
    same = all((value if n == name else _said(row, n)) == _said(mate, n) for n in names)
    return same and _described(row) == _described(mate)


def _described(row: Row) -> dict[str, str]:
    """What else the row says, but for counts that follow from others."""
    return {heading: cell for heading, cell in row.record.extra.items() if kind_beside(heading) != "ga"}


def _said(row: Row, name: str) -> int | float | str | None:
    if name in ("cp", "ga"):
        return row.beside(name)
    return row.figure(name[1:]) if name[:1] == EXTRA else getattr(row.record, name)


def _divides(row: Row, name: str, value: object) -> bool:
    dp, mbs, gbs = (value if n == name else row.whole(n) for n in ("dp", "mbs", "gbs"))
    return not (dp and mbs and gbs) or gbs % (dp * mbs) == 0  # type: ignore[operator]


def _measure(row: Row, name: str, value: float, bounds: tuple[float, float], score: float, loose: bool) -> Repair:
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
    text, ends = figure.like(figure.value), _in_print(figure, low - half, high + half)
    recomputed = name == "tflops" and min(abs(math.log(ratio * 3 / 4)), abs(math.log(ratio * 4 / 3))) < 0.008
    slip = digits.slip(text, ends) or (digits.slip(text, ends, wide=wide) if wide and not recomputed else None)
    twice = next((times for times in (2.0, 0.5) if abs(math.log(value / figure.value / times)) < max(0.006, wide)), 0.0)
    copied = _source(row, name) is not None
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
        near = points >= 2 and abs(figure.meant(slip.value) - value) <= 0.55 * figure.unit
        if points >= 3 or near or loose and slip.alone or slip.how == "the point moved" or points >= 2 and slip.how in ONE_TEXT:
            shown, value = slip.text, figure.meant(slip.value)
    tight = max(high / low - 1 + 0.004, wide)
    for times, (unit, its) in _TIMES.items() if name == "sec_per_it" else ():
        if abs(math.log(ratio / times)) < tight:
            score, why, code = score + UNIT, f" (the time is in {unit})", its
            shown = digits.as_time(row.cell(name), figure, figure.value / times, unit)
    node = row.procs if row.procs and row.procs > 1 else 8  # what nodes have where nobody says it
    world = row.world or 1
    parts: dict[float, str] = {node: "of a whole node", world: "of all processes", 1 / world: "of one process"}
    if name in ("tokens_per_s", "samples_per_s", "aggr_pflops") or name[:1] == EXTRA:
        parts = {1 / node: "of one device of a node", node / world: "of one node"} | parts
    if row.seq and name in ("samples_per_s", "tokens_per_s"):
        parts[row.seq if name == "samples_per_s" else 1 / row.seq] = "tokens" if name == "samples_per_s" else "samples"
    for times, what in parts.items() if name != "sec_per_it" else ():
        if times != 1 and abs(math.log(ratio / times)) < tight:
            # An eighth of what more than eight devices do is nothing that anybody measures.
            odd = times == 1 / node and world not in (1, node)
            score, why, shown = score + PART / (1 + odd), f" (that is {what})", like.like(figure.value / times)
            code = "tflops-per-node" if name == "tflops" and times == row.procs else ""
    for times, what in ((1e-3, "in thousands"), (1e3, "of thousands")) if name in THOUSANDS and not why else ():
        if abs(math.log(ratio / times)) < tight:
            score, why = score + PART, f" ({what})"
            shown = digits.as_printed(figure.shown(figure.value / times), (figure.step or figure.unit) * figure.scale / times)
    if name == "tflops" and not why and min(abs(math.log(ratio * 3 / 4)), abs(math.log(ratio * 4 / 3))) < min(tight, 0.008):
        score, code = score + RECOMPUTED, "formula-mixed"
        why = " (the recomputed forward pass is counted)" if ratio > 1 else " (the recomputed forward pass is not counted)"
    peak = (row.peak or math.inf) if name == "tflops" else math.inf
    score += ABOVE * ((figure.value > peak) - (value > peak))
    score -= ABOVE * 2 if name in ("mfu", "hfu") and value > 1.0 >= figure.value else 0.0
    if name in MEASURES:
        score += _leaning(row, name, figure.value, value)
    elif name[1:] not in older(tuple(row.record.printed)):  # a time before a change is as long as the model has it
        score += _in_line(row, name, figure.value, value)
    if name in ("mfu", "hfu") and not why and any(abs(math.log(ratio * a / b)) < 0.006 for a in PEAKS for b in PEAKS if a != b):
        score, why = score + PEAK, " (over the peak of another device)"
    unexplained = not why and not copied and name[:1] != EXTRA
    if unexplained and any(abs(abs(math.log(ratio)) - math.log(power)) < 0.006 for power in (2, 4)):
        score -= DOUBLED + (name == "sec_per_it")
    elif unexplained and abs(math.log(ratio)) > GRAVE and row.shows("gbs"):
        score -= UNEXPLAINED
    other = formula_of_another(row) if name == "tflops" and not why else None
    if other is not None:
        score, why, code = score + other.score, f" ({other.message})", other.code
    shown += "%" if row.cell(name).endswith("%") else ""
    return Repair(name=name, value=value, shown=shown, score=score + _stale(row, name), why=why, code=code)


def _like(row: Row, name: str, figure: Printed) -> Printed:
    """A figure with the digits that its column has, where the row's own cell holds another figure."""
    others = [its for mate in row.around if mate is not row and (its := mate.printed(name)) is not None]
    step, usual = figure.step or figure.unit, mode((its.step or its.unit) for its in others)[0]
    return replace(figure, step=usual) if isinstance(usual, float) and usual < step and not figure.inverse else figure


def _pointed(row: Row, name: str, text: str) -> float:
    """Above 0 when a point that moved leaves as many digits behind it as all other cells of the column have, and what is
    printed does not; below 0 the other way round."""
    places = {digits.places(cell) for mate in row.around if mate is not row and (cell := mate.cell(name))}
    return POINTED * ((digits.places(text) in places) - (digits.places(row.cell(name)) in places)) if len(places) == 1 else 0.0


def _in_print(figure: Printed, low: float, high: float) -> tuple[float, float]:
    """Values of the record as the column prints them: 0.41 as 41 under a heading of percent."""
    ends = sorted((figure.shown(low), figure.shown(high)))
    return ends[0], ends[1]


def _stale(row: Row, name: str) -> float:
    """What is printed is what another row has, most likely the one above: typed over, and forgotten."""
    source = _source(row, name)
    if source is None:
        return 0.0
    fine = len(re.sub(r"\D", "", row.cell(name)).lstrip("0")) >= FINE
    return (2.5 if fine else 1.0) * ABOVE if abs(source.place - row.place) == 1 else ABOVE


FINE = 3
"""Digits of a figure that hardly comes twice by chance."""


def _source(row: Row, name: str) -> Row | None:
    """The nearest row with the same figure in the same column, where no other two have the same."""
    cell = row.cell(name)
    if not is_measure(name) or len(re.sub(r"\D", "", cell).lstrip("0")) < FINE:
        above = row.mates[row.place - 1] if row.place else None
        return above if above is not None and is_measure(name) and cell and above.cell(name) == cell else None
    near = row.mates[max(0, row.place - 20) : row.place + 21]
    texts = [mate.cell(name) for mate in near]
    again = [mate for mate in near if mate is not row and mate.cell(name) == cell]
    return again[0] if len(again) == 1 and len(set(texts)) == len(texts) - 1 else None


def _speed(row: Row, name: str, value: float | None = None, other: dict[str, object] | None = None) -> float | None:
    """The logarithm of how fast one process is by one of the figures, so that rows of a model can be compared."""
    value = row.get(name) if value is None else value
    if not value or value <= 0:
        return None
    other = other or {}
    world = float(of_devices(row, other) or 1)  # type: ignore[arg-type]
    if name == "sec_per_it":
        return math.log(float(other.get("gbs", row.record.gbs) or 1) * float(other.get("seq", row.seq) or 1) / (value * world))  # type: ignore[arg-type]
    return math.log(value / (1 if name in SPEEDS else world))


def _leaning(row: Row, name: str, was: float, value: float, other: dict[str, object] | None = None) -> float:
    """Above 0 when the new value looks more like those of the rows around, of the same model where there are some; `other`:
    where a count is what is new."""
    mates = [mate for mate in row.around if mate is not row and not mate.planned]
    mates = [mate for mate in mates if mate.record.size_label == row.record.size_label] or mates
    alike = [mate for mate in mates if mate.record.machine == row.record.machine and mate.devices == row.devices]
    mates = alike if len(alike) > 1 else mates
    logs = [speed for mate in mates if (speed := _speed(mate, name)) is not None]
    before, after = _speed(row, name, was), _speed(row, name, value, other)
    if len(logs) < 3 - (mates is alike) or before is None or after is None:
        return 0.0
    middle = statistics.median(logs)
    usual = 0.03 + statistics.median(abs(log - middle) for log in logs)
    difference = abs(before - middle) - abs(after - middle)
    return max(-1.5, min(1.5, 0.4 * difference / usual)) if abs(difference) > 0.05 else 0.0


def _in_line(row: Row, name: str, was: float, value: float) -> float:
    """Above 0 when the new value lies nearer to what the other rows of the column have than the printed one does."""
    column = [figure for mate in row.around if mate is not row and (figure := _said(mate, name))]
    if len(column) < 3:
        return 0.0
    low, high = min(column), max(column)  # type: ignore[type-var]

    def stands(figure: float) -> float:
        return 1.0 if 0.9 * low <= figure <= 1.1 * high else 0.5 if low / 3 <= figure <= 3 * high else 0.0  # type: ignore[operator]

    return 1.5 * (stands(value) - stands(was))


def _exchanges(suspects: dict[Row, tuple[list[tuple[Relation, Rule, float]], list[Repair]]]) -> None:
    """Two rows each of which needs what the other has."""
    for row, (_, repairs) in suspects.items():
        for i, repair in enumerate(repairs):
            if not is_measure(repair.name):
                continue
            for other, (_, theirs) in suspects.items():
                back = next((r for r in theirs if r.name == repair.name), None)
                mine, its = row.printed(repair.name), other.printed(repair.name)
                if other is row or back is None or mine is None or its is None:
                    continue
                if _near(repair.value, its) and _near(back.value, mine):
                    why = f" (exchanged with {other.where})"
                    repairs[i] = replace(repair, score=repair.score + EXCHANGED, shown=other.cell(repair.name), why=why)


def _near(value: object, figure: Printed) -> bool:
    return abs(float(value) / figure.value - 1) < 0.006 + figure.slack  # type: ignore[arg-type]


def _report(row: Row, broken: list[tuple[Relation, Rule, float]], repairs: list[Repair]) -> list[Finding]:
    repairs = sorted(repairs, key=lambda repair: -repair.score)
    relation, rule, off = max(broken, key=lambda b: abs(b[2]))
    best = repairs[0] if repairs else None
    rivals = [repair for repair in repairs[1:] if best is not None and best.score - repair.score < MARGIN]
    facts = "; ".join(dict.fromkeys(_fact(row, *b) for b in broken[:3]))
    alone = len(repairs) == 1 and (abs(off) < FAR or rule.support > ENOUGH_ROWS)
    leads = best is not None and len(repairs) > 1 and best.score >= max(0.0, repairs[1].score + LEAD)
    known = best is not None and (best.score >= ENOUGH or alone or leads) and not rivals
    fine = abs(off) > SMALL or abs(off) > 3 * (slack(row, relation) + wobble(row, relation, rule))
    # That a figure is another row's as well tells little where all are nearly alike.
    proof = best.score - (0.0 if best.why else _stale(row, best.name)) if best is not None else 0.0
    grave = abs(off) > GRAVE or known and fine and proof >= CLEAR
    sure = max(b[1].support for b in broken) >= 2 and not row.planned
    # What is hardly more than the others miss the relation by may be a mean over other iterations, whatever explains it.
    out = max(b[1].misses.stands_out(b[2], slack(row, b[0])) for b in broken)
    grave = grave and out > (LIKELY if abs(off) > GRAVE else SURELY)
    doubtful = abs(off) > 2 * SMALL or known and best is not None and best.why  # else no slip that anybody makes
    level: Level = "error" if grave and sure else "warning" if out > LIKELY and doubtful else "info"
    row.settled = level != "info"
    if best is not None and known:
        code = best.code or _code(best.name, broken)
        if level == "info":
            pass
        elif isinstance(best.value, (int, float)):
            row.propose(best.name, float(best.value), code)
        else:
            row.reasons[best.name] = code
        row.solved |= set() if best.why else {best.name}
        printed = row.cell(best.name) or str(_said(row, best.name))
        message = f"{row.column(best.name)} {printed} -> {best.shown}{best.why}{_copied(row, best)}: {facts}"
        doubled = best.name in ("mfu", "hfu") and abs(abs(off) - math.log(2)) < 0.02 and not row.record.dtype
        # A share of the peak of 8 bits for that of 16, where nobody says which.
        gravity: Level = "warning" if code in ("formula-mixed", "tflops-per-node") or doubled else level
        return [row.find(code, gravity, message, name=best.name, proposed=best.shown)]
    options = "; ".join(f"{row.column(r.name)} {r.shown}{r.why}{_copied(row, r)}" for r in repairs[:4])
    # Of devices that the text counts, none of the relation's cells may stand in the row: then no cell of it is wrong.
    shown = [name for name in (*(name for name, _ in relation.terms), *(r.name for r in repairs)) if row.shows(name)]
    open_end = f"one cell is wrong, {options} would each do" if options else "no change of one cell makes all of them agree"
    if not repairs:
        if level == "error" and (pasted := _pasted(row, broken)) is not None:
            return [pasted]
        row.settled = False
        found = all(_is_found(relation) for relation, _, _ in broken)
        if not shown or found or _others_will_say(broken):
            return []
    return [row.find(_code(shown[0], broken), level, f"{facts}: {open_end}", name=shown[0])]


def _pasted(row: Row, broken: list[tuple[Relation, Rule, float]]) -> Finding | None:
    """Several figures that are another row's, where each relation that the row breaks has one of them, and what else was
    measured is the row's own."""
    own = [name for name in (*MEASURES, *(EXTRA + heading for heading in extras(row))) if row.printed(name) is not None]
    for mate in sorted((mate for mate in row.around if mate is not row), key=lambda mate: abs(mate.place - row.place)):
        same = [name for name in own if mate.cell(name) == row.cell(name) and _is_fine(row.cell(name))]
        if len(same) < 2 or not all(any(is_part(name, relation) for name in same) for relation, _, _ in broken):
            continue
        others = [name for name in own if name in MEASURES and name not in same and row.cell(name) != mate.cell(name)]
        told = [(name, off) for relation, _, off in broken for name, power in relation.terms
                if power == 1 and [n for n in same if is_part(n, relation)] == [name]]  # fmt: skip
        if not others or not told:
            continue
        name, off = told[0]
        figure, cells = row.printed(name), " and ".join(f"{row.column(n)} {row.cell(n)}" for n in same)
        assert figure is not None
        value = figure.value * math.exp(-off)
        row.propose(name, value, "pasted-pair")
        message = f"{cells} are those of {mate.where}: by what else is in the row {row.column(name)} is {figure.like(value)}"
        return row.find("pasted-pair", "error", message, name=name, proposed=figure.like(value))
    return None


def _is_fine(cell: str) -> bool:
    return len(re.sub(r"\D", "", cell).lstrip("0")) >= FINE


def _copied(row: Row, repair: Repair) -> str:
    source = None if repair.why else _source(row, repair.name)
    return f" (what is printed is that of {source.where})" if source is not None else ""


def _others_will_say(broken: Iterable[tuple[Relation, Rule, float]]) -> bool:
    return any(relation.name in ("TFLOPs and time", "tokens a second", "tokens a second and GPU", "samples a second", "MFU",
                                 "the aggregate") for relation, _, _ in broken)  # fmt: skip


def _code(name: str, broken: list[tuple[Relation, Rule, float]]) -> str:
    if name in ("mfu", "hfu", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s"):
        return "rate-mismatch"
    if name == "aggr_pflops" or name[:1] == EXTRA:
        return "aggregate"
    counts = any(relation.name in ("the layout", "GPUs and nodes") for relation, _, _ in broken)
    if name in ("dp", "tp", "pp", "cp", "gpus", "nodes") and counts:
        return "world-size"
    if name in ("ga", "mbs", "dp"):
        return "batch-divisible"
    if name in BELONGS:
        return "label-vs-params" if name == "size_label" else "another-device"
    return "tflops-mismatch" if any("TFLOPs" in r.name or r.name == "MFU and time" for r, _, _ in broken) else "rate-mismatch"


def _fact(row: Row, relation: Relation, rule: Rule, off: float) -> str:
    """What the other cells give for what people work out from them."""
    name = relation.terms[0][0]
    value = math.exp((term(row, name, {}) or 0.0) - off)
    printed = _said(row, name) if name not in ("world",) else row.world
    percent = name in ("mfu", "hfu")
    shown = f"{100 * value:.3g} %" if percent else f"{value:.5g}"
    there = f"{100 * printed:.3g} %" if percent else f"{printed:g}"  # type: ignore[operator, str-format]
    return f"by {relation.name} {row.column(name)} would be {shown}, printed {there} ({math.expm1(off):+.1%})"
