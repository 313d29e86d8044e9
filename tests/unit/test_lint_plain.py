"""Tables that are none of runs: phases, stages, parts and prices, whose columns belong together all the same."""
from __future__ import annotations

import pytest

from lint_tables import table

PHASES = "# Bilan\n\n" + table("""
    Phase  GPU  heures  heures GPU
    mise au point  4  31,5  126
    essais  32  14,0  448
    1re moitié  64  122,0  7808
    2e moitié  64  118,5  7584
    affinage  16  22,5  360
""") + "| **total** | | | 16326 |\n"
BUDGET = "# Budget\n\n" + table("""
    item  count  USD each  USD
    server  64  285000  18240000
    switch  24  42000  1008000
    cable  1536  310  476160
    rack  16  9800  156800
""") + "| sum | | | 19880960 |\n"
DAYS = "# Plan\n\n" + table("""
    stage  cards  days  card-hours
    warm-up  96  2.5  5760
    main  768  31.25  576000
    anneal  384  4.75  43776
""")
SHEET = "On one node of 8, one sequence of 8192 per GPU.\n\n" + table("""
    device  H100  H200  B200
    bf16 dense TFLOP/s  989  989  2250
    fp8 dense TFLOP/s  1979  1979  4500
    HBM (GB)  80  141  180
""")
SAME = "# Memory\n\n" + table("""
    case  weights, MiB  gradients, MiB  optimizer, MiB  activations, MiB
    1 rank  3.401  3.401  6.803  13.06
    kept  3.401  3.401  6.803  35.70
    tp2  1.771  1.771  3.541  9.048
    tp4  0.9541  0.9541  1.908  7.040
    pp2  1.764  2.014  3.527  12.55
""")
EPOCHS = "A100, LoRA, sequence 2048.\n\n" + table("""
    model  bs  accum  sec/step  tok/s  steps/epoch  h/epoch
    7B  2  8  9.00  3643  3250  8.13
    7B  4  4  8.49  3834  3250  7.66
    13B  1  16  17.06  1910  3250  15.40
    13B  2  8  16.32  2002  3250  14.74
    13B  4  4  15.93  2065  3250  14.38
""")
PARTS = "# Breakdown, ms\n\n" + table("""
    what  fwd  bwd  other  together
    none  305.9  561.6  31.0  898.5
    SP  290.4  538.8  31.2  860.4
    full  306.8  867.6  31.1  1205.5
    half  290.9  680.3  31.2  1002.4
""")
LEFT = PARTS.replace("| 31.2 | 860.4", "| 31.2 | 860.5")
"""By the rounding of four figures."""


@pytest.mark.parametrize("note", [PHASES, BUDGET, DAYS, SAME, EPOCHS, PARTS, LEFT, SHEET])
def test_nothing_is_said_of_columns_that_belong_together(lint, note: str):
    assert not lint(note)


@pytest.mark.parametrize(("note", "was", "typed", "proposed"), [
    (PHASES, "16326", "13626", "16326"),
    (PHASES, "7584", "758,4", "7584"),
    (PHASES, "22,5", "25,2", "22,5"),
    (BUDGET, "19880960", "1988096", "19880960"),
    (BUDGET, "1008000", "100800", "1008000"),
    (DAYS, "43776", "4377.6", "43776"),
    (DAYS, "31.25", "13.25", "31.25"),
    (EPOCHS, "14.38", "1.438", "14.38"),
    (PARTS, "1205.5", "120.55", "1205.5"),
    (PARTS, "538.8", "583.8", "538.8"),
    (PARTS, "290.9", "29.09", "290.9"),
])  # fmt: skip
def test_the_one_cell_that_does_not_belong_is_named(lint, note: str, was: str, typed: str, proposed: str):
    assert note.count(was) == 1
    found = lint(note.replace(was, typed))
    line = note[: note.index(was)].count("\n") + 1
    assert {finding.line for finding in found} == {line}
    assert [finding.proposed for finding in found] == [proposed]


QUALITY = "# Evals\n\n" + table("""
    size  val loss  fit  wikitext ppl
    125M  3.31  3.32  24.1
    350M  2.98  2.98  17.5
    760M  2.77  2.76  14.6
    1.3B  2.63  2.63  13.2
""")
NIGHTS = "# Nights\n\n" + table("""
    night  build  loss@200  inlet
    1  a41f  2.9137  24.1
    2  b7c0  2.9103  24.6
    3  19de  2.9099  23.8
    4  77aa  2.9089  24.4
    5  c2f3  2.9062  25.0
    6  d001  2.9059  24.9
""")
RATES = "# Sweep\n\n" + table("""
    run  lr  val loss
    a  0.0003  2.91
    b  0.0003  2.93
    c  0.003  6.95
    d  0.0003  2.90
    e  0.0003  2.92
""")


@pytest.mark.parametrize(("note", "was", "typed"), [
    (QUALITY, "2.98", "29.8"), (QUALITY, "14.6", "1.46"), (NIGHTS, "2.9089", "29.089"), (NIGHTS, "2.9103", "2.1903"),
    (NIGHTS, "24.4", "244"),
])  # fmt: skip
def test_a_figure_far_from_a_column_that_hardly_differs_is_told(lint, note: str, was: str, typed: str):
    found = lint(note.replace(was, typed, 1))
    assert [(finding.code, finding.proposed) for finding in found] == [("outlier", was)]


@pytest.mark.parametrize("note", [QUALITY, NIGHTS, RATES])
def test_what_differs_for_a_reason_is_left_alone(lint, note: str):
    assert not lint(note)


ALIKE = "# Kernels\n\n" + table("""
    matrix  K  N  M=1  M=2  M=3  M=4
    qkv  4096  4096  36.2  80.6  72.9  73.3
    o  4096  4096  31.1  73.2  72.7  73.4
    up  4096  12288  63.5  184.4  184.2  184.3
    down  12288  4096  67.8  187.3  187.4  188.0
    head  4096  151936  535.9  2025.0  2025.9  2029.8
""")
DOUBLED = "# Experts\n\n" + table("""
    Model case  Expanded rows  Block size  Latency (ms)  Relative
    first, top 4  4  32  0.068118  1.006x
    first, top 4  4  64  0.067712  1.000x
    other, top 8  8  32  0.050836  0.991x
    other, top 8  8  64  0.051312  1.000x
""")
COVERED = "# Coverage\n\n" + table("""
    **API Coverage:**  plugin  infer_request  compiled_model
    CPU  98.31 %  99.9 %  90.7 %
    CPU_ARM  80.0 %  99.9 %  89.74 %
    GPU  91.53 %  98.7 %  97.3 %
    dGPU  89.83 %  99.1 %  98.2 %
    NPU  18.64 %  12.0 %  9.3 %
    AUTO  93.88 %  99.4 %  97.9 %
    BATCH  86.05 %  99.9 %  86.15 %
    HETERO  61.22 %  99.24 %  86.05 %
""")
LIBRARIES = "# Parsers\n\n" + table("""
    Library  Median latency (milliseconds)  Operations per second  Relative (latency)
    one  0.03  28817.3  1
    two  0.18  5478.2  6
    three  0.1  9886.4  3.5
    four  0.17  5838.1  5.7
    five  0.26  3770.4  8.8
""")


@pytest.mark.parametrize("text", [ALIKE, DOUBLED, COVERED, LIBRARIES])
def test_columns_that_are_alike_and_rows_of_another_kind_are_no_slips(lint, text):
    assert lint(text) == []


SPENT = "# Costs\n\n" + table("""
    machine  tokens/s  hours  USD per GPU and h  USD
    8x H100, spot  72,897  7.6  1.90  116
    8x H100  73,244  7.6  3.40  207
    8x A100 80GB  24,417  22.8  1.30  237
    8x L40S  22,943  24.2  0.90  174
""")
POWER = "# Energy\n\n" + table("""
    what  GPU hours  kW per GPU  MWh
    all stages  81,759  0.58  47.4
    ablations  11,222  0.35  3.9
""")
PACKAGES = "# Work packages\n\n" + table("""
    package  nodes  days  k node-h  k GPU-h
    A: base  64  28.8  44.2  176.9
    A2: annealing  64  2.4  3.7  14.7
    B: more  64  4.8  7.4  29.5
    C: ablations  64  7.2  11.1  44.2
""")
PARTS = "# Where the time goes\n\n" + table("""
    overlap  forward  backward  exposed  optimizer  total
    off  6,593  12,297  3,782  621  23,293
    25 MB  6,608  12,262  1,774  622  21,266
    100 MB  6,596  12,283  1,055  620  20,554
    400 MB  6,620  12,307  1,433  614  20,974
""")
PRIX = "# Demande\n\n" + table("""
    poste  heures GPU  €/h  €
    pré-entraînement  61 000  0,48  29 280
    ablations  9 400  0,48  4 512
    affinage  1 250  0,48  600
    évaluation  3 000  0,11  330
""")
POINTS = "# 記録\n\n" + table("""
    ジョブ  ノード  時間  ノード時間  ポイント
    4412233  8  9.0  72  180
    4413090  16  22.0  352  880
    4413577  16  6.5  104  260
""") + "| 計 | | | 528 | 1320 |\n"


@pytest.mark.parametrize(("note", "was", "typed", "proposed"), [
    pytest.param(SPENT, "| 207 |", "| 27 |", "207", id="cost"),
    pytest.param(SPENT, "| 0.90 |", "| 0.09 |", None, id="price"),
    pytest.param(POWER, "| 3.9 |", "| 3900 |", "3.900", id="energy in other units"),
    pytest.param(PACKAGES, "| 4.8 |", "| 48 |", "4.8", id="days"),
    pytest.param(PARTS, "| 12,283 |", "| 2,283 |", "12283", id="a part of a step"),
    pytest.param(PRIX, "| 4 512 |", "| 45 120 |", "4512", id="money with spaces"),
    pytest.param(POINTS, "| 880 |", "| 808 |", "880", id="points of a total"),
])  # fmt: skip
def test_what_words_and_units_define_needs_no_proof(lint, note: str, was: str, typed: str, proposed: str | None):
    assert lint(note) == [] and note.count(was) == 1
    found = lint(note.replace(was, typed))
    line = note[: note.index(was)].count("\n") + 1
    assert [f.line for f in found] == [line] and (proposed is None or found[0].proposed == proposed)


ADAPTERS = table("""
    Modell  Rang  Epochen  Tokens/s  Stunden
    8B  16  3  9831  3,2
    8B  64  3  9831  3,2
    8B  16  2  1503  13,9
    8B  16  2  1364  15,3
    8B  16  2  1400  15,0
    8B  16  2  1502  13,9
    8B  16  1  761  13,7
""")


def test_what_somebody_chose_is_no_factor_of_what_was_measured(lint):
    assert [found for found in lint("# LoRA\n\n" + ADAPTERS) if found.level != "info"] == []


def test_round_figures_that_go_with_each_other_are_no_law(lint):
    assert lint("# Quotas\n\n" + table("""
        class  GPU hours  disk
        student  300  0.7TB
        thesis  3000  3TB
        project  30000  30TB
    """)) == []


def test_the_memory_of_partitions_is_not_what_a_run_took(lint):
    note = "An H100 here has 94 GB; an MI250X is two devices of 64 GB each.\n\n" + table("""
        partition  nodes  devices/node  memory  devices
        v100  24  4  32GB  96
        h100  20  4  94GB  80
        amd  12  4  128GB  48
    """)
    assert [found for found in lint(note) if found.level != "info"] == []


def test_what_a_device_saves_is_not_what_it_has(lint):
    note = table("""
        Mikrobatch  Zeit/Schritt[s]  Tokens/s  Speicher[GB]
        8  10,31  50860  11,7
        16  10,27  51055  14,9
        32  10,33  50762  21,2
    """)
    found = lint("# Checkpointing\n\n" + note + "\nDas spart 6,2 GB je Karte.\n")
    assert [one for one in found if one.level != "info"] == []


def test_a_row_with_energy_and_hours_has_results(lint):
    note = table("""
        date  job  model  nodes  gpus  hours  kW  kWh
        2025-01-09  a1  8B  8  64  36.0  55.2  1987
        2025-01-14  a2  8B  16  128  43.8  110.0  4818
        2025-01-20  b1  14B  16  128  23.7  112.8  2673
        2025-02-01  b2  14B  32  256  45.2  223.7  10111
    """)
    assert [found for found in lint("# Energy\n\n" + note) if found.code == "dated-but-empty"] == []


def test_what_a_release_had_stands_beside_what_is_measured(lint):
    note = "# Release\n\n" + table("""
        Model  GPUs  GBS  Seq  Step(s)  Tokens/s/GPU  Tokens/s/GPU_in_0.13
        8B  8  128  8192  15.60  8402  7653
        8B  16  128  8192  7.92  8275  8084
        8B  32  128  8192  4.01  8172  7042
        8B  64  128  8192  2.05  7992  6608
    """).replace("_in_", " in ")
    assert [found for found in lint(note) if found.level != "info"] == []


def test_a_layout_that_ran_and_takes_as_many_devices_as_all_others_may_pad_its_heads(lint):
    note = "GPT, 24 layers, hidden 2560, 20 heads, sequence length 2048, global batch 256.\n\n" + table("""
        TP  PP  DP  s/step
        1  4  32  41.2
        2  4  16  40.1
        4  4  8  42.0
        4  2  16  40.9
        8  2  8  47.3
    """)
    assert [found for found in lint(note) if found.code == "heads-divisible" and found.level != "info"] == []
    assert "heads-divisible" in {found.code for found in lint(note.replace("| 8 | 2 | 8 |", "| 8 | 4 | 8 |"))}
