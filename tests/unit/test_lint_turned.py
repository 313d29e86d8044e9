"""Slips in tables whose runs stand side by side are named at their line, with the right value."""
from __future__ import annotations

import pytest

MODEL = "Llama-2 7B (32 layers, hidden 4096, 32 heads), sequence length 4096, nodes of 8 A100.\n\n"
PIPED = """|  | 4 nodes | 8 nodes | 16 nodes | 32 nodes |
|---|---|---|---|---|
| global batch | 512 | 512 | 512 | 1024 |
| step time (s) | 21.12 | 10.66 | 5.45 | 5.51 |
| tokens/s | 99.3k | 196.7k | 384.8k | 761.2k |
"""
UNITS = """Times in ms.

| metric | unit | 4 nodes | 8 nodes | 16 nodes | 32 nodes |
|---|---|---|---|---|---|
| global batch | | 512 | 512 | 512 | 1024 |
| step time | | 21120 | 10660 | 5450 | 5510 |
| throughput | tokens/s | 99.3k | 196.7k | 384.8k | 761.2k |
"""
GAPS = """metric        4 nodes  8 nodes  16 nodes  32 nodes
global batch  512      512      512       1024
step (s)      21.12    10.66    5.45      5.51
tokens/s      99296    196732   384796    761211
"""


@pytest.mark.parametrize("table", [PIPED, UNITS, GAPS])
def test_nothing_is_said_of_a_table_without_a_slip(lint, table: str):
    assert [one for one in lint(MODEL + table) if one.level != "info"] == []


@pytest.mark.parametrize(("table", "right", "wrong", "line"), [
    (PIPED, "384.8k", "348.8k", 7), (PIPED, "10.66", "10.96", 6), (UNITS, "5450", "545", 8), (GAPS, "5.45", "6.45", 5),
    (GAPS, "761211", "716211", 6),
])  # fmt: skip
def test_a_slip_is_named_at_its_line(lint, table: str, right: str, wrong: str, line: int):
    (found,) = (one for one in lint(MODEL + table.replace(right, wrong)) if one.level == "error")
    assert (found.line, found.printed, found.proposed) == (line, wrong, right)


WIKI = """{| class="wikitable"
!  !! A100 !! H100 !! MI300X !! B200
|-
! accelerators || 64 || 64 || 64 || 32
|-
! batch (sequences) || 512 || 512 || 512 || 512
|-
! s per step || 20.78 || 7.41 || 7.15 || 7.16
|-
! ktokens/s || 202 || 566 || 587 || 586
|-
! of whom || rented || rented || ours || rented
|}
"""


def test_a_wiki_with_its_runs_side_by_side(lint):
    told = "Llama-3-8B, sequence length 8192.\n\n"
    assert lint(told + WIKI) == []
    (found,) = (one for one in lint(told + WIKI.replace("587", "857")) if one.level == "error")
    assert (found.line, found.printed, found.proposed) == (12, "857", "587")


def test_the_data_sheets_of_devices_are_no_runs(lint):
    sheet = "| | A100 | H100 |\n|--|--|--|\n| memory (GB) | 80 | 80 |\n| TFLOPS | 312 | 989 |\n| GPUs per node | 8 | 8 |\n"
    assert lint(f"| nodes | s/it |\n|--|--|\n| 4 | 8.1 |\n\n{sheet}") == []


METER = """Meter readings, 0.34 EUR per kWh.

| model | smol | smol | mid | mid | **sum** |
|---|---|---|---|---|---|
| card | 2x 3090 | 4090 | 2x 3090 | 4090 |  |
| watts | 760 | 505 | 790 | 530 |  |
| hours | 32.0 | 22.5 | 96.4 | 69.5 |  |
| kWh | 24.3 | 11.4 | 76.1 | 36.8 | 148.6 |
| EUR | 8.28 | 3.87 | 25.88 | 12.53 | 50.56 |
"""
BILL = """|  | Base | Large | XL |
|---|---|---|---|
| GPUs | 64 | 128 | 256 |
| Tokens | 300B | 300B | 600B |
| Hours | 120 | 310 | 540 |
| GPU-hours | 7,680 | 39,680 | 138,240 |
| Cost | $15,360 | $79,360 | $276,480 |
"""
RECHNUNG = """| Posten | Lauf A | Lauf B | Lauf C |
|---|---:|---:|---:|
| Stunden | 310 | 120 | 48 |
| GPU-Stunden | 79.360 | 15.360 | 3.072 |
| kWh | 55.552 | 10.752 | 2.150 |
| Kosten (EUR) | 174.592 | 33.792 | 6.758 |
"""


@pytest.mark.parametrize("note", [METER, BILL, RECHNUNG])
def test_hours_and_money_below_each_other_agree(lint, note: str):
    assert [one for one in lint(note) if one.level != "info"] == []


@pytest.mark.parametrize(("note", "right", "wrong", "line"), [
    (METER, "11.4", "114.0", 8), (METER, "25.88", "28.58", 9), (METER, "148.6", "184.6", 8), (BILL, "39,680", "36,980", 6),
    (BILL, "$79,360", "$793,600", 7), (BILL, "540", "450", 5), (RECHNUNG, "174.592", "147.592", 6),
])  # fmt: skip
def test_what_is_wrong_below_each_other_is_named(lint, note: str, right: str, wrong: str, line: int):
    (found,) = (one for one in lint(note.replace(right, wrong)) if one.level != "info")
    proposed, meant = (float(one.replace(",", "").lstrip("$")) for one in (found.proposed, right))
    assert (found.line, proposed) == (line, meant)


def test_headings_of_runs_name_their_models(lint):
    """Rows of a 32B are no slip beside those of a 1.5B."""
    assert lint("""Eight H200, sequence 4096.

|  | 1.5B before | 1.5B after | 7B before | 7B after | 32B before | 32B after |
|---|---|---|---|---|---|---|
| micro batch / GPU | 8 | 8 | 2 | 2 | 1 | 1 |
| accumulation | 4 | 4 | 8 | 8 | 16 | 16 |
| step, ms | 4,142 | 3,896 | 7,969 | 7,624 | 34,208 | 33,319 |
| tokens/s (8 GPUs) | 253,157 | 269,153 | 65,795 | 68,764 | 15,326 | 15,736 |
""") == []
