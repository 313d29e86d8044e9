"""How many times as fast one row is as another, in sentences that name the two in any way."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

NODES = "Eight A100 a node, 4096 tokens.\n\n" + table("""
    nodes  GPUs  TP  PP  batch  s/step  tokens/s  TFLOP/s/GPU
    4  32  4  1  512  35.040  59,850  153.5
    8  64  4  1  512  17.922  117,016  150.1
    8  64  2  2  512  17.700  118,483  151.9
    16  128  4  1  1024  18.186  230,634  147.9
    16  128  2  4  1024  18.380  228,199  146.3
""") + "\n"
NUMBERED = "# Layouts\n\n" + table("""
    #  TP  PP  mbs  s/step  tokens/s  TFLOP/s
    1  8  1  1  66.5  31,536  105.7
    2  8  2  1  63.1  33,235  111.4
    3  4  4  1  61.5  34,100  114.3
    4  4  4  2  55.9  37,516  125.8
""") + "\n"
CARDS = "Context is 2048.\n\n" + table("""
    run  cards  micro  gbs  s/step  tok/s
    a1  1  8  256  22.06  23766
    a3  2  16  256  11.28  46479
    a4  4  16  256  6.26  83751
    a6  4  16  512  11.89  88190
""") + "\n"

CAPPED = "Llama-3-8B, 4096 tokens, one 4090.\n\n" + table("""
    try  cap  ckpt  s/step  tok/s
    a  450 W  off  4.00  8192
    b  350 W  off  4.16  7877
    c  250 W  off  5.00  6554
    d  250 W  on  6.40  5120
""") + "\n"
CHIPS = "Llama-3-8B, 4096 tokens, 256 sequences.\n\n" + table("""
    GPU  GPUs  dtype  s/step  tok/s
    A100  16  bf16  15.0  69905
    H100  16  bf16  6.00  174763
    H100  16  fp8  4.50  233017
    H100  64  bf16  1.60  655360
""") + "\n"


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("note", "said", "right", "wrong"), [
    (NODES, "Переход от 4 к 16 узлам (TP = 4, PP = 1) ускоряет обучение в {} раза.", "3,85", "2,70"),
    (NODES, "Van 4 naar 16 knopen (TP=4, PP=1) gaat het {} keer zo snel.", "3,9", "2,4"),
    (NODES, "從 4 节点到 16 节点 (TP=4 PP=1),总吞吐提高 {} 倍。", "3.85", "5.38"),
    (NODES, "Going from four nodes (TP 4, PP 1) to sixteen keeps {} % of the rate per GPU.", "96", "69"),
    (CARDS, "So four cards are {}x one card (a4 vs a1).", "3.5", "2.5"),
    (CARDS, "a4 ist {}-mal so schnell wie a1.", "3,5", "5,3"),
    (NUMBERED, "## Reading it\n\nWinner is #4. Against #1 it is {} % faster.", "19", "28"),
    (NUMBERED, "最优是 #4,比基线快 {}%。", "19", "38"),
    (CAPPED, "Going from 450 W to 250 W (ckpt off) costs {} % of the speed.", "20", "32"),
    (CAPPED, "With checkpointing the step is {} times as long in d as in c.", "1.28", "1.79"),
    (CAPPED, "d to b is a factor of {}; with water cooling it would be more.", "1.54", "2.17"),
    (CAPPED, "From the first row to the last the rate falls by a factor of {}.", "1.60", "2.40"),
    (CHIPS, "bf16 16장 기준 H100은 A100보다 {}배 빠릅니다.", "2.50", "1.75"),
    (CHIPS, "From 16 to 64 H100s (bf16) it gets {} times faster; the ideal would be 4.", "3.75", "3.15"),
])  # fmt: skip
def test_how_many_times_as_fast(tmp_path: Path, note: str, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{note}{said.format(right)}\n") == []
    (one,) = _found(tmp_path, f"{note}{said.format(wrong)}\n")
    assert (one.printed, one.proposed) == (wrong, right)


def test_so_many_times_the_devices(tmp_path: Path) -> None:
    note = table("""
        nodes  GPUs  GA  s/it  ktok/s
        4  16  32  36.04  58.2
        8  32  16  18.14  115.6
        32  128  4  4.73  443.4
        128  512  1  1.40  1498.0
    """)
    said = f"{note}\nStrong scaling: 32 times the nodes run {{}} times as fast.\n"
    assert _found(tmp_path, said.format("25.7")) == []
    (one,) = _found(tmp_path, said.format("20.8"))
    assert (one.printed, one.proposed) == ("20.8", "25.7")


@pytest.mark.parametrize("said", [
    "a4 needs 1.3 times the memory of a1.", "Compared with a1, a4 costs 2.2x as much.", "a6 has 2 times the batch of a4.",
    "With the old driver a4 was only 2.1 times as fast as before.", "The paper says a4 should be 3.9 times as fast as a1.",
    "a4 is at most 4 times as fast as a1.", "a3 is about twice, a4 3.5 times as fast as a1.",
])  # fmt: skip
def test_what_is_of_other_things_is_fine(tmp_path: Path, said: str) -> None:
    assert _found(tmp_path, f"{CARDS}{said}\n") == []
