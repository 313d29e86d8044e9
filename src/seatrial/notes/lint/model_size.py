"""Size labels against layers and hidden size. Labels count the embedding or leave it out: either, but one of them a table."""

from __future__ import annotations

import math
from collections import Counter

from seatrial import arith
from seatrial.errors import BadInput
from seatrial.notes.lint.consensus import slack
from seatrial.notes.lint.finding import Finding
from seatrial.notes.lint.formulas import COMMON_VOCABULARIES, label_parameters
from seatrial.notes.lint.sheet import Row, Sheet
from seatrial.spec import Model, is_gated

_LOOSE = 0.06
"""Labels are names as much as numbers: 345M has 355 million parameters, 7B has 6.7."""
_CERTAIN = 0.2


def sizes(row: Row) -> tuple[float, float, float] | None:
    """Parameters without the embedding, and with it for the smallest and the largest vocabulary that may be meant."""
    record, layers, hidden = row.record, row.layers, row.hidden
    if not layers or not hidden:
        return None
    known = record.vocab or row.vocab
    vocabularies = [known] if known else [min(COMMON_VOCABULARIES), max(COMMON_VOCABULARIES)]
    llama = is_gated(record.family)
    heads = record.heads if llama and record.heads and hidden % record.heads == 0 and hidden // record.heads % 2 == 0 else 1
    try:
        models = [
            Model(
                layers=layers,
                hidden=hidden,
                heads=heads,
                kv_heads=record.kv_heads if llama else None,
                ffn=record.ffn,
                vocab=vocab or 1,
                seq=record.seq or 2048,
                family="llama" if llama else "gpt2",
            )
            for vocab in vocabularies
        ]
    except BadInput:
        return None
    counted = [arith.label_sizes(model) for model in models]
    return counted[0][1] * 1e9, counted[0][0] * 1e9, counted[-1][0] * 1e9


def check(sheet: Sheet) -> list[Finding]:
    found: list[Finding] = []
    wrong = set()
    for row in sheet.rows:
        finding = _mismatch(row)
        if finding is not None:
            wrong.add(row)
            found.append(finding)
    for rows in sheet.files.values():
        found += _two_labels([row for row in rows if row not in wrong])
    for mates in sheet.tables.values():
        found += _mixed([row for row in mates if row not in wrong])
    return found


def _mismatch(row: Row) -> Finding | None:
    size, counted = label_parameters(row.record.size_label), sizes(row)
    if size is None or counted is None:
        return None
    label, half = size
    without, low, high = counted
    if not row.record.vocab:
        # A vocabulary that nobody stated may be any, unless the TFLOPs tell it: the label only has to lie between.
        if row.reading is None or row.reading.vocab is None:
            high = max(high, low + (max(COMMON_VOCABULARIES) - (row.vocab or 0)) * (row.hidden or 0))
        low = without
    if any(a * (1 - _LOOSE) - half <= label <= b * (1 + _LOOSE) + half for a, b in ((without, without), (low, high))):
        return None
    off = min(abs(math.log(label / value)) for value in (without, low, high))
    agrees = row.reading is not None and row.reading.fits(row) and slack(row) < 0.01
    certain = off > _CERTAIN and not row.guessed and (agrees or row.states("layers"))
    unit = row.record.size_label.strip()[-1:].upper()
    scale = {"M": 1e6, "T": 1e12}.get(unit, 1e9)
    billions = counted[1] / scale
    decimals = 1 if billions < 10 and "." in row.record.size_label else 0
    proposed = f"{billions:.{decimals}f}{unit if unit in 'MBT' else 'B'}"
    said = (
        f'"{row.record.size_label}": {row.layers} layers x {row.hidden} are {counted[1] / 1e9:.4g}B with the embedding, '
        f"{without / 1e9:.4g}B without"
    )
    return row.find("label-vs-params", "error" if certain else "warning", said, name="size_label", proposed=proposed)


def _two_labels(rows: list[Row]) -> list[Finding]:
    """One shape under two labels that are not the same number rounded."""
    shapes: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        if row.layers and row.hidden and label_parameters(row.record.size_label):
            shapes.setdefault((row.layers, row.hidden), []).append(row)
    found = []
    for (layers, hidden), group in shapes.items():
        labels = Counter(row.record.size_label for row in group)
        if len(labels) < 2:
            continue
        for row in group:
            other = next((mate for mate in group if _apart(row.record.size_label, mate.record.size_label)), None)
            counted = sizes(row)
            if other is None or counted is None:
                continue
            said = (
                f'"{row.record.size_label}" and "{other.record.size_label}" ({other.where}) are {layers} layers x {hidden}: '
                f"{counted[0] / 1e9:.4g}B without the embedding, {counted[1] / 1e9:.4g}B with it"
            )
            found.append(row.find("label-vs-params", "warning", said, name="size_label"))
    return found


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
            found.append(
                row.find(
                    "label-convention",
                    "warning",
                    f'"{row.record.size_label}" counts {habit} the embedding ({counted[0] / 1e9:.4g}B without, '
                    f"{counted[1] / 1e9:.4g}B with), most labels of the table {usual} it",
                    name="size_label",
                )
            )
    return found
