"""What a note says of its models: sides and parameters, in sentences, lists and tables, each with its line.

    in_text("a.md", lines)            portraits of a text, those of one sentence or list together
    in_rows("a.md", rows)             portraits of a table: a model in each row, or in each column

    Forma: 32 capas, dimensión 4096, FFN 14336, vocabulario 128256, es decir 8,03 mil millones de
    parámetros.
    | model | layers | hidden | parameters (B) |
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from seatrial.notes.either import either
from seatrial.notes.labels import is_mixture, label_parameters
from seatrial.notes.lint import digits
from seatrial.notes.lint.models.known import named_in
from seatrial.notes.lint.models.shapes import _side
from seatrial.notes.read.sentences import read_sentence
from seatrial.record import Record
from seatrial.tables.headings import clean
from seatrial.tables.tongues import in_english

SIDES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
LONGEST, MOST_MODELS, MOST_LINES = 3000, 16, 60


@dataclass(frozen=True)
class Said:
    value: int
    file: str
    line: int
    printed: str
    column: str


@dataclass(frozen=True)
class Count:
    """Parameters, and half a step of their last digit."""

    value: float
    half: float
    file: str
    line: int
    printed: str
    scale: float
    column: str | None

    @property
    def fine(self) -> bool:
        return self.half <= 0.006 * self.value


@dataclass
class Portrait:
    file: str
    name: str
    sides: dict[str, Said] = field(default_factory=dict)
    count: Count | None = None
    label: tuple[float, float] | None = None
    """Parameters by its name."""
    tied: bool | None = None
    gated: bool | None = None
    each: int = 0
    """Width of a head, where it is said."""
    mixed: bool = False
    models: frozenset[str] = frozenset()
    """The published ones that it names."""
    stands_alone: bool = True
    """Whether it is described where no run is."""
    in_text: bool = False
    mentioned: frozenset[int] = frozenset()
    """Numbers of sentences that name it."""

    @property
    def has(self) -> dict[str, int]:
        return {name: said.value for name, said in self.sides.items()}


# ---- words

_NUMBER = r"\d{1,3}(?:[.,]\d{3}){2,3}|\d{1,4}(?:[.,]\d{1,3})?"
_SCALES: tuple[tuple[str, float], ...] = (
    (r"mil (?:millones|milh[õo]es)|billions?|milliard\w*|miliard\w*|miljard\w*|milyar|bilh\w+|bn|Mrd\.?|Mds?|mld\.?|mlrd\.?|"
     r"млрд\.?|миллиард\w*|[·x×*] ?10(?:⁹|\^9)|e\+?0?9|B|G", 1e9),
    (r"millions?|millones|milh\w+|Millionen|milion\w*|Mio\.?|mln\.?|млн\.?|[·x×*] ?10(?:⁶|\^6)|e\+?0?6|M", 1e6),
    (r"亿|億|억|[·x×*] ?10(?:⁸|\^8)|e\+?0?8", 1e8), (r"[·x×*] ?10(?:¹⁰|\^10)|e\+?10", 1e10),
    (r"[·x×*] ?10(?:¹¹|\^11)|e\+?11", 1e11))  # fmt: skip
_UNIT = "|".join(f"(?P<u{at}>{words})" for at, (words, _) in enumerate(_SCALES))
_SIZE = re.compile(rf"(?<![\w.,/×·^-])(?P<figure>{_NUMBER}) ?(?:{_UNIT})(?![A-Za-zа-я0-9⁰-⁹/])"
                   r"(?!\.? ?-?(?:of |de |di |d'|von )?(?:[Tt]ok|[Jj]et|ток|слов|samples?|word|step|batch|image|"
                   r"トークン|토큰|词|FLOP))")  # fmt: skip
PARAMS = either(r"param|параметр|パラメ|参数|參數|파라미터|매개변수|paramètre|paràmetre|\bN(?:_\w+)? ?[=≈]")
_PASSED = (r"\b(?:active\b|activated\b|actif|activ[oa]s?\b|attiv[ei]\b|ativ[oa]s?\b|aktive?n?\b)|актив(?:н|ир)|"
           r"激活(?!重|值|检)|アクティブ|활성(?!화)")
"""Of the parameters that a token passes."""
_ACTIVE = either(rf"{_PASSED}|trainable|LoRA|adapter|embedding only|non-embed|"
                 r"without (?:the )?embed|per (?:GPU|rank|stage)|je GPU")  # fmt: skip
_IN_TITLE = re.compile(rf"[(\[,] ?(?:{_UNIT})(?:[)\]]|$)")
_TIED = either(r"\b(?:tied|ties|tie[ _]word|weight[ -]tying|geteilte Embedding)")
_UNTIED = either(r"\b(?:un|not )tied\b|\bseparate\b|séparés|separados|tied(?: [a-z]+)*\W{1,4}(?:no|false)\b")
_GATED = either(r"\w*glu\b|llama|mistral|qwen|\byi\b")
_PLAIN = either(r"\bgelu\b|\bGPT|\brelu\b|no gate|megatron-?lm paper")
_EXPERTS = either(r"expert|эксперт|专家|エキスパート|전문가|moe\b|\bmixt|top-?k?\d|\d ?[x×] ?\d+(?:\.\d)?B")
_NO_MODEL = either(_PASSED + r"|\b(?:draft\b|encoder|vision\b|teacher|prun|distill|(?:first|last)\b.{0,12}layer|"
                   r"stages?\b|frozen\b|LoRA\b)|per stage|proxy|truncated|cut down|shrunk|upcycl|stack")
_OF_ONE_HEAD = re.compile(r"\bheads? (?:of (?:width |size |dim(?:ension)? )?|size |width )(\d{2,3})\b|"
                          r"\bhead[ _-]?dim(?:ension)?\W{1,3}(\d{2,3})\b", re.IGNORECASE)  # fmt: skip
_SIDE_BY_SIDE = re.compile(r"(?<![\w.,])(\d{1,3})(?: ?layers?| ?L\b)?(?: ?[x×] ?|,? (?:of |at )?(?:size |dimension |"
                           r"width )?)(\d{3,5})(?![\d.,]\d|\w| ?[x×*]| ?(?:tok|seq|sampl|step|GPU|cards|nodes))",
                           re.IGNORECASE)  # fmt: skip
_WIDTH = re.compile(r"\b(?:dimension|dim|width|size|breadth)[ =:]+(?:of )?(\d{3,5})\b", re.IGNORECASE)
_LAYERS = re.compile(r"\b\d{1,3}[- ]?layers?\b|\blayers?(?: ?[=:]| of)? ?\d{1,3}\b|\bL ?= ?\d{1,3}\b|"
                     r"(?<![\w.,x×])\d{1,3} ?[x×] ?\d{4,5}(?!\w|[.,]\d| ?[x×]| ?(?:tok|seq|sampl))", re.IGNORECASE)  # fmt: skip
_LABEL = re.compile(r"(?<![\d.,/×x=])(?<!= )(\d{1,4}(?:[.,]\d{1,2})?)[ -]?([bBM])(?![\w/·*⋅])"
                    r"(?! ?[·*×x⋅]| ?(?:of )?[Tt]ok| s\b| ?(?:seq|param))")  # fmt: skip
_GROUPED = re.compile(r"[ \u00a0\u202f](?<=\d.)(?=\d{3}(?!\d))")
_DIGIT, _NO_DIGIT, _WORD = re.compile(r"\d"), re.compile(r"\D"), re.compile(r"\w")
_NUMBERS = re.compile(r"(?<![\d.,])\d{1,3}(?:[ ,.\u00a0\u202f']\d{3})+(?!\d)|(?<![\d.,])\d{1,7}(?!\d)")


def counts_in(text: str) -> Iterator[tuple[re.Match[str], float, float]]:
    """Numbers of millions and more in a text in any of its tongues: where, the value, and the scale."""
    for match in _SIZE.finditer(text):
        scale = next(its for at, (_, its) in enumerate(_SCALES) if match[f"u{at}"])
        value = number(match["figure"])
        if value:
            yield match, value * scale, scale


_LIST = re.compile(rf"(?<![\w.,])((?:\d{{1,4}}[.,]\d{{1,3}}(?:, | and | et | und | y | e | и | en | i |、|，| ))+)"
                   rf"(?=\d{{1,4}}[.,]\d{{1,3}} ?(?:{_UNIT}))")  # fmt: skip


def listed(file: str, line: int, text: str) -> Iterator[Count]:
    """The parameters that a line gives, of several models too: `1,14, 3,72 et 11,91 milliards de paramètres`."""
    for match, value, scale in counts_in(text) if PARAMS.search(text) else ():
        if not _ACTIVE.search(text[max(0, match.start() - 16) : match.end() + 18]):
            yield Count(value, half_of(match["figure"], scale), file, line, match[0], scale, None)
            before = next((each for each in _LIST.finditer(text) if each.end() == match.start()), None)
            for figure in re.findall(r"\d{1,4}[.,]\d{1,3}", before[1]) if before else ():
                yield Count(number(figure) * scale, half_of(figure, scale), file, line, figure, scale, None)


def mentioned(one: Portrait, lines: Sequence[str]) -> frozenset[int]:
    """Whole numbers of other sentences that name a model by its size."""
    if one.label is None:
        return frozenset()
    own = {said.line for said in one.sides.values()}
    return frozenset(int(found) for at, line in enumerate(lines, 1) if at not in own and len(line) < LONGEST and line[:1] != "|"
                     and any(_label_of(match) == one.label for match in _LABEL.finditer(line))
                     for found in re.findall(r"(?<![\d.,])\d{1,5}(?![\d.,]\d|\d)", line))  # fmt: skip


def _label_of(match: re.Match[str]) -> tuple[float, float] | None:
    return label_parameters(f"{match[1].replace(',', '.')}{match[2].upper()}")


def number(figure: str) -> float:
    """12,84 and 12.84 as they are meant; 8,030 as thousands only where there are more of them."""
    if re.fullmatch(r"\d{1,3}(?:[.,]\d{3}){2,3}", figure):
        return float(re.sub(r"\D", "", figure))
    return float(figure.replace(",", "."))


def half_of(figure: str, scale: float) -> float:
    return 0.5 * 10.0 ** -len(figure.replace(",", ".").partition(".")[2]) * scale


# ---- text


def in_text(file: str, lines: Sequence[str]) -> Iterator[list[Portrait]]:
    title = ""
    for block in _blocks(lines):
        text = " ".join([line for _, line in block])
        if len(text) > LONGEST:
            continue
        if block[0][1][:1] == "#":
            title = block[0][1]
        english = _english(text) if _DIGIT.search(text) else ""
        if english and _LAYERS.search(english):
            found = [one for one in _of_block(file, block, english) if {"layers", "hidden"} <= one.sides.keys()]
            if len(found) == 1 and found[0].label is None and title:
                found[0].label = _label_in(title)
            if found:
                yield found


def _blocks(lines: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """Lines that belong together with their numbers; rows of more than two cells are none."""
    block: list[tuple[int, str]] = []
    for at, line in enumerate((*lines, ""), 1):
        if not line and not block:
            continue
        bare = line.strip()
        cells = bare[:1] == "|"
        if not bare or cells and bare.strip("|").count("|") > 1 or len(line) > 2000 or bare[:1] == "#" and bare[1:2] in "# ":
            if 0 < len(block) <= MOST_LINES:
                yield block
            block = []
            if bare[:1] == "#" and len(line) <= 2000:
                yield [(at, bare)]
        elif not cells or bare[1:2] != "-" and _WORD.search(bare):
            block.append((at, _MARKS.sub("", " ".join(cell.strip() for cell in bare.strip("|").split("|")) if cells else bare)))


_MARKS = re.compile(r"(?<!\w)[*`_]{1,3}(?=\S)|(?<=\S)[*`]{1,3}")


def _english(text: str) -> str:
    return _GROUPED.sub("", in_english(text)) if _DIGIT.search(text) else text


def _of_block(file: str, block: list[tuple[int, str]], english: str) -> Iterator[Portrait]:
    """The models of a paragraph or list: all of it where it describes one, else the part of each."""
    places = _LAYERS.findall(english)
    depths = {read_sentence(line).get("layers") for _, line in block if len(places) > 1} - {None}
    if len(places) < 2 or len(depths) == 1 and len({*re.findall(r"\d+", " ".join(places))}) < 3:
        yield _of_part(file, block, " ".join(line for _, line in block), english)
        return
    alone = [line for _, line in block if len(_LAYERS.findall(_english(line))) == 1]
    if len(depths) > 1 and len(alone) == len(places) and (2 * len(alone) > len(block) or all(map(_ITEM.match, alone))) \
            and not any(map(_GOES_ON.match, alone[1:])):
        for at, line in block:  # one to a line
            if _LAYERS.search(_english(line)):
                yield _of_part(file, [(at, line)], line, _english(line))
        return
    whole = " ".join(line for _, line in block)
    for part in _parts(whole):
        yield _of_part(file, block, part, _english(part))


_ITEM = re.compile(r"\s*(?:[-*+•]|\d+[.)])\s|\s*[\w.-]{1,24}\s*[:=(]")
_GOES_ON = re.compile(r"[a-zа-яà-ÿ(,;]")
"""How a line begins that an item of a list begins, and one that ends a sentence of the line above."""


def _parts(text: str) -> Iterator[str]:
    """The parts of a text of which each describes a model: up to the last sign that ends one before the next begins."""
    marks = [match.span() for match in re.finditer(_IN_ANY, text)]
    if not 1 < len(marks) <= MOST_MODELS:
        return
    ends = [0]
    for (_, left), (right, _) in pairwise(marks):
        between = text[left:right]
        cut = max((between.rfind(sign) + len(sign) for sign in _ENDS if sign in between), default=0)
        ends.append(left + (cut or max(map(between.rfind, _PARTS)) + 1))
    for start, end in zip(ends, [*ends[1:], len(text)]):
        yield text[start:end]


_ENDS, _PARTS = (";", ")", "；", "）", ". ", "。"), (",", "，", " and ", " y ", " et ", " und ")
_IN_ANY = (r"(?i)\b\d{1,3}[- ]?(?:layers?|couches|capas|schichten|strati|camadas|lagen|warstw\w*|слоев|слоёв|слоя)\b|"
           r"\d{1,3} ?(?:层|層|층)|\bL ?= ?\d{1,3}\b|(?<![\w.,x×])\d{1,3} ?[x×] ?\d{4,5}(?!\w|[.,]\d| ?[x×])")


def _of_part(file: str, block: list[tuple[int, str]], raw: str, english: str) -> Portrait:
    values: dict[str, object] = {}
    for _, line in block if raw == " ".join(line for _, line in block) else ():
        for name, value in read_sentence(line).items():
            if values.setdefault(name, value) != value:
                values[name] = None  # said in two ways
    said = {**read_sentence(english), **values}
    pair = next((match for match in _SIDE_BY_SIDE.finditer(english) if int(match[2]) % 32 == 0), None)
    if pair is not None and "hidden" not in said and said.get("layers", int(pair[1])) == int(pair[1]):
        said = {"layers": int(pair[1]), "hidden": int(pair[2])} | said
    if "hidden" not in said and len(wide := {int(one) for one in _WIDTH.findall(english)}) == 1:
        said["hidden"] = wide.pop()
    one = Portrait(file, "", in_text=True)
    numbers = [(at, line, match[0], _NO_DIGIT.sub("", match[0])) for at, line in block for match in _NUMBERS.finditer(line)]
    for name in SIDES:
        value = said.get(name)
        if isinstance(value, int) and value is not True and (place := _place(numbers, value, name)) is not None:
            one.sides[name] = Said(value, file, *place, name)
    width = _OF_ONE_HEAD.search(english)
    one.each = int(next(filter(None, width.groups()))) if width else 0
    one.tied = False if _UNTIED.search(english) else True if _TIED.search(english) else None
    one.gated = True if _GATED.search(english) else False if _PLAIN.search(english) else None
    one.models = named_in(raw)
    one.mixed = _EXPERTS.search(raw) is not None or is_mixture(raw) or _NO_MODEL.search(raw) is not None
    one.count = _count(file, block, raw)
    label = {match.groups(): match for match in _LABEL.finditer(raw)
             if one.count is None or abs(number(match[1]) * one.count.scale / one.count.value - 1) > 1e-9}  # fmt: skip
    if len(label) == 1 and (match := next(iter(label.values()))):
        one.name, one.label = match[0], _label_of(match)
    return one


def _place(numbers: list[tuple[int, str, str, str]], value: int, name: str) -> tuple[int, str] | None:
    """Where a number stands, in the line that says what it is if one does, and how it is written."""
    bare = str(value)
    found = [(at, shown, read_sentence(line).get(name) == value) for at, line, shown, figures in numbers if figures == bare]
    return max(found, key=lambda one: one[2])[:2] if found else None


def _count(file: str, block: list[tuple[int, str]], raw: str) -> Count | None:
    """The one number of parameters of a part."""
    found: dict[tuple[bool, float], tuple[re.Match[str], float, float]] = {}
    for match, value, scale in counts_in(raw):
        before, after = raw[max(0, match.start() - 30) : match.start()], raw[match.end() : match.end() + 24]
        fine = len(re.sub(r"\D", "", match["figure"])) > 2 and not match["figure"].isdigit()
        near = PARAMS.search(before) or PARAMS.search(after)
        if (near or fine) and not _ACTIVE.search(before[-16:]) and not _ACTIVE.search(after[:18]):
            found.setdefault((near is not None, value), (match, value, scale))
    surely = [one for (near, _), one in found.items() if near]
    if len(surely or found) != 1:
        return None
    match, value, scale = surely[0] if surely else next(iter(found.values()))
    line = next((at for at, text in block if match[0] in text or match["figure"] in text), block[0][0])
    return Count(value, half_of(match["figure"], scale), file, line, match[0], scale, None)


def _label_in(title: str) -> tuple[float, float] | None:
    labels = {_label_of(match) for match in _LABEL.finditer(title)} - {None}
    return labels.pop() if len(labels) == 1 and not is_mixture(title) else None


# ---- tables


def in_rows(file: str, rows: Sequence[Record]) -> list[Portrait]:
    """A model in each row; or in each column, where the first has the names of the sides."""
    if not 1 <= len(rows) <= 3 * MOST_MODELS:
        return []
    titles = list(rows[0].printed)
    across = [_side(title) for title in titles]
    if "layers" in across or any("layers" in _of_title(title) for title in titles):
        return [_of_cells(file, [(row.source_line or 0, *pair) for pair in row.printed.items()], row) for row in rows]
    down = [_side(clean(next(iter(row.printed.values()), ""))) for row in rows]
    if "layers" not in down and not any("layers" in _of_title(next(iter(row.printed.values()), "")) for row in rows):
        return []
    found = []
    for title in titles[1:]:
        cells = [(row.source_line or 0, clean(next(iter(row.printed.values()))), row.printed.get(title, "")) for row in rows]
        one = _of_cells(file, cells)
        named = _LABEL.search(title)
        if one.label is None and named and not is_mixture(title):
            one.label = _label_of(named)
        found.append(replace(one, name=title))
    return found


def _of_title(title: str) -> list[str]:
    """What a heading of several names says that its cells hold: `Layers / hidden / heads / kv heads`."""
    parts = [part.strip() for part in re.split(r"\s*/\s*|\s+[x×]\s+", title)] if "/" in title or "×" in title else []
    return [_side(part) or ("kv_heads" if part.lower() == "kv" else "") for part in parts] if len(parts) > 1 else []


_OF_HEADS = re.compile(r"(?:d_head|(?:head|kopf)[ _-]?(?:dim|size|width|gr)\w*|dim\w*\.? (?:de tête|of heads?))", re.IGNORECASE)
_WHOLE = re.compile(r"[~≈]?\s?(\d{1,3}(?:[ ,.'\u00a0\u202f]\d{3}){1,2}|\d{1,7})(?=$|\s?[(,;]|\s[A-Za-z])")


def _of_cells(file: str, cells: Iterable[tuple[int, str, str]], row: Record | None = None) -> Portrait:
    one = Portrait(file, "", stands_alone=row is None or not (row.sec_per_it or row.tflops or row.tokens_per_s or row.gpus))
    for line, title, printed in cells:
        cell, side = clean(printed), _side(title)
        parts = _of_title(title)
        one.mixed = one.mixed or bool(_EXPERTS.search(title) and cell.strip(" -–—") or side == "ffn" and _EXPERTS.search(cell))
        one.gated = True if one.gated is None and _GATED.search(f"{title} {cell}") else one.gated
        if "tied" in title.lower() or "embedding" in title.lower():
            one.tied = {"yes": True, "true": True, "tied": True, "no": False, "false": False, "untied": False}.get(cell.lower())
        if side == "params" or side == "" and parts == [] and PARAMS.search(title) and not _ACTIVE.search(title):
            one.count = _counted(file, line, title, cell)
        elif side == "heads/kv" and (whole := _WHOLE.fullmatch(cell)):
            one.sides["kv_heads"] = Said(int(whole[1]), file, line, cell, title)
        elif side == "heads/kv" or len(parts) > 1 and "layers" not in parts and side not in SIDES:
            for name, value in zip(parts, re.split(r"\s*/\s*", cell)):
                if name in SIDES and value.isdecimal() and len(value) < 8:
                    one.sides[name] = Said(int(value), file, line, value, title)
        elif len(parts) > 1 and len(values := re.split(r"\s*[/×x]\s*", cell)) == len(parts):
            for name, value in zip(parts, values):
                if name in SIDES and value.isdecimal() and len(value) < 8:
                    one.sides[name] = Said(int(value), file, line, value, title)
        elif side in SIDES and (whole := _WHOLE.match(cell)):
            shown = printed.strip() if whole[0] == cell else whole[1]
            one.sides[side] = Said(int(re.sub(r"\D", "", whole[1])), file, line, shown, title)
            if side == "heads" and (kv := read_sentence(f"heads {cell}").get("kv_heads")):
                one.sides["kv_heads"] = Said(int(kv), file, line, str(kv), title)  # type: ignore[call-overload]
        elif _OF_HEADS.fullmatch(title) and cell.isdecimal():
            one.each = int(cell)
        elif not one.name and re.search(r"[^\W\d_]", cell) and not one.sides:
            one.name, one.models = cell, named_in(cell)
            one.mixed = one.mixed or is_mixture(cell) or bool(_EXPERTS.search(cell) or _NO_MODEL.search(cell))
            one.gated = False if one.gated is None and _PLAIN.search(cell) else one.gated
            named = _LABEL.search(cell)
            one.label = _label_of(named) if named else None
    return one


def _counted(file: str, line: int, title: str, printed: str) -> Count | None:
    """The parameters of a cell, in the unit that it or its heading has."""
    found = list(counts_in(printed))
    if len(found) == 1:
        match, value, scale = found[0]
        return Count(value, half_of(match["figure"], scale), file, line, printed.strip(), scale, title)
    unit = _IN_TITLE.search(title)
    figure = re.fullmatch(_NUMBER, printed.strip())
    plain = digits.alone(printed)
    if unit and figure:
        scale = next(its for at, (_, its) in enumerate(_SCALES) if unit[f"u{at}"])
        value = number(figure[0])
        return Count(value * scale, half_of(figure[0], scale), file, line, printed.strip(), scale, title) if value else None
    if plain and plain >= 1e6:
        return Count(plain, 0.5, file, line, printed.strip(), 1.0, title)
    return None
