"""What lint does not say: habits of engines and authors that are no slips, and the levels of what it does say."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes import lint
from seatrial.notes.lint import Finding, look_at
from seatrial.notes.lint.sheet import Sheet

LAYOUT = "| GPUs | DP | TP | PP | MBS | GBS | Sec/it |\n|---|---|---|---|---|---|---|\n"


def told(tmp_path: Path, text: str) -> list[Finding]:
    path = tmp_path / "notes.md"
    path.write_text(text)
    return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]


@pytest.mark.parametrize(
    ("cells", "text", "levels"),
    [("6.61", "", []), ("", "", ["warning"]), ("", "We set --decoder-first-pipeline-num-layers.\n\n", [])],
    ids=["a row that ran", "a plan", "an engine that does it"],
)
def test_an_uneven_pipeline_is_a_doubt_at_most(tmp_path: Path, cells: str, text: str, levels: list[str]):
    found = told(tmp_path, f"NLAYERS=61\n\n{text}{LAYOUT}| 64 | 2 | 4 | 8 | 1 | 256 | {cells} |\n")
    assert [finding.level for finding in found] == levels


def test_memory_as_the_text_states_it_wins_over_the_preset(tmp_path: Path):
    table = "| TP | MBS | Sec/it | Mem (GiB) |\n|---|---|---|---|\n| 2 | 1 | 6.6 | 91.2 |\n| 4 | 1 | 7.0 | 61.0 |\n"
    assert [f.code for f in told(tmp_path, "Runs on H100.\n\n" + table)] == ["memory-over-capacity"]
    assert told(tmp_path, "Runs on H100 with 96 GB per GPU.\n\n" + table) == []


def test_milliseconds_are_seen_whatever_the_sequence(tmp_path: Path):
    head = "| Model | GPUs | Seq | GBS | Sec/it |\n|---|---|---|---|---|\n"
    rows = [(1024, 6.1), (1024, 6.2), (1024, 6.0), (2048, 12.3), (1048576, 6250.0)]
    text = "".join(f"| 7B | 64 | {seq} | 512 | {seconds} |\n" for seq, seconds in rows)
    assert told(tmp_path, head + text) == []
    found = told(tmp_path, head + text.replace("6.2 |", "6200 |"))
    assert [(f.line, f.code, f.proposed) for f in found] == [(4, "ms-not-s", "6.2")]


def test_swapped_twins_run_on_the_same_device(tmp_path: Path):
    head = "| GPUs | TP | PP | MBS | GBS | Sec/it | TFLOPs |\n|---|---|---|---|---|---|---|\n"
    row = "| 8 | 2 | 1 | 1 | 64 |"
    text = f"## A100\n\n{head}{row} 150.2 | 310.4 |\n\n## H100\n\n{head}{row} 310.4 | 150.2 |\n"
    assert [f for f in told(tmp_path, text) if f.code == "swap-twin"] == []


def test_context_parallelism_is_part_of_the_product(tmp_path: Path):
    head = "| GPUs | DP | TP | PP | CP | Sec/it |\n|---|---|---|---|---|---|\n"
    assert told(tmp_path, head + "| 64 | 2 | 4 | 2 | 4 | 6.5 |\n| 128 | 4 | 4 | 2 | 4 | 6.6 |\n") == []
    found = told(tmp_path, head + "| 64 | 2 | 4 | 2 | 4 | 6.5 |\n| 64 | 4 | 4 | 2 | 4 | 6.6 |\n")
    assert [(f.line, f.level, f.code) for f in found] == [(4, "error", "world-size")]


@pytest.mark.parametrize("label", ["8x7B", "30B-A3B"])
def test_experts_in_a_label_are_no_wrong_size(tmp_path: Path, label: str):
    head = "32 layers, hidden size 4096, vocab 32000.\n\n| Size | GPUs | Sec/it | TFLOPs |\n|---|---|---|---|\n"
    assert told(tmp_path, f"{head}| {label} | 64 | 6.5 | 401.2 |\n") == []


def test_layers_that_the_text_states_wrongly(tmp_path: Path):
    from seatrial import arith
    from seatrial.spec import Model

    model = Model(layers=60, hidden=10240, heads=80, vocab=51200, seq=2048)
    head = "# 76B\n\n48 layers, hidden 10240, vocab 51200, sequence 2048. Full recomputation.\n\n"
    head += "| GPUs | TP | PP | GBS | Sec/it | TFLOPs |\n|---|---|---|---|---|---|\n"
    for gpus, seconds in ((64, 84.15), (128, 43.02), (256, 21.77), (512, 11.16)):
        tflops = arith.tflops("sc21", model, samples=512, sec_per_it=seconds, processes=gpus, recompute="full", tp=8, pp=4)
        head += f"| {gpus} | 8 | 4 | 512 | {seconds} | {tflops:.1f} |\n"
    assert [(f.line, f.level, f.column, f.proposed) for f in told(tmp_path, head)] == [(3, "error", "layers", "60")]


def test_decimal_commas_and_dots_for_thousands(tmp_path: Path):
    head = "| GPUs | GBS | Sec/it | tokens/s |\n|---|---|---|---|\n"
    rows = [(8, "37,85", "27.705"), (16, "18,93", "55.393"), (32, "9,51", "110.261"), (64, "4,73", "22.1691")]
    found = told(tmp_path, "seq 2048\n\n" + head + "".join(f"| {g} | 512 | {s} | {t} |\n" for g, s, t in rows[:3]))
    assert found == []


CKPT = """1.3B, sequence length 2048, 8 A100.

| GPUs | MBS | GBS | s/iter | max mem (GiB) | remark |
|---|---|---|---|---|---|
| 8 | 4 | 256 | 3.886 | 25.8 | {} |
| 8 | 8 | 256 | 3.832 | 19.2 | {} |
"""


@pytest.mark.parametrize(("small", "large", "lines"), [("no ckpt", "ckpt", []), ("ckpt", "ckpt", [5, 6])])
def test_memory_falls_only_between_rows_alike_in_their_remarks(tmp_path: Path, small: str, large: str, lines: list[int]):
    found = told(tmp_path, CKPT.format(small, large))
    assert [(f.line, f.code) for f in found] == [(line, "memory-monotone") for line in lines]


@pytest.mark.parametrize(("one", "two"), [("是", "否"), ("あり", "なし"), ("да", "нет")])
def test_yes_and_no_of_recomputation_are_read_in_other_languages(tmp_path: Path, one: str, two: str):
    path = tmp_path / "notes.md"
    path.write_text(f"| GPUs | 重计算 | Sec/it |\n|---|---|---|\n| 8 | {one} | 6.6 |\n| 8 | {two} | 5.1 |\n")
    assert [row.record.recompute for row in look_at([str(path)])[1].rows] == ["full", "none"]


def test_memory_that_falls_in_two_places_is_a_setting_nobody_wrote_down(tmp_path: Path):
    head = "| GPUs | MBS | GBS | s/iter | mem (GiB) |\n|---|---|---|---|---|\n"
    rows = "| 8 | 1 | 64 | 5.73 | 8.1 |\n| 8 | 2 | 64 | 5.70 | 5.9 |\n"
    assert [f.code for f in told(tmp_path, head + rows)] == ["memory-monotone"] * 2
    assert told(tmp_path, head + rows + "| 16 | 1 | 64 | 2.90 | 8.0 |\n| 16 | 2 | 64 | 2.88 | 5.8 |\n") == []


LOSSES = """| loss | seq | mbs | step (ms) | tok/s | peak mem |
|---|---|---|---|---|---|
| eager | 4096 | 1 | 4966 | 6599 | 27.4 GiB |
| eager | 4096 | 2 | 4770 | 13740 | 35.7 GiB |
| {} | 4096 | 1 | 4643 | 7058 | 22.4 GiB |
| {} | 4096 | 2 | 4569 | 14343 | 23.9 GiB |
"""


def test_names_under_a_heading_of_figures_set_rows_apart(tmp_path: Path):
    assert told(tmp_path, "8 H100.\n\n" + LOSSES.format("fused", "fused")) == []
    assert "duplicate-config" in {f.code for f in told(tmp_path, "8 H100.\n\n" + LOSSES.format("eager", "eager"))}


TIED = """SwiGLU models.

| Config | layers | hidden | heads | kv heads | ffn | vocab | params |
|---|---|---|---|---|---|---|---|
| small | 22 | 2048 | 32 | 4 | 5632 | 32000 | 1.10B |
| tied | 28 | 3072 | 24 | 8 | 8192 | 128256 | {} |
| middle | 32 | 4096 | 32 | 8 | 14336 | 128256 | 8.03B |
| large | 80 | 8192 | 64 | 8 | 28672 | 128256 | 70.6B |
"""


def test_one_model_of_a_table_may_tie_its_embedding(tmp_path: Path):
    assert told(tmp_path, TIED.format("3.21B")) == []
    assert [(f.line, f.code) for f in told(tmp_path, TIED.format("2.31B"))] == [(6, "label-vs-params")]


EXPERTS = """- `8x7B`: 32 layers, hidden 4096, 8 experts top-2, expert FFN 14336, vocab 32000. {} total, 12.9B active.

| Model | layers | hidden | GPUs | s/step |
|---|---|---|---|---|
| other | 48 | 2048 | 64 | 4.2 |
"""


def test_a_sentence_on_experts_counts_the_shape_that_it_states(tmp_path: Path):
    assert told(tmp_path, EXPERTS.format("46.7B")) == []
    assert [f.code for f in told(tmp_path, EXPERTS.format("64.7B"))] == ["label-vs-params"]


def test_stages_that_pad_a_model_alike_in_every_row_add_up(tmp_path: Path):
    head = "NLAYERS=61\n\n| GPUs | TP | PP | layers per stage | Sec/it |\n|---|---|---|---|---|\n"
    assert told(tmp_path, head + "| 128 | 8 | 2 | 31, 31 | 4.0 |\n| 128 | 8 | 4 | 15, 16, 16, 15 | 4.1 |\n") == []
    found = told(tmp_path, head + "| 128 | 8 | 2 | 31, 31 | 4.0 |\n| 128 | 8 | 4 | 15, 16, 15, 15 | 4.1 |\n")
    assert [(f.line, f.code) for f in found] == [(5, "stages-sum")]


CHIPS = """Peak is 197 TFLOPS for v5e, 275 for v4 and 459 for v5p.

| chip | chips | batch | TFLOPS/chip | MFU |
|---|---|---|---|---|
| v5e | 64 | 128 | 89.0 | 45.2 |
| v5e | 128 | 256 | 86.2 | 43.8 |
| v4 | 32 | 256 | 154.9 | 56.3 |
| v4 | 64 | 512 | 151.1 | 54.9 |
| v5p | 32 | 256 | {} | 58.5 |
| v5p | 64 | 512 | 265.4 | 57.8 |
"""


def test_a_chip_is_held_against_its_own_peak(tmp_path: Path):
    assert told(tmp_path, CHIPS.format("268.3")) == []
    assert {f.line for f in told(tmp_path, CHIPS.format("2683"))} == {9}


FACTORS = """A64FX, one process a node, sequence 1024. 6.7B: 32 layers x 4096, 32 heads, vocab 51200.

TFLOPs by 72 B s l h² (1 + s/6h + V/16lh){}

| Nodes | DP | TP | PP | GBS | Sec/it | TFLOPs |
|---|---|---|---|---|---|---|
| 512 | 16 | 4 | 8 | 1024 | 94.2 | 0.89 |
| 1024 | 32 | 4 | 8 | 1024 | 53.0 | 0.79 |
| 1536 | 48 | 4 | 8 | 2304 | 100.1 | 0.85 |
| 2048 | 64 | 4 | 8 | 2048 | 52.4 | 0.80 |
| 4096 | 128 | 4 | 8 | 2048 | 30.7 | 0.68 |
"""


def test_a_row_that_counts_by_the_other_factor_of_the_text_is_no_slip(tmp_path: Path):
    assert told(tmp_path, FACTORS.format(", or 96 in place of 72 for the run with recomputation.")) == []
    assert {f.line for f in told(tmp_path, FACTORS.format("."))} == {9}


def test_days_of_fewer_tokens_are_those_that_the_text_names(tmp_path: Path):
    text = """8 A100, context 2048, batch 512. Trained on 300 B tokens{}.

| model | s/step | tok/s | days |
|---|---|---|---|
| 135m | 1.131 | 927,122 | 3.75 |
| 375m | 2.470 | 424,525 | 8.18 |
| 1b | 6.135 | 170,917 | 20.31 |
| 2b | 9.320 | 112,508 | 30.86 |
| 3b | 17.907 | 58,557 | 59.30 |
| 7b | 36.107 | 29,041 | 39.85 |
"""
    assert told(tmp_path, text.format(", except the 7B (100 B)")) == []
    assert [f.line for f in told(tmp_path, text.format(""))] == [10]


def test_a_range_of_times_is_its_middle_and_leaves_itself_open(tmp_path: Path):
    text = """seq 1024.

| GPUs | gbs | s/step | tokens/s | steps | hours |
|---|---|---|---|---|---|
| 2 | 64 | 1.89-1.97 | 33586 | 500 | 0.27 |
| 4 | 64 | 0.97-1.01 | 66434 | 500 | 0.14 |
| 8 | 128 | 0.98-1.02 | {} | 1000 | 0.28 |
| 16 | 256 | 0.96 ± 0.02 | 268316 | 1000 | 0.27 |
| 32 | 512 | 0.97-1.01 | 528818 | 2000 | 0.55 |
"""
    assert told(tmp_path, text.format("131457")) == []
    assert [row.record.sec_per_it for row in look_at([str(tmp_path / "notes.md")])[1].rows][:2] == [1.93, 0.99]
    found = told(tmp_path, text.format("16457"))
    assert [(f.line, f.column) for f in found] == [(7, "tokens/s")]


def test_a_nearer_sentence_speaks_for_the_rows(tmp_path: Path):
    head = "| GPUs | GBS | s/step | tok/s |\n|---|---|---|---|\n"
    rows = "| 8 | 16 | 8.51 | 3850 |\n| 8 | 32 | 15.38 | 4261 |\n| 16 | 32 | 8.90 | 7364 |\n| 16 | 64 | 15.83 | 8280 |\n"
    text = f"Sequences of 4096.\n\n{{}}\n\n{head}{rows}"
    assert told(tmp_path, text.format("Second week: LoRA, 2048 tokens.")) == []
    assert [(f.line, f.code) for f in told(tmp_path, text.format("Second week."))] == [(1, "header-vs-row")]


def test_a_failed_row_has_no_cells_to_move(tmp_path: Path):
    text = """7B, 2048 tokens, one card.

| weights | batch | grad acc | s/step | tok/s | util. | mem (GiB) |
|---|---|---|---|---|---|---|
| bf16 | 1 | 16 | 11.71 | 2799 | 45.7 % | 16.5 |
| bf16 | 2 | 8 | 11.34 | 2890 | 47.2 % | 17.4 |
| bf16 | 8 | 2 | - | - | - | OOM |
| nf4 | 1 | 16 | 14.85 | 2206 | 36.0 % | 7.4 |
"""
    assert told(tmp_path, text) == []


def test_steps_of_one_run_are_no_row_again(tmp_path: Path):
    head = "| GPUs | TP | GBS | s/it | TFLOPs | iteration |\n|---|---|---|---|---|---|\n"
    row = "| 512 | 4 | 1024 | 14.56 | 126.4 | {} |\n"
    assert told(tmp_path, head + row.format(50568) + row.format(55595)) == []
    assert [f.code for f in told(tmp_path, head + row.format(50568) + row.format(50568))] == ["repeat"]


def test_the_name_of_a_row_sets_it_apart_where_its_column_has_no_heading(tmp_path: Path):
    head = "| | bs | global | s/step | TFLOPs |\n|---|---|---|---|---|\n"
    rows = "| {} | 2 | 64 | 10.25 | 153 |\n| {} | 2 | 64 | 7.34 | 113 |\n"
    assert told(tmp_path, head + rows.format("full, AdamW", "LoRA r=64")) == []
    assert [f.code for f in told(tmp_path, head + rows.format("run 1", "run 2"))] == ["duplicate-config"] * 2


PER_NODE = """12 layers, hidden 768, 12 heads, seq 1024, vocab 50304. Two ranks per node.
TFLOPs are per rank, 72*B*s*l*h^2*(1 + s/(6h) + V/(12*l*h)) / time / ranks.

| nodes | ranks | GBS | sec/it | TFLOPs |
|---|---|---|---|---|
| 1 | 2 | 32 | 10.70 | 1.30 |
| 2 | 4 | 64 | 10.91 | 1.29 |
| 4 | 8 | 128 | 11.04 | 1.26 |

{}:

| nodes | DP | GBS | sec/it | {} |
|---|---|---|---|---|
| 1 | 4 | 32 | 43.2 | 0.65 |
| 4 | 16 | 128 | 43.4 | 0.64 |
| 16 | 64 | 512 | 44.3 | 0.63 |
| 64 | 256 | 1024 | 23.3 | 0.61 |
| 128 | 512 | 1024 | 12.3 | 0.58 |
"""


def test_what_a_heading_says_is_of_a_node_is_no_slip(tmp_path: Path):
    said = "1 rank per CMG = 4 ranks per node"
    assert told(tmp_path, PER_NODE.format(said, "TFLOPs/node")) == []
    found = told(tmp_path, PER_NODE.format(said, "TFLOPs/node").replace("0.63", "0.36"))
    assert [(f.line, f.proposed) for f in found] == [(16, "0.63")]


def test_a_batch_of_the_text_is_not_that_of_micro_batches_alone(tmp_path: Path):
    text = """A step has 64 sequences, 131,072 tokens, however they are shared. Sequence length 2048.

## Sequence length, one card, nothing accumulated

| seq | micro-batch | ms/step | tokens/s |
|---|---|---|---|
| 1024 | 8 | 726 | 11288 |
| 2048 | 4 | 742 | 11038 |
| 4096 | 2 | 783 | 10462 |
| 8192 | 1 | 868 | 9436 |
"""
    assert told(tmp_path, text) == []
    assert [f.line for f in told(tmp_path, text.replace("| 10462", "| 20462"))] == [9]


@pytest.mark.parametrize(("heading", "text"), [
    ("mfu (vs A100)", ""), ("MFU", "MFU is always against the A100's 312 TFLOPs, whatever the card.\n\n")])  # fmt: skip
def test_a_share_of_another_devices_peak_may_be_more_than_the_whole(tmp_path: Path, heading: str, text: str):
    head = f"{text}| GPU | n | ms/step | tok/s | {heading} |\n|---|---|---|---|---|\n"
    rows = "| A100 80GB SXM | 1 | 3,080 | 159,609 | 44.0 |\n| H100 SXM | 1 | 1,155 | 425,450 | 117.3 |\n"
    assert told(tmp_path, head + rows) == []
    assert [f.code for f in told(tmp_path, head + rows.replace("117.3", "417.3"))] == ["over-peak"]
    assert [f.code for f in told(tmp_path, (head + rows).replace(heading, "MFU").replace("always", "not"))] == ["over-peak"]


@pytest.mark.parametrize("text", ["A sample is a pair, 2 × 2048 tokens.", "A step is 16k tokens, whatever the block.",
                                  "Each step sees 16384 tokens."])  # fmt: skip
def test_tokens_of_a_step_or_of_a_pair_are_no_length_of_a_sequence(tmp_path: Path, text: str):
    head = "| pairs/GPU | accum | GBS | s/step | tok/s |\n|---|---|---|---|---|\n"
    rows = "| 1 | 8 | 64 | 10.29 | 25,476 |\n| 2 | 4 | 64 | 9.10 | 28,807 |\n| 4 | 2 | 64 | 8.61 | 30,447 |\n"
    assert told(tmp_path, f"{text}\n\n{head}{rows}") == []
    assert [row.seq for row in look_at([str(tmp_path / "notes.md")])[1].rows] == [None] * 3


def test_a_batch_written_as_a_product_is_a_setting(tmp_path: Path):
    head = "| batch | seqs/step | s/step | tok/s | mem (GiB) |\n|---|---|---|---|---|\n"
    rows = [("4 x 32", 128, 3.12, 41974, 10.8), ("8 x 16", 128, 3.05, 42906, 15.2), ("12 x 11", 132, 3.11, 43526, 19.5),
            ("12 x 16", 192, 4.48, 43914, 19.5)]  # fmt: skip
    assert told(tmp_path, head + "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)) == []


SCATTERED = """Sequence length 4096. MFU is against the data sheet; rates and times are of different windows.

| Accelerator | Chips | Global batch | Step (s) | tok/s | TFLOP/s/chip | MFU |
|---|---|---|---|---|---|---|
| A100 SXM | 16 | 128 | 8.79 | 59,870 | 174.2 | 56.0% |
| A100 SXM | 64 | 128 | 2.27 | 232,600 | 170.0 | 54.8% |
| H100 SXM | 16 | 128 | 3.35 | 157,800 | 459.5 | 46.6% |
| H100 SXM | 64 | 128 | 0.859 | 606,800 | 447.0 | 45.1% |
| TPU v5p | 16 | 128 | 5.51 | 95,270 | 278.1 | 60.9% |
| TPU v5p | 128 | 128 | 0.693 | 757,000 | 274.7 | 60.1% |
| TPU v6e | 16 | 128 | 3.64 | 144,200 | 419.2 | 45.8% |
| TPU v6e | 64 | 128 | 0.947 | 554,000 | 404.7 | 44.5% |
"""


def test_two_rows_that_agree_are_no_measure_in_a_table_that_scatters(tmp_path: Path):
    assert told(tmp_path, SCATTERED) == []
    assert [(f.line, f.column) for f in told(tmp_path, SCATTERED.replace("404.7", "440.7"))] == [(12, "TFLOP/s/chip")]


def test_models_that_a_column_of_another_name_tells_are_kept_apart(tmp_path: Path):
    text = """Sequence length 4096.

| Training | Cluster | GPUs | GBS | Time per step (s) | MFU |
|---|---|---|---|---|---|
| Llama 2 7B | A100 | 32 | 256 | 8.15 | 51.7% |
| Llama 2 13B | A100 | 64 | 512 | 16.11 | 50.6% |
| Mixtral 8x7B | A100 | 128 | 1024 | 21.86 | 37.1% |
| Llama 2 13B | A100 | 128 | 1024 | 16.56 | 49.4% |
"""
    assert told(tmp_path, text) == []


def test_one_model_larger_than_another_in_most_things_is_no_law(tmp_path: Path):
    text = "| | 7B | 13B | 70B |\n|---|---|---|---|\n| layers | 32 | 40 | 80 |\n| hidden | 4096 | 5120 | 8192 |\n" \
           "| heads | 32 | 40 | 64 |\n| kv heads | 32 | 40 | 8 |\n| ffn | 11008 | 13824 | 28672 |\n" \
           "| vocab | 32000 | 32000 | 32000 |\n"
    assert told(tmp_path, "# Model card\n\n" + text) == []


NODEWIDE = """# Training on MI300X (bf16 peak 1307 TFLOPS)

| Model | Nodes | {heading} |
|---|---|---|
| 7B | 1 | 4100 |
| 7B | 2 | 4058 |
| 7B | 4 | 4006 |
| 13B | 1 | 4236 |
| 13B | 2 | 4194 |
"""


@pytest.mark.parametrize("heading", ["TFLOPS/ノード", "TFLOPS je Knoten", "TFLOPS/узел", "TFLOPS (job)", "TFLOPS"])
def test_a_column_above_the_peak_throughout_is_of_more_than_one_device(tmp_path, heading):
    assert not told(tmp_path, NODEWIDE.format(heading=heading))


def test_tflops_above_the_peak_are_seen_of_a_node_and_of_few_rows_of_a_device(tmp_path):
    text = NODEWIDE.format(heading="TFLOPS/node")
    assert "over-peak" in {f.code for f in told(tmp_path, text.replace("4058", "40580"))}
    each = NODEWIDE.format(heading="TFLOPS/GPU").replace("4100", "512").replace("4058", "507").replace("4006", "501")
    assert [f.code for f in told(tmp_path, each)] == ["over-peak", "over-peak"]


def test_what_most_rows_of_a_table_are_off_by_is_no_error_of_each(tmp_path: Path):
    """The length of the sequences is left out, by which the rows differ; one slip among rows that agree is an error still."""
    head = "# 7B on 64 H100\n\nglobal batch 64, sequence length 4096\n\n| GPUs | run | s/step | tokens/s |\n|---|---|---|---|\n"
    lengths = (8192, 16384, 32768, 65536, 131072)
    path = tmp_path / "note.md"
    path.write_text(head + "".join(f"| 64 | r{n} | {1.7 * n:.2f} | {64 * length / (1.7 * n):.0f} |\n"
                                   for n, length in enumerate(lengths, 2)), encoding="utf-8")  # fmt: skip
    assert {f.level for f in look_at([str(path)])[0] if f.code == "rate-mismatch"} <= {"warning"}
    rows = [(64, 3.4 + n / 10) for n in range(5)]
    good = [f"| {gpus} | r{n} | {time:.2f} | {64 * 4096 / time:.0f} |\n" for n, (gpus, time) in enumerate(rows)]
    good[2] = good[2].replace("| 3.60 |", "| 3.06 |")
    path.write_text(head + "".join(good), encoding="utf-8")
    assert [(f.line, f.proposed) for f in look_at([str(path)])[0] if f.level == "error"] == [(9, "3.60")]


SOCKETS = """# 124M on old servers, sequence 1024

| box | sockets | mbs | ga | batch | s/step | tok/s | TFLOP/s |
|---|---|---|---|---|---|---|---|
| spr | 1 | 8 | 8 | 64 | 3.00 | 21853 | 16.26 |
| spr | 1 | 16 | 4 | 64 | 2.57 | 25547 | 19.01 |
| spr | 2 | 16 | 4 | 128 | 2.70 | 48632 | 36.18 |
| spr | 1 | 32 | 2 | 64 | 2.81 | 23301 | 17.34 |
| spr | 2 | 32 | 2 | 128 | 3.02 | 43425 | 32.31 |
| mil | 1 | 8 | 8 | 64 | 19.18 | 3417 | 2.54 |
| mil | 2 | 8 | 8 | 128 | 20.50 | 6392 | 4.76 |
"""


def test_tflops_of_all_sockets_are_taken_as_such_and_a_slow_machine_has_its_time(tmp_path: Path):
    assert told(tmp_path, SOCKETS) == []
    assert [(f.line, f.proposed) for f in told(tmp_path, SOCKETS.replace("| 32.31 |", "| 23.31 |"))] == [(9, "32.31")]


HARDWARE = """# 30B on 256 GPUs, sequence 2048

| policy | micro-batch | s per step | tok/s per GPU | MFU (%) | HFU (%) |
|---|---|---|---|---|---|
| none | 1 | 23.67 | 692 | 43.3 | 43.3 |
| selective | 4 | 21.99 | 745 | 46.6 | 46.6 |
| selective | 2 | 22.30 | 735 | 46.0 | 46.0 |
| full | 8 | 26.35 | 622 | 38.9 | {hfu} |
"""


def test_the_recomputed_pass_is_more_of_the_hardware_and_no_slip(tmp_path: Path):
    assert told(tmp_path, HARDWARE.format(hfu="51.9")) == []
    assert [f.line for f in told(tmp_path, HARDWARE.format(hfu="91.5"))] == [8]


LADDER = """phase,params_b,tokens_b,gpu,n_gpu,mfu,gpu_hours,days,usd_gpuh,usd
a,0.18,4,A100,8,0.36,10.7,0.06,1.35,14.45
b,0.41,8,A100,8,0.39,44.9,0.23,1.35,60.62
c,0.83,17,A100,16,0.41,183.8,0.48,1.35,248.13
d,1.6,33,H100,32,0.43,355.9,0.46,2.40,854.16
e,3.3,66,H100,32,0.41,895.2,1.17,2.40,2148.48
f,28.4,2500,B200,512,0.38,138401.6,11.26,4.10,567446.56
g,28.4,40,B200,128,0.35,2404.2,0.78,4.10,9857.22
h,28.4,250,B200,512,0.38,13840.2,1.13,4.10,56744.82
"""


def test_a_price_of_an_hour_follows_from_no_speed(tmp_path: Path):
    (tmp_path / "plan.csv").write_text(LADDER)
    assert [one for one in look_at([str(tmp_path / "plan.csv")])[0] if one.level != "info"] == []


SCHEDULES = """# Schedules on 64 H800

22.0B model, 48 layers, sequence 8192, TP=8, PP=8, DP=1.

| schedule | v | micro batches | GBS | ideal ms | step ms | tokens/s | TFLOPs |
|---|---|---|---|---|---|---|---|
| GPipe | 1 | 8 | 8 | 308 | 578 | 113,482 | 234 |
| 1F1B | 1 | {batches} | 8 | 308 | 578 | 113,482 | 234 |
| 1F1B | 1 | 32 | 32 | 1232 | 1502 | 174,588 | 360 |
| interleaved | 2 | 8 | 8 | 308 | 443 | 148,020 | 305 |
| interleaved | 3 | 16 | 16 | 616 | 706 | 185,698 | 383 |
"""


def test_schedules_that_wait_as_long_as_each_other_take_as_long(tmp_path: Path):
    assert not [one for one in told(tmp_path, SCHEDULES.format(batches=8)) if one.code == "pasted-pair"]
    assert [one.code for one in told(tmp_path, SCHEDULES.format(batches=16))]


BOXES = """# Nothing but CPUs

124M GPT-2 shape, 12 layers, 768, sequence 1024. Flops per token 6 x 124e6.

| box | mbs | ga | batch | s/step | tok/s | TFLOP/s | days for 10B tok |
|---|---|---|---|---|---|---|---|
| spr1 | 8 | 8 | 64 | 3.00 | 21853 | 16.26 | 5.3 |
| spr1 | 16 | 4 | 64 | 2.57 | 25547 | 19.01 | 4.5 |
| spr1 | 32 | 2 | 64 | 2.48 | 26470 | 19.69 | 4.4 |
| spr8 | 16 | 4 | 64 | 2.81 | 23301 | 17.34 | 5.0 |
| mil | 8 | 8 | 64 | 19.18 | 3417 | 2.54 | 33.9 |
"""


def test_a_slow_time_that_the_tokens_tell_is_not_exchanged(tmp_path: Path):
    assert told(tmp_path, BOXES) == []
    exchanged = BOXES.replace("2.57 | 25547 | 19.01", "19.01 | 25547 | 2.57")
    (found,) = [one for one in told(tmp_path, exchanged) if one.level == "error"]
    assert found.line == 8


LENGTHS = """# Nachtraining

32 Schichten, Breite 4096, 32 Köpfe, 8 KV-Köpfe, FFN 14336, Vokabular 128256. TFLOP/s sind 6 x Parameter x Token je Sekunde.
Globale Batchgröße 256 Sequenzen zu 4096 Token.

| Knoten | GPUs | Mikrobatch | Akkumulation | Zeit/Schritt (s) | Token/s | TFLOP/s je GPU |
|---|---|---|---|---|---|---|
| 1 | 4 | 2 | 32 | 29,38 | 35.628 | 428 |
| 2 | 8 | 2 | 16 | 14,79 | 71.600 | 431 |
| 4 | 16 | 2 | 8 | 7,58 | 137.660 | 416 |
| 8 | 32 | 2 | 4 | 3,90 | 269.960 | 404 |
| 16 | 64 | 2 | 2 | 2,02 | 521.721 | 393 |

## Lange Sequenzen (4 Knoten, 16 GPUs)

| Recompute | Sequenz | Batch | Mikrobatch | Zeit/Schritt (s) | Token/s/GPU | TFLOP/s je GPU |
|---|---|---|---|---|---|---|
| kein | 4096 | 256 | 1 | 7,71 | 8.572 | 413 |
| kein | 4096 | 256 | 2 | 7,45 | 8.836 | 425 |
| selektiv | 4096 | 256 | 2 | 7,53 | 8.663 | 418 |
| voll | 4096 | 256 | 4 | 9,48 | 6.888 | 331 |
| voll | 4096 | 256 | 2 | 9,63 | 6.811 | 328 |
| voll | 16384 | 64 | 1 | 10,12 | 6.458 | {last} |
"""


def test_a_long_sequence_costs_what_the_others_do_where_attention_is_counted_in_none(tmp_path: Path):
    assert told(tmp_path, LENGTHS.format(last="310")) == []
    assert [f.line for f in told(tmp_path, LENGTHS.format(last="130"))] == [23]


CARDS = """# 22B on 8 GCDs a node

48 layers, 6144 wide, 48 heads, seq 2048, vocab 50304. Activations recomputed, TFLOPs with factor 96.

| GPUs | Nodes | TP | PP | DP | MBS | GBS | Sec/it | TFLOPs |
|---|---|---|---|---|---|---|---|---|
| 64 | 8 | 4 | 4 | 4 | 2 | 256 | 20.61 | 73.7 |
| 64 | 8 | 4 | 4 | 4 | 4 | 256 | 22.04 | {each} |
| 64 | 8 | 8 | 2 | 4 | 2 | 256 | 20.52 | 74.0 |
| 128 | 16 | 4 | 4 | 8 | 2 | 512 | 20.87 | 72.8 |
| 128 | 16 | 4 | 4 | 8 | 4 | 512 | {time} | 68.0 |
| 256 | 32 | 4 | 4 | 16 | 2 | 1024 | 20.96 | 72.5 |
| 512 | 64 | 4 | 4 | 32 | 4 | 2048 | 22.71 | 66.9 |
"""


def test_of_time_and_tflops_the_one_unlike_its_column_is_wrong_and_not_the_batch(tmp_path: Path):
    assert told(tmp_path, CARDS.format(each="68.9", time="22.34")) == []
    found = told(tmp_path, CARDS.format(each="137.8", time="43.22"))
    assert [(f.line, f.proposed) for f in found] == [(8, "68.9"), (11, "22.34")]


def test_a_rule_that_fails_costs_no_other_rules_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = "".join(f"| {8 * dp} | {dp} | 4 | 2 | 1 | 64 | {50 / dp:.2f} |\n" for dp in (1, 2, 4))
    text = f"{LAYOUT}{rows}| 64 | 4 | 4 | 2 | 1 | 64 | 9 |\n"
    before = told(tmp_path, text)
    assert "world-size" in {finding.code for finding in before}

    def fails(sheet: Sheet) -> list[Finding]:
        raise ZeroDivisionError("nobody thought of it")

    monkeypatch.setattr(lint, "RULES", (fails, *lint.RULES))
    failed, *others = sorted(told(tmp_path, text), key=lambda finding: finding.code != "rule-failed")
    assert others == before and failed.level == "warning"
    assert "ZeroDivisionError" in failed.message and "nobody thought of it" in failed.message


@pytest.mark.parametrize(("typed", "level"), [("71.2", "error"), ("31.9", "warning")])
def test_what_no_slip_of_the_hand_explains_is_a_doubt(tmp_path: Path, typed: str, level: str):
    head = "| GPUs | tokens/s | rent per hour |\n|---|---|---|\n"
    rows = [(8, 31072, 17.2), (16, 60411, 34.4), (32, 119203, 68.8), (64, 233417, 137.6), (8, 30894, 17.2)]
    text = head + "".join(f"| {n} | {rate} | {rent:.1f} |\n" for n, rate, rent in rows)
    assert told(tmp_path, text) == []
    found = told(tmp_path, text.replace("| 17.2 |", f"| {typed} |", 1))
    assert [(finding.line, finding.level) for finding in found] == [(3, level)]


def test_a_range_that_begins_at_nothing_is_no_figure(tmp_path: Path):
    assert told(tmp_path, "It took 0 to 31 s and 2 h, or 0to 31s h.\n\n0to 31s h\n") == []


def test_cells_exchanged_alike_in_several_rows_were_misread(tmp_path: Path):
    head = "| name | state | GPUs | GBS | Sec/it | TFLOPs |\n|---|---|---|---|---|---|\n"
    rows = "".join(f"| {n}b-8{n}c | done | {8 * n} | 64 | {20 / n:.2f} | {150 + n} |\n" for n in (1, 2, 4, 8))
    assert [f for f in told(tmp_path, head + rows) if f.code == "cells-shifted"] == []


def test_parameters_that_a_model_was_published_with_are_right(tmp_path: Path):
    text = "Qwen2.5-7B: 28 layers, hidden size 3584, {} B parameters.\n\n| GPUs | Sec/it |\n|---|---|\n| 8 | 4.1 |\n"
    assert told(tmp_path, text.format("7.62")) == []
    assert {f.code for f in told(tmp_path, text.format("76.2"))} == {"label-vs-params"}


def test_a_batch_for_each_size_of_a_job_is_none_of_a_table(tmp_path: Path):
    head = "The global batch is 64 on one node and 256 on four.\n\n| GPUs | MBS | DP | step (s) |\n|---|---|---|---|\n"
    assert told(tmp_path, head + "| 32 | 4 | 32 | 10.78 |\n| 32 | 1 | 32 | 9.26 |\n") == []


def test_a_length_that_only_the_rate_tells_is_no_slip_of_the_unit(tmp_path: Path):
    head = "8B, 32 layers, hidden 4096.\n\n| GPUs | DP | accum | s/step | tok/s/GPU | TFLOPs |\n|---|---|---|---|---|---|\n"
    rows = [(4, 8, 26.1, 380), (4, 8, 25.8, 384), (2, 16, 28.1, 353), (4, 8, 27.7, 357)]
    text = head + "".join(f"| 64 | {dp} | {ga} | {s} | {32 * 131072 / s / 64:.0f} | {t} |\n" for dp, ga, s, t in rows)
    assert [f for f in told(tmp_path, text) if f.code == "ms-not-s"] == []
