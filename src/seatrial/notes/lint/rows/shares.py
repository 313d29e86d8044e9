"""The memory that a row was meant to have, where what is printed cannot be: by rows whose devices hold as much of the model.

    meant(row)          the cell as it should read, where a slip of the hand or all rows of its kind tell; else None
"""
from __future__ import annotations

import statistics

from seatrial.notes.lint import digits
from seatrial.notes.lint.digits import Slip
from seatrial.notes.lint.row import Row

ALIKE = 1.05
"""Within which rows of one share have the same memory."""
NEAR = 1.1
"""Within which a slip that is less likely than a point that moved has to lead to what they have."""
FEWEST = 3


def meant(row: Row) -> str | None:
    figure, kin = row.printed("mem_value"), _kin(row)
    others = [mate.record.mem_gib for mate in row.around
              if mate is not row and mate.record.mem_gib and "mem_value" not in mate.reasons]  # fmt: skip
    same = [mate.record.mem_gib or 0.0 for mate in kin if mate.record.mbs == row.record.mbs]
    if figure is None or len(others) < 2 and not same:
        return None
    scale = figure.value / (row.record.mem_gib or 1.0) * figure.scale
    alike = len(same) >= FEWEST and max(same) < ALIKE * min(same)
    low, high = (0.85, 1.18) if alike else (0.6, 1.6) if same else (0.7, 1.4)
    low, high = low * min(same or others), high * max(same or others)
    if not same:  # between those with fewer and with more at a time
        sizes = {mate: (mate.record.mbs or 0) - (row.record.mbs or 0) for mate in kin}
        low = max([low, *(0.9 * (mate.record.mem_gib or 0.0) for mate, more in sizes.items() if more < 0)])
        high = min([high, *(1.1 * (mate.record.mem_gib or 0.0) for mate, more in sizes.items() if more > 0)])
    ends = low * scale, high * scale
    places = {digits.places(mate.cell("mem_value")) for mate in row.around if mate is not row and mate.cell("mem_value")}
    typed = {slip: _shorter(slip.text, max(places, default=0)) for slip in digits.slips(figure.like(figure.value), ends)}
    moved = [text for slip, text in typed.items() if slip.how == "the point moved"]
    told = [text for text in moved if digits.places(text) in places]
    if len(told) != 1:
        close = [f"{slip.value:.{max(places, default=0)}f}" for slip, text in typed.items()
                 if text in moved and _apart(slip.value / scale, kin, row) < NEAR]  # fmt: skip
        near = {_apart(slip.value / scale, kin, row): text for slip, text in typed.items()
                if digits.places(text) in places and _is_clear(slip, row.cell("mem_value"))}  # fmt: skip
        told = close if len(close) == 1 else [near[min(near)]] if near and min(near) < NEAR else moved
    if not told and alike:
        return figure.like(statistics.median(same) * figure.value / (row.record.mem_gib or 1.0))
    told = told if len(told) == 1 else _between(row, figure.like(figure.value), scale)
    return told[0] + row.cell("mem_value").lstrip("0123456789.,'") if len(told) == 1 else None


def _between(row: Row, shown: str, scale: float) -> list[str]:
    """What a slip of the hand leads from to what is printed, within what layouts that differ in one direction allow: half the
    tensor parallelism or twice the micro-batch takes at most twice as much, and no less; recomputed is less."""
    low, high = 0.0, float("inf")
    mates = [mate for mate in row.elsewhere[:MOST_COMPARED] if mate is not row and mate.record.mem_gib
            and "mem_value" not in mate.reasons]  # fmt: skip
    for mate in mates:
        memory, more = mate.record.mem_gib or 1.0, _more(row, mate)
        if more is not None and not any(_denied(mate, other) for other in mates):
            low, high = max(low, memory * min(more)), min(high, memory * max(more))
    if not 0 < low <= high * SLACK or high > WIDEST * low:
        return []
    ends = low / SLACK * scale, high * SLACK * scale
    changed = [shown[:at] + digit + shown[at + 1 :] for at, was in enumerate(shown) if was.isdigit() for digit in "0123456789"
               if digit != was and (at or digit != "0")]  # fmt: skip
    found = {slip.text for slip in digits.slips(shown, ends) if digits.places(slip.text) == digits.places(shown)}
    near = [text for text in changed if ends[0] <= float(text) <= ends[1]]
    inside = [text for text in near if low * scale <= float(text) <= high * scale]  # of any one digit there are many
    return sorted(found) if not near else inside if not found and near == inside else []


SLACK, WIDEST, MOST_COMPARED = 1.06, 2.2, 200
"""What else differs between two layouts, how far apart the bounds may be, and how many rows are compared."""


def _denied(row: Row, other: Row) -> bool:
    """Whether two rows cannot both be right: more at a time in less memory."""
    more = _more(row, other) if row is not other else None
    times = (row.record.mem_gib or 1.0) / (other.record.mem_gib or 1.0)
    return more is not None and (times * SLACK < min(more) or times > SLACK * max(more))


def _more(row: Row, mate: Row) -> tuple[float, float] | None:
    """The least and the most times what another row holds that this one may, where all that differs goes in one direction."""
    own, its = row.record, mate.record
    alike = (own.size_label, own.machine, row.beside("cp"), row.seq, own.mem_unit, own.zero_stage, row.described) == (
        its.size_label, its.machine, mate.beside("cp"), mate.seq, its.mem_unit, its.zero_stage, mate.described)  # fmt: skip
    pairs = [(own.mbs, its.mbs), (its.tp, own.tp), (its.pp, own.pp)]
    if not alike or any((one is None) != (other is None) for one, other in pairs) or pairs[0] == (None, None):
        return None
    ratios = [one / other for one, other in pairs if one and other]
    if {*ratios} == {1.0} and own.dp and its.dp:
        ratios.append(its.dp / own.dp)  # where nothing else differs, fewer replicas each hold more of what is sharded
    kept = {"": 0, "full": 1, "selective": 2, "none": 3}
    one, other = kept.get(own.recompute, 0), kept.get(its.recompute, 0)
    if min(ratios) < 1 < max(ratios) or one != other and (max(ratios) != 1 or min(ratios) != 1 or not one * other):
        return None
    times = 1.0
    for ratio in ratios:
        times *= ratio
    if one != other:
        return (SLACK**2, float("inf")) if one > other else (0.0, 1 / SLACK**2)
    return 1.0, times


def _is_clear(slip: Slip, cell: str) -> bool:
    """Whether it changes the number by far: a digit typed before it, or its first two exchanged."""
    leads = slip.text[:1] != cell[:1]
    return slip.how == "a digit too many" and 5 * slip.value < float(digits.plain(cell) or 0) or (
        slip.how == "two digits exchanged" and leads)  # fmt: skip


def _apart(memory: float, kin: list[Row], row: Row) -> float:
    """By which factor it differs from the nearest of its kind; a larger micro-batch needs more, and a smaller one less."""
    factors = []
    for mate in kin:
        its, more = mate.record.mem_gib or 1.0, (mate.record.mbs or 0) - (row.record.mbs or 0)
        if more == 0 or (more > 0) == (its >= memory):
            factors.append(max(its / memory, memory / its))
    return min(factors, default=float("inf"))


def _kin(row: Row) -> list[Row]:
    """Rows of the file whose devices hold the same share of the model, with any micro-batch."""
    record, own = row.record, _share(row)
    if record.tp is None and record.pp is None and record.mbs is None:
        return []
    return [mate for mate in row.elsewhere if mate is not row and mate.record.mem_gib and "mem_value" not in mate.reasons
            and _share(mate) == own]  # fmt: skip


def _share(row: Row) -> tuple[object, ...]:
    record = row.record
    return (record.size_label, record.machine, record.tp, record.pp, row.beside("cp"), row.seq, record.mem_unit,
            record.recompute, record.zero_stage, row.described)  # fmt: skip


def _shorter(text: str, places: int) -> str:
    """Without noughts beyond as many digits behind the point as a column has."""
    while digits.places(text) > places and text.endswith("0"):
        text = text[:-1].rstrip(".")
    return text
