"""Which FLOPs formula the TFLOPs of a table were worked out with, and layer counts that nobody stated.

    Reading(formula="sc21", recompute="full").tflops(row)             what the cell should say
    Reading(formula="sc21", recompute="full").fits(row)               within what the printed digits hide
    establish(sheet)                                                  sets row.reading, and row.layers where they can be solved

A row alone proves little: with two digits one of many formulas fits by chance. What most rows of a table follow is its reading,
and a table too small to tell takes that of its file. The formulas themselves are `arith.flops`'.
"""
from __future__ import annotations

import functools
import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from seatrial import arith
from seatrial.errors import BadInput
from seatrial.notes.labels import is_mixture, label_parameters
from seatrial.notes.lint.digits import Printed, overlap
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.models import stated
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.spec import Model, is_gated, model_of, round_up

STATED_FORMULA = "stated"
"""The formula that the text writes down, with the parameters that it gives."""
FORMULAS = ("sc21", "megatron-2022-old", "hardware", "palm", "parameters", "label")
OF_TP, OF_PP = ("sc21", "megatron-2022-old"), ("megatron-2022-old",)
"""The formulas in which tensor and pipeline parallelism count."""
ALIKE = "alike"
FROZEN = re.compile(r"lora\b|adapter|frozen|freez|forward[ -]only|inference|rollout", re.IGNORECASE)
"""Words of runs that leave most of the model as it is: four FLOPs for a parameter and token, or two, and not six."""
LABELS = 0.06
"""Labels are names as much as numbers: 345M has 355 million parameters, 7B has 6.7, 14B has 14.8."""
COMMON_VOCABULARIES = (50257, 32000, 128256, 250680, 50304, 51200, 100352, 151936, 256000, 30522)
"""Tokens of the tokenizers in wide use, tried where the text states none."""
_TRIED = frozenset((1, *COMMON_VOCABULARIES))
"""And 1, where a formula has no vocabulary."""
COMMON_SEQUENCES = (2048, 1024, 4096, 8192, 512)
_CUTS = ((True, False), (False, True), (True, True))
"""Whether digits were cut off the time, and off the TFLOPs."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    formula: str
    recompute: Literal["full", "none", "selective"]
    """Full counts the forward pass twice: the factor is 4 against 3 (96 against 72 in sc21)."""
    plain: bool = False
    """Count a gated MLP and grouped queries as if they were not, as calculators do that know only one shape."""
    vocab: int | None = None
    """Assumed where the row's text states none."""
    seq: int | None = None
    """Assumed where the row's text states none."""
    per: Literal["process", "node"] = "process"
    scale: float = 1.0
    """Seconds in one unit of the printed time."""
    each: float | None = None
    """FLOPs of one sequence where the shape is not known but rows of one model agree on them: the formula is `alike` then."""
    attention: float = 0.0
    """How often the text counts layers x width for each token of the sequence, beside six times the parameters."""

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.formula, self.recompute, self.plain, self.vocab, self.seq, self.per, self.scale, self.each,
                     self.attention))  # fmt: skip

    def __hash__(self) -> int:
        return self._hash  # the key of many tables: worked out once

    def __str__(self) -> str:
        if self.formula == ALIKE:
            return "what the other rows of the model have"
        if self.formula == STATED_FORMULA:
            factor = "8" if self.recompute == "full" else "6"
            return f"the formula of the text (factor {factor})" + (" per node" if self.per == "node" else "")
        factor = {"sc21": "96" if self.recompute == "full" else "72"}.get(
            self.formula, "8" if self.recompute == "full" else "6"
        )
        return f"{self.formula} (factor {factor})" + (" per node" if self.per == "node" else "")

    def per_sample(self, row: Row, **other: float) -> float | None:
        """FLOPs of one sequence, or None where the shape is not known. `other` replaces fields of the row."""
        return self._per_sample(row, other)

    def _per_sample(self, row: Row, other: dict[str, float]) -> float | None:
        formula = self.formula
        if formula == ALIKE:
            return None if {"layers", "hidden", "seq"} & set(other) else self.each
        layers, hidden, seq, vocab = row.layers, row.hidden, row.seq or self.seq, row.vocab or self.vocab
        if other:
            layers, hidden = other.get("layers", layers), other.get("hidden", hidden)  # type: ignore[assignment]
            seq, vocab = other.get("seq", seq), other.get("vocab", vocab)  # type: ignore[assignment]
        if not seq or row.mixture and formula not in ("label", STATED_FORMULA):
            return None
        if formula == STATED_FORMULA:
            parameters = stated.size_of(row)
            if parameters is None or self.attention and not (layers and hidden):
                return None
            attended = self.attention * layers * hidden * seq if self.attention else 0.0  # type: ignore[operator]
            return seq * (6.0 * parameters + attended) * (4 / 3 if self.recompute == "full" else 1.0)
        if formula == "label":
            size = label_parameters(row.record.size_label)
            whole = row.mixture and not is_mixture(row.record.size_label)  # a token passes through a part of it
            return None if size is None or whole else arith.per_parameter(size[0], seq=int(seq), recompute=self.recompute)
        if not layers or not hidden or (not vocab and formula != "megatron-2022-old"):
            return None
        record, tp, pp = row.record, 1, 1
        if formula in OF_TP:
            tp = int(other and other.get("tp") or row.get("tp") or 1)
            pp = int(other and other.get("pp") or row.get("pp") or 1) if formula in OF_PP else 1
        gated = not self.plain and is_gated(record.family)
        # Heads matter to no formula but for grouped queries, and a row's heads may be the very cell that is wrong.
        shape = (record.family, record.heads, record.kv_heads) if gated else ("", None, None)
        return _per_sample(formula, self.recompute, layers, int(hidden), int(seq), int(vocab or 1), tp, pp, *shape,
                           None if self.plain else record.ffn)  # fmt: skip

    def rounded(self, row: Row) -> float:
        """What a size that is only a label leaves open: 1.7B may be 1.65."""
        size = label_parameters(row.record.size_label) if self.formula == "label" else None
        return max(LABELS, size[1] / size[0]) if size and size[0] else 0.0

    def tflops(self, row: Row, **other: float) -> float | None:
        """The printed TFLOPs that this reading expects for the printed time."""
        sec = row.printed("sec_per_it")
        work = self._work(row, other)
        return None if sec is None or work is None or sec.value <= 0 else work / sec.value

    def _work(self, row: Row, other: dict[str, float]) -> float | None:
        """TFLOPs times printed time."""
        if other or self is not row.reading:
            return self.work(row, self._per_sample(row, other), other.get("world") or row.world, other.get("gbs"))
        if "work" not in row.terms:
            row.terms["work"] = self.work(row, self._per_sample(row, other), row.world)
        return row.terms["work"]

    def work(self, row: Row, each: float | None, world: float | None, gbs: float | None = None) -> float | None:
        """The same from the FLOPs of a sequence and the processes."""
        gbs = row.get("gbs") if gbs is None else gbs
        if not each or not gbs or not world:
            return None
        shared = (row.procs or 1) if self.per == "node" else 1
        return each * gbs * shared / (world * self.scale * 1e12)

    def expected(self, row: Row, truncated: bool = False, **other: float) -> tuple[float, float] | None:
        """The range of TFLOPs that belongs to the printed time."""
        return self._range(row, self._work(row, other), truncated)

    def _range(self, row: Row, work: float | None, truncated: bool) -> tuple[float, float] | None:
        sec = row.printed("sec_per_it")
        if sec is None or work is None:
            return None
        low, high = sec.truncated if truncated else sec.rounded
        return None if low <= 0 else (work / high, work / low)

    def fits(self, row: Row, **other: float) -> bool:
        shown = row.printed("tflops")
        if shown is None:
            return False
        return self._agrees(row, self._range(row, self._work(row, other), False), shown, truncated=False)

    def may_fit(self, row: Row, open_: Open, **other: float) -> bool:
        """Whether it is worth asking if it fits: `open_` is what the row leaves open, and most readings miss it by far."""
        low, high = open_[self.per == "node"]
        each = self._per_sample(row, other) if low <= high else None
        return each is not None and low <= each * ((row.procs or 1) if self.per == "node" else 1) / self.scale <= high

    def times_left(self, row: Row, open_: Open) -> tuple[float, float]:
        """How many times what a sequence costs by this reading the row leaves open."""
        low, high = open_[self.per == "node"]
        each = self._per_sample(row, {}) if low <= high else None
        each = each and each * ((row.procs or 1) if self.per == "node" else 1) / self.scale
        return (low / each, high / each) if each else (0.0, math.inf)

    def units_left(self, row: Row, open_: Open, units: dict[float, str]) -> list[tuple[float, str]]:
        """The same of times in other units, so many times the seconds."""
        low, high = open_[self.per == "node"]
        each = self._per_sample(row, {}) if low <= high else None
        if each is None:
            return []
        each *= ((row.procs or 1) if self.per == "node" else 1) / self.scale
        return [(scale, unit) for scale, unit in units.items() if low <= each / scale <= high]

    def fits_truncated(self, row: Row, **other: float) -> bool:
        """Whether cutting digits off the time, off the TFLOPs, or off both in place of rounding would explain the row."""
        shown = row.printed("tflops")
        return any(self._agrees(row, self.expected(row, cut[0], **other), shown, truncated=cut[1]) for cut in _CUTS)

    def cut_time(self, row: Row) -> tuple[float, float]:
        """The range of the time before digits were cut off, in the first way that explains the row."""
        sec, shown, work = row.printed("sec_per_it"), row.printed("tflops"), self._work(row, {})
        assert sec is not None and shown is not None and work is not None
        cut = next(c for c in _CUTS if self._agrees(row, self.expected(row, c[0]), shown, truncated=c[1]))
        time, tflops = sec.truncated if cut[0] else sec.rounded, shown.truncated if cut[1] else shown.rounded
        return max(time[0], work / tflops[1]), min(time[1], work / tflops[0])

    def _agrees(self, row: Row, expected: tuple[float, float] | None, shown: Printed | None, *, truncated: bool) -> bool:
        if expected is None or shown is None:
            return False
        # A figure for a node is often a rounded figure of one process times the processes.
        there = shown if self.per != "node" or (row.procs or 1) == 1 else Printed(shown.value, shown.unit * (row.procs or 1))
        if self.formula == ALIKE:
            # The common figure is a mean of rounded ones, and paddings differ a little with TP.
            expected = (expected[0] * (1 - ALIKE_SLACK), expected[1] * (1 + ALIKE_SLACK))
        elif self.formula == "label":
            open_ = self.rounded(row)
            expected = (expected[0] * (1 - open_), expected[1] * (1 + open_))
        return overlap(expected, there.truncated if truncated else there.rounded)

    def ratio(self, row: Row, **other: float) -> float | None:
        """Expected over printed TFLOPs."""
        expected, shown = self.tflops(row, **other), row.printed("tflops")
        return None if expected is None or shown is None or shown.value <= 0 else expected / shown.value

    def solve_layers(self, row: Row) -> tuple[float, float] | None:
        """The range of layer counts that the printed time and TFLOPs allow."""
        if self.formula in ("label", ALIKE, STATED_FORMULA):
            return None
        return self.solve_linear(row, self.per_sample(row, layers=1), self.per_sample(row, layers=2))

    def solve_linear(self, row: Row, one: float | None, two: float | None) -> tuple[float, float] | None:
        sec, shown, gbs, world = row.printed("sec_per_it"), row.printed("tflops"), row.get("gbs"), row.world
        if one is None or two is None or sec is None or shown is None or not gbs or not world:
            return None
        shared = (row.procs or 1) if self.per == "node" else 1
        slope, offset = two - one, 2 * one - two
        bounds = [
            (t * s * self.scale * world * 1e12 / (gbs * shared) - offset) / slope
            for t, s in ((shown.rounded[0], sec.rounded[0]), (shown.rounded[1], sec.rounded[1]))
        ]
        return bounds[0], bounds[1]


@functools.lru_cache(maxsize=65536)
def _per_sample(
    formula: str,
    recompute: str,
    layers: float,
    hidden: int,
    seq: int,
    vocab: int,
    tp: int,
    pp: int,
    family: str,
    heads: int | None,
    kv_heads: int | None,
    ffn: int | None,
) -> float | None:
    try:  # a model of each shape, whatever vocabularies are tried
        model = _model(layers, hidden, seq, COMMON_VOCABULARIES[0] if vocab in _TRIED else vocab, family, heads, kv_heads, ffn)
    except BadInput:
        return None  # no model that anybody could train: a cell of another column
    return arith.flops(formula, model, samples=1, recompute=recompute, tp=tp, pp=pp, vocab=vocab)


@functools.lru_cache(maxsize=4096)
def _model(
    layers: float, hidden: int, seq: int, vocab: int, family: str, heads: int | None, kv_heads: int | None, ffn: int | None
) -> Model:
    if layers != int(layers) or layers < 1:
        raise ValueError(f"{layers} layers")
    glu = is_gated(family)
    grouped = glu and heads and kv_heads and hidden % heads == 0 and (hidden // heads) % 2 == 0 and heads % kv_heads == 0
    return model_of("llama" if glu and hidden % 2 == 0 else "gpt2", layers=int(layers), hidden=hidden,
                    heads=heads if grouped and heads else 1, kv_heads=kv_heads if grouped else None, vocab=vocab, seq=seq,
                    ffn=ffn)  # fmt: skip


def rough_vocabulary(row: Row) -> float | None:
    """A vocabulary that the text gives in thousands: `250k`."""
    said = row.record.extra.get("vocab")
    match = re.fullmatch(r"~?(\d+(?:\.\d+)?)[kK]", said) if said else None
    return float(match[1]) * 1000 if match else None


Recompute = Literal["full", "none", "selective"]


def candidates(rows: Iterable[Row], formulas: Iterable[str] = FORMULAS) -> Candidates:
    """Every reading worth trying on these rows, the likeliest first."""
    rows = list(rows)
    stated = {row.record.recompute for row in rows if row.record.recompute}
    orders: tuple[Recompute, ...] = ("none", "full") if "none" in stated else ("full", "none")
    near = {rough for row in rows if (rough := rough_vocabulary(row)) is not None}
    vocabularies = sorted(COMMON_VOCABULARIES, key=lambda v: not any(abs(v / rough - 1) < 0.02 for rough in near))
    no_vocab, no_seq = any(not row.vocab for row in rows), any(not row.seq for row in rows)
    gated = any(is_gated(row.record.family) for row in rows)
    return _candidates(tuple(formulas), orders, "selective" in stated, tuple(vocabularies) if no_vocab else (None,),
                       COMMON_SEQUENCES if no_seq else (None,), gated)  # fmt: skip


@functools.lru_cache(maxsize=256)
def _candidates(
    formulas: tuple[str, ...], orders: tuple[Recompute, ...], selective: bool, vocabularies: tuple[int | None, ...],
    sequences: tuple[int | None, ...], gated: bool
) -> Candidates:  # fmt: skip
    return Candidates(tuple(
        Reading(formula=formula, recompute=recompute, vocab=vocab, seq=seq, plain=plain)
        for formula in formulas
        for plain in ((False, True) if gated and formula != "label" else (False,))
        for seq in sequences
        for recompute in ((*orders, "selective") if selective and formula == "hardware" else orders)
        for vocab in (vocabularies if formula not in ("megatron-2022-old", "label") else (None,))
    ))


class Family(NamedTuple):
    """Readings that differ in the vocabulary and the unit alone: the larger a vocabulary, the more FLOPs."""

    alike: list[list[Reading]]
    """By vocabulary, of each its units."""
    least: Reading
    most: Reading
    scales: list[float]
    of_layout: bool
    """Whether TP and PP count."""

    def between(self, ends: tuple[float, float], vocab: int | None, tp: int, most_tp: int) -> float:
        """The FLOPs with a vocabulary: they lie on a line from the smallest to the largest one, padded where that counts."""
        low, high = self.least.vocab, self.most.vocab
        if not vocab or not low or not high:
            return ends[0]
        if self.of_layout:
            low, vocab, high = round_up(low, 128), round_up(vocab, 128 * tp), round_up(high, 128 * most_tp)
        return ends[0] + (vocab - low) / (high - low) * (ends[1] - ends[0]) if high > low else ends[0]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Readings that are worth trying, the likeliest first, and what follows from them alone."""

    readings: tuple[Reading, ...]

    @functools.cached_property
    def families(self) -> list[Family]:
        families: dict[object, dict[int | None, list[Reading]]] = {}
        for r in self.readings:
            families.setdefault((r.formula, r.recompute, r.plain, r.seq), {}).setdefault(r.vocab, []).append(r)
        found = []
        for family in families.values():
            alike = list(family.values())
            least, *_, most = sorted((same[0] for same in (*alike, *alike)), key=lambda r: r.vocab or 0)
            found.append(Family(alike, least, most, [reading.scale for reading in alike[0]], least.formula in OF_TP))
        return found

    @functools.cached_property
    def in_other_units(self) -> Candidates:
        return Candidates(tuple(replace(reading, scale=scale) for scale in TIME_SCALES for reading in self.readings))

    @functools.cached_property
    def places(self) -> dict[Reading, int]:
        """Reading -> how many are likelier."""
        return {reading: place for place, reading in enumerate(self.readings)}

    @functools.cached_property
    def first_vocabularies(self) -> dict[str, int | None]:
        """Formula -> the vocabulary that is tried first."""
        return {reading.formula: reading.vocab for reading in reversed(self.readings)}


def elsewhere(reading: Reading, row: Row) -> tuple[Reading, ...]:
    """The other habits that one row of a table may follow: another formula, another factor, the whole node."""
    return _elsewhere(reading, row.vocab or reading.vocab)


@functools.lru_cache(maxsize=4096)
def _elsewhere(reading: Reading, known: int | None) -> tuple[Reading, ...]:
    formulas = (reading.formula,) if reading.formula == ALIKE else ("sc21", "megatron-2022-old", reading.formula)
    found = []
    for formula in dict.fromkeys(formulas):
        for vocab in (known,) if known else COMMON_VOCABULARIES[:4]:
            for recompute in ("full", "none"):
                for per in ("process", "node"):
                    other = replace(reading, formula=formula, recompute=recompute, per=per, vocab=vocab)  # type: ignore[arg-type]
                    same = (other.formula, other.recompute, other.per) == (reading.formula, reading.recompute, reading.per)
                    if not same and not (reading.formula == ALIKE and recompute != reading.recompute):
                        found.append(other)
    return tuple(found)


TIME_SCALES = {1e-3: "milliseconds", 1e3: "seconds", 60.0: "minutes", 3600.0: "hours"}
"""Seconds in a unit of what may stand in a column of times by mistake; 1000: seconds under a heading of ms."""
_MOST_ROWS = 300
"""A long table is judged by so many of its rows."""
# Shares of the rows of a table that have to agree.
SAME_UNIT, CONVINCING, ONE_MODEL = 0.4, 0.34, 0.6
"""With a formula in the unit that the heading says; with a formula at all; on the FLOPs of a sequence, whatever they are."""
FINE_DIGITS = 0.003
"""What the digits of time and TFLOPs may leave open in a row that proves a formula almost alone."""
ALIKE_SLACK = 0.007
"""How far FLOPs of one model differ beyond the printed digits: padding of the vocabulary differs a little with TP."""


@functools.lru_cache(maxsize=4096)
def in_unit(reading: Reading, scale: float) -> Reading:
    """The same with the time in another unit of so many seconds."""
    return replace(reading, scale=scale * reading.scale)


Open = tuple[tuple[float, float], tuple[float, float]]


def left_open(row: Row) -> Open:
    """What one sequence may cost by the row's figures and a little beyond: with TFLOPs of a process, and of a node."""
    sec, shown, gbs, world = row.printed("sec_per_it"), row.printed("tflops"), row.get("gbs"), row.world
    if sec is None or shown is None or not gbs or not world:
        return (math.inf, -math.inf), (math.inf, -math.inf)
    each, (least, most) = world * 1e12 / gbs, sec.rounded
    halves = (shown.unit / 2, shown.unit / 2 * (row.procs or 1))
    process, node = (((shown.value - half) * least * each * 0.98, (shown.value + half) * most * each * 1.02) for half in halves)
    return process, node


def row_fits(row: Row, reading: Reading) -> bool:
    """With the processes of either column, as one process or as a node: which of them is right is another rule's question."""
    return _fits_one(row, reading, _ranges(row))


def _fits_one(row: Row, reading: Reading, ranges: list[tuple[float, float]]) -> bool:
    each = reading._per_sample(row, {}) if ranges else None
    return each is not None and _within(each / reading.scale, ranges, _named(row, reading))


def _within(each: float, ranges: list[tuple[float, float]], open_: float = 0.0) -> bool:
    for low, high in ranges:  # noqa: SIM110, asked too often for a generator
        if low * (1 - open_) <= each <= high * (1 + open_):
            return True
    return False


def _named(row: Row, reading: Reading) -> float:
    """What a label leaves open, in a row that has no shape to tell better."""
    return LABELS if reading.formula == "label" and not (row.layers and row.hidden) else 0.0


def _ranges(row: Row) -> list[tuple[float, float]]:
    """What one sequence may cost by time and TFLOPs as printed: for either count of processes, of one and of a node."""
    if row.spans is None:
        row.spans = _new_ranges(row)
    return row.spans


def _new_ranges(row: Row) -> list[tuple[float, float]]:
    sec, shown, gbs = row.printed("sec_per_it"), row.printed("tflops"), row.get("gbs")
    if sec is None or shown is None or not gbs or sec.rounded[0] <= 0:
        return []
    found = []
    for world in {row.counted, row.product} - {None}:
        for shared in {1, (row.procs or 1) if row.record.tflops_per != "process" else 1}:
            # A figure for a node is often a rounded figure of one process times the processes.
            half, each = shown.unit / 2 * shared, (world or 1) * 1e12 / (gbs * shared)
            low, high = (shown.value - half) * sec.rounded[0] * each, (shown.value + half) * sec.rounded[1] * each
            found.append((low * (1 - 1e-9), high * (1 + 1e-9)))
    return found


def establish(sheet: Sheet) -> list[Finding]:
    borrow_hidden(sheet)
    for rows in sheet.files.values():
        _establish_file([row for row in rows if row.complete])
    for key, mates in sheet.tables.items():
        for kind in {row.counted_by for row in mates[:_MOST_ROWS]} if key[1] is not None else ():
            _take_what_is_stated([row for row in mates[:_MOST_ROWS] if row.counted_by == kind])
    return [finding for rows in sheet.files.values() for finding in _report_solved(rows)]


def _establish_file(rows: list[Row]) -> None:
    tables: dict[object, list[Row]] = {}
    for row in rows:
        tables.setdefault((row.key, row.counted_by), []).append(row)
    tried = candidates(rows)
    matched = {key: _matched(mates, tried) for key, mates in tables.items()}
    tally: Counter[Reading] = Counter()
    for by_reading in matched.values():
        tally.update({reading: len(fitting) for reading, fitting in by_reading.items()})
    undecided, agreed = [], set[Row]()
    for key, mates in tables.items():
        known = [row for row in mates if row.layers and row.hidden]
        best, found = _best(matched[key], tally, tried), matched[key]
        if best is None or len(matched[key][best]) < SAME_UNIT * len(known[:_MOST_ROWS]):
            others = _matched(mates, tried.in_other_units)
            other = _best(others, Counter(), tried.in_other_units)
            if other is not None and (best is None or len(others[other]) > len(found[best])):
                best, found = other, others
        if best is None or not _convincing(best, found[best], mates, known):
            undecided.append(mates)
            continue
        agreed.update(found[best] if best.formula != "label" else ())
        for row in mates:
            row.reading = best
        _count_again(mates, best)
    for mates in tables.values():
        _take_shape_of_mates(mates)
    for mates in undecided:
        reading = _best_of_file(tally, tried.readings) if not _solve_layers(mates, tally, tried.readings) else None
        if reading is not None and _is_of_none(reading, mates):
            reading = None
        for row in mates:
            row.reading = row.reading or reading
    for mates in tables.values():
        _take_usual_layers(mates)
        _solve_layers([row for row in mates if not row.layers], tally, tried.readings)
    for mates in tables.values():
        _agree_without_shape([row for row in mates if row not in agreed])
    usual = Counter(row.reading.vocab for row in rows if row.reading is not None and row.reading.vocab)
    for row in rows:
        row.vocab = (
            row.record.vocab or (row.reading.vocab if row.reading else None) or (usual.most_common(1)[0][0] if usual else None)
        )


def _take_what_is_stated(mates: list[Row]) -> None:
    """The formula and the parameters that the text has, where rows follow them within what means scatter, and hardly any row
    follows the formula that was found."""
    attentions = stated.said_of(mates[0]).attentions
    done = [(row, rate) for row in mates if row.tabular and (rate := _done(row)) is not None] if attentions else []
    follow = sum(row.reading is not None and row.reading.formula not in ("label", ALIKE) and row_fits(row, row.reading)
                 for row, _ in done)  # fmt: skip
    if not done or 2 * follow > len(done):
        return
    best, most = None, 0
    for attention in sorted(attentions):
        # Where attention is not counted nothing depends on the length.
        reading = Reading(formula=STATED_FORMULA, recompute="none", attention=attention, seq=None if attention else 1)
        agree = sum(abs(math.log(rate * (row.seq or 1) / each)) < AS_STATED + may for row, (rate, may) in done
                    if (each := reading.per_sample(row)))  # fmt: skip
        best, most = (reading, agree) if agree > most else (best, most)
    if best is None or most < 2 or 2 * most < len(done):
        return
    for row in mates:
        if best.per_sample(row) is not None:
            row.reading = best


AS_STATED = 0.025


def _done(row: Row) -> tuple[float, float] | None:
    """FLOPs of a token as the row has them, by TFLOPs or by a share of the peak that the text gives; and what digits leave."""
    record, world = row.record, row.world
    name = "tflops" if record.tflops else "mfu"
    each = record.tokens_per_s_per_process or record.tokens_per_s and world and record.tokens_per_s / world
    if not each and record.sec_per_it and record.gbs and world and row.seq:
        each = record.gbs * row.seq / record.sec_per_it / world
    tflops = record.tflops or record.mfu and record.mfu * (stated.peak_of(row) or 0.0)
    figure = row.printed(name)
    if not each or not tflops or figure is None:
        return None
    return tflops * 1e12 / each, figure.slack


def _is_of_none(reading: Reading, mates: list[Row]) -> bool:
    """Whether a reading of other tables gives the TFLOPs of hardly any row here, where lengths of their own tell it: attention
    is counted in several ways, and shows where sequences are long."""
    known = [row for row in mates[:_MOST_ROWS] if row.layers and row.hidden]
    lengths = {row.record.seq for row in known if row.shows("seq")}
    return len(lengths) >= SEVERAL and sum(row_fits(row, reading) for row in known) <= len(known) // 3


SEVERAL = 3


def _count_again(mates: list[Row], reading: Reading) -> None:
    """FLOPs of the hardware: where most rows that recompute, as their cells say, count the forward pass again, and the others
    do not, each is read by its own factor."""
    kinds: dict[str, list[Row]] = {}
    for row in mates:
        if row.record.recompute and row.shows("recompute"):
            kinds.setdefault(row.record.recompute, []).append(row)
    for kind, rows in kinds.items() if len(kinds) > 1 else ():
        usual = sum(row_fits(row, reading) for row in rows[:_MOST_ROWS])
        both = rows[0].sheet.text(rows[0]).counts_twice
        for formula in dict.fromkeys((reading.formula, "sc21", "hardware")) if both else (reading.formula,):
            other = replace(reading, formula=formula, recompute="full" if kind == "full" else "none")
            fitting = [row for row in rows[:_MOST_ROWS] if other != reading and row_fits(row, other)]
            if len(fitting) >= (max(1, 0.4 * len(rows)) if both else max(2, 0.6 * len(rows[:_MOST_ROWS]))) and not usual:
                for row in rows:
                    row.reading = other
                break


def _convincing(reading: Reading, fitting: list[Row], mates: list[Row], known: list[Row]) -> bool:
    """A few rows with coarse digits agree with something by chance; a third of the rows do not, and neither do fine digits."""
    agreeing = fitting if len(mates) <= _MOST_ROWS else [row for row in mates[:_MOST_ROWS] if row_fits(row, reading)]
    if reading.formula == "label":
        return len(agreeing) >= min(2, len(mates)) and 3 * len(agreeing) >= len(mates[:_MOST_ROWS])
    return len(agreeing) >= CONVINCING * max(1, len(known[:_MOST_ROWS])) or (
        sum(slack(row) < FINE_DIGITS for row in agreeing) >= 2)  # fmt: skip


def slack(row: Row) -> float:
    """How far time and TFLOPs may miss each other within their printed digits."""
    sec, shown = row.printed("sec_per_it"), row.printed("tflops")
    return (sec.slack if sec else 0.0) + (shown.slack if shown else 0.0)


Span = tuple[Row, list[tuple[float, float]]]


def _matched(rows: list[Row], tried: Candidates) -> dict[Reading, list[Row]]:
    """Reading -> the rows that it fits; without those that fit none."""
    # Asked more often than anything else: rows of one model need the same FLOPs but for what TP and PP add in some formulas,
    # and most formulas miss all of them by far.
    models: dict[tuple[object, ...], list[Span]] = {}
    for row in rows[: 2 * _MOST_ROWS]:
        if row.layers and row.hidden or row.record.size_label:
            models.setdefault(_shape(row), []).append((row, _ranges(row)))
    matched: dict[Reading, list[Row]] = {}
    for shape, spans in models.items():
        by_tp: dict[float, list[Span]] = {}
        layouts: dict[tuple[float, float], list[Span]] = {}
        for span in spans:
            tp, pp = span[0].get("tp") or 1, span[0].get("pp") or 1
            by_tp.setdefault(tp, []).append(span)
            layouts.setdefault((tp, pp), []).append(span)
        ranges = [each for _, some in spans for each in some]
        if not ranges:
            continue
        first, most_tp = spans[0][0], int(max(by_tp))
        bounds = min(low for low, _ in ranges), max(high for _, high in ranges)
        for family, ends in zip(tried.families, _ends(first, shape, tried, layouts)):
            open_ = _named(first, family.least)
            if ends is None or not _reached(ranges, bounds, (ends[0] * (1 - open_), ends[1] * (1 + open_)), family.scales):
                continue
            of_pp = family.least.formula in OF_PP
            least, most = bounds[0] * (1 - open_), bounds[1] * (1 + open_)
            for some in (layouts if of_pp else by_tp).values() if family.of_layout else (spans,):
                tp = int(some[0][0].get("tp") or 1)
                by_scale: dict[float, list[Row]] = {}
                for at, alike in enumerate(family.alike):
                    if not at or not first.vocab:  # else the vocabulary is the row's, whatever the reading tries
                        asked = family.of_layout and (of_pp or first.vocab)
                        each = alike[0].per_sample(some[0][0]) if asked else family.between(ends, alike[0].vocab, tp, most_tp)
                        by_scale = {}
                    for reading in alike if each is not None else ():
                        if reading.scale not in by_scale:
                            cost = each / reading.scale  # type: ignore[operator]
                            by_scale[reading.scale] = [row for row, ranges in some if _within(cost, ranges, open_)] if (
                                least <= cost <= most) else []  # fmt: skip
                        if fitting := by_scale[reading.scale]:
                            matched.setdefault(reading, []).extend(fitting)
    return matched


def _ends(row: Row, shape: tuple[object, ...], tried: Candidates,
          layouts: Iterable[tuple[float, float]]) -> list[tuple[float, float] | None]:  # fmt: skip
    """The fewest and the most FLOPs of each family, which grow with vocabulary, TP and PP: one model recurs in many tables."""
    tp, pp = max(tp for tp, _ in layouts), max(pp for _, pp in layouts)
    key, known = (tried, shape, tp, pp), row.sheet.ends
    if key not in known:
        known[key], others = [], dict[object, tuple[float, tuple[float, float] | None]]()
        for family in tried.families:
            least, passes = family.least, 4 if family.least.recompute == "full" else 3
            # Recomputing all of it is a pass more in every formula but one, which leaves the logits out.
            alike = None if least.formula == "hardware" else (least.formula, least.plain, least.seq)
            if alike in others:
                of_others, ends = others[alike]
                known[key].append(ends and (ends[0] * passes / of_others, ends[1] * passes / of_others))
                continue
            large = {"tp": tp, "pp": pp} if family.of_layout else {}
            low = least._per_sample(row, dict.fromkeys(large, 1.0))
            same = (family.most is least or row.vocab) and not large
            high = low if same else family.most._per_sample(row, large)
            known[key].append(None if low is None or high is None else (low, high))
            if alike:
                others[alike] = passes, known[key][-1]
    return known[key]


def _reached(ranges: list[tuple[float, float]], bounds: tuple[float, float], ends: tuple[float, float],
             scales: list[float]) -> bool:  # fmt: skip
    """Whether a row lies between the fewest and the most FLOPs of a family, in one of its units."""
    for scale in scales:
        least, most = ends[0] / scale, ends[1] / scale
        for start, end in ranges if least <= bounds[1] and bounds[0] <= most else ():
            if least <= end and start <= most:
                return True
    return False


def _shape(row: Row) -> tuple[object, ...]:
    """All that the FLOPs of a sequence depend on but for TP and PP."""
    record = row.record
    return (row.layers, row.hidden, row.seq, row.vocab, record.size_label, record.family, record.heads, record.kv_heads,
            record.ffn, row.mixture)  # fmt: skip


STATED = 3.0
"""How many rows a formula is worth that the text writes down: means over other iterations agree with none to their digits."""
UNUSUAL = {"hardware": 1.0, "palm": 1.5, "parameters": 1.5, "label": 2.0}
"""How many rows more a formula must explain that tables are rarely made with."""


def _best(matched: dict[Reading, list[Row]], tally: Counter[Reading], tried: Candidates) -> Reading | None:
    """The reading that most rows follow; what the rest of the file follows, and what is usual, counts as a row or so."""
    if not matched:
        return None
    first = tried.first_vocabularies
    records = [row.record for row in set[Row]().union(*matched.values())]
    stated = {record.recompute for record in records if record.recompute}
    gated = any(map(is_gated, {record.family for record in records}))
    unusual = {**UNUSUAL, "hardware": 0.25, "megatron-2022-old": 0.75} if gated else UNUSUAL
    first_row = next(iter(matched.values()))[0]
    if by_text := first_row.sheet.text(first_row).formula:
        unusual = {**unusual, by_text: -STATED}

    def score(reading: Reading) -> tuple[float, int]:
        elsewhere = tally[reading] - len(matched[reading])
        rare = unusual.get(reading.formula, 0.0) + 0.5 * (reading.vocab != first[reading.formula]) + 0.5 * reading.plain
        rare += 0.5 * bool(stated and reading.recompute not in stated)
        return len(matched[reading]) + min(0.9, 0.15 * max(0, elsewhere)) - rare, -tried.places[reading]

    return max(matched, key=score)


def _best_of_file(tally: Counter[Reading], order: tuple[Reading, ...]) -> Reading | None:
    best = max(order, key=lambda r: tally[r] - UNUSUAL.get(r.formula, 0.0), default=None)
    return best if best is not None and tally[best] and best.formula != "label" else (order[0] if order else None)


def borrow_hidden(sheet: Sheet) -> None:
    """A row without a hidden size takes that of rows with its label, else of the nearest row above: solving will prove it.
    Sequence and vocabulary come from its table, where that has one."""
    for mates in sheet.tables.values():
        for name in ("seq", "vocab"):
            known = {getattr(row.record, name) for row in mates} - {None}
            for row in mates if len(known) == 1 else ():
                setattr(row, name, getattr(row, name) or min(known))
    for rows in sheet.files.values():
        by_label: dict[str, Counter[int]] = {}
        for row in rows:
            if row.record.hidden and row.record.size_label:
                by_label.setdefault(row.record.size_label, Counter())[row.record.hidden] += 1
        last = None
        for row in rows:
            last = row.record.hidden or last
            if row.hidden is None:
                same = by_label.get(row.record.size_label)
                row.hidden = same.most_common(1)[0][0] if same else last


def _solve_layers(rows: list[Row], tally: Counter[Reading], readings: tuple[Reading, ...]) -> bool:
    """Layers are whole and divide over the stages, and only the right formula gives such numbers row after row."""
    rows = [row for row in rows if not row.layers and row.hidden]
    if not rows:
        return False
    order = sorted(readings, key=lambda reading: -tally[reading])
    solved = {
        reading: [(row, n) for row in rows[:_MOST_ROWS] if (n := whole_layers(row, reading)) is not None] for reading in order
    }
    best = max(order, key=lambda reading: (len(solved[reading]), tally[reading]), default=None)
    if best is None or len(solved[best]) < max(1, len(rows) // 2):
        return False
    for row in rows:
        layers = whole_layers(row, best)
        row.reading = best
        if layers is not None:
            row.layers = layers
    return True


ENOUGH_ALIKE = 3
"""Rows of one width that have the same layers."""


def _take_usual_layers(mates: list[Row]) -> None:
    """The one row of a table that is off is one with a slip, and no model of its own beside those of the others, which have one
    width and the same layers."""
    left = [row for row in mates if not row.layers and _flops_of_a_sequence(row) is not None]
    others = {(mate.layers, mate.hidden, mate.record.size_label, mate.reading) for mate in mates if mate not in left}
    if len(left) == 1 and len(others) == 1 and len(mates) > ENOUGH_ALIKE and not left[0].record.layers:
        layers, hidden, label, reading = others.pop()
        if layers and reading is not None and (left[0].hidden, left[0].record.size_label) == (hidden, label):
            left[0].layers, left[0].reading = layers, reading


def _take_shape_of_mates(mates: list[Row]) -> None:
    """A row under another label whose TFLOPs agree with the model of the other rows is a row of that model."""
    donors = {
        (row.layers, row.hidden, row.seq, row.vocab): row
        for row in mates
        if row.layers and row.hidden and row.reading is not None
    }
    for row in mates:
        if row.layers:
            continue
        if not (ranges := _ranges(row)):
            continue
        bounds = min(low for low, _ in ranges), max(high for _, high in ranges)
        for (layers, hidden, seq, vocab), donor in itertools.islice(donors.items(), _MOST_ROWS):
            if not _may_take(row, donor, bounds):
                continue
            before = row.hidden, row.seq, row.vocab, row.reading
            row.layers, row.hidden, row.reading = layers, hidden, donor.reading
            row.seq, row.vocab = row.seq or seq, row.vocab or vocab
            if row.reading is not None and _fits_one(row, row.reading, ranges):
                break
            row.layers, (row.hidden, row.seq, row.vocab, row.reading) = None, before


def _may_take(row: Row, donor: Row, bounds: tuple[float, float]) -> bool:
    """Whether the FLOPs of a row with the shape of another may be what its figures say: they are no fewer than those of queries
    and outputs, and no more than those of everything that any formula counts."""
    reading, layers, hidden = donor.reading, donor.layers or 0, donor.hidden or 0
    if reading is None or reading.formula in ("label", ALIKE):
        return True
    seq, vocab = row.seq or donor.seq or reading.seq or 0, row.vocab or donor.vocab or reading.vocab or 0
    tp, pp = row.get("tp") or 1, row.get("pp") or 1
    of_a_layer = 16.0 * hidden + 3 * (row.record.ffn or 0) + 4 * seq + 6 * tp + 1000
    most = 8.0 * seq * hidden * (layers * of_a_layer + 2 * (vocab + 128 * tp) + 2 * tp * pp)
    return bounds[0] * reading.scale <= most and 12.0 * seq * layers * hidden * hidden <= bounds[1] * reading.scale


def _agree_without_shape(mates: list[Row]) -> None:
    """Rows of one model need the same FLOPs for a sequence, whatever they are: time x TFLOPs x processes / batch."""
    models: dict[tuple, list[Row]] = {}
    for row in mates:
        if row.reading is None or row.reading.per_sample(row) is None:
            record = row.record
            models.setdefault((record.size_label, record.layers, record.hidden, record.seq, record.recompute), []).append(row)
    for rows in models.values():
        figures = {row: figure for row in rows[:_MOST_ROWS] if (figure := _flops_of_a_sequence(row)) is not None}
        if len(figures) < 3:
            continue
        middle = statistics.median(figures.values())
        agreeing = [row for row, figure in figures.items() if abs(math.log(figure / middle)) < slack(row) + ALIKE_SLACK]
        if len(agreeing) >= max(3, ONE_MODEL * len(figures)):
            each = statistics.median(figures[row] for row in agreeing)
            for row in rows:
                row.reading = Reading(formula=ALIKE, recompute="none", each=each)


def _flops_of_a_sequence(row: Row) -> float | None:
    record, world = row.record, row.counted or row.product
    if not record.sec_per_it or not record.tflops or not record.gbs or not world:
        return None
    return record.sec_per_it * record.tflops * world * 1e12 / record.gbs


def whole_layers(row: Row, reading: Reading) -> int | None:
    """The one number of layers that is whole, divides over the stages, and that the printed digits allow."""
    bounds = reading.solve_layers(row)
    if bounds is None or bounds[1] - bounds[0] > 0.5:
        return None
    layers, pp = math.ceil(bounds[0] - 1e-6), row.get("pp") or 1
    if layers < 1 or layers > bounds[1] + 1e-6 or (layers % pp and (layers + 2) % pp):
        return None
    size = label_parameters(row.record.size_label)
    rough = 12.0 * layers * (row.hidden or 0) ** 2
    return layers if size is None or 0.5 < rough / size[0] < 1.5 else None


def _report_solved(rows: list[Row]) -> list[Finding]:
    """Once for each model of a table."""
    found, reported = [], set()
    for row in rows:
        key = (row.key, row.record.size_label, row.layers, row.hidden)
        if not row.layers or row.record.layers or row.reading is None or key in reported:
            continue
        reported.add(key)
        bounds = row.reading.solve_layers(row)
        if row.guessed:
            shape = f'{row.layers} layers x {row.hidden} as "{row.record.size_label}" has elsewhere'
            message = f"shape not stated: {shape}; the TFLOPs agree by {row.reading}"
        elif bounds is not None:
            message = (
                f"layers not stated: {row.layers} solved from time and TFLOPs by {row.reading} with hidden {row.hidden} "
                f"({sum(bounds) / 2:.3f})"
            )
        else:
            continue
        found.append(row.find("layers-solved", "info", message, proposed=str(row.layers)))
    return found
