"""A row of cells under its headings, with what the text around it states, as one record.

    row_record(columns, cells, outline=outline, where=where)         -> record or None, and the problems met
    refit(columns, cells)                                            cells of a ragged row under the headings they belong to

The row's own cells win over the text around it. What neither says stays None. State and outcome follow from the text and
marks in the cells and from the legend that explains the marks.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from seatrial import stages
from seatrial.columns import COLUMNS, LAYOUT
from seatrial.notes.read.composed import ACCUMULATION, LONGEST, composed
from seatrial.notes.read.outline import SHAPE, Around, Outline
from seatrial.notes.read.parsing import POSITIVE, Cell, is_blank, read_cell, take_date, take_flags
from seatrial.notes.read.sound import MOST_COUNTED
from seatrial.notes.read.statements import read_statements, read_status
from seatrial.record import Outcome, Record, State, Status
from seatrial.tables import Problem, Where
from seatrial.tables.headings import (
    MEASURES,
    NUMBER,
    SETTINGS,
    Column,
    accumulates,
    clean,
    decimal,
    normal,
    read_heading,
    setting,
)  # fmt: skip
from seatrial.tables.tongues import in_english
from seatrial.tables.unknown import unknown_columns

ESTIMATE_MARKS = ("^", "~")
"""Marks that say `worked out` where no legend says otherwise."""
LONG_NOTE = 8
"""Words from which on a note beside figures is an explanation and not a word for what happened."""
TIMES = ("sec_per_it", "tflops", "samples_per_s", "tokens_per_s", "tokens_per_s_per_process")


@dataclass(kw_only=True)
class _OpenRow:
    """A row while it is being read."""

    values: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    flags: dict[str, list[str]] = field(default_factory=dict)
    """Mark -> the fields it stands at."""
    remarks: list[tuple[str, str]] = field(default_factory=list)
    """(column, words) beside numbers."""
    notes: list[str] = field(default_factory=list)
    configured: dict[str, Any] = field(default_factory=dict)
    """What a cell such as `TP8, PP4` under a heading of its own says; the columns proper win."""
    shared: dict[str, tuple[str, float, Column, str]] = field(default_factory=dict)
    """Field -> what its value still is to be divided or multiplied by, and a step of its last digit."""
    dated: bool = False
    unread: list[tuple[Column, str, Cell]] = field(default_factory=list)


def row_record(
    columns: Sequence[Column], cells: Sequence[str], *, outline: Outline, where: Where
) -> tuple[Record | None, list[Problem]]:
    row = _OpenRow()
    comma = outline.comma_at(where.line)
    spaced = POSITIVE if outline.spaced else ()
    cells = [_THOUSANDS.sub("\u202f", raw) if (column.kind in spaced or column.field == "vocab") and _SPACED.match(raw) else raw
             for column, raw in zip(columns, cells)]  # fmt: skip
    for column, raw in zip(columns, cells):
        if raw and not raw.isspace():
            _take(row, column, _with_point(raw) if comma and column.kind in POSITIVE else raw)
    if not row.values and not row.remarks and not row.unread:
        text = " | ".join(cells)
        problem = Problem(
            file=where.file, line=where.line, cell=text[:80], message="a row in which nothing is said", level="row", rows=1
        )
        return None, [problem]
    if row.configured and {"gpus", "nodes"} & row.values.keys():
        row.configured = {name: value for name, value in row.configured.items() if name not in ("gpus", "nodes")}
    row.values = {**row.configured, **row.values}
    machine = str(row.values.get("machine", ""))
    if not {"gpus", "nodes", "dp"} & {column.field for column in columns}:
        if chips := chips_of(machine):
            row.values["gpus"] = chips
        elif devices := _COUNTED.match(machine):
            row.values["gpus"] = math.prod(int(count) for count in devices.groups() if count)
        elif "nodes" in (said := composed(machine)):
            row.values.update({name: said[name] for name in ("nodes", "gpus", "procs_per_node") if name in said})
    around = outline.around(where.line, str(row.values.get("size_label", "")))
    _value_legends(row, outline)
    outcome, state, estimated, unread = _judge(row, outline)
    problems = [
        Problem(file=where.file, line=where.line, column=c.heading, cell=raw, message=f"{c.heading}: {cell.unread}")
        for c, raw, cell in unread
    ]
    values, inferred = _with_context(row, around)
    problems += [
        Problem(file=where.file, line=where.line, column=c.heading, cell=raw, message=f"{c.heading}: {why}")
        for c, raw, why in _to_the_whole(row, values)
    ]
    if values.get("stage_layers") and values.get("pp"):
        wanted = (values["pp"], values["pp"] * (values.get("vp") or 1))
        for column, raw in zip(columns, cells):
            if column.kind == "stages" and read_cell(column, raw).value == values["stage_layers"]:
                values["stage_layers"] = stages.said(stages.read(take_flags(clean(raw))[0], wanted))
    record = Record(state=state, outcome=outcome, source_file=where.file, source_line=where.line,
                    section=around.section, table=where.table, env={**around.env, **row.env},
                    extra={**around.extra, **row.extra}, printed=_printed(columns, cells, comma), flags=tuple(row.flags),
                    notes="; ".join(row.notes), estimated=estimated, inferred=inferred, context=around.values, **values)
    return record, problems


def left_record(columns: Sequence[Column], cells: Sequence[str], *, outline: Outline, where: Where) -> Record:
    """Of a row that is no run: its cells, under whatever headings."""
    record, _ = row_record(columns, cells, outline=outline, where=where)
    return record or Record(state="planned", source_file=where.file, source_line=where.line, table=where.table,
                            printed=_printed(columns, cells, outline.comma_at(where.line)))  # fmt: skip


def _printed(columns: Sequence[Column], cells: Sequence[str], comma: bool = False) -> dict[str, str]:
    """Cells by heading. Where no reader of the column knows, thousands that are parted by a point are parted by a space, and
    a comma before three decimals is the point."""
    printed: dict[str, str] = {}
    for number, (column, raw) in enumerate(zip(columns, cells)):
        name = column.heading if column.heading not in printed else f"{column.heading} ({number + 1})"
        raw = raw.strip()
        if comma and not column.field:
            raw = raw.replace(".", "\u202f") if _POINTED.fullmatch(raw.strip("*")) else raw
            raw = raw.replace(",", ".") if _THREE_DECIMALS.fullmatch(raw) else raw
        printed[name] = raw
    return printed


_AS_ABOVE = re.compile(r"〃|[″”\"]|''|ditto|same|idem|dito|同上|同左", re.IGNORECASE)


def as_above(columns: Sequence[Column], cells: Sequence[str], above: Sequence[str]) -> list[str]:
    """With the cells of the row above where a mark says that they are the same, or the group is said once."""
    if cells and above and is_blank(clean(cells[0])):
        cells = _grouped(columns, cells, above)
    return [above[at] if at < len(above) and len(cell) < 8 and _AS_ABOVE.fullmatch(cell.strip()) else cell
            for at, cell in enumerate(cells)]  # fmt: skip


_GROUPS = frozenset({"size_label", "machine", "gpus", "nodes", "seq", "dtype"})
"""What the first columns may say once for several rows."""


def _grouped(columns: Sequence[Column], cells: Sequence[str], above: Sequence[str]) -> list[str]:
    """With the cells of the row above where the first ones are empty and a setting beside them is not: `7B | 32`, ` | 64`."""
    lead = next((at for at, cell in enumerate(cells) if not is_blank(clean(cell))), len(cells))
    told = [cells[at] for at, column in enumerate(columns) if at >= lead and column.field in TOPOLOGY]
    alike = len(cells) == len(above) == len(columns) and any(not is_blank(clean(cell)) for cell in told)
    if not alike or any(column.field not in _GROUPS for column in columns[:lead]):
        return list(cells)
    gone = any(is_blank(clean(cell)) and not is_blank(clean(was)) for cell, was in zip(cells[lead:], above[lead:]))
    return list(cells) if gone else [*above[:lead], *cells[lead:]]


# ---- one cell

_PACE = re.compile(r"\s*(?:\b(ms|s|secs?)\s*/\s*(?:it|iter|iteration|step)|(?<=[\d\s])(its?|iters?|steps?)\s*/\s*(?:s|sec))\b")


_NUMBERED = r"[2-5]0[6-9]0(?!\d)"
"""A card of games that goes by its number, as in `4x 4090`."""
_COUNTED = re.compile(rf"(\d{{1,5}})\s?[x×]\s?(?:(\d{{1,2}})\s?[x×]?\s?)?(?=[A-Za-z]|{_NUMBERED})")
"""`8x A100 80GB` or `2x8 H100` as a machine."""
_BOX = re.compile(rf"{_COUNTED.pattern}(?:(?:NVIDIA |AMD |RTX ?)?(?:[ABHLV]\d{{2,3}}S?|MI\d{{3}}X?|G[BH]\d{{3}}|A?\d000)\b|"
                  rf"(?:RTX ?)?{_NUMBERED})[\w -]{{0,16}}", re.IGNORECASE)  # fmt: skip
"""The same under a heading that says nothing of machines."""
_CARD = re.compile(rf"{_NUMBERED} ?(?:Ti|D|Super|Laptop|\(?\d{{1,2}} ?GB\)?)?", re.IGNORECASE)
_SLICE = re.compile(r"(?:(\d{1,3}) ?[x×] ?)?(?:tpu[ -]?)?v(?:(5e|5litepod|6e)|[2-4]|5p)-(\d{1,5})", re.IGNORECASE)


@lru_cache(maxsize=1024)
def chips_of(machine: str) -> int | None:
    """How many chips `v5e-64` or `2 × v5p-128` has: of chips with one core the name counts them, of others their cores."""
    match = _SLICE.fullmatch(machine.strip())
    return int(match[1] or 1) * int(match[3]) // (1 if match[2] else 2) or None if match else None


_OF_MEMORY = frozenset({"peak", "max", "maximum", "alloc", "allocated", "reserved", "used", "usage"})
_MEMORY_CELL = re.compile(r"~?[\d.,]+\s?[MG]i?B", re.IGNORECASE)


_RAN_IN = re.compile(r"(?:ok|done|passed|fits|success\w*|completed)[\s,;:(]+([\d.,]+\s?[MG]i?B)\)?", re.IGNORECASE)
"""`ok, 40.9 GiB`: what came of a run, and how much it needed."""


def holds_memory(heading: str, raw: str) -> bool:
    """`peak` of 45.1 GiB: the cell says what the heading does not."""
    if _RAN_IN.fullmatch(clean(raw)):
        return read_heading(heading).kind in ("state", "outcome")
    return bool(_OF_MEMORY & {*normal(heading).split()}) and _MEMORY_CELL.fullmatch(clean(raw)) is not None


_FLOPS_CELL = re.compile(r"~?[\d.,]+\s?[GTP]FLOPs?(?:/s)?\s?(?:/|per )\s?(?:GPU|device|rank)", re.IGNORECASE)


def holds_flops(heading: str, raw: str) -> bool:
    """`flops` of 479 TFLOP/s/GPU, the same."""
    return _FLOPS_CELL.fullmatch(clean(raw)) is not None


_SPACED, _THOUSANDS = re.compile(r"[\s*_`~≈]*\d{1,3}(?: \d{3})+(?!\d| \d)"), re.compile(r"(?<=\d) (?=\d{3}(?!\d))")
"""`365 136`: thousands parted by a space, which from here on is a narrow one that `clean` knows."""
_THREE_DECIMALS = re.compile(r"[1-9]\d*,\d{3}")
_POINTED = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+")
TIMED = re.compile(r"~?[\d.,]+\s?(?:ms|s|secs?|seconds|min|mins|minutes|us|µs)")


def _with_point(raw: str) -> str:
    """A cell of a file with decimal commas: 27.823 are thousands there, and 27,823 are not."""
    raw = re.sub(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![\d.])", lambda match: match.group().replace(".", ""), raw)
    return re.sub(r"(?<![\d.,])(\d+),(\d{3})(?![\d.,])", r"\1.\2", raw)


_OF_A_PART = re.compile(r"(?:[a-z]+ ?)?(?:/|\bper\b|\bje\b|\bpro\b|\bpar\b) ?[a-z]", re.IGNORECASE)
"""`4 ranks / socket`: as many of each, and not in all."""


_OF_LENGTH = re.compile(r"[×x*·] ?(\d{3,7})(?: ?tok\w*)?")
_OF_A_DEVICE = re.compile(r"(?:/|per|an?|each) ?(?:GPU|chip|device|card|NPU|HPU|TPU|GCD|accelerator|rank)\b", re.IGNORECASE)


def _take(row: _OpenRow, column: Column, raw: str) -> None:
    if column.field == "throughput" and (match := _PACE.search(clean(raw))):
        # A speed whose cells say that it is a time.
        unit = "it/s" if match.group(2) else ""
        column = Column(field="sec_per_it", kind="seconds", unit=unit, heading=column.heading)
        raw = clean(raw)[: match.start()] + (match.group(1) or "")
    if column.field == "iteration" and TIMED.fullmatch(clean(raw)):
        column = Column(field="sec_per_it", kind="seconds", unit="s", heading=column.heading)  # `Step` of 14.1 s
    if not column.field and holds_memory(column.heading, raw):
        column = Column(field="mem_value", kind="memory", heading=column.heading)
    elif not column.field and "tflops" not in row.values and holds_flops(column.heading, raw):
        column = Column(field="tflops", kind="figure", per="process", heading=column.heading)
    cell = read_cell(column, raw)
    for flag in cell.flags:
        row.flags.setdefault(flag, []).append(column.field)
    if column.parts:
        _take_parts(row, column, raw)
        return
    if column.field in ("gpus", "nodes") and cell.text and _OF_A_PART.match(cell.text):
        row.extra[column.heading] = clean(raw)
        return
    card = column.field == "gpus" and _is_card(column.heading, clean(raw))
    named = card or column.field == "gpus" and (cell.unread or cell.text.startswith(("x", "×")))
    if named and _take_devices(row, f"RTX {clean(raw)}" if card else clean(raw)):
        return
    if cell.unread and column.kind == "count" and column.field in SETTINGS and (said := composed(raw)):
        _take_composed(row, said)  # `mbs 2, ga 16` as the batch
        return
    if cell.unread:
        row.unread.append((column, raw.strip(), cell))
        return
    value = cell.value
    if column.field == "gbs" and (length := _OF_LENGTH.fullmatch(cell.text)) and (seq := int(length[1])) & -seq >= 128:
        row.configured.setdefault("seq", seq)  # `512 × 4096`: sequences of so many tokens
    if column.field == "tokens_per_s" and value is not None and _OF_A_DEVICE.match(cell.text):
        row.values.setdefault("tokens_per_s_per_process", value)  # `313 per GPU`
        return
    if column.kind == "size" and value and len(said := composed(raw)) > 1 and "size_label" in said:
        value = said["size_label"]  # `70B (8K)`
        _take_composed(row, said)
    if column.field == "notes" or column.kind == "date":
        _take_note(row, column, str(value or ""))
        row.configured.update(_said_in_words(str(value or "")))
    elif column.field == "throughput":
        _take_throughput(row, column, raw, cell)
    elif column.kind == "settings":
        _take_settings(row, str(value or ""))
    elif column.kind in ("state", "outcome"):
        row.remarks.append((column.field, str(value or "")))
        if (ran := _RAN_IN.fullmatch(str(value or ""))) and "mem_value" not in row.values:
            _take(row, Column(field="mem_value", kind="memory", heading=column.heading), ran[1])
    elif not column.field or column.kind in ("names", "source"):
        # Where a table of our own names fields, or a file and a line, anybody's has words.
        if value:
            row.extra[column.heading] = str(value)
            row.configured.update(laid_out(str(value)) or read_statements(str(value), heading=False).fields)
            if _BOX.fullmatch(str(value)):
                row.configured["machine"] = str(value)
            if _A_MODEL.fullmatch(str(value)):
                row.configured["size_label"] = str(value)
            row.configured.update(_said_in_words(str(value)))
            _take_composed(row, _composed_of(column.heading, str(value)))
    elif value is None or value == "":
        pass
    elif row.values.get(column.field, value) not in (value, ""):
        row.unread.append((column, raw.strip(), Cell(unread=f"{value} here and {row.values[column.field]} in another column")))
    else:
        row.values[column.field] = value
        _take_units(row, column, cell, raw)
        if column.field == "run_id":
            _take_composed(row, _composed_of(column.heading, str(value)))
    if cell.text and column.field == "nodes" and (each := _SO_MANY.fullmatch(cell.text)):
        row.configured["procs_per_node"] = int(each[1])
    elif cell.text:
        _take_words(row, column, cell.text)


_SAID = re.compile(r"([A-Za-z][A-Za-z _-]{1,18}?)[ =:]{0,3}(\d{1,7})( ?[kK]i?)?|(\d{1,4}) ?[kK]i? (ctx|context|seq|sequences?)")

_COUNTED_OUT = re.compile(r"(\d{1,5}) ([^\W\d]{2,12})")
"""`64 nodes`: of this row, where a sentence counts those of the others."""
_A_MODEL = re.compile(
    r"(?:meta-?)?(?:llama|gpt|qwen|mi[sx]tral|gemma|phi|falcon|bloom|opt|pythia|olmo|deepseek|yi|nemotron|tinyllama|smollm|palm|mpt)"
    r"[\w .-]{0,16}?[ -]?(?:\d{1,3}x)?\d{1,4}(?:\.\d{1,3})? ?[MBT]", re.IGNORECASE)
"""`Llama 2 7B`, `Mixtral-8x7B`: a model by its name and size, under whatever heading."""
_VAGUE = frozenset({"batch", "batch size", "bs", "bsz", "length", "max length"})


@lru_cache(maxsize=4096)
def _said_in_words(text: str) -> dict[str, int]:
    """`seq 32768; tb`, `GBS 64`, `32k context`: what a note says of its row alone, a part that says nothing else."""
    said: dict[str, int] = {}
    for match in filter(None, map(_SAID.fullmatch, re.split(r"\s*[,;]\s*", text))) if len(text) < 60 else ():
        column = setting(match[1] or "seq")
        if column is not None and column.field in ("seq", "gbs") and normal(match[1] or "seq") not in _VAGUE:
            said[column.field] = int(match[2] or match[4]) * (1024 if match[3] or match[4] else 1)
    counts = [match for match in map(_COUNTED_OUT.fullmatch, re.split(r"\s*[,;]\s*", text)) if match] if len(text) < 60 else []
    return said | {column.field: int(match[1]) for match in counts
                   if (column := read_heading(match[2])).field in ("nodes", "gpus") and column.kind == "count"}


_AXES = {"dp": "dp", "ddp": "dp", "fsdp": "dp", "tp": "tp", "mp": "tp", "pp": "pp", "cp": "cp", "ep": "ep",
         "d": "dp", "t": "tp", "p": "pp", "c": "cp"}  # fmt: skip
_AN_AXIS, _BETWEEN = re.compile(r"([A-Za-z]{1,4})\s?[=:]?\s?(\d{1,5})(?!\d)"), re.compile(r"(?<=\d)\s*[x×]\s*(?=[A-Za-z])")


@lru_cache(maxsize=4096)
def laid_out(text: str) -> dict[str, int]:
    """`dp8-tp2`, `TP2xPP4`, `d8t2p1`: a cell that is a layout and nothing else."""
    if not 4 <= len(text) <= 40:
        return {}
    text = _BETWEEN.sub(" ", text.strip("()[]` "))
    said = [(_AXES.get(name.lower(), ""), int(count)) for name, count in _AN_AXIS.findall(text)]
    whole = len(said) > 1 and len({name for name, _ in said}) == len(said) and all(name and count for name, count in said)
    return dict(said) if whole and not re.sub(r"[\s/,;·*+&_|-]", "", _AN_AXIS.sub("", text)) else {}


_SO_MANY = re.compile(r"(?:nodes? ?)?[x×*] ?(\d{1,2})(?: ?[x×]? ?(?:GPUs?|[A-Z]+\d{2,3}X?))?", re.IGNORECASE)
"""`16 × 8` or `16 nodes x 8 H100` in a column of nodes."""
_OF_A_RUN = re.compile(r"\b(?:configs?|configuration|setups?|settings?|layouts?|runs?|jobs?|names?|experiments?|variants?|"
                       r"cases?|hardware|systems?|mesh|parallelism|strategy|konfiguration|lauf|caso?)\b|[配設]置|設定", re.I)


def _composed_of(heading: str, text: str) -> dict[str, object]:
    """The settings of a cell that is nothing else; one alone only where the heading promises settings. Beside a name devices
    are told all the same: `GPT-2 XL, 8x A100`."""
    if said := composed(text):
        return said if len(said) > 1 or _OF_A_RUN.search(in_english(clean(heading))) else {}
    parts = [composed(part) for part in text.split(",")] if "," in text and len(text) < LONGEST else []
    return next((part for part in parts if "gpus" in part and part.keys() <= _OF_A_MACHINE), {})


def _take_composed(row: _OpenRow, said: Mapping[str, object]) -> None:
    for name, value in said.items():
        if name == ACCUMULATION:
            row.extra.setdefault("grad. acc.", str(value))
        else:
            row.configured.setdefault(name, value)


def _take_parts(row: _OpenRow, column: Column, raw: str) -> None:
    """`8/4/12` under `DP/TP/PP`."""
    texts = [text for text in re.split(r"\s*[/,;:·*×xX+&-]\s*|\s+", clean(raw).strip("()[]")) if text]
    cells = [read_cell(_COUNT, text) for text in texts]
    if is_blank(clean(raw)):
        return
    if {*(said := laid_out(clean(raw)))} == {*column.parts}:
        row.values.update(said)  # `TP8/PP4/DP2`
        return
    if len(texts) != len(column.parts) or any(cell.unread or cell.text for cell in cells):
        message = f"{clean(raw)!r} is not {len(column.parts)} whole numbers"
        row.unread.append((column, raw.strip(), Cell(unread=message)))
        return
    row.values.update({name: cell.value for name, cell in zip(column.parts, cells) if cell.value is not None})
    if {*column.parts} == {"nodes", "gpus"} <= row.values.keys() and all(_TIMES.search(text) for text in (column.heading, raw)):
        # So many nodes of so many, and not the same machine counted twice.
        each = row.values["gpus"]
        row.values.update(gpus=each * row.values.pop("nodes"), procs_per_node=each)


_TIMES = re.compile(r"[x×*·]")
_COUNT = Column(kind="count")


def _is_card(heading: str, text: str) -> bool:
    """`3090` under `GPU`: a kind of device, and under `GPUs` of a cluster 2080 of them, which are 260 nodes."""
    if not _CARD.fullmatch(text):
        return False
    counted = {"gpus", "num", "n", "number", "count", "of"} & {*normal(heading).split()}
    return not (counted and text.isdigit() and int(text) % 8 == 0)


def _take_devices(row: _OpenRow, text: str) -> bool:
    """`8xA100`, `2x8` or, under a heading such as GPU, just what kind they are."""
    match = re.fullmatch(rf"(\d{{1,6}})\s*[x×]\s*(?!{_NUMBERED})(\d{{1,4}})?\s*[x×]?\s*([A-Za-z][\w .-]*)?", text)
    if card := re.fullmatch(rf"(\d{{1,6}})\s*[x×]\s*({_NUMBERED}[\w .-]*)", text):
        row.values.update(gpus=int(card[1]), machine=f"RTX {card[2]}")
        return int(card[1]) > 0
    if match:
        row.values["gpus"] = int(match.group(1)) * int(match.group(2) or 1)
        if match.group(3):
            row.values["machine"] = match.group(3)
        return row.values["gpus"] > 0
    if re.fullmatch(r"[A-Za-z][\w .-]*(?:\([\w .-]+\))?", text) and any(letter.isdigit() for letter in text):
        row.values["machine"] = text
        return True
    return False


def _last_digit(raw: str, value: float) -> float:
    """What a step of the last digit is of the value."""
    match = NUMBER.search(clean(raw))
    shown = decimal(match.group()) if match else ""
    return 10.0 ** -len(shown.partition(".")[2]) * value / float(shown) if shown and float(shown) else 0.0


def _take_units(row: _OpenRow, column: Column, cell: Cell, raw: str) -> None:
    if column.field == "mem_value":
        if cell.unit or "mem_unit" not in row.values:
            row.values["mem_unit"] = cell.unit
        if column.per == "node":
            row.values["mem_scope"] = "node"
        measure = re.search(r"alloc|reserv", column.heading.lower())
        if measure:
            row.values.setdefault("mem_measure", {"alloc": "allocated", "reserv": "reserved"}[measure.group()])
        if "per node" in normal(column.heading):
            row.values.setdefault("mem_scope", "node")
    elif column.field == "sec_per_it":
        row.values["time_unit"] = cell.unit or "s"
    elif column.kind == "rate" and column.per:
        row.shared[column.field] = column.per, _last_digit(raw, cast(float, cell.value)), column, raw.strip()
    elif column.field == "tflops":
        if column.per:
            row.values["tflops_per"] = column.per
        if column.formula:
            row.values["formula"] = column.formula


def _take_note(row: _OpenRow, column: Column, text: str) -> None:
    date, rest = take_date(text)
    if date and "date" not in row.values:
        row.values["date"] = date
        row.dated = True
        text = rest
    elif column.kind == "date" and text and "date" not in row.values:
        row.values["date"], text = text, ""
        row.dated = True
    if text:
        row.notes.append(text)
        row.remarks.append(("notes", text))


def _take_throughput(row: _OpenRow, column: Column, raw: str, cell: Cell) -> None:
    unit = normal(cell.unit)
    name = {"sample": "samples_per_s", "seq": "samples_per_s", "tok": "tokens_per_s"}
    field_name = next((value for key, value in name.items() if unit.startswith(key)), None)
    if field_name == "tokens_per_s" and unit.endswith("per gpu"):
        field_name = "tokens_per_s_per_process"
    if cell.value is None:
        return
    if field_name is None or (field_name == "samples_per_s" and unit.endswith("per gpu")):
        row.extra[column.heading] = clean(raw)
    else:
        row.values[field_name] = cell.value


def _take_words(row: _OpenRow, column: Column, words: str) -> None:
    """Words beside a number: settings in a Nodes cell, otherwise what happened."""
    inner = words[1:-1].strip() if words[:1] in "([{" and words[-1:] in ")]}" else words
    if column.field in ("nodes", "gpus") and not read_status(inner).failed:
        _take_settings(row, inner)
    else:
        row.remarks.append((column.field, inner))
        if column.field not in MEASURES or not (read_status(inner).failed or read_status(inner).estimated):
            row.notes.append(f"{column.heading}: {inner}")


_CLOCK = Column(field="freq_ghz", kind="frequency")


def _take_settings(row: _OpenRow, text: str) -> None:
    """`ppn=2, 2.4GHz, LD_PRELOAD=libjemalloc.so, "cache=on"`."""
    for part in re.split(r"[,;]\s*", text):
        part = part.strip().strip("\"'`").strip()
        if not part:
            continue
        key, sep, value = part.partition("=")
        if sep and key.strip():
            key, value = key.strip().lstrip("-"), value.strip().strip("\"'")
            row.env[key] = value
            column = setting(key)
            if column is not None:
                cell = read_cell(column, value)
                if cell.value not in (None, "") and not cell.unread:
                    row.values.setdefault(column.field, cell.value)
        elif re.fullmatch(r"[\d.]+\s*[GMk]?Hz", part, re.IGNORECASE):
            row.values.setdefault("freq_ghz", read_cell(_CLOCK, part).value)
        else:
            row.notes.append(part)


def _value_legends(row: _OpenRow, outline: Outline) -> None:
    for heading, text in row.extra.items():
        meaning = outline.value_legends.get((normal(heading), text.lower()))
        if meaning:
            row.env.setdefault(*meaning)


# ---- the whole row


def _with_context(row: _OpenRow, around: Around) -> tuple[dict[str, Any], tuple[str, ...]]:
    values, inferred = dict(row.values), []
    counts_devices = "gpus" in values
    other_model = _is_other_model(values, around)
    for name, stated in around.values.items():
        if (
            name in values
            or (other_model and name in SHAPE)
            or (counts_devices and name in ("nodes", "gpus"))
            or ("nodes" in values and name == "gpus")
        ):
            continue
        values[name] = stated.value
        if name in around.inferred:
            inferred.append(name)
    if values.get("mem_scope") == "node" and (counts_devices or (values.get("procs_per_node") or 1) > 1):
        values = {name: value for name, value in values.items() if not name.startswith("mem_")}  # of several processes together
    replica = values.get("dp"), values.get("mbs"), _accumulated(row)
    if values.get("gbs") is None and all(isinstance(part, int) for part in replica):
        values["gbs"] = math.prod(cast(tuple[int, int, int], replica))
        inferred.append("gbs")
    per_node = values.get("procs_per_node")
    if counts_devices and "nodes" not in values and per_node and values["gpus"] % per_node == 0:
        values["nodes"] = values["gpus"] // per_node
        inferred.append("nodes")
    return values, tuple(sorted(inferred))


def _to_the_whole(row: _OpenRow, values: dict[str, Any]) -> Iterator[tuple[Column, str, str]]:
    """A batch in tokens as one of sequences, and the rate of a node as that of all; what cannot be told is left out."""
    for name, (per, step, column, raw) in row.shared.items():
        value, nodes, seq = values.pop(name), values.get("nodes"), values.get("seq")
        if per in ("node", "process"):
            count = nodes if per == "node" else values.get("gpus")
            values.update({name: value * count} if count else {})
        elif seq:
            replica = _replica(values.get("dp"), values.get("mbs"))
            found = _sequences((value - step / 2) / seq, (value + step / 2) / seq, replica)
            values.update({} if found is None else {name: found})
            if found is None and step == 1:
                yield column, raw, f"{value:g} tokens are no whole number of sequences of {seq}"


def _replica(dp: int | None, mbs: int | None) -> int:
    return (dp or 1) * (mbs or 1)


def sequences(record: Record, heading: str, unit: str, *, nearly: bool = False) -> int | None:
    """The batch that a row has in tokens, in sequences of the length that it has by now; None where it cannot be told.
    `nearly`: then the nearest, where the digits are fine enough."""
    raw = record.printed[heading]
    value = read_cell(Column(field="gbs", kind="rate", unit=unit), raw).value
    if not isinstance(value, float) or not record.seq:
        return None
    half = _last_digit(raw, value) / 2
    if nearly:
        return min(round(value / record.seq), MOST_COUNTED) or None if half < 0.01 * value else None
    return _sequences((value - half) / record.seq, (value + half) / record.seq, _replica(record.dp, record.mbs))


def _sequences(low: float, high: float, replica: int) -> int | None:
    """The one number between two that a batch can be: whole, of whole micro-batches, or a power of two or three of them where
    the digits leave little else."""
    if not high < MOST_COUNTED:
        return None
    for step in dict.fromkeys((1, replica)):
        first, last = math.ceil(low / step), math.floor(high / step)
        if first == last and first:
            return first * step
    round_ = [power for times in (1, 3) if low <= (power := times << max(0, math.floor(high / times).bit_length() - 1)) <= high]
    return round_[0] if len(round_) == 1 and low >= 8 and high < 1.1 * low else None


def _accumulated(row: _OpenRow) -> int | None:
    said = [text for heading, text in row.extra.items() if accumulates(heading)]
    return int(said[0]) if len(said) == 1 and said[0].isdecimal() and len(said[0]) < 10 and int(said[0]) > 0 else None


def _is_other_model(values: dict[str, Any], around: Around) -> bool:
    """Whether the shape that the text states is plainly not that of the size which the row names, or a heading above it."""
    above = around.values.get("size_label")
    label = re.fullmatch(r"(\d+(?:\.\d+)?)([MBT])", str(values.get("size_label") or (above.value if above else "")))
    stated = [around.values[name].value for name in ("layers", "hidden") if name in around.values and name not in values]
    if label is None or len(stated) < 2 or not all(isinstance(value, int) for value in stated):
        return False
    layers, hidden = cast(list[int], stated)
    size = float(label.group(1)) * {"M": 1e6, "B": 1e9, "T": 1e12}[label.group(2)]
    # Twelve squares a layer are within a factor of two of any decoder, embeddings and gated feed-forwards included.
    squares = 12.0 * min(layers, MOST_COUNTED) * min(hidden, MOST_COUNTED) ** 2
    return not 0.5 * squares <= size <= 2.5 * squares


def _judge(row: _OpenRow, outline: Outline) -> tuple[Outcome | None, State, tuple[str, ...], list[tuple[Column, str, Cell]]]:
    """What happened, the row's state, the estimated figures, and the cells that stay unread."""
    failed, message = "", ""
    estimated: list[str] = []
    planned = explicit = False
    unread = []
    timed = any(row.values.get(name) is not None for name in TIMES)
    measured = timed or any(row.values.get(name) is not None for name in ("mem_value", "mfu", "hfu"))
    for column, raw, cell in row.unread:
        words = read_status(cell.text)
        if cell.text and column.kind != "count" and (words.failed or words.planned):
            failed, message = failed or words.failed, message or cell.text
            planned = planned or words.planned
        elif column.field == "loss" and raw.lower().strip("+-") in ("nan", "inf"):
            failed, message = failed or "nan", message or f"loss {raw}"
        else:
            unread.append((column, raw, cell))
    for name, text in row.remarks:
        if name == "notes" and measured and len(text.split()) > LONG_NOTE:
            continue
        words = read_status(text)
        if name in ("state", "outcome") and text.lower() in ("ok", "measured", "success", "passed", "done"):
            explicit = True
        if words.failed and not failed:
            failed, message = words.failed, text
        if words.estimated:
            estimated += [name] if name in MEASURES else [f for f in TIMES if f in row.values]
        planned = planned or words.planned
    for flag, fields in row.flags.items():
        legend = outline.legends.get(flag, "")
        words = read_status(legend)
        if words.estimated or (not legend and flag in ESTIMATE_MARKS):
            estimated += [name for name in fields if name in row.values]
        if words.failed and not failed:
            failed, message = words.failed, legend
        if legend:
            row.notes.append(f"{flag} {legend}")
    if not failed and not measured and row.dated:
        failed, message = _by_rule(row, outline)
    outcome = Outcome(status=_status(failed, outline), message=message, rate=read_status(message).rate) if failed else None
    state: State
    if timed and not planned:
        state = "estimated" if estimated else "measured"
    elif failed:
        state = "failed"
    elif measured or explicit:
        state = "estimated" if estimated else "measured"
    else:
        state = "planned"
    return outcome, state, tuple(dict.fromkeys(estimated)), unread


def _by_rule(row: _OpenRow, outline: Outline) -> tuple[str, str]:
    """A row that was tried and has no figures, where a comment of the file says that such settings do not work."""
    for rule in outline.rules:
        if rule.fields and all(row.values.get(name) == value for name, value in rule.fields.items()):
            return rule.failed, rule.text
    return "", ""


def _status(failed: str, outline: Outline) -> Status:
    if failed == "oom":
        return "oom_host" if outline.on_host else "oom_device"
    return cast(Status, failed)


def blank_row(cells: Sequence[str]) -> bool:
    """A spacer: every cell is empty."""
    return not any(cell and not cell.isspace() for cell in cells)


def fits(column: Column, raw: str) -> bool:
    """Whether a cell can stand under a column; used to find which cell of a row is one too many."""
    cell = read_cell(column, raw)
    if column.kind == "notes":
        return not is_blank(clean(raw))
    return not cell.unread and (column.kind != "word" or not clean(raw)[:1].isdigit())


# ---- a table

TOPOLOGY = frozenset({"nodes", "gpus", "layers", "hidden", "size_label", "seq", "iteration",
                      *(name for name in LAYOUT if COLUMNS[name].about.kind in ("count", "zero"))})


_OF_A_MACHINE = frozenset({"nodes", "gpus", "procs_per_node", "machine"})
_FILLED = re.compile(r"peak|max|used|usage|alloc|reserv|pico|spitze|pic\b|峰值|最大|ピーク", re.IGNORECASE)


def is_table_of_runs(columns: list[Column]) -> bool:
    """A row of it says what was run and what was measured, or at least how it would be laid out."""
    fields = {column.field for column in columns} | {name for column in columns for name in column.parts}
    measures = fields & {*MEASURES, "throughput"}
    settings = fields & TOPOLOGY
    about = fields & (SETTINGS | TOPOLOGY)
    if measures == {"mem_value"} and settings and about <= _OF_A_MACHINE and not any(
            column.field == "mem_value" and _FILLED.search(column.heading) for column in columns):  # fmt: skip
        return False  # how large the devices of a machine are
    clear = {column.field for column in columns if normal(column.heading) not in ("time", "mem", "memory", "loss", "speed")}
    return bool(measures and (settings or len(measures) > 1 or measures & clear)) or len(settings) >= 3


MOST_TOO_MANY = 4
"""Cells too many up to which an empty one among them is looked for."""


A_REMARK = "are one remark"
_MEASURED = frozenset(("seconds", "rate", "figure", "memory"))


def refit(columns: Sequence[Column], cells: Sequence[str]) -> tuple[list[str], str]:
    """The cells under their headings when there are more or fewer than headings, and what was done."""
    counts = f"{len(cells)} cells under {len(columns)} headings"
    if len(cells) < len(columns):
        return [*cells, *[""] * (len(columns) - len(cells))], f"{counts}: the last {len(columns) - len(cells)} taken as empty"
    kept, dropped = list(cells), []
    if len(cells) > len(columns) + MOST_TOO_MANY:
        return [*kept[: len(columns) - 1], " ".join(kept[len(columns) - 1 :])], f"{counts}: the last ones read as one"
    while len(kept) > len(columns):
        empty = [i for i, cell in enumerate(kept) if cell.strip("-–— ") == ""]
        if not empty:
            rest = " ".join(kept[len(columns) - 1 :])
            # Words behind cells that all stand where they belong are a remark with a sign of the file in it.
            remarks = columns[-1].kind == "notes" or columns[-1].kind == "word" and not columns[-1].field
            words = remarks and any(map(str.isalpha, rest)) and all(
                fits(column, cell) for column, cell in zip(columns[:-1], kept) if column.kind in _MEASURED)  # fmt: skip
            return [*kept[: len(columns) - 1], rest], f"{counts}: the last ones {A_REMARK if words else 'read as one'}"
        # The empty cell without which most of the others stand under a heading they can belong to; of equals the last.
        best = max(empty, key=lambda i: (sum(fits(c, cell) for c, cell in zip(columns, kept[:i] + kept[i + 1 :])), i))
        dropped.append(best + 1)
        del kept[best]
    return kept, f"{counts}: empty cell {', '.join(map(str, dropped))} left out"


def columns_left(headings: Sequence[str], where: Where) -> Iterator[Problem]:
    """One note of the columns that no field takes, where a table has any."""
    ignored, _ = unknown_columns(headings, ())
    if ignored:
        message = f"no field takes {', '.join(ignored)}: kept as text"
        yield Problem(file=where.file, line=where.line, message=message, level="note", columns=tuple(ignored))
