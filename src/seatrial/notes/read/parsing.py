"""One cell of a table, parsed for the column it stands in: the number, its unit, the text and the marks beside it.

    read_cell(Column(field="mem_value", kind="memory"), "900.5 MiB (OOM in epoch 2)")
        -> value 900.5, unit "MiB", text "(OOM in epoch 2)"
    read_cell(Column(field="tflops", kind="figure"), "2.5^/^^")          -> value 2.5, flags ("^", "^^")

A cell is read whole or not at all: what is neither a number nor known text comes back with `unread` saying why.
"""
from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from seatrial import stages
from seatrial.errors import BadInput
from seatrial.notes.read import units
from seatrial.notes.read.units import shifted
from seatrial.record import MEMORY_UNITS
from seatrial.tables.headings import LONGEST_CELL, NUMBER, Column, Kind, clean, decimal


@dataclass(frozen=True, kw_only=True)
class Cell:
    value: object = None
    unit: str = ""
    text: str = ""
    """What stands beside the value, brackets included."""
    flags: tuple[str, ...] = ()
    unread: str = ""
    """Why the cell could not be read; empty when it could."""


_DASHES = re.compile(r"[-–—―]+")
_BLANK = re.compile(r"[-–—―.…?]*|x{2,}|n\.?/?a\.?|tbd|todo|nil|null|none|unknown|not measured", re.IGNORECASE)


def is_blank(text: str) -> bool:
    """A cell in which nobody said anything: empty, dashes, question marks, XXX, n/a."""
    return _BLANK.fullmatch(text) is not None


_FLAG = re.compile(r"(?<=[\w.%)\"'\]/ ])(?:\^+|†+|‡+|§+|¶+|\*{1,3}$)(?=$|[\s/,(;^])|^(?:\^+|†+|‡+|§+|¶+)$")


def take_flags(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without its marks, and the marks in the order they stand."""
    if len(text) > LONGEST_CELL or not any(mark in text for mark in "^†‡§¶*"):
        return text, ()
    flags = tuple(_FLAG.findall(text))
    if not flags:
        return text, ()
    return re.sub(r"\s*/\s*(?=$|\()", "", _FLAG.sub("", text)).strip(), flags


LONGEST_SEQUENCE_K = 4096
"""Thousands of tokens beyond which a figure under `Sequence (K)` was typed in tokens."""
POSITIVE: frozenset[Kind] = frozenset({"count", "figure", "memory", "seconds", "rate", "percent", "frequency"})
MEASURED: frozenset[Kind] = frozenset({"figure", "memory", "seconds", "rate", "percent"})
"""Of these: what may be said as two numbers, with what was measured between them."""
_RANGE, WIDEST = re.compile(rf"\s*(?:-|–|—|to\b|\.\.\.?|…)\s*({NUMBER.pattern})(?!\s*[-–—/.:\d])"), 1.5
MAY_BE_ZERO = {"aggr_pflops", "experts", "top_k", "shared_experts", "expert_ffn"}
"""Of these: what dense models have of experts, and many mixtures of shared ones."""


@lru_cache(maxsize=65536)
def read_cell(column: Column, raw: str) -> Cell:
    """The cell under `column`; equal cells are read once, since the same few fill a table."""
    text = clean(raw)
    reader = _READERS.get(column.kind)
    if reader is not None:
        return reader(column, text)
    text, flags = take_flags(text)
    if column.kind in ("word", "size") or not text:
        plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
        if column.unit == "億" and NUMBER.fullmatch(plain):
            text = f"{float(plain) / 10:g}B"  # hundreds of millions
        sized = f"{plain}{column.unit}" if column.unit and plain.replace(".", "", 1).isdigit() else text
        size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmbt])", sized, re.IGNORECASE) if column.kind == "size" else None
        text = size.group(1) + size.group(2).upper() if size else text
        return Cell(value="" if is_blank(text) else text, flags=flags)
    return _number_cell(column, text, flags)


_SCALE = re.compile(r"\s?(?:(Tsd\.?|тыс\.?)|(Mio\.?|млн\.?))\s?(?=[A-Za-z\u0400-\u04ff]|$)")
_A_SECOND = re.compile(r"\s?(?:/|per |p)\s?s(?:ec)?(?!\w)")
"""Of a column of rates, whose cells say how many thousands there are a second: `258 k/s`."""
_OF_ALL = re.compile(rf"\s?([KMGT]i?B|[GM]i?)?\s?(?:/|of|von|de|sur|out of)\s?({NUMBER.pattern})\s?([KMGT]i?B|[GM]i?)?"
                     r"(?![\w/.])", re.IGNORECASE)
"""`61.2/80 GiB`, `61GB of 80GB`: what is used of what the device has."""
_IN_THOUSANDS, LEAST_TYPED_OUT = frozenset({"vocab", "iteration"}), 1000
"""Counts that a heading may have in thousands, and from which figure on they were typed out all the same."""
_MYRIADS = re.compile(r"\s?([万萬亿億])(?!\w)")


def _number_cell(column: Column, text: str, flags: tuple[str, ...]) -> Cell:
    if text[:1] in "~≈" and text[1:2]:
        text, flags = text[1:].lstrip(), ("~", *flags)
    several = units.compound(text) if column.kind == "seconds" and len(text) <= LONGEST_CELL else None
    if several is not None and not several[1][:1].isalnum():
        return Cell(value=several[0], unit="s", text=several[1].strip(), flags=flags)
    match = NUMBER.match(text) if len(text) <= LONGEST_CELL else None
    if match is None:
        return _no_number(column, text, flags)
    value = float(decimal(match.group()))
    rest = text[match.end() :]
    spread = re.match(r"\s*(?:±|\+/-)\s*[\d.,]+", rest)
    if column.kind in MEASURED and (to := _RANGE.match(rest)) is not None:
        last = float(decimal(to[1]))
        if value < last <= WIDEST * value:  # what a progress bar jumps between
            value, spread = (value + last) / 2, to
    unit, rest = units.take(column.kind, rest[spread.end() :] if spread else rest)
    if column.kind == "memory" and (of_all := _OF_ALL.match(unit + rest)) and value <= float(decimal(of_all[2])):
        unit, rest = units.take("memory", f"{of_all[1] or of_all[3] or ''}{(unit + rest)[of_all.end() :]}")
    if column.kind == "rate" and (tens := _MYRIADS.match(rest)) is not None:
        value = float(f"{value * (1e4 if tens[1] in '万萬' else 1e8):.12g}")
        unit, rest = units.take(column.kind, rest[tens.end() :])
    elif column.kind == "rate" and not unit and (scale := _SCALE.match(rest)) is not None:
        value *= 1e3 if scale[1] else 1e6
        unit, rest = units.take(column.kind, rest[scale.end() :])
    elif column.kind == "rate":
        own = bare[:1] if (bare := rest.lstrip())[:1] in units.THOUSANDS and not bare[1:2].isalnum() else ""  # `1.44 M`
        value = units.rate(value, column.unit, own)
        unit, rest = units.take(column.kind, bare[1:]) if own else (unit, rest)
        if own and not unit and (second := _A_SECOND.match(rest)):
            rest = rest[second.end() :]
    if column.field == "seq" and (column.unit == "K" or re.match(r"[kKM](?!\w)", rest)):
        value *= 1024 if rest[:1] == "M" else 1
        if value > LONGEST_SEQUENCE_K:
            return Cell(flags=flags, unread=f"{value:g} thousand tokens are no sequence")
        value, rest = value * 1024, rest[1:] if rest[:1] in tuple("kKM") else rest
    if column.field in _IN_THOUSANDS and column.unit in units.THOUSANDS and value < LEAST_TYPED_OUT:
        value = round(value * units.THOUSANDS[column.unit], 3)
    if (other := "" if unit else units.foreign(column.kind, rest)) or (other := _other_rate(column, unit)):
        return Cell(flags=flags, unread=f"{text!r} is {other}")
    if rest and (rest[0] not in " ([{" or rest.lstrip()[:1].isdigit()):
        return Cell(flags=flags, unread=f"{text!r} is not one number")
    if not math.isfinite(value):
        return Cell(flags=flags, unread=f"{match.group()} is beyond any number")
    if column.kind == "count" and not value.is_integer():
        return Cell(flags=flags, unread=f"{match.group()} is not a whole number")
    if column.kind in POSITIVE and value <= 0 and not (value == 0 and column.field in MAY_BE_ZERO):
        return Cell(flags=flags, unread=f"{match.group()} is not above 0")
    between = match.group() if spread is not None and spread.re is _RANGE else ""
    words = f"{between}{spread.group() if spread else ''}{rest}".strip()
    return _scaled(column, value, unit or column.unit, words, flags)


_TOKENS = ("tok", "jeton", "ток", "トークン", "토큰")


def _other_rate(column: Column, unit: str) -> str:
    """Tokens in a column of samples, or those of one device in a column of all."""
    if column.kind != "rate" or not unit or column.field == "throughput":
        return ""
    tokens, each = unit.lower().startswith(_TOKENS), re.search(r"gpu|device", unit, re.IGNORECASE) is not None
    meant = column.field.startswith("tokens"), column.field.endswith("per_process")
    return "" if (tokens, each) == meant else "another rate"


def _scaled(column: Column, value: float, unit: str, words: str, flags: tuple[str, ...]) -> Cell:
    if column.kind == "count":
        return Cell(value=int(value), text=words, flags=flags)
    if column.kind == "seconds":
        scaled = units.seconds(value, unit)
        if not math.isfinite(scaled) or scaled <= 0:
            return Cell(flags=flags, unread=f"{value} {unit} is no time")
        return Cell(value=scaled, unit=unit, text=words, flags=flags)
    if column.kind == "memory":
        value, unit = units.memory(value, unit)
    if column.kind == "percent":
        return Cell(value=shifted(value, 2) if unit == "%" or value > 1 else value, text=words, flags=flags)
    if column.kind == "frequency":
        # Nobody clocks a machine at 3.1 Hz: a slip of the unit keeps its digits, and lint says so.
        return Cell(value=shifted(value, 3) if unit == "MHz" else value, unit=unit, text=words, flags=flags)
    if column.field in ("tflops", "aggr_pflops") and unit:
        value = shifted(units.tera(value, unit), 3 if column.field == "aggr_pflops" else 0)
    return Cell(value=value, unit=unit, text=words, flags=flags)


def _no_number(column: Column, text: str, flags: tuple[str, ...]) -> Cell:
    if is_blank(text) or units.is_unit(column.kind, _DASHES.sub("", text).strip()):
        return Cell(flags=flags)
    if re.fullmatch(r"[+-]?(nan|inf|infinity)", text, re.IGNORECASE):
        return Cell(flags=flags, unread=f"{text} is not a finite number")
    return Cell(text=text, flags=flags, unread=f"{text!r} is not a number")


_YES = {"yes", "y", "true", "on", "1", "✓", "✔", "✅", "x", "full", "enabled", "✔️", "oui", "ja", "si", "sí",
        "sì", "sim", "да", "tak", "ano", "全部", "全", "是", "有", "开", "开启", "あり", "有り", "有効", "はい"}
_NO = {"no", "n", "false", "off", "0", "✗", "✘", "❌", "none", "disabled", "w/o", "without", "non", "nein",
       "não", "нет", "nie", "ne", "否", "无", "無", "关", "不开", "なし", "無し", "無効", "いいえ"}


def _yesno(column: Column, text: str) -> Cell:
    text, flags = take_flags(text)
    word = text.lower()
    if word in _YES or word in _NO:
        return Cell(value=word in _YES, flags=flags)
    return Cell(flags=flags) if is_blank(text) else Cell(flags=flags, unread=f"{text!r} is neither yes nor no")


_PARTLY = re.compile(r"sel\.?|select|partial|(?:core[ _-])?att(?:n|ention)(?:[ _-]only)?(?:\W.*)?|selektiv|"
                     r"s[eé]lecti[fv][eo]?|selett?iv[oa]|selectief|selektywn\w*|selektivní|выборочн\w*|частичн\w*|teilweise|partiel\w*|parcial|"
                     r"parzial\w*|minimal\w*|save_\w+|dots_\w+|checkpoint_dots\w*|"
                     r"选择性|選択的?|部分|선택적?|부분")  # fmt: skip
"""What of a layer is recomputed where it is not all of it."""
_WHOLLY = {"voll", "vollständig", "komplett", "ganz", "complet", "complète", "total", "totale", "tout", "intégral", "completo",
           "completa", "pieno", "integrale", "volledig", "vol", "pełne", "pełny", "pełna", "pełen", "plné", "plný", "полный",
           "полная", "полное", "полностью", "tam", "完全", "全量", "全重计算", "全部", "フル", "전체", "전부", "everything",
           "all", "all layers", "every layer"}  # fmt: skip
_NOT = {"kein", "keine", "keins", "ohne", "aucun", "aucune", "sans", "rien", "ninguno", "ninguna", "sin", "nada", "nessuno",
        "nessuna", "senza", "nenhum", "nenhuma", "sem", "geen", "zonder", "brak", "żadne", "żaden", "bez", "žádné", "без",
        "никакой", "не", "yok", "不用", "不", "关闭", "不重计算", "없음", "안함", "nothing"}  # fmt: skip


def _recompute(column: Column, text: str) -> Cell:
    text, flags = take_flags(text)
    word = {"nothing_saveable": "full", "everything_saveable": "none"}.get(text.lower(), text.lower())
    if word in _WHOLLY or word in _NOT:
        return Cell(value="full" if word in _WHOLLY else "none", flags=flags)
    if "selective" in word or _PARTLY.fullmatch(word):
        return Cell(value="selective", flags=flags)
    if word in _YES or word in _NO:
        return Cell(value="full" if word in _YES else "none", flags=flags)
    first = re.split(r"[\s(,:]", word, maxsplit=1)[0]
    if first in _YES or first in _NO or first in ("block", "uniform"):
        return Cell(value="none" if first in _NO else "full", text=text[len(first) :].strip(" ,:"), flags=flags)
    return (
        Cell(value="", flags=flags) if is_blank(text) else Cell(flags=flags, unread=f"{text!r} is not full, selective or none")
    )


def _zero(column: Column, text: str) -> Cell:
    text, flags = take_flags(text)
    match = re.fullmatch(r"(?:z(?:ero)?)?(?:[\s_-]*stage)?[\s_-]*([0-3])(?:[\s(+,](.*))?", text, re.IGNORECASE)
    if match:
        return Cell(value=int(match.group(1)), text=(match.group(2) or "").strip(" )"), flags=flags)
    if text.lower() in _NO:
        return Cell(value=0, flags=flags)
    return Cell(flags=flags) if is_blank(text) else Cell(flags=flags, unread=f"{text!r} is not a ZeRO stage from 0 to 3")


def _stages(column: Column, text: str) -> Cell:
    """5-6-6-5, 5,6,6,5 and their like; `auto` and words are what nobody can count."""
    text, flags = take_flags(text)
    if is_blank(text) or len(text) > LONGEST_CELL:
        return Cell(value="", flags=flags)
    if text.lower() in (stages.AUTO, "even", "default", "uniform"):
        return Cell(text=text, flags=flags)
    try:
        return Cell(value=stages.said(stages.read(text)), flags=flags)
    except BadInput as error:
        return Cell(flags=flags, unread=str(error))


DTYPES = {
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "f16": "fp16", "bf16": "bf16", "bfloat16": "bf16", "fp32": "fp32",
    "float32": "fp32", "single": "fp32", "f32": "fp32", "tf32": "tf32", "fp8": "fp8", "float8": "fp8", "fp64": "fp64",
}  # fmt: skip


def _memory_unit(column: Column, text: str) -> Cell:
    """A column of its own for what the memory beside it is counted in."""
    unit, rest = units.take("memory", text)
    if is_blank(text):
        return Cell()
    known = unit in MEMORY_UNITS and not rest.strip()
    return Cell(value=unit) if known else Cell(unread=f"memory in {text[:20]}: write MiB or GiB")


def _dtype(column: Column, text: str) -> Cell:
    text, flags = take_flags(text)
    name = DTYPES.get(text.lower())
    if name is None and column.heading.lower() == "amp":
        return Cell(text=text, flags=flags)  # whether it was on, or at which level
    return Cell(value="" if is_blank(text) else name or text, flags=flags)


_DATE = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})|(\d{1,2})([-/])(\d{1,2})(?![-/.\d])")


def take_date(text: str) -> tuple[str, str]:
    """A date at the start of a note, as YYYY-MM-DD or MM-DD, and what follows it. No year is made up."""
    match = _DATE.match(text)
    if match is None:
        return "", text
    if match.group(1):
        date, month, day = (
            f"{match.group(1)}-{int(match.group(2)):02}-{int(match.group(3)):02}",
            int(match.group(2)),
            int(match.group(3)),
        )
    else:
        month, day = int(match.group(4)), int(match.group(6))
        if month > 12:
            month, day = day, month
        date = f"{month:02}-{day:02}"
    rest = text[match.end() :]
    if not (1 <= month <= 12 and 1 <= day <= 31) or (rest and rest[0] not in " ,;:("):
        return "", text
    return date, rest.lstrip(" ,;:")


def _notes(column: Column, text: str) -> Cell:
    text, flags = take_flags(text)
    return Cell(value="" if _DASHES.fullmatch(text) else text, flags=flags)


_READERS = {
    "yesno": _yesno, "recompute": _recompute, "zero": _zero, "dtype": _dtype, "notes": _notes, "date": _notes,
    "stages": _stages, "settings": _notes, "state": _notes, "outcome": _notes, "names": _notes, "source": _notes,
    "unit": _memory_unit,
    "flags": lambda column, text: Cell(flags=tuple(text.split())),
}  # fmt: skip
