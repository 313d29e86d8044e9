"""Sentences against themselves and against the rows, and hours that several columns tell."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes import lint
from seatrial.notes.lint import Finding


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


PLAN = """# Plan

GPU-hours = days x 24 x GPUs.

| phase | tokens | GPUs | tokens/s | days | GPU-hours |
| --- | ---: | ---: | ---: | ---: | ---: |
| warm-up | 100B | 128 | 554,000 | 2.1 | 6,418 |
| main | 2000B | 256 | 1,093,000 | {days} | 130,121 |
| anneal | 200B | 256 | 1,077,000 | 2.1 | {hours} |
"""


def test_a_plan_of_three_rows_with_two_slips_tells_both(tmp_path: Path) -> None:
    assert not _found(tmp_path, PLAN.format(days="21.2", hours="13,205"))
    found = {finding.line: finding for finding in _found(tmp_path, PLAN.format(days="12.2", hours="1,205"))}
    assert {line: (one.level, one.column, one.proposed) for line, one in found.items()} == {
        8: ("error", "days", "21.2"), 9: ("error", "GPU-hours", "13205")}  # fmt: skip


def test_hours_on_the_clock_may_include_restarts(tmp_path: Path) -> None:
    text = ("| run | GPUs | tokens | tokens/s | hours |\n|---|---|---|---|---|\n| a | 64 | 100B | 500,000 | 60.0 |\n"
            "| b | 64 | 200B | 500,000 | 120.0 |\n| c | 64 | 300B | 500,000 | {} |\n")  # fmt: skip
    assert not _found(tmp_path, text.format("180.0"))
    assert [finding.line for finding in _found(tmp_path, text.format("108.0"))] == [5]


POWER = """Electricity is 0.20 EUR/kWh.

| box | tokens/s | days | kW | kWh | EUR |
| --- | ---: | ---: | ---: | ---: | ---: |
| one | 5000 | 40.0 | 0.50 | 480 | 96 |
| two | 9000 | 22.2 | 0.90 | 480 | {} |
| three | 12000 | 16.7 | 1.20 | 481 | 96 |
"""


def test_power_and_its_price(tmp_path: Path) -> None:
    assert not _found(tmp_path, POWER.format("96"))
    assert [(one.line, one.proposed) for one in _found(tmp_path, POWER.format("66"))] == [(6, "96")]


ROWS = """# Batches

| GBS | step (s) | tok/s | MFU |
| ---: | ---: | ---: | ---: |
| 512 | 2.71 | 386,928 | 32.0% |
| 1024 | 5.06 | 414,457 | 34.3% |
| 2048 | 9.96 | 421,115 | 34.8% |
| 4096 | 19.76 | 424,525 | 35.1% |

Sequences of 2048 tokens.
"""


@pytest.mark.parametrize("right, wrong, proposed", [
    ("Mean over the four batch sizes: MFU 34.1%.", "Mean over the four batch sizes: MFU 40.1%.", "34.1"),
    ("On average 405,000 tokens/s.", "On average 304,000 tokens/s.", None),
    ("The best is 35.1% MFU with the largest batch.", "The best is 53.1% MFU with the largest batch.", "35.1"),
])  # fmt: skip
def test_what_a_sentence_tells_of_the_rows(tmp_path: Path, right: str, wrong: str, proposed: str | None) -> None:
    assert not _found(tmp_path, f"{ROWS}\n{right}\n")
    assert [(one.line, one.proposed) for one in _found(tmp_path, f"{ROWS}\n{wrong}\n")] == [(12, proposed)]
    assert not _found(tmp_path, f"{ROWS}\nThe paper's {wrong[0].lower()}{wrong[1:]}\n")  # of others


@pytest.mark.parametrize("right, wrong, proposed", [
    ("## 13B (40 layers, hidden 5120, 40 heads)", "## 13B (80 layers, hidden 5120, 40 heads)", "40"),
    ("Llama-2-7B: 32 layers, 4096 wide, 32 heads", "Llama-2-7B: 32 layers, 40960 wide, 32 heads", "4096"),
    ("Modèle 7B : 32 couches, dimension 4096, 32 têtes", "Modèle 7B : 320 couches, dimension 4096, 32 têtes", "32"),
    ("Sequence 8192, batches of 512 sequences (4.19M tokens)", "Sequence 8192, batches of 256 sequences (4.19M tokens)", "512"),
    ("64 GPUs, DP 16 x TP 4, bf16", "64 GPUs, DP 16 x TP 8, bf16", None),
    ("A step is 512 x 8192 = 4.2M tokens", "A step is 512 x 8192 = 2.4M tokens", "4.2"),
    ("The head counts as two: 70 + 2 = 72", "The head counts as two: 70 + 2 = 82", "72"),
    ("We had 12 nodes (96 A100) for a week", "We had 11 nodes (96 A100) for a week", None),
])  # fmt: skip
def test_a_sentence_against_itself(tmp_path: Path, right: str, wrong: str, proposed: str | None) -> None:
    assert not _found(tmp_path, f"# Notes\n\n{right}\n")
    found = _found(tmp_path, f"# Notes\n\n{wrong}\n")
    assert [one.line for one in found] == [3]
    assert proposed is None or found[0].proposed == proposed


@pytest.mark.parametrize("line", [
    "TFLOPs are 96 B s l h^2 (1 + s/6h + V/16lh) with 24 layers of 2048",
    "We hold 4M tokens a step. The shape is 32 layers, 4096 wide",
    "8 nodes x 8 H100, TP 4, PP 2, DP 8",
    "8x7B: 32 layers, hidden 4096, 8 experts",
    "405B has 126 layers, 8 stages",
    "With PP 5 there are 8 + 4 x 10 = 48 layers",
    "The quarter has 192 × 24 × 90 = 414 720 hours of a GPU",
])  # fmt: skip
def test_sentences_that_are_right(tmp_path: Path, line: str) -> None:
    assert not _found(tmp_path, f"# Notes\n\n{line}\n")


SHAPE = """# Runs

{layers} layers, hidden {hidden}, 32 heads, vocab 50304, sequence 2048, batch 512 sequences. A100.

| GPUs | s/it | TFLOPs/GPU |
| ---: | ---: | ---: |
| 64 | 5.17 | 142.0 |
| 128 | 2.62 | 140.1 |
| 256 | 1.35 | 136.0 |
| 512 | 0.71 | 129.3 |
"""


def test_a_shape_by_which_no_formula_gives_the_tflops(tmp_path: Path) -> None:
    assert not _found(tmp_path, SHAPE.format(layers=32, hidden=4096))
    for layers, hidden in ((64, 4096), (32, 8192), (320, 4096)):
        assert [one.line for one in _found(tmp_path, SHAPE.format(layers=layers, hidden=hidden))] == [3]


def test_a_setting_that_all_rows_print_otherwise(tmp_path: Path) -> None:
    text = ("# Runs\n\nBF16, sequence length {}, MBS 1.\n\n| GPUs | Seq | TP | tokens/s |\n|--:|--:|--:|--:|\n"
            "| 64 | 8192 | 4 | 500,000 |\n| 128 | 8192 | 4 | 960,000 |\n| 256 | 8192 | 4 | 1,800,000 |\n")  # fmt: skip
    assert not _found(tmp_path, text.format(8192))
    assert [(one.line, one.proposed) for one in _found(tmp_path, text.format(4096))] == [(3, "8192")]


SIDE_BY_SIDE = """# Family

|            | tern-3b | tern-8b | tern-34b |
| ---        | ---     | ---     | ---      |
| layers     | 28      | 32      | 48       |
| hidden     | 3072    | 4096    | 8192     |
| heads / KV | 24 / 8  | 32 / 8  | 64 / 8   |
| FFN        | 8192    | 14336   | 22016    |
| vocabulary | 128,256 | 128,256 | 32,000   |
| parameters | 3.21B   | 8.03B   | 33.7B    |
"""


@pytest.mark.parametrize("was, now, line", [
    ("| 32      | 48", "| 64      | 48", 5), ("| 4096 ", "| 8192 ", 6), ("14336", "28672", 8),
])  # fmt: skip
def test_shapes_side_by_side(tmp_path: Path, was: str, now: str, line: int) -> None:
    assert not _found(tmp_path, SIDE_BY_SIDE)
    assert line in [one.line for one in _found(tmp_path, SIDE_BY_SIDE.replace(was, now))]


def test_a_sentence_that_has_another_shape_than_the_table(tmp_path: Path) -> None:
    assert not _found(tmp_path, f"{SIDE_BY_SIDE}\ntern-8b has 32 layers and a vocabulary of 128256.\n")
    found = _found(tmp_path, f"{SIDE_BY_SIDE}\ntern-8b has 32 layers and a vocabulary of 182256.\n")
    assert [(one.line, one.proposed) for one in found] == [(12, "128256")]


def test_a_row_that_a_sentence_repeats(tmp_path: Path) -> None:
    assert not _found(tmp_path, f"{ROWS}\nWith the largest batch a step takes 19.76 s, i.e. 424,525 tokens/s.\n")
    assert not _found(tmp_path, f"{ROWS}\nThe paper has 442,525 tokens/s.\n")
    found = _found(tmp_path, f"{ROWS}\nWith the largest batch a step takes 19.76 s, i.e. 245,425 tokens/s.\n")
    assert not found  # no slip of one hand
    found = _found(tmp_path, f"{ROWS}\nWith the largest batch a step takes 1.976 s, i.e. 424,525 tokens/s.\n")
    assert [(one.line, one.level, one.proposed) for one in found] == [(12, "warning", "19.760")]


GAINS = """| model | release | GPUs | s/step | faster than 0.3 |
|---|---|---|---|---|
| 8B | 0.3 | 8 | 22.59 | - |
| 8B | 0.4 | 8 | 18.81 | 20% |
| 8B | 0.5 | 8 | 16.70 | 35% |
| 34B | 0.3 | 32 | 46.23 | - |
| 34B | 0.4 | 32 | 37.90 | 22% |
| 34B | 0.5 | 32 | 33.14 | 39% |
| 70B | 0.3 | 64 | 93.30 | - |
| 70B | 0.4 | 64 | 77.73 | {} |
| 70B | 0.5 | 64 | 68.83 | 36% |
"""


def test_changes_against_the_last_row_without_one(tmp_path: Path) -> None:
    assert not _found(tmp_path, GAINS.format("20%"))
    assert [(one.line, one.proposed) for one in _found(tmp_path, GAINS.format("9%"))] == [(10, "20%")]


ENERGY = """One card per run. Electricity 0.31 $/kWh.

| model | updates | s/update | hours | kWh (0.48 kW) | $ |
|---|---|---|---|---|---|
| A | 1,850 | 7.24 | 3.7 | 1.8 | 0.55 |
| B | 1,850 | 16.31 | 8.4 | 4.0 | 1.25 |
| C | 2,720 | 18.07 | 13.7 | 6.6 | 2.03 |
| D | 960 | 72.55 | 19.3 | 9.3 | 2.88 |
"""
LADDER = """Sequence length 2048, 32 A100.

| model | D (B tokens) | batch (seqs) | steps | s/step | hours |
|---|---|---|---|---|---|
| a | 4.2 | 512 | 4,000 | 0.45 | 0.50 |
| b | 10.5 | 512 | 10,000 | 0.90 | 2.50 |
| c | 21.0 | 1024 | 10,000 | 2.70 | 7.50 |
| d | 42.0 | 1024 | 20,000 | 4.50 | 25.00 |
"""
LENGTHS = """BERT on 16 nodes.

| phase | length | batch | steps | seq/s | hours |
|---|---|---|---|---|---|
| 1 | 128 | 2048 | 18000 | 6410 | 1.60 |
| 2 | 512 | 1024 | 4500 | 1595 | 0.80 |
"""


@pytest.mark.parametrize("note, right, wrong, line, proposed", [
    (ENERGY, "| 8.4 |", "| 0.84 |", 6, "8.4"), (ENERGY, "6.6 | 2.03", "2.03 | 6.6", 7, "2.03"),
    (LADDER, "21.0", "2.10", 7, "21.0"), (LENGTHS, "1.60", "16.0", 5, "1.60")])  # fmt: skip
def test_hours_by_energy_tokens_of_the_steps_and_sequences(tmp_path: Path, note: str, right: str, wrong: str, line: int,
                                                           proposed: str) -> None:  # fmt: skip
    assert not _found(tmp_path, note)
    assert [(one.line, one.proposed) for one in _found(tmp_path, note.replace(right, wrong))] == [(line, proposed)]


SPEEDS = """| nodes | GPUs | GBS | s/step |
|---|---|---|---|
| 1 | 8 | 512 | 29.76 |
| 2 | 16 | 512 | 15.08 |
| 4 | 32 | 512 | 7.67 |

"""


@pytest.mark.parametrize("said, right, wrong", [
    ("It sees 1.74 million tokens per second, so that 1T tokens take {} days.", "6.7", "67"),
    ("On traite 182 400 jetons par seconde, soit {} milliards de jetons par jour.", "15,8", "1,58"),
    ("At 0.52M tokens/s that is {}B tokens a day.", "44.9", "4.49")])  # fmt: skip
def test_days_and_tokens_a_day_of_a_rate_in_words(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert not _found(tmp_path, SPEEDS + said.format(right))
    assert [(one.printed, one.proposed) for one in _found(tmp_path, SPEEDS + said.format(wrong))] == [(wrong, right)]


@pytest.mark.parametrize("said, right, wrong", [
    ("## 二、7B(双机 16 卡)\n\n合计 84.2 小时,折合 {} 卡时。\n", "1,347", "674"),
    ("## 13B on 32 GPUs\n\nThe run took 61.5 hours, or {} GPU-hours.\n", "1,968", "984")])  # fmt: skip
def test_hours_of_the_devices_that_the_heading_counts(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert not _found(tmp_path, said.format(right))
    (found,) = _found(tmp_path, said.format(wrong))
    assert found.printed == wrong and abs(int((found.proposed or "0").replace(",", "")) - int(right.replace(",", ""))) < 3


ARROWS = """| model | ms: main → PR | tok/s: main → PR | MFU: main → PR | gain |
|---|---|---|---|---|
| 1B | 1,542 → 1,387 | 170,003 → 189,043 | 49.8 → 55.4 % | +11.2 % |
| 3B | 3,310 → 3,020 | 79,197 → 86,803 | 47.1 → 51.6 % | +9.6 % |
| 7B | 9,859 → 9,231 | 26,590 → 28,398 | 45.7 → 48.8 % | +6.8 % |
| 13B | 9,241 → 8,612 | 28,368 → 30,439 | 48.7 → {} % | +7.3 % |
"""


def test_the_measures_of_a_row_change_by_one_factor(tmp_path: Path) -> None:
    assert not _found(tmp_path, ARROWS.format("52.3"))
    (found,) = _found(tmp_path, ARROWS.format("25.3"))
    assert found.line == 6 and "52.3" in found.message
