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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from seatrial.columns import LAYOUT
from seatrial.tables.elsewhere import is_elsewhere
from seatrial.tables.names import (
    BY_NAME,
    EACH,
    MEASURES,
    OF_A_NODE,
    SETTINGS,
    Kind,
    by_measure,
    form,
    looked_up,
    normal,
    translated,
)
from seatrial.tables.spelled import A_SYMBOL, respelled, spelled, without_formulas
from seatrial.tables.worded import heading_from_signs, heading_in_english

__all__ = ["MEASURES", "NUMBER", "SETTINGS", "Column", "Kind", "clean", "normal", "read_heading", "setting", "settle"]

@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """What a heading says about the cells under it; one object per heading, so that cells are looked up by identity."""

    field: str = ""
    """The record's field; empty where none takes it."""
    kind: Kind = "word"
    unit: str = ""
    per: str = ""
    """process or node, where the heading of a rate says so; sequence where a batch is counted in tokens."""
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

_FOOTNOTE = re.compile(r"(?<=[\w)%])(?<!10)[\u00b9\u00b2\u00b3\u2074-\u2079]$")
"""Of a cell; a power of ten keeps its exponent."""
_NO_LETTER = re.compile(r"&#\d{100,};?")


def short_entities(text: str) -> str:
    """With U+FFFD, as HTML has it, for numbers of letters that are too long for Python to read."""
    return _NO_LETTER.sub("\ufffd", text)


_MARKUP = frozenset("*_`[<&\\~")


def clean(text: str) -> str:
    """The text of a cell without its markdown: bold, code, links, entities and typographic letters as plain ones."""
    if text.isascii() and _MARKUP.isdisjoint(text):
        return text.strip()
    if len(text) > LONGEST_CELL:
        return html.unescape(short_entities(text)).translate(_LETTERS).strip()
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
    text = _FOOTNOTE.sub("", re.sub(r"\\([\\`*_{}\[\]()#+.!|~<>-])", r"\1", text))
    return html.unescape(text).translate(_LETTERS).strip()


@lru_cache(maxsize=4096)
def plainly(heading: str) -> str:
    """A heading without markdown, formulas and the marks of notes; the dollars that are left are money."""
    return _KEPT_UNDER.sub("", spelled(clean(without_formulas(heading))))


def decimal(number: str) -> str:
    """A match of `NUMBER` as Python reads it."""
    if number.replace(".", "", 1).isdecimal():  # as nearly all are
        return number
    if number.count(".") > 1 and "," not in number:
        return number.replace(".", "")
    whole, _, part = number.partition(",")
    if _COMMA.fullmatch(number) and (len(part) != 3 or "." in whole or whole.lstrip("+-") == "0"):
        return whole.replace(".", "") + "." + part
    return re.sub("[,'_]", "", number)


_UNIT_WORDS = {
    "s": "s", "sec": "s", "secs": "s", "seconds": "s", "second": "s", "ms": "ms", "msec": "ms", "milliseconds": "ms",
    "min": "min", "minutes": "min", "us": "us", "usec": "us", "microseconds": "us", "h": "h", "hr": "h", "hrs": "h",
    "hours": "h", "hour": "h", "days": "d", "bytes": "B", "b": "B", "kb": "KB", "kib": "KiB", "mb": "MB", "mib": "MiB",
    "go": "GB", "gio": "GiB", "mo": "MB", "mio": "MiB",
    "gb": "GB", "gib": "GiB", "tb": "TB", "tib": "TiB", "k": "K", "m": "M", "thousands": "K", "millions": "M", "%": "%",
    "x1000": "K", "×1000": "K", "x 1000": "K", "1000": "K", "x1e3": "K", "1e3": "K", "1e6": "M", "万": "万", "萬": "万",
    "1e9": "B", "1e12": "T", "billions": "B", "billion": "B", "bn": "B", "trillions": "T", "million": "M", "thousand": "K",
    "億": "億", "t": "T", "mld": "B", "mrd": "B", "mln": "M", "tsd": "K", "tys": "K", "b params": "B",
    "m params": "M", "1k": "K",
    "ghz": "GHz", "mhz": "MHz",
}  # fmt: skip
LONGEST_HEADING = 120
_SEVERAL_BYTES = re.compile(r"(\b(?:mem|v?ram|usage|size|disk)\w*\b.*[(\[][KMGT]i?B)s(?=[)\]])", re.IGNORECASE)
"""`Peak memory (GBs)`, which are no global batches."""
_BRACKET = re.compile(r"[(\[（]([^)\]）]*)[)\]）]")


_KEPT_UNDER = re.compile(
    r"^(?:(?:params(?!/(?:gpu|device|card|chip|rank|npu|tpu|stage|node)s?\b)|hparams|metrics|tags|config|summary|args)[./]|"
    r"(?:training|train|trainer|parallelism|parallel|model|data|job|optimizer|system|perf|cfg|tokens|batch_scheduler)\.|"
    r"(?:perf|train|trainer|training|performance)/|throughput/(?:device/(?=mfu)|(?=\w+_\w)))+(?=\w)", re.IGNORECASE
)
"""How a tracker's export or an engine's setting begins: `params.nodes`, `training.seq_len`, `perf/mfu`."""
_AFTER_COMMA = re.compile(r"(?:(?:,| /)\s*(ms|s|sec|seconds|min|[GM]i?B|%|[kKMBT]|days|hours|thousands|(?:m|b|tr)illions)"
                          r"| in (thousands|millions|billions|trillions|ms|seconds|days|hours))$")  # fmt: skip
"""`step, ms` is `step (ms)`."""
_COUNTED = re.compile(r"(?:tok(?:en)?s?|samples?|seqs?|sequences?|it|iters?|iterations?|steps?|flops?)$", re.IGNORECASE)


def _is_unit_of(match: re.Match[str]) -> bool:
    """Behind a stroke a unit is one of a time or an amount: `duration / s`, but `tokens / s` is a rate."""
    return not match[0].startswith(" /") or _COUNTED.search(match.string[: match.start()]) is None


_THOUSANDS_OF = re.compile(r"(?<!\w)(?:1 ?)?([kKmM万萬]|[tT]housands?)(?:io\.?|illions?|ilo)?(?: of)?[ _-]?"
                           r"((?:[tT]ok(?:en)?s?|TPS|tps)(?![^\W_]).*)")
"""`ktok/s` is `tok/s (k)`, and `Mio. Token/s` is `Token/s (M)`."""
_JETONS = re.compile(r"(?<=\b[kKM])jetons?\b")
"""`kjetons/s` is `ktokens/s`."""
_INVERSE = re.compile(r"\s*[·*]?\s*\b([A-Za-z]+)(?:\u207b\u00b9|-\u00b9|\^\{?-1\}?)")
_OF_BOTH = re.compile(r"/\s?\((\w+)\s*[·*x ]\s*(\w+)\)")
"""`tok s⁻¹` is `tok/s`, and `tok/(s·GPU)` is `tok/s/GPU`."""


_FROM_THERE = re.compile(r"(?:с|со|от|до|по)\s+(?:шаг|итерац|эпох)\w*", re.IGNORECASE)
"""Before a step `с` is `from`, and behind a comma or a stroke the second."""
_OF_ONE = re.compile(r"^(?:1|one) ?(?=(?:step|iteration|iter|it)\b)", re.IGNORECASE)
_OF_SIX = re.compile(r"[ _(]+6 ?[NP]D?\)?$")
"""`tflops_per_gpu_6N`: by which formula."""


_OTHER_LETTERS = re.compile(r"[\u0400-\u04ff]")
"""Names are kept in Latin ones: of `TFLOPS/узел` only `TFLOPS/` would be looked up."""
_AXES = {name.upper(): name for name in LAYOUT if len(name) < 4 and name != "etp"} | {
    "MP": "tp", "FSDP": "dp", "DDP": "dp", "VPP": "vp"}  # fmt: skip


_ANYTHING = frozenset({"iteration", "run_id", "date", "session", "notes"})
"""What a word of another language is not taken for: a step, a run or a day may be anything."""
_OF_AN_AXIS = re.compile("parallel|virtual|pipeline", re.IGNORECASE)
_NAMED_LAST = re.compile(rf"\w[\s,–—-]+({'|'.join(_AXES)})$")
_OF_A_STEP = re.compile(r"\b(?:per|steps?|it|iters?|iterations?|updates?|batch)\b")
_OF_A_RUN = re.compile(r"\b(?:wall|walltime|wallclock|total|train|training|run|runs|job|elapsed|duration|end)\b")


@lru_cache(maxsize=4096)
def read_heading(raw: str) -> Column:
    """The column a heading stands for; a column without a field keeps its cells' text."""
    if len(raw) > LONGEST_HEADING or raw.lstrip()[:1] in "Δ∆" and raw.strip():  # a difference is none of what it is of
        return Column(heading=raw.strip())
    text = heading_from_signs(plainly(raw)).strip("*†^ ")
    text = _SEVERAL_BYTES.sub(r"\1", text) if "Bs" in text else text
    text = _AFTER_COMMA.sub(lambda match: f" ({match[1] or match[2]})" if _is_unit_of(match) else match[0], text)
    if (axis := _BRACKET.search(text)) and axis[1].strip().upper() in _AXES:
        return Column(heading=raw.strip(), field=_AXES[axis[1].strip().upper()], kind="count")  # `data (FSDP)`
    if (symbol := A_SYMBOL.fullmatch(text)) is not None and by_measure(text) is None and (of := read_heading(symbol[1])).field:
        return replace(of, heading=raw.strip())
    if (named := _NAMED_LAST.search(text)) and _OF_AN_AXIS.search(heading_in_english(text, surely=True)):
        return Column(heading=raw.strip(), field=_AXES[named[1]], kind="count")  # `parallelism of data, DP`
    if text == "S":
        return Column(heading=raw.strip(), field="seq", kind="count")  # seconds are written small
    if _FROM_THERE.fullmatch(text):
        return Column(heading=raw.strip())
    text = _JETONS.sub("tokens", _OF_ONE.sub("", text))
    if (six := _OF_SIX.search(text)) and (of_six := read_heading(text[: six.start()])).field == "tflops":
        return replace(of_six, heading=raw.strip())
    text = _THOUSANDS_OF.sub(r"\2 (\1)", _OF_BOTH.sub(r"/\1/\2", _INVERSE.sub(r"/\1", text)))
    if (english := heading_in_english(text)) != text:
        column = read_heading(english)
        if column.field and column.field not in _ANYTHING or rate_of_each(english) is not None:
            return replace(column, heading=raw.strip())
    inside = [part for group in _BRACKET.findall(text) for part in re.split(r"[,;]", group)]
    plain = normal(_BRACKET.sub(" ", text))
    whole = normal(text)
    if whole not in BY_NAME and (is_elsewhere(whole) or is_elsewhere(normal(heading_in_english(text)))):
        return Column(heading=raw.strip())
    # A rate in brackets says of what the rest is the name: `throughput/GPU (tok/s)`.
    rated = any(" per " in f"{normal(part)} " for part in inside)
    found = BY_NAME.get(whole) or (by_measure(text) if rated else None) or BY_NAME.get(plain)
    if found is None and rated and not {*plain.split()} & {*EACH, "node", "nodes"}:
        found = next(filter(None, map(by_measure, inside)), None)
    found = found or BY_NAME.get(plain.removeprefix("num ").removeprefix("est ")) or _one_of_several(text)
    if found is None:
        words = plain.split()
        if len(words) > 1 and words[-1] in _UNIT_WORDS and words[-2] != "per" and (found := BY_NAME.get(" ".join(words[:-1]))):
            found = None if found[1] in ("count", "word") else found  # `GPU hours`, `run B`
            inside.append(words[-1])
    found = found or looked_up(text) or looked_up(_BRACKET.sub(" ", text))
    if found is None and (found := by_measure(text) or by_measure(_BRACKET.sub(" ", text))):
        inside += [word for word in plain.split() if word[1:] in ("b", "ib", "o", "io")]
    if found is None and (bare := without_version(text)) != text and (either := read_heading(bare)).field in MEASURES:
        return replace(either, heading=raw.strip())
    if found is None and (of_one := _TIME_OF_ONE.search(form(text))):
        found = ("tokens_per_s" if "tokens" in of_one[0] else "samples_per_s"), "rate"
    found = found or (None if _parts(text) else translated(plain))
    if found is None or _OTHER_LETTERS.search(text):
        english = heading_in_english(text, surely=True)
        if english not in (text, raw) and (told := read_heading(english)).field not in _ANYTHING:
            return replace(told, heading=raw.strip())
    if found is None:
        parts = _parts(text) or next(filter(None, map(_parts, _BRACKET.findall(text))), ())
        others = () if parts else (read_heading(other) for other in respelled(text))
        column = next((other for other in others if other.field), Column(parts=parts))
        return replace(column, heading=raw.strip())
    field, kind = found
    unit, per, formula = _heading_unit(kind, whole if rated else plain), _heading_per(plain), _formula_of(plain)
    a_time = _rate_time(whole) if kind == "rate" else ""
    if field in ("tflops", "aggr_pflops"):
        usual = "tflops" if field == "tflops" else "pflops"
        unit = next((word.upper() for word in form(plain).split() if word.endswith("flops") and word != usual
                     and (word != "flops" or usual not in form(text))), unit)  # fmt: skip
    for part in inside:
        part = part.strip()
        words_in = normal(part)
        of_tokens = part == "T" or re.search(r"\btok(?:en)?s?\b", words_in) or batch_of_tokens(raw) is not None
        if field in ("gbs", "mbs") and of_tokens:
            return Column(heading=raw.strip())  # a batch of tokens is no number of samples
        unit = _UNIT_WORDS.get(_EACH_ONE.sub("", words_in) or part, unit)
        per = _heading_per(words_in) or per
        if field == "throughput" and (rate := BY_NAME.get(words_in) or by_measure(words_in)):
            field, kind = rate
            per = _heading_per(words_in) or per
        elif (
            field == "tflops" and part and words_in not in _UNIT_WORDS and not _heading_per(words_in) and "flop" not in words_in
        ):
            formula = part
    if field == "iteration" and unit in ("s", "ms", "us", "min", "h"):
        field, kind = "sec_per_it", "seconds"  # `Step (s)`
    if field == "sec_per_it" and unit in ("h", "d") and _OF_A_RUN.search(plain) and not _OF_A_STEP.search(plain):
        return Column(heading=raw.strip())  # `Wall time [h]` is that of a run
    if field == "throughput":
        return Column(heading=raw.strip(), field="throughput", kind="rate")
    if field in ("mem_value", "dtype") and "%" in (unit, *map(str.strip, inside)):
        return Column(heading=raw.strip())  # a share of what a device has, or of answers that were right
    if kind == "rate" and "node" in {_heading_per(plain), *(_heading_per(normal(part)) for part in inside)}:
        return Column(heading=raw.strip())  # see `rate_of_each`
    if field == "sec_per_it" and any(_OF_DEVICES.fullmatch(normal(part)) for part in inside):
        return Column(heading=raw.strip())  # `Time (GPU hours)`
    unit += a_time
    if field != "tflops" and (field, per) != ("mem_value", "node"):
        per = ""
    formula = formula if field == "tflops" else ""
    return Column(heading=raw.strip(), field=field, kind=kind, unit=unit, per=per, formula=formula)


_EACH_ONE = re.compile(rf" per (?:{'|'.join(sorted(EACH))})$")
_AFTER, _BEFORE = r"after|new|ours|this pr|pr|patched|current|now", r"before|old|baseline|base|main|master|previous|prev"
_VERSION = re.compile(rf"(?<![\w.])(?:({_AFTER})|({_BEFORE})|v?(\d+(?:\.\d+)+)\w*)(?![\w.])", re.IGNORECASE)
"""What tells columns of one measure apart that stand side by side: before a change and after it, or by release."""


def without_version(text: str) -> str:
    """`s/it=9.31` and `"s/it": 9.31` are no heading but a figure."""
    return text if any(sign in text for sign in '=:"') else _VERSION.sub(" ", text)


@lru_cache(maxsize=1024)
def older(headings: tuple[str, ...]) -> frozenset[str]:
    """Of columns that hold one measure those that are not the record's: before a change and after it the last is, `v0.6
    (ms/step)` beside `v0.7 (ms/step)`; of one figure counted in two ways the first, and that of a device."""
    measured: dict[str, dict[str, list[int]]] = {}
    batches = {_micro_batch(headings), *(heading for heading in headings if _in_pair(heading, headings))}
    for heading in headings:
        if (field := read_heading(heading).field) in MEASURES and heading not in batches:
            mark = _VERSION.search(re.sub(r"[_/-]", " ", clean(heading)))
            at = [1] if mark is None else [2] if mark[1] else [0] if mark[2] else [1, *map(int, mark[3].split("."))]
            measured.setdefault(field, {})[heading] = at
    given: set[str] = set()
    for marks in measured.values():
        if [*marks.values()].count([1]) == 1 and [2] not in marks.values():
            given |= {heading for heading, at in marks.items() if at != [1]}  # what a release had stands beside what is
            continue
        last = max(marks.values())
        if len(marks) > 1 and [*marks.values()].count(last) == 1:
            given |= {heading for heading, at in marks.items() if at != last}
    for field in TWICE & {*measured}:
        # One quantity counted in two ways: of a device and of a node, by two peaks, with what is recomputed and without.
        said = [one for one in measured[field] if one not in given and (field != "tflops" or "flops" in form(one))]
        given |= {*said} - {min(said, key=lambda heading: (read_heading(heading).per == "node", not _counts(heading, headings)),
                                default="")}  # fmt: skip
    paces = {heading: read_heading(heading).unit == "it/s" for heading in measured.get("sec_per_it", ())}
    if len(paces) > 1 and not all(paces[heading] or normal(heading) in _WEAK for heading in paces):
        given |= {heading for heading, inverse in paces.items() if inverse}  # beside the time that it is one over
    return frozenset(given)


def _micro_batch(headings: tuple[str, ...]) -> str:
    """The heading `mb`, where beside memory, accumulation or the global batch it means micro-batches and not megabytes."""
    found = next((heading for heading in headings if heading.strip("*_` ").lower() == "mb"), "")
    beside = found and any(accumulates(one) or read_heading(one).field in ("mem_value", "gbs")
                           for one in headings if one != found)  # fmt: skip
    return found if beside else ""


def _in_pair(heading: str, headings: tuple[str, ...]) -> bool:
    """Whether it is one of `MB | GB`, of which no device holds both."""
    return heading.strip("*_` ") in ("MB", "GB") and {one.strip("*_` ") for one in headings} >= {"MB", "GB"}


def _counts(heading: str, headings: tuple[str, ...]) -> bool:
    """Whether a column counts what another one is per: `ranks` beside `TF/rank`."""
    words = normal(heading).split()
    of = words[-1].removesuffix("s") if words[-2:-1] == ["per"] else ""
    return bool(of) and any(normal(other).removesuffix("s") == of for other in headings)


TWICE = frozenset({"tflops", "mfu", "hfu", "mem_value"})


_BETWEEN = re.compile(r"\s*[/,;:·*×+&]\s*|\s+x\s+|(?<=[DTPCEdtpce][Pp])[xX-](?=[DTPCEdtpce][Pp]\b|[DTPCEdtpce][Pp][xX-])")


_OF_EACH = (("experts", "gpus"), ("layers", "gpus"), ("experts", "nodes"), ("layers", "nodes"))
"""`experts/GPU` are those of one, and not two counts."""


def _one_of_several(text: str) -> tuple[str, Kind] | None:
    """`emb_dim / d_model` are two names of one; `--bf16 / --fp8` are what it may be."""
    said = [normal(part) for part in re.split(r"\s+/\s+", text)]
    if len(said) < 2:
        return None
    if {*said} <= _DTYPES:
        return "dtype", "dtype"
    if said[0] in ("ok", "fits", "pass", "done") and said[1] in ("oom", "fail", "failed", "crash", "crashed"):
        return "outcome", "outcome"
    found = {BY_NAME.get(name) for name in said}
    return found.pop() if len(found) == 1 else None


_DTYPES = frozenset(("bf16", "fp16", "fp8", "fp32", "tf32", "fp4", "mxfp8", "nvfp4"))


def _parts(text: str) -> tuple[str, ...]:
    """`DP/TP/PP`, `DPxTPxPP` and `TP x PP` name several counts, which their cells hold in the same order."""
    found = [BY_NAME.get(normal(part)) for part in _BETWEEN.split(text.strip("()[] "))]
    fields = tuple(entry[0] for entry in found if entry is not None and entry[1] == "count")
    if fields in _OF_EACH:
        return ()
    return fields if len(fields) == len(found) == len(set(fields)) and len(fields) > 1 else ()


_OF_TOKENS = re.compile(
    r"(?:(?P<a>k|m|million|thousand|mio) ?)?tok(?:en)?s? (?:(?P<b>k|m) )?per (?:global |optimizer |opt |training )?"
    r"(?:global )?(?:it|iter|iteration|step|batch|update)(?: global)?(?: (?P<c>k|m|1e3|1e6))?"
    r"|(?:global ?|total |effective )?(?:gbs|batch ?(?:size)?(?: global)?|bsz?)(?: in| of)? ?\b"
    r"(?:(?P<d>k|m|millions?|thousands?|mio)(?: of)? ?)?"
    r"(?:t|toks?|tokens?)(?: (?P<e>k|m|1e3|1e6))?"
)


_MANY_TOKENS = {"3": "K", "6": "M"}


@lru_cache(maxsize=4096)
def batch_of_tokens(heading: str) -> str | None:
    """The unit of a column that says how many tokens a step has, K, M or none; None where it is no such column.

    `tokens/step`, `GBS (Mtok)`, `Global batch (tokens)`, `GlobalBatchSize (T)`, `Token pro Schritt`"""
    if len(heading) > LONGEST_HEADING:
        return None
    words = normal(heading_in_english(plainly(heading), surely=True))
    words = re.sub(r"\b(?:num|number of|nr of|avg|total) (?=\S* ?tok)", "", words)
    match = _OF_TOKENS.fullmatch(words)
    return None if match is None else next((_MANY_TOKENS.get(unit[-1], unit[0].upper()) for unit in match.groups() if unit),
                                             "").replace("T", "K")  # fmt: skip


@lru_cache(maxsize=4096)
def rate_of_each(heading: str) -> Column | None:
    """The column of a rate that a record has of all devices alone: that of a node, `tok/s/node`, and samples of a device."""
    text = heading_in_english(plainly(heading), surely=True)
    text = _THOUSANDS_OF.sub(r"\2 (\1)", _OF_BOTH.sub(r"/\1/\2", _INVERSE.sub(r"/\1", text)))
    units = (_UNIT_WORDS.get(part.strip().casefold(), "") for part in _BRACKET.findall(text))
    many = next((unit for unit in units if unit in ("K", "M")), "")
    words = {*form(text).split()} - {"per", "throughput", "avg", "mean", "k", "m", "device"} - _OF_TRAINING
    node = "node" in words
    each = words & {*EACH} or "device" in form(text).split()
    what = words - {"s", "node", *EACH}
    if "s" not in words or what not in ({"tokens"}, {"samples"}) or node == bool(each) or each and what == {"tokens"}:
        return None
    return Column(heading=heading, field=f"{what.pop()}_per_s", kind="rate", unit=many + _rate_time(normal(text)),
                  per="node" if node else "process")  # fmt: skip


_OF_TRAINING = frozenset("train training speed perf".split())


_SUMS = frozenset("ga gas acc accu accum accums accumulation accumulate accumulated accumulations akkumulation "
                  "gradientenakkumulation akk akku akkum gradientenakk gradakk acumulacion acumulacao "
                  "acum acumul cumul accumulo akumulacja akum birikim biriktirme "
                  "microbatches".split())
_BESIDE_SUMS = frozenset("grad grads gradient gradients gradiente de di del step steps of num n number factor micro batch "
                         "batches x per it iter iteration update optimizer replica rank gpu device".split())  # fmt: skip


@lru_cache(maxsize=4096)
def accumulates(heading: str) -> bool:
    """Whether a column counts the micro-batches that one step sums: `grad. acc.`, `accum steps`, `micro-batches`."""
    words = {*normal(heading_in_english(heading)).split()}
    named = words & _SUMS or {"micro", "batches"} <= words
    return bool(named) and words <= _SUMS | _BESIDE_SUMS


_WEAK = {"card", "model", "model name", "batch size", "batch", "bs", "time", "device", "accelerator", "sequence"}
"""Names that give way where the same table has a clearer one."""


_LETTERS_OF_A_SHAPE = {"L": "layers", "l": "layers", "d": "hidden", "h": "hidden", "H": "hidden", "a": "heads"}
_LETTERS_OF_A_LAYOUT = {"t": "tp", "p": "pp", "d": "dp", "T": "tp", "P": "pp", "D": "dp"}
_LETTERS_OF_A_BATCH = {"b": "mbs", "B": "gbs"}


def in_letters(headings: Sequence[str]) -> dict[str, str]:
    """Heading -> field of `L`, `d` and `a` or of `t`, `p` and `d` as papers write them: only where the table has layers and a
    width, or several kinds of parallelism, however named."""
    named = {read_heading(heading).field for heading in headings}
    axes = {"dp", "tp", "pp", "cp", "ep"}
    for meant, wanted in ((_LETTERS_OF_A_SHAPE, {"layers", "hidden"}), (_LETTERS_OF_A_LAYOUT | _LETTERS_OF_A_BATCH, axes)):
        letters = {heading: field for heading in headings if (field := meant.get(heading.strip("*_`$ ")))}
        fields = [*letters.values()]
        if len(wanted & {*fields, *named}) >= 2 and len(fields) == len({*fields}) and not named & {*fields}:
            return letters
    return {}


_IN_COMPANY: dict[str, tuple[str, Kind, frozenset[str]]] = {
    **{word: ("gbs", "count", frozenset({"sec_per_it"})) for word in ("sequences", "seqs")},
    "global": ("gbs", "count", frozenset({"mbs"})), "b": ("gbs", "count", frozenset({"mbs"})),
    "stage": ("zero_stage", "zero", frozenset({"mbs", "gbs", "dp"})), "kv": ("kv_heads", "count", frozenset({"heads"})),
    "block": ("seq", "count", frozenset({"mbs", "gbs"})), "ckpt": ("recompute", "recompute", frozenset({"mbs"})),
    **{word: ("nodes", "count", frozenset({"gpus"})) for word in ("instances", "vms", "servers", "blades", "boxes")},
}
"""What a word means beside columns of these fields, where no other column says it."""
_KEPT = frozenset("peak max maximum alloc allocated reserved footprint usage used high water mark watermark hwm spitze pico "
                  "picco per gpu device rank each card cuda torch".split())  # fmt: skip
_KEEPS = frozenset("peak alloc allocated reserved footprint watermark hwm spitze pico picco".split())
_FILLS = frozenset({"mbs", "zero_stage", "recompute"})
"""What sets how full a device is: beside those a peak is one of memory, where devices differ it may be one of FLOP/s."""


def _is_peak_memory(heading: str, named: set[str]) -> bool:
    words = {*normal(heading).split()}
    return words <= _KEPT and bool(words & _KEEPS or {"high", "water"} <= words) and bool(_FILLS & named) \
        and not {"mem_value", "machine"} & named


_OF_RUNS = frozenset(("tp", "pp", "dp", "gpus", "nodes", "sec_per_it", "tokens_per_s", "tokens_per_s_per_process", "tflops"))
_BYTES = frozenset("kb mb gb tb kib mib gib tib".split())
_HOW_MANY = frozenset(("#", "n", "count", "qty", "number", "anzahl", "nombre", "数", "枚数"))
_OF_A_DEVICE = {"bs", "bsz", "batch size", "batch"}


def is_any_batch(heading: str) -> bool:
    """Whether a column beside the accumulation is taken for the micro-batch for its company alone: `bs`."""
    return normal(heading_in_english(heading)) in _OF_A_DEVICE


_OF_EACH_DEVICE = frozenset(f"per {device}" for device in EACH)
_BYTES_A_SECOND = re.compile(r"[kmgt]i?b per s")


def settle(columns: list[Column]) -> list[Column]:
    """A table's columns, where a vague heading (Model, Batch size, Time) loses its field to a clear one (Size, GBS, Sec/it)."""
    return [*_settled(tuple(columns))]


@lru_cache(maxsize=1024)
def _settled(given: tuple[Column, ...]) -> list[Column]:
    columns = [*given]
    if any(_BYTES_A_SECOND.fullmatch(normal(column.heading)) for column in columns):
        # Bytes beside bytes a second are those that were written or sent, and not what a device holds.
        columns = [Column(heading=one.heading) if normal(one.heading) in _BYTES else one for one in columns]
    letters = in_letters([column.heading for column in columns])
    columns = [Column(heading=one.heading, field=letters[one.heading], kind="count") if one.heading in letters else one
               for one in columns]  # fmt: skip
    named = {column.field for column in columns}
    headings = tuple(column.heading for column in columns)
    if "gbs" not in named and named & _OF_RUNS and any(_in_pair(heading, headings) for heading in headings):
        # Side by side they are the micro-batch and, where nobody says the tokens of a step, the global one.
        fields = {"MB": "mbs", "GB": "" if any(batch_of_tokens(one.heading) is not None for one in columns) else "gbs"}
        columns = [Column(heading=one.heading, field=fields[name], kind="count" if fields[name] else "word")
                   if (name := one.heading.strip("*_` ")) in fields else one for one in columns]  # fmt: skip
        named = {column.field for column in columns}
    held = [at for at, one in enumerate(columns) if one.field == "mem_value"]
    batched = "gbs" not in named and any(accumulates(one.heading) or one.field in ("mbs", "dp") for one in columns)
    if batched and {one.heading for one in columns} >= {"mb", "gb"}:  # of a script: the micro-batch and the global one
        columns = [Column(heading=one.heading, field=f"{one.heading}s", kind="count") if one.heading in ("mb", "gb") else one
                   for one in columns]  # fmt: skip
        named = {column.field for column in columns}
    elif batched and len(held) > 1:
        # `GB` beside `Peak mem` and the accumulation is the global batch.
        columns = [Column(heading=one.heading, field="gbs", kind="count") if one.heading.strip("*_` ") == "GB" else one
                   for one in columns]  # fmt: skip
        named = {column.field for column in columns}
    if "mbs" not in named and (micro := _micro_batch(tuple(column.heading for column in columns))):
        columns = [Column(heading=one.heading, field="mbs", kind="count") if one.heading == micro else one for one in columns]
        named = {column.field for column in columns}
    if "mbs" not in named and any(accumulates(column.heading) for column in columns):
        # `bs | GA`: the batch that is accumulated is a device's.
        columns = [Column(heading=one.heading, field="mbs", kind="count") if one.field == "gbs"
                   and is_any_batch(one.heading) or normal(one.heading) in _OF_EACH_DEVICE else one
                   for one in columns]  # fmt: skip
        named = {column.field for column in columns}
    for at, column in enumerate(columns):
        field, kind, beside = _IN_COMPANY.get(normal(column.heading), ("", "word", frozenset()))
        other = field == "zero_stage" and "pp" in named or field == "gbs" and "iteration" in named  # of all steps
        if not column.field and field not in named and beside & named and not other:
            columns = [*columns[:at], Column(heading=column.heading, field=field, kind=kind), *columns[at + 1 :]]
    kept = [at for at, one in enumerate(columns) if not one.field and _is_peak_memory(one.heading, named)]
    if kept:  # of what is allocated and what is reserved the first, as elsewhere
        columns[kept[0]] = Column(heading=columns[kept[0]].heading, field="mem_value", kind="memory")
    for at, (before, column) in enumerate(pairwise(columns), 1):
        # `GPU | #`: which, and how many.
        if column.heading.strip().lower() in _HOW_MANY and before.field in ("gpus", "machine"):
            which = Column(heading=before.heading, field="machine", kind="word")
            many = Column(heading=column.heading, field="gpus", kind="count")
            columns = [*columns[: at - 1], which, many, *columns[at + 1 :]]
    if any(re.search(r"\b(?:f|h)?sdp|shard", normal(column.heading)) for column in columns):
        # Of HSDP the replicas are one factor of DP, and the groups of shards the other.
        columns = [Column(heading=one.heading) if one.field == "dp" and "repl" in normal(one.heading) else one
                   for one in columns]  # fmt: skip
    counted = ["flops" in form(column.heading) for column in columns if column.field == "tflops"]
    if len(counted) > 1 and ("tokens_per_s" in named or any(counted) and "tokens_per_s_per_process" not in named):
        # Beside all tokens, or TFLOPs by their name, the throughput of a device is one of tokens.
        columns = [replace(one, field="tokens_per_s_per_process", kind="rate", per="")
                   if one.field == "tflops" and "flops" not in form(one.heading) else one for one in columns]  # fmt: skip
    columns = [_in_other_units(one, named) if not one.field and not one.parts else one for one in columns]
    past = older(tuple(column.heading for column in columns))
    columns = [Column(heading=one.heading) if one.heading in past else one for one in columns]
    taken = {column.field for column in columns if column.field and normal(column.heading) not in _WEAK}
    return [
        Column(heading=column.heading) if column.field in taken and normal(column.heading) in _WEAK else column
        for column in columns
    ]


def _in_other_units(column: Column, named: set[str]) -> Column:
    """A column that says what another would, had the table one: the batch in tokens, or the rate of one of its nodes."""
    unit = batch_of_tokens(column.heading) if "gbs" not in named else None
    if unit is not None:
        return Column(heading=column.heading, field="gbs", kind="rate", unit=unit, per="sequence")
    rate = rate_of_each(column.heading)
    there = rate is not None and rate.field not in named and ("nodes" if rate.per == "node" else "gpus") in named
    return rate if rate is not None and there else column


def _heading_unit(kind: Kind, plain: str) -> str:
    if kind != "seconds":
        return ""
    if re.search(r"\b(it|its|iters?|iterations?|steps?) per s(ec|ecs|econds?)?$", plain):
        return "it/s"
    if re.search(r"\b(ms|msec)\b", plain):
        return "ms"
    if re.search(r"\bus\b", plain):
        return "us"
    return "min" if re.search(r"\bmins? per\b", plain) else "s"


_OF_DEVICES = re.compile(rf"(?:{'|'.join(EACH)}) ?(?:hours?|h|hrs?|days?|d|min(?:ute)?s?)")
_A_TIME = re.compile(r"\bper (?:(?:gpu|node|device|chip|process|rank|card) per )?(min|minute|h|hr|hour|day|d)s?\b")
_TIME_OF_ONE = re.compile(r"\btime per (?:training )?(?:tokens|samples)\b")
_FOR_ONE = re.compile(r"\b(s|ms|us|min)(?: (?:gpu|device))? per (?:\w+ )?(?:tokens|samples)\b(?! per s\b)")


def _rate_time(whole: str) -> str:
    """What a rate is per, where that is no second: `/min`, `/h`, `/d`, and `s/`, `ms/`, `us/` of what is the time of one."""
    if (one := _FOR_ONE.search(form(whole))) is not None:
        return f"{one[1]}/"
    if _TIME_OF_ONE.search(said := form(whole)):
        return next((f"{unit}/" for unit in ("ms", "us", "min") if unit in said.split()), "s/")
    time = _A_TIME.search(whole)
    return "" if time is None else f"/{'min' if time[1][0] == 'm' else time[1][0]}"


def _heading_per(plain: str) -> str:
    if re.search(rf"\bper ({'|'.join(EACH)})\b", plain):
        return "process"
    return "node" if _OF_A_NODE.search(plain) else ""


_OF_A_NODE = re.compile(rf"\bper (?:{'|'.join(OF_A_NODE)})\b|^node\b")


def _formula_of(plain: str) -> str:
    if plain.startswith("model tflop"):
        return "model"
    return "hardware" if plain.startswith(("hardware tflop", "hw tflop")) else ""


@lru_cache(maxsize=4096)
def setting(key: str) -> Column | None:
    """The column that a KEY of the text, an option or an argument dump stands for, where it is something a row can be asked."""
    found = BY_NAME.get(normal(key))
    if found is None or found[0] not in SETTINGS:
        return None
    return Column(heading=key, field=found[0], kind=found[1])
