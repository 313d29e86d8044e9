"""A table of trials as the planner reads it: cells become trials once, what is missing takes its stated default.

    table = rows.read("rows.csv", cluster)          or the folder of a logbook, notes, a log
    table.rows[0].trial, table.rows[0].reject, table.rows[0].sec_per_it
    rows.read_row(record.to_dict(), cluster)        a record: the very trial that it ran, where it has one

A missing column, an empty cell or `unstated` means the default in DEFAULTS. Where a table holds a corrected value beside a
printed one (`dp` and `dp_fixed`), the corrected one counts. A row that cannot be is kept, with the reason.
"""
from __future__ import annotations

import csv
import io
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from seatrial import fields, presets, rules
from seatrial.columns import COLUMNS, LAYOUT, SHAPE, Column, flat
from seatrial.engines import engine_name
from seatrial.engines.model import known, model_of
from seatrial.errors import BadInput, Infeasible
from seatrial.fields import nearest, shown
from seatrial.plaindata import read_text
from seatrial.plan.configs import Configs
from seatrial.plan.request import usual_precision
from seatrial.spec import (
    MODULES,
    OVERLAPS,
    Batch,
    Cluster,
    Environment,
    Execution,
    Model,
    Topology,
    Trial,
    divisors,
    read_modules,
)
from seatrial.stages import AUTO, listed

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
    "nodes": "as many as DP x TP x PP x CP processes fill",
    "procs_per_node": "what the processes and the nodes make of it, at most the cluster's",
    "dp": "what the nodes leave beside TP x PP x CP",
    "tp, pp, vp, mbs": "1",
    "cp": "1",
    "cp_kind": "the engine's own: ring, with torchtitan gather, with DeepSpeed ulysses",
    "gbs": "DP x MBS",
    "zero_stage": "what the engine is usually run with: 0, with megatron-core 1, with FSDP 3",
    "activation_ckpt or recompute": "none",
    "schedule": "1f1b; interleaved with VP above 1",
    "dtype": "bf16 where the device has it, else fp16; fp32 on a CPU",
    "sequence_parallel": "no; with an engine that cannot do without, yes",
    "attention": "as the engine has it on the device",
    "flash": "as attention; yes is the fused kernel that the engine has",
    "overlap": "as the engine has it",
    "mem_measure": "used, on the device, as nvidia-smi shows it; else reserved or allocated, by the framework",
    "session": "the date, where there is one",
    "node_set": "the number of nodes",
    "engine": "megatron-deepspeed, also called megatron",
    "freq_ghz": "the device's clock",
    "env, torch_version": "none",
}
"""Column -> what an empty cell means."""

REPLICATED = ("dp_replicate", "data_parallel_replicate_degree")
"""Copies of the sharded model: DP over the ZeRO group."""
KNOWN = frozenset({*re.split(r", | or ", ", ".join(DEFAULTS)), "zero", "precision", "glu", "mem_gib", "trial", "doubted",
                   *REPLICATED})
"""Columns that are read beside the fields of a record."""

YES, NO = ("yes", "true", "1", "on"), ("no", "false", "0", "off", "none")
ALIASES = {"float16": "fp16", "half": "fp16", "16 mixed": "fp16", "bfloat16": "bf16", "bf16 mixed": "bf16", "amp bf16": "bf16",
           "amp fp16": "fp16", "float8": "fp8", "fp8 hybrid": "fp8", "amp fp8": "fp8", "float32": "fp32", "float": "fp32",
           "tf32": "fp32"}  # fmt: skip
RECOMPUTES = {"selective": "op, per op, selective op, op selective, per op sac, sac, selective ac",
              "full": "uniform, full uniform, full ac, full activation checkpointing"}  # fmt: skip
"""What tables call recompute. `block` and every n-th block recompute a part of the layers, which nothing here models."""
_RECOMPUTE_OF = {name.strip(): mode for mode, names in RECOMPUTES.items() for name in names.split(",")}
CONTEXT_KINDS = {"ring": "p2p, ring attention, alltoall", "gather": "all gather, allgather, gather kv",
                 "ulysses": "a2a, all to all", "ulysses+ring": "a2a p2p, a2a+p2p, ulysses ring, usp"}  # fmt: skip
"""What engines call the kinds: --cp-comm-type of Megatron; torchtitan's alltoall passes blocks on as a ring does."""
_CONTEXT_OF = {name.strip(): kind for kind, names in CONTEXT_KINDS.items() for name in names.split(",")}
DISPATCHERS = {"alltoall": "all to all, a2a", "allgather": "all gather, ag", "flex": "deepep, deep ep, hybridep, hybrid ep"}
"""What tables call the ways of tokens to their experts."""
_DISPATCHER_OF = {name.strip(): kind for kind, names in DISPATCHERS.items() for name in names.split(",")}
_BALANCE_OF = {**dict.fromkeys(("force", "forced", "perfect", *YES), "forced"),
               **dict.fromkeys(("real", "aux loss", "unforced", *NO), "natural")}  # fmt: skip
ATTENTIONS = {
    "stored": "stored, math, eager, unfused, torch, naive, no, false, 0, off",
    "fused": "fused, flash, flash attention, flash attn, fa, fa2, flash2, flash attention 2, flash attn 2, "
             "flashattention, flashattention 2, flashattention2, sdpa, "
             "triton, xformers, efficient, mem efficient, memory efficient",
    "fused-hopper": "fused hopper, fa3, flash3, flash attention 3, flash attn 3, flashattention 3, "
                    "flashattention3, cudnn, te, transformer engine",
}  # fmt: skip
"""What tables call the kernels of attention, in plain words; `flash yes` is whatever the engine takes that stores no scores."""
LIBRARIES = ("cudnn", "te", "transformer engine")
"""Names of those that have kernels of each generation: on a device before Hopper, the older ones."""
_ATTENTION_OF = {name.strip(): kernel for kernel, names in ATTENTIONS.items() for name in names.split(",")}
_OVERLAP_OF = {"yes": "all", "true": "all", "1": "all", "on": "all", "no": "none", "false": "none", "0": "none", "off": "none",
               "grad": "gradients", "grads": "gradients", "dp": "gradients", "gradient": "gradients", "param": "parameters",
               "params": "parameters", "parameter": "parameters", "tp": "tensor"}  # fmt: skip
DEFAULT_NAME = "megatron"
"""Of a row that names no engine: as trials have always called it."""
UNSTATED = ("", "unstated", "-", "n/a", "none stated")
NOBODY_KNOWS = ("unknown", "?", "not stated", "not reported")
"""Means the default too, but of an outcome: a row whose status nobody knows was not measured."""
MOST_ROWS = 200_000
MOST_BYTES = 64 << 20


SPELLED = {"recompute": ("recompute", "activation_ckpt"), "zero_stage": ("zero_stage", "zero"), "dtype": ("dtype", "precision"),
           "zero_group": ("zero_group", "dp_shard", "data_parallel_shard_degree")}  # fmt: skip
"""Column -> what it may be called, where that is not its name alone."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table."""

    cells: Mapping[str, Any]
    """As they stand in the table: text in a CSV file, typed in a record."""
    trial: Trial | None
    """None when the row was rejected."""
    reject: str = ""
    """`code: message`, or nothing."""
    session: str = ""
    node_set: str = ""
    """The nodes that it ran on by a name, where there is one: rows of one set share what is special about it."""
    factors: tuple[str, ...] = ()
    """What of its environment may change its speed, each a name: an allocator, a version."""
    sec_per_it: float | None = None
    mem_gib: float | None = None
    mem_measure: str = ""
    """What `mem_gib` is: a word of `memory.MEASURES`; empty for used."""
    status: str = ""
    """What happened, in the table's own word, in small letters."""
    counts: bool = False
    """Whether it may be learned from: measured, not a copy of another row, not an estimate."""
    where: str = ""
    unread: tuple[str, ...] = ()
    """Figures that are none, so that the row counts as if it did not have them."""

    @property
    def machine(self) -> str:
        return str(self.cells.get("machine") or "")


@dataclass(frozen=True, kw_only=True)
class Table:
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    ignored: tuple[str, ...] = ()
    """Columns that nothing reads."""
    unread: tuple[str, ...] = ()
    """What could not be read of a file of somebody's, with its line."""

    def configs(self) -> Configs:
        """Of the rows that were not rejected, in order."""
        return configs_of([row for row in self.rows if row.trial is not None])

    def of_machine(self, name: str) -> tuple[Row, ...]:
        """Those of one machine, where the table names machines and this one is among them; else all."""
        return tuple(row for row in self.rows if row.machine == name) or self.rows


def configs_of(rows: list[Row]) -> Configs:
    return Configs.from_trials([row.trial for row in rows if row.trial is not None])


def read(path: str | Path, cluster: Cluster, assume: Mapping[str, str] = MappingProxyType({}), *,
         format: str | Path | None = None) -> Table:
    """The folder of a logbook, or a file: one of columns named as those of a record, or anything that `seatrial import` reads.

    `assume`: column -> what a row means that does not say. `format`: of a log, as `import_file` has it.
    """
    from seatrial.tables.unknown import unknown_columns

    if os.path.isdir(path):
        from seatrial.logbook import Logbook

        with Logbook(Path(path)) as book:
            lines, problems = book.rows()
        table = from_records(lines, cluster, str(path), assume)
        return replace(table, unread=(*map(str, problems), *table.unread))
    if format is not None or not _is_named(Path(path)):
        return _imported(Path(path), cluster, assume, format)
    header, lines = read_cells(path)
    said = _own(header, lines, str(path)) if header[-1:] == (OWN_MARK,) else lines
    rows = tuple(replace(read_row(values, cluster, f"{path}:{n}", assume), cells=line)
                 for n, (line, values) in enumerate(zip(lines, said), 2))
    return Table(header=header, rows=rows, ignored=tuple(unknown_columns(header, (), also=KNOWN)[0]), unread=_unread(rows))


def read_cells(path: str | Path) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """The headings and lines of a CSV file, as text."""
    try:
        reader = csv.DictReader(io.StringIO(read_text(path, most=MOST_BYTES, what="CSV file of rows"), newline=""))
        header = tuple(reader.fieldnames or ())
        twice = next((name for name, count in Counter(header).items() if count > 1 and name.strip()), None)
        if twice is not None:
            raise BadInput(f"{path}: the column {shown(twice)} stands there twice")
        lines = []
        for line in reader:
            lines.append({key: value if isinstance(value, str) else "" for key, value in line.items() if key is not None})
            if len(lines) > MOST_ROWS:
                raise BadInput(f"{path}: more than {MOST_ROWS} rows; split the file")
    except csv.Error as e:
        raise BadInput(f"{path}: not CSV: {e}") from None
    return header, lines


def _is_named(path: Path) -> bool:
    """Whether its first line is one of our columns, `layers` and `hidden` among them."""
    try:
        if not path.is_file():
            return path.suffix.lower() == ".csv" and not path.exists()
        with path.open("rb") as file:
            first = file.readline(1 << 16)
    except OSError:
        return True  # whose error is told where it is read
    cells = first.decode("utf-8-sig", errors="replace").strip().split(",")
    return {"layers", "hidden"} <= {cell.strip(" \"") for cell in cells}


def _unread(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(f"{row.where}: {said}" for row in rows for said in row.unread)


def _imported(path: Path, cluster: Cluster, assume: Mapping[str, str], format: str | Path | None) -> Table:
    from seatrial.notes.read import import_file

    found = import_file(path, format=format)
    rows = [{name: value for name, value in record.to_dict().items() if name not in UNSAID} for record in found.records]
    if not rows:
        raise BadInput(f"{path}: no table of runs, log line or row in it")
    table = from_records(rows, cluster, str(path), assume)
    unread = tuple(str(problem) for problem in found.problems if problem.level != "note")
    return replace(table, ignored=found.unknown_columns, unread=(*unread, *table.unread))


UNSAID = frozenset({"printed", "context", "iterations", "measurement", "memory", "breakdown", "table", "section"})
"""Of an imported record, what is about how it was written."""


def machines(path: str | Path, *, format: str | Path | None = None) -> list[str]:
    """Those that the rows of a file name."""
    if format is not None or not _is_named(Path(path)):
        from seatrial.notes.read import import_file

        return sorted({record.machine for record in import_file(path, format=format).records} - {""})
    return sorted({line.get("machine") or "" for line in read_cells(path)[1]} - {""})


OWN_MARK = "seatrial"
"""The last column of a CSV file that `seatrial table` wrote."""


def _own(header: tuple[str, ...], lines: list[dict[str, str]], path: str) -> list[dict[str, Any]]:
    """The records that such a file was written from, with their trials; a line that is none of ours stays text."""
    from seatrial.record import Record
    from seatrial.tables import Where
    from seatrial.tables.csvjson import own_row

    found = [own_row(header, [line.get(name, "") for name in header], Where(file=path, line=n))
             for n, line in enumerate(lines, 2)]  # fmt: skip
    return [record.to_dict() if isinstance(record, Record) else line for record, line in zip(found, lines)]


def from_records(records: Iterable[Mapping[str, Any]], cluster: Cluster, where: str,
                 assume: Mapping[str, str] = MappingProxyType({})) -> Table:
    """Records as a logbook has them, or plain dicts of the same columns."""
    lines = list(records)
    header = tuple(dict.fromkeys(name for line in lines for name in line))
    names = [line.get("record_id") or line.get("source_line") or n for n, line in enumerate(lines)]
    rows = tuple(read_row(line, cluster, f"{where}:{name}", assume) for name, line in zip(names, lines))
    return Table(header=header, rows=rows, unread=_unread(rows))


def read_row(line: Mapping[str, Any], cluster: Cluster, where: str = "",
             assume: Mapping[str, str] = MappingProxyType({})) -> Row:
    """From cells of any type: text is read, what is typed stays as it is, and a record's own trial comes first."""
    got = _Cells(line, assume)
    session = got.text("session") or got.text("date")
    status = got.text("status").lower()
    try:
        if why := _lacking(got):
            raise Infeasible(why, code="unknown-axis")
        trial = _exact(got, cluster) or _trial(got, cluster)
        rules.check(trial)
    except Infeasible as e:
        return Row(cells=line, trial=None, reject=f"{e.code}: {e}", session=session, status=status, where=where)
    except BadInput as e:
        return Row(cells=line, trial=None, reject=f"bad-value: {e}", session=session, status=status, where=where)
    memory = got.number("mem_gib") or got.number("mem_value")
    unit = got.text("mem_unit").lower()
    if memory is not None and unit in ("mib", "mb"):
        memory /= 1024
    elif memory is not None and unit not in ("", "gib", "gb"):
        got.unread.append(f"mem_unit is {shown(unit)}: expected MiB or GiB, so the row counts as one without memory")
        memory = None
    counts = status in ("", "ok", "measured") and got.text("state").lower() in ("", "measured")
    outcome = got.value("outcome")
    sec_per_it = got.number("sec_per_it")
    unread = tuple(got.unread) if counts else ()
    return Row(cells=line, trial=trial, session=session, factors=_factors(got, trial), unread=unread,
               node_set=got.text("node_set"), sec_per_it=sec_per_it, mem_gib=memory, where=where,
               mem_measure=_measure(got.text("mem_measure")),
               counts=counts and not got.text("duplicate_of"),
               status=status or (str(outcome.get("status", "")) if isinstance(outcome, Mapping) else ""))


def _lacking(got: _Cells) -> str:
    """Why no forecast can be made: an axis that nothing here models, in a column or in what a record kept of one."""
    from seatrial.tables.unknown import axes_lacking, refusal

    extra = got.cells.get("extra")
    said = {key: value for key, value in {**got.cells, **(extra if isinstance(extra, Mapping) else {})}.items()
            if key not in REPLICATED}  # fmt: skip
    axes = axes_lacking(tuple(said))
    return refusal(axes, list(said), [str(value) for value in said.values()]) if axes else ""


def of_trial(trial: Trial, cluster: Cluster, *, name: str = "") -> Row:
    """A trial to forecast: on its own cluster, or where it names none on as much of this one as it fills."""
    if trial.cluster is None:
        trial = _placed(trial, cluster, None, None)
    around = trial.environment
    env = [f"{key}={value}" for key, value in {**around.variables, **around.scheduler}.items()]
    shown = {key: _shown(value) for key, value in flat(trial).items()}
    return Row(cells={**({"trial": name} if name else {}), **shown, "env": ", ".join(env)}, trial=trial,
               factors=_named({**around.variables, **around.scheduler}, around.torch or "", trial), where=name)


def _shown(value: Any) -> str:
    return "" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


class _Cells:
    """What a row says, each value read once by what it is."""

    def __init__(self, cells: Mapping[str, Any], assume: Mapping[str, str]):
        self.cells, self.assume = cells, assume
        self.unread: list[str] = []

    def value(self, *names: str) -> Any:
        """None where nobody said."""
        for name in names:
            for column in (f"{name}_fixed", name):
                value = self.cells.get(column)
                if isinstance(value, str):
                    value = value.strip()
                    if value.lower() in UNSTATED or (value.lower() in NOBODY_KNOWS and name not in ("status", "state")):
                        continue
                if value is not None:
                    return value
        return next((self.assume[name] for name in names if name in self.assume), None)

    def text(self, *names: str) -> str:
        value = self.value(*names)
        return "" if value is None else value if isinstance(value, str) else shown(value)

    def number(self, name: str) -> float | None:
        """A figure above zero, or nothing; what is said and is none is told."""
        value = self.value(name)
        try:
            found = float(value.replace(",", "") if isinstance(value, str) else value)
        except (TypeError, ValueError, OverflowError):
            found = math.nan
        if math.isfinite(found) and found > 0:
            return found
        if value is not None:
            self.unread.append(f"{name} is {shown(value)}: no number above 0, so the row counts as one without it")
        return None

    def whole(self, *names: str) -> int | None:
        value = self.value(*names)
        if value is None:
            return None
        try:
            found = float(value.replace(",", "") if isinstance(value, str) else value)
        except (TypeError, ValueError, OverflowError):
            found = math.nan
        if not abs(found) <= 1e12 or found != int(found):
            raise BadInput(f"{names[0]} is {fields.shown(value)}: expected a whole number")
        return int(found)

    def flag(self, *names: str) -> bool:
        value = self.value(*names)
        text = ("" if value is None else str(value)).lower()
        if text not in (*YES, *NO, ""):
            raise BadInput(f"{names[0]} is {text!r}: expected yes or no")
        return text in YES

    def choice(self, allowed: tuple[str, ...], *names: str) -> str:
        text = self.text(*names).lower()
        if text and text not in allowed:
            raise BadInput(f"{names[0]} is {text!r}: {nearest(text, allowed)}")
        return text

    @property
    def modules(self) -> str | None:
        """Of a column of their own, or in that of recompute: `moe_act, layernorm`."""
        if said := self.text("recompute_modules"):
            return read_modules(said)
        said = self.text(*SPELLED["recompute"]).lower().removeprefix("selective").strip(" :()")
        return read_modules(said) if said and set(re.split(r"[\s,;+/]+", said)) <= set(MODULES) else None

    def of(self, column: Column) -> Any:
        """What a column of `columns.py` says, as its table has it; None where it is left to its default."""
        names = SPELLED.get(column.name, (column.name,))
        if column.name == "recompute_modules":
            return self.modules
        if column.name == "recompute" and self.modules and _plain(self.text(*names)) not in (*YES, *NO, "full"):
            return "selective"
        if self.value(*names) is None:
            return None
        said = _plain(self.text(*names))
        if column.name == "recompute" and said in (*YES, *NO):
            return "full" if said in YES else "none"
        words = {"recompute": _RECOMPUTE_OF, "dtype": ALIASES, "cp_kind": _CONTEXT_OF, "moe_dispatcher": _DISPATCHER_OF,
                 "moe_balance": _BALANCE_OF}  # fmt: skip
        if known := words.get(column.name, {}).get(said):
            return known
        if column.choices:
            return self.choice(column.choices, *names)
        if column.type is bool:
            return self.flag(*names)
        if column.name == "zero_stage" and (stage := re.fullmatch(r"(?:zero|stage|zero stage) ?([0-3])", said)):
            return int(stage[1])
        if column.name == "zero_stage" and said in NO:
            return 0
        if column.type is not int:
            return self.text(*names)
        # ZeRO 0 is a stage; 0 heads are none stated.
        return self.whole(*names) if column.default == 0 else self.whole(*names) or None

    def table(self, columns: Iterable[str]) -> dict[str, Any]:
        """Field -> value, of those that are stated."""
        return {COLUMNS[name].field: value for name in columns if (value := self.of(COLUMNS[name])) is not None}


def _exact(got: _Cells, cluster: Cluster) -> Trial | None:
    """The trial that a record ran: nothing of it is guessed again. One of an older make may not be read as a trial of today."""
    data = got.cells.get("trial")
    if not isinstance(data, Mapping) or not data:
        return None
    try:
        trial = fields.build(Trial, data, where="trial")
    except BadInput:
        return None
    return _placed(trial, cluster, got.whole("nodes"), got.whole("procs_per_node"))


def _placed(trial: Trial, cluster: Cluster, nodes: int | None, procs: int | None) -> Trial:
    nodes, procs = _filled(trial.world, nodes, procs, cluster.procs_per_node)
    return replace(trial, cluster=cluster.with_procs(procs).with_nodes(nodes))


def _trial(got: _Cells, cluster: Cluster) -> Trial:
    engine = _engine(got)
    facts = model_of(engine)
    knobs = {"precision": usual_precision(cluster.device), "zero": facts.usual_zero, **got.table(LAYOUT)}
    if got.of(COLUMNS["zero_stage"]) is None and (named := re.search(r"zero[\s_-]*([0-3])\b", got.text("engine").lower())):
        knobs["zero"] = int(named[1])
    if not facts.modules and knobs.get("recompute_modules") == "core_attn":
        del knobs["recompute_modules"]  # which selective recompute is there
    cp = knobs.get("cp", 1)
    gbs, documents, rest = knobs.pop("gbs", None), knobs.pop("documents", None), knobs.get("tp", 1) * knobs.get("pp", 1) * cp
    nodes, procs, copies = got.whole("nodes"), got.whole("procs_per_node"), got.whole(*REPLICATED) or 1
    if cp > 1 and facts.context:
        knobs.setdefault("cp_kind", facts.context[0])
    if got.value("zero_group") is None and "zero_group" in knobs:
        # What torchtitan calls the degree of sharding leaves CP out, over which it shards as well.
        knobs["zero_group"] *= cp
    if "dp" not in knobs:
        shared = max(1, knobs.get("zero_group", cp) * copies // cp)
        knobs["dp"] = max(1, nodes * (procs or cluster.procs_per_node) // rest) if nodes else shared
    if copies != 1 and copies * knobs.setdefault("zero_group", max(1, knobs["dp"] * cp // copies)) != knobs["dp"] * cp:
        raise BadInput(f"{copies} copies of a ZeRO group of {knobs['zero_group']} are not DP {knobs['dp']}"
                       + (f" x CP {cp}" if cp > 1 else ""))
    knobs.setdefault("schedule", "interleaved" if knobs.get("vp", 1) > 1 else "1f1b")
    # The places first: what a row says of its nodes is refused before its model is.
    nodes, procs = _filled(knobs["dp"] * rest, nodes, procs, cluster.procs_per_node)
    here = cluster.with_procs(procs).with_nodes(nodes)
    said = knobs.pop("stage_layers", "")
    if said not in ("", AUTO):
        knobs["stage_layers"] = _stages(said, knobs)
    model, topology = _model(got, knobs.get("tp", 1)), Topology(**knobs)
    made = Trial(model=model, batch=Batch(gbs=gbs or topology.dp * topology.mbs, documents=documents),
                 topology=topology, cluster=here,
                 environment=Environment(clock_ghz=got.number("freq_ghz")), execution=_execution(got, cluster, engine),
                 engine=engine)
    if said != AUTO:
        return made
    from seatrial.plan.stages import resolved  # which learns from rows

    return resolved(made)


def _stages(text: str, knobs: Mapping[str, int]) -> tuple[int, ...]:
    """One number alone is that of each stage."""
    split = listed(text, where="stage_layers")
    return split * (knobs.get("pp", 1) * knobs.get("vp", 1)) if len(split) == 1 else split


def _measure(said: str) -> str:
    """`max reserved (GiB)` is reserved; a word that is none says nothing."""
    return next((word for word in ("allocated", "reserved", "used") if word in said.lower()), "")


def _engine(got: _Cells) -> str:
    """As a table names it: `Megatron-LM 0.12` is megatron-lm. One that is empty is the default."""
    if got.text("engine").endswith(".toml"):
        return engine_name(got.text("engine"))
    said = re.sub(r"[\s_/]+", "-", got.text("engine").lower().strip())
    bare = re.sub(r"[-@]?v?\d+(\.\d+)+.*$", "", said)
    name = next((name for name in (said, bare, *bare.split("-")) if name and known(name)), "")
    if said and not name:
        try:
            engine_name(said)
        except BadInput as error:
            raise BadInput(f"engine is {got.text('engine')!r}: {str(error).partition(': ')[2]}") from None
    return name or said or DEFAULT_NAME


def _execution(got: _Cells, cluster: Cluster, engine: str) -> Execution:
    """Attention and overlap, in the words of tables."""
    attention: str | None = None
    overlap: str | None = None
    if said := _plain(got.text("attention", "flash")):
        if said in YES:
            usual = model_of(engine).attention_on(cluster.device)
            attention = "fused" if usual == "stored" else usual
        elif (attention := _ATTENTION_OF.get(said)) is None:  # type: ignore[assignment]
            raise BadInput(f"attention is {said!r}: {nearest(said, _ATTENTION_OF)}")
        elif said in LIBRARIES and "fp8" not in cluster.device.peak_tflops:
            attention = "fused"
    if said := got.text("overlap").lower():
        words = [_OVERLAP_OF.get(word, word) for word in re.split(r"[\s,;+/]+", said) if word]
        whole = [word for word in words if word in ("all", "none")]
        overlap = whole[0] if whole else "+".join(name for name in OVERLAPS if name in words)
        if unknown := [word for word in words if word not in ("all", "none", *OVERLAPS)]:
            raise BadInput(f"overlap is {said!r}: {unknown[0]!r} is none of yes, no, {', '.join(OVERLAPS)}")
    return Execution(attention=attention, overlap=overlap)  # type: ignore[arg-type]


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text.lower()).strip()


def _filled(world: int, nodes: int | None, procs: int | None, most: int) -> tuple[int, int]:
    """Nodes and processes per node for so many processes, where the row does not say both."""
    if nodes is not None:
        shared = world // nodes if nodes > 0 and world > 0 and world % nodes == 0 and world // nodes <= most else most
        return nodes, procs or shared
    each = procs or next((n for n in range(min(most, world), 0, -1) if world % n == 0), most)
    return max(1, -(-world // each)), each


def _mixture(got: _Cells) -> Model | None:
    """The mixture of experts among the presets that a row names: its columns cannot say the router, latent attention, or which
    layers are dense. Fewer layers are often a test of it; another width or number of experts is another model."""
    for said in (got.text("model"), got.text("size_label")):
        name = re.sub(r"[\s_]+", "-", said.lower())
        if name in presets.names("models"):
            found = presets.model(name)
            same = all(got.whole(column) in (None, getattr(found, column)) for column in ("hidden", "experts"))
            if found.mixture and same:
                return found
    return None


def _model(got: _Cells, tp: int) -> Model:
    if (known := _mixture(got)) is not None:
        return replace(known, **got.table(SHAPE))
    layers, hidden = got.whole("layers"), got.whole("hidden")
    if not layers or not hidden or layers < 0 or hidden < 0:
        raise BadInput(f"layers {layers}, hidden {hidden}: a forecast needs both above 0")
    stated = got.table(SHAPE)
    heads = stated.setdefault("heads", usual_heads(hidden, tp))
    kv_heads = stated.setdefault("kv_heads", heads)
    stated.setdefault("family", "llama" if kv_heads != heads or got.flag("glu") or "experts" in stated else "gpt2")
    return Model(**{"seq": 2048, "vocab": 50257, **stated})


def usual_heads(hidden: int, tp: int) -> int:
    """The number of heads that gives a head size nearest to 128 and can be divided by TP."""
    fits = [h for h in divisors(hidden) if h % tp == 0]
    return min(fits, key=lambda h: abs(hidden / h - 128), default=1)


_CLOCK = re.compile(r"^[\d.]+\s*g?hz$", re.IGNORECASE)
_TITLE = re.compile(r"(?:\\w|w/|with)\s+([A-Z][A-Z_]+=\S+)")
"""A variable that the title of a table says all its rows had: `w/ LD_PRELOAD=libtcmalloc.so`."""
_PROCS = re.compile(r"max-proc-per-node", re.IGNORECASE)


SLOW_ALLOCATOR = "the system's allocator under a message library"


def _factors(got: _Cells, trial: Trial) -> tuple[str, ...]:
    """Names from `env`, `torch_version` and the title of the table that a row stands in."""
    stated = got.value("env")
    pieces = re.split(r"[,;]", stated) if isinstance(stated, str) else [f"{k}={v}" for k, v in dict(stated or {}).items()]
    return _named([*pieces, *_TITLE.findall(got.text("section"))], got.text("torch_version"), trial)


def _named(env: Mapping[str, str] | Iterable[str], torch: str, trial: Trial) -> tuple[str, ...]:
    """Clock and processes per node are physics and have columns of their own.

    On CPUs a message library watches every page that is given back, which a process that allocates anew all the time feels.
    """
    pieces = [f"{key}={value}" for key, value in env.items()] if isinstance(env, Mapping) else env
    found = [name for piece in pieces if (name := piece.strip().strip('"').strip())
             and not _CLOCK.match(name) and not _PROCS.search(name)]  # fmt: skip
    if torch:
        found.append(f"torch {torch}")
    on_cpu = trial.cluster is not None and trial.cluster.device.kind == "cpu"
    if on_cpu and trial.topology.world > 1 and not any("malloc" in name for name in found):
        found.append(SLOW_ALLOCATOR)
    return tuple(sorted(set(found)))
