"""Models against their stated parameters, their name and the rates of their rows: which of them is wrong.

    check(sheet, problems)            findings on a side or a count that the other witnesses deny

    32 layers, hidden 4096, FFN 14336, vocabulary 128256, 13.02B parameters          8.03B by the shape, and 8B by the name
    ### 175B (L = 96, h = 10240)                                                     12288 by the FLOPs of the rows

A count that is not that of its shape is wrong where the name or the rates of the rows have the shape's; else it is the side of
the shape with which the count is right. Of models in one table or list what most of them keep to is how their author counts.
"""
from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.models.counting import Shape, oddness, usualness
from seatrial.notes.lint.models.formulas import COMMON_VOCABULARIES
from seatrial.notes.lint.models.known import SIDES_OF
from seatrial.notes.lint.models.portraits import LONGEST, PARAMS, Count, Portrait, Said, in_rows, in_text, listed, mentioned
from seatrial.notes.lint.once import once
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.read.sentences import read_sentence
from seatrial.tables import Problem

MOST_LINES = 4000
NEAR, OFF, WIDELY = 0.015, 0.03, 0.08
"""Within which a count is that of a shape; from how far on it is not; and where a part of the shape is not said."""
RATED, ALIKE = 0.03, 0.025
"""Within which the FLOPs of rows are those of a size; how far rows of one table may be apart."""
NAMED = 0.09
"""How far a name may be from the size, beside its digits."""
FARTHEST = 4.0
"""How many times the size a name may be that is still of the model."""
EXACT = 0.004
"""Within which a side gives a count that is said to three digits."""
HEADS = (32, 48, 64, 72, 80, 96, 100, 112, 120, 128, 160, 192, 256)
USUAL = frozenset((512, 768, 1024, 1280, 1536, 1600, 2048, 2560, 3072, 3584, 4096, 4608, 5120, 6144, 6656, 7168, 8192, 9216,
                   10240, 12288, 14336, 16384, 20480))
"""Widths that models have."""
LAYERS, WIDTHS = 3, 64
"""Up to how many times the layers are tried; of what widths are multiples."""


def check(sheet: Sheet, problems: Iterable[Problem]) -> dict[Finding, set[int]]:
    """Findings, each with the lines that describe the model."""
    found: dict[Finding, set[int]] = {}
    left = [problem for problem in problems if problem.left]
    for file, text in sheet.prose.items():
        if len(text.lines) > MOST_LINES or not text.has(*_CUES):
            continue
        groups = [*in_text(file, text.lines)]
        told = [one for group in groups for one in group]
        tables = [in_rows(file, problem.left) for problem in left if problem.file == file]
        tables += [in_rows(file, [row.record for row in mates]) for mates in sheet.tables_of(file) if len(mates) <= _MOST_ROWS]
        groups += [group for group in tables
                   if len(group) > 1 or not any(_joined(one, other) for one in group for other in told)]  # fmt: skip
        groups = [[one for one in group if {"layers", "hidden"} <= one.sides.keys() and not one.mixed and all(one.has.values())]
                  for group in groups]  # fmt: skip
        groups = [group for group in groups if group]
        if groups:
            if PARAMS.has(text.letters):
                _count_elsewhere(file, [one for group in groups for one in group], text.lines)
            rates = Rates(sheet.tables_of(file))
            vocab = _vocabulary(text.lines)
            for group in groups:
                for one, finding in _of_group(group, groups, rates, vocab, text.lines):
                    found[finding] = {said.line for said in one.sides.values()} | {one.count.line if one.count else 0}
    return found


def _count_elsewhere(file: str, models: list[Portrait], lines: Sequence[str]) -> None:
    """The parameters that another sentence gives of models that are told by their names."""
    open_ = [one for one in models if one.count is None and one.label is not None and one.stands_alone]
    labels = Counter(one.label for one in models)
    if not open_:
        return
    said = {count.value: count for number, line in enumerate(lines, 1) if len(line) < LONGEST
            for count in listed(file, number, line)}  # fmt: skip
    for one in open_:
        label, half = one.label or (0.0, 0.0)
        own = [count for count in said.values() if count.fine and abs(count.value - label) <= half + 0.02 * label]
        if len(own) == 1 and labels[one.label] == 1:
            one.count = own[0]


def _joined(one: Portrait, other: Portrait) -> bool:
    """Whether a table of one model is what was read as text already: the text has what is in the table then."""
    if any(one.has.get(name, value) != value for name, value in other.has.items()):
        return False
    other.sides = one.sides | other.sides
    other.count, other.tied = other.count or one.count, one.tied if other.tied is None else other.tied
    other.gated, other.each = one.gated if other.gated is None else other.gated, other.each or one.each
    return True


_CUES = ("layer", "couche", "schicht", "capas", "strati", "camadas", "lagen", "warstw", "сло", "层", "層", "층", "l =", "l=",
         " x ", " × ")  # fmt: skip
_MOST_ROWS = 40


_OF_WORDS = ("voc", "слов", "词", "語彙", "어휘", "v=", "v =", "słow", "woord")


def _speaks_of_words(letters: str) -> bool:
    for word in _OF_WORDS:  # noqa: SIM110, asked of every line: no generator
        if word in letters:
            return True
    return False


def _vocabulary(lines: Sequence[str]) -> int:
    """The one that the text gives."""
    said = {read_sentence(line).get("vocab") for line in lines if line and _speaks_of_words(line.casefold())}
    known = [one for one in said if isinstance(one, int)]
    return known[0] if len(known) == 1 else 0


# ---- what rows say: FLOPs of a token


class Rates:
    """Of each table what a token costs by TFLOPs, or the MFU, and tokens a second."""

    def __init__(self, tables: Sequence[list[Row]]) -> None:
        self._tables = tables

    @once
    def costs(self) -> list[tuple[list[Row], dict[str, float]]]:
        return [(mates, cost) for mates in self._tables if (cost := _cost(mates[:_MOST_RATED])) is not None]

    def of(self, one: Portrait, others: Sequence[Portrait]) -> list[tuple[float, Row]]:
        """Costs that are surely this model's, each with a row."""
        found = []
        for mates, cost in self.costs:
            for label, each in cost.items():
                row = next(row for row in mates if row.record.size_label == label)
                record = row.record
                own = (record.layers, record.hidden) == (one.has["layers"], one.has["hidden"])
                named = bool(label) and (label == one.name or one.label is not None and label_parameters(label) == one.label)
                alone = len(others) == 1
                its = own and (alone or not label) or alone and not label and record.layers in (None, one.has["layers"])
                if named or its:
                    found.append((each, row))
        return found


_MOST_RATED = 200


def _cost(mates: Sequence[Row]) -> dict[str, float] | None:
    costs: dict[str, list[float]] = {}
    if not mates or not {"tflops", "mfu"} & mates[0].sheet.filled(mates[0].key):
        return None
    stated = next(iter(mates[0].sheet.text(mates[0]).peaks), 0.0)
    for row in mates:
        record, world = row.record, row.world
        rate = record.tokens_per_s_per_process or (record.tokens_per_s / world if record.tokens_per_s and world else 0)
        if not rate and record.sec_per_it and record.gbs and record.seq and world:
            rate = record.gbs * record.seq / record.sec_per_it / world
        tflops = record.tflops or 0.0
        if not tflops and record.mfu and record.mfu < 1:
            tflops = record.mfu * (stated or (row.device.peak_tflops.get("bf16", 0.0) if row.device else 0.0))
        if rate and tflops and not row.mixture:
            costs.setdefault(record.size_label, []).append(tflops * 1e12 / rate)
    found = {}
    for label, each in costs.items():
        middle = statistics.median_low(each)
        near = [one for one in each if abs(one / middle - 1) < ALIKE]
        if len(near) > 1 and 2 * len(near) >= len(each):
            found[label] = statistics.fmean(near)
    return found or None


def _shape(one: Portrait, vocab: int) -> Shape:
    has = dict(one.has)
    if vocab:
        has.setdefault("vocab", vocab)
    return Shape(has, one.each, one.gated, one.tied)


# ---- judging


def _of_group(
    group: list[Portrait], groups: list[list[Portrait]], rates: Rates, vocab: int, lines: Sequence[str]
) -> Iterator[tuple[Portrait, Finding]]:
    everybody = list({(one.name, *one.has.items()): one for each in groups for one in each}.values())
    shapes = [_shape(one, vocab) for one in group]
    if len(group) > 2:
        shapes = _with_common_vocabulary(group, shapes)
    usual = _usual(group, shapes)
    for one, shape in zip(group, shapes):
        if any(_published(name, one) for name in one.models):
            continue
        size = one.count
        if size is None:
            if one.stands_alone and one.label is not None:
                kept = _named(one, group, shapes)
                yield from ((one, finding) for finding in _by_name(one, shape, rates, group, everybody, kept=kept))
            continue
        kinds = [way for kind, way in shape.ways().items() if kind in usual] if usual else []
        if kinds:
            kin = {kind.split()[0] for kind in usual}
            also = [way for kind, way in shape.ways().items() if kind.split()[0] in kin]
            off = min(abs(way / size.value - 1) for way in (kinds if _off(also, size.value) > NEAR else also))
            wrong = off > (OFF if size.fine else 2 * NAMED) + size.half / size.value
        elif shape.whole:
            wrong = shape.off(size.value) > OFF + size.half / size.value and size.fine
        else:
            wrong = shape.outside(size.value) > WIDELY + size.half / size.value
            wrong = wrong or size.fine and shape.off(size.value) > 2 * NAMED and _denied(one, shape, rates.of(one, everybody))
        if wrong:
            one.mentioned = mentioned(one, lines)
            costs = rates.of(one, everybody)
            judged = _judged(one, shape, costs, usual, group, everybody, sure=bool(kinds) or shape.whole)
            yield from ((one, finding) for finding in judged)


def _named(one: Portrait, group: list[Portrait], shapes: list[Shape]) -> bool:
    """Whether all other models beside it have the size of their name by the usual way to count."""
    others = [(mate.label, shape) for mate, shape in zip(group, shapes) if mate is not one and mate.label is not None]
    return len(others) > 2 and all(shape.off(label) < NAMED + half / label for (label, half), shape in others)


def _off(ways: Iterable[float], size: float) -> float:
    return min((abs(way / size - 1) for way in ways), default=1.0)


def _published(name: str, one: Portrait) -> bool:
    sides = SIDES_OF[name]
    return all(sides.get(side) == one.has[side] for side in ("layers", "hidden"))


def _with_common_vocabulary(group: list[Portrait], shapes: list[Shape]) -> list[Shape]:
    """With the vocabulary by which most of several models have their parameters, where nobody says it."""
    if any("vocab" in shape.has for shape in shapes):
        return shapes
    best, most = 0, 0
    for vocab in COMMON_VOCABULARIES:
        fit = sum(one.count is not None and one.count.fine and shape.with_("vocab", vocab).off(one.count.value) < NEAR / 2
                  for one, shape in zip(group, shapes))  # fmt: skip
        best, most = (vocab, fit) if fit > most else (best, most)
    return [shape.with_("vocab", best) for shape in shapes] if most >= max(2, len(group) - 1) else shapes


def _usual(group: list[Portrait], shapes: list[Shape]) -> set[str]:
    """The ways to count that most models of a table keep to."""
    kept: Counter[str] = Counter()
    each = {(*one.has.values(), one.count and one.count.value): (one.count, shape) for one, shape in zip(group, shapes)}
    counted = [(count, shape) for count, shape in each.values() if count is not None and count.fine]
    for count, shape in counted:
        kept.update(kind for kind, way in shape.ways().items() if abs(way / count.value - 1) < NEAR + count.half / count.value)
    enough = max(2 if all(shape.whole for _, shape in counted) else 3, math.ceil(0.6 * len(counted)))
    return {kind for kind, many in kept.items() if many >= enough} if len(counted) > 2 else set()


def _denied(one: Portrait, shape: Shape, costs: list[tuple[float, Row]]) -> bool:
    """Whether the rows have the FLOPs of the shape, and not of the count."""
    assert one.count is not None
    return any(not _rated(one.count.value, shape, cost, row) and shape.costs(cost, row.seq or 0) < RATED for cost, row in costs)


def _rated(size: float, shape: Shape, cost: float, row: Row) -> bool:
    attention = 2 * shape.has["layers"] * shape.has["hidden"] * (row.seq or 0)
    return any(abs((size + part * attention) * 6 / cost - 1) < RATED for part in (0, 0.5, 1))


def _fits_name(one: Portrait, size: float) -> bool | None:
    if one.label is None:
        return None
    label, half = one.label
    return abs(size / label - 1) < NAMED + half / label


def _judged(one: Portrait, shape: Shape, costs: list[tuple[float, Row]], usual: set[str], group: list[Portrait],
            everybody: list[Portrait], *, sure: bool) -> Iterator[Finding]:  # fmt: skip
    size = one.count
    assert size is not None
    ways = [way for kind, way in shape.ways().items() if not usual or kind in usual] or [*shape.ways().values()]
    low, high = min(*shape.bounds(), size.value) * 0.9, max(*shape.bounds(), size.value) * 1.5
    costs = [(cost, row) for cost, row in costs if low < cost / 6 < high]
    for_size = sum(_rated(size.value, shape, cost, row) for cost, row in costs[:1])
    for_shape = sum(shape.costs(cost, row.seq or 0) < RATED for cost, row in costs[:1])
    by_name = _fits_name(one, size.value), any(_fits_name(one, way) for way in ways)
    if one.label is not None and by_name[0] != by_name[1]:
        for_size, for_shape = for_size + bool(by_name[0]), for_shape + by_name[1]
    sides = _sides(one, shape, size.value, size.half, usual, group, everybody)
    counts = _counts(one, ways, costs, shape, guessed=not (shape.whole or usual or sides and sides[0][2] > 2))
    if for_size > for_shape:
        chosen, other = sides[:1], counts[:1]
    elif for_shape > for_size:
        chosen, other = [], counts[:1]
    else:
        side, count = sides[0][2] if sides else 0.0, max((_TYPED.get(how, 0.0) for _, how in counts), default=0.0)
        chosen, other = (sides[:1], []) if side > max(count, 0.2) else ([], counts[:1])
    span = " or ".join(dict.fromkeys(f"{way / 1e9:.4g}B" for way in sorted(ways)))
    why = f"{size.printed} parameters, but {shape.has['layers']} layers of {shape.has['hidden']} have {span}"
    if chosen:
        name, value, _ = chosen[0]
        said = one.sides[name]
        right = _like(said.printed, value)
        yield _finding(said, f"{name} {said.printed} -> {right}: {why}; with it they are the same", right)
    elif for_size > for_shape:
        yield _finding(one.sides[_suspect(one)], f"{why}: {_because(for_size)}", None, "error" if sure else "warning")
    else:
        right_ = _as_printed(size.printed, other[0][0] / size.scale) if other else None
        also = f"; or {' or '.join(f'{name} {value}' for name, value, _ in sides[:3])}" if sides and not for_shape else ""
        how = f" ({other[0][1]})" if other and other[0][1] else ""
        yield _finding(size, f"{size.printed} -> {right_}{how}: {why}{also}", right_)


def _finding(said: Said | Count, message: str, proposed: str | None, level: Level = "error") -> Finding:
    return Finding(file=said.file, line=said.line, code="label-vs-params", level=level, message=message, column=said.column,
                   printed=said.printed, proposed=proposed)  # fmt: skip


_TYPED = {"the point moved": 3.0, "two digits exchanged": 3.0, "a digit too many": 2.6, "one digit changed": 2.0,
          "a digit lost": 2.0}  # fmt: skip
"""How likely a slip of the hand explains a count."""


def _because(witnesses: int) -> str:
    return "the name has it, and the rates of the rows" if witnesses > 1 else "the name or the rates of the rows have it"


def _suspect(one: Portrait) -> str:
    heads, hidden = one.has.get("heads", 0), one.has["hidden"]
    return "hidden" if heads and (hidden % heads or hidden // heads not in HEADS) else "layers"


def _sides(one: Portrait, shape: Shape, size: float, half: float, usual: set[str], group: list[Portrait],
           everybody: list[Portrait], *, roughly: bool = False) -> list[tuple[str, int, float]]:  # fmt: skip
    """The sides with which the parameters are right, the likeliest first: name, value, and how likely."""
    near = half / size + (EXACT if shape.has.get("vocab") else NEAR)
    hidden, ffn = shape.has["hidden"], shape.has.get("ffn", 0)
    tried: dict[str, Iterable[int]] = {"layers": range(2, LAYERS * shape.has["layers"] + 1),
                                       "hidden": range(WIDTHS, LAYERS * hidden, WIDTHS)}  # fmt: skip
    if ffn:
        tried["ffn"] = range(WIDTHS, LAYERS * ffn, WIDTHS)
    found: dict[tuple[str, int], float] = {}
    rare = () if usual else ("usual 0", "plain 0", "gated 0", *(("gated 1", "gated 2") if ffn == 4 * hidden else ()))
    for name, values in tried.items():
        was = shape.has[name]
        for value in values if name in one.sides else ():
            if value == was:
                continue
            other = shape.with_(name, value)
            ways = ((abs(way / size - 1), kind in rare) for kind, way in other.ways().items() if not usual or kind in usual)
            off, odd = min(ways, default=(1.0, False), key=lambda pair: pair[0] + near * pair[1])
            loose = -0.25 * off / near - 0.4 * odd
            if off > near and usual:
                off, loose = other.off(size), -1.0  # in another way than the others
            if off > near and not usual and not shape.whole and other.outside(size) <= half / size:
                # With what is not said of it.
                off, loose = near if roughly or digits.slips(str(was), (value, value)) else 1.0, -0.3 if roughly else -2.0
            if off <= near:
                better = usualness(other.has) - usualness(shape.has) if name != "layers" else 0.0
                found[name, value] = better + _likely(name, value, was, group) + loose - oddness(other.has, size)
                found[name, value] += 1.5 * (value in one.mentioned and was not in one.mentioned)
    for name, value in _elsewhere(one, shape, everybody):
        if shape.with_(name, value).off(size) <= NEAR + half / size:
            found[name, value] = found.get((name, value), 0.0) + 3.0
    best = sorted((key for key in found if found[key] > 0), key=lambda key: -found[key])
    return [(name, value, found[name, value]) for name, value in best]


def _elsewhere(one: Portrait, shape: Shape, everybody: list[Portrait]) -> Iterator[tuple[str, int]]:
    """The one side that the model has otherwise where it was published, or where the note has the same parameters again."""
    kin = [SIDES_OF[name] for name in one.models]
    kin += [other.has for other in everybody if other is not one and other.count and one.count
            and abs(other.count.value - one.count.value) <= max(other.count.half, one.count.half)]  # fmt: skip
    for sides in kin:
        odd = [name for name in ("layers", "hidden", "ffn") if sides.get(name, 0) != shape.has.get(name, sides.get(name, 0))
               and name in sides]  # fmt: skip
        if len(odd) == 1 and odd[0] in one.sides:
            yield odd[0], sides[odd[0]]


def _likely(name: str, value: int, was: int, group: list[Portrait]) -> float:
    """How well a slip explains what is printed: of the hand, by two, or taken from another model."""
    text = str(value)
    changed = len(text) == len(str(was)) and sum(one != other for one, other in zip(text, str(was))) == 1
    typed = 2.0 if digits.slips(str(was), (value, value)) else 1.2 if changed else 1.0 if value in (2 * was, was // 2) else 0.0
    pasted = sum(mate.has.get(name) == was for mate in group) > 1
    common = value % 4 == 0 and value <= 96 if name == "layers" else value in USUAL or name == "ffn" and value % 512 == 0
    even = 0.25 if value % (2 if name == "layers" else 128) == 0 else -0.3 if name == "layers" else -0.5
    return typed + 0.5 * pasted + 0.5 * common + even + (0.2 if name == "layers" else 0.0)


def _counts(one: Portrait, ways: list[float], costs: list[tuple[float, Row]], shape: Shape, *,
            guessed: bool) -> list[tuple[float, str]]:  # fmt: skip
    """What the count may be: each way of counting, that of the rates or of a slip of the hand first."""
    size = one.count
    assert size is not None
    found = []
    figure = re.sub(r"[^\d.]", "", re.split(r"(?<=\d)\s*[^\d.,\s]", size.printed)[0].replace(",", "."))
    for way in ways:
        meant = way / size.scale
        near = EXACT * meant + size.half / size.scale
        typed = digits.slip(figure, (meant - near, meant + near)) if figure.count(".") < 2 and meant > near else None
        rated = min((abs(way * 6 / cost - 1) for cost, _ in costs), default=0.0)
        name = abs(math.log(way / one.label[0])) if one.label and way > 0 else 0.0
        doubt = (typed is None or typed.how in ("one digit changed", "a digit lost"), round(rated, 2),
                 way == min(ways) < max(ways), name if name > NAMED else 0.0,
                 not ("vocab" in shape.has and shape.tied is None and way == max(ways)))  # fmt: skip
        found.append((doubt, (way, typed.how if typed else "")))
    best = [each for _, each in sorted(found, key=lambda one: one[0])]
    low, high = (end / size.scale for end in shape.bounds())
    open_ = [slip for slip in digits.slips(figure, (low, high)) if slip.how != "a digit too many" and figure.count(".") < 2
             and all(_rated(slip.value * size.scale, shape, *rate) for rate in costs[:1])]  # fmt: skip
    open_.sort(key=lambda slip: slip.how != "the point moved")
    if open_ and guessed and (not best[0][1] or best[0][1] in ("one digit changed", "a digit too many", "a digit lost")):
        best.insert(0, (open_[0].value * size.scale, open_[0].how))
    return best


def _like(printed: str, value: int) -> str:
    """A side as the other was written."""
    sign = next((mark for mark in printed if not mark.isdigit()), "")
    text = f"{value:,}".replace(",", sign) if sign else str(value)
    return text


def _as_printed(printed: str, value: float) -> str:
    """A count with as many decimals as the other, and its unit."""
    match = re.search(r"\d[\d.,]*\d|\d", printed)
    assert match is not None
    figure = match[0]
    if re.fullmatch(r"\d{1,3}([.,]\d{3}){2,3}", figure):
        sign = next(mark for mark in figure if not mark.isdigit())
        text = f"{round(value):,}".replace(",", sign)
    else:
        places = len(figure.replace(",", ".").partition(".")[2])
        whole = len(figure.replace(",", ".").partition(".")[0])
        if places < 2 and whole > 1 and value < 10 ** (whole - 1):
            places += 1  # as many digits as there were
        text = f"{value:.{places}f}"
        text = text.replace(".", ",") if "," in figure else text
    return printed[: match.start()] + text + printed[match.end() :]


def _by_name(one: Portrait, shape: Shape, rates: Rates, group: list[Portrait], everybody: list[Portrait], *,
             kept: bool) -> Iterator[Finding]:  # fmt: skip
    """Without a count: a side that the name denies, by the FLOPs of the rows where there are some; `kept`: what is not said of
    a model is as it usually is."""
    if one.label is None:
        return
    label, half = one.label
    low, high = shape.bounds()
    if not low / FARTHEST < label < high * FARTHEST:
        return  # the name of something else
    if (shape.off(label) if kept else shape.outside(label)) < 2 * NAMED + half / label:
        if shape.has.get("vocab") and not shape.has.get("ffn"):
            yield from _by_rates(one, shape, rates.of(one, everybody), group, everybody)
        return
    for cost, row in rates.of(one, everybody)[:1]:
        if not _far(shape, cost, row):
            return
        rated = [cost / 6 / part for part in (1.0, 4 / 3) if abs(cost / 6 / part / label - 1) < 2 * NAMED + half / label]
        label, half = (rated[0], RATED * rated[0]) if rated else (label, half)
    half += NAMED * label if half != RATED * label else 0.0
    sides = _sides(one, shape, label, half, set(), group, everybody, roughly=True)
    sides = [side for side in sides if side[2] > 0.7]
    name = sides[0][0] if sides else _suspect(one)
    said = one.sides[name]
    right = _like(said.printed, sides[0][1]) if sides and (len(sides) < 2 or sides[0][2] > sides[1][2] + 0.3) else None
    if right is None and not one.in_text:
        return  # the name of a row may be what is wrong
    change = f"{name} {said.printed}{f' -> {right}' if right else ''}"
    layers, hidden = shape.has["layers"], shape.has["hidden"]
    message = f"{change}: {layers} layers of {hidden} are {low / 1e9:.3g}B to {high / 1e9:.3g}B, its name {label / 1e9:.3g}B"
    yield _finding(said, message, right)


def _by_rates(one: Portrait, shape: Shape, costs: list[tuple[float, Row]], group: list[Portrait], everybody: list[Portrait]
              ) -> Iterator[Finding]:  # fmt: skip
    """A side that what a token costs in the rows denies, where the name has the same size as they; of a shape with no more
    sides than a formula has."""
    assert one.label is not None
    label, half = one.label
    for cost, row in costs[:1]:
        parts = [part for part in (1.0, 0.75) if abs(cost * part / 6 / label - 1) < NAMED + half / label]
        if not parts or not _far(shape, cost, row):
            continue
        fitting = []
        for name, value, likely in _sides(one, shape, label, half + NAMED * label, set(), group, everybody):
            other = shape.with_(name, value)
            if likely > 0.7 and other.costs(cost * parts[0], row.seq or 0) < EXACT + ALIKE / 4:
                fitting.append((name, value))
        if fitting:
            name, value = fitting[0]
            said = one.sides[name]
            right = _like(said.printed, value) if len(fitting) == 1 else None
            options = " or ".join(f"{name} {value}" for name, value in fitting[:3])
            message = f"{said.printed}: a token costs what it does in the rows from {row.where} on with {options}"
            yield _finding(said, message, right)


def _far(shape: Shape, cost: float, row: Row) -> bool:
    """Whether neither what a token costs, nor that without a second forward pass, is near to the shape's."""
    return all(shape.costs(cost * part, row.seq or 0) > 2 * NAMED for part in (1.0, 0.75))
