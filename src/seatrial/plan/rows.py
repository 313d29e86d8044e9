"""A table of trials as the planner reads it: CSV cells become trials, what is missing takes its stated default.

    table = rows.read("rows.csv", cluster)          or the folder of a logbook
    table.rows[0].trial, table.rows[0].reject, table.rows[0].sec_per_it

A missing column, an empty cell or `unstated` means the default in DEFAULTS. Where a table holds a corrected value beside a
printed one (`dp` and `dp_fixed`), the corrected one counts. A row that cannot be is kept, with the reason.
"""
from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from seatrial import rules
from seatrial.errors import BadInput, Infeasible
from seatrial.fields import nearest
from seatrial.plan.configs import PRECISIONS, RECOMPUTE, SCHEDULES, Configs
from seatrial.spec import Batch, Cluster, Environment, Family, Model, Topology, Trial

DEFAULTS = {
    "layers": "needed",
    "hidden": "needed",
    "heads": "the divisor of hidden, a multiple of TP, with a head size nearest to 128",
    "kv_heads": "heads",
    "head_dim": "hidden / heads",
    "ffn": "4 x hidden; for families with SwiGLU (llama and its kin) 8/3 x hidden, rounded up to 256",
    "seq": "2048",
    "vocab": "50257",
    "family": "gpt2; llama with kv_heads below heads or with glu yes",
    "nodes": "as many as DP x TP x PP processes fill",
    "procs_per_node": "what the processes and the nodes make of it, at most the cluster's",
    "dp": "what the nodes leave beside TP x PP",
    "tp, pp, vp, mbs": "1",
    "gbs": "DP x MBS",
    "zero_stage": "0",
    "activation_ckpt or recompute": "none",
    "schedule": "1f1b; interleaved with VP above 1",
    "dtype": "bf16 where the device has it, else fp16; fp32 on a CPU",
    "sequence_parallel": "no",
    "flash": "as is usual on the device",
    "session": "the date, where there is one",
    "engine": "megatron",
    "freq_ghz": "the device's clock",
    "env, torch_version": "none",
}
"""Column -> what an empty cell means."""

KNOWN = frozenset({*re.split(r", | or ", ", ".join(DEFAULTS)), "zero", "precision", "glu", "mem_gib", "trial"})
"""Columns that are read beside the fields of a record."""

YES, NO = ("yes", "true", "1", "on"), ("no", "false", "0", "off")
ALIASES = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32", "float": "fp32", "tf32": "fp32"}
ENGINES = {"": "megatron", "megatron": "megatron", "deepspeed": "megatron", "nemo": "megatron"}
"""Whose rules an engine has, by the first word of its name."""
UNSTATED = ("", "unstated", "-", "n/a", "none stated")
MOST_ROWS = 200_000


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table."""

    cells: dict[str, str]
    trial: Trial | None
    """None when the row was rejected."""
    reject: str = ""
    """`code: message`, or nothing."""
    flash: int = -1
    session: str = ""
    factors: tuple[str, ...] = ()
    """What of its environment may change its speed, each a name: an allocator, a version."""
    sec_per_it: float | None = None
    mem_gib: float | None = None
    counts: bool = False
    """Whether it may be learned from: measured, not a copy of another row, not an estimate."""
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    ignored: tuple[str, ...] = ()
    """Columns that nothing reads."""

    def configs(self) -> Configs:
        """Of the rows that were not rejected, in order."""
        return configs_of([row for row in self.rows if row.trial is not None])


def configs_of(rows: list[Row]) -> Configs:
    import numpy as np

    kept = Configs.from_trials([row.trial for row in rows if row.trial is not None])
    return Configs(**{**vars(kept), "flash": np.array([row.flash for row in rows], dtype=np.int64)})


def read(path: str | Path, cluster: Cluster) -> Table:
    """A CSV file, or the folder of a logbook."""
    from seatrial.tables.unknown import unknown_columns

    if Path(path).is_dir():
        return _logbook(Path(path), cluster)
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = tuple(reader.fieldnames or ())
            if not {"layers", "hidden"} <= set(header):
                missing = [name for name in ("layers", "hidden") if name not in header]
                raise BadInput(f"{path}: no column {' or '.join(missing)}; {nearest(missing[0], header)}")
            lines = []
            for line in reader:
                lines.append(line)
                if len(lines) > MOST_ROWS:
                    raise BadInput(f"{path}: more than {MOST_ROWS} rows; split the file")
    except UnicodeDecodeError as e:
        raise BadInput(f"{path}: not UTF-8 text ({e.reason} at byte {e.start})") from None
    except csv.Error as e:
        raise BadInput(f"{path}: not CSV: {e}") from None
    except OSError as e:
        raise BadInput(f"{path}: {e.strerror or e}") from None
    rows = tuple(read_row(line, cluster, f"{path}:{n}") for n, line in enumerate(lines, 2))
    return Table(header=header, rows=rows, ignored=tuple(unknown_columns(header, (), also=KNOWN)[0]))


def _logbook(folder: Path, cluster: Cluster) -> Table:
    from seatrial.logbook import Logbook

    with Logbook(folder) as book:
        lines = [{name: _cell(value) for name, value in record.items()} for record in book.records()]
    header = tuple(dict.fromkeys(name for line in lines for name in line))
    names = [line.get("record_id") or str(n) for n, line in enumerate(lines)]
    return Table(header=header, rows=tuple(read_row(line, cluster, f"{folder}:{name}") for name, line in zip(names, lines)))


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return "" if value is None else str(value)


def read_row(line: Mapping[str, object] | Mapping[str | None, object], cluster: Cluster, where: str = "") -> Row:
    from seatrial.tables.unknown import axes_lacking, refusal

    cells = {key: value if isinstance(value, str) else "" for key, value in line.items() if isinstance(key, str)}
    got = _Cells(cells)
    session = got.text("session") or got.text("date")
    try:
        if why := refusal(axes_lacking(tuple(cells)), list(cells), list(cells.values())):
            raise Infeasible(why, code="unknown-axis")
        flash = -1 if not got.text("flash") else int(got.flag("flash"))
        trial = _trial(got, cluster)
        rules.check(trial)
    except Infeasible as e:
        return Row(cells=cells, trial=None, reject=f"{e.code}: {e}", session=session, where=where)
    except BadInput as e:
        return Row(cells=cells, trial=None, reject=f"bad-value: {e}", session=session, where=where)
    sec = _number(got.text("sec_per_it"))
    memory = _number(got.text("mem_gib")) or _number(got.text("mem_value"))
    if memory is not None and got.text("mem_unit").lower() in ("mib", "mb"):
        memory /= 1024
    status, state = got.text("status").lower(), got.text("state").lower()
    counts = status in ("", "ok", "measured") and state in ("", "measured") and not got.text("duplicate_of")
    return Row(cells=cells, trial=trial, flash=flash, session=session, factors=_factors(got, trial), sec_per_it=sec,
               mem_gib=memory, counts=counts, where=where)


class _Cells:
    def __init__(self, cells: Mapping[str, str]):
        self.cells = cells

    def text(self, *names: str) -> str:
        for name in names:
            for column in (f"{name}_fixed", name):
                value = self.cells.get(column, "").strip()
                if value.lower() not in UNSTATED:
                    return value
        return ""

    def whole(self, *names: str) -> int | None:
        text = self.text(*names)
        if not text:
            return None
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            raise BadInput(f"{names[0]} is {text!r}: expected a whole number") from None
        if not math.isfinite(value) or value != int(value) or abs(value) > 1e12:
            raise BadInput(f"{names[0]} is {text!r}: expected a whole number")
        return int(value)

    def flag(self, *names: str) -> bool:
        text = self.text(*names).lower()
        if text not in (*YES, *NO, ""):
            raise BadInput(f"{names[0]} is {text!r}: expected yes or no")
        return text in YES

    def choice(self, allowed: tuple[str, ...], *names: str) -> str:
        text = self.text(*names).lower()
        if text and text not in allowed:
            raise BadInput(f"{names[0]} is {text!r}: {nearest(text, allowed)}")
        return text


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _trial(got: _Cells, cluster: Cluster) -> Trial:
    tp, pp, vp, mbs = (got.whole(name) or 1 for name in ("tp", "pp", "vp", "mbs"))
    nodes, dp, procs = got.whole("nodes"), got.whole("dp"), got.whole("procs_per_node")
    if dp is None:
        dp = max(1, nodes * (procs or cluster.procs_per_node) // (tp * pp)) if nodes else 1
    nodes, procs = _filled(dp * tp * pp, nodes, procs, cluster.procs_per_node)
    here = cluster.with_procs(procs).with_nodes(nodes)
    model = _model(got, tp)
    schedule = got.choice(SCHEDULES, "schedule") or ("interleaved" if vp > 1 else "1f1b")
    topology = Topology(
        dp=dp, tp=tp, pp=pp, vp=vp, mbs=mbs, zero=got.whole("zero_stage", "zero") or 0, recompute=_recompute(got),  # type: ignore[arg-type]
        schedule=schedule, precision=_precision(got, cluster), sequence_parallel=got.flag("sequence_parallel"),  # type: ignore[arg-type]
    )
    engine = ENGINES.get(got.text("engine").lower().partition("-")[0], "") or got.choice(("seatrial", "command"), "engine")
    return Trial(model=model, batch=Batch(gbs=got.whole("gbs") or dp * mbs), topology=topology, cluster=here,
                 environment=Environment(clock_ghz=_number(got.text("freq_ghz"))), engine=engine)  # type: ignore[arg-type]


def _filled(world: int, nodes: int | None, procs: int | None, most: int) -> tuple[int, int]:
    """Nodes and processes a node for so many processes, where the row does not say both."""
    if nodes is not None:
        shared = world // nodes if nodes > 0 and world > 0 and world % nodes == 0 and world // nodes <= most else most
        return nodes, procs or shared
    each = procs or next((n for n in range(min(most, world), 0, -1) if world % n == 0), most)
    return max(1, -(-world // each)), each


def _model(got: _Cells, tp: int) -> Model:
    layers, hidden = got.whole("layers"), got.whole("hidden")
    if not layers or not hidden or layers < 0 or hidden < 0:
        raise BadInput(f"layers {layers}, hidden {hidden}: a forecast needs both above 0")
    heads = got.whole("heads") or usual_heads(hidden, tp)
    kv_heads = got.whole("kv_heads") or heads
    family = got.choice(get_args(Family), "family") or ("llama" if kv_heads != heads or got.flag("glu") else "gpt2")
    return Model(layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=got.whole("head_dim"),
                 ffn=got.whole("ffn"), seq=got.whole("seq") or 2048,
                 vocab=got.whole("vocab") or 50257, family=family)  # type: ignore[arg-type]


def usual_heads(hidden: int, tp: int) -> int:
    """The number of heads that gives a head size nearest to 128 and can be divided by TP."""
    fits = [h for h in range(1, hidden + 1) if hidden % h == 0 and h % tp == 0] if hidden < 1_000_000 else []
    return min(fits, key=lambda h: abs(hidden / h - 128), default=1)


def _recompute(got: _Cells) -> str:
    text = got.text("recompute", "activation_ckpt").lower()
    text = "full" if text in YES else "none" if text in (*NO, "") else text
    if text not in RECOMPUTE:
        raise BadInput(f"recompute is {text!r}: {nearest(text, RECOMPUTE)}")
    return text


def _precision(got: _Cells, cluster: Cluster) -> str:
    text = got.text("dtype", "precision").lower()
    if text:
        return ALIASES.get(text) or got.choice(PRECISIONS, "dtype", "precision")
    peaks = cluster.device.peak_tflops
    if cluster.device.kind == "cpu":
        return "fp32"
    return next((p for p in ("bf16", "fp16") if p in peaks), "fp32")


_CLOCK = re.compile(r"^[\d.]+\s*g?hz$", re.IGNORECASE)
_TITLE = re.compile(r"(?:\\w|w/|with)\s+([A-Z][A-Z_]+=\S+)")
"""A variable that the title of a table says all its rows had: `w/ LD_PRELOAD=libtcmalloc.so`."""
_PROCS = re.compile(r"max-proc-per-node", re.IGNORECASE)


SLOW_ALLOCATOR = "the system's allocator under a message library"


def _factors(got: _Cells, trial: Trial) -> tuple[str, ...]:
    """Names from `env` and `torch_version`; clock and processes a node are physics and have columns of their own.

    On CPUs a message library watches every page that is given back, which a process that allocates anew all the time feels.
    """
    found = []
    for piece in [*re.split(r"[,;]", got.text("env")), *_TITLE.findall(got.text("section"))]:
        name = piece.strip().strip('"').strip()
        if name and not _CLOCK.match(name) and not _PROCS.search(name):
            found.append(name)
    if version := got.text("torch_version"):
        found.append(f"torch {version}")
    on_cpu = trial.cluster is not None and trial.cluster.device.kind == "cpu"
    if on_cpu and trial.topology.world > 1 and not any("malloc" in name for name in found):
        found.append(SLOW_ALLOCATOR)
    return tuple(sorted(set(found)))


