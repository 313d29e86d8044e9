"""Which relations of its table a row breaks, and which it keeps.

    broken, kept = broken_and_kept(row)  [(relation, its rule, by which logarithm it is off)], [(relation, its rule)]
"""
from __future__ import annotations

import functools
import math
from dataclasses import replace

from seatrial.notes.lint.columns import derived
from seatrial.notes.lint.columns.copied import source
from seatrial.notes.lint.columns.relations import (
    BY_DEFINITION,
    GRAVE,
    UNSAID,
    Relation,
    Rule,
    cost_of_token,
    key_of,
    off_by,
    relations_of,
    residue,
    rule_of,
    scatters,
    slack,
)
from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.means import FEW, LITTLE
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.text.exceptions import excepted

Broken = tuple[Relation, Rule, float]
Kept = tuple[Relation, Rule]
CLOSELY = 0.002
"""Beyond its digits by how much a row may miss what others keep to exactly."""
MANY = 3.0
"""Logarithm of a factor by which nobody changes a batch without a word."""


AXES = ("dp", "tp", "pp")


def broken_and_kept(row: Row) -> tuple[list[Broken], list[Kept]]:
    row.judged = row.judged or _judge(row)
    broken, kept = row.judged
    return broken, kept


def _judge(row: Row) -> tuple[list[Broken], list[Kept]]:
    broken: list[Broken] = []
    unsaid: list[Broken] = []
    kept: list[Kept] = []
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
            if abs(off) <= slack(row, relation) + LITTLE and rule.misses.rows <= FEW and scatters(row):
                continue  # that a few rows keep to it closely is chance where the others of the table do not
            if _of_another_text(row, relation, rule) or _of_another_pass(row, relation, off):
                continue
            if has_flops(relation) and _attends_to_none(row, relation, rule, (off, may)):
                continue
            if not _unstated(row, relation, off):
                broken.append((relation, rule, off))
            elif row.record.gpus or math.prod(getattr(row.record, axis) or 1 for axis in AXES) <= (row.counted or math.inf):
                unsaid.append((relation, rule, off))  # else nobody says how many processes a node has
    if len(broken) == 1 and row.record.nodes == 1 and _part_of_a_node(*broken[0]):
        broken.clear()
    broken += unsaid
    return ([] if broken and _on_more_devices(row, broken, kept) else broken), kept


def _of_another_text(row: Row, relation: Relation, rule: Rule) -> bool:
    """Whether the batch that a relation needs is one of the text, and no row of the table keeps to it: then it is another's."""
    if "gbs" not in row.record.inferred or ("gbs", -1) not in relation.terms or row.composed or not relation.exact:
        return False
    others = [mate for mate in row.around if mate is not row and residue(mate, relation) is not None]
    return bool(others) and not any(_keeps(mate, relation, rule) for mate in others)


def _of_another_pass(row: Row, relation: Relation, off: float) -> bool:
    """Whether it is the recomputed pass by which HFU is more than MFU, in a row that may well have run with it."""
    of_hardware = ("hfu", 1) in relation.terms
    return of_hardware and not row.shows("recompute") and abs(abs(off) - AGAIN) <= slack(row, relation) + 2 * CLOSELY


def _attends_to_none(row: Row, relation: Relation, rule: Rule, measured: tuple[float, float]) -> bool:
    """Whether a row of another length keeps to the rule with what a token costs in the others, and no row shows that it costs
    more: then attention is counted in none."""
    if not row.seq or any(mate is not row and mate.seq == row.seq and _keeps(mate, relation, rule) for mate in row.around):
        return False
    others = [mate for mate in row.around if mate.seq and mate.seq != row.seq and _keeps(mate, relation, rule)]
    if len({mate.seq for mate in others}) != 1:
        return False
    (own, its), (off, may) = map(cost_of_token, (row, others[0])), measured
    return own is not None and its is not None and abs(off + math.log(own / its)) <= may + 2 * CLOSELY


AGAIN = math.log(4 / 3)
"""The forward pass done twice, as a logarithm."""


def _part_of_a_node(relation: Relation, _: Rule, off: float) -> bool:
    """Fewer devices than a node has, on one: a table of scaling starts there, and all else that the row says agrees."""
    return off < 0 and relation.terms[:2] == (("gpus", 1), ("nodes", -1))


def _keeps(row: Row, relation: Relation, rule: Rule) -> bool:
    measured = off_by(row, relation, rule) if rule_of(row, relation) == rule else None
    return measured is not None and abs(measured[0]) <= measured[1]


def of_another_batch(row: Row, broken: list[Broken]) -> bool:
    """Whether a row may have run with another batch, which breaks all that the batch is part of and nothing else."""
    kept = broken_and_kept(row)[1]
    return all(_unstated(row, relation, off) for relation, _, off in broken) and not any(
        ("gbs", -1) in relation.terms for relation, _ in kept)  # fmt: skip


def _unstated(row: Row, relation: Relation, off: float) -> bool:
    """A power of two in a relation whose batch or sequence the row does not print."""
    unsaid = UNSAID in key_of(row, relation) or ("gbs", -1) in relation.terms and not row.shows("gbs") and not (
        row.composed and row.shows("ga"))  # fmt: skip
    # Of tokens and the time of a step, found in the rows: each run has a batch and a sequence.
    steps = is_found(relation) and any(name == "sec_per_it" for name, _ in relation.terms)
    unsaid = unsaid or steps and not row.shows("gbs") and not row.shows("seq") and not relation.name.endswith(BY_DEFINITION)
    if unsaid and any(source(row, name) is not None for name in relation.measures):
        return False  # a figure that was copied
    return unsaid and abs(off) < MANY and abs(off / math.log(2) - round(off / math.log(2))) < 0.02


def _on_more_devices(row: Row, broken: list[Broken], kept: list[Kept]) -> bool:
    """Whether all that is broken would hold with a whole multiple of the devices, which no row says; where only one relation
    tells, beside a column that may say them."""
    if not all(relation.exact and relation.by_devices and UNSAID in key_of(row, relation) for relation, _, _ in broken):
        return False
    offs = [off * dict(relation.terms)["world"] for relation, _, off in broken]
    times = math.exp(abs(offs[0]))
    if any(relation.exact and relation.by_devices for relation, _ in kept) or max(offs) - min(offs) > CLOSELY * 5:
        return False
    whole = times < 100 and abs(times - round(times)) < CLOSELY * 5 * times
    return whole and (len(offs) > 1 or bool(row.extras) or bool(row.record.machine))


def _of_nodes(row: Row, relation: Relation) -> bool:
    """An aggregate that follows from TFLOPs which are a node's: those are what is unlike the other rows, not the aggregate."""
    habit = derived.aggregate_fits(row, row.get("tflops") or 0.0) if relation.name == "the aggregate" else None
    if habit is None or habit.each == "processes":
        return habit is not None
    ratio = row.reading.ratio(row) if row.reading is not None else None
    return not ratio or abs(math.log(ratio)) > GRAVE  # else the TFLOPs are right, and the aggregate is over nodes


def is_part(name: str, relation: Relation) -> bool:
    return any(name == term for term, _ in relation.terms)


def has_flops(relation: Relation) -> bool:
    return any(name in ("flops", "token_flops") for name, _ in relation.terms)


def is_found(relation: Relation) -> bool:
    """Whether it is of a column that no field takes, and was found in the rows."""
    return relation.terms[0][0][:1] == EXTRA
