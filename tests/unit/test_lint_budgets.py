"""Tables of budgets, plans, grants and comparisons: what follows from what in them, and what their totals are."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes.lint import look_at
from seatrial.notes.read import import_file

GRANT = "H100 at 2.10 EUR an hour (8 in a node, but 2 or 4 can be had), A100 80G at 1.20 EUR.\n\n" + table("""
    job  GPU  #  tokens/s  wall h  tokens  GPU-h  EUR
    60M a  A100  2  800k  6.2  17.9B  12.4  14.88
    60M b  A100  2  811k  7.1  20.7B  14.2  17.04
    160M a  A100  4  652k  21.4  50.2B  85.6  102.72
    160M b  A100  4  640k  30.3  69.8B  121.2  145.44
    400M a  H100  8  1312k  30.6  144.5B  244.8  514.08
    400M b  H100  8  1297k  47.2  220.4B  377.6  792.96
    1B a  H100  8  510k  96.0  176.3B  768.0  1612.80
    1B b  H100  16  995k  118.5  424.5B  1896.0  3981.60
""")
ENGINES = "8x H100, sequence 4096.\n\n" + table("""
    Model  GPUs  GBS  Ours (s/step)  Theirs (s/step)  Ours tokens/s  Theirs tokens/s  ratio
    7B  8  128  5.879  6.682  89180  78463  1.14x
    7B  32  512  5.864  6.867  357631  305396  1.17x
    7B  64  512  2.998  3.686  699517  568952  1.23x
    22B  32  256  9.369  10.366  111920  101155  1.11x
    22B  64  512  9.376  10.772  223672  194686  1.15x
    22B  128  512  4.919  5.995  426332  349817  1.22x
""")
TO_TRAIN = "minutes = samples / samples per second / 60. TP 4, PP 8, GBS 2048, sequence 2048.\n\n" + table("""
    GPUs  DP  Step (s)  Samples/s  Minutes  Speed-up
    512  16  12.448  164.5  133.3  1.00
    1024  32  6.323  323.9  67.7  1.97
    2048  64  3.472  589.8  37.2  3.59
    4096  128  2.004  1021.7  21.5  6.21
""")
PLAN = "H100 at $2.50 per GPU-hour, 2 T tokens, sequence 4096.\n\n" + table("""
    Model  GPUs  GBS  step (s)  tokens/s  days  GPU-hours  cost
    8B  64  512  3.87  541,665  42.7  65,641  $164,103
    8B  128  512  1.97  1,062,852  21.8  66,906  $167,265
    8B  256  1024  2.06  2,032,728  11.4  69,966  $174,915
    32B  256  1024  7.73  542,449  42.7  262,186  $655,465
    32B  512  1024  4.00  1,048,968  22.1  271,166  $677,915
    70B  512  1024  8.43  497,450  46.5  571,805  $1,429,513
""")
RUSSIAN = "Модель 6,7B, последовательность 2048, глобальный батч 512.\n\n" + table("""
    GPU  Время шага, с  Токенов/с  Эффективность, %
    16  68.96  15206  100.0
    32  35.47  29562  97.2
    64  18.66  56187  92.4
    256  5.45  192413  79.1
""")
DAYS = "TFLOPs = 6 x parameters x tokens/s (8.03 B, 70.55 B; 7.24 B for Mistral). Days are for 1 T tokens.\n\n" + table("""
    Model  GPUs  Tokens/s/GPU  Days
    8B  64  8374  21.6
    8B  128  8210  11.0
    7B  64  10131  17.9
    7B  128  9898  9.1
    70B  128  1048  86.3
    70B  256  963  46.9
""")
TOTAL = GRANT + "| **total** |  |  |  |  |  | 3519.8 | 7181.52 |\n"
SUMMED = GRANT + "\nAltogether 3,520 GPU-h (sum of the column) for all models.\n"
PASTED = "TPU, 4096 tokens, MFU of 197.\n\n" + table("""
    chips  batch  s/step  tok/s  tok/s/chip  MFU %
    16  256  7.820  134.1k  8381  43.7
    16  512  14.924  140.5k  8782  45.8
    64  1024  8.120  516.5k  8070  42.1
    64  2048  15.396  544.9k  8514  44.4
    32  512  7.698  272.4k  8513  44.4
    32  1024  15.200  275.9k  8622  45.0
""")
MEMORY = "# FSDP2 on 8xH100 SXM\n\nSequence 8192.\n\n" + table("""
    GPUs  MBS  ms/step  tok/s/GPU  GiB
    8  2  2441  6712  66.5
    16  2  2516  6512  51.7
    32  2  2562  6395  44.6
    8  1  1304  6282  53.9
""")
SMALL = "Sequence 512, tok/s of all cards.\n\n" + table("""
    cards  bs  GA  s/it  tok/s
    1  1  4  0.86  2381
    1  4  4  3.00  2731
    1  8  2  2.98  2749
    2  4  4  3.10  5285
    2  8  4  6.31  5193
""")


@pytest.mark.parametrize("note", [GRANT, ENGINES, TO_TRAIN, PLAN, RUSSIAN, DAYS, TOTAL, SUMMED, PASTED, MEMORY, SMALL])
def test_nothing_is_said_of_what_is_right(lint, note: str):
    assert not lint(note)


@pytest.mark.parametrize(("note", "was", "typed", "proposed"), [
    (GRANT, "| 50.2B", "| 502B", "50.2"),
    (GRANT, "| 1312k", "| 164k", "1312"),
    (GRANT, "| 16 |", "| 8 |", "16"),
    (ENGINES, "1.17x", "0.85x", "1.17"),
    (ENGINES, "111920", "1119203", "111920"),
    (ENGINES, "9.376 | 10.772", "10.772 | 9.376", "9.376"),
    (ENGINES, "3.686", "6.867", "3.686"),
    (TO_TRAIN, "| 21.5", "| 215", "21.5"),
    (PLAN, "| 21.8", "| 42.7", "21.8"),
    (RUSSIAN, "97.2", "72.9", "97.2"),
    (DAYS, "86.3", "8.63", "86.3"),
    (TOTAL, "7181.52", "8181.52", "7181.52"),
    (SUMMED, "3,520", "4,851", "3,520"),
    (PASTED, "516.5k | 8070", "140.5k | 8782", "516.5"),
    (MEMORY, "51.7", "517", "51.7"),
])  # fmt: skip
def test_a_slip_is_named_with_what_stood_there(lint, note: str, was: str, typed: str, proposed: str):
    assert note.count(was) == 1
    found = lint(note.replace(was, typed))
    line = note[: note.index(was)].count("\n") + 1
    assert found and {finding.line for finding in found} == {line}
    assert any(str(finding.proposed).rstrip("kBx").startswith(proposed) for finding in found), found


def test_what_the_text_excepts_holds_for_all_rows_of_the_name(lint):
    note = DAYS.replace("1 T tokens.", "1 T tokens, except the 7B (100 B).")
    shorter = note.replace("| 17.9 |", "| 1.79 |").replace("| 9.1 |", "| 0.91 |")
    assert not lint(shorter)
    assert {finding.line for finding in lint(note.replace("| 17.9 |", "| 1.79 |"))} == {7}


def test_a_batch_beside_its_accumulation_is_that_of_a_device(tmp_path: Path):
    path = tmp_path / "notes.md"
    path.write_text(SMALL, encoding="utf-8")
    records = import_file(str(path)).records
    assert [(record.mbs, record.gbs) for record in records] == [(1, None), (4, None), (8, None), (4, None), (8, None)]


def test_a_total_that_may_be_of_more_than_the_rows_is_not_told(lint):
    assert not lint(GRANT + "\nAltogether 4,851 GPU-h with the evaluations.\n")


CARD = "28 layers, d 2048, 16 heads with 8 kv heads, SwiGLU 6144, vocab 49152, tied. That makes 1.51B parameters.\n"
EXPERTS = "16 layers, 2048, 16 heads, 64 experts x 1024, top-8, vocab 50304. 1.28B active / 6.9B total. Sequence 4096.\n"
WIDE = ("32 layers, d_model 4096, 32 heads / 8 kv, expert d_ff 14336, 8 experts top-2, vocab 32000. Total 46.7B parameters, "
        "12.9B active.\n")
PADDED = "# LoRA, sequences padded to 512\n\n" + table("""
    Model  Global batch  ms/step  Samples/s  Tokens/s
    7B  128  1697  75.4  38,619
    8B  128  1884  67.9  34,786
    13B  128  3215  39.8  20,384
""")
SEEDS = "8x H100, 512 sequences of 1024.\n\n" + table("""
    run  change  steps  step (ms)  tok/s
    1  baseline  9536  171.5  3.057M
    2  window  4450  146.4  3.581M
    3  new nightly  4450  145.0  3.616M
    4  same, 2nd seed  4450  145.0  3.616M
""")
SHARES = "H100 (989), sequence 4096, MFU by 6 N.\n\n" + table("""
    Model  GPUs  GBS  step (s)  tokens/s  MFU
    8B  64  512  3.87  541,665  41.2%
    8B  256  1024  2.06  2,032,728  38.7%
    32B  256  1024  7.73  542,449  42.1%
    32B  512  1024  4.00  1,048,968  40.7%
    70B  512  1024  8.43  497,450  41.6%
    70B  1024  1024  4.43  946,496  39.6%
""")


@pytest.mark.parametrize(("note", "was", "typed", "line", "proposed"), [
    (CARD, "1.51B", "2.15B", 1, "1.51B"),
    (CARD.replace("d 2048", "d=2048").replace("SwiGLU 6144", "FFN 6144"), "1.51B", "2.15B", 1, "1.51B"),
    (EXPERTS, "6.9B", "9.6B", 1, "6.9B"),
    (EXPERTS.replace("experts x 1024", "experts of 1024"), "6.9B", "9.6B", 1, "6.9B"),
    (WIDE, "46.7B", "56.7B", 1, "46.7B"),
    (WIDE.replace("expert d_ff", "intermediate size"), "46.7B", "64.7B", 1, "46.7B"),
    (PADDED, "padded to 512", "padded to 1024", 1, "512"),
    (PADDED.replace("padded to", "truncated at"), "at 512", "at 1024", 1, "512"),
    (SEEDS, "3.581M", "35.81M", 6, "3.581M"),
    (SHARES, "39.6%", "93.6%", 10, "39.6%"),
])  # fmt: skip
def test_what_a_card_or_a_heading_says_is_held_against_the_figures(lint, note: str, was: str, typed: str, line: int,
                                                                   proposed: str):  # fmt: skip
    assert not lint(note)
    found = lint(note.replace(was, typed))
    assert [(finding.line, finding.proposed) for finding in found] == [(line, proposed)]


def test_a_rate_that_is_mended_is_mended_for_the_shares_of_others(lint):
    found = lint(SHARES.replace("39.6%", "93.6%").replace("1,048,968", "104,897"))
    assert {finding.line for finding in found} == {8, 10}


@pytest.mark.parametrize(("sentence", "proposed"), [
    ("At the rate of the last row this is 5.5 days on 64 GPUs, or 8,390 GPU-hours.", None),
    ("At the rate of the last row this is 5.5 days on 64 GPUs, or 1,049 GPU-hours.", "8,392"),
    ("Training takes 12 days on 256 H100s (73,728 GPU hours).", None),
    ("Training takes 12 days on 256 H100s (7,373 GPU hours).", "73,728"),
    ("Das sind 10 Tage auf 32 GPUs, also 960 GPU-Stunden.", "7680"),
    ("We had 12 days on 256 GPUs and used 50,000 GPU hours of them.", None),
    ("5 days on 64 GPUs or 10 days on 32 GPUs: 960 GPU hours a node.", None),
])  # fmt: skip
def test_device_hours_of_a_sentence_are_its_days_by_its_devices(lint, sentence: str, proposed: str | None):
    found = lint(f"GPT, sequence 2048.\n\n| GPUs | GBS | s/it |\n|---|---|---|\n| 64 | 512 | 6.53 |\n\n{sentence}\n")
    assert [f.proposed for f in found] == ([proposed] if proposed else [])


PLANNED = table("""
    Project  GPUs  Days  GPU-hours  Cost (kUSD)
    Base 8B  512  10.0  122880  356.4
    Base 8B, second run  256  9.6  58982  324.4
    Base 70B  2048  32.4  1592525  4618.3
    Code 14B  256  10.7  65741  216.9
    Maths 32B  512  8.2  100762  332.5
""") + "\n{}\n"


@pytest.mark.parametrize("said", [
    'The "second run" is not in the sum. Total of the others: 1,881,908 GPU-hours, {} kUSD.',
    "In total 1,881,908 GPU-hours and {} kUSD, excluding Base 8B, second run.",
    "Insgesamt 1,881,908 GPU-hours und {} kUSD, ohne „second run“."])
def test_a_total_leaves_out_the_rows_that_its_sentence_says(lint, said: str):
    assert lint(PLANNED.format(said.format("5,524"))) == []
    found = lint(PLANNED.format(said.format("7,254")))
    assert [(f.line, f.printed, f.proposed) for f in found] == [(9, "7,254", "5,524")]


def test_a_total_of_all_rows_is_one_though_something_else_is_left_out(lint):
    assert lint(PLANNED.format("In total 1,940,890 GPU-hours and 5,849 kUSD, without restarts.")) == []


FAMILY = table("""
    model  A100s  days  {hours}  cost
    S  32  0.91  696  $1,253
    M  32  2.32  1,783  $3,209
    L  64  2.61  4,003  $7,205
    XL  64  3.68  5,646  $10,163
""") + "\n{said}\n"


@pytest.mark.parametrize("hours, said", [
    ("GPU-hours", "Together {} GPU-hours or $21,830."), ("A100 hours", "Overall {} A100-hours ($21.8k), evaluation on top."),
    ("A100 hours", "All models together took {} GPU hours, $0.0218 million."), ("GPU hours", "Samen {} GPU-hours, $21,830.")])
def test_a_total_is_one_by_other_words_and_in_hours_of_the_device(lint, hours: str, said: str):
    assert lint(FAMILY.format(hours=hours, said=said.format("12,128"))) == []
    found = lint(FAMILY.format(hours=hours, said=said.format("21,128")))
    assert [(f.line, f.printed, f.proposed) for f in found] == [(8, "21,128", "12,128")]


@pytest.mark.parametrize("said", [
    "Together with the failed runs 15,140 GPU hours.", "Overall we were granted 90,000 GPU hours, worth $162,000.",
    "Putting it together took 3 days and 700 GPU hours.", "Together 12,128 GPU hours or $0.02M."])
def test_hours_that_are_of_more_than_the_rows_are_no_total(lint, said: str):
    assert lint(FAMILY.format(hours="GPU hours", said=said)) == []


REQUEST = "GH200, 4 GPUs per node. Sequence length 4096, global batch 1024.\n\n" + table("""
    Run  Nodes  Tokens [B]  tokens/s  {time}  {spent}
    8B pre-training  16  100  493,492  56  {a}
    8B ablations  4  60  125,135  133  533
    70B pre-training  64  60  219,688  {b}  4,855
    70B tuning  16  4.5  58,378  21  343
""") + "| Sum |  |  |  |  | 6,632 |\n"


@pytest.mark.parametrize("time", ["Wall time [h]", "Run time (h)", "Walltime (hours)", "Training time (h)", "Hours"])
@pytest.mark.parametrize("spent", ["Node-hours", "node h", "Knotenstunden"])
def test_hours_are_those_of_a_run_and_node_hours_the_nodes_times_them(lint, time: str, spent: str):
    assert lint(REQUEST.format(time=time, spent=spent, a="901", b="76")) == []
    found = lint(REQUEST.format(time=time, spent=spent, a="3,602", b="7"))
    assert [(f.line, f.printed, f.proposed) for f in found] == [(5, "3,602", "900"), (7, "7", "76")]


@pytest.mark.parametrize("hours, printed, proposed", [
    (("901", "533", "4,855", "343"), None, None), (("3,604", "533", "4,855", "343"), "3,604", "901"),
    (("901", "533", "4,855", "3,430"), "3,430", "343"), (("901", "533", "8,455", "343"), "8,455", "4,855"),
    (("901", "533", "4,855", "1,234"), "6,632", "7,523")])
def test_a_total_that_one_row_alone_would_mend_is_right(lint, hours: tuple[str, ...], printed, proposed):
    rows = "".join(f"| {name} | {nodes} | {cell} |\n" for name, nodes, cell in zip("abcd", (16, 4, 64, 12), hours))
    found = lint(f"Four GPUs a node.\n\n| run | nodes | Node-hours |\n|---|---|---|\n{rows}| Sum | | 6,632 |\n")
    assert [(f.printed, f.proposed) for f in found] == ([(printed, proposed)] if printed else [])


RENTED = "One epoch is 2500 steps of 16 sequences. 4090 0.45 EUR/h, A100 80 GB 1.80 EUR/h.\n\n" + table("""
    What  GPU  s/it  hours  EUR  VRAM (GiB)
    7B, QLoRA  RTX 4090  6.50  4.51  2.03  10.0
    7B, r=64  RTX 4090  6.65  4.62  2.08  10.0
    7B, LoRA  A100 80GB  3.00  2.09  3.76  30.2
    13B, QLoRA  RTX 4090  13.56  9.42  4.24  11.1
    13B, QLoRA  A100 80GB  6.40  4.44  8.00  20.9
    13B, LoRA  A100 80GB  5.82  4.04  7.27  32.2
    8B, QLoRA  RTX 4090  7.91  5.49  2.47  8.8
    8B, LoRA  A100 80GB  3.65  2.53  {}  25.0
""")


def test_a_row_is_not_of_a_device_that_does_not_hold_it(lint):
    assert lint(RENTED.format("4.56")) == []
    assert [(f.printed, f.proposed) for f in lint(RENTED.format("1.14"))] == [("1.14", "4.56")]


STRONG = "Global batch 256 sequences of 4096 tokens.\n\n" + table("""
    GPUs  s/step  tokens/s  TFLOP/s per GPU  Speedup  Efficiency
    4  29.38  35,628  428  1.00  100 %
    8  14.79  71,600  431  1.99  99 %
    16  7.58  137,660  416  3.88  97 %
    32  3.90  269,960  404  7.53  94 %
    64  2.02  521,721  393  14.53  91 %
    128  1.15  908,805  340  25.45  {}
""")


def test_an_efficiency_is_of_the_figure_that_the_speed_up_is_of(lint):
    assert lint(STRONG.format("80 %")) == []
    assert [(f.printed, f.proposed) for f in lint(STRONG.format("40 %"))] == [("40 %", "80%")]


SLICES = "One micro-batch a step, 1.35 B parameters, bf16.\n\n" + table("""
    Slice  Chips  Batch  Seq.  Step (ms)  Seqs/s  Tokens/s/chip
    v4-8  4  64  1024  988  64.8  16,583
    v4-16  8  128  1024  986  129.8  16,613
    v4-32  16  256  1024  1000  256.1  16,388
    v4-32  16  128  {}  1011  126.6  16,201
    v4-64  32  512  1024  1019  502.5  16,080
    v5e-64  64  512  1024  761  672.4  10,758
    v5e-64  64  256  2048  782  327.3  10,474
""")
SERIES = "Llama, 16 GPUs.\n\n" + table("""
    Recompute  Sequence  Batch  Micro-batch  s/step  Tokens/s/GPU
    none  4096  256  1  7.71  8500
    none  4096  256  2  7.45  8797
    selective  4096  256  2  7.53  8703
    full  4096  256  4  9.48  6913
    full  {}  {}  2  9.63  6805
    full  16384  64  1  10.12  6476
""")


def test_the_name_of_a_slice_says_how_many_chips_it_has(lint):
    assert lint(SLICES.format(2048)) == []
    assert [(f.printed, f.proposed) for f in lint(SLICES.format(1024))] == [("1024", "2048")]


@pytest.mark.parametrize("seq, batch, wrong", [(8192, 128, []), (4096, 128, [("4096", "8192")]), (8192, 256, [("256", "128")])])
def test_a_count_that_breaks_a_series_that_doubles_is_the_one(lint, seq: int, batch: int, wrong: list[tuple[str, str]]):
    assert [(f.printed, f.proposed) for f in lint(SERIES.format(seq, batch))] == wrong


SOCKETS = "One rank a socket, sequence length 512, plain DDP.\n\n" + table("""
    Sockets  bs/socket  accum  global bs  s/update  tokens/s  TFLOPS/socket
    1  8  4  32  18.41  899  1.92
    2  8  {}  32  9.25  1791  1.91
    4  8  1  32  4.89  3380  1.80
    4  16  1  64  8.58  3763  2.02
    8  8  1  64  5.05  6457  1.72
    16  8  1  128  5.29  12427  1.66
""")


def test_a_socket_counts_as_a_device(lint):
    assert lint(SOCKETS.format(2)) == []
    assert [(f.printed, f.proposed) for f in lint(SOCKETS.format(4))] == [("4", "2")]


MILLIONS = "Sequence 4096.\n\n" + table("""
    GPUs  global batch  step (s)  tokens/s  tokens/s/GPU
    8  256  3.072  0.34M  42,667
    16  512  3.088  0.68M  42,446
    32  1024  3.172  {}  41,322
    32  1024  3.223  1.30M  40,668
    64  2048  3.282  2.56M  39,937
""")


def test_where_the_point_moved_the_digit_that_was_lost_is_solved(lint):
    assert lint(MILLIONS.format("1.32M")) == []
    assert [(f.printed, f.proposed) for f in lint(MILLIONS.format("0.13M"))] == [("0.13M", "1.32M")]


PRICED = "List prices per chip hour: v5e $1.10, v5p $4.40, v6e $2.50.\n\n" + table("""
    type  chips  hours  chip_hours  $
    v5e-64  64  90.4  5,786  6,364
    v5p-16  8  271.0  2,168  9,539
    v6e-32  32  43.2  1,382  3,456
""").replace("_", " ")


def test_each_device_costs_what_the_list_says(lint):
    assert lint(PRICED) == []
    assert [(f.line, f.printed, f.proposed) for f in lint(PRICED.replace("9,539", "2,385"))] == [(6, "2,385", "9,539")]


PEAKS = table("""
    GPU  peak_(TFLOPS,_dense_bf16)  tok/s/GPU  $/GPU-h
    A100_80GB  312  3,394  1.59
    H100_SXM  989  9,439  2.49
    H200  989  9,584  3.49
    B200  2,250  19,552  5.50
""").replace("_", " ")


def test_peaks_in_a_column_are_of_one_precision(lint):
    assert lint(PEAKS) == []
    assert [(f.line, f.printed, f.proposed) for f in lint(PEAKS.replace("2,250", "4,500"))] == [(6, "4,500", "2,250")]
    eight = PEAKS.replace("312", "624").replace("989", "1979").replace("2,250", "4,500").replace("bf16", "8 bits")
    assert lint(eight) == []


QUARTER = "La hora de GPU se factura a 0,90 €. El MFU medio fue 47,3 y antes 46,1.\n\n" + table("""
    quién  nota  GPU  horas  horas GPU  coste (€)
    proyecto A  1,5  32  120  3.840  3.456
    proyecto B  2,5  32  310  {}  8.928
    curso  1,4  4  16  64  58
    proyecto C  2,8  16  96  1.536  {}
    proyecto D  2,9  64  50  3.200  2.880
""")


def test_points_part_thousands_in_columns_of_any_name(lint):
    assert lint(QUARTER.format("9.920", "1.382")) == []
    assert [(f.printed, f.proposed) for f in lint(QUARTER.format("992", "1.382"))] == [("992", "9.920")]
    assert [(f.printed, f.proposed) for f in lint(QUARTER.format("9.920", "1.832"))] == [("1.832", "1.382")]


def test_a_total_below_the_rows_of_a_csv_file(tmp_path):
    from seatrial.notes.lint import look_at

    rows = "job,gpus,steps,sec_per_step,gpu_h,cost_usd\na,16,6000,9.96,265.6,478.08\nb,32,6000,5.02,267.73,481.92\n" \
           "c,32,12000,1.67,178.13,320.64\ntotal,,,,{},1280.64\n"
    path = tmp_path / "spent.csv"
    path.write_text(rows.format("711.46"), encoding="utf-8")
    assert [f for f in look_at([str(path)])[0] if f.level != "info"] == []
    path.write_text(rows.format("611.46"), encoding="utf-8")
    assert [(f.line, f.printed, f.proposed) for f in look_at([str(path)])[0] if f.level != "info"] == [(5, "611.46", "711.46")]


PHASES = "H100 of a cloud, at $2.40 per GPU hour.\n\n" + table("""
    phase  GPUs  steps  s/step  hours  GPU hours  cost ($)
    1a  512  50,000  1.22  17  8,704  20.9k
    1b  512  64,000  1.22  22  11,264  27.0k
    2a  1024  80,000  1.17  26  26,624  63.9k
    2c  1024  36,000  1.17  12  12,288  29.5k
    3  {}  9,000  2.53  6  6,144  14.7k
""") + "\nTotals: {} tokens in 65,024 GPU hours.\n"


def test_devices_that_both_sums_are_divided_by_may_be_what_is_wrong(lint):
    assert lint(PHASES.format("1024", "1,200B")) == []
    assert [(f.column, f.proposed) for f in lint(PHASES.format("512", "1,200B"))] == [("GPUs", "1024")]


def test_hours_under_days_in_chinese(lint):
    note = table("""
        方案  GPU 数  tokens  天  GPU 小时
        A  64  2T  23.6  36,250
        B  128  2T  {}  36,557
        C  128  4T  23.7  72,806
    """)
    assert lint(note.format("11.9")) == []
    assert [(f.printed, f.proposed) for f in lint(note.format("285.6"))] == [("285.6", "11.9")]


def test_a_beginning_and_an_end_that_were_exchanged(lint):
    note = table("""
        phase  begin  end  GPUs  GPU hours
        1a  03 Feb  04 Feb  512  8,704
        1b  04 Feb  05 Feb  512  11,264
        2a  05 Feb  06 Feb  1024  26,624
        2b  {}  1024  23,552
        2c  08 Feb  09 Feb  1024  12,288
    """)
    assert lint(note.format("07 Feb | 08 Feb")) == []
    assert [(f.column, f.printed, f.proposed) for f in lint(note.format("08 Feb | 07 Feb"))] == [("begin", "08 Feb", "07 Feb")]


NEEDS = """# Énergie des étapes

0,65 kW par GPU ; 52 g de CO2 par kWh.

| étape | tokens (Md) | GPU | heures GPU | jours | MWh | t CO2 |
|---|---|---|---|---|---|---|
| petit | 1200 | 64 | 5 751 | 3,7 | 3,74 | 0,194 |
| petit, recuit | 1300 | 64 | 6 212 | 4,0 | 4,04 | 0,210 |
| moyen | 2500 | 256 | 37 115 | 6,0 | 24,12 | 1,254 |
| moyen, recuit | 200 | 256 | {hours} | 0,5 | 1,94 | 0,101 |
| long | 40 | {gpus} | 1 229 | 0,8 | 0,80 | 0,042 |
| grand | 3200 | 512 | 149 004 | 12,1 | {energy} | 5,036 |
| grand, recuit | 300 | 512 | 14 034 | 1,1 | 9,12 | 0,474 |
| grand, long | 60 | 256 | 3 152 | 0,5 | 2,05 | 0,107 |
"""


def test_each_slip_of_a_table_of_whole_runs_is_told_by_definition_however_many(tmp_path: Path):
    path = tmp_path / "notes.md"
    path.write_text(NEEDS.format(hours="2 983", gpus="64", energy="96,85"))
    assert [f for f in look_at([str(path)])[0] if f.level != "info"] == []
    path.write_text(NEEDS.format(hours="9 283", gpus="256", energy="9,685"))
    found = [f for f in look_at([str(path)])[0] if f.level == "error"]
    assert [(f.printed, f.proposed) for f in found] == [("9 283", "2983"), ("256", "64"), ("9,685", "96.85")]


COMMAS = """# Energie

| Phase | GPU-h | kW/GPU | MWh | t CO2 |
|---|---|---|---|---|
| 1B | 1.610 | 0,68 | 1,09 | 0,34 |
| 3B | 5.676 | 0,68 | {energy} | 1,20 |
| 8B | 54.654 | 0,68 | 37,16 | 11,52 |
| 14B | 31.923 | 0,68 | 21,71 | 6,73 |
| Summe | {whole} | | 63,82 | 19,79 |
"""


def test_thousands_with_a_point_and_decimals_with_a_comma_are_read_in_tables_of_no_runs(tmp_path: Path):
    path = tmp_path / "notes.md"
    path.write_text(COMMAS.format(energy="3,86", whole="93.863"))
    assert [f for f in look_at([str(path)])[0] if f.level != "info"] == []
    path.write_text(COMMAS.format(energy="3.860", whole="62.376"))
    found = [f for f in look_at([str(path)])[0] if f.level == "error"]
    assert [(f.line, f.printed, f.proposed) for f in found] == [(6, "3.860", "3,86"), (9, "62.376", "93.863")]


LADDER = """phase,run,params_b,tokens_b,gpu,peak_tflops,n_gpu,mfu,gpu_hours,usd_gpuh,usd
ladder,s1,0.18,4,A100,312,8,0.36,10.7,1.35,14.45
ladder,s2,0.41,8,A100,312,8,0.39,44.9,1.35,60.62
ladder,s3,0.83,17,A100,312,16,0.41,183.8,1.35,248.13
ladder,s4,1.6,33,A100,312,32,0.43,655.9,1.35,885.47
ladder,s5,3.3,66,H100,989,32,0.41,895.2,2.40,2148.48
mix,a,1.6,50,H100,989,16,0.40,337.0,2.40,808.80
mix,b,1.6,100,H100,989,16,0.40,674.1,2.40,1617.84
mix,c,1.6,150,H100,989,16,0.40,1011.1,2.40,2426.64
main,m7,7.2,2000,H100,989,256,0.42,57778.4,2.40,138668.16
"""
APPLIED = """# Antrag

| Lauf | N [Mrd.] | D [Mrd.] | C [FLOP] | GPU-h |
|---|---|---|---|---|
| klein | 1,10 | 220 | 1,45·10^21 | 1.073 |
| klein, neu | 1,10 | 110 | 7,26·10^20 | 537 |
| normal | 3,20 | 400 | 7,68·10^21 | 5.676 |
| groß | 7,90 | 600 | 2,84·10^22 | 21.021 |
| groß, mehr | 7,90 | 900 | 4,27·10^22 | 31.531 |
| groß, lang | 7,90 | 60 | 2,84·10^21 | 2.102 |
"""


@pytest.mark.parametrize(("name", "text", "right", "wrong", "line", "proposed"), [
    ("plan.csv", LADDER, "s2,0.41", "s2,4.1", 3, "0.41"),
    ("plan.csv", LADDER, "c,1.6,150", "c,1.6,50", 9, "150"),
    ("plan.csv", LADDER, "16,0.41", "16,0.14", 4, "0.41"),
    ("antrag.md", APPLIED, "7,26·10^20", "7,26·10^21", 6, "7,26·10^20"),
    ("antrag.md", APPLIED, "2,84·10^22", "2,84·10^21", 8, "2,84·10^22"),
    ("antrag.md", APPLIED, "| 400 |", "| 4000 |", 7, "400"),
])  # fmt: skip
def test_parameters_tokens_and_the_peak_give_the_hours_of_a_run(tmp_path: Path, name, text, right, wrong, line, proposed):
    path = tmp_path / name
    path.write_text(text)
    assert [f for f in look_at([str(path)])[0] if f.level == "error"] == []
    path.write_text(text.replace(right, wrong))
    assert [(f.line, f.proposed) for f in look_at([str(path)])[0] if f.level == "error"] == [(line, proposed)]


def test_the_peak_of_another_device_is_a_doubt(tmp_path: Path):
    path = tmp_path / "plan.csv"
    path.write_text(LADDER.replace("3.3,66,H100,989", "3.3,66,H100,312"))
    found = [f for f in look_at([str(path)])[0] if f.level != "info"]
    assert [(f.line, f.level, f.proposed) for f in found] == [(6, "warning", "989")]


def test_runs_at_shares_of_their_own_are_no_slips_of_each_other(tmp_path: Path):
    path = tmp_path / "antrag.md"
    path.write_text(APPLIED.replace("5.676", "6.980").replace("2.102", "2.744"))
    assert not any("FLOPs of the run" in f.message for f in look_at([str(path)])[0])
    path.write_text(APPLIED.replace("5.676", "56.760"))
    assert [f.line for f in look_at([str(path)])[0] if f.level == "error"] == [7]
