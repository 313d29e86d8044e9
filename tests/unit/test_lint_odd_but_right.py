"""Notes that are odd but right, each with a twin in which one figure is wrong and is still found."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at


def told(tmp_path: Path, text: str) -> list[Finding]:
    path = tmp_path / "notes.md"
    path.write_text(text)
    return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]


def flagged(tmp_path: Path, text: str, right: str, wrong: str) -> list[tuple[int | None, str | None]]:
    """What is said of the twin; nothing is of the note itself."""
    assert told(tmp_path, text) == []
    assert text.count(right) == 1
    return [(finding.line, finding.proposed) for finding in told(tmp_path, text.replace(right, wrong))]


def table(head: str, *rows: str) -> str:
    return "\n".join([f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {row} |" for row in rows)]) + "\n"


BILLED = "$3.20 per GPU-hour. Less than one node-hour (8 GPU-hours) is billed as one.\n\n" + table(
    "job | GPUs | hours | GPU-hours | billed | list ($)", "smoke | 8 | 0.4 | 3.2 | 8.0 | 25.60",
    "profile | 8 | 1.0 | 8.0 | 8.0 | 25.60", "8B part 1 | 64 | 72.0 | 4,608.0 | 4,608.0 | 14,745.60",
    "8B part 2 | 64 | 96.5 | 6,176.0 | 6,176.0 | 19,763.20", "sft | 8 | 6.3 | 50.4 | 50.4 | 161.28")  # fmt: skip
CHARGED = "\n".join("|".join(part for at, part in enumerate(line.split("|")) if at != 5) for line in BILLED.split("\n"))
"""Without the column that says what was billed."""


@pytest.mark.parametrize("text", [BILLED, CHARGED], ids=["as a column says", "as a sentence says"])
def test_the_least_that_is_charged_is_no_slip(tmp_path: Path, text: str):
    assert flagged(tmp_path, text, "14,745.60", "17,445.60") == [(7, "14745.60")]
    assert told(tmp_path, text.replace("Less than one node-hour (8 GPU-hours) is billed as one.", "")
                .replace("| billed ", "| note ")) != []  # fmt: skip


LORA = "H100, 989 TFLOP/s. MFU counts 4 FLOP per frozen parameter and token, 6 otherwise.\n\n" + table(
    "run | params | GPUs | tok/s/GPU | MFU", "8B full | 8.03B | 8 | 9,442 | 46%", "70B full | 70.6B | 64 | 1,004 | 43%",
    "1B full | 1.24B | 8 | 58,500 | 44%", "13B full | 13.0B | 16 | 5,706 | 45%",
    "8B LoRA r=16 | 8.03B | 1 | 12,624 | 41%", "8B LoRA r=64 | 8.03B | 1 | 12,316 | 40%",
    "70B QLoRA r=16 | 70.6B | 8 | 1,156 | 33%", "1B LoRA | 1.24B | 1 | 79,800 | 40%")  # fmt: skip


def test_runs_that_train_an_adapter_are_compared_with_each_other(tmp_path: Path):
    assert {line for line, _ in flagged(tmp_path, LORA, "12,316", "1,231.6")} == {10}
    assert {line for line, _ in flagged(tmp_path, LORA, "| 44%", "| 14%")} == {7}


RESTARTS = "128 H100\n\n" + table(
    "attempt | first step | last step | steps | why it ended", "1 | 0 | 13700 | 13,700 | node lost",
    "2 | 13700 | 36100 | 22,400 | planned", "3 | 36100 | 44100 | 8,000 | NaN, back to 44000",
    "4 | 44000 | 74000 | 30,000 | planned", "5 | 74000 | 91500 | 17,500 | done")  # fmt: skip


def test_a_restart_from_an_older_checkpoint_breaks_no_running_total(tmp_path: Path):
    assert flagged(tmp_path, RESTARTS, "22,400", "24,200") == [(6, "22,400")]
    assert flagged(tmp_path, RESTARTS, "30,000", "3,000") == [(8, "30,000")]


@pytest.mark.parametrize(("part", "whole"), [("Zwischensumme", "Gesamt"), ("sous-total", "total général"),
                                             ("subtotale", "totale"), ("subtotal", "grand total")])  # fmt: skip
def test_subtotals_are_no_rows_of_the_total(tmp_path: Path, part: str, whole: str):
    text = table("project | run | GPUs | hours | GPU-hours", "A | abl | 16 | 120 | 1920", "A | long | 32 | 80 | 2560",
                 f"A | {part} |  |  | 4480", "B | base | 256 | 410 | 104960", "B | more | 64 | 33 | 2112",
                 f"B | {part} |  |  | 107072", f" | {whole} |  |  | 111552")  # fmt: skip
    assert flagged(tmp_path, text, "111552", "115152") == [(9, "111552")]
    assert flagged(tmp_path, text, "107072", "170072")[:1] == [(8, "107072")]


@pytest.mark.parametrize(("right", "wrong", "meant"), [("16 x 380 W = 6.08 kW", "16 x 380 W = 6.80 kW", "6.08"),
                                                       ("64 files x 1.5 GB = 96 GB", "64 files x 1.5 GB = 69 GB", "96"),
                                                       ("8 x 700 W = 5.6 kW", "8 x 700 W = 7.6 kW", "5.6")])  # fmt: skip
def test_a_product_may_be_in_a_larger_unit_than_its_factors(tmp_path: Path, right: str, wrong: str, meant: str):
    text = f"# Diary\n\n2025-03-09 power: {right}, says the plug.\n"
    assert told(tmp_path, text) == []
    assert [finding.proposed for finding in told(tmp_path, text.replace(right, wrong))] == [meant]


def test_a_group_that_is_said_once_is_that_of_the_rows_below(tmp_path: Path):
    text = "H100, 512 sequences of 2048\n\n" + table(
        "model | GPUs | s/it | tok/s/GPU | MFU", "6.7B | 32 | 8.4 | 3,901 | 15.9%", " | 64 | 4.3 | 3,810 | 15.5%",
        " | 128 | 2.2 | 3,724 | 15.1%", "13B | 64 | 8.2 | 1,998 | 15.8%", " | 128 | 4.2 | 1,950 | 15.4%")  # fmt: skip
    assert flagged(tmp_path, text, "15.4%", "51.4%")[0] == (9, "15.4%")
    found = told(tmp_path, text.replace("6.7B |", " |").replace("13B |", "  |"))
    assert {finding.code for finding in found} >= {"duplicate-config"}


def test_a_sentence_may_except_one_size_of_a_model(tmp_path: Path):
    said = "Sequence length is 4096 tokens for everything except TinyLlama (2048) and the 32-GPU Llama-3.1-8B job (8192).\n\n"
    text = said + table(
        "Model | GPUs | Global batch | ms/step | tokens/s", "TinyLlama-1.1B | 8 | 128 | 526 | 498,372",
        "Llama-2-7B | 8 | 64 | 3167 | 82,774", "Llama-2-7B | 16 | 128 | 4102 | 127,813",
        "Llama-3.1-8B | 16 | 128 | 3672 | 142,780", "Llama-3.1-8B | 32 | 128 | 4812 | 217,909",
        "Llama-2-13B | 32 | 128 | 3973 | 131,963", "Qwen2.5-14B | 32 | 128 | 4515 | 116,122")  # fmt: skip
    assert told(tmp_path, text) == []
    assert [finding.line for finding in told(tmp_path, text.replace("32-GPU", "64-GPU"))] == [9]
    assert [finding.line for finding in told(tmp_path, text.replace("142,780", "285,560"))] == [8]


def test_a_last_row_without_a_name_that_adds_everything_up_is_a_total(tmp_path: Path):
    text = table("model | run | GPUs | h | GPU-hours", "8B | base | 256 | 480 | 122,880", "8B | long | 128 | 60 | 7,680",
                 "3B | base | 64 | 212 | 13,568", "3B | sft | 8 | 12 | 96", " |  | 456 | 764 | 144,224")  # fmt: skip
    assert [line for line, _ in flagged(tmp_path, text, "13,568", "31,568")] == [5]
    assert told(tmp_path, text.replace("| 764 |", "| 864 |")) != []


COSTS = """# Half a year

| project | GPUs | days | GPU-h | $/GPU-h | cost |
|---|---|---|---|---|---|
| base | 512 | 42 | 516,096 | 2.46 | $1,269.6k |
| context | 512 | 6 | 73,728 | 2.46 | $181.4k |
| spot | 96 | 184 | 423,936 | 1.845 | $782.2k |
| **total** |  |  | **{hours}** |  | **$2.233M** |
"""
CARDS = """# 70B on Gaudi 2, sequence 8192

| Nodes | Cards | TP | PP | DP | GAS | GB | Step | Tokens/s | Peak mem |
|---|---|---|---|---|---|---|---|---|---|
| 8 | 64 | 8 | 4 | 2 | 32 | 64 | 18.2 s | 28.8k | {memory} GB |
| 8 | 64 | 8 | 8 | 1 | 64 | 64 | 19.1 s | 27.4k | 71 GB |
| 16 | 128 | 8 | 4 | 4 | 32 | 128 | 18.2 s | 57.6k | 84 GB |
| 32 | 256 | 8 | 4 | 8 | 16 | 128 | 9.5 s | 110.4k | 81 GB |
"""
FACTORS = """# 16B on 2 nodes of 8 H800, layout TP x PP x DP elsewhere

| mbs x acc x dp | gbs | s/it | tokens/s |
|---|---|---|---|
| 2 x 8 x 16 | 256 | 7.23 | 145,000 |
| 4 x 4 x 16 | 256 | 6.15 | 170,500 |
| 8 x 2 x 16 | 256 | 5.64 | 185,900 |
| 8 x 8 x 16 | 1024 | {time} | 193,000 |
"""
HARDWARE = """# Guide

We measured on `a100` and `h100`.

| partition | nodes | GPUs per node | memory per GPU | dense bf16 (TFLOP/s) |
|---|---|---|---|---|
| a100 | 44 | 8 | 80 GB | 312 |
| h100 | 20 | 4 | 94 GB | 989 |
"""


@pytest.mark.parametrize(("note", "right", "wrong", "line"), [
    (COSTS, {"hours": "1,013,760"}, {"hours": "1,310,760"}, 8), (CARDS, {"memory": "88"}, {"memory": "188"}, 5),
    (FACTORS, {"time": "21.73"}, {"time": "2.173"}, 8)])
def test_letters_of_a_total_a_global_batch_and_factors_of_the_batch(
        tmp_path: Path, note: str, right: dict[str, str], wrong: dict[str, str], line: int):  # fmt: skip
    path = tmp_path / "notes.md"
    path.write_text(note.format(**right))
    assert [one for one in look_at([str(path)])[0] if one.level == "error"] == []
    path.write_text(note.format(**wrong))
    assert line in [one.line for one in look_at([str(path)])[0] if one.level == "error"]


def test_a_list_of_hardware_has_what_devices_are_sold_with(tmp_path: Path):
    path = tmp_path / "notes.md"
    path.write_text(HARDWARE)
    assert [one for one in look_at([str(path)])[0] if one.level == "error"] == []


WEAK = "# Scaling\n\n4096 tokens, 256 sequences a step on 16 GPUs.\n\n" + table("""
    GPU  GPUs  price  GBS  s/step  tok/s  $ for 1B
    A100  16  1.49  256  15.00  69905  94.7
    H100  16  2.49  256  6.00  174763  63.3
    H100  64  2.49  256  1.60  655360  67.5
    B200  16  4.89  256  2.70  388362  55.9
""") + "\n"
JOBS = "# Jobs\n\n" + table("""
    job  GPUs  days  GPU-h
    a  64  4.0  6,144
    b  96  5.0  11,520
    c  64  8.0  12,288
    d  128  2.0  6,144
""") + "\n"


@pytest.mark.parametrize("note", [
    WEAK + "With 16 GPUs that is 3.7 % more tokens/s than the H100 of the other cloud.\n",
    WEAK + "The B200 is 1.96x the price of the H100 at 16 GPUs.\n",
    "A run over 300B tokens takes 262 h, times 256 GCDs times 0.5: 33.5k GPU-hours from the allocation.\n",
    JOBS + "Reserve of 15 %: 5,414 GPU-h. Together 41,510 GPU-h.\n",
    JOBS + "Sum: 36,096 GPU hours in 19.0 days on 64 GPUs and more.\n",
    "Llama-3.1-405B: 126 layers (`--decoder-first-pipeline-num-layers 7`), hidden 16384, 128 heads, 405.9B params.\n\n" + JOBS,
])
def test_a_sentence_of_something_more_than_the_rows(lint, note: str) -> None:
    assert [one for one in lint(note) if one.level == "error"] == []
