"""Tables of kernels and collectives that others publish, as figures of a machine file.

    reading = published.read("all_reduce.log")          nccl-tests, as it prints
    reading = published.read("gemm_perf.txt")           a table of ai-dynamo/aiconfigurator, as CSV or parquet
    reading = published.read("machine.json")            our own probe
    reading.figures["collectives"], reading.left        what was read; what was not, by reason

A file that is not understood is refused with the line. Every line that holds a measurement is read or counted under a reason.
Standard library alone, but for parquet.
"""
from __future__ import annotations

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from seatrial import machine
from seatrial.errors import BadInput
from seatrial.plaindata import read_bytes

MOST_BYTES = 512 * 2**20
LEAST_ROWS, LEAST_SIDE, LEAST_SEQ = 512, 256, 512
"""Below these a GEMM or an attention is one of inference: it moves weights, and says nothing about training."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One file."""

    path: str
    sha256: str
    size: int
    form: str
    """nccl-tests, aiconfigurator TABLE, or seatrial machine."""
    devices: tuple[str, ...]
    """As the file names them."""
    software: tuple[str, ...]
    figures: dict[str, list[dict[str, Any]]]
    """By part of a machine file; `of` counts nothing yet: one entry a measurement."""
    left: Counter[str] = field(default_factory=Counter)
    """Measurements and lines that were not taken, by reason."""
    file: dict[str, Any] | None = None
    """The whole machine file, where it is one."""

    @property
    def read(self) -> int:
        return sum(map(len, self.figures.values()))

    def provenance(self) -> dict[str, Any]:
        return {"file": Path(self.path).name, "sha256": self.sha256, "bytes": self.size, "form": self.form,
                "devices": list(self.devices), "software": list(self.software), "read": self.read, "left": dict(self.left)}


def read(path: str | Path) -> Reading:
    data = read_bytes(path, most=MOST_BYTES, what="table")
    common = {"path": str(path), "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    if data.startswith(b"PAR1"):
        return _aiconfigurator(common, _parquet(path, data))
    if data.startswith(b"version https://git-lfs"):
        raise BadInput(f"{path}: a pointer of Git LFS, not the table: `git lfs pull` in its repository fetches it")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise BadInput(f"{path}: neither text nor parquet (byte {e.start})") from None
    if text.lstrip().startswith("{"):
        return _own(common)
    first = next((line for line in text.splitlines() if line.strip()), "")
    if "," in first and {"latency", "op_name"} <= set(first.split(",")):
        return _aiconfigurator(common, _csv(path, text))
    if re.search(r"algbw\s+busbw", text):
        return _nccl_tests(common, text)
    raise BadInput(f"{path}:1: {first[:80]!r} begins neither a log of nccl-tests (no heading with algbw and busbw), nor a "
                   "table of aiconfigurator (no columns op_name and latency), nor a machine file")


def _own(common: dict[str, Any]) -> Reading:
    found = machine.read(common["path"])
    software = [f"{name} {found[name]}" for name in ("seatrial", "torch") if found.get(name)]
    return Reading(**common, form=machine.KIND, devices=(found["device"]["name"],), software=tuple(software),
                   figures={part: list(found["figures"].get(part, [])) for part in machine.PARTS}, file=found)


# ---- aiconfigurator: one measurement a row, latency in milliseconds

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
OPS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all"}
ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "float16": 2, "int8": 1, "float": 4, "float32": 4}
TABLES: dict[str, tuple[str, ...]] = {
    "gemm": ("gemm_dtype", "m", "n", "k"),
    "nccl": ("nccl_dtype", "num_gpus", "message_size"),
    "context_attention": ("attn_dtype", "kv_cache_dtype", "batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim"),
}
"""The columns by which a table is told."""

NOTHING = "a side or a time of 0"
"""Published tables have such rows."""

Row = tuple[str, dict[str, Any]]
"""Where it stands, and its cells."""


def _csv(path: str | Path, text: str) -> tuple[list[str], Iterator[Row]]:
    lines = csv.reader(io.StringIO(text))
    header = next(lines)

    def rows() -> Iterator[Row]:
        for number, cells in enumerate(_parsed(lines, path), 2):
            if not cells or cells == header:  # tables are appended to, heading and all
                continue
            if len(cells) != len(header):
                raise BadInput(f"{path}:{number}: {len(cells)} cells under {len(header)} headings: {','.join(cells)[:80]!r}")
            yield f"{path}:{number}", dict(zip(header, cells))

    return header, rows()


def _parsed(lines: Iterator[list[str]], path: str | Path) -> Iterator[list[str]]:
    try:
        yield from lines
    except csv.Error as error:
        raise BadInput(f"{path}: not CSV: {error}") from None


def _parquet(path: str | Path, data: bytes) -> tuple[list[str], Iterator[Row]]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise BadInput(f"{path}: reading parquet takes `pip install pyarrow`; the same table as CSV needs nothing") from None
    try:
        table = parquet.read_table(io.BytesIO(data))
    except (arrow.ArrowException, OSError) as e:
        raise BadInput(f"{path}: not parquet that can be read: {str(e).splitlines()[0]}") from None
    names = list(table.schema.names)
    columns = [table.column(name).to_pylist() for name in names]
    return names, ((f"{path}: row {number}", dict(zip(names, cells))) for number, cells in enumerate(zip(*columns), 1))


def _aiconfigurator(common: dict[str, Any], table: tuple[list[str], Iterator[Row]]) -> Reading:
    header, rows = table
    form = next((name for name, needed in TABLES.items() if {*needed, "latency"} <= set(header)), None)
    if form is None:
        known = "; ".join(f"{name} ({', '.join(needed)})" for name, needed in TABLES.items())
        raise BadInput(f"{common['path']}: a table with the columns {', '.join(header)}: known are {known}")
    figures: list[dict[str, Any]] = []
    left: Counter[str] = Counter()
    devices: dict[str, None] = {}
    software: dict[str, None] = {}
    take = {"gemm": _gemm, "nccl": _nccl, "context_attention": _context_attention}[form]
    for where, row in rows:
        found = take(where, row)
        devices[str(row.get("device", ""))] = None
        software[" ".join(str(row[name]) for name in ("framework", "version", "kernel_source") if row.get(name))] = None
        if isinstance(found, str):
            left[found] += 1
        else:
            figures.append(found)
    part = {"gemm": "matmul", "nccl": "collectives", "context_attention": "attention"}[form]
    return Reading(**common, form=f"aiconfigurator {form}", devices=tuple(filter(None, devices)),
                   software=tuple(filter(None, software)), figures={part: figures}, left=left)


def _number(where: str, row: Mapping[str, Any], name: str) -> float:
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        raise BadInput(f"{where}: {name} is {row[name]!r}, not a number") from None
    if not 0 <= value < float("inf"):
        raise BadInput(f"{where}: {name} is {row[name]!r}, not a size or a time")
    return value


def _gemm(where: str, row: Mapping[str, Any]) -> dict[str, Any] | str:
    m, n, k, latency = (_number(where, row, name) for name in ("m", "n", "k", "latency"))
    if not m * n * k * latency:
        return NOTHING
    dtype = DTYPES.get(str(row["gemm_dtype"]))
    if dtype is None:  # those in 8 bits and less have the cast of their input inside
        return f"GEMM in {row['gemm_dtype']}: quantised, and measured together with the cast of its input"
    if m < LEAST_ROWS or n < LEAST_SIDE or k < LEAST_SIDE:
        return f"GEMM of fewer than {LEAST_ROWS} rows or a side below {LEAST_SIDE}: of inference"
    return {"dtype": dtype, "kind": "forward", "rows": int(m), "cols": int(n), "inner": int(k), "batch": 1, "s": latency * 1e-3}


def _nccl(where: str, row: Mapping[str, Any]) -> dict[str, Any] | str:
    size, count, latency = (_number(where, row, name) for name in ("num_gpus", "message_size", "latency"))
    if not size * count * latency:
        return NOTHING
    op, dtype = OPS.get(str(row["op_name"])), str(row["nccl_dtype"])
    if op is None or dtype not in ELEMENT_BYTES:
        return f"collective {row['op_name']} of {dtype}"
    # The column counts elements; the collector runs one process of so many threads, so in one node.
    return {"op": op, "size": int(size), "per_node": int(size), "nodes": 1, "groups": 1,
            "bytes": int(count * ELEMENT_BYTES[dtype]), "s": latency * 1e-3}


def _context_attention(where: str, row: Mapping[str, Any]) -> dict[str, Any] | str:
    names = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "latency")
    batch, seq, heads, kv_heads, dim, latency = (_number(where, row, name) for name in names)
    if not batch * seq * heads * kv_heads * dim * latency:
        return NOTHING
    if not row["attn_dtype"] == row["kv_cache_dtype"] == "bfloat16":
        return "attention with other than bf16 throughout"
    if float(row.get("window_size") or 0) > 0 or float(row.get("step") or 0) > 0:
        return "attention with a window, or after a prefix"
    if seq < LEAST_SEQ:
        return f"attention over fewer than {LEAST_SEQ} tokens: of inference"
    return {"dtype": "bf16", "batch": int(batch), "heads": int(heads), "kv_heads": int(kv_heads), "seq": int(seq),
            "head_dim": int(dim), "bias": False, "forward_s": latency * 1e-3}


# ---- nccl-tests: a heading, its units, and a line a size with the times out of place and in place

PROGRAMS = {"all_reduce_perf": "all_reduce", "all_gather_perf": "all_gather", "reduce_scatter_perf": "reduce_scatter",
            "alltoall_perf": "all_to_all", "broadcast_perf": "broadcast", "sendrecv_perf": "p2p"}
UNITS = {"time": "(us)", "algbw": "(GB/s)", "busbw": "(GB/s)", "size": "(B)"}
RANK = re.compile(r"#?\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(.+?)\s*$")
TAG = re.compile(r"^(?:\[\d+,\d+\]<\w+>:|\d+: )\s*")
"""What mpirun and srun put before a line when asked."""
NEAR = 0.04
"""How far bytes over time may be from the printed bandwidth, which has two digits after the point."""


class Rank(NamedTuple):
    group: str
    host: str
    device: str


@dataclass
class _Log:
    """What the lines so far have said."""

    where: str
    ranks: dict[str, Rank] = field(default_factory=dict)
    program: str | None = None
    columns: list[str] = field(default_factory=list)
    units_seen: bool = False

    def group(self) -> tuple[int, int, int, int]:
        """Size, members a node, nodes and groups."""
        if not self.ranks:
            raise BadInput(f"{self.where}: no line before it says which ranks there are (# Rank 0 … on HOST device …)")
        groups = Counter(rank.group for rank in self.ranks.values())
        first = next(iter(groups))
        hosts = Counter(rank.host for rank in self.ranks.values() if rank.group == first)
        return groups[first], max(hosts.values()), len(hosts), len(groups)


def _nccl_tests(common: dict[str, Any], text: str) -> Reading:
    log = _Log(common["path"])
    log.program = next((name for name in PROGRAMS if name.removesuffix("_perf") in Path(common["path"]).name), None)
    figures: dict[str, list[dict[str, Any]]] = {"collectives": [], "p2p": []}
    left: Counter[str] = Counter()
    software: dict[str, None] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = TAG.sub("", raw).strip()
        log.where = f"{common['path']}:{number}"
        if not line:
            continue
        if (found := RANK.match(line)) is not None:
            rank, group, host, device = found.groups()
            if log.columns:  # the next test of the same file
                log.ranks, log.columns, log.units_seen = {}, [], False
            log.ranks[rank] = Rank(group or "0", host, device)
        elif (named := next((p for p in PROGRAMS if p in line), None)) is not None and not re.match(r"\d", line):
            log.program = named
        elif re.search(r"\bsize\b.*\balgbw\s+busbw", line):
            log.columns, log.units_seen = line.lstrip("# ").replace("# wrong", "#wrong").split(), False
        elif log.columns and not log.units_seen and "(B)" in line:
            _check_units(log, line)
        elif re.match(r"\d+\s+\d+\s+[a-z]", line) and log.columns:
            for part, entry in _measured(log, line, left):
                figures[part].append(entry)
        elif (version := re.search(r"NCCL version (\S+)|nccl-tests version (\S+)|nccl-library=(\d+)", line)) is not None:
            software[version.group(0)] = None
        elif re.match(r"\d+\s+\d+\s", line) and log.columns:
            raise BadInput(f"{log.where}: does not fit the heading {' '.join(log.columns)}: {line[:80]!r}")
        else:
            left["lines that are no measurement"] += 1
    devices = tuple(dict.fromkeys(rank.device for rank in log.ranks.values()))
    if not any(figures.values()):
        raise BadInput(f"{common['path']}: a log of nccl-tests without one measurement")
    return Reading(**common, form="nccl-tests", devices=devices, software=tuple(software), figures=figures, left=left)


def _check_units(log: _Log, line: str) -> None:
    """The second line of a heading names the units, of both halves."""
    found = re.findall(r"\([^)]*\)", line)
    wanted = [UNITS[name] for name in log.columns if name in UNITS]
    if "count" in log.columns:
        wanted.insert(1, "(elements)")
    if found != wanted:
        raise BadInput(f"{log.where}: units {' '.join(found)}, and {' '.join(wanted)} is what nccl-tests prints")
    log.units_seen = True


def _measured(log: _Log, line: str, left: Counter[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    cells = line.split()
    if len(cells) != len(log.columns):
        raise BadInput(f"{log.where}: {len(cells)} values under {len(log.columns)} headings ({' '.join(log.columns)}): "
                       f"{line[:80]!r}")
    if not log.units_seen:
        raise BadInput(f"{log.where}: no line of units (B), (us), (GB/s) stands before it")
    if log.program is None:
        raise BadInput(f"{log.where}: nothing says which test this is: put the command's line into the log, or name the file "
                       f"after it ({', '.join(PROGRAMS)})")
    size, per_node, nodes, groups = log.group()
    op = PROGRAMS[log.program]
    at = [i for i, name in enumerate(log.columns) if name == "time"]
    if not cells[0].isdecimal() or len(cells[0]) > 15:
        raise BadInput(f"{log.where}: {cells[0][:40]!r} is no number of bytes: {line[:80]!r}")
    total = int(cells[0])
    if size < 2:
        left["one rank alone"] += 1
        return
    for i in at:
        time_us, algbw, busbw = cells[i : i + 3]
        wrong = cells[i + 3] if len(cells) > i + 3 and log.columns[i + 3] in ("#wrong", "error") else "0"
        if "N/A" in (time_us, algbw):
            left["no value (N/A)"] += 1
            continue
        try:
            us, alg, bus = float(time_us), float(algbw), float(busbw)
        except ValueError:
            raise BadInput(f"{log.where}: {time_us} {algbw} {busbw} are not three numbers: {line[:80]!r}") from None
        if not all(0 <= number <= 1e15 for number in (us, alg, bus)):
            raise BadInput(f"{log.where}: {time_us} {algbw} {busbw} are no time and bandwidths: {line[:80]!r}")
        if log.columns[i + 3 : i + 4] == ["#wrong"] and wrong not in ("0", "N/A"):
            left["wrong results (#wrong above 0)"] += 1
            continue
        if not us > 0 or total == 0:
            left["no bytes or no time"] += 1
            continue
        _check(log, op, size, total, us, alg, bus)
        if op == "p2p":
            yield "p2p", {"nodes": nodes, "bytes": total, "s": us * 1e-6}
        else:
            yield "collectives", {"op": op, "size": size, "per_node": per_node, "nodes": nodes, "groups": groups,
                                  "bytes": total, "s": us * 1e-6}


def _check(log: _Log, op: str, size: int, total: int, us: float, alg: float, bus: float) -> None:
    """Bytes over microseconds are the bandwidth that is printed, and it is that of this operation."""
    if alg < 1:
        return
    if abs(total / us / 1e3 / alg - 1) > NEAR:
        raise BadInput(f"{log.where}: {total} bytes in {us:g} us are {total / us / 1e3:.2f} GB/s, and it says {alg:g}: other "
                       "units?")
    factor = {"all_reduce": 2 * (size - 1) / size, "p2p": 1.0, "broadcast": 1.0}.get(op, (size - 1) / size)
    if abs(bus / alg / factor - 1) > NEAR:
        raise BadInput(f"{log.where}: busbw over algbw is {bus / alg:.3f}; of {log.program} over {size} ranks it is "
                       f"{factor:.3f}: another test, or another number of ranks")


def merged(readings: Iterable[Reading]) -> dict[str, list[dict[str, Any]]]:
    """Figures of several files: what was measured more than once has its median, and the spread of its repeats."""
    found: dict[str, list[dict[str, Any]]] = {part: [] for part in machine.PARTS}
    for part in machine.PARTS:
        repeats: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for reading in readings:
            for entry in reading.figures.get(part, []):
                key = tuple(sorted((k, v) for k, v in entry.items() if not _is_result(k)))
                repeats.setdefault(key, []).append(entry)
        found[part] = [_one(entries) for entries in repeats.values()]
    return found


def _is_result(key: str) -> bool:
    return key == "s" or key.endswith("_s") or key in ("spread", "of")


def _one(entries: list[dict[str, Any]]) -> dict[str, Any]:
    if len(entries) == 1:
        return entries[0]
    merged = dict(entries[0])
    way = next(key for key in entries[0] if key == "s" or key.endswith("_s"))
    for key in [key for key in merged if key == "s" or key.endswith("_s")]:
        values = sorted(entry[key] for entry in entries)
        merged[key] = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
    values = sorted(entry[way] for entry in entries)
    cut = len(values) // 6
    merged["spread"] = round((values[-1 - cut] - values[cut]) / 2 / merged[way], 4)
    return merged
