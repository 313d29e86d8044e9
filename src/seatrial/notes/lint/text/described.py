"""Sizes of models where nobody runs them: tables of labels, shapes and parameters, and sentences about either.

    check(sheet, problems)               findings; `problems` tell which tables are none of runs

A size is compared with the least and the most that its shape can have: heads in groups or not, a gated feed-forward or not. An
error needs two other rows of the table that fit, or a sentence that counts parameters beside a shape.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from seatrial.notes.either import either
from seatrial.notes.labels import is_mixture, label_parameters
from seatrial.notes.lint.digits import slip, slips
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.models.known import VERY_WIDE, is_published, named_in
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.prose import Prose, kept
from seatrial.notes.read.sentences import read_sentence
from seatrial.tables import Problem
from seatrial.tables.headings import clean, normal, read_heading
from seatrial.tables.tongues import in_english, lowered

_PARAMETERS = re.compile(r"\b(?:param(?:eter)?s?|n params|total size)\b")
_TIED = re.compile(r"\b(?:tied|tie)\b")
_ROUND = 0.06
"""How far a label may be from the size, beside its digits: people round generously."""
_COUNTED, _NEAR = 0.012, 0.008
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
        for number, line in enumerate(text.lines, 1) if text.has(*_PASSED) else ():
            if any(word in line for word in _PASSED) and len(line) <= 2000:
                line = _in_billions(line)
                block = [_in_billions(each) for each in _around(text.lines, number)]
                alone = len({layers for each in block if (layers := read_sentence(each).get("layers"))}) < 2
                around = " ".join(block) if alone else line  # else it describes several models
                said, listed = read_sentence(line), _LAYERS.search(line)
                if not said.get("layers"):
                    said, listed = read_sentence(around), _LAYERS.search(around)
                own = said.get("layers"), said.get("hidden") or listed and int(listed[1]), said.get("vocab", vocab)
                described = around if len({*_EXPERTS.findall(around)}) == 1 and not _EXPERTS.search(line) else line
                found += _sentence(file, number, line, described,
                                   own if own[0] and own[1] else shape)  # type: ignore[arg-type]
        several = text.has("moe", "expert", "mixtral", "专家", "エキスパート", "эксперт")
        if not several or not any(map(_SEVERAL.search, text.lines)):
            found += _counted(file, blocks(text))  # else which of the models a sentence speaks of is not to be told
    return found


# ---- tables


@dataclass(frozen=True)
class _Shape:
    layers: int
    hidden: int
    ffn: int
    vocab: int
    tied: bool | None
    shared: float | None = None
    """Which share of the heads has keys and values of its own, where it is said."""
    heads: int = 0
    """The width of all heads together, where it is said."""

    def bounds(self, gated: float = 8.7, wider: float = 1.0) -> tuple[float, float]:
        """Parameters at least and at most, with the embedding as often as it is said to be there, or may be."""
        h, w = self.hidden, self.heads or self.hidden
        shares = (2 + 2 / _GROUPED, 4.0) if self.shared is None else (2 + 2 * self.shared,) * 2
        attention = shares[0] * h * w, shares[1] * h * w * (1.0 if self.heads else wider)
        mlp = (3 * h * self.ffn, 3 * h * self.ffn) if self.ffn else (8 * h * h, gated * h * h)
        if self.ffn and self.ffn == 4 * h:
            mlp = (2 * h * self.ffn, 3 * h * self.ffn)
        least = 0 if self.tied is None else 1 if self.tied else 2
        return (self.layers * (attention[0] + mlp[0]) + least * self.vocab * h,
                self.layers * (attention[1] + mlp[1]) + (least or 2) * self.vocab * h)

    def ways(self, *, plain: bool = False) -> list[float]:
        """The counts that people give of it, with the embedding twice, once or not at all; `plain`: also without a gate."""
        attention = (2 + 2 * (1.0 if self.shared is None else self.shared)) * (self.heads or self.hidden)
        wide = [3 * self.ffn, 2 * self.ffn] if self.ffn else [8 * self.hidden]
        wide = wide if plain or self.ffn == 4 * self.hidden else wide[:1]
        often = (0, 1, 2) if self.tied is None else (0, 1) if self.tied else (0, 2)
        return [(self.layers * (attention + each) + many * self.vocab) * self.hidden for each in wide for many in often]

    @property
    def whole(self) -> bool:
        """Whether nothing of it is left to be guessed."""
        return bool(self.shared is not None and self.ffn and self.ffn != 4 * self.hidden and self.vocab and self.heads)

    def usual(self) -> float:
        """With heads that share nothing, and four times the width where nobody says it."""
        attention = (2 + 2 * (1.0 if self.shared is None else self.shared)) * (self.heads or self.hidden)
        each = attention + (3 * self.ffn if self.ffn else 8 * self.hidden)
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
    if low * (1 - open_) <= size <= high * (1 + open_) or is_published(shape.layers, shape.hidden, size):
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
    heads, kv = whole("heads"), whole("kv_heads")
    return _Shape(whole("layers"), whole("hidden"), whole("ffn"), whole("vocab"), tied, kv / heads if heads and kv else None)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _like(cell: str, value: float) -> str:
    match = re.search(r"(\d+(?:\.(\d+))?) ?([KMBT])", cell, re.IGNORECASE)
    if match is None:
        return f"{value / 1e9:.3g}B"
    scale = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[match[3].upper()]
    return f"{cell[: match.start()]}{value / scale:.{len(match[2] or '')}f}{match[3]}{cell[match.end() :]}"


# ---- sentences: `32 layers, hidden 4096, 6.74B parameters`

_OFF, _WIDEST, _WIDER = 0.08, 16.0, 1.6
"""From which difference on a sentence is wrong about its shape; the widest gated feed-forward, in squares of the width; by how
much all heads together are wider than the model where nobody says it."""
_SIZE = re.compile(r"(?<![\w.,/-])(\d{1,4}(?:[.,]\d{1,3})?) ?"
                   r"((?i:billions?|millions?|milliards?|milliarden|miliardi|Mrd\.?|Mio\.?|млрд\.?|млн\.?)|[BM])(?![\w/])"
                   r"(?! ?-?(?:tok|sample|word|step|batch|image|sequence|total|activ))")  # fmt: skip
_PARAMS = either(r"\bparam|параметр")
_TIES = either(r"\b(?:tied|ties|tie[ _]word)")
_UNTIED = either(r"\b(?:un|not )tied\b|\btied(?: [a-z]+)*\W{1,4}(?:no|false)\b")
_SEVERAL = either(r"\bMoE\b|\bexpert|\bmixtral|专家|エキスパート|эксперт")
_OF_A_PART = either(r"\blora\b|\badapter|\btrainable\b|\bdraft\b|\bencoder|\bvision\b")
_OF_ONE_HEAD = re.compile(r"\bheads? of (?:width |size |dim(?:ension)? )?(\d{2,3})\b|"
                          r"\bhead[ _-]?dim(?:ension)?\W{1,3}(\d{2,3})\b", re.IGNORECASE)  # fmt: skip
_GATED = either(r"llama|glu\b|mistral|qwen")


_TELLS = 60
"""Lines of the longest text that is no table of commas or a log."""


def _counted(file: str, every: list[tuple[int, list[str]]]) -> list[Finding]:
    """Parameters that a sentence, a list or a table of two columns gives beside a shape they cannot have."""
    found: list[Finding] = []
    for start, block in every:
        whole = "\n".join(block)
        if not _PARAMS.search(whole) and not _OF_A_PART.search(whole):
            found += _elsewhere(file, start, block, every)
        if not _SIZE.search(whole) or _OF_A_PART.search(whole):
            continue
        several = len({said["layers"] for line in block if (said := read_sentence(line)).get("layers")}) > 1
        for number, line in enumerate(block, start):
            parts = _parts(line)
            grouped = len(parts) > 1 and any("kv_heads" in read_sentence(part) for part in parts)
            for part in parts:
                own = _shape_of([part])
                shape = own or (None if several or not _PARAMS.search(part) else _shape_of(block))
                if grouped and shape is not None and "kv_heads" not in read_sentence(part):
                    shape = replace(shape, shared=1.0)  # of models side by side, those share keys that are said to
                if shape is not None:
                    places = [(number, part)] if own is not None else [*enumerate(block, start)]
                    found += _too_many(file, number, part, shape, whole, places)
    return found


def _elsewhere(file: str, start: int, block: list[str], every: list[tuple[int, list[str]]]) -> Iterator[Finding]:
    """Layers of a shape that leaves nothing to be guessed, where the one count of parameters in the text needs others."""
    text = " ".join(block)
    shape = _shape_of([text]) if "ffn" in read_sentence(text) else None
    if shape is None or not shape.whole or any(_CHANGED.search(line) for line in block):
        return
    texts = [" ".join(other) for _, other in every]
    if sum("layers" in read_sentence(text) for text in texts) != 1:
        return
    counts = {label_parameters(f"{match[1].replace(',', '.')}B") for text in texts for match in _SIZE.finditer(text)
              if _SCALES[match[2].lower().rstrip("s.")] == 1e9 and len(re.sub(r"\D", "", match[1])) >= 3
              and _PARAMS.search(text[max(0, match.start() - 24) : match.end() + 16])}  # fmt: skip
    size = counts.pop() if len(counts) == 1 else None
    if size is None or any(abs(size[0] - way) <= size[1] + _COUNTED * way for way in shape.ways(plain=True)):
        return
    alone, *ways = shape.ways()
    each = alone / shape.layers
    fitting = {layers for layers in range(2, 3 * shape.layers, 2) for way in ways
               if abs(way + (layers - shape.layers) * each - size[0]) <= size[1] + _COUNTED / 3 * size[0]}  # fmt: skip
    at = next((number for number, line in enumerate(block, start) if read_sentence(line).get("layers") == shape.layers), None)
    if len(fitting) == 1 and at is not None:
        right = fitting.pop()
        message = f"layers {shape.layers} -> {right}: by them it has the {size[0] / 1e9:.4g}B parameters that the text counts"
        yield Finding(file=file, line=at, code="label-vs-params", level="error", message=message, column="layers",
                      printed=str(shape.layers), proposed=str(right))  # fmt: skip


_CHANGED = re.compile(r"prun|distill|draft|first|last|stage|variant|teacher|student|grown|stack", re.IGNORECASE)


@kept
def blocks(text: Prose) -> list[tuple[int, list[str]]]:
    """Lines that belong together, in English and without their markup; rows of more than two cells are none."""
    return list(_blocks(text.lines))


def _blocks(lines: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    block: list[str] = []
    for number, line in enumerate((*lines, ""), 1):
        if not line and not block:
            continue
        bare = line.strip()
        cells = bare[:1] == "|"
        if not bare or cells and bare.strip("|").count("|") > 1 or len(line) > 2000 or line[0] == "#":
            if 0 < len(block) <= _TELLS:
                yield number - len(block), list(map(_plain, block))
            block = []
            if line.startswith("#") and len(line) <= 2000:
                yield number, [_plain(line)]
        else:
            block.append(" ".join(_cells(line)) if cells else line)


def _plain(line: str) -> str:
    if not _DIGIT.search(line):
        return line
    english = in_english(line := _MARKS.sub("", line) if "*" in line or "`" in line or "_" in line else line)
    return english if english is line else _SPACED.sub("", english)


_SPACED = re.compile(r"[ \u00a0\u202f](?<=\d.)(?=\d{3}(?!\d))")
"""Between thousands, as English does not write them."""


_DIGIT = re.compile(r"\d")
_MARKS = re.compile(r"(?<!\w)[*`_]{1,3}(?=\S)|(?<=\S)[*`]{1,3}")


def _parts(line: str) -> list[str]:
    """A line, or where it describes several models what stands in its brackets or between its semicolons."""
    if "layers" in read_sentence(line):
        return [line]
    inside = re.findall(r"\(([^()]*)\)", line) if "(" in line else []
    if not _PARAMS.search(line):
        shapes = [part for part in inside if "layers" in read_sentence(part)] if len(inside) > 1 else []
        return shapes if len(shapes) > 1 else [line]
    return [part for part in inside or re.split(r"[;.] ", line) if "layers" in read_sentence(part)] or [line]


def _shape_of(lines: list[str]) -> _Shape | None:
    said: dict[str, set[object]] = {}
    for line in lines:
        for name, value in read_sentence(line).items():
            if name in ("layers", "hidden", "ffn", "vocab", "heads", "kv_heads"):
                said.setdefault(name, set()).add(value)
    one = {name: int(next(iter(values))) for name, values in said.items() if len(values) == 1}  # type: ignore[call-overload]
    if "layers" not in one or "hidden" not in one:
        return None
    text = "\n".join(lines)
    tied = False if _UNTIED.search(text) else True if _TIES.search(text) else None
    heads, kv, each = one.get("heads"), one.get("kv_heads"), _OF_ONE_HEAD.search(text)
    width = heads * int(each[1] or each[2]) if heads and each else 128 * heads if heads else 0
    return _Shape(one["layers"], one["hidden"], one.get("ffn", 0), one.get("vocab", 0), tied,
                  kv / heads if heads and kv and kv <= heads else None,
                  width if each or width == one["hidden"] else 0)  # fmt: skip


def _too_many(
    file: str, number: int, line: str, shape: _Shape, around: str, places: list[tuple[int, str]]
) -> Iterator[Finding]:
    """`places`: the lines that describe the shape."""
    low, high = shape.bounds(_WIDEST if _GATED.search(around) else 8.7, _WIDER)
    high += 0 if shape.vocab else 2 * _LARGEST * shape.hidden
    if not shape.ffn and (shape.layers, shape.hidden) in VERY_WIDE:
        high += 16 * shape.layers * shape.hidden**2
    sizes = list(_SIZE.finditer(line))
    for match in sizes:
        digits = match[1].replace(",", ".")
        decimals, scale = len(digits.partition(".")[2]), _SCALES[match[2].lower().rstrip("s.")]
        value, half = float(digits) * scale, 0.5 * 10.0**-decimals * scale
        said = _PARAMS.search(line[max(0, match.start() - 24) : match.end() + 16])
        fine = len(digits.replace(".", "")) >= 3 and len(sizes) < 3
        off = _COUNTED if shape.whole and said else _OFF
        if not value or _IN_BRACKETS.match(line) and match.start() < line.index(")"):
            continue  # of the shape of the line before
        if not said and not fine or low * (1 - off) - half <= value <= high * (1 + off) + half:
            continue
        if any(abs(value - way) <= half + _COUNTED * way for way in shape.ways(plain=True)):
            continue
        if is_published(shape.layers, shape.hidden, value, half, (*named_in(around),)):
            continue
        meant, why = _meant(digits, low / scale, high / scale, [way / scale for way in shape.ways()])
        if not said and not (why and "." in digits):
            continue  # the name of what it was made from
        if not why and (side := _side(shape, value, half, places)) is not None:
            at, name, printed, right, how = side
            message = f"{name} {printed} -> {right} ({how}): with it {shape.layers} layers have the {match[0]} parameters"
            yield Finding(file=file, line=at, code="label-vs-params", level="error", message=message, column=name,
                          printed=printed, proposed=right)  # fmt: skip
            continue
        narrow = shape.bounds()
        if not meant and shape.vocab and narrow[1] < 1.03 * narrow[0]:
            meant = f"{shape.usual() / scale:.{decimals}f}"
        proposed = match[0].replace(match[1], meant.replace(".", ",") if "," in match[1] else meant) if meant else None
        span = f"{low / 1e9:.3g}B" if high < 1.03 * low else f"{low / 1e9:.3g}B to {high / 1e9:.3g}B"
        message = f"{match[0]} parameters, but {shape.layers} layers of {shape.hidden} are {span}{why}"
        yield Finding(file=file, line=number, code="label-vs-params", level="error", message=message, printed=match[0],
                      proposed=proposed)  # fmt: skip


_IN_BRACKETS = re.compile(r"[^()]*\)")
"""The end of brackets that begin in the line before."""


def _side(shape: _Shape, value: float, half: float, places: list[tuple[int, str]]) -> tuple[int, str, str, str, str] | None:
    """The one side of a shape that a slip of the hand keeps from giving the parameters: its line, name, what is printed, what
    is meant and which slip."""
    found = {}
    for name in ("layers", "hidden", "ffn"):
        was = getattr(shape, name)
        for one in slips(str(was), (1, 1e7)) if was else ():
            typed = one.how in ("two digits exchanged", "a digit too many", "the point moved") and one.value == int(one.value)
            if typed and (name == "layers" or one.value % _MULTIPLE == 0):
                low, high = replace(shape, **{name: int(one.value)}).bounds()  # type: ignore[arg-type]
                if low * (1 - _COUNTED) - half <= value <= high * (1 + _COUNTED) + half:
                    found[name, int(one.value)] = one.how
    if len(found) != 1:
        return None
    ((name, right), how), was = next(iter(found.items())), ""
    for at, text in places:
        if read_sentence(text).get(name) == getattr(shape, name):
            was = next((form for form in (f"{getattr(shape, name):,}", str(getattr(shape, name))) if form in text), "")
            if was:
                return at, name, was, f"{right:,}" if "," in was else str(right), how
    return None


_MULTIPLE = 64
"""Of which widths are."""


def _meant(digits: str, low: float, high: float, ways: list[float]) -> tuple[str, str]:
    """The size that a slip of the hand made what is printed, and which: a point that moved explains more than any one digit."""
    ends = low * (1 - _COUNTED), high * (1 + _COUNTED)
    whole, _, part = digits.partition(".")
    for places in (-1, 1, -2, 2, -3, 3):
        if ends[0] <= float(digits) * 10.0**places <= ends[1]:
            at = len(whole) + places
            text = (whole + part).ljust(at, "0") if at > 0 else "0" * (1 - at) + whole + part
            at = max(at, 1)
            return f"{text[:at]}.{text[at:]}".rstrip("."), " (the point moved)"
    exchanged = [one for one in slips(digits, ends) if one.how == "two digits exchanged"]
    typed = exchanged[0] if exchanged and high < _TELLING * low else None
    if typed is None:
        near = [(one.how != "two digits exchanged", abs(one.value / way - 1), one) for way in ways
                if (one := slip(digits, (way * (1 - _NEAR), way * (1 + _NEAR)))) is not None and one.how in _BY_HAND]
        typed = min(near, key=lambda one: one[:2])[2] if near else exchanged[0] if exchanged else None
    return (typed.text, f" ({typed.how})") if typed is not None else ("", "")


_TELLING = 1.25
"""How far apart the least and the most may be to tell a size by its digits."""
_BY_HAND = ("two digits exchanged", "one digit changed")
_SCALES = {"b": 1e9, "m": 1e6, "billion": 1e9, "million": 1e6, "milliard": 1e9, "mrd": 1e9, "mio": 1e6, "miliardi": 1e9,
           "milliarden": 1e9, "млрд": 1e9, "млн": 1e6}
_LARGEST = 262_144
"""Words of the largest vocabulary that is usual."""

# ---- sentences: `46.7B total / 12.9B active`

_TOTAL = re.compile(r"\b(?:total|params?|parameters)\W{1,3}(\d+(?:[.,]\d+)?) ?B\b|"
                    r"(?<![\w.,])(\d+(?:[.,]\d+)?) ?B (?:in )?(?:total|all|params?|parameters)\b", re.I)  # fmt: skip
_LAYERS = re.compile(r"\b\d{1,3} layers, (?:hidden )?(\d{3,5})\b")
_ACTIVE = re.compile(r"(?:(?<![\w.,])(\d+(?:[.,]\d+)?) ?B (?:active|activated)|"
                     r"\b(?:active|activated)\W{1,3}(\d+(?:[.,]\d+)?) ?B\b)", re.I)  # fmt: skip
_EXPERTS, _TOP = re.compile(r"\b(\d{1,4}) (?:routed )?experts\b", re.I), re.compile(r"\btop[- ]?(\d{1,2})\b", re.I)
_OF_A_TOKEN = re.compile(r"\b(\d{1,2}) (?:of them |experts )?(?:are )?(?:active|activated|chosen|routed)? ?"
                         r"(?:per|for each|a|for every) token\b|"
                         r"\bof which (\d{1,2}) are (?:active|activated|chosen|used|routed)\b", re.I)  # fmt: skip
_SHARED = re.compile(r"\b(\d) (?:is )?shared\b|\bshared experts?:? (\d)\b", re.I)
_COUNTS = {"one": "1", "two": "2", "three": "3", "four": "4", "six": "6", "eight": "8"}
_COUNTED_OUT = re.compile(rf"\b({'|'.join(_COUNTS)})\b(?= (?:are|is|of them|experts|shared|routed|active|per)\b)", re.I)
_WIDTH = re.compile(r"\b(?:moe[ _-]?ffn|d[_ -]?ff|ffn|mlp|intermediate|inner)(?: (?:size|dim|width|hidden))?\W{1,3}(\d{3,6})\b|"
                    r"\bexperts (?:x|×|of|of width|with) (\d{3,6})\b", re.I)  # fmt: skip


_PASSED = ("active", "activated", "Active", "актив", "aktiv", "actif", "activo", "attiv", "ativo")
_SAID = {re.compile(pattern, re.IGNORECASE): word for pattern, word in {
    r"(?:активн\w+|aktiven?|actifs|activos|attivi|ativos)\b": "active",
    r"(?:эксперт\w*|experten|expertos|esperti)\b": "experts",
    r"параметр\w*|\bparametern?\b": "parameters", r"\bвсего\b": "total"}.items()}  # fmt: skip
_BILLIONS = re.compile(r"(?<!\d)(\d{1,6}(?:[.,]\d{1,6})?) ?(?:billions?|milliards?|milliarden|miliardi|Mrd\.?|млрд\.?)"
                       r"(?: of| de| di)?(?!\w)", re.IGNORECASE)  # fmt: skip


def _in_billions(line: str) -> str:
    """With `46,7 млрд` as 46.7B, and the few words that such a sentence needs."""
    line = _BILLIONS.sub(lambda match: f"{match[1].replace(',', '.')}B", in_english(line))
    line = _COUNTED_OUT.sub(lambda match: _COUNTS[lowered(match[1])], line)
    for pattern, word in _SAID.items() if not line.isascii() or "B" in line else ():
        line = pattern.sub(word, line)
    return line


def _around(lines: tuple[str, ...], number: int) -> list[str]:
    """The paragraph or list that a line is part of."""
    top = end = number - 1
    while top > 0 and number - top < 12 and lines[top - 1].strip() and not lines[top - 1].lstrip().startswith(("|", "#")):
        top -= 1
    while end + 1 < len(lines) and end - number < 12 and lines[end + 1].strip() and not lines[end + 1].lstrip().startswith("|"):
        end += 1
    return list(lines[top : end + 1])


def _sentence(file: str, number: int, line: str, around: str, shape: tuple[int, int, int] | None) -> Iterator[Finding]:
    active = _ACTIVE.search(line)
    total = next((match for match in _TOTAL.finditer(line) if active and not _overlap(match, active)), None)
    if total is None or active is None:
        return
    said, passed = (float(next(filter(None, match.groups())).replace(",", ".")) for match in (total, active))

    def finding(match: re.Match[str], message: str, meant: float | None, typed: str = "") -> Finding:
        value = next(filter(None, match.groups()))
        places = len(value.partition(".")[2])
        proposed = f"{typed or format(meant, f'.{places}f')}B" if meant else None
        return Finding(file=file, line=number, code="label-vs-params", level="error", message=message, column=None,
                       printed=f"{value}B", proposed=proposed)  # fmt: skip

    if passed >= said:
        value = next(filter(None, active.groups()))
        point = f"{value[:-1]}.{value[-1]}" if value.isdigit() and len(value) > 1 else ""
        message = f"{passed:g}B active of {said:g}B: a token passes through a part of the experts" + (
            f"; {point}B, where the point was lost" if point else "")  # fmt: skip
        shown = active[0].replace(value, point) if point else None
        yield Finding(file=file, line=number, code="label-vs-params", level="error", message=message, printed=active[0],
                      proposed=shown)  # fmt: skip
        return
    counted = _experts(around, shape)
    if counted is None:
        return
    for match, what, value, (low, high) in ((total, "in all", said, counted[0]), (active, "active", passed, counted[1])):
        if not low * 0.95 <= value <= high * 1.05:
            message = f"{value:g}B {what}, but the shape has {low:.3g}B" + (f" to {high:.3g}B" if high > 1.01 * low else "")
            text, ends = next(filter(None, match.groups())), (0.99 * low, 1.01 * high)
            moved = [one for one in slips(text, ends) if one.how == "the point moved"]
            typed = moved[0] if moved else slip(text, ends)
            yield finding(match, message, math.sqrt(low * high) if typed is None else typed.value, typed.text if typed else "")


def _overlap(one: re.Match[str], other: re.Match[str]) -> bool:
    return one.start() < other.end() and other.start() < one.end()


def _experts(line: str, shape: tuple[int, int, int] | None) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Billions in all and of a token, at least and at most, where every layer has experts and the sentence says which."""
    experts, top, width = _EXPERTS.search(line), _TOP.search(line) or _OF_A_TOKEN.search(line), _WIDTH.search(line)
    common = _SHARED.search(line)
    unsaid = re.search(r"dense", line, re.I) or re.search(r"shared", line, re.I) and common is None
    if experts is None or top is None or width is None or shape is None or unsaid:
        return None
    layers, h, vocab = shape
    shared = int(next(filter(None, common.groups()))) if common else 0
    each, words = 3 * h * int(width[1] or width[2]), vocab * h

    def span(many: int) -> tuple[float, float]:
        least = layers * (many * each + (2 + 2 / _GROUPED) * h * h) + words
        return least / 1e9, (layers * (many * each + 6 * h * h) + (2 * words or 0.4e9)) / 1e9

    return span(shared + int(experts[1])), span(shared + int(next(filter(None, top.groups()))))
