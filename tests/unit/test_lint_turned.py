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
