"""Columns that are one column over another, in tables of two to four rows."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes.lint import Finding, look_at
from seatrial.notes.lint.columns.ratios import is_of_two


@pytest.fixture
def lint(tmp_path: Path):
    def look(text: str) -> list[Finding]:
        path = tmp_path / "notes.md"
        path.write_text(text, encoding="utf-8")
        return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]

    return look


ENGINES = """
    model  eager (tok/s)  compiled (tok/s)  gain
    1B  52300  68500  1.31x
    3B  21700  27900  1.29x
    7B  9840  12300  1.25x
"""
DEVICES = """
    setup  A100 (s/it)  H100 (s/it)  ratio
    TP=1  5.42  2.61  2.08
    TP=2  5.91  2.74  2.16
    TP=4  7.20  3.15  2.29
"""
VERSIONS = """
    GPUs  NCCL 2.18 (GB/s)  NCCL 2.21 (GB/s)  2.21/2.18
    8  231  242  1.05
    32  188  221  1.18
    128  142  189  1.33
"""
JAPANESE = """
    モデル  V100  A100  倍率
    1B  5.23  2.17  2.41
    3B  11.70  4.52  2.59
    7B  21.40  7.83  2.73
"""
BITS = """
    setup  BF16 (tok/s/GPU)  FP8 (tok/s/GPU)  FP8/BF16
    8B  12810  17960  1.402
    70B  1473  2263  1.536
"""


@pytest.mark.parametrize(("note", "right", "wrong"), [
    (ENGINES, "1.31x", "1.13x"), (ENGINES, "1.29x", "1.92x"), (ENGINES, "9840", "984"), (ENGINES, "1.25x", "12.5x"),
    (DEVICES, "2.16", "1.26"), (DEVICES, "2.08", "2.80"), (VERSIONS, "1.18", "1.81"), (VERSIONS, "1.33", "13.3"),
    (JAPANESE, "2.41", "2.14"), (JAPANESE, "7.83", "78.3"), (BITS, "1.402", "1.042"), (BITS, "1.536", "1.365")])
def test_one_column_over_another_is_a_ratio_by_its_heading(lint, note: str, right: str, wrong: str):
    assert lint(table(note)) == []
    (found,) = lint(table(note).replace(f" {right} ", f" {wrong} "))
    assert found.level == "error" and found.printed == wrong
    assert float((found.proposed or "0").rstrip("x")) == pytest.approx(float(right.rstrip("x")), rel=0.01)


@pytest.mark.parametrize("note", [
    ENGINES.replace("1.31x", "1.35x").replace("1.29x", "1.24x"),  # means of other runs
    ENGINES.replace("gain", "loss").replace("1.25x", "2.25x"), DEVICES.replace("2.16", "1.26").replace("2.29", "1.37"),
    BITS.replace("1.402", "1.4").replace("1.536", "1.9")])
def test_what_few_rows_keep_to_is_no_ratio(lint, note: str):
    assert lint(table(note)) == []


@pytest.mark.parametrize(("heading", "is_one"), [
    ("gain", True), ("speed-up", True), ("Verhältnis", True), ("FP8 vs BF16", True), ("Beschleunigung", True), ("×", True),
    ("倍率", True), ("tokens/s", False), ("s/step", False), ("cost ratio ($)", False), ("compression", False),
    ("% gain", False)])
def test_a_heading_says_that_one_is_held_against_another(heading: str, is_one: bool):
    assert is_of_two(heading) == is_one


SAVED = """
    model  before (ms)  after (ms)  {}
    1B  523  417  20.3 %
    3B  1170  902  22.9 %
    7B  2140  1583  26.0 %
"""


@pytest.mark.parametrize("heading", ["saved", "gain", "Gewinn", "change"])
def test_changes_in_percent_of_three_rows(lint, heading: str):
    note = table(SAVED.format(heading))
    assert lint(note) == []
    assert [(f.line, f.proposed) for f in lint(note.replace("22.9 %", "29.2 %"))] == [(4, "22.9 %")]
    assert [(f.line, f.proposed) for f in lint(note.replace("1583", "15830"))] == [(5, "1583")]
    assert lint(note.replace("22.9 %", "21.1 %").replace("26.0 %", "24.0 %")) == []


WEAK = """
    GPUs  GBS  s/step  {}
    8  64  4.10  100 %
    16  128  4.18  98 %
    32  256  4.31  95 %
"""
STRONG = """
    GPUs  s/step  {}  efficiency
    8  33.10  1.0  100 %
    16  17.02  1.94  97 %
    32  9.05  3.66  91 %
"""
NODES = """
    nodes  tokens/s  speedup  parallel efficiency
    1  24900  1.00  1.00
    2  48800  1.96  0.98
    4  94100  3.78  0.94
"""


@pytest.mark.parametrize(("note", "right", "wrong"), [
    (WEAK.format("efficiency"), "98 %", "89 %"), (WEAK.format("Effizienz"), "98 %", "89 %"),
    (WEAK.format("weak scaling"), "4.31", "3.41"), (STRONG.format("speedup"), "3.66", "6.36"),
    (STRONG.format("speed-up"), "17.02", "10.72"), (STRONG.format("speedup"), "97 %", "79 %"), (NODES, "0.94", "0.49"),
    (NODES, "1.96", "1.69")])
def test_three_rows_show_what_is_1_by_definition_in_the_first(lint, note: str, right: str, wrong: str):
    assert lint(table(note)) == []
    (found,) = lint(table(note).replace(f" {right} ", f" {wrong} "))
    proposed = float((found.proposed or "0").rstrip(" %"))
    assert found.level == "error" and proposed == pytest.approx(float(right.rstrip(" %")), rel=0.011)


def test_a_first_row_of_1x_is_no_coarse_figure(lint):
    note = table("""
        method  GPUs  s/step  faster than row 1
        QLoRA  1x H100  30.8  1x
        LoRA  4x H100  6.9  4.5x
        LoRA  8x H100  3.3  9.3x
        QLoRA  8x L40S  11.3  2.7x
    """)
    assert lint(note) == []
    assert [(one.printed, one.proposed) for one in lint(note.replace("4.5x", "5.4x"))] == [("5.4x", "4.5")]


TOTAL = """
    month  GPU-hours  tokens (B)
    Jan  120,400  310
    Feb  98,200  255
    Mar  131,000  342
    Σ  349,600  907
"""


@pytest.mark.parametrize(("right", "wrong"), [("98,200", "89,200"), ("| 342", "| 432"), ("349,600", "394,600"), ("907", "970")])
def test_two_digits_exchanged_in_a_row_say_more_than_one_digit_of_the_total(lint, right: str, wrong: str):
    assert lint(table(TOTAL)) == []
    (found,) = lint(table(TOTAL).replace(right, wrong))
    assert (found.printed, found.proposed) == (wrong.strip("| "), right.strip("| "))
