"""What an expert sees in small tables: a note, the line of its slip, and what stood there. As it should be, nothing is said."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes.lint import look_at

UNIT = "MI300X, TP 1, 4096 tokens.\n\n" + table("""
    GPUs  GBS  s/step  tok/s/GPU  GiB
    16  1024  30.01  8736  141
    32  1024  14.83  8838  139
    64  1024  7.78  8424  138
""")
COUNTED = "Llama 2, sequence 4096, bf16.\n\n" + table("""
    Model  GPU  #  TP  GBS  Latency (ms)  Tokens/s/GPU
    7B  A100-80G  8  2  128  21109  3105
    7B  H100-80G  8  2  128  6547  10010
    13B  A100-80G  16  4  128  20731  1581
    13B  H100-80G  16  4  128  6393  5126
    13B  H200-141G  16  2  128  6331  5176
""")
GERMAN = "24 Schichten, Sequenzlänge 2.048, A100-40GB, 8 je Knoten.\n\n" + table("""
    GPUs  Mikrobatch  GAS  Globalbatch  Schrittzeit (s)  Token/s
    8  1  32  256  3,788  138.409
    8  2  16  256  3,701  141.662
    8  4  8  256  3,637  144.155
    16  1  16  256  1,930  271.652
    16  2  8  256  1,853  282.940
""")
FRENCH = "Modèle 13B, séquence 4096, lot global 1024.\n\n## Micro-lots à 64 GPU\n\n" + table("""
    micro-lot  accumulation  s/pas  jetons/s
    1  16  13,24  316\u202f908
    2  8  12,75  328\u202f877
    4  4  12,70  330\u202f260
    8  2  12,60  332\u202f881
""")
SCALING = "Global batch 1024, 4096 tokens. Budget of 300B tokens, 2.10 $ an hour.\n\n" + table("""
    GPUs  s/step  tokens/s  speed-up  efficiency (%)  days  cost (k$)
    32  25.18  166573  1.00  100.0  20.8  33.6
    64  12.89  325393  1.95  97.7  10.7  34.4
    128  6.48  647269  3.89  97.1  5.4  34.6
    256  3.31  1267160  7.61  95.1  2.7  35.4
""")
PAIRS = "8 x B200.\n\n" + table("""
    model  precision  MBS  step (s)  vs BF16
    8B  BF16  1  7.504  1.00x
    8B  FP8  1  5.709  1.31x
    8B  BF16  2  7.383  1.00x
    8B  FP8  2  5.547  1.33x
    70B  BF16  1  9.049  1.00x
    70B  FP8  1  6.704  1.35x
""")
BEFORE = "Without:\n\n" + table("""
    GPUs  s/it
    16  53.70
    32  26.85
    64  13.79
    128  6.90
""") + "\nWith the overlap:\n\n" + table("""
    GPUs  s/it  speed-up
    16  52.20  1.03x
    32  25.82  1.04x
    64  12.75  1.08x
    128  6.28  1.10x
""")
NO_PIPELINE = "7B, TP 2, micro batch 2, sequence 4096.\n\n" + table("""
    GPUs  DP  GBS  s/step  tok/s/GPU
    32  16  1024  13.68  9581
    64  32  1024  6.92  9470
    128  64  1024  3.52  9309
    256  128  2048  3.54  9257
""")
IN_PROSE = "What fits on 32 H100 of 80 GB. GBS 256.\n\n" + table("""
    DP  TP  PP  MBS  s/step  peak (GiB)
    16  2  1  1  6.24  61.7
    8  4  1  2  6.20  43.6
    4  8  1  8  6.49  52.1
    8  2  2  2  6.29  60.8
    4  4  2  4  6.68  51.8
""")
EXPERTS = "Mixture of 16 experts, EP is taken out of DP, sequence 4096.\n\n" + table("""
    gpus  tp  pp  ep  dp  mbs  gbs  sec/step  tok/s/gpu
    16  1  1  4  16  1  512  5.230  25061
    16  1  1  8  16  1  512  5.437  24107
    32  1  1  8  32  1  512  2.715  24137
    32  2  1  8  16  2  512  2.744  23882
    64  1  2  16  32  2  1024  2.716  24129
""")
MIXTURES = "Sequence 4096.\n\n" + table("""
    gpus  tp  pp  experts  shared experts  top-k  ep  dp  mbs  gbs  sec/step
    16  1  1  16  0  2  4  16  1  512  5.230
    16  1  1  16  0  2  8  16  1  512  5.437
    32  1  1  16  0  2  8  32  1  512  2.715
    32  2  1  16  0  2  16  16  2  512  2.744
""")
STEPS = "One node of eight A100, global batch 512, sequence 1024.\n\n" + table("""
    size  micro-batch  steps/s  samples/s  tokens/s
    125M  8  2.736  1400.8  1434450
    125M  16  3.045  1559.0  1596457
    125M  32  3.167  1621.5  1660420
    350M  8  0.966  494.6  506462
    350M  32  1.093  559.6  573047
""")
RENTED = "7B, 4096 tokens, global batch 256, 8 GPUs. Peaks: A100 312, H100 989, B200 2250.\n\n" + table("""
    Accelerator  micro-batch  step (s)  tokens/s  TFLOPS/GPU  MFU
    A100-80GB  1  36.15  29006  170  54.5%
    A100-80GB  2  35.04  29925  175  56.1%
    H100  1  12.86  81538  478  48.3%
    H100  2  12.51  83819  491  49.6%
    B200  1  6.11  171616  1005  44.7%
    B200  2  5.99  175054  1026  45.6%
    B200  4  5.86  178938  1049  46.6%
""")
LENGTHS = "Devices are TP x PP x CP x DP.\n\n" + table("""
    GPUs  TP  PP  CP  DP  GBS  seq  s/step  tokens/s
    128  2  8  1  8  256  4096  5.180  202430
    128  4  4  1  8  256  8192  10.981  190979
    256  2  8  2  8  256  8192  5.600  374491
    256  4  8  4  2  128  16384  6.608  317366
    512  4  8  8  2  64  65536  11.779  356080
""")
LOSSES = table("""
    optimizer  ms/step  mem GiB  loss
    AdamW  3305.5  38.8  2.425
    Lion  3226.5  34.4  2.327
    Muon  3442.4  35.7  2.429
    Adafactor  3396.2  29.8  2.401
""")
AGGREGATE = "Aggr. PetaFLOPs = TFLOPs * Nodes / 1024\n\n" + table("""
    Nodes  DP  TP  PP  TFLOPs  Aggr. PetaFLOPs
    100  100  1  1  1.37  0.13379
    200  200  1  1  1.35  0.26367
    400  400  1  1  1.33  0.51953
    800  800  1  1  1.32  1.03125
""")
COUNTED_IN_FULL = "Vocabulary 250,880, one embedding matrix used at both ends.\n\n" + table("""
    name  n_layer  hidden  heads  parameters
    560M  24  1024  16  559,210,496
    1.1B  24  1536  16  1,065,308,160
    1.7B  24  2048  16  1,722,400,768
    3B  30  2560  32  3,002,547,200
""")
SIZES = "125M: 12 layers, hidden 768, 12 heads. 350M: 24 layers, hidden 1024, 16 heads. Tokens: 2.5B and 7B.\n\n" + table("""
    size  GPUs  TP  s/step  peak (GiB)
    125M  8  1  0.42  11.2
    350M  8  1  1.02  17.5
    350M  8  8  1.32  7.5
""")
FEATURES = table("""
    Setup  Local batch  Step time (s)  Peak reserved (GiB)
    selective AC  1  1.084  43.99
    selective AC + compile  2  1.927  68.61
    full AC + compile  4  4.689  55.27
""")
UNSAID_AXIS = "Stages as they fit, sequence 4096.\n\n" + table("""
    GPUs  DP  TP  GBS  s/step  tok/s/GPU
    32  16  2  1024  13.68  9581
    64  32  2  1024  6.92  9470
    64  16  2  1024  7.10  9231
    128  64  2  1024  3.52  9309
    128  16  4  1024  3.71  8832
""")
UNSAID_LENGTH = "MoE, longer and longer.\n\n" + table("""
    GPUs  GBS  tok/s/GPU  TFLOPs/GPU
    64  256  7120  356
    128  256  7090  354.5
    256  256  7060  353
    512  256  7010  350.5
    512  512  6110  329
    1024  512  4950  305
""")
STEP = "8,000 steps at batch 128.\n\n" + table("""
    Machine  Per-device batch  Grad. accum.  Step  Samples/s
    8x A100 80GB  4  4  13.5 s  9.48
    8x H100 80GB  4  4  4.47 s  28.63
    16x A100 80GB  2  4  13.3 s  9.62
    64x H100 80GB  2  1  6.02 s  21.26
""")
PEAKS = "Peaks: 197 (v5e, 16 GB), 459 (v5p, 95 GB), 918 (v6e, 32 GB).\n\n" + table("""
    chip  chips  global batch  step time (s)  TFLOP/s/device
    TPU v5e  256  256  3.832  63.7
    TPU v5p  64  256  4.586  218.2
    TPU v5p  128  512  4.473  221.2
    TPU v6e  256  512  1.523  315.5
""")
OVER_PEAK = "22B on MI300X, TP 4, PP 2, DP 16, sequence 2048.\n\n" + table("""
    GBS  step (s)  tok/s  MFU
    512  2.71  389990  32.0%
    1024  5.06  415707  34.4%
    2048  9.96  421632  34.8%
    4096  19.76  425319  35.1%
""")
OF_SLICES = table("""
    slice  chips  tokens/s/chip  TFLOP/s/chip  MFU (%)
    v4-32  32  15491  141.9  51.6
    v4-64  64  15221  139.4  50.7
    v4-128  128  14072  128.9  46.9
    v5e-64  64  10146  92.9  47.2
    v5e-128  128  9508  87.1  44.2
""")
LISTED = "H100, 13B and 70B.\n\n" + table("""
    {id}  model  GPUs  TP  PP  DP  seq  MBS  GBS
    P1  13B  64  2  1  32  4096  2  256
    P2  13B  128  2  1  64  4096  2  256
    P3  70B  128  8  2  8  4096  1  512
    P4  70B  256  8  2  16  4096  1  512
    P5  70B  512  8  4  16  4096  2  512
""") + "\nResults:\n\n" + table("""
    {id}  step (s)  tokens/s  tokens/s/GPU  TFLOP/s/GPU
    P1  3.18  329741  5152  453
    P2  1.61  651289  5088  448
    P3  18.07  116057  907  414
    P4  9.10  230456  900  411
    P5  4.62  453930  887  404
""")
FRACTIONS = table("""
    device  GPUs  GBS  seq  step_s  tflops  mfu
    H100  64  512  4096  6.3158  405.1  0.4095
    H100  64  512  4096  6.1687  415.9  0.4205
    H100  64  512  4096  6.1194  418.7  0.4232
    H100  64  512  4096  6.4000  399.8  0.4041
""")
BY_NODE = "32 layers, hidden 4096; seq 8192; 64 or more devices.\n\n" + table("""
    nodes  mbs  GBS  ms/step  tokens/s/GPU
    16  1  1024  7520  8715
    16  4  1024  8326  7871
    32  2  2048  7927  8268
    64  4  4096  7939  8255
    64  2  4096  8005  8187
""")
EQUAL = "Batch in tokens kept.\n\n" + table("""
    GPUs  seq  GBS  step time (s)
    512  4096  4096  21.44
    512  8192  2048  24.58
    512  16384  1024  30.68
    512  32768  512  39.94
""")


@pytest.mark.parametrize("note", [SIZES, FEATURES, UNSAID_AXIS, UNSAID_LENGTH, STEP, PEAKS, EQUAL, BY_NODE], ids=[
    "a line of several sizes", "what else was on", "stages that nobody says", "lengths that nobody says", "seconds under Step",
    "a peak for each device", "a batch as large as the sequence", "devices of a node that nobody says"])
def test_nothing_is_said_of_what_is_right(lint, note: str):
    assert lint(note) == []


STEP_BY_STEP = "70B on 64 H100, GBS 512, sequence 4096.\n\n" + table("""
    change  s/step  Beschleunigung
    baseline  20.10  -
    flash  16.42  1.22
    compile  14.95  1.10
    fp8  11.03  1.36
    overlap  10.41  1.06
""")
BY_DTYPE = "8B, sequence 8192.\n\n" + table("""
    GPU  dtype  tok/s/GPU  gain
    H100  bf16  8131  -
    H100  fp8  10339  1.27x
    H200  bf16  8731  -
    H200  fp8  11120  1.27x
    B200  bf16  16679  -
    B200  fp8  23195  1.39x
""")


@pytest.mark.parametrize(("note", "line", "right", "typed"), [(STEP_BY_STEP, 8, "1.36", "1.63"), (BY_DTYPE, 8, "1.27", "1.72")])
def test_a_gain_is_over_the_row_above_or_the_nearest_without_one(lint, note: str, line: int, right: str, typed: str):
    assert lint(note) == []
    lines = note.splitlines()
    found = lint("\n".join([*lines[: line - 1], lines[line - 1].replace(right, typed), *lines[line:]]))
    assert [(f.line, f.level, (f.proposed or "").rstrip("x")) for f in found] == [(line, "error", right)]


ONE_IN_FP8 = "70B on 256 H100, sequence 8192.\n\n" + table("""
    what  dtype  TPS/GPU  TFLOPs/GPU  MFU
    FSDP  bf16  622  299.2  30.26%
    compile  bf16  650  312.7  31.61%
    overlap  bf16  672  323.4  32.70%
    float8  fp8  791  380.9  38.52%
""")


def test_the_one_row_of_another_precision_has_a_share_of_its_peak_or_of_the_others(lint):
    assert lint(ONE_IN_FP8) == lint(ONE_IN_FP8.replace("38.52%", "19.26%")) == []
    assert [(f.line, f.column) for f in lint(ONE_IN_FP8.replace("38.52%", "65.51%"))] == [(8, "MFU")]


def test_a_pair_of_another_device_names_its_row(lint):
    found = lint(RENTED.replace("12.51 | 83819", "35.04 | 29925"))
    assert (8, "pasted-pair") in [(f.line, f.code) for f in found if "line 6" in f.message]


def test_a_cell_that_was_lost_moves_the_others(lint):
    rows = "| GPUs | MBS | mem GiB | s/iter | tok/s/GPU |\n|---|---|---|---|---|\n"
    rows += "".join(f"| {g} | {m} | {mem} | {s} | {1024 * 2048 / s / g:.0f} |\n"
                    for g, m, mem, s in ((32, 1, 35.2, 88.1), (32, 2, 36.7, 85.4), (64, 1, 30.3, 45.3), (64, 2, 30.8, 44.6)))
    assert lint("Sequence 2048, global batch 1024.\n\n" + rows) == []
    found = lint("Sequence 2048, global batch 1024.\n\n" + rows.replace("| 30.8 | 44.6 | 735 |", "| 44.6 | 735 |  |"))
    assert [(f.line, f.code, f.level) for f in found] == [(8, "cells-shifted", "error")]


LINES = "13B on A100 80GB, TP 4, PP 2, sequence 2048.\n\n" + table("""
    micro batch  global batch  peak GiB  s/it
    1  256  15.8  9.64
    2  256  17.1  9.55
    4  256  19.9  9.56
    8  256  25.3  9.95
""")
IN_STEP = "A 7B, sequence 2048.\n\n" + table("""
    GPUs  GBS  s/it  tok/s
    16  128  4.99  52533
    16  128  4.81  54499
    32  256  4.74  110610
    64  512  4.73  221687
    64  512  4.77  219828
""")
OPEN_AXES = "8B on 64 H100s, CP as given.\n\n" + table("""
    seq  CP  DP  GBS  s/it
    8k  1  32  64  1.11
    16k  2  16  32  1.34
    32k  4  8  16  1.78
    64k  8  4  8  2.73
""")
BY_NODES = "8B, sequence 8192.\n\n" + table("""
    nodes  TP  DP  GBS  s/it
    2  1  16  64  4.18
    2  2  8  64  4.40
    4  2  16  128  4.39
    4  4  8  128  4.29
""")
PROPERTIES = "64 H100s, sequence 4096, GBS 256.\n\n" + table("""
    model  params (B)  TP  s/it  tokens/s/GPU  TFLOPs
    small  1.50  1  0.361  45386  481.2
    medium  3.61  1  0.879  18639  482.2
    large  8.03  1  1.864  8790  480.1
    small  1.50  2  0.379  43231  458.3
    medium  3.61  2  0.930  17617  455.7
    large  8.03  2  1.937  8459  462.0
    large  8.03  4  1.980  8275  452.0
""")
CARDS = "7B, sequences packed to 2048.\n\n" + table("""
    GPU  #  micro  accum  eff. batch  s/step  samples/s  tokens/s  VRAM
    RTX 4090 (24 GB)  1  1  16  16  18.76  0.853  1747  19.0 GB
    RTX 4090 (24 GB)  2  1  16  32  18.98  1.686  3453  19.1 GB
    A40 (48 GB)  1  2  8  16  21.67  0.738  1512  24.9 GB
    A40 (48 GB)  4  4  4  64  20.85  3.070  6286  36.2 GB
    A100 (80 GB)  4  8  2  64  9.22  6.941  14216  58.3 GB
""")
ROTATED = "8B, sequence 8192, 8 GPUs a node.\n\n" + table("""
    GPUs  GBS  s/step  tokens/s/GPU  TFLOPs/GPU  MFU (%)
    32  128  17.930  1828  891  39.6
    32  128  18.286  1792  874  38.8
    64  256  17.893  1831  893  39.7
    128  512  18.508  1770  864  38.4
    256  1024  18.528  1769  863  38.4
""")
THOUSANDS = "Sequence Length as given.\n\n" + table("""
    GPUs  Sequence Length (K)  DP  GBS  s/step  tokens/s/GPU
    32  8  32  512  18.4  7123
    32  16  16  256  22.5  5825
    32  32  8  128  30.7  4270
    32  64  4  64  48.0  2731
""")
ONCE = "48 layers; seq 2048; nodes of 8.\n\n" + table("""
    GPUs  TP  PP  MBS  grad acc  GBS  s/it  tok/s
    256  8  4  2  128  2048  5.28  794376
    256  8  8  4  128  2048  5.43  772432
    512  8  4  1  256  4096  5.49  1527980
    512  8  8  1  512  4096  5.41  1550575
    512  8  8  2  256  4096  5.28  1588752
    1024  8  4  2  128  8192  5.34  3141802
""")
FIVE = "32 layers, hidden 4096; sequence 4096.\n\n" + table("""
    GPUs  TP  PP  GBS  ms/step  TFLOPS
    64  2  2  512  3152  568.9
    256  1  1  2048  2911  615.8
    256  1  2  2048  2793  640.2
    256  4  1  2048  2867  627.8
    512  4  2  4096  3072  580.4
""")
LOOSELY = "32 layers, hidden 4096; sequence 4096, global batch 512. TFLOPs of the last iteration.\n\n" + table("""
    Nodes  TP  PP  s/step  tok/s/GPU  TFLOPs
    4  1  1  7.19  9041  499.5
    4  1  2  7.73  8437  464.7
    4  2  4  7.89  8442  461.2
    8  1  1  3.63  8979  489.9
    8  2  4  4.40  7534  406.4
    8  4  1  3.72  8751  476.0
    16  1  2  2.68  6149  333.0
    16  4  2  2.05  7952  443.0
""")


@pytest.mark.parametrize(
    ("note", "was", "typed", "column", "proposed"),
    [
        pytest.param(UNIT, "| 138 |", "| 1381 |", "GiB", "138", id="a column of GiB is one of memory"),
        pytest.param(COUNTED, "| 5176 |", "| 41408 |", "Tokens/s/GPU", "5176", id="GPU and # are which and how many"),
        pytest.param(COUNTED, "| 20731 |", "| 20.73 |", "Latency (ms)", "20730", id="s under ms"),
        pytest.param(GERMAN, "| 1 | 16 |", "| 1 | 8 |", "GAS", "16", id="accumulation, in German"),
        pytest.param(GERMAN, "| 1,853 |", "| 1,583 |", "Schrittzeit (s)", "1,853", id="a proposal keeps the comma"),
        pytest.param(FRENCH, "| 2 | 8 |", "| 2 | 4 |", "accumulation", "8", id="the heading says on how many devices"),
        pytest.param(SCALING, "| 3.89 |", "| 3.98 |", "speed-up", "3.89", id="speed-up"),
        pytest.param(SCALING, "| 97.1 |", "| 87.1 |", "efficiency (%)", "97.1", id="efficiency"),
        pytest.param(SCALING, "| 5.4 |", "| 10.4 |", "days", "5.4", id="days"),
        pytest.param(SCALING, "| 34.4 |", "| 68.9 |", "cost (k$)", "34.5", id="cost"),
        pytest.param(NO_PIPELINE, "| 128 | 64 |", "| 128 | 128 |", "DP", "64", id="no pipeline, TP in the text"),
        pytest.param(IN_PROSE, "| 16 | 2 |", "| 32 | 2 |", "DP", "16", id="devices in the text"),
        pytest.param(EXPERTS, "| 2 | 16 |", "| 2 | 64 |", "ep", None, id="experts over more than the devices of a stage"),
        pytest.param(MIXTURES, "| 2 | 16 | 16 | 2 |", "| 2 | 32 | 16 | 2 |", "ep", "16", id="EP of more experts than are"),
        pytest.param(MIXTURES, "| 2 | 8 | 32 |", "| 20 | 8 | 32 |", "top-k", None, id="more chosen than there are"),
        pytest.param(STEPS, "| 3.045 |", "| 30.45 |", "steps/s", "3.045", id="steps a second, the point moved"),
        pytest.param(STEPS, "| 3.167 | 1621.5 |", "| 1621.5 | 3.167 |", "steps/s", "3.167", id="exchanged by the batch's 512"),
        pytest.param(RENTED, "| B200 | 2 |", "| H100 | 2 |", "Accelerator", "B200", id="another device"),
        pytest.param(OVER_PEAK, "34.8%", "46.0%", "MFU", "34.8%", id="the peak of another device and figures that scatter"),
        pytest.param(OF_SLICES, "| 46.9 |", "| 65.5 |", "MFU (%)", "46.9", id="another's peak, as fast as its own device"),
        pytest.param(FRACTIONS, "0.4205", "1.3330", "mfu", "0.4205", id="a fraction above the whole peak"),
        pytest.param(LISTED.format(id="id"), "| 5088 |", "| 651289 |", "tokens/s/GPU", "5088", id="settings listed above"),
        pytest.param(LISTED.format(id="Lauf"), "| 18.07 |", "| 10.87 |", "step (s)", "18.07", id="settings listed by name"),
        pytest.param(LISTED.format(id="cfg"), "| 8 | 2 | 8 |", "| 8 | 2 | 4 |", "DP", "8", id="a slip where they are listed"),
        pytest.param(RENTED, "| 12.86 |", "| 12.68 |", "step (s)", "12.86", id="devices in the text alone"),
        pytest.param(LENGTHS, "| 128 | 16384 |", "| 16384 | 128 |", "GBS", "128", id="batch and length"),
        pytest.param(LENGTHS, "| 11.779 |", "| 1.1779 |", "s/step", "11.779", id="fine digits, the point moved"),
        pytest.param(LINES, "| 25.3 |", "| 52.3 |", "peak GiB", "25.3", id="memory is a line over the micro-batch"),
        pytest.param(IN_STEP, "| 32 | 256 |", "| 32 | 128 |", "GBS", "256", id="a batch that goes with the devices"),
        pytest.param(OPEN_AXES, "| 16k | 2 |", "| 16k | 4 |", "CP", "2", id="an axis that nobody names"),
        pytest.param(BY_NODES, "| 2 | 2 | 8 |", "| 2 | 2 | 16 |", "DP", "8", id="nodes of a size that nobody says"),
        pytest.param(PROPERTIES, "| medium | 3.61 | 2 |", "| large | 3.61 | 2 |", "model", "medium", id="another model's name"),
        pytest.param(PROPERTIES, "| 8.03 | 2 |", "| 8.30 | 2 |", "params (B)", "8.03", id="parameters of the other rows"),
        pytest.param(CARDS, "| 19.1 GB |", "| 29.1 GB |", "VRAM", None, id="more than the row's own device has"),
        pytest.param(CARDS, "| 6.941 | 14216 |", "| 14216 | 6.941 |", "samples/s", "6.941", id="samples and tokens exchanged"),
        pytest.param(CARDS, "| 6.941 |", "| 14216 |", "samples/s", "6.941", id="tokens under samples"),
        pytest.param(ROTATED, "| 18.508 | 1770 | 864 | 38.4 |", "| 1770 | 864 | 38.4 | 18.508 |", "s/step", "18.508",
                     id="the first of four figures at their end"),
        pytest.param(THOUSANDS, "| 32 | 32 | 8 |", "| 32 | 16 | 8 |", "Sequence Length (K)", "32", id="thousands of tokens"),
        pytest.param(LOOSELY, "| 461.2 |", "| 4612 |", "TFLOPs", "461.2", id="a law that rows keep to within two hundredths"),
        pytest.param(ONCE, "| 2 | 256 |", "| 1 | 256 |", "MBS", "2", id="a layout is not run twice"),
        pytest.param(FIVE, "| 568.9 |", "| 658.9 |", "TFLOPS", "568.9", id="four rows of five within a hundredth"),
        pytest.param(LOSSES, "| 2.401 |", "| 24.01 |", "loss", "2.401", id="a loss"),
        pytest.param(COUNTED_IN_FULL, "| 1,722,400,768 |", "| 2,236,203,008 |", "parameters", "1,726,599,168", id="tied twice"),
    ],
)
def test_a_slip_is_named_with_what_stood_there(lint, note: str, was: str, typed: str, column: str, proposed: str):
    assert lint(note) == []
    assert note.count(was) == 1
    found = lint(note.replace(was, typed))
    line = note[: note.index(was)].count("\n") + 1
    level = "warning" if column in ("GAS", "MBS") else "error"  # another row has what is proposed, which is no slip of the hand
    assert [(f.line, f.level, f.column, f.proposed) for f in found] == [(line, level, column, proposed)]


@pytest.mark.parametrize(("note", "was", "typed", "column", "proposed"), [
    pytest.param(PAIRS, "| 1.31x |", "| 1.53x |", "vs BF16", "1.31", id="of the row above"),
    pytest.param(BEFORE, "| 1.08x |", "| 0.92x |", "speed-up", "1.08", id="of the table above")])
def test_a_ratio_that_no_slip_explains_is_a_doubt(lint, note: str, was: str, typed: str, column: str, proposed: str):
    assert lint(note) == [] and note.count(was) == 1
    line = note[: note.index(was)].count("\n") + 1
    found = lint(note.replace(was, typed))
    assert [(f.line, f.level, f.column, f.proposed) for f in found] == [(line, "warning", column, proposed)]


def test_a_row_divided_by_1000_among_those_by_1024(lint):
    assert lint(AGGREGATE) == []
    found = lint(AGGREGATE.replace("1.03125", "1.05600"))
    assert [(f.line, f.code, f.level, f.proposed) for f in found] == [(8, "aggregate", "warning", "1.03125")]


def test_rows_in_a_comment_are_not_said_and_end_no_table(tmp_path: Path):
    path = tmp_path / "notes.md"
    shown = NO_PIPELINE.splitlines(keepends=True)
    hidden = ["<!-- | 8 | 4 | 1 | 2 | 3 | -->\n"]
    path.write_text("<!--\n" + "".join(shown[2:]) + "-->\n\n" + "".join([*shown[:6], *hidden, *shown[6:]]))
    findings, sheet = look_at([str(path)])
    assert [row.record.gpus for row in sheet.rows] == [32, 64, 128, 256]
    assert [finding for finding in findings if finding.level != "info"] == []
    path.write_text("<!-- a comment that never ends\n\n" + NO_PIPELINE)
    assert len(look_at([str(path)])[1].rows) == 4


@pytest.mark.parametrize("note", [
    "|label|layer|hidden|head\n|1||| |\n| ||| |\n|0B|4|2| |",
    "| Knoten | | Mikrobatch | Zeit/Schritt | T/s/GPU |\n| 1 | | | 44,8 | 23.357 |\n| 1 | | | 43,93 | 23.867 |\n"
    f"| 1 | | | 3,{'9' * 330} | 24"], ids=["no parameters", "more digits than a float has"])
def test_figures_that_nothing_divides_by(lint, note: str):
    lint(note)


BEFORE_AND_AFTER = """Sequence length 4096. Rates were read from dashboards, the time from the log.

| Training     | Cluster       | GPUs | TP | PP | DP  | GBS  | Time per step (s) | Tokens/s | Tokens/s/GPU | TFLOPs | MFU    |
|:-------------|--------------:|-----:|---:|---:|----:|-----:|------------------:|---------:|-------------:|-------:|-------:|
| Llama 2 7B   | before (A100) |   32 |  1 |  1 |  32 |  256 |              8.15 |  128,600 |        4,012 |  161.3 |  51.7% |
| Llama 2 7B   |  after (H100) |   16 |  1 |  1 |  16 |  256 |              5.98 |  174,900 |       10,895 |  442.2 |  44.5% |
| Llama 2 13B  | before (A100) |   64 |  2 |  1 |  32 |  512 |             16.11 |  129,700 |        2,018 |  158.7 |  50.6% |
| Llama 2 13B  |  after (H100) |   32 |  2 |  1 |  16 |  512 |             11.29 |  185,600 |        5,793 |  455.1 |  45.9% |
| Llama 2 70B  | before (A100) |  128 |  8 |  4 |   4 |  512 |             44.47 |   47,040 |          366 |  152.0 |  48.8% |
| Llama 2 70B  |  after (H100) |   64 |  8 |  2 |   4 |  512 |             29.92 |   70,200 |        1,095 |  453.6 |  46.0% |
| Mixtral 8x7B | before (A100) |  128 |  1 |  4 |  32 | 1024 |             21.86 |  191,600 |        1,495 |  115.6 |  37.1% |
| Llama 2 7B   | before (A100) |  128 |  1 |  1 | 128 | 1024 |              8.78 |  477,500 |        3,718 |  150.4 |  48.4% |
| Llama 2 13B  | before (A100) |  128 |  2 |  1 |  64 | 1024 |             16.56 |  253,000 |        1,980 |  154.7 |  49.4% |
"""


@pytest.mark.parametrize(("right", "wrong", "proposed"), [
    ("          366 ", "        2,928 ", "366"), ("  477,500 ", "  747,500 ", "477500")])
def test_a_rate_that_laws_of_counting_deny_beside_what_other_models_cost(lint, right: str, wrong: str, proposed: str):
    assert proposed in [f.proposed for f in lint(BEFORE_AND_AFTER.replace(right, wrong))]


def test_a_model_by_its_name_is_one_under_any_heading(tmp_path: Path):
    path = tmp_path / "note.md"
    path.write_text(BEFORE_AND_AFTER, encoding="utf-8")
    found, sheet = look_at([path])
    assert {row.record.size_label for row in sheet.rows} == {"Llama 2 7B", "Llama 2 13B", "Llama 2 70B", "Mixtral 8x7B"}
    assert [f for f in found if f.level != "info"] == []
