"""Subtotals in whichever column, the whole below them, and rows whose names or dates only look like figures."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at

SPENT = """month,job,gpu,gpus,days,gpu-h,$/gpu-h,$
2025-05,pilot-a,H100,16,5,1920,2.95,5664.00
2025-05,pilot-b,H100,16,4.5,1728,2.95,5097.60
2025-05,mix,H100,32,9,6912,2.95,20390.40
2025-05,subtotal,,,,10560,,31152.00
2025-06,main-1,H100,128,12,36864,2.35,86630.40
2025-06,main-2,H100,128,1.5,4608,2.35,10828.80
2025-06,subtotal,,,,41472,,97459.20
2025-07,sft,H100,32,20,15360,2.35,36096.00
2025-07,dpo,H100,16,4,1536,2.35,3609.60
2025-07,subtotal,,,,16896,,39705.60
all,total,,,,68928,,168316.80
"""
PLAN = """# Plan

| when | run | params | tokens | GPUs | MFU % | days | GPU hours |
|---|---|---|---|---|---|---|---|
| Q1 | proxy | 0.4 | 0.2 | 16 | 35 | 1.0 | 385 |
| Q2 | 8B base | 8 | 6 | 512 | 42 | 15.7 | 192 595 |
| Q3 | 30B base | 30 | 8 | 1024 | 40 | 41.1 | 1 011 122 |
| Q3 | 30B long | 30 | 0.25 | 1024 | 33 | 1.6 | 38 300 |
| Q4 | 8B distilled | 8 | 1.5 | 256 | 31 | 10.6 | 65 234 |
| Q4 | 30B code | 30 | 1 | 512 | 40 | 10.3 | 126 390 |
"""
DATA = """# How long

| dataset | examples | mean tokens | epochs | batch | steps | s/step | hours |
|---|---|---|---|---|---|---|---|
| alpaca | 51,760 | 410 | 3 | 32 | 4,853 | 1.9 | 2.6 |
| code | 120,000 | 1,100 | 2 | 64 | 3,750 | 9.6 | 10.0 |
| long | 18,000 | 7,800 | 2 | 16 | 2,250 | 16.2 | 10.1 |
| chat | 240,000 | 640 | 1 | 64 | 3,750 | 5.8 | 6.0 |
"""


def found(folder: Path, text: str, name: str = "notes.md") -> list[Finding]:
    (folder / name).write_text(text)
    return [one for one in look_at([str(folder / name)])[0] if one.level != "info"]


@pytest.mark.parametrize(("right", "wrong", "line", "proposed"), [
    ("subtotal,,,,10560,", "subtotal,,,,15060,", 5, 10560), (",97459.20", ",79459.20", 8, 97459.20),
    (",39705.60", ",397056.0", 11, 39705.60), ("total,,,,68928,", "total,,,,689280,", 12, 68928),
    (",168316.80", ",186316.80", 12, 168316.80)])  # fmt: skip
@pytest.mark.parametrize("apart", [",", "\t", ";"])
def test_subtotals_of_a_second_column_add_up_to_the_whole(
    tmp_path: Path, right: str, wrong: str, line: int, proposed: float, apart: str
):
    def written(text: str) -> str:
        return text.replace(",", apart)
    name = "spent.tsv" if apart == "\t" else "spent.csv"
    assert found(tmp_path, written(SPENT), name) == []
    told = found(tmp_path, written(SPENT.replace(right, wrong)), name)
    assert [one.line for one in told] == [line]
    assert float((told[0].proposed or "0").replace(",", "")) == pytest.approx(proposed, rel=1e-3)


def test_a_sum_of_the_rows_that_a_comment_names_is_no_total_of_all(tmp_path: Path):
    rows = SPENT.replace(",", "\t")
    assert found(tmp_path, rows + "# the two legs of main-1 and main-2 together: 13.5 days, $97,459\n", "spent.tsv") == []
    told = found(tmp_path, rows + "# all legs together: 56 days, $97,459\n", "spent.tsv")
    assert [(one.line, one.proposed) for one in told] == [(13, "168,317")]


def test_names_that_begin_with_a_size_stand_where_they_belong_and_a_quarter_is_no_day(tmp_path: Path):
    assert found(tmp_path, PLAN) == []
    told = found(tmp_path, PLAN.replace("| Q4 | 30B code |", "| Q4 | 30B code | x |"))
    assert all(one.code != "dated-but-empty" for one in told)
    assert [one.code for one in found(tmp_path, PLAN.replace("| 512 | 42 | 15.7 |", "| 512 | 15.7 | 42 |"))]


def test_a_time_that_the_hours_beside_it_agree_with_is_no_outlier(tmp_path: Path):
    assert found(tmp_path, DATA) == []
    told = found(tmp_path, DATA.replace("| 9.6 |", "| 0.96 |"))
    assert [(one.line, one.proposed) for one in told] == [(6, "9.6")]


@pytest.mark.parametrize("name", ["soma", "totaal", "razem", "łącznie", "celkem", "toplam", "summa", "сумма", "**Soma**"])
def test_a_total_in_other_tongues(tmp_path: Path, name: str) -> None:
    rows = "| a | 16 | 5645 |\n| b | 16 | 8064 |\n| c | 32 | 38707 |\n| d | 32 | 12902 |\n"
    text = f"| what | GPU | EUR |\n|---|---:|---:|\n{rows}| {name} |  | {{}} |\n"
    path = tmp_path / "a.md"
    for total, told in (("65318", []), ("52416", ["65318"])):
        path.write_text(text.format(total), encoding="utf-8")
        assert [one.proposed for one in look_at([str(path)])[0] if one.level != "info"] == told


def test_what_else_is_in_its_row_proves_a_part_of_a_total(tmp_path: Path) -> None:
    path = tmp_path / "energy.md"
    text = ("PUE 1.2, 45 g CO2e/kWh.\n\n| model | GPU-hours | MWh (GPUs) | MWh with PUE | kg CO2e |\n|---|---|---|---|---|\n"
            "| S | 5,034 | 2.0 | 2.4 | 109 |\n| M | 9,660 | 3.9 | 4.6 | 209 |\n| L | 23,185 | 9.3 | 11.1 | 501 |\n"
            "| XL | 58,233 | 23.3 | 28.0 | 1258 |\n| all | 96,112 | 38.4 | {} | 2076 |\n")  # fmt: skip
    for total, told in (("46.1", []), ("38.9", [(9, "46.1")]), ("39.1", [(9, "46.1")])):  # 20.8 for 28.0 would do for the last
        path.write_text(text.format(total), encoding="utf-8")
        assert [(one.line, one.proposed) for one in look_at([str(path)])[0] if one.level != "info"] == told
