"""Shapes against the sizes that labels, TFLOPs and sentences give them."""
from __future__ import annotations

import pytest

from lint_tables import table
from seatrial.notes import lint

SHAPE = "V100 32GB, eight cards a node. fp16, sequence 2048, vocab 50304, full checkpointing, TFLOPs counted with it.\n\n" \
    "## 2.7B\n\n32 layers, hidden size 2560, 32 heads.\n\n" + table("""
    GPUs  DP  TP  PP  MBS  GBS  s/it  TFLOPs
    8  4  2  1  4  512  65.72  47.05
    16  8  2  1  4  512  33.86  45.66
    32  16  2  1  4  512  17.19  44.98
    64  32  2  1  4  512  8.75  44.19
""")


def test_a_hidden_size_that_label_and_tflops_deny_is_said_at_its_line(lint):
    assert lint(SHAPE) == []
    found = lint(SHAPE.replace("hidden size 2560", "hidden size 5120"))
    assert [(f.line, f.level, f.column, f.proposed) for f in found] == [(5, "error", "hidden", "2560")]


LADDER = "32 A100 (80GB), seq 2048, GBS 512, vocab 50304, embeddings tied.\n\n" + table("""
    name  L  d  heads  params (M)  step (s)
    125M  12  768  12  124  0.335
    350M  24  1024  16  354  0.791
    760M  24  1536  16  757  1.436
    1.3B  24  2048  16  1311  2.204
    2.7B  32  2560  32  2646  4.149
""")


@pytest.mark.parametrize(("right", "wrong", "column", "proposed"), [
    ("| 16 | 354 |", "| 16 | 405 |", "params (M)", "356"), ("| 24 | 1536 |", "| 12 | 1536 |", "L", "24")])
def test_parameters_to_three_digits_are_those_of_the_shape(lint, right: str, wrong: str, column: str, proposed: str) -> None:
    assert not lint(LADDER)
    (found,) = lint(LADDER.replace(right, wrong))
    assert (found.code, found.column, found.proposed) == ("label-vs-params", column, proposed)


PEAK = "H20: 148 TFLOPS bf16, 96 GB.\n\n" + table("""
    GPUs  TP  DP  GBS  TFLOPS/GPU  mem (GiB)
    32  4  8  256  96.40  43.3
    32  8  4  256  99.31  33.0
    64  4  16  512  95.20  17.9
""")


@pytest.mark.parametrize(("right", "wrong", "code"), [
    ("99.31", "159.31", "over-peak"), ("43.3", "143.3", "memory-over-capacity")])
def test_what_the_text_says_of_a_device_that_is_no_preset(lint, right: str, wrong: str, code: str) -> None:
    assert not lint(PEAK)
    assert [f.code for f in lint(PEAK.replace(right, wrong))] == [code]


def test_a_count_without_the_embedding_or_a_name_in_two_rows_is_no_slip(lint) -> None:
    assert not [f for f in lint(LADDER.replace("| 16 | 354 |", "| 16 | 302 |")) if f.level == "error"]
    named = LADDER.replace("| 16 | 354 |", "| 16 | 405 |")
    row = next(line for line in named.splitlines() if "405" in line)
    assert not [f for f in lint(named + row.replace("0.791", "0.794") + "\n") if f.level == "error"]


CARD = """All models: RoPE, RMSNorm, SwiGLU, vocabulary 50304. The two small ones tie their embeddings.

| model | layers | hidden | heads | FFN | parameters |
| --- | ---: | ---: | ---: | ---: | ---: |
| 125M | 12 | 768 | 12 | 2048 | 124M |
| 360M | 24 | 1024 | 16 | 2816 | 360M |
| 1B | 16 | 2048 | 16 | 5632 | 1.03B |
| 1.5B | 24 | 2048 | 16 | 5632 | {second} |
| 3B | 32 | 2560 | 32 | 6912 | 2.80B |
| 7B | {layers} | 4096 | 32 | 11008 | 6.89B |
| 13B | 40 | 5120 | 40 | 13824 | 13.20B |
"""


def test_a_card_counts_embeddings_in_two_ways_and_is_held_to_both(lint):
    assert lint(CARD.format(second="1.44B", layers=32)) == []
    found = lint(CARD.format(second="1.04B", layers=23))
    assert [(f.line, f.level, f.column, f.proposed) for f in found] == [
        (8, "error", "parameters", "1.44B"), (10, "error", "layers", "32")]


ACROSS = """# Models

| | S | M | L | XL |
|---|---|---|---|---|
| layers | 12 | 24 | 32 | 40 |
| hidden | 768 | 1024 | {hidden} | 5120 |
| heads | 12 | 16 | 32 | 40 |
| FFN | 2048 | 2816 | 11008 | 13824 |
| vocabulary | 50304 | 50304 | 50304 | 50304 |
| parameters | 162M | 411M | 6.89B | {last} |
"""


def test_a_table_of_shapes_that_is_turned_round_is_held_to_its_counts(lint):
    assert lint(ACROSS.format(hidden=4096, last="13.20B")) == []
    found = lint(ACROSS.format(hidden=4096, last="31.20B"))
    assert [(f.line, f.column, f.proposed) for f in found] == [(10, "parameters", "13.20B")]
    found = lint(ACROSS.format(hidden=2048, last="13.20B"))
    assert [(f.line, f.column, f.proposed) for f in found] == [(6, "hidden", "4096")]


DENIED = """18 layers, d 2048, 8 heads, MLP 16384 (gated), vocabulary 256128. {}

| chips | batch (seqs) | step (s) | tokens/s | tokens/s/chip |
| ---: | ---: | ---: | ---: | ---: |
| 4 | 64 | 3.693 | 35,492 | 8,873 |
| 8 | 128 | 3.695 | 70,946 | 8,868 |
| 16 | 256 | 3.711 | 141,279 | 8,830 |
| 32 | 512 | 3.715 | 282,255 | 8,820 |
"""


@pytest.mark.parametrize("said", ["Sequence {}.", "Context length {}.", "seq {}"])
def test_a_width_that_is_what_the_sequence_should_be_excuses_nothing(lint, said: str):
    assert lint(DENIED.format(said.format(2048))) == []
    assert [(f.line, f.code, f.proposed) for f in lint(DENIED.format(said.format(4096)))] == [(1, "header-vs-row", "2048")]


GROUPED = """Llama: 7B (32 layers, hidden 4096, FFN 11008), 34B (48 layers, hidden 8192, 8 KV heads, FFN 22016). Sequence 4096.
TFLOPS are 6 N per token, vocabulary 32000.

| model | GPUs | TP | DP | batch | step (s) | tok/s/GPU | TFLOPS/GPU |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 7B | 8 | 1 | 8 | 64 | 9.80 | 3344 | 135.2 |
| 7B | 16 | 1 | 16 | 128 | 9.83 | 3333 | 134.8 |
| 7B | 32 | 1 | 32 | 256 | 10.30 | 3181 | 128.6 |
| 34B | 32 | 4 | 8 | 128 | 24.66 | 664 | {one} |
| 34B | 64 | 4 | 16 | 256 | 25.09 | 653 | 132.2 |
| 34B | 128 | {tp} | 512 | 26.03 | 629 | 127.4 |
"""


def test_heads_that_nobody_counts_are_128_wide_where_they_share_their_keys(lint):
    assert lint(GROUPED.format(one="134.5", tp="4 | 32")) == []
    (found,) = lint(GROUPED.format(one="314.5", tp="4 | 32"))
    assert (found.line, found.column, found.proposed) == (9, "TFLOPS/GPU", "134.5")


def test_heads_that_nobody_counts_need_not_divide(lint):
    wide = GROUPED.replace("hidden 8192", "hidden 7168").format(one="134.5", tp="16 | 8")  # 56 heads, if they are 128 wide
    assert not [f for f in lint(wide) if f.code == "heads-divisible"]


@pytest.mark.parametrize("said, right, wrong", [
    ("7B (32 layers, hidden 4096, FFN 11008, 6.74B), 13B (40 layers, hidden 5120, FFN 13824, {}B), "
     "34B (48 layers, hidden 8192, 8 KV heads, FFN 22016, 33.7B).", "13.02", "10.32"),
    ("Small (24 layers, d_model 2048, FFN 5632, {}B) and large (32 layers, d_model 4096, 8 KV heads, FFN 14336, 7.24B).",
     "1.44", "4.14"),
    ("- 7B (32 layers, hidden 4096, FFN 11008, 6.74B) and 13B (40 layers, hidden 5120, FFN 13824, {}B)", "13.02", "130.2")])
def test_of_models_side_by_side_each_is_held_to_its_own_shape(lint, said: str, right: str, wrong: str):
    assert lint(f"# Shapes\n\n{said.format(right)}\n") == []
    (found,) = lint(f"# Shapes\n\n{said.format(wrong)}\n")
    assert (found.line, found.printed, found.proposed) == (3, f"{wrong}B", f"{right}B")


def test_parameters_beside_the_name_of_another_model(lint):
    note = "A100, sequence 4096.\n\n" + table("""
        model  params  GPUs  GBS  s/step
        1B  1.24B  8  64  3.02
        3B  3.21B  8  64  7.11
        8B  8.03B  8  64  16.90
        13B  13.02B  8  64  29.40
        13B  13.02B  16  64  15.10
    """)
    assert lint(note) == []
    (found,) = lint(note.replace("13.02B | 8 |", "8.03B | 8 |"))
    assert (found.line, found.printed, found.proposed) == (8, "8.03B", "13.02B")


def test_attention_of_a_long_sequence_counts_half_where_it_is_causal(lint):
    note = "H100, TFLOPS per GPU with the causal mask.\n\n" + table("""
        Model  GPUs  GBS  Seq  Step_(s)  Tokens/s/GPU  TFLOPS/GPU
        Llama3-8B  8  128  8192  13.44  9,752  507
        Llama3-8B_(long)  64  32  65536  7.10  4,615  447
        Llama3-70B  64  128  8192  16.05  1,021  459
        Llama3-70B  128  256  8192  16.42  998  449
        Qwen2.5-32B  64  256  4096  7.30  2,244  449
    """).replace("_", " ")
    assert lint(note) == []


def test_two_digits_exchanged_among_models_that_hardly_differ_are_doubted(lint):
    note = "H100, TFLOPS per GPU.\n\n" + table("""
        Model  GPUs  GBS  Seq  Tokens/s/GPU  TFLOPS/GPU
        8B  8  128  4096  9,752  489
        13B  8  128  4096  5,810  470
        32B  64  128  4096  2,310  459
        70B  64  256  4096  1,049  453
        405B  512  256  4096  176  439
    """)
    assert lint(note) == []
    assert [(f.line, f.level, f.proposed) for f in lint(note.replace("| 439 |", "| 493 |"))] == [(9, "warning", "439")]


@pytest.mark.parametrize("said, right", [
    ("Falcon-40B mit 60 Schichten, hidden 8912, 128 Köpfe, Sequenzen von 2048.", "8192"),
    ("Both Pythia-6.9B (32 layers, hidden 4069, 32 heads) and OPT-30B (48 layers, hidden 7168, 56 heads) were run.", "4096"),
    ("Qwen3-30B-A3B: 48 layers, hidden 2048, 32 heads, 4 KV heads, 128 experts of which 18 are active.", "8"),
    ("Yi-34B: 60 layers, hidden 7168, 65 heads, 8 KV heads.", "56"), ("Llama 3 has a vocabulary of 182,256.", "128,256"),
    ("A deeper Qwen2.5-7B has 36 layers, hidden 3584, 28 heads.", None),
    ("GPT-2 medium with a vocabulary of 50304: 24 layers, hidden 1024, 16 heads.", None),
    ("Gemma-2-9B: 42 layers, hidden 3584, 16 heads, vocab 256000, 9.24B parameters.", None),
    ("Our GPT has 48 layers, hidden 6144, 48 heads, about as wide as GPT-NeoX-20B.", None),
])  # fmt: skip
def test_a_side_that_a_published_model_does_not_have_is_told(said: str, right: str | None) -> None:
    found = lint.lint([], [], prose={"n.md": f"# Notes\n\n{said}\n"})
    assert [one.proposed for one in found if one.level != "info"] == ([right] if right else [])


def test_a_row_of_shapes_is_held_against_the_model_that_it_names() -> None:
    rows = ["| model | layers | hidden | experts | top-k | total (B) | active (B) |", "|---|---|---|---|---|---|---|",
            "| Mixtral 8x7B | 32 | 4096 | 8 | 2 | 64.7 | 12.9 |", "| Mixtral 8x22B | 56 | 6144 | 8 | 2 | 140.6 | 39.1 |",
            "| Llama-2-13B | 48 | 5120 | - | - | - | - |"]  # fmt: skip
    found = lint.lint([], [], prose={"n.md": "\n".join(rows)})
    assert [(one.line, one.proposed) for one in found if one.level != "info"] == [(3, "46.7"), (5, "40")]


@pytest.mark.parametrize("params, right", [("2.92B", "40"), ("2.37B", None), ("2.92B trainable", None)])
def test_layers_are_told_by_parameters_that_another_paragraph_counts(params: str, right: str | None) -> None:
    shape = "The decoder: 32 layers, hidden size 2560, 20 heads of 128 with 4 for keys and values, SwiGLU 6912,\n" \
        "vocabulary 64000, tied."
    words = params if " " in params else f"{params} parameters"
    found = lint.lint([], [], prose={"n.md": f"# Tern\n\nIt has {words}, for 2.2T tokens.\n\n{shape}\n"})
    assert [one.proposed for one in found if one.level != "info"] == ([right] if right else [])
