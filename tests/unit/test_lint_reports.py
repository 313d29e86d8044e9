"""Reports, plans and hand-overs: figures of tables that sentences repeat, and tables that are none of runs."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes import lint
from seatrial.notes.lint import Finding


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


def _told(folder: Path, text: str) -> list[tuple[int | None, str | None, str | None]]:
    return [(one.line, one.printed, one.proposed) for one in _found(folder, text)]


LINES = """# Plan

| line | GPUs | days | GPU hours | cost |
|---|---:|---:|---:|---:|
| first | 32 | 50.0 | 38,400 | $77k |
| second | 64 | 30.0 | 46,080 | $92k |
| third | 16 | 25.0 | 9,600 | $19k |

"""


@pytest.mark.parametrize("said", [
    "Together 94,080 GPU hours, or $188k. We hold 120 days x 24 h x 64 GPUs = 184,320 GPU hours\n($369k), half of it free.",
    "Together 94,080 GPU hours in 50 days.",
    "Together 94,080 GPU hours. Ablations get 20,000 GPU hours on top.",
])  # fmt: skip
def test_what_stands_beside_a_total_is_none(tmp_path: Path, said: str) -> None:
    assert not _found(tmp_path, LINES + said + "\n")


def test_a_total_of_its_own_sentence_is_one(tmp_path: Path) -> None:
    said = "Together 94,080 GPU hours, or $818k. Ablations get 20,000 GPU hours.\n"
    assert _told(tmp_path, LINES + said) == [(9, "818", "188")]


RUNS = """## 一

| 卡数 | 每步耗时（秒） | TFLOPS |
|---:|---:|---:|
| 64 | 18.1 | 357 |
| 128 | 9.2 | 351 |

## 二

H20 的峰值只有 148 TFLOPS，适合显存受限的任务。功率为单卡平均。

| 方法 | 每步（毫秒） | 功率 W |
|---|---:|---:|
| LoRA | 5580 | 412 |
| QLoRA | 6607 | 402 |
"""


def test_a_mean_of_the_next_sentence_is_not_of_this_one(tmp_path: Path) -> None:
    assert not _found(tmp_path, RUNS)


FILES = """# 3B (28 layers, hidden 3072)

| file | dtype | GB |
|---|---|---:|
| model.safetensors | bf16 | 6.42 |
| model-fp32.safetensors | fp32 | 12.85 |
| optimizer shards | fp32 | 25.70 |
| tokenizer.json | | 0.01 |
"""


def test_files_are_no_runs(tmp_path: Path) -> None:
    assert not _found(tmp_path, FILES)


RATES = """| partition | EUR per GPU hour | EUR per node hour |
|---|---:|---:|
| a | 1.90 | 15.20 |
| b | 2.35 | 18.80 |
| c | 3.10 | 24.80 |
| d | {} | 2.80 |
| e | 0.95 | 7.60 |
"""


def test_nodes_may_have_fewer_devices(tmp_path: Path) -> None:
    assert not _found(tmp_path, RATES.format("0.70"))
    assert [one.line for one in _found(tmp_path, RATES.format("0.53"))] == [6]


CAPPED = """Global batch 512 of 4096 tokens.

| cap | W | step (s) |
|---|---:|---:|
| 700 W | 668 | 13.05 |
| 600 W | 588 | 13.57 |
| 500 W | 496 | 14.53 |
| 400 W | 398 | 18.67 |
"""
PLANNED = """| line | GPUs | tokens/s |
|---|---:|---:|
| Tern-3B refresh | 32 | 688,409 |
| Osprey-20B main | 256 | 952,839 |
| Osprey-20B anneal | 128 | 476,420 |
| Llama-3-70B continuation | 128 | 117,928 |
"""
LONG = """Everything on 8x H100 nodes. 6N and half of the attention.

## 70B, 128 GPUs

| context | GBS | step (s) | TFLOPs |
|---|---:|---:|---:|
| 32k | 128 | 42.98 | 417 |
| 32k | 128 | 44.58 | 402 |
| 64k | 32 | 27.61 | 403 |
| 128k | 32 | 78.38 | 391 |
"""
WIDE = """| model | layers | hidden | GPUs | step (s) |
|---|---:|---:|---:|---:|
| Qwen2.5-32B | 64 | 5120 | 64 | 15.7 |
| Llama-3-8B | 32 | 4096 | 8 | 15.1 |
| GPT-22B | 48 | 6144 | 32 | 14.7 |
| Llama-2-13B | 40 | 5120 | 32 | 9.9 |
"""


@pytest.mark.parametrize("note", [CAPPED, PLANNED, LONG, WIDE])
def test_rows_differ_by_what_names_them(tmp_path: Path, note: str) -> None:
    assert not _found(tmp_path, note)


@pytest.mark.parametrize("said, proposed", [
    ("14.8B parameters (40 layers, hidden 5120, vocabulary 152,064).", "48"), ("48 layers, hidden 5120.", None),
    ("Pruned to 40 layers, hidden 5120.", None), ("40 layers, hidden 4096.", None),
])  # fmt: skip
def test_layers_are_those_of_the_model_that_is_named(tmp_path: Path, said: str, proposed: str | None) -> None:
    rows = "| GPUs | s/step |\n|---|---|\n| 64 | 6.99 |\n| 128 | 3.60 |\n"
    found = _found(tmp_path, f"# Qwen2.5-14B, continued\n\n{said}\n\n{rows}")
    assert [one.proposed for one in found] == ([proposed] if proposed else [])


METHODS = """# Fine-tuning

| method | GPU | s/step | tokens/s | peak GB | hours | cost |
|---|---|---:|---:|---:|---:|---:|
| full | A100 | 25.06 | 10,460 | 71.7 | 5.35 | $85.60 |
| LoRA r=16 | A100 | 14.97 | 17,511 | 46.6 | 3.20 | $51.20 |
| full | H100 | 9.18 | 28,556 | 71.9 | 1.96 | $75.26 |
| LoRA r=16 | H100 | 6.12 | 42,834 | 52.0 | 1.31 | $50.30 |

"""


@pytest.mark.parametrize("right, wrong, proposed", [
    ("Row 2 against row 1: 40% saved on the bill.", "Row 2 against row 1: 60% saved on the bill.", "40"),
    ("From row 1 to row 3 the step gets 2.73x faster.", "From row 1 to row 3 the step gets 7.23x faster.", "2.73"),
    ("On A100 LoRA costs 40.2 % less ($51.20 for $85.60).", "On A100 LoRA costs 4.02 % less ($51.20 for $85.60).", "40.2"),
    ("Zeile 3 ist 12,1 % billiger als Zeile 1.", "Zeile 3 ist 21,1 % billiger als Zeile 1.", "12,1"),
    ("LoRA on H100 makes 4.10 times the tokens of row 1.", "LoRA on H100 makes 1.40 times the tokens of row 1.", "4.10"),
])  # fmt: skip
def test_a_ratio_is_that_of_the_rows_that_are_named(tmp_path: Path, right: str, wrong: str, proposed: str) -> None:
    assert not _found(tmp_path, METHODS + right + "\n")
    assert [(one.line, one.proposed) for one in _found(tmp_path, METHODS + wrong + "\n")] == [(10, proposed)]


@pytest.mark.parametrize("said", [
    "The vendor claims that row 3 is 7.23x faster than row 1.", "We hope for 60% less in row 2 than in row 1.",
    "At $1.30 for the A100 and $2.40 for the H100, row 3 has 1.85 times the price of row 1.", "LoRA needs 21 % less than that.",
    "Row 4 is 12.5 times as fast as LoRA on the L40S (3.20 h against 40 h).",
    "Next to the table of May row 1 lost a fifth, 21 %.",
])  # fmt: skip
def test_ratios_of_something_else_are_not_told(tmp_path: Path, said: str) -> None:
    assert not _found(tmp_path, METHODS + said + "\n")


def test_a_share_of_the_row_that_is_named(tmp_path: Path) -> None:
    text = ("| GPUs | step [s] | tokens/s | efficiency |\n|---|---|---|---|\n| 8 | 4.479 | 58,524 | 100.0 % |\n"
            "| 128 | 4.554 | 920,960 | 98.4 % |\n| 512 | 4.878 | 3,439,132 | 91.8 % |\n\nAt 512 GPUs: {} %\n")  # fmt: skip
    assert not _found(tmp_path, text.format("91.8"))
    assert not _found(tmp_path, text.format("85.0"))
    assert [one.proposed for one in _found(tmp_path, text.format("81.9"))] == ["91.8"]


@pytest.mark.parametrize("total, proposed", [("17 h", None), ("16 h", None), ("19 h", "17"), ("71 h", "17")])
def test_hours_below_any_heading_add_up(tmp_path: Path, total: str, proposed: str | None) -> None:
    text = f"| date | what | lost |\n|---|---|---|\n| 1 May | ECC | 3 h |\n| 4 May | disk | 7 h |\n| 7 May | hang | 5 h |\n" \
           f"| 9 May | dip | 2 h |\n| total | | {total} |\n"
    assert [one.proposed for one in _found(tmp_path, text)] == ([proposed] if proposed else [])


def test_thousands_may_be_parted_by_spaces(tmp_path: Path) -> None:
    text = ("| Projet | Jours | Heures de GPU | Coût (k€) |\n|---|---:|---:|---:|\n| un | 19,3 | 29 666 | 60,8 |\n"
            "| deux | 7,6 | 5 808 | 11,9 |\n| trois | 13,7 | 41 964 | {} |\n| Total | | 77 438 | 158,7 |\n")  # fmt: skip
    assert not _found(tmp_path, text.format("86,0"))
    assert [(one.line, one.printed) for one in _found(tmp_path, text.format("68,0"))] == [(5, "68,0")]


def test_a_part_that_no_other_row_comes_near_is_not_what_a_sum_lacks(tmp_path: Path) -> None:
    text = ("| | weights | optimizer | activations | buffers | total GiB |\n|---|---:|---:|---:|---:|---:|\n"
            "| TP 4 | 5.3 | 10.6 | 41.2 | 4.1 | 61.2 |\n| TP 2 | 10.6 | 10.6 | 43.0 | 4.6 | 68.8 |\n"
            "| CP 4 | 21.3 | 10.6 | 44.9 | 5.2 | {} |\n| CP 8 | 42.6 | 10.6 | 46.1 | 6.0 | 105.3 |\n")  # fmt: skip
    assert not _found(tmp_path, text.format("82.0"))
    assert _told(tmp_path, text.format("92.0")) == [(5, "92.0", "82.0")]


@pytest.mark.parametrize("said, wrong, right", [
    ("24,576 conversations packed to 4,096 tokens each ({} tokens).", "100.7B", "100.7M"),
    ("We have 10,000 papers of 8,192 tokens ({} tokens).", "18.9M", "81.9M"),
])  # fmt: skip
def test_so_many_of_so_many_tokens(tmp_path: Path, said: str, wrong: str, right: str) -> None:
    assert not _found(tmp_path, f"# Data\n\n{said.format(right)}\n")
    assert [(one.printed, one.proposed) for one in _found(tmp_path, f"# Data\n\n{said.format(wrong)}\n")] == [(wrong, right)]


def test_steps_at_a_length_are_no_sequences_of_it(tmp_path: Path) -> None:
    assert not _found(tmp_path, "# Data\n\nTrained for 21,000 steps at 8,192 tokens (22.0B tokens) and more.\n")


PHASES = """# Run

| phase | GPUs | steps | s/step | tokens/s |
|---|---:|---:|---:|---:|
| 1 | 128 | 30,000 | 6.993 | 599,755 |
| 2 | 256 | 42,000 | 3.604 | 1,163,804 |
| 3 | 256 | 60,000 | 3.399 | 1,234,034 |

"""


@pytest.mark.parametrize("said, right, wrong", [
    ("Left: 182,837 steps; in the layout of phase 3 {} days.", "7.2", "17.2"),
    ("On 512 GPUs 2,400,000 tokens/s, hence 207B tokens a day and {} days for 3T.", "14.5", "41.5"),
    ("As in phase 2 the next 2T take {} days.", "19.9", "1.99"),
])  # fmt: skip
def test_days_that_a_sentence_works_out(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    assert not _found(tmp_path, PHASES + said.format(right) + "\n")
    assert [one.proposed for one in _found(tmp_path, PHASES + said.format(wrong) + "\n")] == [right]
    assert not _found(tmp_path, PHASES + said.format("33.3") + "\n")  # with restarts and evaluations, perhaps


STEPS = """Lote global de 256 secuencias de 4096 tokens.

| GPU | TP | DP | acumulación | s/paso |
|---|---:|---:|---:|---:|
| A100 | 4 | 8 | 32 | 19,63 |
| A100 | 4 | 16 | {} | 10,11 |
| H100 | 4 | 4 | 32 | 13,78 |
| H100 | 4 | 8 | 16 | 6,92 |
| H100 | 4 | 16 | 16 | 3,55 |
"""


def test_accumulation_leaves_a_whole_micro_batch(tmp_path: Path) -> None:
    assert not _found(tmp_path, STEPS.format("16"))
    assert _told(tmp_path, STEPS.format("32")) == [(6, "32", "16")]


SPREAD = """EP spans {}, GPUs = TP x PP x DP.

| GPUs | TP | PP | EP | DP | s/step |
|---:|---:|---:|---:|---:|---:|
| 32 | 1 | 2 | 8 | 16 | 4.01 |
| 64 | 1 | 2 | 8 | 32 | 2.03 |
| 64 | 1 | 2 | 16 | 32 | 1.82 |
| 64 | 2 | 4 | 8 | 8 | 3.90 |
| 128 | 2 | 4 | {} | 16 | 6.76 |
"""


def test_experts_are_on_the_replicas_where_the_text_says_so(tmp_path: Path) -> None:
    assert not _found(tmp_path, SPREAD.format("DP", "16"))
    assert not _found(tmp_path, SPREAD.format("TP x DP", "32"))
    assert _told(tmp_path, SPREAD.format("DP", "32")) == [(9, "32", "16")]


PRECISIONS = """| GPU | precision | s/step | TFLOPS | MFU % |
|---|---|---:|---:|---:|
| B200 | bf16 | 8.21 | 959 | 42.6 |
| B200 | fp8 | 5.74 | 1357 | {} |
| B200 | mxfp8 | 5.55 | 1428 | 31.7 |
| B200 | mxfp8 | 5.42 | 1449 | 32.2 |
"""


def test_a_share_is_of_the_peak_of_its_precision(tmp_path: Path) -> None:
    assert not _found(tmp_path, PRECISIONS.format("30.2"))
    assert _told(tmp_path, PRECISIONS.format("60.3")) == [(4, "60.3", "30.2")]


@pytest.mark.parametrize("cell, proposed", [("131.3", "31.3"), ("95.2", None), ("123.9", None)])
def test_memory_above_the_device_is_that_of_the_same_run_but_for_a_digit(tmp_path: Path, cell: str,
                                                                         proposed: str | None) -> None:  # fmt: skip
    text = ("All on H100 80 GB.\n\n| day | model | GPUs | TP | mbs | s/step | GB |\n|---|---|---:|---:|---:|---:|---:|\n"
            "| 1 | 8B | 32 | 1 | 1 | 7.718 | 31.5 |\n| 1 | 14B | 32 | 4 | 2 | 6.763 | 38.7 |\n"
            f"| 2 | 8B | 32 | 1 | 1 | 7.768 | {cell} |\n| 2 | 14B | 32 | 4 | 2 | 6.818 | 38.7 |\n"
            "| 3 | 8B | 32 | 1 | 1 | 7.688 | 31.7 |\n| 3 | 14B | 32 | 4 | 2 | 6.732 | 38.9 |\n")  # fmt: skip
    assert [one.proposed for one in _found(tmp_path, text)] == [proposed]


BEGAN = """| phase | start | end | steps |
|---|---|---|---:|
| 1 | 29 Sep | {} | 30,000 |
| 2 | {} | 04 Oct | 42,000 |
| 3 | 06 Oct | 08 Oct | 60,000 |
| 4 | 09 Oct | 14 Oct | 110,000 |
"""


@pytest.mark.parametrize("end, start, told", [
    ("01 Oct", "03 Oct", []), ("01 Nov", "03 Oct", [(3, "01 Nov", "01 Oct")]), ("01 Oct", "30 Oct", [(4, "30 Oct", "03 Oct")]),
    ("01 Sep", "03 Oct", [(3, "01 Sep", "01 Oct")]), ("03 Oct", "03 Oct", []),
])  # fmt: skip
def test_a_phase_ends_between_its_beginning_and_the_next(tmp_path: Path, end: str, start: str, told: list[object]) -> None:
    assert _told(tmp_path, BEGAN.format(end, start)) == told


def test_a_year_may_end_between_two_days(tmp_path: Path) -> None:
    rows = "| 1 | 20 Dec | 27 Dec |\n| 2 | 28 Dec | 02 Jan |\n| 3 | 03 Jan | 09 Jan |\n"
    assert not _found(tmp_path, f"| phase | start | end |\n|---|---|---|\n{rows}")


def test_a_total_has_no_date(tmp_path: Path) -> None:
    text = ("| date | steps | s/step | hours |\n|---|---:|---:|---:|\n| 1 May | 17,268 | 4.878 | 23.4 |\n"
            "| 2 May | 16,260 | 4.893 | 22.1 |\n| all | 33,528 | | 45.5 |\n")  # fmt: skip
    assert not _found(tmp_path, text)
