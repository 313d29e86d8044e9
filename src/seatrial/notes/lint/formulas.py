"""How the TFLOPs of a row may have been worked out, and whether time and TFLOPs agree under that reading.

    Reading(formula="sc21", recompute="full").tflops(row)             what the cell should say
    Reading(formula="sc21", recompute="full").fits(row)               within what the printed digits hide

Beside the named formulas of `arith` there are the habits of people with a pocket calculator: `parameters` (2 f x all parameters
x tokens), `palm` (the same and the attention, Chowdhery et al. 2022, appendix B) and `label` (the size label as the number of
parameters).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from seatrial import arith
from seatrial.notes.lint.digits import Printed, overlap
from seatrial.spec import Model, is_gated

if TYPE_CHECKING:
    from seatrial.notes.lint.sheet import Row

FORMULAS = ("sc21", "megatron-2022-old", "hardware", "palm", "parameters", "label")
ALIKE = "alike"
COMMON_VOCABULARIES = (50257, 32000, 128256, 250680, 50304, 51200, 100352, 151936, 256000, 30522)
"""Tokens of the tokenizers in wide use, tried where the text states none."""
COMMON_SEQUENCES = (2048, 1024, 4096, 8192, 512)
_CUTS = ((True, False), (False, True), (True, True))
"""Whether digits were cut off the time, and off the TFLOPs."""
_LABEL = re.compile(r"(\d+(?:\.\d+)?) ?([KMBT])", re.IGNORECASE)


@functools.cache
def label_parameters(label: str) -> tuple[float, float] | None:
    """Parameters and half a step of the last digit of a label: '1.3B' -> (1.3e9, 0.05e9)."""
    match = _LABEL.search(label)
    if match is None:
        return None
    scale = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}[match[2].lower()]
    return float(match[1]) * scale, 0.5 * 10.0 ** -len(match[1].partition(".")[2]) * scale


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

    def __str__(self) -> str:
        if self.formula == ALIKE:
            return "what the other rows of the model have"
        factor = {"sc21": "96" if self.recompute == "full" else "72"}.get(
            self.formula, "8" if self.recompute == "full" else "6"
        )
        return f"{self.formula} (factor {factor})" + (" per node" if self.per == "node" else "")

    def per_sample(self, row: Row, **other: float) -> float | None:
        """FLOPs of one sequence, or None where the shape is not known. `other` replaces fields of the row."""
        if self.formula == ALIKE:
            return None if {"layers", "hidden", "seq"} & set(other) else self.each
        layers, hidden, seq, vocab = row.layers, row.hidden, row.seq or self.seq, row.vocab or self.vocab
        tp, pp = row.get("tp") or 1, row.get("pp") or 1
        if other:
            layers, hidden = other.get("layers", layers), other.get("hidden", hidden)  # type: ignore[assignment]
            seq, vocab = other.get("seq", seq), other.get("vocab", vocab)  # type: ignore[assignment]
            tp, pp = other.get("tp", tp), other.get("pp", pp)
        if not seq:
            return None
        if self.formula == "label":
            size = label_parameters(row.record.size_label)
            return None if size is None else 2.0 * (4 if self.recompute == "full" else 3) * size[0] * seq
        if not layers or not hidden or (not vocab and self.formula != "megatron-2022-old"):
            return None
        record = row.record
        shape = ("", None, None, None) if self.plain else (record.family, record.heads, record.kv_heads, record.ffn)
        return _per_sample(
            self.formula, self.recompute, layers, int(hidden), int(seq), int(vocab or 1), int(tp), int(pp), *shape
        )

    def tflops(self, row: Row, **other: float) -> float | None:
        """The printed TFLOPs that this reading expects for the printed time."""
        sec = row.printed("sec_per_it")
        work = self._work(row, **other)
        return None if sec is None or work is None or sec.value <= 0 else work / sec.value

    def _work(self, row: Row, **other: float) -> float | None:
        """TFLOPs times printed time."""
        return self.work(row, self.per_sample(row, **other), other.get("world", row.world), other.get("gbs"))

    def work(self, row: Row, each: float | None, world: float | None, gbs: float | None = None) -> float | None:
        """The same from the FLOPs of a sequence and the processes."""
        gbs = row.get("gbs") if gbs is None else gbs
        if not each or not gbs or not world:
            return None
        shared = (row.procs or 1) if self.per == "node" else 1
        return each * gbs * shared / (world * self.scale * 1e12)

    def expected(self, row: Row, truncated: bool = False, **other: float) -> tuple[float, float] | None:
        """The range of TFLOPs that belongs to the printed time."""
        return self._range(row, self._work(row, **other), truncated)

    def _range(self, row: Row, work: float | None, truncated: bool) -> tuple[float, float] | None:
        sec = row.printed("sec_per_it")
        if sec is None or work is None:
            return None
        low, high = sec.truncated if truncated else sec.rounded
        return None if low <= 0 else (work / high, work / low)

    def fits_work(self, row: Row, work: float | None) -> bool:
        """`fits` where the work is known."""
        return self._agrees(row, self._range(row, work, False), row.printed("tflops"), truncated=False)

    def fits(self, row: Row, **other: float) -> bool:
        return self._agrees(row, self.expected(row, False, **other), row.printed("tflops"), truncated=False)

    def fits_truncated(self, row: Row, **other: float) -> bool:
        """Whether cutting digits off the time, off the TFLOPs, or off both in place of rounding would explain the row."""
        shown = row.printed("tflops")
        return any(self._agrees(row, self.expected(row, cut[0], **other), shown, truncated=cut[1]) for cut in _CUTS)

    def cut_time(self, row: Row) -> tuple[float, float]:
        """The range of the time before digits were cut off, in the first way that explains the row."""
        sec, shown, work = row.printed("sec_per_it"), row.printed("tflops"), self._work(row)
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
            expected = (expected[0] * 0.993, expected[1] * 1.007)
        return overlap(expected, there.truncated if truncated else there.rounded)

    def ratio(self, row: Row, **other: float) -> float | None:
        """Expected over printed TFLOPs."""
        expected, shown = self.tflops(row, **other), row.printed("tflops")
        return None if expected is None or shown is None or shown.value <= 0 else expected / shown.value

    def solve_layers(self, row: Row) -> tuple[float, float] | None:
        """The range of layer counts that the printed time and TFLOPs allow."""
        if self.formula in ("label", ALIKE):
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
) -> float:
    if layers != int(layers) or layers < 1:
        raise ValueError(f"{layers} layers")
    glu = is_gated(family)
    # Heads matter to no formula but for grouped queries, and a row's heads may be the very cell that is wrong.
    grouped = glu and heads and kv_heads and hidden % heads == 0 and (hidden // heads) % 2 == 0 and heads % kv_heads == 0
    model = Model(
        layers=int(layers),
        hidden=hidden,
        heads=heads if grouped and heads else 1,
        kv_heads=kv_heads if grouped else None,
        vocab=vocab,
        seq=seq,
        ffn=ffn,
        family="llama" if glu and hidden % 2 == 0 else "gpt2",
    )
    if formula in ("parameters", "palm"):
        attention = 2.0 * layers * hidden * seq if formula == "palm" else 0.0
        return 2.0 * (4 if recompute == "full" else 3) * (arith.parameters(model).total + attention) * seq
    return arith.flops(formula, model, samples=1, recompute=recompute, tp=tp, pp=pp)


def rough_vocabulary(row: Row) -> float | None:
    """A vocabulary that the text gives in thousands: `250k`."""
    match = re.fullmatch(r"~?(\d+(?:\.\d+)?)[kK]", row.record.extra.get("vocab", ""))
    return float(match[1]) * 1000 if match else None


def candidates(rows: Iterable[Row], formulas: Iterable[str] = FORMULAS) -> Iterator[Reading]:
    """Every reading worth trying on these rows, the likeliest first."""
    rows = list(rows)
    stated = {row.record.recompute for row in rows if row.record.recompute}
    orders: list[Literal["full", "none", "selective"]] = ["none", "full"] if "none" in stated else ["full", "none"]
    no_vocab = any(not row.vocab for row in rows)
    vocabularies = sorted(COMMON_VOCABULARIES, key=lambda v: not any(_near(v, row) for row in rows))
    no_seq = any(not row.seq for row in rows)
    gated = any(is_gated(row.record.family) for row in rows)
    for formula in formulas:
        modes = [*orders, "selective"] if "selective" in stated and formula == "hardware" else orders
        needs = no_vocab and formula not in ("megatron-2022-old", "label")
        for plain in (False, True) if gated and formula != "label" else (False,):
            for seq in COMMON_SEQUENCES if no_seq else (None,):
                for recompute in modes:
                    for vocab in vocabularies if needs else (None,):
                        yield Reading(formula=formula, recompute=recompute, vocab=vocab, seq=seq, plain=plain)  # type: ignore[arg-type]


def _near(vocab: int, row: Row) -> bool:
    rough = rough_vocabulary(row)
    return rough is not None and abs(vocab / rough - 1) < 0.02


def elsewhere(reading: Reading, row: Row) -> Iterator[Reading]:
    """The other habits that one row of a table may follow: another formula, another factor, the whole node."""
    known = row.vocab or reading.vocab
    formulas = (reading.formula,) if reading.formula == ALIKE else ("sc21", "megatron-2022-old", reading.formula)
    for formula in dict.fromkeys(formulas):
        for vocab in (known,) if known else COMMON_VOCABULARIES[:4]:
            for recompute in ("full", "none"):
                for per in ("process", "node"):
                    other = replace(reading, formula=formula, recompute=recompute, per=per, vocab=vocab)  # type: ignore[arg-type]
                    same = (other.formula, other.recompute, other.per) == (reading.formula, reading.recompute, reading.per)
                    if not same and not (reading.formula == ALIKE and recompute != reading.recompute):
                        yield other
