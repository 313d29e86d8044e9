"""What a layout may do to a figure: four devices for one take no more than the fourth part of the time off, and twice the
micro-batch no more than twice the memory. A row that its neighbours deny all together was mistyped.

    check(sheet, doubted)                findings on figures that lie outside what the rows most like theirs allow

It takes no formula and no second column: each setting has a least and a most power by which a figure follows it, and whatever
two rows differ in adds up. Where one row breaks that with most of the rows that it can be compared with, and those keep to it
among themselves, it is the one.
"""
from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from seatrial.notes.lint.digits import slips
from seatrial.notes.lint.duplicates import settings
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.labels import label_parameters
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet

Powers = tuple[float, float]
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
_NAMES = tuple(POWERS)
_LEAST, _MOST = (np.array([[POWERS[name][driver][end] for driver in DRIVERS] for name in _NAMES]) for end in (0, 1))
SWITCHED = math.log(2.2)
"""What one setting that is no number may do: recomputation, a kernel, another precision."""
BEYOND, WIDEST = math.log(1.3), math.log(20.0)
"""How far outside of what a row allows another one is no scatter; and how much it may allow to say anything at all."""
SCATTER = 1.15
"""Within which a figure is as another row has it."""
FEWEST, AT_ONCE, SHARE, ODD = 4, 60, 0.6, 6
"""Rows; that are compared with each other; which share of them has to deny a row; and one in how many may be odd."""
CERTAIN, DENIED = math.log(2.5), 3
"""How far beyond what is allowed, and by how many rows, a point that moved is certain."""


def check(sheet: Sheet, doubted: set[tuple[str, int | None]]) -> list[Finding]:
    """`doubted`: files and lines of which something is said already."""
    found: list[Finding] = []
    for key, mates in sheet.tables.items():
        if len(mates) < FEWEST or not sheet.filled(key).intersection(POWERS):
            continue
        rows = [row for row in mates if row.tabular and not row.planned
                and (row.record.source_file, row.record.source_line) not in doubted]  # fmt: skip
        for start in range(0, len(rows), AT_ONCE):
            found += _among(rows[start : start + AT_ONCE])
    return found


def _among(rows: list[Row]) -> Iterator[Finding]:
    figures = np.array([[_figure(row, name) for row in rows] for name in _NAMES])
    there = np.isfinite(figures).sum(axis=1) >= FEWEST
    with np.errstate(invalid="ignore"):
        wide = [at for at in np.flatnonzero(there) if np.nanmax(figures[at]) - np.nanmin(figures[at]) > BEYOND]
    if not wide:
        return
    kinds, things = _coded([_switches(row) for row in rows]), _coded([_thing(row) for row in rows])
    drivers = np.array([_drivers(row) for row in rows])
    apart = drivers[:, None, :] - drivers[None, :, :]
    unlike = np.isnan(drivers)[:, None, :] != np.isnan(drivers)[None, :, :]
    apart, unlike = np.nan_to_num(apart), unlike.any(axis=2) | (things[:, None, :] != things[None, :, :]).any(axis=2)
    switched = (kinds[:, None, :] != kinds[None, :, :]).sum(axis=2)
    more, less = np.maximum(apart, 0), np.minimum(apart, 0)
    for at in wide:
        least = more @ _LEAST[at] + less @ _MOST[at] - SWITCHED * switched
        most = more @ _MOST[at] + less @ _LEAST[at] + SWITCHED * switched
        values = figures[at]
        step = values[:, None] - values[None, :]
        compared = ~unlike & (switched < 2) & (most - least < WIDEST) & np.isfinite(step)
        np.fill_diagonal(compared, False)
        with np.errstate(invalid="ignore"):
            off = np.where(step > most, step - most, np.where(step < least, step - least, 0.0))
        denied = compared & (np.abs(off) > BEYOND)
        for row, others in _odd(denied, compared, off):
            nearest = min(others, key=lambda other: (most[row, other] - least[row, other], abs(other - row)))
            meant = float(values[nearest] + least[row, nearest]), float(values[nearest] + most[row, nearest])
            certain = len(others) >= DENIED and abs(off[row, nearest]) > CERTAIN
            yield from _said(rows[row], _NAMES[at], rows[nearest], meant, certain)


def _odd(denied: np.ndarray, compared: np.ndarray, off: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """The fewest rows without which the rest agree, each with those that deny it."""
    left = np.ones(len(denied), dtype=bool)
    taken: list[int] = []
    while denied.any() and (counts := (denied & left & left[:, None]).sum(axis=1)).max() > 0:
        taken.append(int(counts.argmax()))
        left[taken[-1]] = False
        if len(taken) > max(1, len(denied) // ODD):
            return
    for row in taken:
        others = np.flatnonzero(denied[row] & left)
        with_ = int((compared[row] & left).sum())
        if len(others) >= 2 and len(others) >= SHARE * with_ and len({*np.sign(off[row, others])}) == 1:
            yield row, [int(other) for other in others]


def _figure(row: Row, name: str) -> float:
    value = row.get(name) if name not in row.reasons and row.cell(name) else None
    return math.log(value) if value and 0 < value < math.inf else math.nan


def _drivers(row: Row) -> list[float]:
    record, size = row.record, label_parameters(row.record.size_label)
    weights = size[0] if size else (record.layers or 0) * (record.hidden or 0) ** 2
    devices, batch = row.world or record.nodes, row.get("gbs")
    values = (devices, record.tp, record.pp, row.beside("cp"), row.beside("ep"), row.get("mbs"),
              batch / (devices or 1) if batch else None, 1 if batch else devices, row.seq, weights)  # fmt: skip
    return [math.log(value) if value and 0 < value < math.inf else math.nan for value in values]


def _coded(words: list[tuple[object, ...]]) -> np.ndarray:
    """Words as numbers, equal where they are alike."""
    codes: dict[object, int] = {}
    return np.array([[codes.setdefault(word, len(codes)) for word in of_row] for of_row in words])


def _thing(row: Row) -> tuple[object, ...]:
    """What rows have to have in common to be compared at all: the device, a model without a size, the unit."""
    label = row.record.size_label
    return row.record.machine, row.devices, "" if label_parameters(label) else label, row.record.mem_unit


def _switches(row: Row) -> tuple[object, ...]:
    record = row.record
    return (record.zero_stage, record.recompute, record.dtype, record.engine, record.attention, record.vp, record.schedule,
            tuple(settings(row)))  # fmt: skip


def _said(row: Row, name: str, other: Row, meant: tuple[float, float], certain: bool) -> Iterator[Finding]:
    figure = row.printed(name)
    if figure is None:
        return
    low, high = sorted(figure.shown(math.exp(end)) for end in meant)
    typed = slips(figure.like(figure.value), (low / SCATTER, high * SCATTER))
    moved = next((one.text for one in typed if one.how == "the point moved"), None)
    differ = ", ".join(_differences(row, other))
    expected = f"with {differ} it may be {low:.3g} to {high:.3g}" if differ else "no setting differs"
    what = f"{row.cell(name)} -> {moved} (the point moved)" if moved else row.cell(name)
    message = f"{what}: {other.where} has {other.cell(name)}, and {expected}"
    row.reasons[name] = "outlier"
    yield row.find("outlier", "error" if certain and moved else "warning", message, name=name, proposed=moved)


def _differences(row: Row, other: Row) -> Iterator[str]:
    for name in ("gpus", "nodes", "tp", "pp", "mbs", "gbs", "seq", "size_label", "zero_stage", "recompute", "dtype"):
        here, there = getattr(row.record, name), getattr(other.record, name)
        if here != there and here and there:
            yield f"{row.column(name)} {here} for {there}"
