"""Tables of benchmark results that are right, made from a model, a machine and the formulas; `lint_slips` plants slips in them.

table = clean_table(random.Random(3))         every row agrees with itself and with the text
table.text()                                  the notes as a person would keep them
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

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
            groups = f", {m.kv} KV heads, FFN {m.inner} (SwiGLU)" if m.gated else ""
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


def table(text: str) -> str:
    """Headings, and a row on each line, in words between spaces; two spaces part cells."""
    head, *rows = [[cell.strip() for cell in line.strip().split("  ") if cell] for line in text.strip().splitlines()]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in [head, ["---"] * len(head), *rows])
