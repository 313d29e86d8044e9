"""What sentences say of a device that its data sheet knows: how many TFLOPs it does at most, and how much memory it has.

    check(sheet)          findings on peaks and sizes that no device of the file has

    MFU is against 899 TFLOP/s.                 of a file that names an H100, which does 989
    MFU is against 1979 TFLOP/s.                though TFLOPs and MFU of all rows are those of 989
    8x MI300X (1920 GB each)                    192

A peak is no result: nearly every figure of TFLOPs in a sentence that no row has is one. It is wrong where a slip of the hand
made it of the peak of a device that the file names, or where the rows say by their MFU over which figure they are.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint import digits
from seatrial.notes.lint.findings import Finding
from seatrial.notes.lint.models.devices import KINDS, OF_DEVICES_SOLD, PEAKS_SOLD, device_named
from seatrial.notes.lint.models.peaks import OTHERS
from seatrial.notes.lint.models.stated import said_of
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.figures import Figure, figures
from seatrial.notes.lint.text.sentences import Sentence

MOST_LINES, ENOUGH_ROWS, MOST_ROWS = 4000, 3, 60
NEAR, GIVEN, HALF = 0.012, 0.03, 0.002
"""Within which a figure is that of a data sheet, is that of a row, and is the half of a peak."""
BUSY = 0.75
"""Of its peak no run reaches as much: a figure beyond it is none of a run."""
COST, LEAST = (0.85, 1.05), 0.7
"""How much less than six times the parameters, and more than that with attention, a token may be counted as; of TFLOPs that
count attention, or what is worked out again, those that the MFU counts are at least."""
_A_PEAK = re.compile(r"peak|dense|\bdicht|pico\b|пик|spitze|piek|picco|crete|ceiling|\b[mh]fu\b|utili[sz]|auslastung|"
                     r"ピーク|峰|利用率|피크|szczyt|\b(?:b?fp?|tf)(?:16|32)\b|percentages?", re.IGNORECASE)  # fmt: skip
_BEFORE = re.compile(r"(?:peak|dense|\bdicht|pico\b|пик|spitze|piek|picco|crete|ceiling|ピーク|峰|피크|szczyt)[^.;\d]{0,28}$|"
                     r"(?:\b[mh]fu\b|utili[sz]\w*|auslastung|percentages?|prozent\w*|利用率)[^.;]{0,60}?(?:[÷/]|\b(?:over|against|"
                     r"to|by|at|and|gegen|auf|bei|sur|rapporte a|refiere a|sobre|contra|su|van|tegen|по|к|от|和|对|按))\s?"
                     r"(?:the |a |die |den |dense |our |[A-Z]\d{2,3}'?s? )*$", re.IGNORECASE)  # fmt: skip
_BEHIND = re.compile(r"[^\d.;,]{0,18}?(?:dense|peak|dicht|crete|de pico|\(?(?:b?fp?|tf)(?:16|32)\b)", re.IGNORECASE)
"""Right before a peak, and right behind it."""
_KIND = re.compile(KINDS, re.IGNORECASE)
_HALF = re.compile(r"\btf32\b|\bfp32\b|half|causal|GCD|PCIe", re.IGNORECASE)
_BY_HAND = ("the point moved", "two digits exchanged")
_HAS = re.compile(rf"({KINDS})[^\d;.|]{{0,20}}?(?:SXM\d?[^\d;.|]{{0,6}})?(?<![\d.,])(\d{{1,4}}) ?(?:G(?:i?B|i?o)|ГБ)\b"
                  r"(?! ?(?:per|a|par|je|pro|por|на|/) ?(?:node|n(?:oe)?u?d|Knoten|узел|box|host))", re.IGNORECASE)  # fmt: skip
_TYPED = ("two digits exchanged", "a digit too many", "a digit lost", "the point moved")


@dataclass(frozen=True, kw_only=True)
class _File:
    """What a file names, and its rows."""

    name: str
    rows: list[Row]
    names: frozenset[str]
    alone: bool
    """Whether it speaks of one kind of device, and of 16 bits."""


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    for file, text in sheet.prose.items():
        if len(text.lines) > MOST_LINES:
            continue
        its = [(sentence, one) for sentence in text.sentences if "flop" in sentence.text.casefold()
               for one in figures(sentence.text) if one.kind == "tflops"]  # fmt: skip
        if its:
            rows = sheet.files.get(file, [])[:MOST_ROWS]
            names = _names("\n".join((*text.lines, *(row.text for row in rows))))
            alone = len({peak for name in names for peak in _peaks(name)}) == 1 and not text.has("fp8", "float8", "8-bit")
            known = _File(name=file, rows=rows, names=names, alone=alone)
            for sentence, one in its:
                found += _of_peak(known, sentence, one)
        for sentence in text.sentences:
            found += _of_memory(file, sentence)
    return found


@lru_cache(maxsize=64)
def _names(text: str) -> frozenset[str]:
    return frozenset(match[0].casefold() for match in _KIND.finditer(text))


@lru_cache(maxsize=256)
def _peaks(name: str) -> tuple[float, ...]:
    """With numbers of 16 bits, of a card and of its half."""
    device = device_named(name)
    if device is None:
        return ()
    half = device.peak_tflops.get("bf16") or device.peak_tflops.get("fp16")
    most = max(device.peak_tflops.values(), default=0.0)
    return (half,) if half else (most, most / 2) if name.startswith("mi250") and most else ()


@lru_cache(maxsize=256)
def _sheet(name: str) -> tuple[float, ...]:
    """All that a data sheet has, with zeros and without, but for numbers of which no run is told."""
    device = device_named(name)
    its = [peak for kind, peak in device.peak_tflops.items() if kind != "tf32"] if device is not None else []
    return tuple(peak * times for peak in (*its, *_peaks(name)) for times in (1.0, 2.0))


def _of_peak(file: _File, sentence: Sentence, one: Figure) -> Iterator[Finding]:
    peaks = {peak for name in _names(sentence.text) or file.names for peak in _peaks(name)}
    plainly = _BEFORE.search(sentence.text[: one.start]) is not None or _BEHIND.match(sentence.text, one.end) is not None
    sold = one.value in PEAKS_SOLD or any(one.near(peak, NEAR) for name in file.names for peak in _sheet(name))
    if not sold and (plainly or not any(one.near(done, GIVEN) for row in file.rows if (done := row.record.tflops))):
        surely = plainly or _A_PEAK.search(sentence.text) is not None
        shown = one.text.replace(" ", "")
        meant = {peak: slip for peak in sorted(peaks) for slip in digits.slips(shown, (peak * (1 - NEAR), peak * (1 + NEAR)))
                 if slip.how in _BY_HAND and (surely or one.value > BUSY * peak)}  # fmt: skip
        if len(meant) == 1:
            _, slip = meant.popitem()
            right = f"{slip.value:g}".replace(".", "," if "," in shown else ".")
            yield _finding(file, sentence, one, right, f"so many TFLOPs does the device at most ({slip.how})")
            return
        if not meant and plainly and len(peaks) == 1 and one.near(min(peaks) / 2, HALF) and not _HALF.search(sentence.text):
            why = "half of what the device does at most"
            yield replace(_finding(file, sentence, one, one.like(min(peaks)), why), level="warning")
            return
    peak = _over(file.rows, one) if file.alone and plainly else None
    if peak and not re.search(rf"(?<![\d.,]){peak:g}(?!\d)", sentence.text):
        yield _finding(file, sentence, one, one.like(peak), "the MFU of all rows is over so many")


def _over(rows: list[Row], one: Figure) -> float | None:
    """The one peak that the MFU of all rows may be over, as TFLOPs have it or what a token costs, where it is over another
    than the text says."""
    found: list[float] = []
    for row in rows:
        share, span = row.record.mfu, _span(row)
        if not share or not span:
            continue
        names = _names(row.text) or _names("\n".join(row.sheet.text(row).lines))
        known = {peak for name in names for peak in _peaks(name) if span[0] <= share * peak <= span[1]}
        if len(known) != 1 or span[0] <= share * one.value <= span[1]:
            return None
        found += known
    return found[0] if len(found) >= ENOUGH_ROWS and len(set(found)) == 1 and any(
        one.near(found[0] * times, NEAR) for times in OTHERS) else None


def _span(row: Row) -> tuple[float, float] | None:
    """TFLOPs of a device of the row, at least and at most, as its MFU may count them."""
    if row.record.tflops and row.shows("tflops"):
        return LEAST * row.record.tflops, COST[1] * row.record.tflops
    rate = row.record.tokens_per_s_per_process or (row.record.tokens_per_s or 0.0) / (row.world or 1)
    size = said_of(row).parameters(row.record.size_label) or (label_parameters(row.record.size_label) or (0.0, 0.0))[0]
    if not rate or not size or row.mixture or not row.layers or not row.hidden or not row.seq or row.guessed:
        return None
    each = COST[0] * 6 * size, COST[1] * (6 * size + 12 * row.layers * row.hidden * row.seq)
    return rate * each[0] / 1e12, rate * each[1] / 1e12


def _of_memory(file: str, sentence: Sentence) -> Iterator[Finding]:
    """A size that no device has, and from which a slip of the hand leads to that of the one that is named."""
    for match in _HAS.finditer(sentence.text):
        device, value = device_named(match[1]), int(match[2])
        size = 0 if device is None else min(OF_DEVICES_SOLD, key=lambda one: abs(one - device.memory_gib))
        if not size or value in OF_DEVICES_SOLD or value > size and value % size == 0 and value != 10 * size:
            continue
        slip = digits.slip(match[2], (size, size))
        if slip is not None and slip.how in _TYPED:
            message = f"{match[1]} {match[2]} GB -> {size} ({slip.how}): as the data sheet has it"
            yield Finding(file=file, line=sentence.line_at(match.start(2)), code="aggregate", level="error",
                          message=message, column="memory", printed=match[2], proposed=str(size))  # fmt: skip


def _finding(file: _File, sentence: Sentence, one: Figure, right: str, why: str) -> Finding:
    return Finding(file=file.name, line=sentence.line_at(one.start), code="over-peak", level="error", column="peak",
                   message=f"{one.text} -> {right}: {why}", printed=one.text, proposed=right)  # fmt: skip
