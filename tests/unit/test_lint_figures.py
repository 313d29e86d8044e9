"""Measured figures and what is worked out from them: before and after a change, exceptions, totals, memory. As each note should
be, nothing is said."""
from __future__ import annotations

import pytest

RELEASE = """Sequences of 4096 tokens, except TinyLlama (2048). H100-80GB.

| Model | GPUs | Global batch | v1.2 (ms/step) | v1.3 (ms/step) | v1.3 tokens/s | Speedup | Mem v1.2 | Mem v1.3 | Saved |
|---|---|---|---|---|---|---|---|---|---|
| TinyLlama-1.1B | 8 | 128 | 689 | 526 | 498,372 | 1.31x | 33.3 | 27.4 | 18% |
| Llama-2-7B | 8 | 64 | 4021 | 3167 | 82,774 | 1.27x | 37.3 | 31.3 | 16% |
| Llama-2-7B | 16 | 128 | 5087 | 4102 | 127,813 | 1.24x | 17.0 | 14.5 | 15% |
| Llama-3.1-8B | 16 | 128 | 4957 | 3672 | 142,780 | 1.35x | 38.4 | 30.9 | 20% |
| Llama-2-13B | 32 | 128 | 4609 | 3973 | 131,963 | 1.16x | 15.1 | 13.4 | 11% |
| Qwen2.5-14B | 32 | 128 | 6005 | 4515 | 116,121 | 1.33x | 21.2 | 17.2 | 19% |
"""
HPUS = """Packed sequences of 4096 tokens, Gaudi 2. The effective batch size is 128 in all runs.

| Model | HPUs | s/step | samples/s | tokens/s/HPU |
|---|---|---|---|---|
| 7B | 8 | 12.95 | 9.88 | 5061 |
| 7B | 16 | 6.31 | 20.29 | 5193 |
| 13B | 8 | 24.68 | 5.19 | 2655 |
| 13B | 16 | 16.24 | 7.88 | 2018 |
| 70B | 32 | 43.39 | 2.95 | 378 |
"""
SLICES = """On-demand price: $1.20 per chip-hour. Tokens/s is for the slice, sequences of 2048.

| Model | Slice | Per-device batch | Step time (ms) | Tokens/s | Hours for 10B tokens | Cost |
|---|---|---|---|---|---|---|
| 0.5B | v5e-8 | 4 | 370 | 177,124 | 15.68 | $151 |
| 0.5B | v5e-16 | 4 | 374 | 350,460 | 7.93 | $152 |
| 1.1B | v5e-16 | 4 | 720 | 182,044 | 15.26 | $293 |
| 1.1B | v5e-32 | 4 | 724 | 362,078 | 7.67 | $295 |
| 1.1B | v5e-64 | 4 | 742 | 706,588 | 3.93 | $302 |
"""
EXCEPTED = """Sequences of 2048, 8 GPUs, batch 512. 300 B tokens each, except the 7B (100 B).

| model | s/step | tok/s | days |
|---|---|---|---|
| 0.4B | 2.470 | 424,525 | 8.18 |
| 1B | 6.135 | 170,917 | 20.32 |
| 1.4B | 8.010 | 130,908 | 26.52 |
| 1.7B | 9.320 | 112,508 | 30.86 |
| 3.3B | 17.907 | 58,557 | 59.30 |
| 7B | 36.107 | 29,041 | 39.85 |
"""
BILL = """| run | GPUs | tokens/s | hours | GPU hours | EUR |
|---|---|---|---|---|---|
| small | 8 | 81,000 | 10.5 | 84 | 168 |
| medium | 16 | 158,200 | 5.5 | 88 | 176 |
| large | 32 | 311,000 | 3.0 | 96 | 192 |
| long | 64 | 602,400 | 2.0 | 128 | 256 |
| **total** |  |  | 21.0 | 396 | 792 |

In total 396 GPU hours
and 792 EUR, repeats not counted.
"""
LEGS = """A batch of 512 sequences of 4096 tokens on 64 GPUs.

| leg | iterations | iter time (s) | tok/s | hours |
|---|---|---|---|---|
| 1 | 12000 | 3.13 | 670,017 | 10.4 |
| 2 | 8500 | 3.12 | 672,164 | 7.4 |
| 3 | 15200 | 3.10 | 676,501 | 13.1 |
| 4 | 9800 | 3.11 | 674,325 | 8.5 |

Total so far 45,500 iterations, 95.4 B tokens, 39.4 h.
"""
HELD = """A64FX, one process per node, sequence 1024, TP 4, micro batch 1.

| Nodes | DP | TP | MBS | GBS | Sec/it | Tokens/s | Mem/node (GiB) |
|---|---|---|---|---|---|---|---|
| 64 | 16 | 4 | 1 | 128 | 16.32 | 8031 | 7.4 |
| 128 | 32 | 4 | 1 | 256 | 16.45 | 15936 | 7.5 |
| 256 | 64 | 4 | 1 | 512 | 16.83 | 31152 | 7.5 |
| 512 | 128 | 4 | 1 | 1024 | 16.81 | 62378 | 7.5 |
| 1024 | 256 | 4 | 1 | 2048 | 16.95 | 123726 | 7.6 |
"""
HUGGING = """Packed to 2048 tokens, 8 GPUs.

| total batch | train_steps_per_second | train_samples_per_second |
|---|---|---|
| 64 | 0.4868 | 31.16 |
| 128 | 0.2739 | 35.06 |
| 192 | 0.1938 | 37.22 |
| 256 | 0.1451 | 37.15 |
| 512 | 0.0750 | 38.40 |
"""
KIROKU = """系列長 2048、1 ノード 1 プロセス。

| ノード | DP | TP | PP | MBS | GBS | 秒/反復 | トークン/秒 | TFLOPS/ノード |
|---|---|---|---|---|---|---|---|---|
| 128 | 8 | 2 | 8 | 1 | 512 | 174.4 | 6,012 | 1.10 |
| 256 | 16 | 2 | 8 | 1 | 512 | 96.4 | 10,877 | 0.995 |
| 256 | 16 | 2 | 8 | 1 | 1024 | 175.0 | 11,984 | 1.096 |
| 512 | 32 | 2 | 8 | 1 | 1024 | 96.3 | 21,777 | 0.996 |
| 512 | 32 | 2 | 8 | 1 | 2048 | 177.7 | 23,603 | 1.080 |
"""


@pytest.mark.parametrize(
    ("note", "was", "typed", "column", "proposed"),
    [
        pytest.param(RELEASE, "| 1.24x |", "| 1.42x |", "Speedup", "1.24", id="speed-up of two columns"),
        pytest.param(RELEASE, "| 3672 |", "| 672 |", "v1.3 (ms/step)", "3672", id="the time after"),
        pytest.param(RELEASE, "| 4609 |", "| 460.9 |", "v1.2 (ms/step)", "4609", id="the time before"),
        pytest.param(RELEASE, "| 4021 | 3167 |", "| 3167 | 4021 |", "v1.3 (ms/step)", "3167", id="before and after exchanged"),
        pytest.param(RELEASE, "| 82,774 |", "| 10,347 |", "v1.3 tokens/s", "82776", id="of one GPU under the whole"),
        pytest.param(RELEASE, "| 16% |", "| 116% |", "Saved", "16%", id="memory saved"),
        pytest.param(RELEASE, "| 30.9 |", "| 309 |", "Mem v1.3", "30.9", id="memory after"),
        pytest.param(HPUS, "| 5193 |", "| 41544 |", "tokens/s/HPU", "5193", id="of a server under one HPU"),
        pytest.param(HPUS, "| 43.39 | 2.95 |", "| 2.95 | 43.39 |", "s/step", "43.39", id="time and samples exchanged"),
        pytest.param(SLICES, "| $302 |", "| $38 |", "Cost", "$304", id="cost of an eighth of the slice"),
        pytest.param(EXCEPTED, "| 59.30 |", "| 5.930 |", "days", "59.30", id="days of most"),
        pytest.param(BILL, "| 21.0 | 396 |", "| 21.0 | 369 |", "GPU hours", "396", id="total row"),
        pytest.param(BILL, "In total 396", "In total 483", "GPU hours", "396", id="total in a sentence"),
        pytest.param(LEGS, "95.4 B", "59.4 B", "tokens", "95.4", id="tokens that iterations give"),
        pytest.param(HELD, "| 123726 | 7.6 |", "| 123726 | 45.8 |", "Mem/node (GiB)", "7.5", id="memory of a share"),
        pytest.param(HUGGING, "| 37.22 |", "| 3.722 |", "train_samples_per_second", "37.22", id="steps a second"),
        pytest.param(KIROKU, "| 96.3 |", "| 9.63 |", "秒/反復", "96.3", id="time in Japanese"),
    ],
)
def test_a_figure_is_named_with_what_stood_there(lint, note: str, was: str, typed: str, column: str, proposed: str):
    assert lint(note) == []
    assert note.count(was) == 1
    found = lint(note.replace(was, typed))
    line = note[: note.index(was)].count("\n") + 1
    assert [(f.line, f.level, f.column, f.proposed) for f in found] == [(line, "error", column, proposed)]


def test_what_the_text_excepts_is_no_slip_of_another_size(lint):
    found = lint(EXCEPTED.replace("the 7B (100 B)", "the 70B (100 B)"))
    assert [(f.line, f.column) for f in found] == [(10, "days")]


def test_a_total_of_more_than_the_table_is_left_alone(lint):
    assert lint(BILL.replace("In total 396 GPU hours\nand 792 EUR", "In total 1,230 GPU hours\nand 2,460 EUR")) == []
