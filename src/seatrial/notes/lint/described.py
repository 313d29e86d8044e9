"""Sizes of models where nobody runs them: tables of labels, shapes and parameters, and sentences about experts.

    check(sheet, problems)               findings; `problems` tell which tables are none of runs

A size is compared with the least and the most that its shape can have: heads in groups or not, a gated feed-forward or not. An
error needs two other rows of the table that fit.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from seatrial.notes.lint.labels import is_mixture, label_parameters
from seatrial.notes.lint.sheet import Finding, Sheet
from seatrial.tables import Problem
from seatrial.tables.headings import clean, normal, read_heading

_PARAMETERS = re.compile(r"\b(?:param(?:eter)?s?|n params|total size)\b")
_TIED = re.compile(r"\b(?:tied|tie)\b")
_ROUND = 0.06
"""How far a label may be from the size, beside its digits: people round generously."""
_COUNTED = 0.012
_GROUPED = 8
"""As many heads share one of the keys and values, at most."""
MOST_ROWS = 200


def check(sheet: Sheet, problems: Iterable[Problem]) -> list[Finding]:
    found: list[Finding] = []
    for problem in problems:
        text = sheet.prose.get(problem.file)
        if text is not None and problem.rows and problem.level == "note" and 0 < problem.line <= len(text.lines):
            found += _table(problem.file, problem.line, text.lines)
    for file, text in sheet.prose.items():
        rows = sheet.files.get(file, [])
        vocab = next((row.vocab for row in rows if row.vocab), 0) or 0
        shape = next(((row.layers, row.hidden, vocab) for row in rows if row.layers and row.hidden), None)
        for number, line in enumerate(text.lines, 1):
            if "active" in line or "activated" in line:
                said, words = _LAYERS.search(line), _VOCAB.search(line)
                own = said and (int(said[1]), int(said[2]), int(words[1].replace(",", "")) if words else vocab)
                found += _sentence(file, number, line, own or shape)
    return found


# ---- tables


@dataclass(frozen=True)
class _Shape:
    layers: int
    hidden: int
    ffn: int
    vocab: int
    tied: bool | None

    def bounds(self) -> tuple[float, float]:
        """Parameters at least and at most, with the embedding as often as it is said to be there, or may be."""
        h = self.hidden
        attention = ((2 + 2 / _GROUPED) * h * h, 4 * h * h)
        mlp = (3 * h * self.ffn, 3 * h * self.ffn) if self.ffn else (8 * h * h, 8.7 * h * h)
        if self.ffn and self.ffn == 4 * h:
            mlp = (2 * h * self.ffn, 3 * h * self.ffn)
        least = 0 if self.tied is None else 1 if self.tied else 2
        return (self.layers * (attention[0] + mlp[0]) + least * self.vocab * h,
                self.layers * (attention[1] + mlp[1]) + (least or 2) * self.vocab * h)

    def usual(self) -> float:
        """With heads that share nothing, and four times the width where nobody says it."""
        each = 4 * self.hidden + (3 * self.ffn if self.ffn else 8 * self.hidden)
        return (self.layers * each + (2 if self.tied is False else 1) * self.vocab) * self.hidden


def _table(file: str, top: int, lines: tuple[str, ...]) -> list[Finding]:
    titles = _cells(lines[top - 1])
    at = {field: i for i, title in enumerate(titles) for field in [_field(title)] if field}
    if not {"layers", "hidden"} <= at.keys() or not {"size_label", "params"} & at.keys():
        return []
    kept, odd = 0, []
    for number, line in enumerate(lines[top : top + MOST_ROWS], top + 1):
        cells = _cells(line)
        if not line.lstrip().startswith("|") or len(cells) != len(titles):
            break
        shape = _shape(cells, at)
        for name in ("params", "size_label") if shape is not None else ():
            said = label_parameters(cells[at[name]]) if name in at and not is_mixture(cells[at[name]]) else None
            if said is None or shape is None or said[0] <= 0:
                continue
            wrong = _wrong(shape, *said, exact=name == "params")
            kept += not wrong
            odd += [(number, titles[at[name]], cells[at[name]], *wrong)] if wrong else []
            break
    return [Finding(file=file, line=number, code="label-vs-params", level="error", message=message, column=title, printed=cell,
                    proposed=_like(cell, meant)) for number, title, cell, message, meant in odd
            if kept > 1]  # fmt: skip


def _wrong(shape: _Shape, size: float, half: float, *, exact: bool) -> tuple[str, float] | tuple[()]:
    low, high = shape.bounds()
    open_ = half / size + (_COUNTED if exact else _ROUND)
    embedding = shape.vocab * shape.hidden
    if low * (1 - open_) <= size <= high * (1 + open_):
        return ()
    once = size - embedding
    if shape.tied and embedding > 0.05 * size and low * (1 - _COUNTED) <= once <= high * (1 + _COUNTED):
        return f"{size / 1e9:.3g}B parameters count the embedding twice, though it is tied: {once / 1e9:.3g}B without it", once
    if not exact and abs(math.log(size / (low if size < low else high))) < 0.2:
        return ()  # a name
    span = f"{low / 1e9:.3g}B" if high < 1.03 * low else f"{low / 1e9:.3g}B to {high / 1e9:.3g}B"
    return f"{size / 1e9:.3g}B parameters, but {shape.layers} layers of {shape.hidden} are {span}", shape.usual()


def _field(title: str) -> str:
    if _PARAMETERS.search(normal(title)):
        return "params"
    return "tied" if _TIED.search(normal(title)) else read_heading(title).field or {
        "dim": "hidden", "label": "size_label", "name": "size_label"}.get(normal(title), "")  # fmt: skip


def _shape(cells: list[str], at: dict[str, int]) -> _Shape | None:
    def whole(name: str) -> int:
        text = clean(cells[at[name]]).replace(",", "") if name in at else ""
        return int(text) if text.isdecimal() and len(text) < 9 else 0

    if not whole("layers") or not whole("hidden"):
        return None
    said = clean(cells[at["tied"]]).lower() if "tied" in at else ""
    tied = {"yes": True, "true": True, "no": False, "false": False}.get(said)
    return _Shape(whole("layers"), whole("hidden"), whole("ffn"), whole("vocab"), tied)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _like(cell: str, value: float) -> str:
    match = re.search(r"(\d+(?:\.(\d+))?) ?([KMBT])", cell, re.IGNORECASE)
    if match is None:
        return f"{value / 1e9:.3g}B"
    scale = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[match[3].upper()]
    return f"{cell[: match.start()]}{value / scale:.{len(match[2] or '')}f}{match[3]}{cell[match.end() :]}"


# ---- sentences: `46.7B total / 12.9B active`

_TOTAL = re.compile(r"\b(?:total|params?|parameters)\W{1,3}(\d+(?:\.\d+)?) ?B\b|"
                    r"\b(\d+(?:\.\d+)?) ?B (?:total|params?|parameters)", re.I)  # fmt: skip
_LAYERS = re.compile(r"\b(\d{1,3}) layers, (?:hidden )?(\d{3,5})\b")
_VOCAB = re.compile(r"\bvocab(?:ulary)?(?: size)?(?: of| is|:|=)? ?(\d{2,3}(?:,?\d{3})|\d{4,6})\b", re.I)
_ACTIVE = re.compile(r"(?:\b(\d+(?:\.\d+)?) ?B (?:active|activated)|\b(?:active|activated)\W{1,3}(\d+(?:\.\d+)?) ?B\b)", re.I)
_EXPERTS, _TOP = re.compile(r"\b(\d{1,4}) (?:routed )?experts\b", re.I), re.compile(r"\btop[- ]?(\d{1,2})\b", re.I)
_WIDTH = re.compile(r"\b(?:moe[ _-]?ffn|expert ffn|ffn|mlp|intermediate)\W{1,3}(\d{3,6})\b", re.I)


def _sentence(file: str, number: int, line: str, shape: tuple[int, int, int] | None) -> Iterator[Finding]:
    active = _ACTIVE.search(line)
    total = next((match for match in _TOTAL.finditer(line) if active and not _overlap(match, active)), None)
    if total is None or active is None:
        return
    said, passed = (float(next(filter(None, match.groups()))) for match in (total, active))

    def finding(match: re.Match[str], message: str, meant: float | None) -> Finding:
        value = next(filter(None, match.groups()))
        proposed = match[0].replace(value, f"{meant:.{len(value.partition('.')[2])}f}") if meant else None
        return Finding(file=file, line=number, code="label-vs-params", level="error", message=message, column=None,
                       printed=match[0], proposed=proposed)  # fmt: skip

    if passed >= said:
        value = next(filter(None, active.groups()))
        point = f"{value[:-1]}.{value[-1]}" if "." not in value and len(value) > 1 else ""
        message = f"{passed:g}B active of {said:g}B: a token passes through a part of the experts" + (
            f"; {point}B, where the point was lost" if point else "")  # fmt: skip
        shown = active[0].replace(value, point) if point else None
        yield Finding(file=file, line=number, code="label-vs-params", level="error", message=message, printed=active[0],
                      proposed=shown)  # fmt: skip
        return
    counted = _experts(line, shape)
    if counted is None:
        return
    for match, what, value, (low, high) in ((total, "in all", said, counted[0]), (active, "active", passed, counted[1])):
        if not low * 0.95 <= value <= high * 1.05:
            message = f"{value:g}B {what}, but the shape has {low:.3g}B" + (f" to {high:.3g}B" if high > 1.01 * low else "")
            yield finding(match, message, math.sqrt(low * high))


def _overlap(one: re.Match[str], other: re.Match[str]) -> bool:
    return one.start() < other.end() and other.start() < one.end()


def _experts(line: str, shape: tuple[int, int, int] | None) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Billions in all and of a token, at least and at most, where every layer has experts and the sentence says which."""
    experts, top, width = _EXPERTS.search(line), _TOP.search(line), _WIDTH.search(line)
    if experts is None or top is None or width is None or shape is None or re.search(r"shared|dense", line, re.I):
        return None
    layers, h, vocab = shape
    each, words = 3 * h * int(width[1]), vocab * h

    def span(many: int) -> tuple[float, float]:
        least = layers * (many * each + (2 + 2 / _GROUPED) * h * h) + words
        return least / 1e9, (layers * (many * each + 6 * h * h) + (2 * words or 0.4e9)) / 1e9

    return span(int(experts[1])), span(int(top[1]))
