"""Laws that the rows of a table keep to: a row that breaks one is told with what would mend it."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at

CHANGES = """8 A100, GPT 2.7B, batch 128, seq 2048.

| change | ms/step | vs previous | vs base |
|---|---|---|---|
| base | 1480 | | |
| flash attention | 1262 | -14.7% | -14.7% |
| fused softmax | 1241 | -1.7% | -16.1% |
| fused adam | 1187 | -4.4% | -19.8% |
| bucketing | 1121 | -5.6% | -24.3% |
| graphs | 1098 | -2.1% | -25.8% |
"""
GAINS = """64 H100, GPT-13B, batch 1024, seq 2048.

| change | before (s/step) | after (s/step) | gain |
|---|---|---|---|
| fused | 9.80 | 9.41 | 4.0% |
| flash attention | 9.41 | 7.62 | 19.0% |
| adam | 7.62 | 7.44 | 2.4% |
| overlap | 7.44 | 6.10 | 18.0% |
"""
AGGREGATE = """2.7B: 32 layers, hidden 2560, 32 heads, vocab 50304, sequence 2048. Global batch size 1024. Nodes of 8 MI300X.

| Nodes | s/it | PFLOP/s | MFU (%) |
|---|---|---|---|
| 1 | 6.77 | 5.544 | 53.0 |
| 2 | 3.59 | 10.46 | 50.0 |
| 4 | 1.86 | 20.22 | 48.3 |
| 8 | 1.03 | 36.56 | 43.7 |
| 16 | 0.597 | 62.83 | 37.5 |
"""
THREADS = """124M: 12 layers, hidden 768, 12 heads. Sequence 512.

| nodes | ranks/node | ranks | threads | MBS | GBS | ms/step | samples/s |
|---|---|---|---|---|---|---|---|
| 1 | 1 | 1 | 112 | 32 | 32 | 4605 | 6.949 |
| 1 | 2 | 2 | 56 | 16 | 32 | 3215 | 9.953 |
| 1 | 4 | 4 | 28 | 8 | 32 | 3021 | 10.59 |
| 1 | 8 | 8 | 14 | 4 | 32 | 2929 | 10.93 |
| 2 | 8 | 16 | 14 | 4 | 64 | 2980 | 21.48 |
"""
SWAPPED = """7B: 32 layers, hidden 4096, 32 heads, sequence 4096, vocab 32000. 4 nodes of 8 B200. TP 2, PP 8.

| MBS | GBS | s/it | MFU |
|---|---|---|---|
| 8 | 2048 | 11.0 | 48.8 |
| 1 | 512 | 2.92 | 45.8 |
| 4 | 256 | 1.60 | 41.7 |
| 8 | 256 | 1.86 | 35.8 |
| 2 | 2048 | 11.2 | 47.7 |
| 2 | 256 | 1.53 | 43.6 |
| 8 | 512 | 3.16 | 42.2 |
"""
SIZES = """One node of 8 H100. MFU = 6 * params * tok/s / (8 * 989e12).

| params (M) | tok/s | MFU % |
|---|---|---|
| 186 | 2,958,635 | 41.7 |
| 333 | 1,778,340 | 44.9 |
| 559 | 1,125,856 | 47.7 |
| 881 | 769,679 | 51.4 |
| 1,308 | 525,191 | 52.1 |
"""
PRICES = """8B, sequence 2048. Prices per GPU hour: L40S $0.95, A100 $1.80, H100 $2.90.

| GPU | # | GBS | s/it | GPU hours | cost ($) |
|---|---|---|---|---|---|
| L40S 48GB | 2 | 32 | 8.45 | 26.4 | 25.1 |
| L40S 48GB | 4 | 32 | 4.21 | 26.3 | 25.0 |
| A100 80GB | 2 | 32 | 7.09 | 22.2 | 40.0 |
| A100 80GB | 4 | 32 | 3.57 | 22.3 | 40.1 |
| H100 80GB | 8 | 64 | 2.04 | 12.8 | 37.1 |
"""


def errors(tmp_path: Path, text: str) -> list[Finding]:
    path = tmp_path / "notes.md"
    path.write_text(text, encoding="utf-8")
    return [finding for finding in look_at([str(path)])[0] if finding.level == "error"]


@pytest.mark.parametrize("text", [CHANGES, GAINS, AGGREGATE, THREADS, SWAPPED, SIZES, PRICES])
def test_rows_that_keep_to_a_law_are_left_alone(tmp_path, text: str):
    assert errors(tmp_path, text) == []


@pytest.mark.parametrize(("text", "right", "wrong", "column", "proposed"), [
    (CHANGES, "-5.6% | -24.3%", "-9.6% | -24.3%", "vs previous", "-5.6%"), (CHANGES, "-25.8%", "-52.8%", "vs base", "-25.8%"),
    (GAINS, "18.0%", "9.0%", "gain", "18.0%"), (AGGREGATE, "36.56", "365.6", "PFLOP/s", "36.56"),
    (THREADS, "| 28 |", "| 56 |", "threads", "28"), (SWAPPED, "3.16 | 42.2", "42.2 | 3.16", "s/it", "3.16"),
    (SIZES, "51.4", "15.4", "MFU %", "51.4")])
def test_a_row_that_breaks_one_is_told_with_what_mends_it(
    tmp_path, text: str, right: str, wrong: str, column: str, proposed: str
):
    (found,) = errors(tmp_path, text.replace(right, wrong))
    assert (found.column, found.proposed) == (column, proposed)


def test_a_law_that_was_found_in_the_rows_is_a_doubt_where_no_slip_explains_what_breaks_it(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text(PRICES.replace("25.0", "76.3"), encoding="utf-8")
    (found,) = [finding for finding in look_at([str(path)])[0] if finding.level != "info"]
    assert (found.level, found.column, found.proposed) == ("warning", "cost ($)", "25.0")


def test_a_figure_that_was_copied_names_the_row_that_it_is_of(tmp_path):
    (found,) = errors(tmp_path, AGGREGATE.replace("| 1.86 | 20.22 |", "| 3.59 | 20.22 |"))
    assert found.column == "s/it" and "line 6" in found.message


def test_thousands_that_lost_a_digit_are_doubted(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("| GPUs | TP | tok/s |\n|---|---|---|\n| 8 | 2 | 186 244 |\n| 16 | 2 | 477 06 |\n| 32 | 2 | 674 671 |\n"
                    "| 64 | 2 | 1 246 635 |\n", encoding="utf-8")
    told = [(f.line, f.printed) for f in look_at([str(path)])[0] if f.level == "warning"]
    assert told == [(4, "477 06")]


def test_one_cell_with_the_unit_of_another_column_is_doubted(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("| GPUs | TP | tok/s/GPU | eff |\n|---|---|---|---|\n| 8 | 2 | 747.3 | 100% |\n| 16 | 2 | 98.9% | 739 |\n"
                    "| 32 | 2 | 735.0 | 98.4% |\n| 64 | 2 | 720.1 | 96.4% |\n", encoding="utf-8")
    told = [(f.line, f.printed) for f in look_at([str(path)])[0] if f.level == "warning"]
    assert told == [(4, "98.9%")]
