"""Slips in times and in what follows from them: units, digits, formulas, exchanged cells, a run that was disturbed."""
from __future__ import annotations

import random
from dataclasses import replace

from lint_slip import Planted, Slip, change
from lint_tables import Line, Table


def milliseconds(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    return Planted(change(table, index, Sec_it=f"{row.seconds * 1000:.1f}"), index, "ms-not-s", f"{row.seconds:.4f}", "Sec/it")


def minutes(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    return Planted(change(table, index, Sec_it=f"{row.seconds / 60:.4f}"), index, "time-unit", None, "Sec/it")


def whole_table_in_ms(table: Table, rng: random.Random) -> Planted | None:
    rows = [replace(row, cells={**row.cells, "Sec/it": f"{row.seconds * 1000:.1f}"}) for row in table.rows]
    index = rng.randrange(len(rows))
    return Planted(replace(table, rows=rows), index, "ms-not-s", f"{table.rows[index].seconds:.4f}", "Sec/it")


def seconds_under_ms(table: Table, rng: random.Random) -> Planted | None:
    columns = tuple("ms/it" if c == "Sec/it" else c for c in table.columns)
    rows = [replace(row, cells={**row.cells, "ms/it": f"{row.seconds * 1000:.1f}"}) for row in table.rows]
    index = rng.randrange(len(rows))
    rows[index].cells["ms/it"] = rows[index].cells["Sec/it"]
    return Planted(replace(table, rows=rows, columns=columns), index, "time-unit", None, "ms/it")


def typo_in_seconds(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    text = table.rows[index].cells["Sec/it"]
    at = next((i for i in range(len(text) - 1) if text[i : i + 2].isdigit() and abs(int(text[i]) - int(text[i + 1])) > 1), None)
    if at is None or len(text.replace(".", "")) < 4:
        return None
    typed = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return (
        Planted(change(table, index, Sec_it=typed), index, "tflops-mismatch", text, "Sec/it")
        if abs(float(typed) / float(text) - 1) > 0.03
        else None
    )


def typo_in_tflops(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    text = table.rows[index].cells["TFLOPs"]
    at = next((i for i in range(len(text) - 1) if text[i : i + 2].isdigit() and abs(int(text[i]) - int(text[i + 1])) > 1), None)
    if at is None or len(text.replace(".", "")) < 4:
        return None
    typed = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return (
        Planted(change(table, index, TFLOPs=typed), index, "tflops-mismatch", text, "TFLOPs")
        if abs(float(typed) / float(text) - 1) > 0.03
        else None
    )


def other_formula(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    if table.model.gated:
        return None
    other = "megatron-2022-old" if table.formula == "sc21" else "sc21"
    row = table.rows[index]
    text = table.show(table.tflops(row, formula=other), 2)
    fine = 0.01 / float(text) < 0.003 and abs(float(text) / float(row.cells["TFLOPs"]) - 1) > 0.02
    return Planted(change(table, index, TFLOPs=text), index, "formula-mixed", None, "TFLOPs", "warning") if fine else None


def other_factor(table: Table, rng: random.Random) -> Planted | None:
    """One row counted as if with the other recompute factor, in a table of fine digits."""
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    if table.formula == "hardware":
        return None
    text = table.show(table.tflops(row, recompute="none" if table.recompute == "full" else "full"), 2)
    return (
        Planted(change(table, index, TFLOPs=text), index, "formula-mixed", None, "TFLOPs", "warning")
        if 0.01 / float(text) < 0.002
        else None
    )


def per_node(table: Table, rng: random.Random) -> Planted | None:
    if table.procs == 1:
        return None
    index = rng.randrange(len(table.rows))
    text = table.show(table.procs * table.tflops(table.rows[index]), 2)
    return Planted(
        change(table, index, TFLOPs=text), index, "tflops-per-node", table.rows[index].cells["TFLOPs"], "TFLOPs", "warning"
    )


def swapped(table: Table, rng: random.Random) -> Planted | None:
    """The row again elsewhere in the table, under another note, with the two cells exchanged."""
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    seconds, tflops = row.cells["Sec/it"], row.cells["TFLOPs"]
    if abs(float(seconds) / float(tflops) - 1) < 0.2:
        return None
    twin = replace(row, cells={**row.cells, "Sec/it": tflops, "TFLOPs": seconds, "Notes": "03-28 again"})
    return Planted(replace(table, rows=[*table.rows, twin]), len(table.rows), "swap-twin", seconds, "Sec/it")


def swapped_alone(table: Table, rng: random.Random) -> Planted | None:
    """Exchanged cells without a twin, in a table whose TFLOPs lie close together."""
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    others = [table.tflops(other) for i, other in enumerate(table.rows) if i != index]
    seconds, tflops = row.cells["Sec/it"], row.cells["TFLOPs"]
    if len(others) < 3 or max(others) / min(others) > 1.4 or not 0.95 * min(others) < float(tflops) < 1.05 * max(others):
        return None
    if 0.6 < float(seconds) / float(tflops) < 1.6:
        return None
    return Planted(change(table, index, Sec_it=tflops, TFLOPs=seconds), index, "swap-twin", seconds, "Sec/it", "warning")


def aggregate(table: Table, rng: random.Random) -> Planted | None:
    """A column of PetaFLOPs that follows from the others, but for one row."""
    columns = (*table.columns[:-1], "Aggr. PetaFLOPs", table.columns[-1])
    divisor = rng.choice([1000, 1024])
    rows = [
        replace(row, cells={**row.cells, "Aggr. PetaFLOPs": f"{table.tflops(row) * table.world(row) / divisor:.3f}"})
        for row in table.rows
    ]
    index = rng.randrange(len(rows))
    wrong = table.tflops(rows[index]) * table.world(rows[index]) / divisor * 1.5
    if wrong < 0.05:
        return None
    rows[index].cells["Aggr. PetaFLOPs"] = f"{wrong:.3f}"
    return Planted(replace(table, rows=rows, columns=columns), index, "aggregate", None, "Aggr. PetaFLOPs")


def slow_run(table: Table, rng: random.Random) -> Planted | None:
    """The configuration of another row with a smaller batch, and much slower than the micro-batches explain."""
    row = next((r for r in table.rows if r.gbs // (r.dp * r.mbs) >= 16), None)
    if row is None or len(table.rows) < 4:
        return None
    slots = row.gbs // (row.dp * row.mbs)
    few = Line(row.dp, row.tp, row.pp, row.mbs, (slots * 3 // 4) * row.dp * row.mbs, 1.0)
    few.seconds = 1.35 * row.seconds * (slots * 3 // 4 + row.pp - 1) / (slots + row.pp - 1)
    digits = len(row.cells["Sec/it"].partition(".")[2])
    few.cells = {
        **row.cells,
        "GBS": str(few.gbs),
        "Sec/it": table.show(few.seconds, digits),
        "TFLOPs": table.show(table.tflops(few), 2),
    }
    return Planted(replace(table, rows=[*table.rows, few]), len(table.rows), "gbs-scaling-outlier", None, "Sec/it", "warning")


SLIPS: dict[str, Slip] = {
    "milliseconds": milliseconds,
    "minutes": minutes,
    "whole-table-in-ms": whole_table_in_ms,
    "seconds-under-ms": seconds_under_ms,
    "typo-in-seconds": typo_in_seconds,
    "typo-in-tflops": typo_in_tflops,
    "other-formula": other_formula,
    "other-factor": other_factor,
    "per-node": per_node,
    "swapped": swapped,
    "swapped-alone": swapped_alone,
    "aggregate": aggregate,
    "slow-run": slow_run,
}
