"""Ratios of rows in two tables, of a table below its sentence, of the best rows, and of two figures of one sentence."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

SLICES = "## v5p\n\n" + table("""
    slice  chips  per_dev  gbs  step (s)  ktok/s  tok/s/chip
    v5p-16  8  4  32  3.736  35.1  4385
    v5p-128  64  4  256  3.772  278.0  4344
    v5p-512  256  2  512  2.014  1041.3  4068
""") + "\n\n## v6e\n\n" + table("""
    slice  chips  per_dev  gbs  step (s)  ktok/s  tok/s/chip
    v6e-16  16  1  16  0.681  96.2  6015
    v6e-64  64  2  128  1.269  413.2  6455
    v6e-256  256  2  512  1.296  1618.2  6321
""") + "\n\n{}"
MACHINES = "7B, sequences of 4096.\n\n### JUWELS Booster\n\n" + table("""
    Knoten  GPUs  TP  Batch  s/Schritt  Token/s  TFLOP/s/GPU
    2  8  2  512  37,09  56.543  135,4
    4  16  2  1.024  37,90  110.668  133,0
    16  64  1  1.024  8,85  473.931  142,6
""") + "\n\n### JEDI\n\n" + table("""
    Knoten  GPUs  TP  Batch  s/Schritt  Token/s  TFLOP/s/GPU
    1  4  1  512  24,26  86.446  415,9
    2  8  1  512  12,45  168.442  405,2
    8  32  1  1.024  6,36  659.482  396,6
""") + "\n\n{}"
BEFORE = table("""
    nodes  GPUs  gbs  s/it  tokens/s  tokens/s/GPU
    1  8  128  6.19  84,700  10,588
    2  16  256  6.31  166,178  10,386
    4  32  512  6.48  323,634  10,114
    8  64  1024  9.72  431,512  6,742
""")
AFTER = table("""
    nodes  GPUs  gbs  s/it  tokens/s  tokens/s/GPU
    1  8  128  6.18  84,837  10,605
    2  16  256  6.27  167,238  10,452
    4  32  512  6.40  327,680  10,240
    8  64  1024  6.66  629,774  9,840
""")
BELOW = "# 13B\n\nSequences of 4096.\n\n{}\n\n" + BEFORE
BOTH = "# 13B\n\nSequences of 4096.\n\n" + BEFORE + "\nThanks, that helped.\n\n{}\n\n" + AFTER
BRANCHES = "# 13B\n\nSequences of 4096.\n\n" + table("""
    branch  recompute  mbs  s/iteration  tokens/s  tflops/gpu
    main  full  2  8.99  58,318  376
    main  none  1  7.31  71,721  462
    this PR  selective  1  7.16  73,224  472
    this PR  selective  2  6.81  76,987  497
    this PR  full  2  8.86  59,174  382
""") + "\n{}"
NOTE = "# Notes\n\nA 13B model on 64 H100.\n\n{}"


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text + "\n", encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("note", "said", "right", "wrong"), [
    (SLICES, "v5p-512 vs v6e-256, both 256 chips: v6e does {}x the tokens per second.", "1.55", "0.65"),
    (SLICES, "v6e-256 is {} times as fast as v5p-512.", "1.55", "2.55"),
    (SLICES, "With 64 chips v6e-64 is {} % faster than v5p-128.", "49", "94"),
    (MACHINES, "Je GPU ist JEDI (1 Knoten) etwa {}-mal so schnell wie der beste Booster-Lauf von oben.", "2,9", "4,2"),
    (BELOW, "At 8 nodes the rate per GPU is {} % lower than on one node.", "36", "18"),
    (BELOW, "From 1 to 4 nodes it scales by a factor of {}, see below:", "3.8", "8.3"),
    (BELOW, "4ノードまでは問題ないのに、8ノードで1GPUあたりの速度が 1 ノードに比べて約 {}% も落ちます。", "36", "18"),
    (BOTH, "8 nodes are now {} times as fast.", "1.46", "1.78"),
    (BOTH, "8 ノードで {} 倍になりました。", "1.46", "1.78"),
    (BRANCHES, "So against the best that main can do, {} % more throughput.", "7", "47"),
    (BRANCHES, "Our best is {} % faster than the best of main.", "7", "47"),
    (NOTE, "H has twice the GPUs: 697 against 353 ktok/s, a factor of {}.", "1.97", "1.67"),
    (NOTE, "Going to four gives 4.18 instead of 1.06 samples/s, {}×.", "3.9", "9.3"),
    (NOTE, "The run went from 24.9 to 19.1 days, i.e. {} % less.", "23", "43"),
    (NOTE, "Ideal at 512 nodes would be 16, we reach 13.2, i.e. {} % parallel efficiency.", "83", "63"),
    (NOTE, "Statt 3,48 € kostet es jetzt 2,90 € (−{} %).", "17", "71"),
    (NOTE, "Der Durchsatz stieg von 353 auf 697 ktok/s, also um den Faktor {}.", "1,97", "1,79"),
    (NOTE, "Le pas passe de 12,4 s à 9,3 s, soit {} % de moins.", "25", "52"),
    (NOTE, "We measured 5,120 tokens/s against 4,000 tokens/s before, {} % faster.", "28", "82"),
    (NOTE, "It fell from 61.2 GB to 48.9 GB (-{} %).", "20", "40"),
    (NOTE, "Step time dropped from 4.67 s to 4.21 s, which is {} % faster.", "11", "21"),
    (NOTE, "Pasamos de 353 a 697 ktok/s, un factor de {}.", "1,97", "1,67"),
])  # fmt: skip
def test_two_that_do_not_stand_together(tmp_path: Path, note: str, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, note.format(said.format(right))) == []
    (one,) = _found(tmp_path, note.format(said.format(wrong)))
    assert (one.printed, one.proposed) == (wrong, right)


@pytest.mark.parametrize(("note", "said"), [
    (SLICES, "v6e-256 is 1.3 times as large as v5p-512 in HBM."), (SLICES, "v6e costs 0.64x of v5p per hour."),
    (SLICES, "v5p-512 is 0.64x as fast as v6e-256."), (MACHINES, "JEDI ist laut Hersteller 3-mal so schnell wie der Booster."),
    (BELOW, "The paper claims 3.1 times the rate for 8 nodes against 1 node."),
    (BELOW, "Last year 8 nodes were 5.5 times as fast as one node."), (BRANCHES, "The best of main is 20 % smaller."),
    (NOTE, "300 W instead of 450 W: 8 % slower and 20 % less power at the wall."), (NOTE, "From 4 to 16 nodes we gain 3.1x."),
    (NOTE, "It takes 12.4 s against 9.3 s, and MFU is 41 %."), (NOTE, "We went from 40 GB to 80 GB cards, 30 % faster."),
    (NOTE, "It dropped from 61.2 GB to 48.9 GB, so mbs 2 fits and we are 12 % faster."),
    (NOTE, "$2.20 instead of $1.80 an hour, 15 % less bandwidth."), (NOTE, "From 24.9 to 19.1 days, with 95 % uptime."),
])  # fmt: skip
def test_ratios_of_something_else(tmp_path: Path, note: str, said: str) -> None:
    assert _found(tmp_path, note.format(said)) == []
