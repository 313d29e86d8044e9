"""Peaks, memory and use of devices against their data sheets and against each other."""
from __future__ import annotations

import pytest

from lint_tables import table

USED = "A100, peak 312 TFLOPS. HFU counts the recomputed forward too: four thirds of the MFU.\n\n" + table("""
    recompute  mbs  s/step  tok/s/GPU  MFU, %  HFU, %
    none  1  14.91  2198  44.1  44.1
    selective  2  14.54  2253  45.2  45.2
    full  4  18.41  1780  35.7  47.6
""")


@pytest.mark.parametrize(("right", "wrong"), [
    ("35.7 | 47.6", "35.7 | 35.7"), ("35.7 | 47.6", "35.7 | 67.4"), ("44.1 | 44.1", "44.1 | 58.8")])
def test_full_recomputation_uses_four_thirds(lint, right: str, wrong: str) -> None:
    assert not lint(USED)
    found = lint(USED.replace(f"| {right} |", f"| {wrong} |"))
    assert [(f.column, f.proposed) for f in found] == [("HFU, %", right.rpartition(" ")[2])]


SHEETS = table("""
    chip  TFLOP/s  GB  TB/s  W
    A100 SXM4  312  80  2.04  400
    H100 SXM5  989  80  3.35  700
    H200 SXM5  989  141  4.8  700
    MI300X  1307  192  5.3  750
""")


def test_a_peak_of_sparse_numbers_among_dense_ones(lint) -> None:
    assert not lint(SHEETS)
    (found,) = lint(SHEETS.replace("| H100 SXM5 | 989", "| H100 SXM5 | 1979"))
    assert (found.code, found.printed, found.proposed) == ("over-peak", "1979", "989")


def test_more_than_a_card_for_workstations_has(lint) -> None:
    text = "LoRA on RTX A6000 (48 GB), sequences of 2048; full fine-tuning ran on A100-80GB.\n\n" + table("""
        machine  batch  step (s)  samples/s  peak mem
        1x A6000  32  45.0  0.71  19.3 GB
        2x A6000  32  22.1  1.45  21.5 GB
        4x A6000  64  22.0  2.91  21.6 GB
    """)
    assert not lint(text)
    assert [f.code for f in lint(text.replace("21.6 GB", "58.6 GB"))] == ["memory-over-capacity"]


def test_stages_and_their_layers_may_be_said_either_way_round(lint) -> None:
    text = "A model of 80 layers on 128 H100s, TP 4, PP 8, DP 4, GBS 256, sequences of 4096.\n\n" + table("""
        layers per stage  step (s)  tokens/s
        10 x 8  9.58  109454
        9, 10 x 4, 11, 11, 9  9.32  112508
        9, 11 x 2, 10 x 4, 9  9.27  113115
    """)
    assert not lint(text)
    assert [f.code for f in lint(text.replace("10 x 4, 11, 11, 9", "10 x 4, 11, 11, 7"))] == ["stages-sum"]


def test_a_row_called_l4_is_no_card(lint) -> None:
    note = table("""
        try  TP  PP  DP  mbs  s/step  tok/s  GiB
        L2  8  4  8  2  45.6  183957  61.3
        L3  8  2  16  1  38.7  216756  45.7
        L4  8  8  8  1  39.7  211297  33.1
        L5  4  8  8  1  37.4  224296  48.9
    """)
    assert lint(f"H100 nodes of 8, seq 8192, gbs 1024.\n\n{note}") == []
