"""Between which values a figure of a row may lie, as the rows say that are most like it, and which of them a slip of the hand
turns into what is printed.

    between(row, "mem_value")            (21.2, 28.0), by every row that differs in settings alone
    typed(row, "mem_value", (21.2, 28.0))    "25.2" where 115.2 is printed

Each setting has a least and a most power by which a figure follows it, whatever the formula.
"""
from __future__ import annotations

import math
import re

import numpy as np

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint import digits
from seatrial.notes.lint.digits import slips
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.rows.duplicates import settings

Powers = tuple[float, float]
Ends = tuple[np.ndarray, np.ndarray]
DRIVERS = ("gpus", "tp", "pp", "cp", "ep", "mbs", "each", "unsaid", "seq", "size")
"""`each`: the share of the batch that a device has; `unsaid`: the devices once more, where nobody says the batch."""
_SPEED: dict[str, Powers] = {"tp": (-0.9, 0.4), "pp": (-0.8, 0.4), "cp": (-0.6, 0.4), "ep": (-0.6, 0.4), "mbs": (-0.3, 0.6),
                             "each": (-0.1, 0.6), "gpus": (-0.4, 0.15), "unsaid": (-0.4, 0)}  # fmt: skip
_RATE = {**_SPEED, "seq": (-1.1, 0.3), "size": (-1.25, -0.5)}
POWERS: dict[str, dict[str, Powers]] = {
    "mem_value": {"gpus": (-1, 0.1), "tp": (-1, 0.1), "pp": (-1, 0.15), "cp": (-1, 0.1), "ep": (-1, 0.1), "mbs": (0, 1.05),
                  "each": (-0.05, 0.6), "unsaid": (-0.6, 0), "seq": (0, 1.3), "size": (0.1, 1.15)},
    "sec_per_it": {"gpus": (-0.15, 0.4), "tp": (-0.4, 0.9), "pp": (-0.4, 0.8), "cp": (-0.4, 0.6), "ep": (-0.4, 0.6),
                   "mbs": (-0.6, 0.3), "each": (0.4, 1.1), "unsaid": (-1.1, 0), "seq": (0.8, 2.1), "size": (0.6, 1.25)},
    "tokens_per_s_per_process": _RATE,
    "tokens_per_s": {**_RATE, "gpus": (0.6, 1.15)},
    "samples_per_s": {**_RATE, "gpus": (0.6, 1.15), "seq": (-2.1, -0.7)},
    "tflops": {**_SPEED, "seq": (-0.5, 0.5), "size": (-0.35, 0.6)},
    "mfu": {**_SPEED, "seq": (-0.5, 0.5), "size": (-0.35, 0.6)},
}  # fmt: skip
"""The least and the most power by which a figure follows a setting: ZeRO takes memory down with the devices, or does not."""
LEAST, MOST = ({name: np.array([powers[driver][end] for driver in DRIVERS]) for name, powers in POWERS.items()}
                 for end in (0, 1))  # fmt: skip
SWITCHED = math.log(2.2)
"""What one setting that is no number may do: recomputation, a kernel, another precision."""
SLACK = 1.05
"""Beyond the ends, which other rows' figures have that scatter too."""
OUTRIGHT = ("the point moved", "two digits exchanged")
"""Slips that change a number by far, and that hardly more than one other can have led to."""


def between(row: Row, name: str) -> tuple[float, float] | None:
    """In the unit of the field."""
    mates = [mate for mate in row.around if mate is not row and mate.tabular and not mate.planned and name not in mate.reasons
             and mate.get(name) and thing(mate) == thing(row)]  # fmt: skip
    own, low, high = np.array(drivers(row)), -math.inf, math.inf
    for mate in mates if own.any() else ():
        its, switched = np.array(drivers(mate)), sum(a != b for a, b in zip(switches(row), switches(mate)))
        if switched < 2 and ((own > 0) == (its > 0)).all():
            apart = np.log(np.where(own > 0, own, 1.0)) - np.log(np.where(its > 0, its, 1.0))
            least, most = allowed(apart[None], LEAST[name], MOST[name], SWITCHED * switched)
            there = math.log(mate.get(name) or 1.0)
            low, high = max(low, there + float(least[0])), min(high, there + float(most[0]))
    if not -math.inf < low < math.inf or low > high + 2 * math.log(SLACK):
        return None
    return math.exp(min(low, high)) / SLACK, math.exp(max(low, high)) * SLACK


def typed(row: Row, name: str, ends: tuple[float, float]) -> str | None:
    """The one number in a range, with as many digits behind the point as the column has, from which a slip leads to the printed
    one; else the one whose last digits are those of the printed one."""
    if (figure := row.printed(name)) is None:
        return None
    shown, (low, high) = figure.like(figure.value), sorted(figure.shown(end) for end in ends)
    places = {digits.places(mate.cell(name)) for mate in row.around if mate is not row and mate.cell(name)}
    ways = [one for one in slips(shown, (low, high)) if digits.places(one.text) in places]
    found = {one.text for one in ways if one.how in OUTRIGHT}
    if not found:
        whole, _, part = shown.partition(".")
        behind = [text for tens in range(10) if (text := f"{tens or ''}{whole[-1]}{part and '.'}{part}") != shown]
        near = {text for text in behind if low <= float(text) <= high} if len(whole) in (2, 3) else set()
        found = {one.text for one in ways if one.how == "a digit too many"} | near
    return found.pop() if len(found) == 1 else None


def allowed(apart: np.ndarray, least: np.ndarray, most: np.ndarray, switched: np.ndarray | float = 0.0) -> Ends:
    """The least and the most by which figures may differ where settings do, for each column and pair of rows."""
    more, less = np.maximum(apart, 0).T, np.minimum(apart, 0).T
    return least @ more + most @ less - switched, most @ more + least @ less + switched


_NAMED = re.compile(r"[A-Za-z]-(?:\d\.?\d?-)?\d+(?:\.\d+)?[BM]\b")


def drivers(row: Row) -> list[float]:
    """The settings that are numbers; 0 for one that nobody tells."""
    record, first = row.record, next(iter(row.cells.values()), "")  # `Osprey-20B anneal`, whatever stands above it
    size = label_parameters(record.size_label) or (label_parameters(first) if _NAMED.search(first) else None)
    weights = size[0] if size else (record.layers or 0) * (record.hidden or 0) ** 2
    devices, batch = row.world or record.nodes or record.dp or 0, row.get("gbs") or 0
    values = (devices, record.tp, record.pp, row.beside("cp"), row.beside("ep"), row.get("mbs"), batch / (devices or 1),
              1 if batch else devices, row.seq, weights)  # fmt: skip
    return [float(value) if value and 0 < value < math.inf else 0.0 for value in values]


def thing(row: Row) -> tuple[object, ...]:
    """What rows have to have in common to be compared at all: the device, a model without a size, the unit."""
    record, label = row.record, row.record.size_label
    return record.machine, row.devices, "" if label_parameters(label) else label, record.mem_unit


def switches(row: Row) -> tuple[object, ...]:
    record = row.record
    return (record.zero_stage, record.recompute, record.dtype, record.engine, record.attention, record.vp, record.schedule,
            record.threads,
            (record.experts, record.top_k, record.shared_experts, record.expert_ffn, record.ffn),
            (row.beside("shard"), row.beside("replicate")), tuple(settings(row)))  # fmt: skip
