"""Notes of clusters of many kinds: what a device, a node and a rank are there, layouts in one cell, figures that scatter."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes.lint import means
from seatrial.notes.lint.models.devices import device_named
from seatrial.notes.read import import_file

APUS = "Sequence 4096, four APUs a node.\n\n" + table("""
    nodes  APU  MBS  accum  GBS  s/step  tokens/s/APU
    1  4  2  16  128  10.11  12965
    2  8  2  16  256  10.33  12688
    2  8  4  8  256  9.56  13710
    4  16  4  8  512  9.91  13226
    8  32  4  8  1024  9.92  13213
""")


def test_an_apu_is_a_device(lint):
    assert lint(APUS) == []
    (found,) = lint(APUS.replace("12688", "101504"))
    assert (found.line, found.level, found.column, found.proposed) == (6, "error", "tokens/s/APU", "12688")


PER_BOX = "Sequence 4096, batch 256.\n\n" + table("""
    run  boxes  HPUs  GBS  s/step  tokens/s  PFLOPS/box
    a  8  64  256  12.2  85,951  4.75
    b  8  64  256  12.7  82,565  4.56
    c  8  64  256  11.9  88,117  4.87
    d  16  128  256  6.3  166,442  4.60
    e  16  128  256  6.1  171,897  4.75
""")


def test_tflops_among_pflops_of_a_node_are_a_point_that_moved(lint):
    assert lint(PER_BOX) == []
    (found,) = lint(PER_BOX.replace("4.56", "4560"))
    assert (found.line, found.level, found.column, found.proposed) == (6, "error", "PFLOPS/box", "4.560")


LAID_OUT = "Sequence 2048, micro batch 1. TP·PP·DP in one cell.\n\n" + table("""
    job  nodes  layout  micro batches  GBS  s/step  TFLOPS/node
    201  320  4·10·8  64  512  276.7  0.972
    202  320  4·20·4  128  512  283.6  0.948
    203  640  8·10·8  64  512  156.3  0.860
    204  640  4·10·16  64  1024  281.9  0.954
    205  1280  4·10·32  32  1024  165.5  0.812
    206  1280  4·10·32  64  2048  287.9  0.934
""")


def test_a_layout_in_one_cell_is_in_the_order_that_the_text_says(lint):
    assert lint(LAID_OUT) == []
    (found,) = lint(LAID_OUT.replace("205 | 1280 | 4·10·32", "205 | 1280 | 4·10·16"))
    assert (found.line, found.code, found.column, found.proposed) == (9, "world-size", "layout", "4·10·32")


def test_a_mesh_says_how_many_share_a_micro_batch(lint):
    assert lint("Mesh is fsdp x tensor, sequence 8192, no accumulation.\n\n" + table("""
        chips  mesh  pdb  GBS  step [s]  tok/s/chip
        64  64x1  1  64  4.863  1685
        64  32x2  2  64  5.067  1617
        128  128x1  1  128  4.862  1685
        256  256x1  1  256  4.962  1651
        64  64x1  2  128  5.551  2952
        64  64x1  4  256  10.786  3038
    """)) == []


def test_a_node_of_a_remark_is_the_rows_own(lint):
    note = "32 nodes of 8 H200 unless said otherwise, sequence 8192.\n\n" + table("""
        run  TP  PP  DP  GBS  s/step  tok/s/GPU  remark
        x1  4  8  8  128  4.7  872  .
        x2  2  8  16  128  5.7  719  .
        x3  1  8  32  128  7.6  539  .
        x4  2  14  8  128  6.1  767  4 layers per stage, 224 GPUs
        x5  4  8  16  256  4.8  853  64 nodes
    """)
    assert lint(note) == []


def test_so_many_ranks_of_a_socket_are_not_all_ranks(tmp_path: Path):
    note = tmp_path / "notes.md"
    note.write_text("8 nodes, sequence 2048.\n\n" + table("""
        ranks  number  MBS  accum  GBS  s/step  tokens/s  TF/socket  TF/rank
        1 rank / socket  16  2  8  256  5.16  101,951  49.3  49.3
        4 ranks / socket  64  1  4  256  4.76  110,581  53.0  13.3
    """))
    assert [(record.gpus, record.tflops) for record in import_file(str(note)).records] == [(16, 49.3), (64, 13.3)]


def test_so_many_of_each_node_are_not_all(tmp_path: Path):
    note = tmp_path / "notes.md"
    note.write_text(table("""
        ranks  MBS  GBS  s/step
        4 ranks / node  2  256  5.16
        8 ranks (all)  2  256  4.76
    """))
    assert [record.gpus for record in import_file(str(note)).records] == [None, 8]


@pytest.mark.parametrize(("sentence", "share"), [
    ("Rates and times come from different windows, up to 2 % apart.", 0.02),
    ("Zeiten und Raten stammen aus verschiedenen Fenstern, gut ein Prozent Abweichung ist normal.", 0.01),
    ("They agree to a per cent or two.", 0.02), ("Run-to-run noise is about 1.5 %.", 0.015),
    ("The two layouts differ by 12 %.", 0.0), ("Efficiency falls to 2 %.", 0.0),
])  # fmt: skip
def test_what_the_text_says_of_scatter(sentence: str, share: float):
    assert means.said([sentence]) == pytest.approx(share)


SCATTERED = "8 nodes of 8 H200, sequence 4096.{}\n\n" + table("""
    dispatcher  MBS  GBS  s/step  tok/s  TFLOP/s/GPU
    a  1  1024  11.56  0.357M  169
    b  2  1024  9.81  0.432M  201
    c  2  1024  7.96  0.532M  246
    d  2  1024  6.97  0.593M  280
    e  4  1024  6.86  0.603M  281
""")


def test_a_difference_that_the_text_allows_is_no_slip(lint):
    assert lint(SCATTERED.format(" Rates and step times are from different windows, up to 2 % apart.")) == []
    assert lint(SCATTERED.format("")) == []  # another row misses what they have in common by a hundredth, too


def test_a_slow_run_whose_figures_agree_was_measured(lint):
    assert lint("32 nodes of 8, sequence 2048, batch 1024.\n\n" + table("""
        setting  ms/step  ktok/s, whole job  MFU %
        plugin on  5,738  365  33.8
        plugin off (forgot it)  11,388  183  17.0
        + CPU mask  5,514  379  35.2
        + more channels  5,577  377  34.7
    """)) == []


def test_an_efficiency_of_the_first_row_is_no_change_against_the_row_above(lint):
    assert lint("Sequence 1024.\n\n" + table("""
        nodes  sockets  GBS  s/step  samples/s  speedup  eff
        1  2  128  2.819  45.1  1.00  100%
        2  4  128  1.442  89.0  1.95  98%
        4  8  128  0.746  172.7  3.78  94%
        8  16  128  0.389  330.4  7.25  91%
        16  32  128  0.218  590.8  12.95  81%
    """)) == []


def test_what_a_time_limit_ended_ran_until_then(lint):
    note = "Sequence 8192.\n\n" + table("""
        date  gpus  gbs  state  sec_per_step  tok_s_gpu
        2025-04-22  64  128  COMPLETED  9.410  1741
        2025-04-23  64  64  COMPLETED  5.340  1534
        2025-04-23  128  128  TIMEOUT  5.478  1495
        2025-05-05  128  128  COMPLETED  5.379  1523
        2025-06-02  64  256  PENDING  .  .
    """).replace("| . |", "|  |").replace("| . |", "|  |")
    assert lint(note) == []


def test_a_gcd_is_half_a_card():
    half, whole = device_named("MI250X-GCD"), device_named("four MI250X, eight GCDs")
    assert half is not None and (half.memory_gib, max(half.peak_tflops.values())) == (64, 191.5)
    assert whole is not None and whole.memory_gib == 128


RECOMPUTED = "4 nodes of 8, sequence 2048.\n\n" + table("""
    job  nodes  DP  TP  PP  mbs  GBS  recompute  status  s/step  TFLOP/s  tok/s/node
    15  4  16  2  1  1  256  off  ok, 40.9 GiB  21.83  66.9  6004
    31  4  16  2  1  2  256  on  ok, 36.0 GiB  27.93  52.3  4693
    50  4  8  4  1  2  256  off  ok, 27.4 GiB  22.41  65.2  5849
    77  4  8  2  2  2  256  off  ok, 33.7 GiB  22.23  65.7  5896
    91  4  8  2  2  4  256  on  ok, 22.4 GiB  30.67  47.6  4274
    04  16  32  2  2  2  1024  off  ok, 29.8 GiB  23.10  63.2  5674
""")


@pytest.mark.parametrize(("right", "wrong", "line", "column", "proposed"), [
    ("ok, 40.9 GiB", "ok, 40.9 MiB", 5, "status", "ok, 40.9 GiB"),  # the memory stands with what came of the run
    ("4  256  on", "4  256  off", 9, "recompute", "on"),  # twice at a time in less memory, and slower
])  # fmt: skip
def test_memory_beside_what_came_of_a_run(lint, right: str, wrong: str, line: int, column: str, proposed: str):
    assert lint(RECOMPUTED) == []
    (found,) = lint(RECOMPUTED.replace(right.replace("  ", " | "), wrong.replace("  ", " | ")))
    assert (found.line, found.column, found.proposed) == (line, column, proposed)


def test_a_row_alone_with_recomputation_is_held_against_the_others(lint):
    alone = RECOMPUTED.replace("| on | ok, 22.4 GiB | 30.67 | 47.6 | 4274", "| off | ok, 52.4 GiB | 21.67 | 67.4 | 6049")
    assert lint(alone) == []
    (found,) = lint(alone.replace("52.3", "104.6"))
    assert (found.line, found.column, found.proposed) == (6, "TFLOP/s", "52.3")


def test_a_sequence_by_which_no_row_follows_the_formula_of_the_text(lint):
    shape = "GPT-2 medium: 24 layers, hidden 1024, 16 heads, vocabulary 50304, sequence length {}. GFLOPS by 6N + 12Lhs.\n\n"
    rows = table("""
        nodes  ranks  MBS  GBS  s/step  GFLOPS/CMG
        1  4  2  128  110.42  337
        4  16  2  256  55.53  335
        16  64  2  512  28.12  331
        16  64  4  512  26.73  348
        64  256  4  1024  14.68  317
    """)
    assert lint(shape.format(512) + rows) == []
    (found,) = lint(shape.format(1024) + rows)
    assert (found.line, found.code, found.printed, found.proposed) == (1, "header-vs-row", "1024", "512")


MATRIX = "Peak GiB.\n\n" + table("""
    what  stage 1  stage 2  stage 3
    mbs 1  41.4  29.2  16.9
    mbs 2  48.8  36.6  24.3
    mbs 4  OOM  51.3  39.1
""")


def test_one_cell_of_a_matrix_goes_against_its_row_and_its_column(lint):
    assert lint(MATRIX) == []
    (found,) = lint(MATRIX.replace("24.3", "46.2"))
    assert (found.line, found.level, found.column, found.proposed) == (6, "error", "stage 3", "24.3")


@pytest.mark.parametrize("other", [
    MATRIX.replace("24.3", "31.0"),  # more than the others add up to, and in order all the same
    MATRIX.replace("36.6", "28.1").replace("51.3", "27.0"),  # falls with the micro-batch in one column: it was recomputed
    MATRIX.replace("stage 1", "flash").replace("stage 3", "fused"),  # columns that have no order
])  # fmt: skip
def test_a_matrix_may_be_of_any_shape(lint, other: str):
    assert lint(other) == []


PARTS = table("""
    part  GiB
    weights (bf16)  13.1
    gradients (bf16)  13.1
    optimizer shard  4.9
    activations  6.6
    logits and loss  0.8
    all  38.5
""")


def test_a_part_that_is_more_than_the_whole(lint):
    assert lint(PARTS) == []
    (found,) = lint(PARTS.replace("4.9", "49"))
    assert (found.line, found.level, found.printed, found.proposed) == (5, "error", "49", "4.9")


def test_all_of_the_means_need_less_than_each(lint):
    assert lint(table("""
        means  GiB
        flash attention  61.3
        recompute  33.1
        fused head  58.2
        all  27.9
    """)) == []


PHASES = table("""
    phase  start  end  tokens (B)  net days
    P1  06-02  06-12  201.3  8.8
    P2  06-12  06-25  260.0  11.4
    P3  06-26  07-08  239.1  10.4
""")


def test_a_phase_has_room_for_its_days(lint):
    assert lint(PHASES) == []
    (found,) = lint(PHASES.replace("| P2 | 06-12", "| P2 | 06-21"))
    assert (found.line, found.level, found.column, found.proposed) == (4, "error", "start", "06-12")


def test_a_share_of_the_peak_in_a_sentence(lint):
    said = "Peak 989 TFLOP/s bf16. On 64 nodes a GPU does 391 TFLOP/s ({} % of peak).\n"
    assert lint(said.format(40)) == lint(said.format(39)) == []
    (found,) = lint(said.format(51))
    assert (found.line, found.level, found.printed, found.proposed) == (1, "error", "51 %", "40 %")


def test_a_gain_in_a_sentence_is_that_of_the_row_it_names(lint):
    rows = "512 GPUs, batch 1024, sequence 4096.\n\n" + table("""
        what  s/step  tokens/s
        before  2.661  1.576M
        pinned  2.642  1.588M
        new NCCL  2.580  1.626M
        both  2.511  1.670M
    """)
    assert lint(f"{rows}\nBoth together save 6 % of a step.\n") == []
    (found,) = lint(f"{rows}\nBoth together save 15 % of a step.\n")
    assert (found.line, found.level, found.printed, found.proposed) == (10, "warning", "15", "5")


def test_sections_of_a_page_are_those_of_notes(tmp_path: Path):
    from seatrial.notes.lint import look_at

    page = tmp_path / "page.html"
    row = "<tr><td>{}</td><td>32</td><td>{}</td><td>{}</td></tr>"
    head = "<table>\n<tr><th>what</th><th>GBS</th><th>ms/step</th><th>ktok/s</th></tr>\n"
    rows = "\n".join(row.format(*one) for one in (("eager", 1000, 32.8), ("compile", 753, 43.5), ("flash", 582, 56.3)))
    longer = "\n".join(row.format(*one) for one in (("a", 1000, 131), ("b", 2000, 65.5), ("c", 4000, 32.8)))
    page.write_text(f"<h2>A</h2>\n<p>Sequence length 4096, 32 layers.</p>\n{head}{longer}\n</table>\n<h2>B</h2>\n"
                    f"<p>48 layers, hidden 1600, length 1024.</p>\n{head}{rows}\n</table>\n")  # fmt: skip
    found, sheet = look_at([str(page)])
    assert [f for f in found if f.level != "info"] == [] and [line.seq for line in sheet.rows] == [4096] * 3 + [1024] * 3


PARTITIONS = "GPT, sequence 2048.\n\n" + table("""
    partition  model  nodes  TP/PP/DP  MBS  GBS  s/it  samples/s
    v100  1,4 Md  4  1/1/16  2  256  7.49  34.2
    v100  1,4 Md  16  1/1/64  2  512  4.00  128.0
    v100  2,8 Md  16  2/1/32  2  512  8.02  63.8
    a100  2,8 Md  2  1/1/16  4  512  8.36  61.2
    a100  6,9 Md  4  2/1/16  4  512  9.60  53.3
    a100  12 Md  8  2/2/16  2  1024  16.89  60.6
""")


def test_nodes_of_each_device_have_their_own_number_of_them(lint):
    assert lint(PARTITIONS) == []
    (found,) = lint(PARTITIONS.replace("1/1/64", "1/1/48"))
    assert (found.line, found.code, found.proposed) == (6, "world-size", "1/1/64")
