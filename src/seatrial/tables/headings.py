"""Headings: which field of a record a column holds, in which unit, whatever the table's author called it.

    read_heading("MP")                     -> tp
    read_heading("Memory (GB)")            -> mem_value, unit GB
    read_heading("TFLOP/s/GPU")            -> tflops per process
    setting("NHIDDEN")                     -> hidden, also for `--hidden-size 2048` and `Sequence Length=1024` in the text

One table of names serves headings, `KEY=VALUE` in prose, command line options and log files' argument dumps.
"""
from __future__ import annotations

import html
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from seatrial import columns

Kind = Literal[
    "count", "figure", "memory", "seconds", "rate", "percent", "frequency", "yesno", "recompute", "zero", "dtype",
    "size", "date", "settings", "word", "notes", "state", "outcome", "flags", "names", "source",
    "memory unit",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """What a heading says about the cells under it; one object per heading, so that cells are looked up by identity."""

    field: str = ""
    """The record's field; empty where none takes it."""
    kind: Kind = "word"
    unit: str = ""
    per: str = ""
    """process or node, where the heading of a rate says so."""
    formula: str = ""
    heading: str = ""
    parts: tuple[str, ...] = ()
    """The fields of a column that holds several counts at once, such as `DP/TP/PP`."""


LONGEST_CELL = 1000
"""Letters beyond which a cell is an essay: its markdown stays, and it is no number."""
NUMBER = re.compile(
    r"[+-]?(?:\d{1,3}(?:\.\d{3}){2,}|\d{1,3}(?:\.\d{3})+,\d+|\d+,(?!\d{3}(?:\D|$))\d+|0,\d+)(?![\d.,])"
    r"|[+-]?(?:\d{1,3}(?:[,'_]\d{3})+(?!\d)|\d+)(?:\.\d*)?(?:[eE][+-]?\d+)?|[+-]?\.\d+(?:[eE][+-]?\d+)?"
)
"""A number as it is typed in many countries: a comma before three digits parts thousands, before any other it is the point."""
_COMMA = re.compile(r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+")
_SPACES = re.compile(r"(?<=\d)[\u00a0\u2007\u2009\u202f](?=\d{3}(?!\d))")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<!--.*?-->")
_RAISED = re.compile(r"<su[pb]>(.*?)</su[pb]>", re.IGNORECASE)
_EMPHASIS = re.compile(r"(\*\*\*|\*\*|__|~~|(?<!\*)\*(?!\*)|(?<![\w_])_(?=\S))(\S(?:.*?\S)?)\1(?!\w)")
_LETTERS = str.maketrans({"\u2212": "-", "\u00a0": " ", "\u2007": " ", "\u2009": " ", "\u202f": " ", "（": "(", "）": ")",
                          "\u00b5": "u", "\u03bc": "u"})  # fmt: skip


def clean(text: str) -> str:
    """The text of a cell without its markdown: bold, code, links, entities and typographic letters as plain ones."""
    if text.isascii() and not any(letter in text for letter in "*_`[<&\\~"):
        return text.strip()
    if len(text) > LONGEST_CELL:
        return html.unescape(text).translate(_LETTERS).strip()
    text = _SPACES.sub("", text.replace("&nbsp;", "\u00a0"))
    text = _LINK.sub(r"\1", text)
    # A tag leaves a gap, so that a footnote's or a struck digit never becomes part of the number beside it.
    if "<" in text:
        text = re.sub(" {2,}", " ", _TAG.sub(" ", _RAISED.sub(r" [\1]", text)))
    text = re.sub(r"(`+)(.+?)\1", r"\2", text)
    for _ in range(3):
        text, changed = _EMPHASIS.subn(r"\2", text)
        if not changed:
            break
    text = re.sub(r"\\([\\`*_{}\[\]()#+.!|~<>-])", r"\1", text)
    return html.unescape(text).translate(_LETTERS).strip()


def decimal(number: str) -> str:
    """A match of `NUMBER` as Python reads it."""
    if number.count(".") > 1 and "," not in number:
        return number.replace(".", "")
    whole, _, part = number.partition(",")
    if _COMMA.fullmatch(number) and (len(part) != 3 or "." in whole or whole.lstrip("+-") == "0"):
        return whole.replace(".", "") + "." + part
    return re.sub("[,'_]", "", number)


_NAMES = """
machine word:
    machine, cluster, system, hardware, device, gpu type, gpu model, accelerator
env settings:
    env, environment, settings, setting, options, env vars
mem_value memory:
    mem, memory, peak mem, peak memory, max mem, max memory, gpu mem, gpu memory, vram, memory usage, mem usage,
    mem per gpu, memory per gpu, max memory allocated, peak memory allocated, max allocated, mem used, memory used,
    peak vram, peak gpu memory, mem value, speicher, gpu speicher, spitzenspeicher
mem_unit memory unit:
    mem unit, memory unit, unit of memory
mem_scope word:
    mem of, mem scope, memory of
sec_per_it seconds:
    time, step time, iteration time, iter time, time per iteration, time per step, time per it, time per iter,
    elapsed time per iteration, iteration latency, avg step time, mean step time, sec per it, seconds per iteration,
    secs per it, s per it, s per iter, s per step, sec per iter, sec per iteration, sec per step, seconds per step,
    secs per iteration, seconds per it, s per iteration, seconds per iter, secs per step, secs per iter, ms per it,
    ms per iter, ms per step, ms per iteration, msec per it, msec per iter, it per s, it per sec, its per s, iter per s,
    iters per s, iter per sec, iterations per s, iterations per sec, iterations per second, steps per s, steps per sec,
    steps per second, zeit per schritt, schrittzeit, zeit per iteration
time_unit word:
    time unit
tflops figure:
    tflops, tflop, tflop per s, tflops per s, tflops per gpu, tflop per s per gpu, tflops per s per gpu,
    tflops per device, tflops per process, tflops per node, tflop per s per node, tflops per s per node,
    achieved tflops, model tflops, model tflops per gpu, hardware tflops, hw tflops, hw tflops per gpu,
    throughput per gpu, tflops per second, teraflops, tflops per rank, avg tflops, model tflop per s per gpu
formula word:
    formula, tflops formula
tflops_per word:
    tflops of, tflops per
aggr_pflops figure:
    est aggr petaflops, aggr petaflops, aggregate petaflops, petaflops, pflops, pflop per s, pflops per s,
    aggregate pflops, aggr pflops, total pflops, aggregate pflop per s, total petaflops, est aggr pflops
samples_per_s rate:
    samples per s, samples per sec, samples per second, sample per s, sps, seq per s, seqs per s, sequences per s,
    sequences per sec, sequences per second, seq per sec, throughput samples per s
tokens_per_s rate:
    tokens per s, tokens per sec, tokens per second, tok per s, toks per s, token per s, tps, tok per sec,
    throughput tokens per s, token per sec
tokens_per_s_per_process rate:
    tokens per s per gpu, tokens per sec per gpu, tokens per second per gpu, tok per s per gpu, tgs,
    tokens per gpu per second, tokens per gpu per second tgs, tps per gpu, tokens per gpu per s,
    tokens per s per process, tokens per gpu per sec, wps per gpu, tokens per s per device
throughput rate:
    throughput, speed
mfu percent:
    mfu, model flops utilization, model flop utilization, flops utilization
hfu percent:
    hfu, hardware flops utilization
loss figure:
    loss, lm loss, train loss, training loss, final loss
iteration count:
    iteration, step, iter, it
date date:
    date, day, when
session word:
    session
notes notes:
    notes, note, comment, comments, remark, remarks, description
state state:
    state
outcome outcome:
    outcome, status, result
flags flags:
    flags, marks
estimated names:
    estimated
inferred names:
    inferred
run_id word:
    run, run id
source source:
    source
"""
"""A field that only a record has and how its cells are read, then what authors call it, in plain words (see `normal`)."""


def _by_name() -> dict[str, tuple[str, Kind]]:
    """Of what a trial has, the names stand with its fields (`columns.py`)."""
    found = {name: (field, cast(Kind, kind)) for name, (field, kind) in columns.aliases().items()}
    key: tuple[str, Kind] = ("", "word")
    for line in _NAMES.strip().splitlines():
        if line.endswith(":"):
            field, kind = line[:-1].split(maxsplit=1)
            key = field, cast(Kind, kind)
        else:
            found.update({name.strip(): key for name in line.split(",") if name.strip()})
    return found


_BY_NAME = _by_name()

SETTINGS = frozenset({*columns.ASKED, "machine"})
"""What the text around a table can state for its rows; figures are never taken from prose."""

MEASURES = (
    "mem_value", "sec_per_it", "tflops", "aggr_pflops", "samples_per_s", "tokens_per_s", "tokens_per_s_per_process",
    "mfu", "hfu", "loss",
)  # fmt: skip

_UNIT_WORDS = {
    "s": "s", "sec": "s", "secs": "s", "seconds": "s", "second": "s", "ms": "ms", "msec": "ms", "milliseconds": "ms",
    "min": "min", "minutes": "min", "us": "us", "usec": "us", "microseconds": "us", "h": "h", "hr": "h", "hrs": "h",
    "hours": "h", "hour": "h", "days": "d", "bytes": "B", "b": "B", "kb": "KB", "kib": "KiB", "mb": "MB", "mib": "MiB",
    "gb": "GB", "gib": "GiB", "tb": "TB", "tib": "TiB", "k": "K", "m": "M", "thousands": "K", "millions": "M", "%": "%",
    "ghz": "GHz", "mhz": "MHz",
}  # fmt: skip
LONGEST_HEADING = 120
_BRACKET = re.compile(r"[(\[]([^)\]]*)[)\]]")


def normal(text: str) -> str:
    """`#GPUs`, `Sec/it`, `micro-batch_size` and `Est. Aggr. PetaFLOPs` as the plain words that the names are kept in."""
    text = text.lower().replace("/", " per ").replace("#", " num " if text.strip() != "#" else "#")
    return " ".join(re.sub(r"[^a-z0-9%]+", " ", text).split())


@lru_cache(maxsize=4096)
def read_heading(raw: str) -> Column:
    """The column a heading stands for; a column without a field keeps its cells' text."""
    if len(raw) > LONGEST_HEADING:
        return Column(heading=raw.strip())
    text = clean(raw).strip("*†^ ")
    inside = [part for group in _BRACKET.findall(text) for part in re.split(r"[,;]", group)]
    plain = normal(_BRACKET.sub(" ", text))
    whole = normal(text)
    found = _BY_NAME.get(whole) or _BY_NAME.get(plain) or _BY_NAME.get(plain.removeprefix("num ").removeprefix("est "))
    if found is None:
        words = plain.split()
        if len(words) > 1 and words[-1] in _UNIT_WORDS:
            found = _BY_NAME.get(" ".join(words[:-1]))
            inside.append(words[-1])
    if found is None:
        return Column(heading=raw.strip(), parts=_parts(text))
    field, kind = found
    unit, per, formula = _heading_unit(kind, plain), _heading_per(plain), _formula_of(plain)
    for part in inside:
        part = part.strip()
        words_in = normal(part)
        if field in ("gbs", "mbs") and re.search(r"\btok(?:en)?s?\b", words_in):
            return Column(heading=raw.strip())  # a batch of tokens is no number of samples
        unit = _UNIT_WORDS.get(words_in, unit)
        per = _heading_per(words_in) or per
        if field == "throughput" and words_in in _BY_NAME:
            field, kind = _BY_NAME[words_in]
            per = _heading_per(words_in) or per
        elif (
            field == "tflops" and part and words_in not in _UNIT_WORDS and not _heading_per(words_in) and "flop" not in words_in
        ):
            formula = part
    if field == "iteration" and unit in ("s", "ms", "us", "min", "h"):
        field, kind = "sec_per_it", "seconds"  # `Step (s)`
    if field == "throughput":
        return Column(heading=raw.strip(), field="throughput", kind="rate")
    if field != "tflops":
        per = formula = ""
    return Column(heading=raw.strip(), field=field, kind=kind, unit=unit, per=per, formula=formula)


def _parts(text: str) -> tuple[str, ...]:
    """`DP/TP/PP` and `TP x PP` name several counts, which their cells hold in the same order."""
    found = [_BY_NAME.get(normal(part)) for part in re.split(r"\s*[/,×+&]\s*|\s+x\s+", text.strip("() "))]
    fields = tuple(entry[0] for entry in found if entry is not None and entry[1] == "count")
    return fields if len(fields) == len(found) == len(set(fields)) and len(fields) > 1 else ()


_WEAK = {"model", "model name", "batch size", "batch", "bs", "time", "device", "accelerator", "sequence"}
"""Names that give way where the same table has a clearer one."""


def settle(columns: list[Column]) -> list[Column]:
    """A table's columns, where a vague heading (Model, Batch size, Time) loses its field to a clear one (Size, GBS, Sec/it)."""
    taken = {column.field for column in columns if column.field and normal(column.heading) not in _WEAK}
    return [
        Column(heading=column.heading) if column.field in taken and normal(column.heading) in _WEAK else column
        for column in columns
    ]


def _heading_unit(kind: Kind, plain: str) -> str:
    if kind != "seconds":
        return ""
    if re.match(r"(it|its|iters?|iterations|steps) per s", plain):
        return "it/s"
    if re.match(r"(ms|msec)\b", plain):
        return "ms"
    return "s"


def _heading_per(plain: str) -> str:
    if re.search(r"\bper (gpu|device|process|rank)\b", plain):
        return "process"
    return "node" if re.search(r"\bper node\b", plain) else ""


def _formula_of(plain: str) -> str:
    if plain.startswith("model tflop"):
        return "model"
    return "hardware" if plain.startswith(("hardware tflop", "hw tflop")) else ""


@lru_cache(maxsize=4096)
def setting(key: str) -> Column | None:
    """The column that a KEY of the text, an option or an argument dump stands for, where it is something a row can be asked."""
    found = _BY_NAME.get(normal(key))
    if found is None or found[0] not in SETTINGS:
        return None
    return Column(heading=key, field=found[0], kind=found[1])
