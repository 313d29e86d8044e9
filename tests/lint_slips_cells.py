"""Slips in memory and clock, and rows and cells that should not be there."""
from __future__ import annotations

import random
from dataclasses import replace

from lint_slip import Planted, Slip, change
from lint_tables import Table


def memory_falls(table: Table, rng: random.Random) -> Planted | None:
    for i, a in enumerate(table.rows):
        for j, b in enumerate(table.rows):
            if (a.dp, a.tp, a.pp) == (b.dp, b.tp, b.pp) and b.mbs == 2 * a.mbs:
                changed = change(change(table, i, Mem=b.cells["Mem"]), j, Mem=a.cells["Mem"])
                return Planted(changed, i, "memory-monotone", a.cells["Mem"], "Mem", "warning", other=j)
    return None


def over_capacity(table: Table, rng: random.Random) -> Planted | None:
    if table.procs == 1:
        return None
    index = rng.randrange(len(table.rows))
    return Planted(
        change(table, index, Mem=f"{table.capacity_gb + 4}GB"), index, "memory-over-capacity", None, "Mem", "warning"
    )


def clock_in_hz(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    nodes = table.rows[index].cells["Nodes"]
    return Planted(change(table, index, Nodes=f"{nodes} (2.4Hz)"), index, "clock-unit", "2.4GHz", "Nodes")


def too_many_cells(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    changed = change(table, index)
    changed.rows[index].cells["+"] = "-"
    return Planted(changed, index, "cells-vs-header", None, None)


def words_in_cell(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    cell = table.rows[index].cells["Mem"]
    return Planted(change(table, index, Mem=f"{cell} (fluctuates a lot)"), index, "text-in-number", None, "Mem", "info")


def duplicate(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    other = replace(row, seconds=row.seconds * 1.08)
    digits = len(row.cells["Sec/it"].partition(".")[2])
    other.cells = {**row.cells, "Sec/it": table.show(other.seconds, digits), "TFLOPs": table.show(table.tflops(other), 2)}
    return Planted(replace(table, rows=[*table.rows, other]), len(table.rows), "duplicate-config", None, None, "warning")


def repeated(table: Table, rng: random.Random) -> Planted | None:
    row = table.rows[rng.randrange(len(table.rows))]
    return Planted(
        replace(table, rows=[*table.rows, replace(row, cells=dict(row.cells))]), len(table.rows), "repeat", None, None, "info"
    )


SLIPS: dict[str, Slip] = {
    "memory-falls": memory_falls,
    "over-capacity": over_capacity,
    "clock-in-hz": clock_in_hz,
    "too-many-cells": too_many_cells,
    "words-in-cell": words_in_cell,
    "duplicate": duplicate,
    "repeated": repeated,
}
