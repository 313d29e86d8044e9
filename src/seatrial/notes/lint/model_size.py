"""Size labels against layers and hidden size, and shapes of rows that give a size label alone.

    fill_shapes(sheet)                   layers and hidden size from rows of that label in other files, or as published
    check(sheet)                         labels that do not fit; they count the embedding or leave it out, but alike in a table

A guessed shape stays only when time and TFLOPs of most such rows agree with it; nothing is said to be wrong because of a guess.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from seatrial import arith
from seatrial.errors import BadInput
from seatrial.notes.lint.formulas import COMMON_VOCABULARIES, candidates, complete, label_parameters, row_fits, slack
from seatrial.notes.lint.sheet import Finding, Row, Sheet
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
            Model(layers=layers, hidden=hidden, heads=heads, kv_heads=record.kv_heads if llama else None,
                  ffn=record.ffn, vocab=vocab or 1, seq=record.seq or 2048, family="llama" if llama else "gpt2")
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
    if size is None or counted is None or not size[0] > 0:
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
    message = (
        f'"{row.record.size_label}": {row.layers} layers x {row.hidden} are {counted[1] / 1e9:.4g}B with the embedding, '
        f"{without / 1e9:.4g}B without"
    )
    return row.find("label-vs-params", "error" if certain else "warning", message, name="size_label", proposed=proposed)


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
            message = (
                f'"{row.record.size_label}" and "{other.record.size_label}" ({other.where}) are {layers} layers x {hidden}: '
                f"{counted[0] / 1e9:.4g}B without the embedding, {counted[1] / 1e9:.4g}B with it"
            )
            found.append(row.find("label-vs-params", "warning", message, name="size_label"))
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


def fill_shapes(sheet: Sheet) -> None:
    for rows in sheet.files.values():
        groups: dict[str, list[Row]] = {}
        for row in rows:
            if row.record.size_label and not (row.layers and row.hidden):
                groups.setdefault(row.record.size_label, []).append(row)
        for label, group in groups.items():
            _fill_label(sheet, label, group)


def _fill_label(sheet: Sheet, label: str, group: list[Row]) -> None:
    timed = [row for row in group if complete(row)][:60]
    if not timed:
        return
    before = [(row.layers, row.hidden) for row in group]
    best, most = None, 0
    for shape in dict.fromkeys(_known(sheet, label)):
        _put(group, shape)
        readings = candidates(timed, ("sc21", "megatron-2022-old"))
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


def _known(sheet: Sheet, label: str) -> Iterator[tuple[int, int]]:
    size = label_parameters(label)
    if size is None:
        return
    for row in sheet.rows:
        if row.record.size_label == label and row.record.layers and row.record.hidden:
            yield row.record.layers, row.record.hidden
    for billions, layers, hidden in PUBLISHED:
        if abs(billions * 1e9 - size[0]) <= size[1]:
            yield layers, hidden
