"""Layers and hidden size of rows that give a size label alone: from rows of that label in other files, or a published shape.

A guessed shape stays only when time and TFLOPs of most such rows agree with it; nothing is said to be wrong because of a guess.
"""

from __future__ import annotations

from collections.abc import Iterator

from seatrial.notes.lint.consensus import complete, fits
from seatrial.notes.lint.formulas import candidates, label_parameters
from seatrial.notes.lint.sheet import Row, Sheet

PUBLISHED: tuple[tuple[float, int, int], ...] = (
    # GPT-2: Radford et al. 2019. GPT-3: Brown et al. 2020, table 2.1.
    (0.124, 12, 768),
    (0.345, 24, 1024),
    (0.774, 36, 1280),
    (1.5, 48, 1600),
    (0.125, 12, 768),
    (0.35, 24, 1024),
    (0.76, 24, 1536),
    (1.3, 24, 2048),
    (2.7, 32, 2560),
    (6.7, 32, 4096),
    (13.0, 40, 5120),
    (175.0, 96, 12288),
    # Narayanan et al. 2021, table 1.
    (1.7, 24, 2304),
    (3.6, 30, 3072),
    (7.5, 36, 4096),
    (18.4, 40, 6144),
    (39.1, 48, 8192),
    (76.1, 60, 10240),
    (145.6, 80, 12288),
    (310.1, 96, 16384),
    (529.6, 105, 20480),
    (1008.0, 128, 25600),
    # OPT: Zhang et al. 2022.
    (30.0, 48, 7168),
    (66.0, 64, 9216),
)
"""Billions of parameters as the label says them, layers, hidden size."""


def fill(sheet: Sheet) -> None:
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
        agreeing = max(sum(fits(row, reading) for row in timed) for reading in candidates(timed, ("sc21", "megatron-2022-old")))
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
