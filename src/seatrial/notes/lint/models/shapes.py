"""Tables of shapes, a model in each row or in each column, and what sentences say of the same models.

    check(sheet)          findings on shapes that are not the size they are named after, and on what is said in two ways

    |            | tern-3b | tern-8b |
    | layers     | 28      | 64      |
    | hidden     | 3072    | 4096    |
    | parameters | 3.21B   | 8.03B   |

A table of models side by side is no table of runs, and nothing else asks whether its figures belong together.
"""
from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from seatrial.notes.labels import is_mixture, label_parameters
from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.models.known import shape_of
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claimed import bounds, far, slipped
from seatrial.notes.lint.text.prose import Prose, kept
from seatrial.notes.read.sentences import read_sentence
from seatrial.tables.headings import clean, normal, read_heading
from seatrial.tables.tongues import in_english

MOST_LINES, MOST_MODELS, MOST_SIDES = 4000, 12, 20
SIDES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
_NAMES = {"dim": "hidden", "emb dim": "hidden", "base emb dim": "hidden", "embedding dim": "hidden", "width": "hidden",
          "d": "hidden", "model dim": "hidden", "dimension": "hidden",
          "dimension h": "hidden", "layers l": "layers", "base num decoder layers": "layers", "decoder layers": "layers",
          "depth": "layers",
          "base num query heads": "heads", "query heads": "heads", "q heads": "heads", "base num kv heads": "kv_heads",
          "kv": "kv_heads", "mlp": "ffn", "mlp dim": "ffn", "base mlp dim": "ffn", "intermediate": "ffn"}  # fmt: skip
_OF_EXPERTS = re.compile(r"(?P<total>total(?: b)?)|(?P<active>activ\w*(?: param\w*)?(?: b)?)|(?P<experts>(?:routed )?experts)|"
                         r"(?P<top_k>top k|experts per token|active experts)")  # fmt: skip
_PAIR = re.compile(r"heads (?:per |and |q )?kv")
_SIZE = re.compile(r"(?<![\w.,])(\d+(?:[.,]\d+)?)[ -]?([bBmM])(?![\w])")
_OF_A_STAGE = re.compile(r"stage|\bPP\b|pipeline|Stufe|étage|etapa|段", re.IGNORECASE)
_EXPERTS = re.compile(r"expert|moe|top-?k?\d|shared|\d ?[x×] ?\d", re.IGNORECASE)
_WIDE = (32, 48, 64, 72, 80, 96, 100, 112, 120, 128, 160, 192, 256)
LARGEST = 300_000
"""Words that no vocabulary has."""
LESS, MORE, COUNTED = 0.78, 1.18, 0.07


@dataclass
class _Model:
    name: str
    size: tuple[float, float] | None = None
    params: tuple[float, float] | None = None
    sides: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """What it has, in which line, and under which heading."""
    counted: str = ""
    """The parameters as they are printed, and what their letter stands for."""
    unit: float = 1e9
    mixed: bool = False


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        if len(text.lines) <= MOST_LINES and text.has("layer", "dim", "hidden", "couche", "schicht", "strati", "层", "層"):
            models = in_tables(text)
            for each in models:
                found += _sized(file, each)
            told = {(finding.line, finding.column) for finding in found}
            found += [one for one in _twice(file, text.lines, models) if (one.line, one.column) not in told]
    return found


@kept
def in_tables(text: Prose) -> list[list[_Model]]:
    """The models of each table that describes some."""
    return [models for models in _tables(text.lines) if models]


def _tables(lines: tuple[str, ...]) -> Iterator[list[_Model]]:
    at = 0
    while at < len(lines):
        if lines[at][:1] != "|":
            at += 1
            continue
        end = at
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        if 3 <= end - at <= 30 and (_heads_layers(lines[at]) or _begins_layers(lines[at + 2 : min(end, at + MOST_SIDES)])):
            yield _models([(n + 1, _cells(lines[n])) for n in range(at, end) if n != at + 1])
        at = end


@functools.lru_cache(maxsize=1024)
def _heads_layers(line: str) -> bool:
    return "layers" in map(_side, _cells(line))


def _begins_layers(lines: tuple[str, ...]) -> bool:
    return any(_side(line.split("|", 2)[1].strip()) == "layers" for line in lines)


def _cells(line: str) -> list[str]:
    return [clean(cell) for cell in line.strip().strip("|").split("|")]


@functools.lru_cache(maxsize=4096)
def _side(title: str) -> str:
    if title[:1].isdigit() or len(title) > 60:
        return ""
    words = normal(in_english(title, surely=True))
    if re.search(r"\bparam", words):
        return "params" if not re.search(r"activ|train|without|non|embed|%", words) else "active" if "activ" in words else ""
    if _PAIR.search(words):
        return "heads/kv"
    if said := _OF_EXPERTS.fullmatch(words):
        return next(name for name, word in said.groupdict().items() if word)
    field_ = read_heading(title).field or _NAMES.get(words, "")
    return field_ if field_ in (*SIDES, "size_label") else _NAMES.get(words, "")


def _models(rows: list[tuple[int, list[str]]]) -> list[_Model]:
    across = [_side(title) for title in rows[0][1]]
    down = [_side(cells[0]) if cells else "" for _, cells in rows]
    if {"layers", "hidden"} <= set(across) and len(rows) - 1 <= 3 * MOST_MODELS:
        return [_model([(number, title, side, cell) for title, side, cell in zip(rows[0][1], across, cells)], cells[0])
                for number, cells in rows[1:] if len(cells) == len(across)]  # fmt: skip
    if {"layers", "hidden"} <= set(down) and 2 <= len(rows[0][1]) <= MOST_MODELS:
        return [_model([(number, cells[0], side, cells[place]) for (number, cells), side in zip(rows[1:], down[1:])
                        if place < len(cells)], rows[0][1][place]) for place in range(1, len(rows[0][1]))]  # fmt: skip
    return []


def _model(cells: list[tuple[int, str, str, str]], name: str) -> _Model:
    model = _Model(name)
    model.mixed = is_mixture(name) or bool(_EXPERTS.search(name))
    for number, title, side, cell in cells:
        model.mixed = model.mixed or bool(_EXPERTS.search(title) and cell.strip(" -–"))
        model.mixed = model.mixed or side == "ffn" and bool(_EXPERTS.search(cell))
        if side == "params":
            counted = _SIZE.search(cell) if "ctiv" not in cell else None
            model.params = label_parameters(counted[0]) if counted else None
            model.counted, model.unit = (counted[1], 1e6 if counted[2] in "mM" else 1e9) if counted else ("", 1e9)
        elif side == "heads/kv" and (pair := re.match(r"(\d{1,7}) ?/ ?(\d{1,7})(?!\d)", cell)):
            model.sides |= {"heads": (int(pair[1]), number, title), "kv_heads": (int(pair[2]), number, title)}
        elif side in SIDES and (whole := re.fullmatch(r"(\d{1,3}(?:,\d{3})+|\d{1,7})", cell)):
            model.sides[side] = int(whole[1].replace(",", "")), number, title
        elif side in ("experts", "top_k") and cell.isdecimal() and len(cell) < 8:
            model.sides[side] = int(cell), number, title
        elif side in ("total", "active") and (count := re.fullmatch(r"(\d{1,4}(?:\.\d{1,2})?) ?B?", cell)):
            model.sides[side] = round(1000 * float(count[1])), number, title
        elif side == "size_label":
            model.name = cell
    named = _SIZE.search(model.name)
    model.size = label_parameters(named[0].upper().replace(" ", "")) if named else None
    return model


def _sized(file: str, models: list[_Model]) -> Iterator[Finding]:
    dense = [model for model in models if not model.mixed and {"layers", "hidden"} <= model.sides.keys()
             and (model.size or model.params)]  # fmt: skip
    odd = [model for model in dense if not _fits(model, {})]
    # Where most do not fit it is the count that does not: a feed-forward that nobody describes.
    if not odd or len(odd) > max(1, len(dense) // 3) or len(dense) == 1 and "ffn" not in dense[0].sides:
        return
    for model in odd:
        low, high = _bounds(model, {})
        if model.counted and digits.slips(model.counted, (low / model.unit * (1 - COUNTED), high / model.unit * (1 + COUNTED))):
            continue  # the count is what was mistyped
        meant = [(name, other) for name in ("layers", "hidden", "ffn", "vocab", "kv_heads") if name in model.sides
                 for other in slipped(model.sides[name][0]) if _fits(model, {name: other}, tight=True)
                 and (name not in ("hidden", "ffn") or other % 64 == 0) and (name != "vocab" or other < LARGEST)]  # fmt: skip
        size = (model.params or model.size or (1.0, 0.0))[0]
        meant.sort(key=lambda one: far(size, *_bounds(model, {one[0]: one[1]})))
        names = {name for name, _ in meant}
        what = f'"{model.name}"' if model.size else ""
        what += f" of {model.params[0] / 1e9:.3g}B parameters" if model.params else ""
        options = "; " + " or ".join(f"{name} {other}" for name, other in meant) if meant else ""
        message = f"{what.strip()}, but its shape has {low / 1e9:.3g}B to {high / 1e9:.3g}B{options}"
        name, other = meant[0] if len(names) == 1 else (_suspect(model), None)
        value, number, title = model.sides[name]
        sure = other is not None or len({line for _, line, _ in model.sides.values()}) == 1
        yield Finding(file=file, line=number, code="label-vs-params", level="error" if sure else "warning", message=message,
                      column=title, printed=str(value), proposed=str(other) if other else None)  # fmt: skip


def _suspect(model: _Model) -> str:
    """The width where heads are as wide as in no model, else the layers."""
    heads, hidden = (model.sides[name][0] if name in model.sides else 0 for name in ("heads", "hidden"))
    return "hidden" if heads and (hidden % heads or hidden // heads not in _WIDE) else "layers"


def _bounds(model: _Model, other: dict[str, int]) -> tuple[float, float]:
    has = {name: value for name, (value, _, _) in model.sides.items()} | other
    low, high = bounds(has["layers"], has["hidden"], has)
    return low + 0.7 * has.get("vocab", 0) * has["hidden"], high


def _fits(model: _Model, other: dict[str, int], *, tight: bool = False) -> bool:
    if not other and shape_of(model.name) == tuple(model.sides[name][0] for name in ("layers", "hidden")):
        return True
    low, high = _bounds(model, other)
    less, more = (0.9, 1.08) if tight else (LESS, MORE)
    named = model.size is None or low * less - model.size[1] <= model.size[0] <= high * more + model.size[1]
    if model.params is None:
        return named
    count, half = model.params
    return named and low * (1 - COUNTED) - half <= count <= high * (1 + COUNTED) + half


def _twice(file: str, lines: tuple[str, ...], tables: list[list[_Model]]) -> Iterator[Finding]:
    """What a sentence says of a model that a table of shapes has otherwise."""
    known: dict[float, dict[str, tuple[int, int, str]]] = {}
    for models in tables:
        for model in models:
            if model.size is not None and not model.mixed:
                known.setdefault(model.size[0], {}).update(model.sides)
    sizes = Counter(model.size[0] for models in tables for model in models if model.size is not None)
    for number, line in enumerate(lines, 1) if known else ():
        if line.startswith("|") or len(line) > 1500 or _EXPERTS.search(line) or _OF_A_STAGE.search(line):
            continue
        labels = {label_parameters(match[0].upper().replace(" ", "")) for match in _SIZE.finditer(line)} - {None}
        size = next(iter(labels)) if len(labels) == 1 else None
        if size is None or sizes[size[0]] != 1 or size[0] not in known:
            continue
        said = read_sentence(line)
        for name in ("layers", "hidden", "ffn", "vocab"):
            value, there = said.get(name), known[size[0]].get(name)
            if isinstance(value, int) and there is not None and value != there[0] and value in slipped(there[0]):
                message = f"{name} {value}, but line {there[1]} has {there[0]} for the same model"
                yield Finding(file=file, line=number, code="label-vs-params", level="warning", message=message, column=name,
                              printed=str(value), proposed=str(there[0]))  # fmt: skip
