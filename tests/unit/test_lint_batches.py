"""Batches, micro-batches, accumulation and the devices that share them: products of whole numbers, in any words."""
from __future__ import annotations

import pytest

from lint_tables import table


@pytest.mark.parametrize(("right", "typed", "column"), [("1024", "102.4", "gbs"), ("64", "6.4", "GPUs")])
def test_a_fraction_among_counts_is_a_point_that_moved(lint, right: str, typed: str, column: str):
    note = "Sequence 4096.\n\n" + table("""
        mbs  GPUs  gbs  s/step  tok/s/GPU
        1  64  1024  29.88  2193
        2  64  1024  29.52  2220
        4  64  1024  28.81  2275
    """)
    assert lint(note) == []
    found = lint(note.replace("| 2 | 64 | 1024 |", "| 2 | 64 | 1024 |".replace(right, typed)))
    assert [(f.line, f.code, f.level, f.column, f.proposed) for f in found] == [(6, "unreadable", "error", column, right)]


ACCUMULATED = "One box, block size 1024, 524,288 tokens per step.\n\n" + table("""
    what  micro batch  acum.  ms / iter  tok/sec
    eager  16  4  833.5  629,045
    compile  16  4  584.8  896,555
    flash  16  4  411.4  1,274,328
    more  32  2  395.1  1,326,867
    padded  32  2  384.3  1,364,164
""")
"""As many replicas in every row, which nobody counts."""
NO_MICRO_BATCH = "32 GPUs, TP 4.\n\n" + table("""
    Seq len  CP  DP  GBS  GA  s/step  tok/s
    8K  1  8  512  64  17.07  245721
    16K  1  8  256  32  18.69  224430
    32K  2  4  128  32  22.27  188327
    64K  4  2  64  32  30.13  139192
    64K  2  4  64  16  29.23  143490
""")
OF_ANOTHER_TABLE = "Sequence length 2048. One node was in repair: a global batch of 120.\n\n" + table("""
    recipe  GPUs  MBS  Grad acc.  Step time (s)  Tok/s
    bf16  1  1  32  1.868  35,082
    bf16  4  1  8  0.467  140,375
    fp8  4  1  8  0.311  211,019
    bf16  4  2  8  1.005  130,428
""")
AT_ONCE = "Sequence length 8192.\n\n" + table("""
    chips  per_device_batch_size  global batch  seconds  tokens/s/device
    16  2  32  3.485  4701.6
    16  4  64  6.913  4740.3
    32  2  64  3.530  4641.9
    32  4  128  6.969  4702.2
    64  2  128  3.537  4631.7
    64  4  256  7.038  4656.0
""")


@pytest.mark.parametrize(("note", "right", "typed", "level", "proposed"), [
    (ACCUMULATED, "| 16 | 4 | 411.4", "| 16 | 8 | 411.4", "warning", "4"),
    (NO_MICRO_BATCH, "| 256 | 32 |", "| 256 | 8 |", "warning", "32"),
    (OF_ANOTHER_TABLE, "| 8 | 0.311", "| 16 | 0.311", "warning", "8"),
    (AT_ONCE, "| 64 | 4 | 256", "| 64 | 2 | 256", "warning", "4"),
], ids=["unsaid replicas", "unsaid micro-batch", "a batch of another table", "no accumulation"])  # fmt: skip
def test_the_parts_of_a_batch_give_it(lint, note: str, right: str, typed: str, level: str, proposed: str):
    assert lint(note) == []
    found = lint(note.replace(right, typed))
    assert [(f.code, f.level, f.proposed) for f in found] == [("batch-divisible", level, proposed)]


SAID_ABOVE = "GBS 1024, sequence 4096, A100.\n\n" + table("""
    Nodes  GPUs  s/step  tokens/s
    4  32  64.13  65,401
    8  64  32.63  128,561
    16  128  16.97  247,149
    32  256  8.80  476,481
    64  512  4.54  924,867
""")


def test_twice_the_time_of_a_batch_that_the_text_says_is_asked_about(lint):
    assert lint(SAID_ABOVE) == []
    found = lint(SAID_ABOVE.replace("8.80", "17.60"))
    assert [(f.line, f.level) for f in found] == [(8, "warning")] and "s/step 8.80" in found[0].message
    twice = SAID_ABOVE.replace("16.97", "33.94").replace("8.80", "17.60")  # two rows with a batch of their own
    assert {f.code for f in lint(twice)} <= {"outlier"}  # a quarter of the time on twice the devices is asked about


UNKNOWN_AXIS = "TPU v5p, sequence 4096.\n\n" + table("""
    chips  dcn_data  ici_fsdp  breadth  step (s)
    64  1  64  1  13.96
    128  1  64  2  13.83
    256  1  128  2  14.14
    512  2  128  2  14.31
    512  2  256  1  14.74
    1024  4  256  1  14.79
""")


def test_an_axis_under_an_unknown_heading_counts(lint):
    assert lint(UNKNOWN_AXIS) == []
    found = lint(UNKNOWN_AXIS.replace("1 | 128 | 2", "1 | 256 | 2"))
    assert [(f.line, f.code, f.column, f.proposed) for f in found] == [(7, "world-size", "ici_fsdp", "128")]


def test_rows_that_accumulate_are_no_slip(lint):
    assert lint(AT_ONCE.replace("64 | 2 | 128", "64 | 1 | 128").replace("64 | 4 | 256", "64 | 1 | 256")) == []


def test_half_a_sequence_for_a_device_is_none(lint):
    assert lint("Sequence 4096.\n\n" + table("""
        chips  per_device_batch  s/step
        64  2  29.88
        128  1  29.52
        256  0.5  28.81
    """)) == []


def test_a_batch_for_each_device_is_one_for_each_of_those_that_share_a_replica(lint):
    shared = """Sequence 8192.

| model | chips | fsdp | tensor | per-device batch | step (s) | tok/s/chip |
|---|---|---|---|---|---|---|
| 7b | 16 | 16 | 1 | 4 | 5.486 | 5,973 |
| 13b | 32 | 32 | 1 | 4 | 10.490 | 3,124 |
| 70b | 128 | 64 | 2 | 2 | 31.089 | 527 |
| 70b | 256 | 64 | 4 | 2 | 32.125 | 510 |
"""
    assert lint(shared) == []
    found = lint(shared.replace("31.089", "13.089"))
    assert [(f.line, f.column, f.proposed) for f in found] == [(7, "step (s)", "31.089")]


SHARES = "8B, 32 layers, hidden 4096, 32 heads, vocab 128256, sequence 4096.\n\n"


def test_a_micro_batch_that_no_number_of_replicas_can_have(lint) -> None:
    text = SHARES + table("""
        GPUs  micro batch  batch size  s/it
        16  2  256  10.1
        16  4  256  9.9
        32  3  512  10.2
    """)
    assert [(f.line, f.code) for f in lint(text)] == [(7, "batch-divisible")]
    assert not lint(text.replace("| 3 |", "| 4 |"))


def test_a_batch_that_divides_is_not_in_the_place_of_the_heads(lint) -> None:
    text = "32 A100, seq 2048, GBS 512.\n\n" + table("""
        L  d  heads  MBS  step (s)
        12  768  12  16  0.335
        24  1024  16  8  0.791
        24  1536  16  8  1.436
        24  2048  16  4  2.204
        32  2560  32  4  4.149
    """)
    assert not lint(text)


REPLICAS = "Sequence length 8192.\n\n" + table("""
    Model  GPUs  GBS  MBS  TP  PP  CP  Tokens/s/GPU
    8B  8  128  1  1  1  2  9307
    70B  64  128  1  4  4  2  1102
    70B  64  128  1  4  4  2  1107
    405B  576  252  1  8  9  2  184
    405B  144  72  1  4  9  2  188
""")


@pytest.mark.parametrize(("right", "wrong", "column", "proposed"), [
    ("| 4 | 4 | 2 | 1102 |", "| 4 | 4 | 8 | 1102 |", "CP", "2"), ("| 144 |", "| 164 |", "GPUs", "144")])
def test_replicas_that_do_not_fill_the_devices(lint, right: str, wrong: str, column: str, proposed: str):
    assert lint(REPLICAS) == []
    assert REPLICAS.count(right) == 1
    assert [(f.column, f.proposed) for f in lint(REPLICAS.replace(right, wrong))] == [(column, proposed)]


BY_NODES = "Sequence 4096.\n\n" + table("""
    nodes  GPUs  GBS  s/step  tokens/s  tokens/s/GPU  TFLOPs/GPU
    1  4  64  6.35  41542  10387  445
    2  8  128  6.46  80652  10008  435
    4  16  256  6.53  160642  9940  433
    8  32  512  6.65  314212  9827  429
    16  64  1024  6.87  613752  9666  412
""")


def test_a_rate_of_a_node_with_as_many_devices_as_its_columns_say(lint):
    assert lint(BY_NODES) == []
    found = lint(BY_NODES.replace("| 10008 |", "| 40326 |"))
    assert [(f.column, f.proposed) for f in found] == [("tokens/s/GPU", "10082")]


@pytest.mark.parametrize("heading", ["Akk.", "Grad-Akk.", "acumul.", "acumulação", "akumulacja", "누적"])
def test_accumulation_under_any_short_word_gives_the_batch(lint, heading: str):
    rows = [(1, 4, 64, "48.37"), (2, 4, 32, "24.73"), (4, 4, 16, "12.53"), (4, 8, 8, "11.95"), (8, 4, 8, "6.59")]
    note = f"Sequence length 4096, global batch 256.\n\n| GPUs | MBS | {heading} | s/step | tokens/s |\n|---|---|---|---|---|\n"
    note += "".join(f"| {n} | {mbs} | {ga} | {sec} | {256 * 4096 / float(sec):.0f} |\n" for n, mbs, ga, sec in rows)
    assert lint(note) == []
    found = lint(note.replace("| 2 | 4 | 32 |", "| 2 | 4 | 16 |"))
    assert [(f.line, f.column, f.proposed) for f in found] == [(6, heading, "32")]


MESH = "TPU, sequence 2048.\n\n" + table("""
    slice  chips  fsdp  model  batch  step (s)  tokens/s
    v4-8  4  4  1  64  3.693  35,492
    v4-16  8  8  1  128  3.695  70,946
    v4-32  16  16  1  256  3.711  141,279
    v4-64  32  32  1  512  3.715  282,255
    v4-64  32  16  2  512  3.996  262,406
    v4-128  64  64  1  1024  3.806  551,012
    v4-128  64  32  2  1024  4.015  522,329
""")


def test_the_model_axis_of_a_mesh_is_no_name_of_a_model(lint):
    assert lint(MESH) == []
    found = lint(MESH.replace("32 | 16 | 2", "32 | 16 | 1"))
    assert [(f.line, f.code, f.column, f.proposed) for f in found] == [(9, "world-size", "model", "2")]


SEVERAL = "Four nodes of 8 H200 (32 GPUs).\n\n" + table("""
    seq  TP  CP  DP  GBS  s/step
    8192  1  1  32  512  16.0
    16384  1  1  32  256  18.7
    16384  1  2  16  256  19.1
    32768  2  2  8  128  25.6
    65536  1  4  8  64  36.3
    65536  2  4  4  64  38.3
    131072  1  8  4  32  62.0
    131072  1  16  2  32  66.2
    262144  2  8  2  16  112.8
""")


def test_two_rows_that_are_not_the_devices_of_the_text_are_each_told(lint):
    assert lint(SEVERAL) == []
    found = lint(SEVERAL.replace("1 | 1 | 32 | 256", "1 | 1 | 16 | 256").replace("2 | 8 | 2 | 16", "2 | 16 | 2 | 16"))
    assert [(f.line, f.code) for f in found] == [(6, "world-size"), (13, "world-size")]


@pytest.mark.parametrize("data, model", [("data", "model"), ("data", "mdl"), ("data axis", "model axis"), ("data", "tensor")])
def test_data_is_an_axis_where_it_gives_the_devices(lint, data: str, model: str):
    mesh = MESH.replace("fsdp", data).replace("| model", f"| {model}")
    assert lint(mesh) == []
    (found,) = lint(mesh.replace("32 | 16 | 2", "32 | 16 | 1"))
    assert (found.line, found.code) == (9, "world-size") and "TP" in found.message


def test_data_in_billions_of_tokens_is_no_axis(lint):
    assert lint("Sequence 2048.\n\n" + table("""
        chips  data  batch  step (s)  tokens/s
        4  10  64  3.693  35,492
        8  10  128  3.695  70,946
        16  20  256  3.711  141,279
        32  20  512  3.715  282,255
        64  40  1024  3.806  551,012
    """)) == []


def test_fewer_sequences_of_more_devices_stand_where_they_should(lint):
    assert lint("Sequence 4096, 512 sequences.\n\n" + table("""
        chips  seqs/chip  step ms  tokens/s
        16  32  20413  102,735
        32  16  9617  218,068
        64  8  4768  439,827
        128  4  2505  837,234
        256  2  1442  1,454,159
    """)) == []


SIDE = """# 70B pre-training

Layout: {layout}, the rest data parallel; micro batch 1, bf16, H100.

| GPUs | DP | seq | GBS | s/step | tokens/s |
|---|---|---|---|---|---|
| 512 | 16 | 4096 | 512 | 4.510 | 464,063 |
| 512 | 16 | 4096 | 1024 | 8.586 | 489,200 |
| 1024 | 32 | 4096 | 1024 | 4.402 | 952,805 |

## Side experiment: 8B proxy, seq 8192, {side}

| GPUs | global batch | accum | step time (s) | tok/s/GPU |
|---|---|---|---|---|
| 8 | 8 | 1 | 0.993 | 8,227 |
| 8 | 64 | 8 | 7.012 | 9,361 |
| 8 | 256 | 32 | 27.862 | 9,422 |
| 6 | 48 | 8 | 7.000 | 9,409 |
| 4 | 64 | 16 | 13.828 | 9,519 |
"""


@pytest.mark.parametrize("layout", ["TP 8, PP 4", "tensor parallel 8, pipeline parallel 4", "TP=8 PP=4"])
def test_degrees_that_no_row_has_the_devices_for_are_those_of_another_job(lint, layout: str):
    note = SIDE.format(layout=layout, side="FSDP only, micro batch 1")
    assert lint(note) == []
    assert [f.line for f in lint(note.replace("9,361", "3,961"))] == [16]


def test_a_table_with_replicas_of_its_own_or_one_row_has_no_degrees_of_another_section(lint):
    above = SIDE.format(layout="TP 8, PP 4", side="micro batch 1").partition("| GPUs | global")[0]
    head = "| GPUs | DP | GBS | s/step | tokens/s |\n|---|---|---|---|---|\n"
    rows = ("| 8 | 8 | 64 | 1.012 | 518,072 |\n", "| 16 | 16 | 128 | 1.022 | 1,026,004 |\n",
            "| 32 | 32 | 256 | 1.041 | 2,014,556 |\n")  # fmt: skip
    assert lint(above + head + "".join(rows)) == lint(above + head + rows[0]) == []
    found = lint(above + head + "".join(rows).replace("| 16 | 16 |", "| 16 | 61 |"))
    assert {f.line for f in found} == {16}


def test_a_row_without_the_devices_that_the_others_have_is_told(lint):
    note = SIDE.format(layout="TP 2, PP 2", side="micro batch 1")
    assert 18 in [f.line for f in lint(note) if f.code == "world-size"]
