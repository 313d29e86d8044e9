"""Size labels against layers and hidden size, and shapes of rows that give a size label alone.

    fill_shapes(sheet)                   layers and hidden size from rows of that label in other files, or as published
    check(sheet)                         labels that do not fit; they count the embedding or leave it out, but alike in a table

A guessed shape stays only when time and TFLOPs of most such rows agree with it; nothing is said to be wrong because of a guess.
"""
from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from seatrial import arith
from seatrial.errors import BadInput
from seatrial.notes.labels import label_parameters
from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.models.formulas import ALIKE, COMMON_VOCABULARIES, LABELS, candidates, row_fits, slack
from seatrial.notes.lint.models.known import shape_of
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.spec import is_gated, model_of

_CERTAIN, _ANOTHER_KIND = 0.2, 0.8
"""Logarithm of label over size: from which on it is an error, and from which on it is hardly a dense model."""
_MANY = 0.25
"""Share of the rows of a file with labels that do not fit, from which on none is said to be wrong."""
UNDESCRIBED = 1.5
"""Times which a feed-forward, heads in groups and an embedding that nobody describes may change the parameters at most."""
_GATED = 4 / 3
"""What a gated feed-forward of the same width adds at most."""
_LEAST = min(COMMON_VOCABULARIES)
_GROUPED = 0.84
"""What heads in groups leave at least."""


def sizes(row: Row) -> tuple[float, float, float] | None:
    """Parameters without the embedding, and with it for the smallest and the largest vocabulary that may be meant."""
    record, layers, hidden = row.record, row.layers, row.hidden
    if not layers or not hidden or row.mixture:
        return None
    llama = is_gated(record.family)
    return _sizes(layers, hidden, record.heads if llama else None, record.kv_heads if llama else None, record.ffn,
                  record.vocab or row.vocab, llama)  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _sizes(
    layers: int, hidden: int, heads: int | None, kv_heads: int | None, ffn: int | None, vocab: int | None, llama: bool
) -> tuple[float, float, float] | None:
    heads = heads if heads and hidden % heads == 0 and hidden // heads % 2 == 0 else 1
    try:
        model = model_of("llama" if llama else "gpt2", layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn,
                         vocab=vocab or _LEAST, seq=2048)  # fmt: skip
    except BadInput:
        return None
    counted = arith.parameters(model)
    # The embedding of the largest vocabulary, of which the model's is so large a part.
    more = 0 if vocab else (counted.embedding + counted.head) // _LEAST * (max(COMMON_VOCABULARIES) - _LEAST)
    return float(counted.without_embedding), float(counted.total), float(counted.total + more)


def check(sheet: Sheet) -> list[Finding]:
    found = [finding for mates in sheet.tables.values() for finding in _to_the_last_digit(mates)]
    told = {(finding.file, finding.line) for finding in found}
    wrong: set[Row] = set()
    for rows in sheet.files.values():
        pairs = Pairs(rows)
        odd = {row: finding for row in rows if (finding := pairs.odd(row) or _mismatch(row, pairs.often(row))) is not None}
        # Where many labels do not fit it is our count that does not: a feed-forward or heads that nobody described.
        counted = len(odd) <= 2 or len(odd) <= _MANY * sum(
            bool(row.layers and row.hidden and label_parameters(row.record.size_label)) for row in rows)  # fmt: skip
        two = any(len(labels) == 2 for labels in pairs.labels.values())
        typed = {row: finding for row in rows if (finding := pairs.mistyped(row)) is not None} if two else {}
        odd = {row: finding if counted else replace(finding, level="info") for row, finding in odd.items()} | typed
        found += [finding for finding in odd.values() if (finding.file, finding.line) not in told]
        wrong |= odd.keys()
        found += _two_labels([row for row in rows if row not in wrong])
    for mates in sheet.tables.values():
        found += _mixed([row for row in mates if row not in wrong])
    return found


def _to_the_last_digit(mates: list[Row]) -> list[Finding]:
    """Of a table that counts parameters in full, or to three digits, the one row whose count is not that of its shape."""
    ratios: dict[Row, float] = {}
    if len({row.record.size_label for row in mates[:500]}) < 2:
        return []
    for row in mates[:500]:
        size = label_parameters(row.record.size_label) if row.record.layers and row.record.hidden else None
        if size is not None and size[1] <= _DIGITS * size[0] and (counted := sizes(row)) is not None:
            ratios[row] = size[0] / counted[1]
    kept = [row for row, ratio in ratios.items() if abs(ratio - 1) < _COUNTED]
    if len({row.record.size_label for row in kept}) < 2:
        return []
    besides = {row for row, ratio in ratios.items() if abs(ratio - 1) >= 3 * _COUNTED and _counted_otherwise(row, ratio)}
    if 2 * (len(kept) + len(besides)) < len(ratios):
        return []
    found = []
    layers = {mate.record.layers for mate in mates} - {None}
    shapes = {(mate.record.layers, mate.record.hidden) for mate in mates}
    counts = Counter((row.record.size_label, row.layers, row.hidden) for row in ratios)
    for row, ratio in ratios.items():
        if abs(ratio - 1) < 3 * _COUNTED:
            continue
        if counts[row.record.size_label, row.layers, row.hidden] > 1 or row in besides or _is_of_another_vocabulary(row):
            continue  # a name that its author chose
        without, low, _ = sizes(row) or (1.0, 1.0, 1.0)
        # Twice the embedding of a vocabulary that nobody says is once that of another one.
        tied = abs(ratio * low / (2 * low - without) - 1) < _COUNTED and bool(row.record.vocab)
        undescribed = not _known(row) and fits_label(row)
        # As many layers as another row has would be the count.
        need = (ratio * low - (low - without)) * (row.layers or 1) / without
        solved = round(need) if row.reading is not None and row.reading.fits(row, layers=max(1, round(need))) else None
        meant = next((n for n in (*layers, solved) if n and n != row.layers and abs(need / n - 1) < _COUNTED
                      and (n, row.record.hidden) not in shapes), None)  # fmt: skip
        if meant and not tied and row.states("layers"):
            message = f"layers {row.layers} -> {meant}: {row.record.size_label} parameters, but {_billions(row)}"
            found.append(row.find("label-vs-params", "error", message, name="layers", proposed=str(meant)))
            continue
        if undescribed and not tied:
            continue
        if not tied and (wide := _as_wide(row, mates)) is not None and (row.layers, wide) not in shapes:
            message = f"hidden {row.hidden} -> {wide}: {row.record.size_label} parameters, but {_billions(row)}"
            found.append(row.find("label-vs-params", "error", message, name="hidden", proposed=str(wide)))
            continue
        why = ": the embedding is counted twice, though it is tied" if tied else ""
        message = f"{row.record.size_label} parameters, but {_billions(row)}, as the other rows count{why}"
        row.reasons["size_label"] = "label-vs-params"
        level: Level = "error" if tied or _is_typed(row, ratio, _as_label(row, low)) else "warning"
        found.append(row.find("label-vs-params", level, message, name="size_label", proposed=_as_label(row, low)))
    return found


def _is_of_another_vocabulary(row: Row) -> bool:
    """Whether nobody says the vocabulary, and what is left of a count beside the layers is one that models have, once or at
    both ends."""
    size, counted = label_parameters(row.record.size_label), sizes(row)
    if row.record.vocab or size is None or counted is None or not row.hidden:
        return False
    rest = (size[0] - counted[0]) / row.hidden
    return any(abs(rest - ends * vocab) < size[1] / row.hidden for vocab in COMMON_VOCABULARIES for ends in (1, 2))


def _is_typed(row: Row, ratio: float, meant: str) -> bool:
    """Whether a label is off by a slip of the hand, or by more than what nobody describes of a model makes."""
    value = float(digits.plain(meant) or 0)
    described = row.record.ffn and (row.record.kv_heads or not is_gated(row.record.family))
    if described or abs(math.log(ratio)) >= math.log(UNDESCRIBED) or value <= 0:
        return True
    return digits.slip(row.record.size_label, (value * (1 - _COUNTED), value * (1 + _COUNTED))) is not None


def _as_wide(row: Row, mates: list[Row]) -> int | None:
    """The hidden size by which the count is right, where it is another row's, or heads as wide as they mostly are."""
    size, heads, hidden = label_parameters(row.record.size_label), row.record.heads, row.hidden
    if size is None or not row.states("hidden"):
        return None
    likely = {mate.record.hidden for mate in mates} | ({64 * heads, 128 * heads} if heads else set())
    fitting = []
    for wide in likely - {None, hidden}:
        row.hidden = wide
        fitting += [wide] if (counted := sizes(row)) and abs(size[0] / counted[1] - 1) < _COUNTED else []
    row.hidden = hidden
    return fitting[0] if len(fitting) == 1 else None


def _counted_otherwise(row: Row, ratio: float) -> bool:
    """Whether a count is one without the embedding, or with it once where it is tied."""
    without, low, _ = sizes(row) or (1.0, 1.0, 1.0)
    ways = (without, (without + low) / 2) if is_gated(row.record.family) else (without,)
    return any(abs(ratio * low / way - 1) < _COUNTED for way in ways)


def _as_label(row: Row, count: float) -> str:
    """A number of parameters as the row's own label is written."""
    label = row.cell("size_label") or row.record.size_label
    unit = row.record.size_label.strip()[-1:].upper()
    scale = {"M": 1e6, "B": 1e9, "T": 1e12}.get(unit, 1.0)
    decimals = len(label.strip("MBTmbt ").partition(".")[2])
    if scale == 1.0:
        return f"{count:,.0f}"
    return f"{count / scale:.{decimals}f}{unit if label.strip()[-1:].upper() == unit else ''}"


_DIGITS = 0.005
_COUNTED = 0.02
"""Biases, norms and positions that nobody describes."""


_LABELLED = operator.attrgetter("size_label", "layers", "hidden")


class Pairs:
    """Which labels and shapes stand together in the rows of a file."""

    def __init__(self, rows: list[Row]) -> None:
        self.counts = Counter(map(_LABELLED, [row.record for row in rows]))

    @functools.cached_property
    def shapes(self) -> dict[str, Counter[tuple[int, int]]]:
        found: dict[str, Counter[tuple[int, int]]] = {}
        for (label, layers, hidden), count in self.counts.items():
            if label and layers and hidden:
                found.setdefault(label, Counter())[layers, hidden] = count
        return found

    @functools.cached_property
    def labels(self) -> dict[tuple[int, int], Counter[str]]:
        found: dict[tuple[int, int], Counter[str]] = {}
        for (label, layers, hidden), count in self.counts.items():
            if label and layers and hidden:
                found.setdefault((layers, hidden), Counter())[label] = count
        return found

    def often(self, row: Row) -> int:
        label, layers, hidden = named = _LABELLED(row.record)
        return self.counts[named] if label and layers and hidden else 0

    def mistyped(self, row: Row) -> Finding | None:
        """The one row whose label a slip of the hand makes of the one that all others of its shape have."""
        if self.often(row) != 1 or row.mixture:
            return None
        labels = self.labels[row.record.layers, row.record.hidden]  # type: ignore[index]
        (other, often), *rest = labels.most_common()
        size, label = label_parameters(other), row.record.size_label
        if len(rest) != 1 or often < ENOUGH_ROWS or not size or not row.states("size_label") or other[-1:] != label[-1:]:
            return None
        meant = float(digits.plain(other) or 0)
        slips = digits.slips(label, (meant * 0.9999, meant * 1.0001)) if meant else []
        if not slips:
            return None
        message = f'"{label}" -> "{other}" ({slips[0].how}): all other rows of {row.layers} layers x {row.hidden} have it'
        return row.find("label-vs-params", "error", message, name="size_label", proposed=other)

    def odd(self, row: Row) -> Finding | None:
        """The one row with another shape under its label, or another label over its shape, where the others' fits better."""
        record = row.record
        shape, label = (record.layers, record.hidden), record.size_label
        if self.often(row) != 1 or row.guessed or row.mixture or fits_label(row, strict=_known(row)):
            return None
        agrees = row.reading is not None and row.complete and row.reading.fits(row)
        for (layers, hidden), often in self.shapes[label].most_common():
            name, value = ("layers", layers) if hidden == record.hidden else ("hidden", hidden)
            one_cell = (layers == record.layers) != (hidden == record.hidden) and row.states(name)
            told = often > 1 or row.reading is not None and row.reading.fits(row, layers=layers, hidden=hidden)
            if one_cell and told and not agrees and fits_label(row, layers=layers, hidden=hidden):
                others = f'"{label}" has {layers} layers x {hidden} in the other rows'
                message = f"{row.column(name)} {row.cell(name)} -> {value}: {others}, and {_billions(row)}"
                row.propose(name, value, "label-vs-params")
                return row.find("label-vs-params", "error", message, name=name, proposed=str(value))
        for other, _ in self.labels[shape].most_common():  # type: ignore[index]
            if other != label and row.states("size_label") and fits_label(row, label=other):
                message = f'"{label}" -> "{other}" as in the other rows of this shape: {_billions(row)}'
                return row.find("label-vs-params", "error", message, name="size_label", proposed=other)
        return None


def _billions(row: Row) -> str:
    counted = sizes(row) or (0.0, 0.0, 0.0)
    return f"{row.layers} layers x {row.hidden} are {counted[1] / 1e9:.4g}B with the embedding, {counted[0] / 1e9:.4g}B without"


def fits_label(
    row: Row, *, label: str = "", layers: int | None = None, hidden: int | None = None, strict: bool = False
) -> bool:
    """Whether a label is the size of a shape; unless `strict`, a feed-forward that nobody describes may be a gated one."""
    size = label_parameters(label or row.record.size_label)
    before = row.layers, row.hidden
    row.layers, row.hidden = layers or row.layers, hidden or row.hidden
    counted = sizes(row)
    row.layers, row.hidden = before
    if size is None or counted is None:
        return True
    most = counted[2] * (1.0 if strict or _known(row) else _GATED)
    grouped = not (strict or _known(row)) or row.record.kv_heads is None and is_gated(row.record.family)
    least = counted[0] * (_GROUPED if grouped else 1 - LABELS)
    return least - size[1] <= size[0] <= most * (1 + LABELS) + size[1]


def _known(row: Row) -> bool:
    """Whether anybody says what kind of feed-forward the model has."""
    return bool(row.record.family)


def _mismatch(row: Row, often: int) -> Finding | None:
    size, counted = label_parameters(row.record.size_label), sizes(row)
    if size is None or counted is None or not size[0] > 0 or shape_of(row.record.size_label) == (row.layers, row.hidden):
        return None
    label, half = size
    without, low, high = counted
    if not row.record.vocab:
        # A vocabulary that nobody stated may be any, unless the TFLOPs tell it: the label only has to lie between.
        if row.reading is None or row.reading.vocab is None:
            high = max(high, low + (max(COMMON_VOCABULARIES) - (row.vocab or 0)) * (row.hidden or 0))
        low = without
    less = 1 - LABELS if _known(row) else _GROUPED
    once = (without + low) / 2 if is_gated(row.record.family) else low  # one embedding for both ends
    if any(a * less - half <= label <= b * (1 + LABELS) + half for a, b in ((without, without), (once, once), (low, high))):
        return None
    off = min(abs(math.log(label / value)) for value in (without, low, high))
    agrees = _agree(row) and slack(row) < 0.01
    # A label that stands so in several rows is a name that its author chose; without TFLOPs that agree with the shape it may be
    # a mixture of experts, and a gated feed-forward adds up to a third.
    # Layers that were solved with the hidden size of another model agree with anything.
    own = row.record.hidden or any((mate.record.layers, mate.record.hidden) == (row.layers, row.hidden) for mate in row.around)
    certain = off > _CERTAIN and bool(own) and not row.guessed and agrees and often < 2
    doubtful = not row.guessed and agrees and (often < 2 or not fits_label(row))
    # Where all other labels are those of their shapes, one that is far from any way to count is a slip.
    others = [mate for mate in row.around if mate is not row and mate.record.layers and mate.record.size_label]
    far = not fits_label(row) and len(others) >= ENOUGH_ROWS and row.states("size_label") and row.states("layers")
    far = far and (agrees or row.reading is None or not row.complete)  # else the figures are what is said to be wrong
    certain = certain or far and all(fits_label(mate) for mate in others) and not (agrees and often > 1)
    level: Level = "error" if certain else "warning" if doubtful and off < _ANOTHER_KIND and row.record.layers else "info"
    unit = row.record.size_label.strip()[-1:].upper()
    scale = {"M": 1e6, "T": 1e12}.get(unit, 1e9)
    billions = counted[1] / scale
    decimals = 1 if billions < 10 and "." in row.record.size_label else 0
    proposed = f"{billions:.{decimals}f}{unit if unit in 'MBT' else 'B'}"
    twice = 2 * low - without
    tied = "; the embedding is counted twice, though it is tied" if row.record.vocab and abs(label - twice) <= half else ""
    if level == "error" and off < math.log(UNDESCRIBED) and not _is_typed(row, label / low, proposed):
        level = "warning"
    if certain and (slipped := _slipped_side(row)) is not None:
        name, value = slipped
        message = f'{row.column(name)} {row.cell(name)} -> {value}: {_billions(row)}, and "{row.record.size_label}"'
        return row.find("label-vs-params", level, message, name=name, proposed=str(value))
    message = f'"{row.record.size_label}": {_billions(row)}{tied}'
    return row.find("label-vs-params", level, message, name="size_label", proposed=proposed)


def _slipped_side(row: Row) -> tuple[str, int] | None:
    """Layers or a hidden size that a slip of the hand made what is printed, and that the label fits."""
    for name in ("layers", "hidden"):
        cell = row.cell(name)
        if cell.isdecimal() and 1 < len(cell) < 6:
            exchanged = [int(cell[:i] + cell[i + 1] + cell[i] + cell[i + 2 :]) for i in range(len(cell) - 1)]
            other = [value for value in exchanged if value and str(value) != cell and (name == "layers" or value % 64 == 0)]
            fitting = [value for value in other if fits_label(row, **{name: value})]  # type: ignore[arg-type]
            if len(fitting) == 1:
                return name, fitting[0]
    return None


def _two_labels(rows: list[Row]) -> list[Finding]:
    """One shape under two labels that are not the same number rounded."""
    shapes: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        if row.layers and row.hidden and label_parameters(row.record.size_label):
            shapes.setdefault((row.layers, row.hidden), []).append(row)
    found = []
    for (layers, hidden), group in shapes.items():
        labels = {row.record.size_label: row for row in reversed(group)}
        if len(labels) < 2:
            continue
        others = {own: min((mate for label, mate in labels.items() if _apart(own, label)), key=lambda mate: mate.index,
                           default=None)
                  for own in labels}  # fmt: skip
        for row in group:
            other, counted = others[row.record.size_label], sizes(row)
            if other is None or counted is None or fits_label(row) and fits_label(other) and not _agree(row, other):
                continue  # 7B and 8B of 32 layers x 4096 differ in what nobody describes
            message = (
                f'"{row.record.size_label}" and "{other.record.size_label}" ({other.where}) are {layers} layers x {hidden}: '
                f"{counted[0] / 1e9:.4g}B without the embedding, {counted[1] / 1e9:.4g}B with it"
            )
            found.append(row.find("label-vs-params", "warning", message, name="size_label"))
    return found


def _agree(*rows: Row) -> bool:
    """Whether the TFLOPs of all are those of their shape."""
    shaped = [row for row in rows if row.reading is not None and row.reading.formula not in ("label", ALIKE) and row.complete]
    return len(shaped) == len(rows) and all(row.reading.fits(row) for row in shaped if row.reading)


def _apart(a: str, b: str) -> bool:
    one, two = label_parameters(a), label_parameters(b)
    return one is not None and two is not None and abs(one[0] - two[0]) > max(one[1], two[1])


def _habit(row: Row) -> str:
    """Which count the label rounds to, where only one does."""
    size, counted = label_parameters(row.record.size_label), sizes(row)
    if size is None or counted is None:
        return ""
    (label, half), (without, low, high) = size, counted
    has, leaves = low - half <= label <= high + half, abs(label - without) <= half
    return "" if has == leaves else "with" if has else "without"


def _mixed(rows: list[Row]) -> list[Finding]:
    habits = {row: habit for row in rows if (habit := _habit(row))}
    counts = Counter(habits.values())
    if len(counts) < 2:
        return []
    usual = counts.most_common(1)[0][0]
    found = []
    for row, habit in habits.items():
        counted = sizes(row)
        if habit != usual and counted is not None:
            label = f'"{row.record.size_label}" counts {habit} the embedding'
            both = f"{counted[0] / 1e9:.4g}B without, {counted[1] / 1e9:.4g}B with"
            message = f"{label} ({both}), most labels of the table {usual} it"
            found.append(row.find("label-convention", "warning", message, name="size_label"))
    return found


PUBLISHED: tuple[tuple[float, int, int], ...] = (
    # GPT-2: Radford et al. 2019. GPT-3: Brown et al. 2020, table 2.1.
    (0.124, 12, 768), (0.345, 24, 1024), (0.774, 36, 1280), (1.5, 48, 1600), (0.125, 12, 768), (0.35, 24, 1024),
    (0.76, 24, 1536), (1.3, 24, 2048), (2.7, 32, 2560), (6.7, 32, 4096), (13.0, 40, 5120), (175.0, 96, 12288),
    # Narayanan et al. 2021, table 1.
    (1.7, 24, 2304), (3.6, 30, 3072), (7.5, 36, 4096), (18.4, 40, 6144), (39.1, 48, 8192), (76.1, 60, 10240),
    (145.6, 80, 12288), (310.1, 96, 16384), (529.6, 105, 20480), (1008.0, 128, 25600),
    # OPT: Zhang et al. 2022.
    (30.0, 48, 7168), (66.0, 64, 9216),
)  # fmt: skip
"""Billions of parameters as the label says them, layers, hidden size."""


def mend_text(sheet: Sheet) -> list[Finding]:
    """Layers or a hidden size that the text states and that neither the label nor the TFLOPs of the rows agree with, but both
    with another."""
    found = []
    for mates in sheet.tables.values():
        tried = [mend for name in ("layers", "hidden") if (mend := _mended(mates, name)) is not None]
        if tried:
            best = max(tried, key=lambda mend: mend.agreeing)
            _put_side(best.rows, best.name, best.value)
            found.append(best.finding)
    return found


@dataclass(frozen=True)
class Mend:
    name: str
    value: int
    agreeing: int
    rows: list[Row]
    finding: Finding


def _mended(mates: list[Row], name: str) -> Mend | None:
    unsaid = (row for row in mates if row.record.layers and row.hidden and not row.states(name) and not row.mixture)
    if (first := next(unsaid, None)) is None or fits_label(first, strict=True):
        return None
    stated, above = getattr(first, name), first.stated_above(name)
    line = first.layers_line if name == "layers" else above[1] if above else None
    if line is None or stated is None:
        return None
    rows = [first, *unsaid]
    if any(getattr(row.record, name) != getattr(rows[0].record, name) for row in rows):
        return None
    timed = [row for row in rows if row.complete and not row.planned][:60]
    size = label_parameters(rows[0].record.size_label)
    if len(timed) < ENOUGH_ROWS or size is None:
        return None
    share = size[0] / (sizes(rows[0]) or (1.0, 1.0, 1.0))[1]
    about, step = (stated * share, 1) if name == "layers" else (stated * math.sqrt(share), STEP)
    nearby = range(max(step, round(about * 0.9 / step) * step), round(about * 1.1) + step + 1, step)[:MOST_LAYERS]
    likely = [value for value in nearby if _rounds_to(rows[0], name, value, size)]
    counts = {value: _agreeing(timed, name, value) for value in {stated, *likely}}
    best = max(counts, key=lambda value: (counts[value], -abs(value - about)))
    _put_side(rows, name, stated)
    if best == stated or counts[best] < 0.6 * len(timed) or 2 * counts[stated] > counts[best]:
        return None
    message = (f'{name} {stated} -> {best}: time and TFLOPs of {counts[best]} of {len(timed)} rows agree with {best}, of '
               f'{counts[stated]} with {stated}, and "{rows[0].record.size_label}" needs about {about:.0f}')  # fmt: skip
    finding = Finding(file=rows[0].record.source_file, line=line, code="label-vs-params", level="error", message=message,
                      column=name, printed=str(stated), proposed=str(best))  # fmt: skip
    return Mend(name, best, counts[best], rows, finding)


ENOUGH_ROWS, MOST_LAYERS, STEP = 3, 40, 64
"""Rows that tell; how many sides are tried; of what hidden sizes are multiples."""


def _rounds_to(row: Row, name: str, value: int, size: tuple[float, float]) -> bool:
    """Whether the label is the size of such a shape to its last digit."""
    before = getattr(row, name)
    setattr(row, name, value)
    counted = sizes(row)
    setattr(row, name, before)
    return counted is not None and any(abs(whole - size[0]) <= size[1] for whole in counted[:2])


def _agreeing(rows: list[Row], name: str, value: int) -> int:
    _put_side(rows, name, value)
    readings = candidates(rows, ("sc21", "hardware", "palm")).readings
    return max((sum(row_fits(row, reading) for row in rows) for reading in readings), default=0)


def _put_side(rows: list[Row], name: str, value: int) -> None:
    for row in rows:
        setattr(row, name, value)


def of_another_shape(row: Row, off: float) -> bool:
    """Whether the size label differs from layers and hidden size as the figures do, by a logarithm of `off`: groups of heads, a
    gate or a vocabulary that nobody describes."""
    size, counted = label_parameters(row.record.size_label), sizes(row)
    if row.record.family or size is None or counted is None or not size[0]:
        return False
    kin = [mate for mate in row.around if mate.record.size_label == row.record.size_label]
    shape = row.record.layers, row.record.hidden
    if len(kin) > 3 or any((mate.record.layers, mate.record.hidden) != shape for mate in kin):
        return False  # other rows tell the shape, or what it makes of the FLOPs
    label = math.log(size[0] / counted[1])
    return abs(label) > _COUNTED and abs(label - off) < _ABOUT


MODELS_DIFFER = 0.06
"""What norms, biases and paddings that nobody describes make of FLOPs by layers and hidden size."""
_ABOUT = 0.12
"""Within which a label tells the size: it is rounded, and attention is no part of it."""


def fill_gates(sheet: Sheet) -> None:
    """A feed-forward whose width is said and its kind is not: a gated one where only that gives the size of the label; of a
    label that neither gives, as the other rows of its table have it."""
    kinds: dict[object, set[bool]] = {}
    neither: list[Row] = []
    for row in sheet.rows:
        record = row.record
        if record.family or not record.ffn or row.mixture or not record.size_label or not row.layers or not row.hidden:
            continue
        plain = fits_label(row, strict=True)
        row.record = replace(record, family="llama", inferred=tuple(sorted({*record.inferred, "family"})))
        if plain or sizes(row) is None or not fits_label(row, strict=True):
            row.record = record
            neither += [row] if not plain else []
        if row.record is not record or plain:
            kinds.setdefault(row.key, set()).add(not plain)
    for row in neither:
        if kinds.get(row.key) == {True}:
            row.record = replace(row.record, family="llama", inferred=tuple(sorted({*row.record.inferred, "family"})))


def fill_shapes(sheet: Sheet) -> None:
    for rows in sheet.files.values():
        groups: dict[str, list[Row]] = {}
        for row in rows:
            if row.record.size_label and not (row.layers and row.hidden):
                groups.setdefault(row.record.size_label, []).append(row)
        for label, group in groups.items():
            _fill_label(sheet, label, group)


def _fill_label(sheet: Sheet, label: str, group: list[Row]) -> None:
    timed = [row for row in group if row.complete][:60]
    if not timed:
        return
    before = [(row.layers, row.hidden) for row in group]
    best, most = None, 0
    for shape in dict.fromkeys(_shapes(sheet, label)):
        _put(group, shape)
        readings = candidates(timed, ("sc21", "megatron-2022-old")).readings
        agreeing = max(sum(row_fits(row, reading) for row in timed) for reading in readings)
        if agreeing > most:
            best, most = shape, agreeing
    if best is not None and most >= max(1, 0.5 * len(timed)):
        _put(group, best)
    else:
        for row, (layers, hidden) in zip(group, before):
            row.layers, row.hidden, row.guessed = layers, hidden, False


def _put(group: list[Row], shape: tuple[int, int]) -> None:
    for row in group:
        row.layers, row.hidden = row.record.layers or shape[0], row.record.hidden or shape[1]
        row.guessed = True


def _shapes(sheet: Sheet, label: str) -> Iterator[tuple[int, int]]:
    size = label_parameters(label)
    if size is None:
        return
    for row in sheet.rows:
        if row.record.size_label == label and row.record.layers and row.record.hidden:
            yield row.record.layers, row.record.hidden
    for billions, layers, hidden in PUBLISHED:
        if abs(billions * 1e9 - size[0]) <= size[1]:
            yield layers, hidden
