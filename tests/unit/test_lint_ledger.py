"""Whole runs by definition: tables, running totals and sentences, each with one slip and without it."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at
from seatrial.notes.lint.phases.quantities import equations, meanings

DAYS = """# Night log

512 GPUs, {tokens} tokens a step.

| day | GPUs | hours | steps | last | s/step | Btok | sum |
|---|---|---|---|---|---|---|---|
| Mon | 512 | 22.0 | 15840 | 135840 | 5.00 | 66.4 | 466.4 |
| Tue | 512 | 23.0 | 16560 | 152400 | 5.00 | 69.5 | 535.9 |
| Wed | 512 | 21.5 | 15480 | 167880 | 5.00 | 64.9 | 600.8 |
| Thu | 512 | 20.0 | 14400 | 182280 | 5.00 | 60.4 | 661.2 |
| Fri | 512 | 23.5 | 16920 | 199200 | 5.00 | 71.0 | 732.2 |
"""
ENERGY = """# Energy

| job | GPU | GPUs | hours | GPU-h | kWh | kg CO2 |
|---|---|---|---|---|---|---|
| a | H100 | 64 | 10.0 | 640 | 448 | 170.2 |
| b | H100 | 128 | 12.5 | 1600 | 1120 | 425.6 |
| c | A100 | 64 | 30.0 | 1920 | 768 | 291.8 |
| d | A100 | 32 | 45.5 | 1456 | 582.4 | 221.3 |
| e | A100 | 64 | 21.0 | 1344 | 537.6 | 204.3 |
| f | H100 | 64 | 33.0 | 2112 | 1478.4 | 561.8 |
"""
PASTED = """# Plan

| job | tokens (B) | GPUs | tokens/s | days | GPU hours | cost (k$) |
|---|---|---|---|---|---|---|
| law | 120 | 64 | 258,000 | 5.4 | 8,269 | 26.5 |
| medicine | 80 | 64 | 258,000 | 3.6 | 5,512 | 17.6 |
| mix | 600 | 128 | 508,000 | 13.7 | 41,995 | 134.4 |
| code | 250 | 128 | 508,000 | 5.7 | 17,498 | 56.0 |
"""
OF_TOKENS = """# What a trillion takes

| engine | GPUs | tokens/s | days for 1T tokens | GPU-h per B tokens | kWh per 1M tokens |
|---|---|---|---|---|---|
| A | 256 | 650,000 | 17.8 | 109.4 | 0.0766 |
| B | 256 | 810,000 | 14.3 | 87.8 | 0.0615 |
| C | 512 | 1,420,000 | 8.15 | 100.2 | 0.0701 |
"""


def found(folder: Path, text: str, name: str = "notes.md") -> list[Finding]:
    (folder / name).write_text(text)
    return [one for one in look_at([str(folder / name)])[0] if one.level != "info"]


@pytest.mark.parametrize(("right", "wrong", "line", "proposed"), [
    ("152400", "154200", 8, "152400"), ("| 69.5 |", "| 96.5 |", 8, "69.5"), ("| 600.8 |", "| 535.9 |", 9, "600.8"),
    ("| 21.5 |", "| 2.15 |", 9, "21.5")])
def test_sums_from_day_to_day_tell_a_sum_and_an_amount_apart(tmp_path: Path, right: str, wrong: str, line: int, proposed: str):
    note = DAYS.replace("{tokens}", "4.194 M")
    assert found(tmp_path, note) == []
    told = found(tmp_path, note.replace(right, wrong))
    assert [(one.line, float(one.proposed or 0)) for one in told] == [(line, float(proposed))]


@pytest.mark.parametrize(("right", "wrong", "line", "proposed"), [
    ("| 1120 |", "| 2110 |", 6, "1120"), ("| 768 |", "| 7.68 |", 7, "768"), ("| 221.3 |", "| 22.13 |", 8, "221.3"),
    ("| 2112 |", "| 212 |", 10, "2112")])
def test_power_that_nobody_states_is_that_of_the_device(tmp_path: Path, right: str, wrong: str, line: int, proposed: str):
    assert found(tmp_path, ENERGY) == []
    told = found(tmp_path, ENERGY.replace(right, wrong))
    assert [one.line for one in told] == [line] and float(told[0].proposed or 0) == pytest.approx(float(proposed), rel=0.01)


def test_a_pair_pasted_from_the_row_above_is_told_by_what_else_the_row_has(tmp_path: Path):
    assert found(tmp_path, PASTED) == []
    told = found(tmp_path, PASTED.replace("3.6 | 5,512", "5.4 | 8,269"))
    assert [one.line for one in told] == [6] and "line 5" in told[0].message


@pytest.mark.parametrize(("sentence", "wrong", "proposed"), [
    ("120,000 GPU-hours at $2.05 = $0.246 M.", "$0.426 M", "0.246"),
    ("The run took 96 h on 256 GPUs, that is 24,576 GPU hours.", "3,072", "24,576"),
    ("50 B tokens at 400,000 tokens/s take 34.7 hours.", "43.7", "34.7"),
    ("El total son 64 GPUs por 10 días, 15.360 horas GPU.", None, ""),
    ("That is 140 MWh, or 53.2 t of CO2e with 380 g per kWh.", "35.2", "53.2")])
def test_a_sentence_reckons_as_a_row_does(tmp_path: Path, sentence: str, wrong: str | None, proposed: str):
    assert found(tmp_path, f"# Bill\n\n{sentence}\n") == []
    if wrong is not None:
        shown = next(word for word in sentence.replace("$", "").split() if word.strip(".") == proposed)
        told = found(tmp_path, f"# Bill\n\n{sentence.replace(shown, wrong.strip('$ M'), 1)}\n")
        assert [one.proposed for one in told] == [proposed]


@pytest.mark.parametrize(("right", "wrong", "line", "proposed"), [
    ("| 14.3 |", "| 41.3 |", 6, "14.3"), ("| 8.15 |", "| 196 |", 7, "8.2"), ("| 109.4 |", "| 10.94 |", 5, "109.4"),
    ("1,420,000", "1,240,000", 7, "1420000")])
def test_so_many_tokens_take_so_long_and_cost_so_much(tmp_path: Path, right: str, wrong: str, line: int, proposed: str):
    assert found(tmp_path, OF_TOKENS) == []
    told = found(tmp_path, OF_TOKENS.replace(right, wrong))
    assert [(one.line, one.proposed) for one in told] == [(line, proposed)]


@pytest.mark.parametrize(("heading", "kind", "unit"), [
    ("days for 2T tokens", "hours of a token", 1.2e-11), ("GPU-h/Mrd. Token", "device hours of a token", 1e-9),
    ("USD per billion tokens", "price of tokens", 1e-9), ("k$ per 1.5T tokens", "price of tokens", 1e3 / 1.5e12),
    ("jours pour 300 milliards de tokens", "hours of a token", 8e-11), ("hours for 30B", "hours of a token", 1 / 30e9)])
def test_a_heading_counts_the_tokens_that_it_is_for(heading: str, kind: str, unit: float):
    assert meanings(heading)[0] == (kind, pytest.approx(unit))


def test_figures_of_another_thing_reckon_nothing(tmp_path: Path):
    for sentence in ("We had 12 days on 256 GPUs and used 50,000 GPU hours of them.",
                     "Budget: 20,000 GPU hours, 64 GPUs, 9 days left.",
                     "A sequence has 4096 tokens; the queue takes 3 hours."):  # fmt: skip
        assert found(tmp_path, f"# Notes\n\n{sentence}\n") == []


@pytest.mark.parametrize(("heading", "kind", "unit"), [
    ("GPU-h", "device hours", 1.0), ("heures GPU", "device hours", 1.0), ("node-hours", "node hours", 1.0),
    ("days", "hours", 24.0),
    ("tokens (B)", "tokens", 1e9), ("cost (k$)", "money", 1e3), ("USD per GPU and h", "price of a device hour", 1.0),
    ("Energy (MWh)", "energy", 1e3), ("W per GPU", "power of a device", 1e-3), ("g CO2/kWh", "carbon of energy", 1e-3),
    ("tCO2e", "carbon", 1e3), ("PUE", "overhead of the site", 1.0), ("s/step", "step seconds", 1.0)])
def test_a_heading_says_a_kind_and_its_unit(heading: str, kind: str, unit: float):
    assert meanings(heading)[0] == (kind, unit)


def test_what_no_column_has_is_eliminated_between_two_laws():
    (law,) = equations(frozenset({"devices", "steps", "step seconds", "device hours"}))
    assert {kind for kind, _ in law.powers} == {"devices", "steps", "step seconds", "device hours"} and not law.free


@pytest.mark.parametrize("headings", [
    "||day|S||token/s|MFU|hour|tok(1e400", "|TFLOP|单卡吞吐|TFLOP", "|days|$/1..5M tokens|$ per 1e400 tokens",
    "|hours|days for 999999999999999999999999999999999999 T tokens|MFU"])
def test_a_heading_may_be_anything(tmp_path: Path, headings: str):
    many = headings.count("|")
    cells = "\n".join("|" + "|".join(str(row * 7 + at) for at in range(many)) for row in range(1, 5))
    found(tmp_path, f"{headings}\n|{'---|' * many}\n{cells}\n")


@pytest.mark.parametrize("note", [
    "| nodes×GPU | GBS | s/step |\n|---|---|---|\n| 2×null | 8 | 1 |\n",
    "|  | A | B |\n|---|---|---|\n| layers | 32 | 24 |\n| hidden | 2048 | 4096 |\n| heads / KV heads | 16 / 4 | {many} / 4 |\n"
    "| experts | 8 | {many} |\n", "| GPU | s/step |\n|---|---|\n| {many}x A100 | 2.1 |\n| 8xA100 | 1.1 |\n"])
def test_a_cell_may_be_anything(tmp_path: Path, note: str):
    found(tmp_path, note.replace("{many}", "9" * 5000))


EXPORT = """Name,model,gpu,gpus,global_batch,seq_length,_step,train_seconds,step_time_s,tokens_per_sec
a,pythia-1b,L40S,4,512,2048,500,7547,15.115,69373
b,pythia-1b,A100,8,512,2048,300,1821,6.083,172376
c,pythia-1b,A100,16,512,2048,800,2468,3.098,338464
d,pythia-1b,A100,16,1024,2048,1200,{seconds},33.903,61857
e,pythia-7b,A100,32,512,2048,500,8614,17.231,60854
f,pythia-7b,A100,64,1024,2048,800,7049,8.853,236883
g,pythia-7b,H100,64,1024,2048,800,2591,3.242,646862
h,pythia-7b,A100,64,1024,2048,1200,11501,9.569,219158
"""


@pytest.mark.parametrize("name", ["train_seconds", "run_s", "train_time_s"])
def test_seconds_of_a_training_are_its_steps_times_theirs(tmp_path, name):
    text = EXPORT.replace("train_seconds", name)
    assert found(tmp_path, text.format(seconds="41000"), "runs.csv") == []
    assert [one.line for one in found(tmp_path, text.format(seconds="4100"), "runs.csv")] == [5]


@pytest.mark.parametrize("text, cell, told", [
    ("| phase | steps | tokens | days |\n|---|---|---|---|\n| A | 120,000 | 251.7B | 6.0 |\n| B | 55,000 | {} | 2.7 |\n"
     "| C | 15,000 | 31.5B | 0.7 |\n", "115.3B", [("94.4B", 115.3)]),
    ("| what | GPU-h | EUR |\n|---|---|---|\n| main | 12,288 | 27,034 |\n| anneal | 1,536 | 3,379 |\n"
     "| ablations | 3,072 | {} |\n", "6,758", [("7,658", 6758.0)]),
])  # fmt: skip
def test_two_rows_show_what_somebody_chose(tmp_path: Path, text: str, cell: str, told: list[tuple[str, float]]) -> None:
    path = tmp_path / "three.md"

    def found(shown: str) -> list[tuple[str | None, float]]:
        path.write_text(text.format(shown), encoding="utf-8")
        every = [one for one in look_at([str(path)])[0] if one.level != "info"]
        return [(one.printed, round(float((one.proposed or "0").replace(",", "").rstrip("B")), 0)) for one in every]

    assert found(cell) == []
    for wrong, right in told:
        assert found(wrong) == [(wrong, round(right, 0))]


def test_a_third_row_may_have_its_own_price(tmp_path: Path) -> None:
    path = tmp_path / "three.md"
    head = "| what | GPU-h | EUR |\n|---|---|---|\n"
    path.write_text(f"{head}| a | 12,288 | 31,211 |\n| b | 1,536 | 3,901 |\n| c | 3,072 | 9,999 |\n")
    assert [one for one in look_at([str(path)])[0] if one.level == "error"] == []  # nobody lets a GPU for 2.53997


WIDE = """run_id;status;model;params;gpu;n_gpu;seq;micro;ga;lr;warm;b1;b2;seed;branch;host;loss;wall_h;gpu_h;usd
f594;ok;p-1.4b;1415;A100-80GB;8;2048;8;4;0.0003;200;0.9;0.95;1;main;n1;2.41;15.75;126.0;238
b42a;ok;p-2.8b;2775;A100-80GB;16;2048;8;2;0.0002;200;0.9;0.95;1;main;n2;2.30;24.42;390.7;738
17e4;ok;p-2.8b;2775;A100-80GB;16;2048;16;2;0.0002;200;0.9;0.95;2;main;n2;2.31;24.69;395.1;747
8330;ok;p-2.8b;2775;H100-SXM;8;2048;8;4;0.0002;200;0.9;0.95;1;main;n7;2.30;17.71;141.7;395
6f39;ok;p-6.9b;6857;H100-SXM;16;2048;4;8;0.00012;400;0.9;0.95;1;main;n7;2.18;60.94;975.1;2720
d3a5;ok;p-6.9b;6857;H100-SXM;32;2048;4;4;0.00012;400;0.9;0.95;1;main;n8;2.18;30.78;984.9;2748
4b31;ok;p-12b;11846;H100-SXM;32;2048;4;4;0.00012;400;0.9;0.95;1;main;n8;2.11;17.40;556.7;1553
"""


def test_the_last_of_many_columns_of_an_export_are_reckoned_with_too(tmp_path: Path):
    note = tmp_path / "runs.csv"
    note.write_text(WIDE, encoding="utf-8")
    assert not [one for one in look_at([str(note)])[0] if one.level == "error"]
    note.write_text(WIDE.replace("975.1;2720", "975.1;7220"), encoding="utf-8")
    (found,) = (one for one in look_at([str(note)])[0] if one.level == "error")
    assert (found.line, found.printed, found.proposed) == (6, "7220", "2720")
