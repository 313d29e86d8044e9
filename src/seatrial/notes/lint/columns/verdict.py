"""What is said of a row that breaks relations: the change that stands out, or those that would each do, and how surely.

    report(row, broken, repairs)         findings
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterable

from seatrial.notes.lint import digits
from seatrial.notes.lint.columns.broken import Broken, broken_and_kept, is_found, is_part, of_another_batch
from seatrial.notes.lint.columns.copied import is_fine, source, stale
from seatrial.notes.lint.columns.points import FAR, Repair
from seatrial.notes.lint.columns.relations import (
    AT_ONCE,
    BELONGS,
    BY_DEFINITION,
    ENOUGH_ROWS,
    FOUND,
    GRAVE,
    MEASURES,
    SMALL,
    Relation,
    Rule,
    attention_of,
    is_measure,
    slack,
    term,
    wobble,
)
from seatrial.notes.lint.columns.ties import untied
from seatrial.notes.lint.findings import Finding, Ground, Level
from seatrial.notes.lint.headings import EXTRA
from seatrial.notes.lint.row import Row
from seatrial.tables.headings import rate_of_each, read_heading

SURELY, LIKELY = 8.0, 6.0
"""How many times what the others miss a relation by makes a small difference an error, and a doubt."""
LITTLE = 0.025
"""What means over other iterations may well miss each other by."""
MANY = 3
"""Changes that would each mend a row: it is as often a setting that was misread."""
ENOUGH, CLEAR, MARGIN, LEAD = 1.0, 3.0, 0.9, 2.0


def report(row: Row, broken: list[Broken], repairs: list[Repair]) -> list[Finding]:
    repairs = sorted(repairs, key=lambda repair: -repair.score)
    relation, rule, off = max(broken, key=lambda b: abs(b[2]))
    best = repairs[0] if repairs else None
    rivals = [repair for repair in repairs[1:] if best is not None and best.score - repair.score < MARGIN]
    told = False
    if best is not None and rivals and len(left := untied(row, [best, *rivals])) <= len(rivals):
        best, *rivals = left
        told = not rivals
    facts = "; ".join(dict.fromkeys(_fact(row, *b) for b in broken[:3]))
    alone = len(repairs) == 1 and (abs(off) < FAR or rule.support > ENOUGH_ROWS)
    leads = best is not None and len(repairs) > 1 and best.score >= max(0.0, repairs[1].score + LEAD)
    known = best is not None and (best.score >= ENOUGH or alone or leads or told) and not rivals
    fine = abs(off) > SMALL or abs(off) > 3 * (slack(row, relation) + wobble(row, relation, rule))
    # That a figure is another row's as well tells little where all are nearly alike.
    proof = best.score - (0.0 if best.why else stale(row, best.name)) if best is not None else 0.0
    grave = abs(off) > GRAVE or known and fine and proof >= CLEAR
    sure = max(b[1].support for b in broken) >= 2 and not row.planned
    # What is hardly more than the others miss the relation by may be a mean over other iterations, whatever explains it.
    out = max(b[1].misses.stands_out(b[2], slack(row, b[0])) for b in broken)
    grave = grave and out > (LIKELY if abs(off) > GRAVE else SURELY)
    doubtful = abs(off) > 2 * SMALL or known and best is not None and best.why  # else no slip that anybody makes
    # A digit that is another one explains any small difference.
    plain = out > LIKELY if abs(off) > LITTLE else 2 * SURELY < out < math.inf
    level: Level = "error" if grave and sure else "warning" if plain and doubtful else "info"
    if level == "error" and (all(relation in AT_ONCE for relation, _, _ in broken) or of_another_batch(row, broken)):
        level = "warning"  # it may be the one that accumulates
    row.settled = level != "info"
    # No slip of the hand makes a rate less by just the recomputed pass, or by attention.
    unlikely = best is None or not best.why and best.name in MEASURES and best.name not in ("tflops", "mfu", "hfu")
    if level == "error" and unlikely and (counted := _counted_otherwise(row, broken)) is not None:
        return [counted]
    # Two figures of another row, which agree with all else there, say more than a digit that is another one.
    a_digit = best is not None and " digit" in best.why and not ("exchanged" in best.why and len(broken) > 3)
    stuck = best is not None and (a_digit or not best.why and is_measure(best.name))
    if level == "error" and stuck and (found := _pasted(row, broken, whole=True)):
        return [found]

    def ground(repair: Repair | None) -> Ground:
        if repair is not None and repair.ground != "law":
            return repair.ground
        if any(relation.name.endswith(BY_DEFINITION) for relation, _, _ in broken[:3]):
            return "definition"
        return "found" if any(FOUND in relation.name for relation, _, _ in broken[:3]) else "law"

    if best is not None and known and _is_after(row.cell(best.name), best.shown):
        return []
    if best is not None and known:
        code = best.code or _code(best.name, broken)
        if level == "info":
            pass
        elif isinstance(best.value, (int, float)):
            row.propose(best.name, float(best.value), code)
            mine, its = row.printed(best.name), row.printed(best.other) if best.other else None
            if mine is not None and its is not None:
                row.propose(best.other, its.meant(mine.shown(mine.value)), code)
        else:
            row.reasons[best.name] = code
        row.solved |= set() if best.why else {best.name}
        printed = row.cell(best.name) or str(row.said(best.name))
        message = f"{row.column(best.name)} {printed} -> {best.shown}{best.why}{_copied(row, best)}: {facts}"
        doubled = best.name in ("mfu", "hfu") and abs(abs(off) - math.log(2)) < 0.02 and not row.record.dtype
        # A share of the peak of 8 bits for that of 16, where nobody says which.
        gravity: Level = "warning" if code in ("formula-mixed", "tflops-per-node") or doubled else level
        # Of a batch of tokens `find` prints the sequences as the column has them.
        proposed = str(best.value) if best.name == "gbs" else best.shown
        how = f"{best.why}{_copied(row, best)}".strip(" ()") or None
        return [row.find(code, gravity, message, name=best.name, proposed=proposed, slip=how, ground=ground(best))]
    options = "; ".join(f"{row.column(r.name)} {r.shown}{r.why}{_copied(row, r)}" for r in repairs[:4])
    # Of devices that the text counts, none of the relation's cells may stand in the row: then no cell of it is wrong.
    shown = [name for name in (*(name for name, _ in relation.terms), *(r.name for r in repairs)) if row.shows(name)]
    open_end = f"one cell is wrong, {options} would each do" if options else "no change of one cell makes all of them agree"
    if not repairs:
        if level == "error" and (pasted := _pasted(row, broken)) is not None:
            return [pasted]
        row.settled = False
        if not shown or all(is_found(relation) for relation, _, _ in broken) or _others_will_say(broken):
            return []
    if len(repairs) == 1 and level == "error" and row.shows(repairs[0].name) and repairs[0].name != "gbs":
        (only,) = repairs
        message = f"{row.column(only.name)} {row.cell(only.name)} -> {only.shown}: {facts}"
        return [row.find(_code(only.name, broken), level, message, name=only.name, proposed=only.shown, ground=ground(only))]
    # What nothing mends may be of another model, or of another kind.
    level = "warning" if not repairs and level == "error" else level
    # That other rows have another batch or as many devices is no slip, and of three changes and more none is the likelier.
    typed = (f"{each.why}{_copied(row, each)}".strip(" ()") for each in repairs[:4])
    how = next((one for one in typed if one and not one.startswith("as in ")), None) if len(repairs) < MANY else None
    return [row.find(_code(shown[0], broken), level, f"{facts}: {open_end}", name=shown[0], slip=how,
                     ground=ground(None) if repairs else "open")]  # fmt: skip


def _pasted(row: Row, broken: list[Broken], *, whole: bool = False) -> Finding | None:
    """Several figures that are another row's, where each relation that the row breaks has one of them, and what else was
    measured is the row's own; `whole`: of one that breaks nothing itself."""
    own = [name for name in (*MEASURES, *(EXTRA + heading for heading in row.extras)) if row.printed(name) is not None]
    # Prices of a list and settings are those of many rows by nature.
    told_apart = [name for name in own if name[1:] not in row.sheet.shared(row.key)]
    for mate in sorted((mate for mate in row.around if mate is not row), key=lambda mate: abs(mate.place - row.place)):
        same = [name for name in told_apart if mate.cell(name) == row.cell(name) and is_fine(row.cell(name))]
        if len(same) < 2 or not all(any(is_part(name, relation) for name in same) for relation, _, _ in broken):
            continue
        if whole and broken_and_kept(mate)[0]:
            continue
        worked = {relation.terms[0][0] for relation, _, _ in broken}
        others = [name for name in own if (name in MEASURES or name in worked) and name not in same
                  and row.cell(name) != mate.cell(name)]  # fmt: skip
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


def _counted_otherwise(row: Row, broken: list[Broken]) -> Finding | None:
    """TFLOPs and MFU that go together, and are as many times what all else gives as another way to count makes them: with the
    recomputed pass, or with as much more or less attention."""
    offs = [off * power for relation, _, off in broken for name, power in relation.terms if name in ("tflops", "mfu")]
    figure = row.printed("tflops")
    if figure is None or row.record.mfu is None or len(offs) != len(broken) or max(offs) - min(offs) > NEAR_ALIKE:
        return None
    off = sum(offs) / len(offs)
    ways = {AGAIN: "the recomputed forward pass is counted", -AGAIN: "the recomputed forward pass is not counted"}
    least, attended = attention_of(row)
    if least and attended:
        each = {0.0: "without attention", 0.5: "with half of the attention", 2.0: "with twice the attention"}
        ways |= {math.log((least + times * attended) / (least + attended)): f"counted {how}" for times, how in each.items()}
    why = next((how for way, how in ways.items() if abs(off - way) < NEAR_ALIKE and abs(way) > GRAVE), None)
    if why is None:
        return None
    value = figure.value / math.exp(off)
    row.propose("tflops", value, "formula-mixed")
    row.propose("mfu", row.record.mfu / math.exp(off), "formula-mixed")
    row.settled = True
    facts = "; ".join(dict.fromkeys(_fact(row, *b) for b in broken[:3]))
    cells = f"{row.column('tflops')} {row.cell('tflops')} and {row.column('mfu')} {row.cell('mfu')}"
    message = f"{cells} are counted by another formula than the other rows ({why}): {facts}"
    return row.find("formula-mixed", "error", message, name="tflops", proposed=figure.like(value))


NEAR_ALIKE, AGAIN = 0.02, math.log(4 / 3)


_BEFORE = re.compile(r"(?:→|->|=>|⟶)\s*([\d.,]+)")


def _is_after(cell: str, shown: str) -> bool:
    """Whether the figure that the row needs is what its cell has after an arrow: `3,498 → 3,831`."""
    after = _BEFORE.search(cell)
    now, meant = (digits.alone(text.rstrip("%")) for text in (after[1] if after else "", shown))
    return bool(now and meant) and abs(math.log(now / meant)) < SMALL  # type: ignore[operator]


def _copied(row: Row, repair: Repair) -> str:
    of = None if repair.why else source(row, repair.name)
    return f" (what is printed is that of {of.where})" if of is not None else ""


def _others_will_say(broken: Iterable[Broken]) -> bool:
    return any(relation.name in ("TFLOPs and time", "tokens a second", "tokens a second and GPU", "samples a second", "MFU",
                                 "the aggregate") for relation, _, _ in broken)  # fmt: skip


def _code(name: str, broken: list[Broken]) -> str:
    if name in ("mfu", "hfu", "tokens_per_s", "tokens_per_s_per_process", "samples_per_s"):
        return "rate-mismatch"
    if name == "aggr_pflops" or name[:1] == EXTRA:
        return "aggregate"
    counts = any(relation.name in ("the layout", "GPUs and nodes") for relation, _, _ in broken)
    if name in ("dp", "tp", "pp", "cp", "gpus", "nodes") and counts:
        return "world-size"
    if name in ("ga", "mbs", "dp") or not any(relation.measures for relation, _, _ in broken):
        return "batch-divisible"
    if name in BELONGS:
        return "label-vs-params" if name == "size_label" else "another-device"
    return "tflops-mismatch" if any("TFLOPs" in r.name or r.name == "MFU and time" for r, _, _ in broken) else "rate-mismatch"


def _fact(row: Row, relation: Relation, rule: Rule, off: float) -> str:
    """What the other cells give for what people work out from them."""
    name = relation.terms[0][0]
    value = math.exp((term(row, name, {}) or 0.0) - off)
    printed = row.said(name) if name not in ("world",) else row.world
    percent = name in ("mfu", "hfu")
    heading, figure = row.column(name), row.printed(name)
    if figure is not None and (rate_of_each(heading) or "/" in read_heading(heading).unit):
        value, printed = figure.shown(value), figure.shown(printed)  # type: ignore[arg-type]
    shown = f"{100 * value:.3g} %" if percent else f"{value:.5g}"
    there = f"{100 * printed:.3g} %" if percent else f"{printed:g}"  # type: ignore[operator, str-format]
    return f"by {relation.name} {row.column(name)} would be {shown}, printed {there} ({math.expm1(off):+.1%})"
