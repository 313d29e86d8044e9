"""Bytes to try readers with: real samples by kind, and what is done to them.

    mutants.samples()["md"]                     pieces of Markdown notes and pages
    mutants.mutated(data, rng, others)          the same for the same random state; `others` lend pieces

What reads them, and what must come of it, is in `fuzzing.py`.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import random
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LARGEST = 3000
"""Bytes of a sample: what a reader trips over stands in a few lines, and thousands of cases a minute count more."""

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
        "script": [text for text in _fences("text") if b" --" in text],
        "yaml": _fences("yaml"),
        "json": _fences("json"),
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
