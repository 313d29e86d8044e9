"""Which row a sentence says is the first of all, by its number, by its name, and by the figure beside it."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes import lint
from seatrial.notes.lint import Finding


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


TRIES = """# Layouts of the 30B

A100 80GB, 64 GPUs, sequence 4096.

| # | TP | PP | MBS | GBS | s/it | TFLOP/s/GPU | mem GiB |
|---|---|---|---|---|---|---|---|
| 1 | 8 | 1 | 1 | 256 | 22.38 | 113.1 | 61.0 |
| 2 | 4 | 2 | 1 | 256 | 19.77 | 128.0 | 58.2 |
| 3 | 4 | 4 | 1 | 256 | 19.25 | 131.5 | 44.9 |
| 4 | 2 | 4 | 1 | 256 | 18.02 | 140.5 | 63.7 |
| 5 | 2 | 8 | 1 | 256 | 18.95 | 133.6 | 49.3 |

"""
BILL = """# Where 5B tokens cost least

| machine | price ($/GPU/h) | tokens/s | hours | bill ($) |
|---|---|---|---|---|
| 8 x H100 | 2.49 | 88,400 | 15.7 | 313 |
| 16 x H100 | 2.49 | 172,300 | 8.1 | 323 |
| 8 x A100 | 1.29 | 34,100 | 40.7 | 420 |
| 8 x L40S | 0.86 | 18,900 | 73.5 | 506 |

"""


@pytest.mark.parametrize(("note", "said", "right", "wrong"), [
    (TRIES, "In short: {} wins with 140.5 TFLOP/s/GPU.", "#4", "#2"),
    (TRIES, "Fastest of all: {} with 18.02 s/it.", "#4", "#3"),
    (TRIES, "Fastest is {}, so it is what we keep.", "run 4", "run 3"),
    (TRIES, "Am schnellsten ist {}, mit Abstand.", "Lauf 4", "Lauf 5"),
    (TRIES, "El más rápido es el {}.", "ensayo 4", "ensayo 1"),
    (TRIES, "So {} wins with 140.5 TFLOP/s/GPU, the slowest is #1.", "#4", "#5"),
    (BILL, "The cheapest is {}: 15.7 hours for $313.", "8 x H100", "8 x A100"),
    (BILL, "The fastest is {}: 8.1 hours for $323.", "16 x H100", "8 x H100"),
])  # fmt: skip
def test_a_row_that_is_not_the_first(tmp_path: Path, note: str, said: str, right: str, wrong: str) -> None:
    assert not _found(tmp_path, note + said.format(right) + "\n")
    (one,) = _found(tmp_path, note + said.format(wrong) + "\n")
    assert (one.level, one.proposed) == ("error", right)


@pytest.mark.parametrize("said", [
    "8 x A100 costs 1.3 times as much as the cheapest.", "The slowest needs 4.7 times as long as 8 x H100.",
])
def test_a_row_that_the_first_is_held_against(tmp_path: Path, said: str) -> None:
    assert not _found(tmp_path, f"{BILL}{said}\n")


@pytest.mark.parametrize("said", [
    "Best trade-off: #3, which leaves room.",
    "In the end #3 was the best for us.",
    "So #4 wins, #5 is second with 133.6 TFLOP/s/GPU.",
    "The fastest with TP 4 is #3.",
    "Here #2 would be the fastest if memory allowed it.",
    "The most memory takes #4 with 63.7 GiB.",
])  # fmt: skip
def test_what_is_first_of_something_else(tmp_path: Path, said: str) -> None:
    assert not _found(tmp_path, TRIES + said + "\n")


def test_a_figure_beside_the_right_row(tmp_path: Path) -> None:
    (one,) = _found(tmp_path, TRIES + "The fastest is #4 with 133.6 TFLOP/s/GPU.\n")
    assert (one.printed, one.proposed) == ("133.6", "140.5")
