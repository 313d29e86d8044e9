"""Slips in what a row asked for: its sizes, its layout, its model."""
from __future__ import annotations

import random
from dataclasses import replace

from lint_slip import Planted, Slip, change
from lint_tables import Table


def wrong_dp(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    dp = rng.choice([row.dp * 2, row.dp * 3, row.dp + 1])
    return Planted(change(table, index, DP=str(dp)), index, "world-size", str(row.dp), "DP")


def wrong_nodes(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    nodes = int(table.rows[index].cells["Nodes"])
    return Planted(change(table, index, Nodes=str(nodes * 2)), index, "world-size", str(nodes), "Nodes")


def wrong_tp(table: Table, rng: random.Random) -> Planted | None:
    """In a table that keeps to one TP."""
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    if len({other.tp for other in table.rows}) > 1 or len(table.rows) < 4:
        return None
    return Planted(change(table, index, TP=str(row.tp * 2)), index, "world-size", str(row.tp), "TP")


def wrong_gbs(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    usual = [other.gbs for i, other in enumerate(table.rows) if i != index]
    if usual.count(row.gbs) <= len(usual) / 2:
        return None
    return Planted(change(table, index, GBS=str(row.gbs * 2)), index, "tflops-mismatch", str(row.gbs), "GBS")


def wrong_layers(table: Table, rng: random.Random) -> Planted | None:
    """A table with a column of layers, one of them wrong and still divisible."""
    index = rng.randrange(len(table.rows))
    row, layers = table.rows[index], table.model.layers
    other = layers + row.pp * rng.choice([2, 3])
    columns = (*table.columns[:2], "Layers", *table.columns[2:])
    rows = [replace(r, cells={**r.cells, "Layers": str(layers)}) for r in table.rows]
    rows[index].cells["Layers"] = str(other)
    return Planted(replace(table, rows=rows, columns=columns), index, "tflops-mismatch", str(layers), "Layers")


def wrong_label(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    number = float(table.label[:-1]) * rng.choice([0.5, 1.5, 2.0])
    text = f"{number:.0f}{table.label[-1]}" if number >= 10 else f"{number:.1f}{table.label[-1]}"
    return Planted(change(table, index, Size=text), index, "label-vs-params", None, "Size", "warning")


def batch_not_divisible(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    if row.dp * row.mbs < 2:
        return None
    return Planted(change(table, index, GBS=str(row.gbs + 1), Sec_it="-", TFLOPs="-"), index, "batch-divisible", None, None)


def layers_not_divisible(table: Table, rng: random.Random) -> Planted | None:
    """A pipeline that the layers do not divide over, with everything else in order."""
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    pp = next((p for p in (5, 7, 9, 11, 13) if table.model.layers % p and (table.model.layers + 2) % p), None)
    if pp is None or row.dp * row.tp * pp % table.procs:
        return None
    changed = change(
        table, index, PP=str(pp), Nodes=str(row.dp * row.tp * pp // table.procs), Sec_it="", TFLOPs="", Mem="fail"
    )
    return Planted(changed, index, "layers-divisible", None, "PP", "warning")


SLIPS: dict[str, Slip] = {
    "wrong-dp": wrong_dp,
    "wrong-nodes": wrong_nodes,
    "wrong-tp": wrong_tp,
    "wrong-gbs": wrong_gbs,
    "wrong-layers": wrong_layers,
    "wrong-label": wrong_label,
    "batch-not-divisible": batch_not_divisible,
    "layers-not-divisible": layers_not_divisible,
}
