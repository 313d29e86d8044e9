"""Figures in another row's place: two rows that have each other's, and a column that stands a row too low or too high."""
from __future__ import annotations

import pytest

from seatrial.notes.lint import Finding

THREE = """Sequence 4096, micro-batch 1.

| nodes | GPUs | accumulation | global batch | ms per step | tokens/s | TFLOP/s per GPU | MFU (%) |
|---|---|---|---|---|---|---|---|
| 2 | 8 | 32 | 256 | 16302 | 64322 | 125.4 | 40.2 |
| 4 | 16 | 16 | 256 | 8275 | 126716 | 123.5 | 39.6 |
| 8 | 32 | 16 | 512 | 8445 | 248331 | 121.1 | 38.8 |
"""
STRONG = """Llama-2 70B, TP 4, PP 8, micro-batch 1.

| Nodes | GPUs | DP | Micro-batches | Step [s] | Speed-up | TFLOP/s/GPU | % of peak |
|---|---|---|---|---|---|---|---|
| 32 | 128 | 4 | 256 | 105.42 | 1.00 | 128.5 | 41.2 |
| 64 | 256 | 8 | 128 | 53.18 | 1.98 | 126.9 | 40.7 |
| 128 | 512 | 16 | 64 | 27.25 | 3.87 | 123.4 | 39.5 |
| 256 | 1024 | 32 | 32 | 14.29 | 7.38 | 118.7 | 38.0 |
| 512 | 2048 | 64 | 16 | 7.97 | 13.23 | 106.8 | 34.2 |
"""


def _said(lint, note: str) -> list[Finding]:
    return [one for one in lint(note) if one.level != "info"]


@pytest.mark.parametrize(("note", "cells"), [
    (THREE, ("126716", "248331")), (THREE.replace("Sequence 4096, m", "M"), ("126716", "248331")), (STRONG, ("14.29", "7.97")),
])  # fmt: skip
def test_two_rows_of_few_that_have_each_others_figure(lint, note: str, cells: tuple[str, str]):
    one, other = cells
    assert _said(lint, note) == []
    found = _said(lint, note.replace(one, "@").replace(other, one).replace("@", other))
    assert [(f.level, f.printed, f.proposed) for f in found] == [("error", other, one), ("error", one, other)]


SWEEP = """Sequence 4096.

| GPUs | GBS | s/step | tokens/s | TFLOP/s/GPU | MFU |
|---|---|---|---|---|---|
| 8 | 256 | 10.21 | 102,701 | 431.2 | 43.6 |
| 16 | 256 | 5.31 | 197,474 | 414.5 | 41.9 |
| 32 | 256 | 2.84 | 369,217 | 387.5 | 39.2 |
| 64 | 256 | 1.55 | 676,500 | 355.0 | 35.9 |
| 128 | 256 | 0.902 | 1,162,501 | 305.0 | 30.8 |
"""
WEAK = """Sequence 2048.

| GPUs | GBS | s/it | seq/s | tok/s/GPU |
|---|---|---|---|---|
| 8 | 128 | 8.95 | 14.3 | 3661 |
| 16 | 256 | 9.11 | 28.1 | 3597 |
| 32 | 512 | 9.19 | 55.7 | 3565 |
| 64 | 1024 | 9.35 | 109.5 | 3505 |
| 128 | 2048 | 9.58 | 213.8 | 3420 |
| 256 | 4096 | 9.72 | 421.4 | 3371 |
"""


@pytest.mark.parametrize(("note", "column", "down"), [
    (SWEEP, 2, True), (SWEEP, 3, False), (SWEEP, 4, True), (WEAK, 3, True),
])  # fmt: skip
def test_a_column_that_stands_a_row_off(lint, note: str, column: int, down: bool):
    assert _said(lint, note) == []
    head, rows = note.rsplit("|---|\n", 1)
    cells = [row.strip("|").split("|") for row in rows.splitlines()]
    right = [row[column] for row in cells]
    first = len(right) // 2
    wrong = [*right[:first], *right[first - 1 : -1]] if down else [*right[1 : first + 1], *right[first:]]
    table = "\n".join("|" + "|".join([*row[:column], cell, *row[column + 1 :]]) + "|" for row, cell in zip(cells, wrong))
    found = [f for f in _said(lint, f"{head}|---|\n{table}\n")]
    at = note[: note.index(rows)].count("\n") + 1
    assert [f.line for f in found] == [at + place for place, (a, b) in enumerate(zip(right, wrong)) if a != b]


EPOCHS = """Sequences of 2048. An epoch is 52 000 samples.

| machine | effective batch | step | samples/s | epoch |
|---|---|---|---|---|
| 1x A6000 | 32 | 44992 ms | 0.71 | 1219 min |
| 1x A6000 | 32 | 43511 ms | 0.74 | 1178 min |
| 2x A6000 | 32 | 22098 ms | 1.45 | 598 min |
| 4x A6000 | 64 | 22090 ms | 2.90 | 299 min |
| 4x A6000 | 64 | 21993 ms | 2.91 | 298 min |
"""
HOURLY = """Llama-3-8B, seq 8192, on demand.

| slice | chips | tokens/step | s/step | tok/s | $ per hour |
|---|---|---|---|---|---|
| v5p-64 | 32 | 0.26M | 2.82 | 93k | 134 |
| v5p-128 | 64 | 0.52M | 2.11 | 250k | 269 |
| v5p-256 | 128 | 1.05M | 2.12 | 496k | 538 |
| v5p-512 | 256 | 2.10M | 2.14 | 981k | 1075 |
"""


@pytest.mark.parametrize(("note", "right", "wrong", "line"), [
    (EPOCHS, "298 min", "596 min", 9), (EPOCHS, "1178 min", "117.8 min", 6), (EPOCHS, "598 min", "1178 min", 7),
    (HOURLY, "538", "269", 7), (HOURLY, "1075", "10.75", 8),
])  # fmt: skip
def test_how_long_an_epoch_takes_and_what_all_chips_cost_an_hour(lint, note: str, right: str, wrong: str, line: int):
    assert _said(lint, note) == []
    assert [(f.line, f.printed) for f in _said(lint, note.replace(right, wrong))] == [(line, wrong)]
