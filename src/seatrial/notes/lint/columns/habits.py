"""Rows that break a relation because they are counted otherwise, and by no slip of the hand.

    habits(judged)                       rows and relations that they break by a factor that others break them by too
"""
from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator

from seatrial.notes.labels import bits_of
from seatrial.notes.lint.columns.broken import Broken, Kept, has_flops, is_found, is_part
from seatrial.notes.lint.columns.copied import is_fine
from seatrial.notes.lint.columns.relations import GRAVE, RELATIONS, SMALL, Relation, Rule, is_measure, residue, slack, wobble
from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.row import MEASURED, Row
from seatrial.tables.headings import clean, normal
from seatrial.tables.worded import heading_in_english

BY_WHAT_IS_UNSAID = ("GPUs of a replica", "micro-batches of all replicas")
"""Relations that hold where what nobody says is the same in every row: two rows that deny them show that it is not."""
LONGER = "longer sequences"
OF_TOKENS = tuple(relation.name for relation in RELATIONS if ("token_flops", -1) in relation.terms)


def habits(judged: dict[Row, tuple[list[Broken], list[Kept]]]) -> set[tuple[Row, str]]:
    """Rows and relations that they break by a factor that others break them by too: three rows, or two that stand together."""
    offs: dict[tuple[str, str], list[tuple[float, Row]]] = {}
    plain: dict[tuple[Row, str], int] = {}
    for row, (broken, kept) in judged.items():
        batch = any(relation.exact and ("gbs", -1) in relation.terms for relation, _ in kept)
        counted = any(relation.exact and not relation.measures for relation, _, _ in broken)  # which another cell explains
        for relation, rule, off in broken:
            if counted and relation.measures:
                continue
            if off > 0 and row.seq is None and ("token_flops", -1) in relation.terms:
                offs.setdefault((row.record.source_file, LONGER), []).append((off, row))
            if not any(abs(abs(off) - math.log(unit)) < 0.05 for unit in (10, 60, 1000)):
                offs.setdefault((row.record.source_file, relation.name), []).append((off, row))
                plain[row, relation.name] = rule.support if _all_said(row, relation, rule, batch) else 0
    found = set()
    for (file, name), each in list(offs.items()):
        if name == LONGER:
            # Rows that need more for a token, each in its own measure, ran with longer sequences that nobody says.
            keys = Counter(row.key for row in dict.fromkeys(row for _, row in each))
            found |= {(row, other) for _, row in each if keys[row.key] > 1 for other in OF_TOKENS}
            del offs[file, name]
    for (_, name), each in offs.items():
        each.sort(key=lambda pair: pair[0])
        of_table = Counter(row.key for row in dict.fromkeys(row for _, row in each))
        for at, (off, row) in enumerate(each):
            alike = [other for other_off, other in each[max(0, at - 20) : at + 20] if abs(other_off - off) < 0.006]
            if name in BY_WHAT_IS_UNSAID and (of_table[row.key] > 1 or _never_ran(row)):
                found.add((row, name))
                continue
            if plain[row, name] >= 2 * len(alike):
                continue  # pasted or typed together
            kin = [other for other in alike if other.key == row.key and abs(other.place - row.place) == 1]
            if len(alike) > 2 or len(alike) == 2 and (len(kin) == 1 or not row.shows("gbs")):
                found.add((row, name))
    return found - _moved(judged)


def _moved(judged: dict[Row, tuple[list[Broken], list[Kept]]]) -> set[tuple[Row, str]]:
    """Rows and relations that a column breaks which stands a row too low, or too high, from one row on: that one has the figure
    of its neighbour, which keeps to them, and each further one what the one before it should have."""
    found: set[tuple[Row, str]] = set()
    for row, (broken, _) in judged.items():
        for (relation, _, off), step in itertools.product(broken, (-1, 1)):
            for name in relation.measures:
                beside = row.mates[row.place + step] if 0 <= row.place + step < len(row.mates) else None
                if beside is None or not is_fine(row.cell(name)) or beside.cell(name) != row.cell(name) or (
                        relation.name in {one.name for one, _, _ in judged.get(beside, ((), ()))[0]}):
                    continue
                chain = list(_chain(row, relation, off, name, step, judged))
                if len(chain) > 1:
                    found |= {(one, other.name) for one in chain for other, _, _ in judged[one][0] if is_part(name, other)}
    return found


def _chain(row: Row, relation: Relation, off: float, name: str, step: int,
           judged: dict[Row, tuple[list[Broken], list[Kept]]]) -> Iterator[Row]:  # fmt: skip
    """The rows from one on that have what the one before them should have."""
    power = dict(relation.terms)[name]
    while True:
        yield row
        value = row.get(name)
        at = row.place - step
        if not value or abs(off) > 50 or not 0 <= at < len(row.mates):
            return
        meant, row = value * math.exp(-off / power), row.mates[at]
        offs = [its for one, _, its in judged[row][0] if one.name == relation.name] if row in judged else []
        if not offs or abs(math.log((row.get(name) or math.inf) / meant)) > slack(row, relation) + GRAVE / 2:
            return
        off = offs[0]


def _never_ran(row: Row) -> bool:
    """Whether a row has no figure that would tell with which batch it ran."""
    return not any(getattr(row.record, name) for name in ("sec_per_it", *MEASURED))


def _all_said(row: Row, relation: Relation, rule: Rule, batch: bool) -> bool:
    """Whether nothing that the relation needs is left to what nobody says: then no habit explains that it does not hold.

    `batch`: whether its time and rate prove the batch that the text says; the micro-batches of all replicas have to give it."""
    if relation.of_steps and relation.exact and batch:
        return row.shows("mbs") and row.shows("ga")
    counts = {"gpus", "nodes", "dp"}
    said = all(is_measure(name) or name == "seq" or row.shows(name) or name in ("world", "cp") and any(map(row.shows, counts))
               for name, _ in relation.terms)  # fmt: skip
    return relation.exact and rule.constant == 0.0 and said


def counted_otherwise(row: Row, relation: Relation, rule: Rule, off: float) -> bool:
    """Whether the text counts FLOPs, tokens to train on, or a batch, in two ways that differ by as much as the row is off."""
    if _of_other_nodes(row, relation) or _of_another_precision(row, relation, rule, off):
        return True
    text = row.sheet.text(row)
    flops, tokens = text.ratios
    # Days times devices are device hours, on however many tokens the text says that something was trained.
    of_tokens = is_found(relation) and not all(name[:1] == EXTRA or name in ("world", "nodes") for name, _ in relation.terms)
    of_tokens |= any("tok" in name.lower() for name, _ in relation.terms)
    ratios = tokens if is_found(relation) and of_tokens else flops if has_flops(relation) else frozenset()
    ratios |= {math.log(2)} if text.paired and ("gbs", -1) in relation.terms else set()
    return any(abs(abs(off) - ratio) <= slack(row, relation) + wobble(row, relation, rule) + 2 * SMALL for ratio in ratios)


_PER = re.compile(r"\b(?:per|a|each|/) ?(?:(nodes?|host|server|machine)|gpu|device|card|chip|accelerator)\b")
IN_A_NODE = (1, 2, 4, 8, 16)


def _of_other_nodes(row: Row, relation: Relation) -> bool:
    """Whether two columns are of a node and of one of its devices, and what the row has is a node of so many."""
    if len(relation.terms) != 2 or any(name[:1] != EXTRA for name, _ in relation.terms):
        return False
    kinds = {_of_a_node(name[1:]) for name, _ in relation.terms}
    off, open_ = residue(row, relation), slack(row, relation) + 0.002
    return kinds == {True, False} and off is not None and any(abs(abs(off) - math.log(many)) < open_ for many in IN_A_NODE)


@functools.lru_cache(maxsize=1024)
def _of_a_node(heading: str) -> bool | None:
    """Whether a heading is of a node, or of a device; None where it says neither."""
    said = {match[1] is not None for match in _PER.finditer(normal(heading_in_english(clean(heading), surely=True)))}
    return said.pop() if len(said) == 1 else None


def _of_another_precision(row: Row, relation: Relation, rule: Rule, off: float) -> bool:
    """Whether a share of the peak is off by what peaks of two precisions differ by, and no row of its own keeps to the rule."""
    bits = bits_of(row.record.dtype) if "mfu" in relation.measures or "hfu" in relation.measures else None
    if bits is None or not any(abs(abs(off) - math.log(times)) < 0.05 for times in (2, 4)):
        return False
    others = [mate for mate in row.around if mate is not row and mate.record.machine == row.record.machine]
    kin = [mate for mate in others if bits_of(mate.record.dtype) == bits]
    if any((its := residue(mate, relation)) is not None and abs(its - rule.constant) < GRAVE for mate in kin):
        return False
    return any(bits_of(mate.record.dtype) not in (None, bits) for mate in row.around)
