"""What speaks for another setting of a row: a count, a length, a model or a device that somebody chose.

    repair(row, "gbs", 512, broken)      with its points: as the text says, as in other rows, a slip of the hand, a round number
"""
from __future__ import annotations

import re

from seatrial.columns import LAYOUT
from seatrial.notes.lint import digits
from seatrial.notes.lint.columns import counts
from seatrial.notes.lint.columns.broken import Broken
from seatrial.notes.lint.columns.copied import stale
from seatrial.notes.lint.columns.peers import leaning
from seatrial.notes.lint.columns.points import ABOVE, ANOTHER_RELATION, WORKED_OUT, Repair
from seatrial.notes.lint.columns.relations import BELONGS, like_row
from seatrial.notes.lint.headings import EXTRA, kind_beside
from seatrial.notes.lint.models.throughput import SLIP, STATED_ABOVE, USUAL
from seatrial.notes.lint.phases.quantities import meanings
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.titles import agrees
from seatrial.notes.lint.usual import mode, round_number
from seatrial.notes.read.sentences import read_sentence

IN_ANOTHER_ROW = 2.0
"""A row nearby has it."""
UNLIKELY = 1.5
"""Against a batch that does not divide, a configuration that another row has, and a number of devices that no other row and
no power of two has."""
SERIES = 3.0
"""The rows above and below have twice as much and half of it."""
ODD = 2.0
"""A number that nobody chooses, 526 or 65356, is replaced by one that people do."""
A_ZERO = 3.0
"""Ten times, or a tenth, of what people choose, and what no other row has: a zero was typed too often, or was forgotten."""
STEPS = 500
"""So many steps and their multiples people choose: 55,000."""
MANY = 5
"""Rows that tell what all have."""
_TIMES_BATCH = re.compile(r"(?:batch(?: ?size)?|\bgbs|\bbs) ?[x×*] ?(\d{1,2})\b|"
                          r"\b(\d{1,2}) ?[x×] (?:the )?(?:global )?(?:batch|gbs|bs)\b|"
                          r"\b(?:(doubl)|(half|halv))\w* (?:the )?(?:global )?(?:batch|gbs)\b", re.IGNORECASE)  # fmt: skip
_IN_K = re.compile(r"(\d{1,4}) ?([kK]?)")


def repair(row: Row, name: str, value: object, broken: list[Broken]) -> Repair | None:
    """None where nobody would have chosen it."""
    score = ANOTHER_RELATION * (len(broken) - 1)
    mates = [mate for mate in row.around if mate is not row]
    # Each size of a model has its micro-batch.
    alike = [mate for mate in mates if mate.record.size_label == row.record.size_label] if name == "mbs" else mates
    column = [mate.said(name) for mate in alike or mates]
    usual, often = mode(column)
    stated = row.stated_above(name)
    why, tokens = "", row.of_tokens if name == "gbs" else None
    said = stated is not None and stated[0] == value
    if stated is not None and said:
        score, why = score + STATED_ABOVE, f" (line {stated[1]} says {value})"
    elif usual == value and often > 0.5 * len(column) and 2 * column.count(row.said(name)) < often:
        score, why = score + USUAL + UNLIKELY * (often == len(column) >= MANY), " (as in the other rows)"
    elif value in column:
        # In a column where every value comes once, that this one does says little.
        few = len(set(column)) <= min(3, len(column) - 1)
        score, why = score + IN_ANOTHER_ROW * (1.0 if few else 0.5), " (as in another row)"
    elif name in BELONGS:
        return None
    else:
        text = row.cell(name) or str(row.said(name) or "")
        low, high = tokens.span(value - 0.5, value + 0.5) if tokens and isinstance(value, int) else (0.0, 0.0)
        # Of one digit or two nearly every number is a slip of every other.
        slip = digits.slip(text, (value - 0.5, value + 0.5)) if isinstance(value, (int, float)) and len(text) > 2 else None
        slip = digits.slip(tokens.like(tokens.value), (low, high)) if tokens else slip
        most = 1.0 if slip is not None and slip.how == "the point moved" else 2.0  # nobody points a count
        score += min(most, next(points for chance, points in SLIP if slip.chance < chance)) if slip else -1.0
        score += 1.0 if not slip and isinstance(value, int) and value & (value - 1) == 0 and value > 8 else 0.0
        why = f" ({slip.how})" if slip else ""
    was = row.said(name)
    score += A_ZERO * _by_a_zero(value, was, column)
    if isinstance(value, int) and isinstance(was, int) and name not in ("layers", "hidden", "nodes", "iteration"):
        if value not in column and round_number(was) and not round_number(value):
            return None  # nobody chooses such a number
        score += ODD * (round_number(value) - round_number(was)) if value in column or round_number(value) else 0.0
    if name == "iteration" and isinstance(was, int) and isinstance(value, int) and value not in column and not was % STEPS:
        score -= ODD * (value % STEPS > 0 or was not in column and 10 not in (was / value, value / was))
    score += UNLIKELY * (_divides(row, name, value) - 1 + (name == "gbs" and not _divides(row, name, row.said(name))))
    words = _in_words(row, name, column)
    if words is not None and words == was:
        return None  # said twice
    if words is not None and words == value:
        score, why = score + USUAL, why or " (as the row says in words)"
    score += WORKED_OUT if name == "ga" else 0.0
    score += 2 * USUAL * agrees(row, name, value) if isinstance(value, int) else 0.0  # the name of the run says so
    score -= WORKED_OUT if name == "mbs" and row.shows("ga") and value in column and was in column else 0.0
    like = like_row(row, name, value) if name in BELONGS else None
    if like is not None and name == "size_label" and row.record.hidden and _shape(like) == _shape(row):
        score, why = score + USUAL, f" (the shape is that of {like.where})"
    if like is not None and name == "machine" and (_holds_less(row, like) or (row.record.mfu or 0.0) > 1.0):
        return None
    if like is not None and name == "machine" and _is_let_otherwise(row, like):
        score -= USUAL
    if like is not None and name == "machine" and _only_there(row, like):
        score, why = score + ABOVE, f" (more than {row.record.machine} can do)"
    if twins := [mate for mate in mates if _same_layout(row, mate, name, value)]:
        # Least of all where the other one took another time.
        score -= UNLIKELY * (2 if name == "mbs" and any(_took_another_time(row, mate) for mate in twins) else 1)
    elif any(_same_layout(row, mate, name, was) for mate in mates):
        score += UNLIKELY  # as it stands the row is another one's configuration
    if name in ("gpus", "nodes") and isinstance(value, int) and value not in column:
        score -= UNLIKELY if value & (value - 1) or was in column else 0.0
    if name in ("gpus", "nodes") and _named_by_machine(row, name, mates):
        score -= USUAL
    if isinstance(value, int) and isinstance(was, int):
        score += SERIES * (_in_series(row, name, value) - _in_series(row, name, was))
    if was == usual and often >= 0.6 * len(column):
        score -= USUAL / 2  # what nearly all rows have
    if isinstance(value, int) and isinstance(was, int):
        law = counts.restored(row, name, value)
        # Devices are chosen, and the batch follows from them.
        if law < 0 or name not in ("gpus", "nodes"):
            above = row.mates[row.place - 1] if row.place else row
            score += USUAL / 2 * law + (ABOVE / 2 if law > 0 and above is not row and above.said(name) == was else 0.0)
            score += 1.0 if law > 0 and not why else 0.0  # which is why, and not a slip of the hand
        why = why or (" (in step with the other columns, as in the other rows)" if law > 0 else "")
        score += leaning(row, "sec_per_it", row.get("sec_per_it") or 0.0, row.get("sec_per_it") or 0.0, {name: value})
    in_k = _IN_K.fullmatch(row.cell(name)) if name == "seq" and isinstance(value, int) and was == row.seq else None
    thousands = in_k is not None and (in_k[2] or int(in_k[1]) * 1024 == was)
    shown = f"{value // 1024}{in_k[2]}" if in_k and thousands and isinstance(value, int) else str(value)
    if tokens and isinstance(value, int):
        shown = digits.as_there(row.cell(name), None, tokens.like(value)) or shown
    return Repair(name=name, value=value, shown=shown, score=score + stale(row, name), why=why,
                  ground="text" if said else "law")  # fmt: skip


def _by_a_zero(value: object, was: object, column: list[int | float | str | None]) -> bool:
    if not isinstance(value, int) or not isinstance(was, int) or was in column or value * was == 0:
        return False
    if value != 10 * was and was != 10 * value:
        return False
    return value in column or value & (value - 1) == 0 != was & (was - 1)


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


def _shape(row: Row) -> tuple[int | None, int | None]:
    return row.record.layers, row.record.hidden


def _only_there(row: Row, like: Row) -> bool:
    """Whether the row's device cannot do what it is said to, and another can."""
    most = [max(device.peak_tflops.values()) if device else 0.0 for device in (row.device, like.device)]
    return 0 < most[0] < (row.get("tflops") or 0.0) <= most[1]


def _is_let_otherwise(row: Row, like: Row) -> bool:
    """Whether another device has another price or draws another power."""
    listed = [heading for heading in row.cells if any(kind.startswith(("price", "power")) for kind, _ in meanings(heading)[:1])]
    return any(row.cells[heading] and row.cells[heading] != like.cells.get(heading) for heading in listed)


def _holds_less(row: Row, like: Row) -> bool:
    """Whether another device has not the memory that the row used."""
    return like.device is not None and like.device.memory_gib < (row.record.mem_gib or 0.0)


def _named_by_machine(row: Row, name: str, mates: list[Row]) -> bool:
    """Whether the name of its machine gives the row the count that is printed, as a slice of chips does: rows of the same name
    have it, and no name has two."""
    counts: dict[str, set[object]] = {}
    for mate in mates if row.states("machine") else ():
        counts.setdefault(mate.record.machine, set()).add(mate.said(name))
    alone = len(counts) > 1 and all(len(one) == 1 for one in counts.values())
    return alone and counts[row.record.machine] == {row.said(name)} if row.record.machine in counts else False


def _in_series(row: Row, name: str, value: int) -> bool:
    """Whether a count stands in the middle of those above and below, as in a sweep that doubles."""
    if not 0 < row.place < len(row.mates) - 1:
        return False
    above, below = row.mates[row.place - 1].said(name), row.mates[row.place + 1].said(name)
    return isinstance(above, int) and isinstance(below, int) and above != below and value * value == above * below


def _same_layout(row: Row, mate: Row, name: str, value: object) -> bool:
    """Whether the row would be another one's configuration: nobody runs it twice without a word."""
    names = ("size_label", "machine", "gpus", "nodes", "cp", "seq", *LAYOUT)
    same = all((value if n == name else row.said(n)) == mate.said(n) for n in names)
    return same and _described(row) == _described(mate)


def _took_another_time(row: Row, mate: Row) -> bool:
    own, its = row.record.sec_per_it, mate.record.sec_per_it
    return bool(own and its and not 0.95 < own / its < 1.05)


def _described(row: Row) -> dict[str, str]:
    """What else the row says, but for what follows from others."""
    follow = {relation.terms[0][0] for relation in row.sheet.found.get(row.key, ())}
    return {heading: cell for heading, cell in row.record.extra.items()
            if kind_beside(heading) != "ga" and EXTRA + heading not in follow}  # fmt: skip


def _divides(row: Row, name: str, value: object) -> bool:
    dp, mbs, gbs = (value if n == name else row.whole(n) for n in ("dp", "mbs", "gbs"))
    return not (dp and mbs and gbs) or gbs % (dp * mbs) == 0  # type: ignore[operator]
