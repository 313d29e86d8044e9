"""Cells that say what stood there: blanks of what failed, differences, cells that moved, prices of a device, other units."""
from __future__ import annotations

import pytest

from lint_tables import table

HUNT = "One node of 8 A100-80GB, sequence 4096, 64 sequences a step.\n\n" + table("""
    zero  mbs  s/it  tok/s  TFLOP/s/gpu  peak MiB  result
    1  1  -  -  -  -  OOM
    1  2  -  -  -  -  OOM
    2  1  9.40  27888  151.4  63046  ok
    3  1  10.08  26006  141.2  36819  ok
    3  2  9.45  27740  150.6  55253  ok
    3  4  -  -  -  -  OOM
""")
SAVED = "8 H100-80GB per node, sequence length 4096.\n\n" + table("""
    model  gpus  gbs  v1.4 s/step  v1.5 s/step  faster  v1.4 GiB  v1.5 GiB  saved
    7B  8  128  8.14  6.92  18 %  35.8  30.1  5.7
    7B  16  256  8.21  7.08  16 %  47.7  40.3  7.4
    13B  16  128  7.32  6.24  17 %  46.1  38.4  7.7
    13B  64  512  9.86  8.33  18 %  13.9  11.2  2.7
    32B  32  256  18.44  15.98  15 %  68.8  57.3  11.5
    70B  64  256  26.71  22.32  20 %  33.5  26.9  6.6
""")
ENGINES = "H100-80GB, sequence 4096. Batch in sequences.\n\n" + table("""
    engine  GPUs  DP  accum  batch  s/it  tok/s  TFLOPS/GPU  MFU %  GiB
    alpha  8  8  16  128  6.565  79862  465  47.0  66.3
    beta  8  8  16  128  8.116  64600  376  38.0  32.7
    gamma  8  8  16  128  7.703  68063  396  40.1  31.9
    delta  16  16  8  128  3.954  132598  386  39.0  28.4
    epsilon  16  16  8  128  3.781  138665  404  40.8  28.6
""")
RENT = "10 B tokens each, sequence 2048.\n\n" + table("""
    GPUs  $/GPU/h  s/step  tokens/s  hours  bill
    8 x H100  2.49  5.92  88562  31.4  $625
    16 x H100  2.49  3.08  170223  16.3  $649
    8 x A100  1.29  15.43  33978  81.8  $844
    16 x A100  1.29  8.02  65373  42.5  $877
    8 x L40S  0.86  27.72  18914  146.9  $1,011
    16 x L40S  0.86  14.54  36058  77.0  $1,060
    32 x L40S  0.86  7.57  69259  40.1  $1,104
""")
SPEICHER = "A100-80GB, 8 je Knoten, Sequenz 4096.\n\n" + table("""
    GPUs  Batch  s/Schritt  Token/s  Speicher (GiB)
    8  128  17,20  30.482  42,7
    16  256  17,84  58.778  37,6
    32  256  9,05  115.864  35,0
    64  512  9,26  226.475  33,7
""")
MIXED = "EP is folded into DP.\n\n" + table("""
    model  nodes  TP  PP  EP  DP  GBS  s/it  tok/s
    8x7B  4  1  2  8  16  256  8.18  128188
    8x7B  4  2  2  4  8  256  8.05  130258
    8x22B  16  2  4  8  16  512  13.60  154202
    8x22B  16  4  4  8  8  512  13.75  152520
    8x22B  32  4  4  4  16  1024  14.13  296838
""")
TWICE = "8 A100-80GB per node, sequence 4096.\n\n" + table("""
    setup  batch  1.2 GiB  1.3 GiB
    7B on 8  128  45.1  42.4
    7B on 64  512  52.9  49.3
    13B on 16  256  22.3  21.1
    13B on 64  512  13.2  12.2
    70B on 64  256  31.4  29.1
    70B on 128  512  23.1  21.8
""")
HOURS = "13B、シーケンス長 2048、バッチ 1,536。\n\n" + table("""
    ジョブ  ステップ数  1ステップ(s)  経過(h)  ノード時間
    J1  310  80.3  6.91  13,267
    J2  600  81.3  13.55  26,016
    J3  620  79.8  13.74  26,381
    J4  450  81.2  10.15  19,488
""")
STAGES = "2.6B parameters, 128 H100.\n\n" + table("""
    stage  batch (tokens)  steps  tokens  s/step  tokens/s  days
    warm-up  2.10 M  20,000  41.9 B  0.705  2.97 M  0.2
    main  4.19 M  380,000  1,593.8 B  1.419  2.96 M  6.2
    anneal  4.19 M  24,000  100.7 B  1.421  2.95 M  0.4
    long  4.19 M  6,000  25.2 B  2.791  1.50 M  0.2
""")


@pytest.mark.parametrize(("note", "was", "typed", "column", "proposed"), [
    pytest.param(HUNT, "| 3 | 4 | - |", "| 3 | 4 | 9.31 |", "s/it", "-", id="a time in the place of a blank"),
    pytest.param(SAVED, "| 38.4 |", "| 34.8 |", "v1.5 GiB", "38.4", id="what is saved is a difference"),
    pytest.param(SAVED, "| 18 % | 13.9 |", "| 81 % | 13.9 |", "faster", "18 %", id="a percentage above all others"),
    pytest.param(ENGINES, "| 68063 | 396 | 40.1 | 31.9 |", "| 396 | 40.1 | 31.9 |  |", "TFLOPS/GPU", "396", id="a cell lost"),
    pytest.param(ENGINES, "| 7.703 | 68063 | 396 | 40.1 | 31.9 |", "| 68063 | 396 | 40.1 | 31.9 | 31.9 |", "tok/s", "68063",
                 id="a cell lost and the last one twice"),
    pytest.param(RENT, "16 x L40S | 0.86 |", "16 x L40S | 1.29 |", "$/GPU/h", "0.86", id="the price of another device"),
    pytest.param(SPEICHER, "| 37,6 |", "| 38.502 |", "Speicher (GiB)", "37,6", id="MiB with a point between thousands"),
    pytest.param(MIXED, "| 4 | 4 | 8 | 8 | 512 |", "| 4 | 4 | 16 | 8 | 512 |", "EP", "8", id="more ranks than experts"),
    pytest.param(TWICE, "| 49.3 |", "| 4.93 |", "1.3 GiB", "49.3", id="memory after a change, the point moved"),
    pytest.param(TWICE, "| 31.4 |", "| 13.4 |", "1.2 GiB", "31.4", id="memory before a change, exchanged"),
    pytest.param(HOURS, "| 26,381 |", "| 23,681 |", "ノード時間", "26381", id="node hours of as many nodes in all rows"),
    pytest.param(STAGES, "| 0.4 |", "| 4.0 |", "days", "0.4", id="days of one digit"),
])  # fmt: skip
def test_what_stood_there_is_proposed(lint, note: str, was: str, typed: str, column: str, proposed: str):
    assert lint(note) == [] and note.count(was) == 1
    line = note[: note.index(was)].count("\n") + 1
    found = lint(note.replace(was, typed))
    assert [(f.line, f.column, f.proposed) for f in found] == [(line, column, proposed)]
