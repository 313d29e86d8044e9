"""Cases for `benchmarks/fuzz.py` and `tests/unit/test_fuzz.py`: real samples, what is done to them, and what reads them.

    case = fuzzing.case(seed)                   the same for the same seed: a target, and the bytes it is given
    fuzzing.failure(case, folder)               None, or what came: any exception that is not ours, or more than its time
    fuzzing.shrunk(case, folder)                the smallest bytes that still end the same way

A target is the function behind a command. What it makes of a file goes on to what other commands make of that.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import random
import re
import signal
import time
import tomllib
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from seatrial.errors import SeatrialError

ROOT = Path(__file__).parents[1]
LIMIT_S = 5.0
LARGEST = 3000
"""Bytes of a sample: what a reader trips over stands in a few lines, and thousands of cases a minute count more."""


@dataclass(frozen=True)
class Case:
    seed: int
    target: str
    data: bytes


class TooLong(BaseException):
    """Not an Exception: nothing that is tested may swallow it."""


# ---- samples

LOGS = [
    b"using world size: 8, data-parallel-size: 2, tensor-model-parallel size: 2, pipeline-model-parallel size: 2\n"
    b"------------------------ arguments ------------------------\n  num_layers ...................................... 24\n"
    b"  hidden_size ..................................... 2048\n  seq_length ...................................... 2048\n"
    b"  global_batch_size ............................... 64\n  micro_batch_size ................................ 4\n"
    b" iteration       10/     500 | consumed samples:          640 | elapsed time per iteration (ms): 1234.5 | learning rate: "
    b"1.0E-04 | global batch size:    64 | lm loss: 6.543210E+00 | loss scale: 4096.0 | grad norm: 1.234 | number of skipped "
    b"iterations:   0 | number of nan iterations:   0 | TFLOPs: 52.1 |\n"
    b"[Rank 0] (after 10 iterations) memory (MB) | allocated: 8123.4 | max allocated: 12345.6 | reserved: 14000.0\n"
    b" iteration       11/     500 | consumed samples:    704 | elapsed time per iteration (ms): 1230.1 | lm loss: nan |\n",
]
OPTIONS = [
    b'{"model": "tiny", "cluster": "jz-a100", "fixed": {"gbs": "64", "tp": "1,2", "zero": "0"}, "nodes": 1, '
    b'"rampup": "16,16,4096", '
    b'"sequence_parallel": "off", "precision": "bf16", "headroom": "5%", "settings": ["model.layers=4", "cluster.nodes=2"]}',
    b'{"model": "bloom-181b", "cluster": "local", "fixed": {"gbs": "2048", "recompute": "full", "schedule": "1f1b"}, '
    b'"settings": ["topology.tp=4", "execution.attention=\\"fused\\"", "cluster.device.power_w=500"]}',
]
RULES = [
    b"dp % 4 == 0 and nodes <= 48",
    b"not (tp > 8 or pp * vp > layers // 2) and 12 <= layers // pp",
    b"gbs // (dp * mbs) >= pp",
]
CONFIGS = [
    {
        "model_type": "llama",
        "vocab_size": 32000,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 256,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        "head_dim": 16,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
    },
    {
        "model_type": "gpt2",
        "vocab_size": 50257,
        "n_layer": 2,
        "n_embd": 64,
        "n_head": 4,
        "n_positions": 64,
        "n_inner": None,
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
    },
    {
        "model_type": "qwen2",
        "vocab_size": 1000,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
        "max_position_embeddings": 64,
        "num_key_value_heads": 4,
        "use_sliding_window": True,
        "sliding_window": 4096,
        "max_window_layers": 1,
        "layer_types": ["full_attention", "sliding_attention"],
    },
]
DEVICE = [
    b"all_reduce_perf -b 8 -e 1M -f 2 -g 8\n# nThread 1 nGpus 8 minBytes 8 maxBytes 1048576 step: 2(factor)\n#\n"
    b"#  Rank  0 Group  0 Pid   101 on       node device  0 [0x19] NVIDIA H100 80GB HBM3\n"
    b"#  Rank  1 Group  0 Pid   101 on       node device  1 [0x3b] NVIDIA H100 80GB HBM3\n"
    b"#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    b"#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
    b"     1048576        262144     float     sum      -1    31.20   33.61   33.61      0    30.98   33.85   33.85      0\n"
    b"     2097152        524288     float     sum      -1    41.02   51.12   51.12      0    40.11   52.28   52.28      0\n",
    b"framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\n"
    b"TRTLLM,1.0,NVIDIA H100 80GB HBM3,gemm,torch_flow,float16,4096,4096,4096,0.21\n"
    b"TRTLLM,1.0,NVIDIA H100 80GB HBM3,gemm,torch_flow,float16,8192,4096,4096,0.41\n",
]


def _cut(data: bytes, rng: random.Random) -> bytes:
    """The head of a file, and of a table some of its lines."""
    if len(data) <= LARGEST:
        return data
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([lines[0], *lines[max(1, at) : at + 5]])[:LARGEST]


def _some(found: list[Path]) -> list[bytes]:
    return [path.read_bytes() for path in sorted(found)]


@cache
def samples() -> dict[str, list[bytes]]:
    """By kind. Of long files many short pieces."""
    rng = random.Random(7)
    data, examples = ROOT / "tests" / "data", ROOT / "examples"
    markdown = _some([*data.glob("notes/**/*.md"), *data.glob("frozen/**/*.md"), *(ROOT / "docs").rglob("*.md")])
    found = {
        "md": [
            *markdown,
            *_blocks(markdown),
            *_blocks(markdown),
            *_some([*data.rglob("*.html"), *data.rglob("*.rst")]),
        ],
        "csv": _some(
            [
                *data.glob("notes/**/*.csv"),
                *data.glob("logs/*.csv"),
                *data.glob("frozen/**/*.csv"),
                *examples.rglob("*.csv"),
            ]
        ),
        "sweep": [
            *_some([*examples.rglob("*.toml"), data / "frozen/sweep.toml", data / "frozen/trial.toml"]),
            *_fences("toml"),
        ],
        "engine": [
            b'base = "fsdp2"\n' + text for text in _some([*(ROOT / "src/seatrial/presets/engines").glob("*.toml")])
        ],
        "machine": [_small_machine()],
        "calibration": [_calibration()],
        "records": [
            json.dumps(r).encode() for r in json.loads((data / "frozen/tables/table.json").read_bytes())["records"]
        ],
        "book": [
            line for text in _some([*data.glob("frozen/logbook/segments/*.jsonl")]) for line in text.splitlines(True)
        ],
        "run": _some([*data.glob("frozen/runs/*/run.json")]),
        "manifest": _some([*data.glob("frozen/checkpoint/*/manifest.json")]),
        "metrics": _some(
            [*data.glob("logs/*.jsonl"), *(p for p in data.glob("logs/*.json") if "expected" not in p.name)]
        ),
        "format": _some([*(ROOT / "src/seatrial/presets/formats").glob("*.toml")]),
        "events": _some([*data.glob("logs/*tfevents*")]),
        "config": [json.dumps(config, indent=1).encode() for config in CONFIGS],
        "log": [*LOGS, *_some([*data.glob("logs/*.log"), *data.glob("logs/*.txt")])],
        "options": OPTIONS,
        "rule": RULES,
        "device": DEVICE,
        "set": [
            b"topology.stage_layers=1-4-3", b"topology.stage_layers=auto", b"topology.stage_layers=Et|(t*4|)*3L",
            b"model.layers=70",
            b"cluster.device.power_w=500",
            b'execution.attention="fused"',
            b"axes.dp=[1, 2]",
            b'environment.variables.OMP_NUM_THREADS="4"',
            b"batch={gbs=8}",
        ],
    }
    whole = ("calibration", "machine", "run", "manifest", "records", "book", "events")
    return {
        kind: texts
        if kind in whole
        else [piece for text in texts for piece in (_cut(text, rng) for _ in range(1 if len(text) <= LARGEST else 12))]
        for kind, texts in found.items()
    }


def _blocks(texts: list[bytes]) -> list[bytes]:
    """Tables with the heading before them."""
    return [
        block
        for text in texts
        for block in re.findall(rb"(?:^#[^\n]*\n(?:[^|#][^\n]*\n|\n){0,12})?(?:^\|[^\n]*\n){3,9}", text, re.M)
    ]


def _fences(language: str) -> list[bytes]:
    texts = _some([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
    return [block for text in texts for block in re.findall(rf"^```{language}\n(.*?)^```".encode(), text, re.M | re.S)]


def _small_machine() -> bytes:
    whole = json.loads((ROOT / "tests/data/frozen/machine.json").read_bytes())
    whole["figures"] = {part: entries[:2] for part, entries in whole["figures"].items()}
    return json.dumps(whole, indent=1).encode()


def _calibration() -> bytes:
    from seatrial import presets
    from seatrial.plan import calibrate, rows

    cluster = presets.cluster("jz-a100")
    table = rows.read(ROOT / "examples/bloom-prequel/rows.csv", cluster)
    learned = calibrate.learn([row for row in table.rows if row.counts and row.trial is not None][:2], cluster)
    return json.dumps(learned.to_dict()).encode()


# ---- what is done to them

ODD = [
    b"9" * 400, b"-1", b"0", b"-0.0", b"1e308", b"1e-308", b"1e400", b"nan", b"NaN", b"inf", b"-Infinity",
    b"1000000000", b"[1, 2]", b"[]", b"{}", b'"x"', b"''", b"true", b"null", b"None", b"x", b"", b"1.5", b"3.0000001",
    b"9223372036854775808", b"1e18", b"0x10", b"1_000", b"1,000.5", b"27,92", b"1 000", "½".encode(), "٣".encode(),
    b"2024-01-01", b"9" * 5000, b"1e40", b"1e30", b"99999999999", b"750 us", b"12.5 %", b"0.12 PFLOPs", b"2 hours",
    b"~3", b"3^", b"8x8", b"8/4/12", b"-", b"1/0",
]  # fmt: skip
PIECES = [
    b"\0", b"\r", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1b[31m", "\u202e".encode(), b"\xed\xa0\x80",
    b"\\ud800", b"\\u0000", b"&#99999999999;", b"&#55296;", b"&nbsp;", b"|", b"||", b"\"", b"'", b"`", b"{", b"}",
    b"[", b"]", b"=", b",", b";", b"\t", b"#", b"<!--", b"-->", b"<br>", b"**", b"~~", b"%", b"(", b")", b"\\", b"/",
    b"\x85", "\u2028".encode(), b"[" * 200, b"{\"a\":" * 200, b"a." * 200, b"=1+1", b"x" * 3000, b"=cmd|x",
]  # fmt: skip
HEADINGS = [
    b"Source", b"Estimated", b"Inferred", b"State", b"Outcome", b"Notes", b"Env", b"mem_unit", b"time_unit",
    b"TFLOPs (per node)", b"DP/TP/PP", b"Sec/it (ms)", b"Mem (bytes)", b"Throughput", b"MFU", b"GPUs", b"Nodes",
    b"Also", b"Flags", b"Date", b"iteration", b"Size", b"seatrial", b"Loss", b"Formula", b"CP", b"Sequence Length (K)",
    b"tokens/s/GPU", b"ms/it", b"it/s", b"Freq",
]  # fmt: skip
_NUMBER = re.compile(rb"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][\w.]*")
_QUOTED = re.compile(rb'"[^"\n]*"')
_LINE = re.compile(rb"[^\n]*\n?")


def mutated(data: bytes, rng: random.Random, others: list[bytes], toml: bool = False) -> bytes:
    if data[:1] in (b"{", b"[") and rng.random() < 0.7:
        return _structure(data, rng, others)
    if toml and rng.random() < 0.5:
        return _toml_structure(data, rng, others)
    # Half of them in words alone, so that it is still a file of its kind.
    known = WORDED if rng.random() < 0.5 else MUTATIONS
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        data = rng.choice(known)(data, rng, others)[: 8 * LARGEST]
    return data


def _replaced(pattern: re.Pattern[bytes], data: bytes, rng: random.Random, new: Callable[[bytes], bytes]) -> bytes:
    found = [m.span() for m in pattern.finditer(data) if m.end() > m.start()]
    if not found:
        return data
    start, end = rng.choice(found)
    return data[:start] + new(data[start:end]) + data[end:]


def _flip(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _insert(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(PIECES) + data[at:]


def _delete(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + data[at + rng.choice((1, 1, 2, 5, 20, 100)) :]


def _truncate(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    return data[: rng.randint(0, len(data))] if rng.random() < 0.5 else data[rng.randint(0, len(data)) :]


def _splice(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    other = rng.choice(others)
    a, b = rng.randint(0, len(data)), rng.randint(0, len(other))
    return (
        data[:a]
        + other[b : b + rng.choice((10, 50, 200, 1000))]
        + data[a if rng.random() < 0.5 else min(len(data), a + 50) :]
    )


def _number(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    return _replaced(
        _NUMBER,
        data,
        rng,
        lambda old: rng.choice(ODD) if rng.random() < 0.8 else old + rng.choice((b"0" * 9, b"e9", b"e-9")),
    )


def _key(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    words = _WORD.findall(data) or [b"x"]
    return _replaced(
        _WORD,
        data,
        rng,
        lambda old: rng.choice((rng.choice(words), rng.choice(HEADINGS), old + old, old[:-1], rng.choice(ODD))),
    )


def _quote(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    return _replaced(
        _QUOTED,
        data,
        rng,
        lambda old: rng.choice((old[1:-1], rng.choice(ODD), b'"' + rng.choice(PIECES) + b'"', b"[" + old + b"]")),
    )


def _line(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    return _replaced(_LINE, data, rng, lambda old: rng.choice((old + old, b"", old * 20, rng.choice(others)[:200])))


def _swap(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) > 1:
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def _heading(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Another column, or another name of one."""
    first, end, rest = data.partition(b"\n")
    sign = b"|" if b"|" in first else b","
    cells = first.split(sign)
    cells[rng.randrange(len(cells))] = rng.choice(HEADINGS)
    if rng.random() < 0.3:
        cells.append(rng.choice(HEADINGS))
    return sign.join(cells) + end + rest


VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 1.5, 10**9, 10**18, 10**19, 10**400, 1e308, 1e-308, float("nan"), float("inf"), "",
    "x", "8", "\ud800", "\x1b[31m", [], [1], {}, {"a": 1}, [[]], [None], "=1+1", "1e400", -0.0, 2**63, [1] * 50,
    {"": {}},
]  # fmt: skip


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if value != value else "inf"
    return (
        '"none"'
        if value is None
        else json.dumps(str(value))
        if not isinstance(value, int | float | str)
        else json.dumps(value)
    )


def _toml_structure(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    try:
        found = tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        return data
    changed = json.loads(_structure(json.dumps(found, default=str).encode(), rng, others))
    return "".join(f"{json.dumps(str(key))} = {_toml(value)}\n" for key, value in changed.items()).encode(
        "utf-8", "replace"
    )


def _structure(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Of what is JSON, or lines of it: a value, a key, another's value; it is JSON still."""
    lines = data.splitlines(keepends=True) if b"\n{" in data and data[:1] == b"{" else [data]
    at = rng.randrange(len(lines)) if lines else 0
    try:
        found = json.loads(lines[at])
    except (ValueError, IndexError, RecursionError):
        return data
    for _ in range(rng.choice((1, 1, 2))):
        places: list[tuple[Any, Any]] = []
        waiting = [found]
        while waiting:
            table = waiting.pop()
            keys = (
                list(table) if isinstance(table, dict) else list(range(len(table))) if isinstance(table, list) else []
            )
            places += [(table, key) for key in keys]
            waiting += [table[key] for key in keys]
        if not places:
            break
        table, key = rng.choice(places)
        how = rng.random()
        if how < 0.6:
            table[key] = copy.deepcopy(rng.choice(VALUES))
        elif how < 0.75:
            del table[key]
        elif how < 0.9:
            there, other = rng.choice(places)
            with contextlib.suppress(KeyError, IndexError):
                table[key] = json.loads(json.dumps(there[other]))
        elif isinstance(table, dict):
            table[rng.choice(["x", "base", "source", "state", "outcome", "dp", "trial", str(key) + "s"])] = table.pop(
                key
            )
    lines[at] = json.dumps(found).encode() + b"\n"
    return b"".join(lines)


MUTATIONS = [
    _flip,
    _insert,
    _delete,
    _truncate,
    _splice,
    _number,
    _number,
    _number,
    _key,
    _key,
    _quote,
    _line,
    _swap,
    _heading,
]
WORDED = [_number, _number, _number, _key, _quote, _quote, _line]


# ---- what reads them


@cache
def _cluster() -> Any:
    from seatrial import presets

    return presets.cluster("jz-a100")


@cache
def _cold() -> Any:
    from seatrial.plan import calibrate

    return calibrate.cold(_cluster())


def _records(records: Any, rng: random.Random) -> None:
    """What every command makes of records, and that what is written is read again."""
    from seatrial.notes.lint import lint
    from seatrial.plan import rows
    from seatrial.tables.csvjson import to_csv, to_json
    from seatrial.tables.markdown import to_markdown
    from seatrial.tables.short import to_short
    from seatrial.terminal import visible

    records = list(records)[:40]
    which = rng.random()
    if which < 0.4:
        lint(records)
    elif which < 0.7:
        for text in (to_csv(records), to_json(records), to_markdown(records, source=True), to_short(records)):
            visible(text).encode()
    elif which < 0.95:
        _forecast(rows.from_records([record.to_dict() for record in records[:8]], _cluster(), "x"), rng)
    else:
        _page(records)


def _page(records: list[Any]) -> None:
    from seatrial.report import data, page

    page.html(data.build(records, title="t"))


def _forecast(table: Any, rng: random.Random, fit: Any = None) -> None:
    from seatrial.plan import calibrate, forecast

    fit = fit or _cold()
    small = replace(table, rows=table.rows[:8])
    for line in forecast.columns(small, fit):
        assert not any(value in ("nan", "inf", "-inf") for value in line.values()), f"a forecast of {line}"
    if rng.random() < 0.05:
        calibrate.from_table(small, fit.cluster).describe()


def _notes(path: Path, rng: random.Random) -> None:
    from seatrial.notes.lint import look_at
    from seatrial.notes.read import import_file

    found = import_file(path)
    if rng.random() < 0.3:
        look_at([str(path)])
    else:
        _records(found.records, rng)


def _format(path: Path, rng: random.Random) -> None:
    from seatrial.notes.read import import_file

    log = path.with_suffix(".log")
    log.write_bytes(rng.choice(samples()["log"]))
    _records(import_file(log, format=path).records, rng)


def _csv(path: Path, rng: random.Random) -> None:
    from seatrial.plan import rows

    if rng.random() < 0.7:
        _notes(path, rng)
        return
    table = rows.read(path, _cluster())
    _forecast(table, rng)
    if rng.random() < 0.03:
        from seatrial.tune import replay

        replay.read(str(path), cluster="jz-a100")


def _sweep(path: Path, rng: random.Random) -> None:
    from seatrial import presets, trialfile
    from seatrial.plan import forecast
    from seatrial.sweep import file as sweeps

    for call in (
        lambda: trialfile.load(path),
        lambda: sweeps.asked(path),
        lambda: presets.model(str(path)),
        lambda: presets.cluster(str(path)),
        lambda: sweeps.tables(path),
    ):
        with contextlib.suppress(SeatrialError):
            call()
    data = presets.read_toml(path)
    made = sweeps.build({**data, "repeats": 1} if rng.random() < 0.5 else data, where=str(path))
    for task in made.tasks[:5]:
        assert task.label or task.invalid
    if len(made.tasks) <= 50:
        table, here = forecast.table_of(path)
        from seatrial.plan import calibrate

        _forecast(table, rng, calibrate.cold(here))


def _engine(path: Path, rng: random.Random) -> None:
    from seatrial.engines.model import model_of
    from seatrial.plan import rows

    model_of.cache_clear()
    model_of(str(path))
    _forecast(
        rows.from_records([{"layers": 2, "hidden": 1024, "tp": 2, "dp": 2, "engine": str(path)}], _cluster(), "x"), rng
    )


def _machine(path: Path, rng: random.Random) -> None:
    from seatrial import presets
    from seatrial.plan import calibrate, rows

    cluster = presets.cluster(str(path))
    line = {"layers": 2, "hidden": 1024, "dp": 2, "mbs": 2, "gbs": 8, "attention": "fused"}
    _forecast(
        rows.from_records([line, {**line, "tp": 2, "dp": 1}, {**line, "pp": 2, "dp": 1}], cluster, "x"),
        rng,
        calibrate.cold(cluster),
    )


def _calibrated(path: Path, rng: random.Random) -> None:
    from seatrial.plan import calibrate, rows

    fit = calibrate.from_file(path, _cluster())
    fit.describe()
    for doubt in fit.doubted:
        assert f"{doubt.measured_s:.5g}"
    table = rows.from_records([{"layers": 40, "hidden": 4096, "tp": 2, "pp": 2, "nodes": 1}], _cluster(), "x")
    _forecast(table, rng, fit)


def _config(path: Path, rng: random.Random) -> None:
    from seatrial.huggingface import hfconfig
    from seatrial.huggingface.convert import _read_json

    hfconfig.config_of(hfconfig.model_of(_read_json(path), where=str(path)), dtype="float32")


def _manifest(path: Path, rng: random.Random) -> None:
    from seatrial import fields
    from seatrial.engine.io import checkpoint
    from seatrial.plaindata import parse_json
    from seatrial.spec import Model

    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    data = path.read_bytes()
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError, KeyError):
        found = parse_json(data)
        found.pop("digest")
        data = json.dumps({**found, "digest": checkpoint._digest(found)}).encode()
    (folder / checkpoint.MANIFEST).write_bytes(data)
    try:
        found = checkpoint.open_checkpoint(folder)
        if found.model is not None:
            checkpoint.check_model(found, fields.build(Model, found.model, where="model"))
    finally:
        (folder / checkpoint.MANIFEST).unlink()
        folder.rmdir()


def _run(path: Path, rng: random.Random) -> None:
    from seatrial import rules
    from seatrial.engine import runfile

    found = runfile.read(path)
    rules.violations(found.trial)
    assert found.trial.run_id()


def _book(path: Path, rng: random.Random) -> None:
    from seatrial.logbook import Logbook
    from seatrial.plan import rows
    from seatrial.report.read import read
    from seatrial.sweep import compare

    folder = path.with_suffix("")
    (folder / "segments").mkdir(parents=True, exist_ok=True)
    segment = folder / "segments" / "a.jsonl"
    segment.write_bytes(path.read_bytes())
    try:
        records, unread = read([folder])
        _records(records, rng)
        with Logbook(folder) as book:
            found, _ = book.rows({"state": "measured"})
            list(book.records({"outcome": ["ok", None], "trial.topology.tp": 1}, order=["-tflops"]))
        compare.all_together(compare.side_by_side(found, found, apart=["session"]))
        rows.read(folder, _cluster())
        assert all(re.search(r"\.jsonl:\d+: ", line) for line in unread), unread
    finally:
        segment.unlink()
        (folder / "segments").rmdir()
        folder.rmdir()


def _options(path: Path, rng: random.Random) -> None:
    from seatrial.plaindata import parse_json
    from seatrial.plan.request import Request, number, share

    try:
        said = parse_json(path.read_bytes())
        assert isinstance(said, dict) and isinstance(said.get("fixed"), dict)
        words = {
            key: value if value is None or key == "nodes" else str(value)
            for key, value in said.items()
            if key in ("model", "cluster", "rampup", "sequence_parallel", "precision", "headroom", "nodes")
        }
        nodes = words.pop("nodes", None)
        fixed = {key: None if value is None else str(value) for key, value in said["fixed"].items()}
        settings = [str(value) for value in said.get("settings", [])]
        model, cluster = words.pop("model"), words.pop("cluster")
    except (ValueError, AssertionError, KeyError, TypeError, RecursionError):
        return  # not what a command line is made of
    for text in [*fixed.values(), *settings]:
        for read in (number, share):
            with contextlib.suppress(SeatrialError):
                read("x", text or "")
    Request.read(
        model=model,
        cluster=cluster,
        nodes=nodes if type(nodes) is int else None,
        fixed=fixed,
        settings=settings,
        **words,
    )  # type: ignore[arg-type]


def _rule(path: Path, rng: random.Random) -> None:
    from seatrial import expression
    from seatrial.commands.compare import _filter
    from seatrial.logbook.records import clause_of, matches

    text = path.read_bytes().decode("utf-8", "surrogateescape")
    values = dict.fromkeys(("dp", "tp", "pp", "vp", "mbs", "gbs", "nodes", "layers"), 8)
    for part in (text, *text.split(" and ")):
        with contextlib.suppress(SeatrialError):
            key, wanted = _filter(part.replace("==", "=").replace(" ", ""), [(values, {})], path)
            clause_of(key, wanted)
            matches({"dp": 8, "trial": {"a": [1]}}, key, wanted)
    expression.parse(text, names=values).holds(values)


def _set(path: Path, rng: random.Random) -> None:
    from seatrial import trialfile

    text = path.read_bytes().replace(b"\0", b"").decode("utf-8", "surrogateescape")
    trialfile.build({"model": "tiny", "batch": {"gbs": 8}, "cluster": "jz-a100"}, [text])


def _device(path: Path, rng: random.Random) -> None:
    from seatrial import machine
    from seatrial.plan import imported
    from seatrial.probe import published

    made = imported.build([published.read(path)], device=None if rng.random() < 0.5 else "h100-80gb")
    machine.checked(made, str(path))
    machine.dumps(made)


TARGETS: dict[str, tuple[str, str, Callable[[Path, random.Random], None], int]] = {
    "notes": ("md", "t.md", _notes, 20), "csv": ("csv", "t.csv", _csv, 20), "log": ("log", "t.log", _notes, 6),
    "records": ("records", "t.jsonl", _notes, 10), "json": ("records", "t.json", _notes, 3), "text": ("md", "t.txt", _notes, 2),
    "metrics": ("metrics", "t.jsonl", _notes, 4), "tracker": ("metrics", "t.json", _notes, 4),
    "events": ("events", "t.tfevents", _notes, 2), "format": ("format", "t.toml", _format, 3),
    "sweep": ("sweep", "t.toml", _sweep, 16), "engine": ("engine", "t.toml", _engine, 3),
    "machine": ("machine", "t.json", _machine, 4), "calibration": ("calibration", "t.json", _calibrated, 3),
    "config": ("config", "t.json", _config, 6), "manifest": ("manifest", "t.json", _manifest, 3),
    "run": ("run", "t.json", _run, 4),
    "book": ("book", "t.jsonl", _book, 8), "options": ("options", "t.json", _options, 5), "rule": ("rule", "t.txt", _rule, 5),
    "set": ("set", "t.txt", _set, 5), "device": ("device", "t.log", _device, 3),
}  # fmt: skip
"""Kind of sample, name of the file, who reads it, how often."""


def case(seed: int, only: str = "") -> Case:
    rng = random.Random(seed)
    names = list(TARGETS)
    target = only or rng.choices(names, weights=[TARGETS[name][3] for name in names])[0]
    mine = samples()[TARGETS[target][0]] or samples()["md"]
    data = rng.choice(mine)
    if target == "book":
        data = b"".join(rng.choice(mine) for _ in range(rng.randint(1, 4)))
    if target == "json":
        data = b"[" + b",\n".join(rng.choice(mine) for _ in range(rng.randint(1, 3))) + b"]"
    every = mine if rng.random() < 0.8 else rng.choice(list(samples().values()))
    return Case(seed, target, mutated(data, rng, every, toml=TARGETS[target][1].endswith(".toml")))


@dataclass(frozen=True)
class Failure:
    what: str
    """The exception and where it was raised: the same for the same cause."""
    trace: str


def failure(one: Case, folder: Path, limit_s: float = LIMIT_S) -> Failure | None:
    _, name, read, _ = TARGETS[one.target]
    path = folder / name
    path.write_bytes(one.data)
    # By the processor's clock: a machine that others use is no slow input.
    signal.signal(signal.SIGVTALRM, _over)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path, random.Random(one.seed))
    except SeatrialError as error:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return None if str(error).strip() else Failure("an empty message", traceback.format_exc())
    except BaseException as error:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if isinstance(error, KeyboardInterrupt):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f for f in frames if f"{os.sep}seatrial{os.sep}" in f.filename] or frames
        where = (
            ""
            if isinstance(error, TooLong)
            else f" at {Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"
        )
        return Failure(f"{type(error).__name__}{where}", "".join(traceback.format_exception(error)[-6:]))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


def _over(*_: object) -> None:
    raise TooLong


def shrunk(one: Case, folder: Path, tries: int = 400, seconds: float = 20.0) -> Case:
    """Pieces are taken out, the larger first, as long as it ends the same way."""
    until = time.monotonic() + seconds
    found = failure(one, folder)
    if found is None:
        return one
    limit = tries
    size = max(1, len(one.data) // 2)
    while size and limit > 0 and time.monotonic() < until:
        at = 0
        while at < len(one.data) and limit > 0 and time.monotonic() < until:
            less = replace(one, data=one.data[:at] + one.data[at + size :])
            limit -= 1
            again = failure(less, folder)
            if again is not None and again.what == found.what:
                one = less
            else:
                at += size
        size //= 2
    return one


def warm() -> None:
    """Everything that is imported or made once, so that workers start with it and no case is blamed for it."""
    import tempfile

    samples()
    with tempfile.TemporaryDirectory() as name:
        for target in TARGETS:
            for seed in range(20):
                failure(case(seed, target), Path(name), limit_s=60.0)
