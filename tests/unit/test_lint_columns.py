"""Columns named as people like, and rows that only the other rows can tell: as they should be, nothing is said."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at


@pytest.fixture
def lint(tmp_path: Path):
    def look(text: str, *, info: bool = False) -> list[Finding]:
        path = tmp_path / "notes.md"
        path.write_text(text, encoding="utf-8")
        return [finding for finding in look_at([str(path)])[0] if info or finding.level != "info"]

    return look


def table(text: str) -> str:
    """Headings, and a row on each line; two spaces part cells."""
    head, *rows = [[cell.strip() for cell in line.strip().split("  ") if cell] for line in text.strip().splitlines()]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in [head, ["---"] * len(head), *rows])


HYBRID = "Sequence 4096, H100 80GB.\n\n" + table("""
    GPUs  shard  repl  MBS  GBS  s/step  tok/s/GPU  peak
    32  32  1  1  128  2.06  7954  31.2 GiB
    32  8  4  1  128  2.03  8071  44.9 GiB
    64  64  1  1  256  2.09  7839  29.7 GiB
    64  8  8  1  256  2.05  7992  44.8 GiB
    128  8  16  1  512  2.08  7877  44.8 GiB
""")


def test_sharding_groups_and_their_replicas_are_the_data_ranks(lint):
    assert lint(HYBRID, info=True) == []
    found = lint(HYBRID.replace("| 8 | 8 |", "| 8 | 4 |"))
    assert [(f.line, f.code, f.level, f.column, f.proposed) for f in found] == [(8, "world-size", "error", "repl", "8")]
    found = lint(HYBRID.replace("| 64 | 64 | 1 |", "| 64 | 46 | 1 |"))
    assert [(f.line, f.code, f.column, f.proposed) for f in found] == [(7, "world-size", "shard", "64")]


def test_a_peak_whose_cells_have_a_unit_of_memory_is_memory(lint):
    found = lint(HYBRID.replace("29.7 GiB", "129.7 GiB"))
    assert [(f.line, f.code, f.column, f.printed) for f in found] == [(7, "memory-over-capacity", "peak", "129.7 GiB")]


LONGER = "13B on 64 H100, TP 8, MBS 1.\n\n" + table("""
    seq  CP  DP  GBS  step (s)  tokens/s  MFU (%)  mem (GiB)
    4096  1  8  512  8.08  259549  39.8  30.1
    8192  1  8  256  8.38  250257  40.2  33.0
    16384  1  8  128  9.07  231219  40.5  38.9
    32768  2  4  64  10.66  196731  40.2  41.3
    65536  4  2  32  13.88  151092  39.7  46.5
    131072  8  1  16  20.41  102751  39.0  55.2
""")


def test_mfu_follows_from_each_rows_own_sequence(lint):
    """FLOPs of a token are a + b x the sequence: here 1 for the weights and a tenth for each 8192."""
    assert lint(LONGER) == []
    for was, slip, line, proposed in (
        ("| 9.07 | 231219 |", "| 231219 | 9.07 |", 7, "9.07"),
        ("| 40.2 | 41.3 |", "| 41.3 | 40.2 |", 8, "40.2"),
        ("| 39.7 |", "| 59.7 |", 9, "39.7"),
        ("| 16384 |", "| 8192 |", 7, "16384"),
    ):
        found = lint(LONGER.replace(was, slip))
        assert [(f.line, f.level, f.proposed) for f in found] == [(line, "error", proposed)], slip


ZERO = "Sequenzlänge 2048, A100 40GB.\n\n" + table("""
    GPUs  Stufe  Mikrobatch  Akkumulation  Globaler Batch  s/Schritt  Speicher (GiB)
    64  2  4  2  512  5,17  20,6
    64  3  8  1  512  5,13  14,6
""")


def test_a_stage_of_zero_in_german_parts_rows(lint):
    assert lint(ZERO, info=True) == []
    assert [f.code for f in lint(ZERO.replace("| 64 | 3 |", "| 64 | 2 |"))] == ["memory-monotone"] * 2


def test_what_came_of_a_run_is_no_text_in_a_column_of_numbers(lint):
    text = HYBRID.replace("| 2.05 | 7992 |", "| hang in first p2p, killed after 20 min | |")
    assert lint(text) == []
    told = lint(HYBRID.replace("| 2.05 |", "| 2.05 when nobody looked |"), info=True)
    assert [(f.code, f.level) for f in told] == [("text-in-number", "info")]


def test_devices_that_the_text_counts_are_no_nodes_and_no_cell_to_change(lint):
    text = "Sequence 4096, TP 2 throughout, 64 GPUs.\n\n" + table("""
        PP  DP  GBS  step (s)  tok/s/GPU
        2  16  512  7.16  4577
        4  8  512  7.26  4514
        8  4  512  7.34  4464
        8  4  256  3.69  4440
    """)
    assert lint(text) == []
    (found,) = lint(text.replace("| 4 | 8 |", "| 4 | 16 |"))
    assert found.code == "world-size" and "128 processes but 64 GPUs" in found.message
    assert "None" not in found.message and "odes" not in found.message and found.proposed == "8"


PASTED = "Sequence 4096, A100 80GB.\n\n" + table("""
    GPUs  TP  PP  DP  GBS  s/it  TFLOPs/GPU  tokens/s
    32  2  2  8  256  7.11  152.1  147479
    32  4  2  4  256  6.90  156.8  151968
    64  2  2  16  512  7.19  150.4  291676
    64  4  2  8  512  7.14  151.5  293719
    128  2  2  32  512  3.74  144.6  560727
    128  4  2  16  512  3.69  146.6  568325
""")


def test_a_pasted_pair_explains_its_row_and_nothing_is_worked_out_besides(lint):
    assert lint(PASTED) == []
    (found,) = lint(PASTED.replace("| 3.69 | 146.6 | 568325 |", "| 7.14 | 151.5 | 293719 |"))
    assert (found.line, found.code, found.level, found.proposed) == (10, "pasted-pair", "warning", None)
    assert "line 8" in found.message


def test_two_figures_alike_are_not_pasted_where_a_third_differs_and_the_row_adds_up(lint):
    rows = [(32, 32, 5101, 365.8, 803.0), (32, 64, 10102, 369.4, 810.9), (64, 64, 5168, 361.1, 792.6),
            (64, 128, 10264, 363.6, 798.1), (128, 128, 5168, 361.0, 792.6), (128, 256, 10388, 359.3, 788.6)]  # fmt: skip
    note = "Llama 70B, sequence 4096.\n\n| GPUs | GBS | step (ms) | TFLOP/s/GPU | Tokens/s/GPU |\n|---|---|---|---|---|\n"
    assert lint(note + "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)) == []


LADDER = "Sequence 2048, global batch 1024, vocabulary 32000 (2.8B: 50432), A100 80GB.\n" \
    "SwiGLU FFN in all but the 2.8B (a plain GPT); all have as many KV heads as heads, except the 1.1B (4).\n\n" + table("""
    Model  Layers  Hidden  Heads  FFN  TP  DP  GPUs  s/iter  TFLOPs/GPU
    1.1B  22  2048  32  5632  1  128  128  0.74  162.7
    2.8B  32  2560  32  10240  1  128  128  1.85  158.1
    6.7B  32  4096  32  11008  2  64  128  4.47  157.0
    13B  40  5120  40  13824  4  32  128  8.93  150.7
    65B  80  8192  64  22016  4  32  128  47.11  141.3
""")


def test_what_a_sentence_excepts_a_size_from_is_not_held_against_it(lint):
    assert lint(LADDER) == []
    found = lint(LADDER.replace(" (a plain GPT)", "").replace("in all but the 2.8B", "in all of them"))
    assert [f.line for f in found] == [7]


def test_a_width_that_only_a_gated_feed_forward_gives_the_size_with_is_gated(lint):
    text = "# Scaling, 7B\n\n28 layers, hidden 3584, 28 heads, GQA 4, FFN 18944, vocab 152064, sequence 4096.\n\n" + table("""
        GPUs  GBS  s/step
        32  256  4.02
        64  256  2.05
    """)
    assert lint(text, info=True) == []
    assert {f.code for f in lint(text.replace("FFN 18944", "FFN 38944"), info=True)} == {"label-vs-params"}


RAMP = "Batch ramp at 32K tokens, 64 H100, CP 2.\n\n" + table("""
    GBS  GA  time/step (s)  mem (GiB)
    64  8  7.11  19.6
    128  16  14.31  19.5
    256  32  28.58  19.5
    512  64  57.03  19.5
""")


def test_a_series_of_times_alone_follows_the_batch(lint):
    for text in (RAMP, "\n".join(line.replace("| GA |", "| x |", 1) if "GA" in line else line for line in RAMP.split("\n"))):
        assert lint(text) == []
        (found,) = lint(text.replace("28.58", "14.31"))
        assert (found.line, found.code, found.column) == (7, "gbs-scaling-outlier", "time/step (s)")
        assert "line 6" in found.message and found.proposed is None
        assert lint(text.replace("28.58", "24.10")) == []  # a faster batch is no slip


def test_a_hidden_size_that_heads_and_label_deny_is_what_both_give(lint):
    text = "# 14B\n\n48 layers, hidden size 5120, 40 heads, 8 KV heads, FFN 13824, vocab 152064, sequence 4096.\n\n" + table("""
        GPUs  GBS  s/step
        32  512  13.53
        64  512  6.80
    """)
    assert lint(text) == []
    found = lint(text.replace("5120", "4096"))
    assert [(f.line, f.code, f.proposed) for f in found] == [(3, "heads-divisible", "5120")]  # of its line, not of every row


def test_heads_and_a_hidden_size_that_two_lines_say_are_of_two_models(lint):
    rows = table("""
        GPUs  GBS  s/step
        32  512  13.53
        64  512  6.80
    """)
    assert lint(f"13B: 40 layers, hidden 5120, 40 heads.\n\n{rows}\nNow 32 layers, hidden 4096.\n\n{rows}") == []


ANOTHER_MODEL = "# Runs\n\n--num-layers 48 --hidden-size 6144 --num-attention-heads 64 --seq-length 2048\n\n" + table("""
    GPUs  TP  PP  GBS  s/it
    8  8  1  4  0.9
""") + "\n### {title}\n\n96 layers, h=12288, 96 heads, vocab 51200, TP=8. TFLOPs of the hardware, by eq. 3.\n\n" + table("""
    recompute  GPUs  PP  DP  MBS  GBS  s/it  TFLOPs/GPU
    full  128  16  1  1  64  10.64  138.0
    full  128  16  1  1  64  10.41  141.0
    sel  128  16  1  1  64  8.57  128.6
    sel  128  8  2  1  96  12.25  134.9
    sel  256  8  4  1  192  12.44  132.8
    full  256  8  4  2  192  15.48  142.3
    sel  384  12  4  1  192  8.74  126.0
""")


@pytest.mark.parametrize("title", ["Bigger: 175B", "Bigger"])
def test_a_section_has_its_own_model_and_rows_that_recompute_count_more_flops(lint, title):
    text = ANOTHER_MODEL.replace("{title}", title)
    assert not lint(text)
    assert [(f.printed, f.proposed) for f in lint(text.replace("142.3", "124.3"))] == [("124.3", "142.3")]
    assert [(f.printed, f.proposed) for f in lint(text.replace("| 8.74 |", "| 7.84 |"))] == [("7.84", "8.74")]


IN_TOKENS = "Llama, 32 layers, hidden 4096, sequence length 4096.\n\n" + table("""
    nodes  GPUs  BATCH  s/step  tok/s/node  TFLOPs/GPU
    1  8  0.52M  25.10  20,888  120
    2  16  1.05M  25.50  20,560  118
    4  32  2.10M  25.90  20,243  116
    8  64  4.19M  26.20  20,011  115
""")


@pytest.mark.parametrize("heading", ["tokens per step", "tokens/iter", "Global batch (tokens)", "GlobalBatchSize (T)",
                                     "Token pro Schritt", "jetons/étape", "トークン/ステップ", "GBS (Mtok)"])  # fmt: skip
def test_a_batch_in_tokens_is_the_batch_and_the_rate_of_a_node_that_of_all(lint, heading):
    text = IN_TOKENS.replace("BATCH", heading)
    text = text.replace("M |", " |") if "Mtok" in heading else text
    unit = "" if "Mtok" in heading else "M"
    assert not lint(text)
    for was, now in (("2.10", "2.01"), ("1.05", "0.52"), ("25.90", "29.50"), ("20,243", "2,024")):
        (found,) = lint(text.replace(f" {was}", f" {now}"))
        right = {"20,243": "20240"}.get(was, was + (unit if was in ("2.10", "1.05") else ""))
        assert (found.proposed, found.level) == (right, "error"), found


def test_a_batch_in_tokens_without_a_sequence_or_beside_one_of_samples_is_left_as_it_is(lint):
    text = IN_TOKENS.replace("BATCH", "tokens/step")
    assert not lint(text.replace("sequence length 4096", ""))
    both = "".join(f"{line} {extra} |\n" for line, extra in zip(text.splitlines()[2:], ("GBS", "---", 128, 256, 512, 1024)))
    assert not lint("Sequence length 4096.\n\n" + both)
    assert lint("Sequence length 4096.\n\n" + both.replace("2.10M", "1.20M"))


TWICE = table("""
    nodes  GPUs  s/step  TFLOPs/node  TFLOPs/GPU  model TFLOPs/GPU
    1  4  20.1  408  102.0  76.5
    2  8  20.3  404  101.0  75.7
    4  16  20.7  396  99.1  74.3
    8  32  21.1  389  97.2  72.9
    16  64  22.4  366  91.6  68.7
    32  128  24.9  329  82.3  61.7
""")


@pytest.mark.parametrize(("was", "now"), [("396", "369"), ("99.1", "91.9"), ("389", "38.9"), ("68.7", "86.7")])
def test_a_figure_that_is_counted_in_two_ways_is_held_against_itself(lint, was, now):
    assert not lint(TWICE)
    found = [f for f in lint(TWICE.replace(f" {was} ", f" {now} ")) if f.printed == now]
    assert [f.proposed for f in found] == [was], found


OWN_UNITS = "24 layers, hidden 2048, sequence 2048.\n\n" + table("""
    who  gpus  gbs  step  flops
    jo  8  64  3792 ms  119 TFLOP/s/GPU
    ana  8  64  0.0604 min  124 TFLOP/s/GPU
    li  16  128  3.843 s  0.117 PFLOP/s/GPU
    li  32  256  3.90 s  0.116 PFLOP/s/GPU
    jo  32  256  3822 ms  118 TFLOP/s/GPU
""")


def test_cells_that_say_their_own_unit_are_read_under_any_heading(lint):
    assert not lint(OWN_UNITS)
    for was, now in (("0.116", "0.161"), ("119 ", "191 "), ("3822", "8322")):
        assert [f.proposed for f in lint(OWN_UNITS.replace(was, now))] == [was.strip()]


COARSE = table("""
    MBS  GPUs  s/it  TFLOPS/GPU  model TFLOPS/GPU
    1  64  20.1  137  103
    2  64  21.0  131  98
    2  128  21.3  129  97
    4  128  21.5  128  96
    4  256  21.8  126  94
    8  512  22.2  124  93
""")


def test_few_coarse_figures_counted_in_two_ways_are_held_against_each_other(lint):
    assert not lint(COARSE)
    assert [f.line for f in lint(COARSE.replace(" 97 ", " 79 "))] == [5]
    assert [f.line for f in lint(COARSE.replace(" 94 ", " 940 "))] == [7]


STATES = """# 8B, 8 x H100 80GB, seq 4096

| ZeRO | recompute | MBS | {heading} | peak (GiB) |
| --- | --- | --- | --- | --- |
| 1 | full | 1 | 56.1 | 63.7 |
| 1 | full | 2 | 56.1 | 68.6 |
| 2 | full | 1 | 29.9 | 37.5 |
| 2 | full | 2 | 29.9 | 42.4 |
| 2 | selective | 1 | {one} | 52.5 |
| 3 | full | 2 | 16.8 | 29.4 |
| 3 | full | 4 | 16.8 | 39.3 |
"""


@pytest.mark.parametrize("heading", ["states", "model states, GiB", "Zustände", "params+grads+opt"])
@pytest.mark.parametrize("typed", ["56.1", "299", "92.9"])
def test_what_follows_from_the_layout_is_the_same_in_all_rows_of_it(lint, heading: str, typed: str):
    assert lint(STATES.format(heading=heading, one="29.9")) == []
    (found,) = lint(STATES.format(heading=heading, one=typed))
    assert (found.line, found.level, found.column, found.proposed) == (9, "error", heading, "29.9")


def test_what_another_setting_changes_by_a_little_does_not_follow_from_the_layout(lint):
    assert lint(STATES.format(heading="cost", one="33.4")) == []


OVER_ABOVE = """32.8B on B200, sequence 4096. Speed-up over the bf16 row right above.

| precision | GPUs | GBS | step (s) | tokens/s | tflops/gpu | speed-up |
|---|---|---|---|---|---|---|
| bf16 | 8 | 32 | 3.888 | 33,712 | 829 | - |
| mxfp8 | 8 | 32 | 2.802 | 46,778 | 1151 | {one} |
| bf16 | 16 | 64 | 3.889 | 67,407 | 829 | - |
| mxfp8 | 16 | 64 | 2.803 | 93,523 | 1150 | 1.39x |
| bf16 | 32 | 128 | {time} | 145,553 | 895 | - |
| mxfp8 | 32 | 128 | 2.569 | 204,083 | 1255 | 1.40x |
| bf16 | 64 | 256 | 3.603 | 291,029 | 895 | - |
| mxfp8 | 64 | 256 | {last} | 405,803 | 1248 | 1.39x |
"""


def test_a_speed_up_over_the_row_above_is_told_beside_times_that_are_wrong(lint):
    assert lint(OVER_ABOVE.format(one="1.39x", time="3.602", last="2.584")) == []
    found = lint(OVER_ABOVE.format(one="1.93x", time="36.02", last="2.854"))
    assert [(f.line, f.column, f.proposed) for f in found] == [
        (6, "speed-up", "1.39"), (9, "step (s)", "3.602"), (12, "step (s)", "2.584")]


PAIR = """13B, 40 layers, hidden 5120, sequence 2048, batch 512, on 64 A100.

| TP | PP | MBS | time (ms) | samples/s | TFLOPs |
|---|---|---|---|---|---|
| 1 | 4 | 1 | 9149 | 55.96 | 147.3 |
| 2 | 2 | 1 | 8764 | 58.42 | 153.8 |
| 2 | 4 | 1 | 9115 | 56.17 | 147.8 |
| 4 | 2 | 4 | 8807 | 58.14 | 153.0 |
| 8 | 1 | 2 | {pair} | 120.9 |
| 8 | 1 | 4 | 10310 | 49.66 | 130.7 |
| 8 | 1 | 8 | 9822 | 52.13 | 137.2 |
"""


def test_two_figures_of_another_row_say_more_than_one_digit(lint):
    assert lint(PAIR.format(pair="11150 | 45.92")) == []
    (found,) = lint(PAIR.format(pair="8807 | 58.14"))
    assert (found.line, found.code, found.column) == (9, "pasted-pair", "time (ms)") and "line 8" in found.message


PRICES = table("""
    device  gpus  method  seq  micro-batch  accum  GBS  s/step  samples/s  tokens/s  examples  hours  gpu_hours  {price}  usd
    RTX 4090  1  QLoRA  1024  4  4  16  6.691  2.391  2449  52000  18.12  18.12  0.44  7.97
    RTX 4090  1  QLoRA  2048  2  8  16  13.056  1.226  2510  52000  35.36  35.36  0.44  15.56
    RTX 4090  2  LoRA  1024  1  16  32  7.043  4.543  4652  52000  9.54  19.08  0.44  8.39
    A100-80GB  1  QLoRA  2048  8  4  32  15.727  2.035  4167  52000  21.30  21.30  1.49  31.73
    A100-80GB  1  LoRA  2048  4  8  32  12.867  2.487  5093  52000  17.42  17.42  1.49  25.96
    A100-80GB  4  LoRA  2048  4  2  32  3.292  9.722  19910  52000  4.46  17.83  1.49  26.57
    A100-80GB  8  LoRA  4096  2  4  64  6.361  10.061  41209  110000  9.11  72.89  1.49  108.61
    H100  1  LoRA  2048  4  8  32  4.827  6.629  13576  52000  6.54  6.54  2.69  17.58
    H100  8  LoRA  4096  2  4  64  2.481  25.799  105675  110000  3.55  28.42  2.69  76.46
    H100  8  LoRA  4096  4  2  64  2.414  26.516  108610  110000  3.46  27.66  2.69  74.39
    H200  8  LoRA  8192  4  1  32  2.447  13.079  107142  110000  7.01  56.07  3.29  184.47
    L40S  4  LoRA  2048  2  4  32  3.697  8.656  17728  52000  5.01  20.02  0.86  17.22
""")


@pytest.mark.parametrize("price", ["usd_per_gpu_hour", "$/GPU-h", "price per hour (€)", "hourly price"])
def test_the_price_of_an_hour_is_of_a_list_and_follows_from_no_speed(lint, price: str):
    note = PRICES.replace("{price}", price)
    assert lint(note) == []
    (found,) = lint(note.replace("| 17.42 | 1.49 |", "| 17.42 | 1.94 |"))
    assert (found.line, found.column, found.proposed) == (7, price, "1.49")
    (found,) = lint(note.replace("| 0.44 | 8.39 |", "| 0.44 | 4.20 |"))  # not the price that the other rows have
    assert (found.line, found.column) == (5, "usd")


def test_what_no_row_of_a_later_table_keeps_to_is_not_its_rule(lint):
    first = table("""
        GPUs  GBS  s/step  tok/s/GPU
        64  256  4.10  3996
        128  256  2.13  3846
        256  512  2.20  3723
    """)
    longer = table("""
        CP  GPUs  GBS  s/step  tok/s/GPU
        2  128  256  4.52  3625
        4  128  128  4.96  3303
        8  128  64  5.70  2874
    """)
    text = f"# Llama 7B\n\nSequence length 4096.\n\n{first}\nLonger contexts, the same tokens a step:\n\n{longer}"
    assert [f for f in lint(text) if f.level == "error"] == []
    assert [f.line for f in lint(text.replace("3846", "8346")) if f.level == "error"] == [8]


def test_mb_beside_accumulation_is_the_micro_batch(lint):
    note = "Sequence 2048, global batch 256, 32 MI300X (192 GB).\n\n" + table("""
        try  tp/pp/dp  mb  acc  mem  ms/iter  samples/s
        1  1/1/32  1  8  61 GB  6400  40.0
        2  1/1/32  2  4  78 GB  6095  42.0
        3  2/1/16  1  16  52 GB  5818  44.0
        4  2/1/16  2  8  64 GB  5565  46.0
        5  4/1/8  2  16  43 GB  5333  48.0
    """)
    assert lint(note) == []
    (found,) = lint(note.replace("64 GB", "640 GB"))
    assert (found.line, found.code, found.column) == (8, "memory-over-capacity", "mem")


def test_a_slice_by_its_name_has_so_many_chips(lint):
    note = "Llama 3.2 shapes on v5e, sequence 4096.\n\n" + table("""
        slice  model  batch (seqs)  step s  MFU
        v5e-64  1B  128  1.07  35%
        v5e-128  1B  256  1.07  35%
        v5e-256  1B  512  1.08  35%
        v5e-128  3B  128  1.43  34%
        v5e-256  3B  256  1.45  34%
        2 × v5e-256  3B  512  1.52  32%
    """)
    assert lint(note) == []


def test_a_vocabulary_with_a_space_is_one_number(lint):
    card = "# Plover-7B\n\n| | |\n|---|---|\n| Layers | 32 |\n| Hidden | 4096 |\n| Vocabulary | 96 000 |\n"
    assert lint(card) == []


def test_a_planned_row_may_have_a_date(lint):
    note = table("""
        day  GPUs  GBS  step s  tok/s
        12 May  32  128  1.411  185,790
        13 May  64  256  1.390  377,185
        16 May  128  512  planned
    """).replace("planned |", "planned | |")
    assert lint(note) == []


def test_tokens_of_longer_sequences_are_not_those_of_a_larger_batch(lint):
    note = table("""
        Phase  GPUs  steps  batch × seq  tokens (B)  GPU hours
        stable  256  60,000  1024 × 4096  252  3,630
        restart  256  42,000  1024 × 4096  176  2,540
        larger  512  90,000  2048 × 4096  755  11,370
        long  512  12,000  512 × 16384  101  2,520
        decay  512  20,000  2048 × 4096  168  2,530
    """)
    assert lint(note) == []


def test_devices_counted_under_another_heading_deny_no_micro_batch(lint):
    note = "# Model\n\nSequences of 2048 tokens. The model was trained on 16 GPUs.\n\n## One node\n\n" \
           "Somebody lent us a box (FSDP, micro batch 16):\n\n" + table("""
        accum  tokens per step  tokens/s  step
        1  262,144  390,295  672 ms
        4  1,048,576  430,949  2433 ms
        4  1,048,576  476,732  2200 ms
        8  2,097,152  490,709  4274 ms
    """)
    assert [f for f in lint(note) if f.level == "error"] == []


def test_memory_with_a_digit_too_many_is_about_what_the_same_splits_need(lint):
    note = "Sequence 2048, global batch 256, 32 MI300X (192 GB).\n\n" + table("""
        try  tp/pp/dp  mb  acc  mem  ms/iter  samples/s
        1  2/1/16  1  16  62 GB  5818  44.0
        2  2/1/16  2  8  72 GB  5565  46.0
        3  4/1/8  2  16  42 GB  5333  48.0
        4  8/1/4  2  32  290 GB  5120  50.0
        5  8/1/4  4  16  36 GB  4923  52.0
    """)
    assert [(f.line, f.proposed) for f in lint(note)] == [(8, "29 GB")]


def test_a_time_in_another_unit_is_proposed_in_that_of_its_column(lint):
    note = "Sequence 2048.\n\n" + table("""
        machine  effective batch  step  samples/s
        1x A100  32  44992 ms  0.71
        1x A100  32  {}  0.74
        2x A100  32  22098 ms  1.45
        4x A100  64  22090 ms  2.90
        4x A100  64  21993 ms  2.91
    """)
    assert lint(note.format("43510 ms")) == []
    assert [f.proposed for f in lint(note.format("43.5 ms"))] == ["43500 ms"]


def test_the_name_of_a_slice_counts_cores(lint):
    note = "v5p (459 TFLOP/s, 95 GB), sequence 8192, one sequence per chip.\n\n" + table("""
        slice  chips  remat  tokens/step  s/step  tok/s
        v5p-64  32  full  0.26M  2.82  93k
        v5p-128  {}  full  0.52M  2.80  187k
        v5p-128  64  dots  0.52M  2.11  248k
        v5p-256  128  dots  1.05M  2.12  495k
    """)
    assert lint(note.format(64)) == []
    assert [(f.line, f.code, f.proposed) for f in lint(note.format(128))] == [(6, "world-size", "64")]


def test_parameters_to_their_digits_tell_the_width(lint):
    text = "# Runs\n\nMegatron, 48 layers, hidden {}, 64 heads, seq 2048, vocab 51200 (22.1B).\n"
    assert lint(text.format(6144)) == []
    assert [(f.printed, f.proposed) for f in lint(text.format(4096))] == [("4096", "6144")]


RENTED = """8192 tokens, 256 sequences a step, 8.03B parameters, 6N. Peaks: A100 312, H100 989, MI300X 1307, B200 2250.

| Machine | GPUs | $/GPU-h | Step, s | Tokens/s | per GPU | TFLOPS per GPU | MFU, % | $ per billion tokens |
|---|---|---|---|---|---|---|---|---|
| A100 80GB | 32 | 2.21 | 21.49 | 97,587 | 3,050 | 147 | 47.1 | 201 |
| H100 SXM | 16 | 3.29 | 16.04 | 130,745 | 8,172 | 394 | 39.8 | 112 |
| H100 SXM | 32 | 3.29 | 8.17 | 256,689 | 8,022 | 386 | 39.1 | 114 |
| H100 SXM, FP8 | 32 | 3.29 | 5.99 | 350,109 | 10,941 | 527 | 53.3 | 84 |
| MI300X | 32 | 3.45 | 7.74 | 270,950 | 8,467 | 408 | 31.2 | 113 |
| B200 | 16 | 6.75 | 8.04 | 260,840 | 16,302 | 785 | 34.9 | 115 |
"""


@pytest.mark.parametrize(("right", "wrong", "line"), [
    ("8,172", "16,343", 6),  # of all as if on half the devices, which most rows have alike
    ("| 31.2", "| 41.2", 9),  # over the peak of a device that has another price
    ("| 115", "| 12", 10),
])  # fmt: skip
def test_what_is_worked_out_from_devices_and_prices(lint, right: str, wrong: str, line: int):
    assert lint(RENTED) == []
    (found,) = lint(RENTED.replace(right, wrong))
    meant = float(right.strip("| ").replace(",", ""))
    assert found.line == line and abs(float(found.proposed) / meant - 1) < 0.003
