"""Layers, a width, a batch or a sequence of the text by which no count of FLOPs gives the TFLOPs of the rows.

    check(sheet)          findings, each of the line of text

A token costs six to eight times the parameters, and attention besides, whatever formula was used: rows that agree on more than
twice that or less than half of it are of another shape than the text says.
"""
from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator

from seatrial.notes.labels import label_parameters
from seatrial.notes.lint.findings import Finding, Level
from seatrial.notes.lint.models.formulas import ALIKE, FROZEN
from seatrial.notes.lint.row import Row
from seatrial.notes.lint.sheet import Sheet
from seatrial.notes.lint.text.claimed import bounds, slipped
from seatrial.spec import is_gated
from seatrial.tables.headings import read_heading

ENOUGH_ROWS, MOST_ROWS = 3, 60
LESS, MORE, AGREE = 0.8, 1.22, 0.12
"""How much less than the least and more than the most a token may cost; within which rows agree on it."""
_OF_ANOTHER = re.compile(r"expert|\bMoE\b|mixt|encoder|\bViT\b|diffusion|mamba|\bssm\b", re.IGNORECASE)
_OF_A_STAGE = re.compile(r"stage|Stufe|étage|etapa|stadi|pipeline-num|段|ступен", re.IGNORECASE)
SIDES = ("layers", "hidden", "gbs", "seq")


def check(sheet: Sheet) -> list[Finding]:
    found: dict[tuple[str, int | None, str | None], Finding] = {}
    for mates in sheet.tables.values():
        first = mates[0]
        if first.record.table is None or "tflops" not in sheet.filled(first.key) or len(mates) < ENOUGH_ROWS:
            continue
        if any(row.reading is not None and row.reading.formula not in (ALIKE, "label") and row.reading.fits(row)
               for row in mates[:ENOUGH_ROWS]):
            continue  # a formula gives them
        for finding in _table([row for row in mates[:MOST_ROWS] if row.tabular and not row.planned]):
            found.setdefault((finding.file, finding.line, finding.column), finding)
    return list(found.values())


def _table(mates: list[Row]) -> Iterator[Finding]:
    text = mates[0].sheet.text(mates[0]) if mates else None
    if text is None or text.has("expert", "moe", "lora", "mixtral") and any(map(_OF_ANOTHER.search, text.lines)):
        return
    groups: dict[object, list[Row]] = {}
    for row in mates:
        known = row.layers and row.hidden and (row.record.vocab or row.record.heads) and not row.mixture and not row.guessed
        if known and not row.states("layers") and not row.states("hidden"):
            groups.setdefault((row.record.size_label, row.layers, row.hidden), []).append(row)
    frozen = text.has("lora", "adapter", "fr") and any(map(FROZEN.search, text.lines))
    for rows in groups.values():
        yield from _group(rows, 4.0 if frozen else 6.0)


def _group(rows: list[Row], least: float) -> Iterator[Finding]:
    costs = [(cost, row) for row in rows if (cost := _cost(row, {})) is not None]
    if len(costs) < ENOUGH_ROWS:
        return
    usual = statistics.median(math.log(cost) for cost, _ in costs)
    alike = [row for cost, row in costs if abs(math.log(cost) - usual) < AGREE]
    if len(alike) < max(ENOUGH_ROWS, 0.6 * len(costs)) or any(_may(row, {}, least) for row in alike):
        return
    first = alike[0]
    lines, sides = first.sheet.text(first).lines, [first.stated_above(name) for name in ("layers", "hidden")]
    at = first.layers_line or 0
    words = re.sub(r"(?<=\d)[ ,.](?=\d{3}\b)", "", lines[at - 1]) if 0 < at <= len(lines) else ""
    apart = sides[0] is None or sides[1] is None or sides[0][1] != sides[1][1]
    if apart and not re.search(rf"(?<!\d){first.hidden}(?!\d)", words):
        return  # of two models, perhaps
    if any(_OF_A_STAGE.search(lines[said[1] - 1]) for said in sides if said is not None and said[1] <= len(lines)):
        return  # layers of a stage, which are not the model's
    if read_heading(first.columns.get("tflops", "")).per == "node":
        return
    counts = {row.world or 1 for row in alike} | {first.procs or 1}
    middle = 6.5 * math.sqrt(math.prod(_size(first, {})))
    others = [times for count in counts if count > 1 for times in (count, 1 / count, 1e3, 1e-3)]
    if any(abs(usual - math.log(middle * times)) < 0.25 for times in others):
        return  # of a node, or of all devices
    label = label_parameters(first.record.size_label)
    named = label is not None and _is_named(first, {}, label)
    meant = []
    for name in SIDES:
        said = first.stated_above(name)
        value = said[0] if said is not None else None
        if not isinstance(value, int) or said is None or any(row.states(name) for row in rows):
            continue
        meant += [(name, value, other, said[1]) for other in slipped(value)
                  if all(_may(row, {name: other}, least, tight=True) for row in alike)
                  and (name in ("gbs", "seq") or (label is None or _is_named(first, {name: other}, label))
                       and (name != "hidden" or other % 64 == 0))]  # fmt: skip
    if named:
        meant = [one for one in meant if one[0] in ("gbs", "seq")]
    if not meant:
        return
    by_label = [one for one in meant if one[0] in ("layers", "hidden")] if label is not None and not named else []
    meant = by_label or meant
    names = {one[0] for one in meant}
    name, was, value, line = meant[0]
    level: Level = "error" if by_label and len(names) == 1 else "warning"
    options = " or ".join(f"{n} {other}" for n, _, other, _ in meant)
    message = (f"line {line} says {name} {was}, and by time and TFLOPs of the rows below a token costs "
               f"{math.exp(usual) / 1e9:.3g} GFLOPs, as with no {first.layers} layers x {first.hidden}: {options}")  # fmt: skip
    yield Finding(file=first.record.source_file, line=line, code="header-vs-row", level=level, message=message,
                  column=first.column(name), printed=str(was), proposed=str(value) if len(meant) == 1 else None)  # fmt: skip


def _cost(row: Row, other: dict[str, int]) -> float | None:
    """FLOPs of a token by the row's figures."""
    tflops, each = row.record.tflops, row.record.tokens_per_s_per_process
    if not tflops or row.settled or row.reasons or "tflops" in row.record.inferred:
        return None
    if each and "tokens_per_s_per_process" not in row.record.inferred:
        return tflops * 1e12 / each
    if row.record.tokens_per_s and row.world and "tokens_per_s" not in row.record.inferred:
        return tflops * 1e12 * row.world / row.record.tokens_per_s
    sec, world = row.record.sec_per_it, row.world
    gbs, seq = other.get("gbs", row.record.gbs or 0), other.get("seq", row.seq or 0)
    if not sec or not gbs or not seq or not world or "sec_per_it" in row.record.inferred:
        return None
    return tflops * 1e12 * sec * world / (gbs * seq)


def _size(row: Row, other: dict[str, int]) -> tuple[float, float]:
    record = row.record
    said = {name: int(value) for name in ("ffn", "heads", "kv_heads") if (value := getattr(record, name))}
    if row.vocab:
        said["vocab"] = row.vocab
    said["gated"] = 0 if not is_gated(record.family) else 1
    return bounds(other.get("layers", row.layers or 1), other.get("hidden", row.hidden or 1), said)


def _may(row: Row, other: dict[str, int], least: float, *, tight: bool = False) -> bool:
    """Whether a token may cost as much as the row's figures have it."""
    cost = _cost(row, other)
    if cost is None:
        return True
    low, high = _size(row, other)
    seq, sides = other.get("seq", row.seq or 0), [other.get(name, getattr(row, name) or 1) for name in ("layers", "hidden")]
    most = 8.0 * high + 16.0 * math.prod(sides) * seq
    less, more = (0.97, 1.03) if tight else (LESS, MORE)
    return least * low * less <= cost <= most * more


def _is_named(row: Row, other: dict[str, int], label: tuple[float, float]) -> bool:
    low, high = _size(row, other)
    return low * 0.85 - label[1] <= label[0] <= high * 1.1 + label[1]
