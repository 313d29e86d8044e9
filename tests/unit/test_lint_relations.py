"""Columns that follow from each other: the one cell that is wrong is named with what stood there, and nothing else is."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at

HEAD = "Sequence length 4096, GPUs in nodes of 8.\n\n"
NAMES = "| GPUs | TP | PP | MBS | GBS | Step time (s) | tokens/s/GPU | TFLOPs | MFU | Mem (GiB) | Efficiency |\n"
COLUMNS = NAMES + "|---" * 11 + "|\n"
ROWS = [(8, 1, 1, 2, 128), (16, 2, 1, 2, 256), (32, 2, 1, 4, 512), (64, 2, 2, 2, 1024), (128, 4, 2, 2, 1024),
        (256, 4, 2, 1, 2048)]  # fmt: skip
TIMES = (6.48, 6.61, 6.57, 6.93, 3.61, 3.87)


def clean_rows() -> list[list[str]]:
    rows = []
    for (gpus, tp, pp, mbs, gbs), seconds in zip(ROWS, TIMES):
        rate = gbs * 4096 / seconds / gpus
        tflops = rate * 0.0461
        first = ROWS[0][4] * 4096 / TIMES[0] / 8
        rows.append([str(gpus), str(tp), str(pp), str(mbs), str(gbs), f"{seconds:.2f}", f"{rate:.0f}", f"{tflops:.1f}",
                     f"{tflops / 989:.1%}", f"{60 - tp * 4 + mbs:.1f}", f"{rate / first:.3f}"])  # fmt: skip
    return rows


@pytest.fixture
def lint(tmp_path: Path):
    def look(rows: list[list[str]], head: str = HEAD) -> list[Finding]:
        path = tmp_path / "notes.md"
        path.write_text(head + COLUMNS + "".join("| " + " | ".join(row) + " |\n" for row in rows))
        return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]

    return look


def test_rows_that_agree_are_left_alone(lint):
    assert lint(clean_rows()) == []


@pytest.mark.parametrize(
    ("row", "column", "typed", "code"),
    [
        (1, 5, "66.10", "tflops-mismatch"),
        (2, 5, "6570", "ms-not-s"),
        (2, 6, "9783", "rate-mismatch"),
        (3, 6, "60519", "rate-mismatch"),
        (3, 7, "348.8", "tflops-mismatch"),
        (4, 8, "14.6%", "rate-mismatch"),
        (1, 9, "55500", "memory-unit"),
        (4, 10, "0.798", "aggregate"),
    ],
)
def test_one_wrong_cell_is_named_with_what_stood_there(lint, row: int, column: int, typed: str, code: str):
    rows = clean_rows()
    right, rows[row][column] = rows[row][column], typed
    told = [(f.line, f.level, f.code) for f in lint(rows)]
    assert told == [(row + 5, "error", code)]
    (finding,) = lint(rows)
    assert finding.proposed is not None
    assert float(finding.proposed.strip("%")) == pytest.approx(float(right.strip("%")), rel=0.01)


def test_two_rows_each_with_the_other_s_time_are_told_to_exchange_them(lint):
    rows = clean_rows()
    rows[1][5], rows[4][5] = rows[4][5], rows[1][5]
    assert [(f.line, f.proposed) for f in lint(rows)] == [(6, "6.61"), (9, "3.61")]


def test_a_pair_of_figures_pasted_from_another_layout_names_its_source_and_invents_nothing(lint):
    rows = clean_rows()
    rows[2][5:9] = rows[1][5:9]
    (finding,) = [f for f in lint(rows) if f.code == "pasted-pair"]
    assert (finding.line, finding.proposed) == (7, None) and "line 6" in finding.message


def test_rows_that_share_a_deviation_keep_to_a_habit(lint):
    rows = clean_rows()
    for row in rows[3:]:
        row[6] = str(int(row[6]) * 2)
    assert [f for f in lint(rows) if f.code == "rate-mismatch"] == []


def test_cells_one_column_to_the_left_are_moved_back(lint):
    rows = [[*row, "05-03"] for row in clean_rows()]
    rows[3] = [*rows[3][:5], *rows[3][6:], ""]
    columns = COLUMNS.replace("Efficiency |", "Efficiency | Notes |").replace("\n|---", "\n|---|---", 1)
    path_rows = "".join("| " + " | ".join(row) + " |\n" for row in rows)
    found = lint([], HEAD + columns.removesuffix("\n") + "\n" + path_rows + "\n")
    assert [(f.line, f.code) for f in found] == [(8, "cells-shifted")]


def test_a_status_that_the_figures_deny(tmp_path: Path):
    path = tmp_path / "notes.md"
    path.write_text("| GPUs | TP | status | s/it | TFLOPs |\n|---|---|---|---|---|\n| 8 | 1 | ok | 6.5 | 120.1 |\n"
                    "| 8 | 2 | OOM | 6.9 | 113.2 |\n| 8 | 4 | OOM | - | - |\n")  # fmt: skip
    told = [(f.line, f.level, f.code) for f in look_at([str(path)])[0] if f.level != "info"]
    assert told == [(4, "warning", "outcome-vs-figures")]


FRENCH = """# Essais du 7B

Machine : 8 H100 (80 Go) par nœud, bf16, séquences de 4096 jetons.

| GPU | TP | Lot global | Mémoire max. (Gio) | Temps/itération (s) | Jetons/s | TFLOP/s par GPU |
|---|---|---|---|---|---|---|
"""


def test_headings_thin_spaces_and_commas_of_other_countries(tmp_path: Path):
    rows = [[gpus, 2, 512, "61,5", f"{512 * 4096 / rate:.2f}".replace(".", ","), f"{rate:_}".replace("_", "\u202f"), tflops]
            for gpus, rate, tflops in ((8, 80123, "450,6"), (16, 158011, "444,3"), (32, 312400, "439,2"), (64, 610700, "429,3"))
            ]
    rows[2][5] = "321\u202f400"
    path = tmp_path / "essais.md"
    path.write_text(FRENCH + "".join("| " + " | ".join(map(str, row)) + " |\n" for row in rows), encoding="utf-8")
    told = [(f.line, f.column, f.proposed) for f in look_at([str(path)])[0] if f.level == "error"]
    assert told == [(9, "Jetons/s", "312400")]


def say(tmp_path: Path, text: str) -> list[tuple[int | None, str | None, str | None]]:
    path = tmp_path / "notes.md"
    path.write_text(text, encoding="utf-8")
    return [(f.line, f.column, f.proposed) for f in look_at([str(path)])[0] if f.level != "info"]


SPEEDS = """| cards | s/step | gain | kept | card-h / 1k |
|---|---|---|---|---|
| 8 | 5.112 | 1.00x | 100.0% | 11.36 |
| 16 | 2.655 | 1.93x | 96.3% | 11.80 |
| 32 | 1.391 | {gain} | 91.9% | 12.36 |
| 64 | 0.712 | 7.18x | 89.7% | 12.66 |
| 128 | {sec} | 13.88x | 86.8% | 13.08 |
| 256 | 0.192 | 26.62x | 83.2% | {hours} |
"""


def test_columns_under_any_heading_are_tied_to_what_they_follow_from(tmp_path: Path):
    assert say(tmp_path, SPEEDS.format(gain="3.68x", sec="0.368", hours="13.65")) == []
    wrong = SPEEDS.format(gain="6.38x", sec="0.638", hours="136.5")
    assert say(tmp_path, wrong) == [(5, "gain", "3.68"), (7, "s/step", "0.368"), (8, "card-h / 1k", "13.65")]


def test_without_a_batch_time_and_tflops_and_devices_still_belong_together(tmp_path: Path):
    rows = [(8, "6.61", "415.2"), (16, "3.36", "408.4"), (32, "1.71", "401.3"), (64, "0.868", "395.3"), (128, "0.443", "387.2")]
    text = "| GPUs | time/iter (s) | TFLOPs |\n|---|---|---|\n"
    assert say(tmp_path, text + "".join(f"| {g} | {s} | {t} |\n" for g, s, t in rows)) == []
    rows[2] = (32, "17.1", "401.3")
    assert say(tmp_path, text + "".join(f"| {g} | {s} | {t} |\n" for g, s, t in rows)) == [(5, "time/iter (s)", "1.71")]


PROSE = """# 6.7B

Global batch size {gbs}, sequence length 2048, A100 40GB, 8 per node.

| GPUs | TP | sec/it | samples/s | tokens/s/GPU |
|---|---|---|---|---|
| 16 | 2 | 20.15 | 25.41 | 3252 |
| 16 | 4 | 21.39 | 23.94 | 3064 |
| 32 | 4 | 11.12 | {rate} | 2947 |
| 32 | 2 | 10.55 | 48.53 | 3106 |
| 64 | 4 | 5.49 | 93.26 | 2984 |
"""


def test_a_setting_of_the_text_that_all_rows_deny_is_said_once_and_hides_no_slip(tmp_path: Path):
    assert say(tmp_path, PROSE.format(gbs=512, rate="46.04")) == []
    assert say(tmp_path, PROSE.format(gbs=1024, rate="460.4")) == [(3, "GBS", "512"), (9, "samples/s", "46.04")]


DEVICES = """# One model, three machines. Sequence length 2048

| Device | GPUs | GBS | TFLOPS/GPU | MFU | Memory |
|---|---|---|---|---|---|
| A100 | 8 | 1024 | 144.5 | 46.3% | {memory} |
| A100 | 16 | 1024 | 141.5 | 45.4% | 11 GB |
| H100 | 8 | 1024 | 460.7 | 46.6% | 12 GB |
| H100 | 16 | 1024 | 452.8 | 45.8% | 11 GB |
| MI300X | 16 | {gbs} | 600.6 | {mfu} | 91 GB |
"""


def test_each_row_is_held_against_its_own_device(tmp_path: Path):
    assert say(tmp_path, DEVICES.format(memory="12 GB", mfu="46.0%", gbs=1024)) == []
    told = say(tmp_path, DEVICES.format(memory="112 GB", mfu="4.6%", gbs=1042))
    assert [line for line, _, _ in told] == [5, 9, 9] and (9, "MFU", "46%") in told
    assert (9, "GBS", "1024") in told


@pytest.mark.parametrize("text", [
    # A figure far beyond what anybody measures, in a column that nothing is known of.
    "|G|||Hidden||PP|micro | | sec/step | -|\n| 1e-308 | |8 |  |  | |  |   |  141 |\n|   32 | |  |  |  |  | |  |  1024 ||\n"
    "| 8 |  B |3 | |  |  ||6 |  256  |\n|   32 | |  |  |  |  |  4 |6 |  1024 | |\n|16 |  B |2 |6 |2 |2 | |  |   512 |\n"
    "|32 |  B |2 |6 |2 |2 | |  |  1024 ",
    # The rows agree on less than one token.
    "2048 token batch of 1sequences\n|o|e|micro|ac|it/s|m|token/s\n|||||2||16\n|||||2|| 15 |\n| | 2 || t |  |   2 |  | 16 ",
    # A time whose last digit may hide 0.
    "|N|||Layer|Hidden||||||DP|TP |  PP |P | MBS | GBS |ms/it| |Se| e || E|   Mem |  Sec/it | TFLOPs-|\n"
    "| | 2 || t |  |   2 | 128 | |  6 |2 |4 | |   2 |   1 |   1 |  |  |   4 |   0|  | sl || 2 | 1 | | 0.16 | 32",
    # Devices that the text alone counts.
    "|GPU|DP|s|\n|192|2|7\n|384|4|6\n56H00\na|tok/s\n-|\n9|2",
])  # fmt: skip
def test_what_cannot_be_solved_is_left_alone(tmp_path: Path, text: str):
    assert [line for line in say(tmp_path, text) if line[2] in ("inf", "nan", "0")] == []


UNSAID_DEVICES = """# On the lab's machine

| run | batch | seq | s/step | tok/s | tok/s/GPU |
|---|---|---|---|---|---|
| a | 64 | 2048 | 4.54 | 28870 | 3609 |
| b | 64 | 2048 | 4.50 | 29127 | {b} |
| c | 64 | {c} | 9.10 | 28807 | 3601 |
| d | 128 | 2048 | 9.00 | 29127 | 3641 |
| e | 128 | 2048 | {e} |
"""


def test_devices_that_no_row_counts_are_told_by_the_rates(tmp_path: Path):
    clean = dict(b="3641", c="4096", e="9.18 | 28555 | 3569")
    assert say(tmp_path, UNSAID_DEVICES.format(**clean)) == []
    assert say(tmp_path, UNSAID_DEVICES.format(**clean | dict(b="6341"))) == [(6, "tok/s/GPU", "3641")]
    assert {line for line, _, _ in say(tmp_path, UNSAID_DEVICES.format(**clean | dict(c="2048")))} == {7}


def test_a_row_whose_rates_agree_on_twice_as_many_devices_ran_on_them(tmp_path: Path):
    assert say(tmp_path, UNSAID_DEVICES.format(b="3641", c="4096", e="4.59 | 57111 | 3569")) == []


STEPS_SAID = """micro-batch 2, {said}{axis}

| GPUs | GBS | s/step |
|---|---|---|
| 8 | 64 | 1.1 |
| 16 | 128 | 1.12 |
| 32 | 256 | 1.15 |
"""


@pytest.mark.parametrize("said", ["gradient accumulation {}", "GA={}", "grad_accum: {}", "{} gradient accumulation steps"])
def test_steps_of_accumulation_that_the_text_counts_are_those_of_the_rows(tmp_path: Path, said: str):
    def told(steps: int, axis: str = "") -> list[tuple[int | None, str | None, str | None]]:
        return say(tmp_path, STEPS_SAID.format(said=said.format(steps), axis=axis))

    assert told(4) == []
    assert told(8) == [(1, "GA", "4")]
    assert told(8, ". Some of it with TP") == []


BUDGET = """| Model | GPUs | Tokens | tokens/s/GPU | GPU-hours | Days |
|---|---|---|---|---|---|
| 1.2B | 32 | 0.3T | 55,000 | 1,515 | 2.0 |
| 1.2B | 64 | 1T | 54,000 | 5,144 | 3.3 |
| 3.2B | 64 | 0.3T | 21,600 | 3,858 | 2.5 |
| 3.2B | 128 | 1T | 21,200 | 13,103 | 4.3 |
| 8B | 128 | 0.5T | 9,000 | 15,432 | 5.0 |
| 8B | 256 | 2T | 8,700 | 63,857 | 10.4 |
| 8B | 512 | 2T | {rate} | 66,138 | 5.4 |
"""


def test_what_somebody_chose_is_not_what_is_wrong(tmp_path: Path):
    assert say(tmp_path, BUDGET.format(rate="8,400")) == []
    assert say(tmp_path, BUDGET.format(rate="840")) == [(9, "tokens/s/GPU", "8400")]


LOOSE_RATES = """params_b,world_size,tp,dp,micro_batch,global_batch,seq_len,step_time_s,tokens_per_sec,tflops_per_gpu
8.38,16,1,16,1,256,4096,8.257,127190,399.3
8.38,16,2,8,2,256,4096,8.101,129139,407.5
8.38,16,2,8,4,256,4096,7.879,{rate},418.1
8.38,32,1,32,1,512,4096,8.367,249661,393.3
8.38,32,2,16,4,512,4096,7.927,263992,414.0
8.38,64,2,32,2,512,8192,8.064,518556,409.9
8.38,64,4,16,4,512,8192,8.485,492979,389.2
8.38,128,2,64,2,1024,8192,8.161,1030200,402.7
8.38,128,4,32,4,512,16384,9.123,920075,361.7
"""


def test_of_means_a_lost_digit_that_comes_closer_is_meant(tmp_path: Path):
    path = tmp_path / "runs.csv"
    for rate, told in (("133102", []), ("13102", ["133102"]), ("13310", ["133100"])):
        path.write_text(LOOSE_RATES.format(rate=rate), encoding="utf-8")
        assert [f.proposed for f in look_at([str(path)])[0] if f.level != "info"] == told


def test_parameters_that_all_other_rows_of_a_shape_have_are_those_of_the_row(tmp_path: Path):
    def told(*params: str) -> list[tuple[int | None, str | None, str | None]]:
        rows = "".join(f"| 36 | 4096 | {each} | {dp} | 8.{dp} |\n" for dp, each in zip((1, 2, 4, 8, 16), params))
        return say(tmp_path, "| layers | hidden | params (B) | DP | s/it |\n|---|---|---|---|---|\n" + rows)

    assert told("8.38", "8.38", "8.38", "8.38", "8.38") == []
    assert [line for line, _, _ in told("8.38", "8.38", "3.88", "8.38", "8.38")] == [5]
    assert told("8.38", "8.38", "7.11", "8.38", "8.38") == []  # a vocabulary of its own


def test_the_batch_of_a_device_by_its_short_name_gives_the_tokens(tmp_path: Path):
    def told(seconds: str) -> list[tuple[int | None, str | None, str | None]]:
        rows = [f"| {n} | 4 | {each} | {tokens} |" for n, each, tokens in ((4, "1.264", "6,481"), (8, seconds, "6,461"),
                                                                           (16, "1.275", "6,425"), (32, "1.281", "6,395"))]
        text = "Sequence 2048.\n\n| chips | PDB | step [s] | tokens/s/chip |\n|---|---|---|---|\n"
        return say(tmp_path, text + "\n".join(rows) + "\n")

    assert told("1.268") == []
    assert told("2.168") == [(6, "step [s]", "1.268")]


DIARY = """# Diary, 4 cards

| what | tok/s | W | h/B | kWh/B | EUR/B |
|---|---|---|---|---|---|
| first | 6261 | 402 | 44.32 | 17.90 | 5.03 |
| bf16 | 10243 | 418 | 27.06 | 11.29 | 3.18 |
| compile | 13077 | 431 | 21.26 | 9.13 | 2.56 |
| flash | 15310 | 436 | 18.10 | 7.86 | 2.21 |
| pair | 29579 | 806 | 9.35 | 7.53 | 2.13 |
| riser | 25499 | 781 | 10.89 | 8.44 | 2.37 |
| limit | 54279 | 1248 | 5.11 | {one} | 1.79 |
| less | 45469 | 1015 | 6.05 | 6.17 | 1.73 |
| ckpt | 47187 | 1236 | 5.89 | {other} | 2.05 |
"""


def test_figures_of_two_rows_in_each_others_place_are_known_though_they_scatter(tmp_path: Path):
    path = tmp_path / "notes.md"
    path.write_text(DIARY.format(one="6.41", other="7.31"))
    assert [f for f in look_at([str(path)])[0] if f.level != "info"] == []
    path.write_text(DIARY.format(one="7.31", other="6.41"))
    assert [(f.line, f.proposed) for f in look_at([str(path)])[0] if f.level != "info"] == [(11, "6.41"), (13, "7.31")]
