"""Which rows a ratio of a sentence is of, where it names them in different ways, and in which column it is."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes import lint
from seatrial.notes.lint import Finding

PRECISIONS = "64 GPUs, GBS 256, sequences of 4096.\n\n" + table("""
    Model  Precision  Step time (s)  Tokens/s/GPU  TFLOP/s/GPU
    7B  BF16  1.72  9,525  448
    7B  FP8  1.26  13,003  612
    13B  BF16  3.20  5,120  450
    13B  FP8  2.26  7,250  637
    70B  BF16  16.85  972  432
    70B  FP8  11.31  1,449  644
""") + "\n"
VERSIONS = "8 x 8 MI300X, 4096 tokens.\n\n" + table("""
    version  grad acc  gbs  ms per step  tok/s  TFLOPS
    0.9  2  128  2,103  249k  301
    0.9  4  256  3,690  284k  343
    0.9  8  512  6,933  302k  365
    0.10  2  128  2,653  198k  239
    0.10  4  256  4,757  220k  266
    0.10  8  512  8,988  233k  282
""") + "\n"
COSTS = "# What 600 B tokens need\n\n" + table("""
    model  slice  days  chip-hours  $
    3B  v5e-256  5.38  33,055  39,666
    3B  v6e-64  5.28  8,110  21,897
    9B  v5p-128  23.28  35,758  150,184
    9B  v6e-64  14.70  22,579  60,963
""") + "\n"
CARDS = "Sequence length 1024.\n\n" + table("""
    model  card  micro  batch  s/step  tok/s
    smol  3090  8  256  11.50  22.8k
    smol  2x 3090  8  256  6.05  43.3k
    smol  4090  16  256  4.25  61.7k
    mid  3090  4  256  34.04  7.7k
    mid  2x 3090  4  256  18.20  14.4k
    mid  4090  4  256  13.11  20.0k
""") + "\n"
CHUNKS = "145.6B, tensor 8, pipeline 8, sequences of 2048.\n\n" + table("""
    GPUs  chunks  batch  s/iter  tokens/s  TFLOP/s per GPU
    512  1  768  8.62  182.5k  426
    512  2  768  8.29  189.7k  443
    512  5  768  8.09  194.4k  454
    1024  1  768  4.67  336.8k  394
    1024  5  768  4.21  373.6k  436
""") + "\n"
ENGINES = "8x H100, 13B, sequences of 4096, GBS 256.\n\n" + table("""
    engine  recompute  mbs  s/step  tok/s/GPU  mem (GB)
    Megatron  selective  2  9.80  13,375  61.2
    Megatron  full  4  12.40  10,570  40.9
    FSDP  selective  2  11.10  11,808  66.0
    FSDP  full  4  14.20  9,231  45.1
    DeepSpeed  selective  2  11.90  11,014  68.3
    DeepSpeed  full  4  15.10  8,680  47.0
""") + "\n"
SCALING = "Llama 7B, 4096 tokens, A100.\n\n" + table("""
    nodes  GPUs  TP  batch  s/step  tokens/s  TFLOP/s/GPU
    1  8  1  128  18.90  27,741  141
    4  32  1  512  19.60  107,000  136
    8  64  1  1024  20.90  200,686  127.5
    16  128  1  2048  23.40  358,487  113.9
""") + "\n"


def _found(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in lint.look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize(("note", "said", "right", "wrong"), [
    (PRECISIONS, "Against BF16, FP8 brings {}x on the 7B, 1.42x on the 13B and 1.49x on the 70B.", "1.37", "1.73"),
    (PRECISIONS, "Against BF16, FP8 brings 1.37x on the 7B, {}x on the 13B and 1.49x on the 70B.", "1.42", "1.64"),
    (PRECISIONS, "FP8 over BF16: 1.37x (7B), {}x (13B), 1.49x (70B).", "1.42", "1.24"),
    (PRECISIONS, "FP8 is {} % faster on the 13B.", "42", "24"),
    (PRECISIONS, "With FP8 the 70B gains {} %, the 13B 42 %.", "49", "94"),
    (PRECISIONS, "The 13B runs {} times as fast in FP8 as in BF16.", "1.42", "2.42"),
    (PRECISIONS, "Mit FP8 wird das 13B um {} % schneller.", "42", "24"),
    (PRECISIONS, "En FP8 le 13B est {} fois plus rapide qu'en BF16.", "1,42", "2,41"),
    (PRECISIONS, "FP8 让 13B 快了 {}%。", "42", "24"),
    (PRECISIONS, "13B では FP8 は BF16 の {} 倍速い。", "1.42", "2.14"),
    (PRECISIONS, "FP8 levert op het 13B {} % meer doorvoer op.", "42", "24"),
    (PRECISIONS, "En el 70B, FP8 gana un {} % de velocidad.", "49", "94"),
    (VERSIONS, "So at accumulation 8 we lose {} % of the throughput.", "23", "43"),
    (VERSIONS, "With 0.10 and grad acc 2 a step takes {} % longer than with 0.9.", "26", "62"),
    (VERSIONS, "0.10 is {} % slower than 0.9 at grad acc 4.", "22", "42"),
    (VERSIONS, "Bei grad acc 8 verlieren wir {} % Durchsatz.", "23", "43"),
    (VERSIONS, "Avec grad acc 8, on perd {} % du débit.", "23", "43"),
    (COSTS, "For the 9B, v6e is {} % cheaper than v5p and 1.58 times as fast.", "59", "14"),
    (COSTS, "For the 9B, v6e is 59 % cheaper than v5p and {} times as fast.", "1.58", "2.58"),
    (COSTS, "v6e costs {} % less than v5p for the 9B.", "59", "95"),
    (COSTS, "For the 3B v6e-64 saves {} percent of the bill of v5e-256.", "45", "54"),
    (COSTS, "Das 9B auf v6e ist {} % billiger als auf v5p.", "59", "14"),
    (COSTS, "Pour le 9B, v6e coûte {} % de moins que v5p.", "59", "29"),
    (COSTS, "On v5p-128 the 9B needs {} times the chip-hours of v6e-64.", "1.58", "1.85"),
    (COSTS, "The 9B takes {} times as long on v5p-128 as on v6e-64.", "1.58", "5.18"),
    (CARDS, "The 4090 is {} times as fast as a single 3090 on mid.", "2.6", "1.6"),
    (CARDS, "On smol two 3090s are {} times as fast as one 3090.", "1.9", "9.1"),
    (CARDS, "A 4090 beats two 3090s by {} % on mid.", "39", "93"),
    (CHUNKS, "On 512 GPUs five chunks win 6.5 % over none, on 1024 it's {} %.", "10.9", "18.9"),
    (CHUNKS, "On 512 GPUs five chunks win {} % over one.", "6.5", "16.5"),
    (CHUNKS, "At 1024 GPUs, 5 chunks are {} % faster than 1.", "11", "21"),
    (ENGINES, "Against FSDP, Megatron wins {} % with selective and 15 % with full recompute.", "13", "31"),
    (ENGINES, "Against FSDP, Megatron wins 13 % with selective and {} % with full recompute.", "15", "51"),
    (ENGINES, "Megatron vs FSDP: {}x selective, 1.15x full.", "1.13", "1.31"),
    (ENGINES, "Full recompute costs Megatron {} % of the throughput.", "21", "42"),
    (ENGINES, "Selective recompute makes FSDP {} % faster.", "28", "48"),
    (SCALING, "At 16 nodes we still have {} % of the ideal.", "81", "61"),
    (SCALING, "Parallel efficiency at 8 nodes is {} %.", "90", "70"),
    (SCALING, "Bei 16 Knoten liegt die parallele Effizienz bei {} %.", "81", "61"),
    (SCALING, "L'efficacité à 16 nœuds est de {} %.", "81", "61"),
])  # fmt: skip
def test_the_two_that_are_compared(tmp_path: Path, note: str, said: str, right: str, wrong: str) -> None:
    assert _found(tmp_path, f"{note}{said.format(right)}\n") == []
    (one,) = _found(tmp_path, f"{note}{said.format(wrong)}\n")
    assert (one.printed, one.proposed) == (wrong, right)


@pytest.mark.parametrize(("note", "said"), [
    (PRECISIONS, "FP8 is 24 % smaller in memory on the 13B."), (PRECISIONS, "FP8 saves 24 % of the memory of the 13B."),
    (PRECISIONS, "The vendor says that FP8 is 1.9x on the 13B."),
    (PRECISIONS, "Between BF16 and FP8 it is 1.2 to 1.8x for all."),
    (VERSIONS, "At accumulation 8 we lose 43 % of the bandwidth."),
    (CARDS, "A 4090 uses 1.4 times as many watts as one 3090."),
    (SCALING, "At 16 nodes the scaling efficiency of the filesystem was 60 %, says the vendor."),
    (CARDS, "Two 3090s give me 2.2x."), (COSTS, "An hour on v5p is 2.9 times as dear as on v6e for anybody who should ask."),
    (CHUNKS, "On 1024 GPUs each rank has half as many and we see 37 % fewer collisions."),
])  # fmt: skip
def test_ratios_of_what_no_column_has(tmp_path: Path, note: str, said: str) -> None:
    assert _found(tmp_path, f"{note}{said}\n") == []


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("70B QLoRA is {}x as fast on eight H100s as on eight A100s.", "2.4", "4.2"),
    ("On eight cards the H100s are {}x the A100s with 70B QLoRA.", "2.5", "5.2"),
])  # fmt: skip
def test_what_the_columns_leave_open_is_what_was_typed(tmp_path: Path, said: str, right: str, wrong: str) -> None:
    note = table("""
        model  method  hardware  GPUs  s/step  samples/s  tok/s/GPU
        8B  LoRA  A100  4  7.62  4.20  4,299
        70B  QLoRA  A100  8  47.69  0.67  341
        70B  LoRA  H100  8  6.72  4.79  1,223
        70B  QLoRA  H100  8  19.40  1.64  840
    """)
    (one,) = _found(tmp_path, f"{note}\n{said.format(wrong)}\n")
    assert (one.printed, one.proposed) == (wrong, right)


def test_a_decimal_comma_at_the_end_of_a_clause(tmp_path: Path) -> None:
    note = table("""
        Nœuds  GPU  Lot  Pas (s)  Jetons/s
        1  4  512  25,40  20 641
        2  8  512  12,95  40 486
        4  16  512  6,63  79 077
    """)
    said = "De 1 à 4 nœuds, le débit est multiplié par {}, ce qui reste proche de l'idéal."
    assert _found(tmp_path, f"{note}\n{said.format('3,83')}\n") == []
    (one,) = _found(tmp_path, f"{note}\n{said.format('3,15')}\n")
    assert (one.printed, one.proposed) == ("3,15", "3,83")
