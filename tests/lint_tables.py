"""Tables of benchmark results that are right, made from a model, a machine and the formulas, and slips to plant in them.

table = clean_table(random.Random(3))         every row agrees with itself and with the text
table.text()                                  the notes as a person would keep them
planted = SLIPS["wrong-dp"](table, rng)       the same with one slip: the row's line, the code, what should be proposed
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from seatrial import arith
from seatrial.spec import Model

COLUMNS = ("Nodes", "Size", "DP", "TP", "PP", "MBS", "GBS", "Mem", "Sec/it", "TFLOPs", "Notes")


@dataclass
class Line:
    """One row: what was asked, and the cells as they are printed."""

    dp: int
    tp: int
    pp: int
    mbs: int
    gbs: int
    seconds: float
    cells: dict[str, str] = field(default_factory=dict)


@dataclass
class Table:
    model: Model
    formula: str
    recompute: str
    procs: int
    vocab_stated: bool
    seconds_digits: int
    tflops_digits: int
    label: str
    rows: list[Line]
    style: int
    capacity_gb: int
    columns: tuple[str, ...] = COLUMNS

    def world(self, row: Line) -> int:
        return row.dp * row.tp * row.pp

    def tflops(
        self,
        row: Line,
        *,
        seconds: float | None = None,
        gbs: int | None = None,
        formula: str | None = None,
        recompute: str | None = None,
    ) -> float:
        return arith.tflops(
            formula or self.formula,
            self.model,
            samples=gbs or row.gbs,
            sec_per_it=seconds or row.seconds,
            processes=self.world(row),
            recompute=recompute or self.recompute,
            tp=row.tp,
            pp=row.pp,
        )

    def show(self, value: float, digits: int) -> str:
        return f"{value:.{digits}f}"

    def head(self) -> list[str]:
        """The text above the table, in one of four hands."""
        m = self.model
        recompute = "with activation checkpointing" if self.recompute == "full" else "without activation checkpointing"
        vocab = m.vocab if self.vocab_stated else None
        if self.style == 0:
            said = [
                ("num-layers", m.layers),
                ("hidden-size", m.hidden),
                ("num-attention-heads", m.heads),
                ("vocab-size", vocab),
            ]
            lines = [f"# {self.label} model on the cluster", "", "## Hyperparameters", ""]
            lines += [f"- --{name} {value}" for name, value in said if value]
            lines += ["", "## Runs", "", f"### Sequence Length={m.seq} {recompute}"]
        elif self.style == 1:
            said = [
                ("NLAYERS", m.layers),
                ("NHIDDEN", m.hidden),
                ("NHEADS", m.heads),
                ("SEQ_LEN", m.seq),
                ("VOCAB_SIZE", vocab),
            ]
            lines = ["# Throughput", "", f"## {recompute}", "", " / ".join(f"{name}={value}" for name, value in said if value)]
        elif self.style == 2:
            said = [("layers", m.layers), ("hidden", m.hidden), ("heads", m.heads), ("seq_len", m.seq), ("vocab_size", vocab)]
            settings = ", ".join(f"{name}={value}" for name, value in said if value)
            lines = ["# Notes", "", f"{self.label} model: {settings}", "", f"## Sweep {recompute}"]
        else:
            tokens = f" with a vocabulary of {vocab}" if vocab else ""
            groups = f", {m.kv} KV heads, FFN {m.inner} (SwiGLU)" if m.glu else ""
            shape = f"{m.layers} layers, hidden size {m.hidden} and {m.heads} heads{groups}{tokens}"
            lines = [
                "# Which layout?",
                "",
                f"We train a model of {shape}.",
                f"The sequence length is {m.seq}. All runs {recompute}.",
            ]
        if self.procs > 1:
            lines += ["", f"Nodes with {self.procs} GPUs, usable memory is at most {self.capacity_gb} GB a GPU."]
        return [*lines, ""]

    def lines(self) -> list[str]:
        def joined(cells: list[str]) -> str:
            return "| " + " | ".join(cells) + " |"

        rows = [
            joined(
                [row.cells.get(c, "") for c in self.columns]
                + list(row.cells.get("+", "").split("|") if "+" in row.cells else [])
            )
            for row in self.rows
        ]
        return [*self.head(), joined(list(self.columns)), joined(["---:"] * len(self.columns)), *rows]

    def text(self) -> str:
        return "\n".join(self.lines()) + "\n"

    def line_of(self, index: int) -> int:
        return len(self.head()) + 3 + index


def pad(n: int, k: int) -> int:
    return -(-n // k) * k


def clean_table(rng: random.Random, *, rows: int | None = None) -> Table:
    heads = rng.choice([8, 12, 16, 20, 24, 32, 40, 48, 64, 96])
    hidden = heads * rng.choice([64, 80, 96, 128])
    layers = rng.choice([12, 16, 20, 24, 30, 32, 36, 40, 48, 56, 60, 64, 72, 80, 96])
    seq = rng.choice([1024, 2048, 2048, 4096])
    llama = rng.random() < 0.25
    if llama:
        kv = rng.choice([h for h in (2, 4, 8, heads) if heads % h == 0])
        vocab = rng.choice([32000, 128256])
        model = Model(layers=layers, hidden=hidden, heads=heads, kv_heads=kv, family="llama", vocab=vocab, seq=seq)
    else:
        vocab = rng.choice([50257, 32000, 51200, 128256, 250680])
        model = Model(layers=layers, hidden=hidden, heads=heads, vocab=vocab, seq=seq)
    procs = rng.choice([1, 4, 8])
    peak = {1: 1.5, 4: 60.0, 8: 180.0}[procs]
    total, without = arith.label_sizes(model)
    size = total if rng.random() < 0.7 else without
    label = f"{size * 1000:.0f}M" if size < 1 else f"{size:.1f}B" if size < 10 else f"{size:.0f}B"
    table = Table(
        model=model,
        formula=rng.choice(["sc21", "hardware"] if llama else ["sc21", "sc21", "megatron-2022-old"]),
        recompute=rng.choice(["full", "full", "none"]),
        procs=procs,
        vocab_stated=llama or rng.random() < 0.6,
        seconds_digits=rng.choice([1, 2]),
        tflops_digits=2,
        label=label,
        rows=[],
        style=3 if llama else rng.randrange(4),
        capacity_gb={1: 28, 4: 31, 8: 77}[procs],
    )
    efficiency = rng.uniform(0.4, 0.7)
    layouts = _layouts(model, procs, rng)
    count = rows or rng.randint(4, 9)
    gbs = rng.choice([512, 1024, 1536, 2048])
    day = rng.randint(1, 20)
    memory: dict[tuple[int, int, int], float] = {}
    while len(table.rows) < count:
        dp, tp, pp = rng.choice(layouts)
        speed = peak * efficiency * rng.uniform(0.93, 1.07) * (0.985 ** (tp - 1)) * 0.997 ** (dp * tp * pp / procs)
        base = memory.setdefault((dp, tp, pp), rng.uniform(0.25, 0.4) * table.capacity_gb)
        for k, mbs in enumerate(rng.sample([1, 2, 4], k=rng.choice([1, 1, 2, 3]))):
            batch = pad(gbs, dp * mbs) if gbs >= dp * mbs else dp * mbs * 2
            if (
                any((r.dp, r.tp, r.pp, r.mbs, r.gbs) == (dp, tp, pp, mbs, batch) for r in table.rows)
                or len(table.rows) >= count
            ):
                continue
            # Within a layout the time follows the micro-batches, so that neither rule of scaling has anything to say.
            row = Line(dp, tp, pp, mbs, batch, 1.0)
            useful = batch / (dp * mbs) / (batch / (dp * mbs) + pp - 1)
            row.seconds = table.tflops(row, seconds=1.0) / (speed * useful * (1 + 0.03 * k))
            digits = table.seconds_digits if row.seconds > 5 else 3
            used = base * (1 + 0.22 * {1: 0, 2: 1, 4: 2}[mbs])
            row.cells = {
                "Nodes": str(dp * tp * pp // procs),
                "Size": label,
                "DP": str(dp),
                "TP": str(tp),
                "PP": str(pp),
                "MBS": str(mbs),
                "GBS": str(batch),
                "Mem": f"{used:.0f}GB" if procs > 1 else f"{used * 1024:.1f} MiB",
                "Sec/it": table.show(row.seconds, digits),
                "TFLOPs": table.show(table.tflops(row), 2),
                "Notes": f"03-{day:02d}",
            }
            table.rows.append(row)
    return table


def _layouts(model: Model, procs: int, rng: random.Random) -> list[tuple[int, int, int]]:
    tps = [t for t in (1, 2, 4, 8) if model.heads % t == 0]
    pps = [p for p in (1, 2, 4, 6, 8, 12) if model.layers % p == 0]
    every = [
        (d, t, p)
        for d in (1, 2, 4, 6, 8, 12, 16)
        for t in tps
        for p in pps
        if d * t * p % procs == 0 and d * t * p // procs <= 64
    ]
    return rng.sample(every, k=min(len(every), 5))


@dataclass
class Planted:
    table: Table
    row: int
    code: str
    proposed: str | None = None
    """What must be proposed; None where lint may leave it open."""
    column: str | None = None
    level: str = "error"


Slip = Callable[[Table, random.Random], "Planted | None"]


def _change(table: Table, index: int, **cells: str) -> Table:
    rows = [replace(row, cells=dict(row.cells)) for row in table.rows]
    rows[index].cells.update({name.replace("_", "/"): value for name, value in cells.items()})
    return replace(table, rows=rows)


def wrong_dp(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    dp = rng.choice([row.dp * 2, row.dp * 3, row.dp + 1])
    return Planted(_change(table, index, DP=str(dp)), index, "world-size", str(row.dp), "DP")


def wrong_nodes(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    nodes = int(table.rows[index].cells["Nodes"])
    return Planted(_change(table, index, Nodes=str(nodes * 2)), index, "world-size", str(nodes), "Nodes")


def milliseconds(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    return Planted(_change(table, index, Sec_it=f"{row.seconds * 1000:.1f}"), index, "ms-not-s", f"{row.seconds:.4f}", "Sec/it")


def minutes(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    return Planted(_change(table, index, Sec_it=f"{row.seconds / 60:.4f}"), index, "time-unit", None, "Sec/it")


def wrong_gbs(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    usual = [other.gbs for i, other in enumerate(table.rows) if i != index]
    if usual.count(row.gbs) <= len(usual) / 2:
        return None
    return Planted(_change(table, index, GBS=str(row.gbs * 2)), index, "tflops-mismatch", str(row.gbs), "GBS")


def typo_in_seconds(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    text = table.rows[index].cells["Sec/it"]
    at = next((i for i in range(len(text) - 1) if text[i : i + 2].isdigit() and abs(int(text[i]) - int(text[i + 1])) > 1), None)
    if at is None or len(text.replace(".", "")) < 4:
        return None
    typed = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return (
        Planted(_change(table, index, Sec_it=typed), index, "tflops-mismatch", text, "Sec/it")
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
        Planted(_change(table, index, TFLOPs=typed), index, "tflops-mismatch", text, "TFLOPs")
        if abs(float(typed) / float(text) - 1) > 0.03
        else None
    )


def other_formula(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    if table.model.glu:
        return None
    other = "megatron-2022-old" if table.formula == "sc21" else "sc21"
    row = table.rows[index]
    text = table.show(table.tflops(row, formula=other), 2)
    fine = 0.01 / float(text) < 0.003 and abs(float(text) / float(row.cells["TFLOPs"]) - 1) > 0.02
    return Planted(_change(table, index, TFLOPs=text), index, "formula-mixed", None, "TFLOPs", "warning") if fine else None


def per_node(table: Table, rng: random.Random) -> Planted | None:
    if table.procs == 1:
        return None
    index = rng.randrange(len(table.rows))
    text = table.show(table.procs * table.tflops(table.rows[index]), 2)
    return Planted(
        _change(table, index, TFLOPs=text), index, "tflops-per-node", table.rows[index].cells["TFLOPs"], "TFLOPs", "warning"
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


def batch_not_divisible(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    if row.dp * row.mbs < 2:
        return None
    return Planted(_change(table, index, GBS=str(row.gbs + 1), Sec_it="-", TFLOPs="-"), index, "batch-divisible", None, None)


def layers_not_divisible(table: Table, rng: random.Random) -> Planted | None:
    """A pipeline that the layers do not divide over, with everything else in order."""
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    pp = next((p for p in (5, 7, 9, 11, 13) if table.model.layers % p and (table.model.layers + 2) % p), None)
    if pp is None or row.dp * row.tp * pp % table.procs:
        return None
    changed = _change(
        table, index, PP=str(pp), Nodes=str(row.dp * row.tp * pp // table.procs), Sec_it="", TFLOPs="", Mem="fail"
    )
    return Planted(changed, index, "layers-divisible", None, "PP")


def memory_falls(table: Table, rng: random.Random) -> Planted | None:
    for i, a in enumerate(table.rows):
        for j, b in enumerate(table.rows):
            if (a.dp, a.tp, a.pp) == (b.dp, b.tp, b.pp) and b.mbs == 2 * a.mbs:
                changed = _change(_change(table, i, Mem=b.cells["Mem"]), j, Mem=a.cells["Mem"])
                return Planted(changed, i, "memory-monotone", a.cells["Mem"], "Mem", "warning")
    return None


def over_capacity(table: Table, rng: random.Random) -> Planted | None:
    if table.procs == 1:
        return None
    index = rng.randrange(len(table.rows))
    return Planted(
        _change(table, index, Mem=f"{table.capacity_gb + 4}GB"), index, "memory-over-capacity", None, "Mem", "warning"
    )


def wrong_label(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    number = float(table.label[:-1]) * rng.choice([0.5, 1.5, 2.0])
    text = f"{number:.0f}{table.label[-1]}" if number >= 10 else f"{number:.1f}{table.label[-1]}"
    return Planted(_change(table, index, Size=text), index, "label-vs-params", None, "Size", "warning")


def too_many_cells(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    changed = _change(table, index)
    changed.rows[index].cells["+"] = "-"
    return Planted(changed, index, "cells-vs-header", None, None)


def words_in_cell(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    cell = table.rows[index].cells["Mem"]
    return Planted(_change(table, index, Mem=f"{cell} (fluctuates a lot)"), index, "text-in-number", None, "Mem", "warning")


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


def clock_in_hz(table: Table, rng: random.Random) -> Planted | None:
    index = rng.randrange(len(table.rows))
    nodes = table.rows[index].cells["Nodes"]
    return Planted(_change(table, index, Nodes=f"{nodes} (2.4Hz)"), index, "clock-unit", "2.4GHz", "Nodes")


def wrong_tp(table: Table, rng: random.Random) -> Planted | None:
    """In a table that keeps to one TP."""
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    if len({other.tp for other in table.rows}) > 1 or len(table.rows) < 4:
        return None
    return Planted(_change(table, index, TP=str(row.tp * 2)), index, "world-size", str(row.tp), "TP")


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


def other_factor(table: Table, rng: random.Random) -> Planted | None:
    """One row counted as if with the other recompute factor, in a table of fine digits."""
    index = rng.randrange(len(table.rows))
    row = table.rows[index]
    if table.formula == "hardware":
        return None
    text = table.show(table.tflops(row, recompute="none" if table.recompute == "full" else "full"), 2)
    return (
        Planted(_change(table, index, TFLOPs=text), index, "formula-mixed", None, "TFLOPs", "warning")
        if 0.01 / float(text) < 0.002
        else None
    )


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
    return Planted(_change(table, index, Sec_it=tflops, TFLOPs=seconds), index, "swap-twin", seconds, "Sec/it", "warning")


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


def wrong_layers(table: Table, rng: random.Random) -> Planted | None:
    """A table with a column of layers, one of them wrong and still divisible."""
    index = rng.randrange(len(table.rows))
    row, layers = table.rows[index], table.model.layers
    other = layers + row.pp * rng.choice([2, 3])
    columns = (*table.columns[:2], "Layers", *table.columns[2:])
    rows = [replace(r, cells={**r.cells, "Layers": str(layers)}) for r in table.rows]
    rows[index].cells["Layers"] = str(other)
    return Planted(replace(table, rows=rows, columns=columns), index, "tflops-mismatch", str(layers), "Layers")


SLIPS: dict[str, Slip] = {
    "wrong-tp": wrong_tp,
    "whole-table-in-ms": whole_table_in_ms,
    "seconds-under-ms": seconds_under_ms,
    "other-factor": other_factor,
    "swapped-alone": swapped_alone,
    "aggregate": aggregate,
    "slow-run": slow_run,
    "wrong-layers": wrong_layers,
    "wrong-dp": wrong_dp,
    "wrong-nodes": wrong_nodes,
    "milliseconds": milliseconds,
    "minutes": minutes,
    "wrong-gbs": wrong_gbs,
    "typo-in-seconds": typo_in_seconds,
    "typo-in-tflops": typo_in_tflops,
    "other-formula": other_formula,
    "per-node": per_node,
    "swapped": swapped,
    "batch-not-divisible": batch_not_divisible,
    "layers-not-divisible": layers_not_divisible,
    "memory-falls": memory_falls,
    "over-capacity": over_capacity,
    "wrong-label": wrong_label,
    "too-many-cells": too_many_cells,
    "words-in-cell": words_in_cell,
    "duplicate": duplicate,
    "repeated": repeated,
    "clock-in-hz": clock_in_hz,
}

__all__ = ["SLIPS", "Planted", "Table", "clean_table"]
