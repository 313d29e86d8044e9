"""Counts, layouts, outcomes and sizes of models: planted and clean, wherever a note says them."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at
from seatrial.notes.lint.headings import kind_beside
from seatrial.notes.read.rows import laid_out
from seatrial.notes.read.sentences import read_sentence
from seatrial.tables.headings import read_heading

COMPOSED = """1 node with 8 H100, sequences of 2048 tokens.

| micro-bs/GPU | accumulate_grad_batches | sec/step | tokens/s |
|---|---|---|---|
| 1 | 16 | 6.50 | 40,330 |
| 2 | 8 | 6.10 | 42,974 |
| 4 | 4 | 5.90 | 44,431 |
| 8 | 2 | 5.80 | 45,197 |
| 8 | 4 | 11.5 | 45,590 |
"""
UNSAID = """Sequences of 2048.

| MBS | grad. acc. | GBS | s/it | tok/s |
|---|---|---|---|---|
| 1 | 32 | 256 | 4.448 | 117,871 |
| 2 | 16 | 256 | 3.840 | 136,533 |
| 4 | 8 | 256 | 3.445 | 152,188 |
| 8 | 8 | 512 | 6.602 | 158,827 |
| 8 | 16 | 1024 | 13.188 | 159,020 |
"""
WITHOUT_PP = """8 nodes x 8 B200.

| seq_len | CP | TP | DP | GBS | step (s) | tok/s/GPU |
|---|---|---|---|---|---|---|
| 8192 | 1 | 1 | 64 | 1024 | 8.952 | 14,642 |
| 32768 | 2 | 1 | 32 | 256 | 14.444 | 9,074 |
| 32768 | 1 | 2 | 32 | 256 | 14.934 | 8,777 |
| 65536 | 4 | 1 | 16 | 128 | 21.592 | 6,070 |
| 131072 | 8 | 1 | 8 | 64 | 36.723 | 3,569 |
"""
IN_ONE_CELL = """Layouts on 64 GPUs.

| layout | GBS | s/it | samples/s |
|---|---|---|---|
| dp8-tp8 | 256 | 5.10 | 50.2 |
| dp16-tp4 | 256 | 5.00 | 51.2 |
| dp32-tp2 | 256 | 4.90 | 52.2 |
| dp64-tp1 | 256 | 4.80 | 53.3 |
"""
RAN = """8 A100, sequence 2048.

| MBS | GBS | s/it | samples/s | mem GiB |
|---|---|---|---|---|
| 2 | 64 | 2.50 | 25.6 | 20.1 |
| 4 | 64 | 2.40 | 26.7 | 28.3 |
| 8 | 64 | 2.30 | 27.8 | 44.7 |
| 16 | 64 | - | - | OOM |
"""
IN_WORDS = """16 H100, sequence 4096, TP 1, PP 1.

| change | MBS | accum | GBS | s/iter | tok/s/GPU |
|---|---|---|---|---|---|
| stock | 2 | 8 | 256 | 11.33 | 5784 |
| tuned | 2 | 8 | 256 | 8.38 | 7821 |
| MBS 4 | 4 | 4 | 256 | 7.92 | 8275 |
| compiled | 2 | 8 | 256 | 7.71 | 8500 |
| batch x2 | 2 | 16 | 512 | 14.55 | 9009 |
"""
LATER = """Sequence length 4096, GBS 256.

| GPUs | s/it | tok/s |
|---|---|---|
| 16 | 8.00 | 131,072 |
| 32 | 4.00 | 262,144 |
| 64 | 2.00 | 524,288 |

Then LoRA on the same data, 2048 tokens.

| GPUs | s/it | tok/s |
|---|---|---|
| 16 | 4.00 | 131,072 |
| 32 | 2.00 | 262,144 |
| 64 | 1.00 | 524,288 |
"""
SIZES = """Model: 32 layers, hidden 4096, 32 heads, FFN 11008, vocab 32000, 6.74B parameters.

- layers: 16
- hidden size: 2048
- ffn: 8192, 32 heads, 8 KV heads
- vocab 128256, tied
- total params: 1.24B
"""
NAMES = """Llama-3-8B pruned to 16 layers, hidden 4096. GPT-3 175B scaled down: 12 layers, hidden 768.

Qwen3-4B: 36 layers, hidden 2560, 32 heads, 8 KV heads, head_dim 128, FFN 9728, vocab 151936, tied, 4.02B parameters.
Gemma-2 9B: 42 layers, hidden 3584, 16 heads of 256, 8 KV heads, mlp 14336, vocab 256000, 9.24B parameters.
"""


def said(folder: Path, text: str) -> list[Finding]:
    note = folder / "note.md"
    note.write_text(text, encoding="utf-8")
    return [finding for finding in look_at([str(note)])[0] if finding.level != "info"]


@pytest.mark.parametrize("text", [COMPOSED, UNSAID, WITHOUT_PP, IN_ONE_CELL, RAN, IN_WORDS, LATER, SIZES, NAMES])
def test_nothing_is_said_of_counts_and_sizes_that_agree(tmp_path: Path, text: str):
    assert said(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "right", "wrong", "proposed"),
    [
        (COMPOSED, "| 4 | 4 |", "| 4 | 8 |", "4"),
        (UNSAID, "| 4 | 8 | 256", "| 4 | 16 | 256", "8"),
        (UNSAID, "| 8 | 8 | 512", "| 8 | 8 | 256", "512"),
        (IN_ONE_CELL, "dp32-tp2", "dp32-tp4", "2"),
        (IN_WORDS, "| 4 | 4 | 256", "| 4 | 8 | 256", "4"),
        (IN_WORDS, "| 2 | 16 | 512", "| 2 | 16 | 256", "512"),
        (WITHOUT_PP, "| 131072 |", "| 13107 |", "131072"),
        (SIZES, "6.74B", "67.4B", "6.74B"),
        (SIZES, "1.24B", "2.14B", "1.24B"),
        (RAN, "44.7", "OOM", None),
    ],
)
def test_a_count_or_a_size_that_the_rest_denies_is_told(
    tmp_path: Path, text: str, right: str, wrong: str, proposed: str | None
):
    planted = text.replace(right, wrong)
    line = next(number for number, (a, b) in enumerate(zip(text.splitlines(), planted.splitlines()), 1) if a != b)
    assert [(finding.line, finding.proposed) for finding in said(tmp_path, planted)] == [(line, proposed)]


def test_axes_that_do_not_multiply_to_the_devices_of_the_text_are_told_without_a_column_of_stages(tmp_path: Path):
    found = said(tmp_path, WITHOUT_PP.replace("| 32768 | 1 | 2 |", "| 32768 | 2 | 2 |"))
    assert [(finding.line, finding.code) for finding in found] == [(7, "world-size")]


def test_a_sequence_in_a_heading_that_the_rows_deny_is_told_beside_a_hidden_size_of_that_number(tmp_path: Path):
    times = {16: 8.0, 32: 4.1, 64: 2.2, 128: 1.2}
    rows = "| GPUs | GBS | s/it | tok/s |\n|---|---|---|---|\n" + "".join(
        f"| {gpus} | 256 | {time} | {256 * 4096 / time:.0f} |\n" for gpus, time in times.items())
    found = said(tmp_path, f"## 7B (32 layers, hidden 4096), sequence 8192\n\n{rows}")
    assert [(finding.line, finding.code, finding.proposed) for finding in found] == [(1, "header-vs-row", "4096")]


@pytest.mark.parametrize(
    ("text", "gpus"),
    [("8 nodes x 8 B200 (180 GB)", 64), ("One node, 8x H100 80GB", 8), ("2 nodes, 16x MI300X 192 GB", 16),
     ("8 GPUs per node", None)],
)  # fmt: skip
def test_devices_of_all_nodes_are_counted(text: str, gpus: int | None):
    assert read_sentence(text).get("gpus") == gpus


@pytest.mark.parametrize(
    ("heading", "kind"),
    [("grad. acc.", "ga"), ("accumulate_grad_batches", "ga"), ("梯度累积", "ga"), ("num_micro_batches", "ga"),
     ("accuracy", ""), ("steps", ""), ("micro batch", "")],
)  # fmt: skip
def test_accumulation_is_known_by_its_words(heading: str, kind: str):
    assert kind_beside(heading) == kind


@pytest.mark.parametrize(
    ("heading", "field"),
    [("per-device bs", "mbs"), ("micro-bs/GPU", "mbs"), ("HPUs", "gpus"), ("秒/反復", "sec_per_it"), ("tokens/GPU", ""),
     ("Mem/node (GiB)", "mem_value")],
)  # fmt: skip
def test_batches_of_a_device_and_devices_are_known_by_their_words(heading: str, field: str):
    assert read_heading(heading).field == field


@pytest.mark.parametrize(
    ("cell", "layout"),
    [("dp8-tp2", {"dp": 8, "tp": 2}), ("TP2xPP4", {"tp": 2, "pp": 4}), ("d8t2p1", {"dp": 8, "tp": 2, "pp": 1}),
     ("DP 8 x TP 2", {"dp": 8, "tp": 2}), ("v2-t5", {}), ("tp2 is slow", {}), ("dp8-dp2", {})],
)  # fmt: skip
def test_a_cell_may_be_a_whole_layout(cell: str, layout: dict[str, int]):
    assert laid_out(cell) == layout


OF_TWO_SIZES = "\n\n| GPUs | s/it |\n|---|---|\n| 8 | 1.5 |\n| 16 | 0.8 |\n"


@pytest.mark.parametrize(("said", "right", "wrong"), [
    ("70B: 80 layers, hidden 8192, FFN 28672, 64 heads, 8 KV groups, vocab 128256, {} parameters", "70.6B", "80.6B"),
    ("Llama: 80 layers, d_model=8192, d_ff=28672, n_heads=64, n_kv_heads=8, vocab=128256. Parameters: {}.",
     "70.6 billion", "76.0 billion"),
    ("num_layers: 48\nhidden_size: 6144\nnum_heads: 64\nvocab: 51200\nparams: {}", "22.1B", "32.1B"),
    ("24 couches, une dimension cachée de 2048, 16 têtes, vocabulaire de 50304, soit {} de paramètres",
     "1,32 milliards", "2,32 milliards"),
    ("32 Schichten, hidden 4096, 32 Köpfe, Vokabular 32000, ffn 11008: {} Parameter", "6,74 Milliarden", "7,64 Milliarden"),
])  # fmt: skip
def test_parameters_of_a_text_are_those_of_its_shape_or_what_a_hand_meant(tmp_path, said, right, wrong):
    path = tmp_path / "n.md"
    found = {}
    for size in (right, wrong):
        path.write_text(said.format(size) + OF_TWO_SIZES, encoding="utf-8")
        found[size] = [(f.code, f.printed, f.proposed) for f in look_at([str(path)])[0] if f.level != "info"]
    assert found[right] == []
    assert found[wrong] == [("label-vs-params", wrong, right)]


@pytest.mark.parametrize("said", [
    "32 layers, d_model 4096, 8 experts top-2, expert d_ff 14336, vocab 32000. Total {} parameters, 12.9B active.",
    "- 32 layers, hidden 4096, 8 experts top-2, expert ffn 14336, vocab 32000\n- parameters: {} total, 12.9B active",
    "32 layers, hidden 4096, vocab 32000, 8 experts of width 14336, 2 active per token: {} parameters, 12.9 billion active.",
    "Модель: {} параметров всего, 12,9 млрд активных (8 экспертов, top-2, 32 слоя, hidden 4096, FFN 14336, словарь 32000).",
])  # fmt: skip
def test_parameters_of_a_mixture_are_those_of_its_experts(tmp_path, said):
    path, found = tmp_path / "n.md", []
    for size in ("46,7 млрд", "56,7 млрд") if "млрд" in said else ("46.7B", "56.7B"):
        path.write_text(said.format(size) + OF_TWO_SIZES, encoding="utf-8")
        found.append([(f.printed, f.proposed) for f in look_at([str(path)])[0] if f.level != "info"])
    assert found == [[], [("56.7B", "46.7B")]]


def test_layers_that_were_mistyped_are_not_said_twice(tmp_path):
    text = Path("tests/data/notes/open/mixed/planned-and-measured.md").read_text(encoding="utf-8")
    (tmp_path / "n.md").write_text(text, encoding="utf-8")
    found = [f for f in look_at([str(tmp_path / "n.md")])[0] if f.line == 3 and f.level == "error"]
    assert [(f.column, f.proposed) for f in found] == [("layers", "60")]


MESHES = "Data x model.\n\n| chips | {} | step (s) |\n|---|---|---|\n" + "".join(
    f"| {chips} | {mesh} | {time} |\n" for chips, mesh, time in (
        (16, "16x1", 4.16), (32, "32x1", 2.12), (32, "16x2", 2.24), (64, "64x1", 1.08), (64, "32x2", 1.16), (64, "16x4", 1.27)))


@pytest.mark.parametrize("heading", ["mesh", "topology", "сетка"])
def test_a_mesh_has_the_devices_of_its_row(tmp_path: Path, heading: str):
    text = MESHES.format(heading)
    assert said(tmp_path, text) == []
    found = said(tmp_path, text.replace("32 | 16x2", "32 | 32x2"))
    assert [(f.line, f.code, f.column, f.proposed) for f in found] == [(7, "world-size", heading, "16x2")]


def test_a_product_that_is_something_else_is_no_mesh(tmp_path: Path):
    others = [("16x1", "2x3"), ("32x1", "2x5"), ("16x2", "3x5"), ("64x1", "2x7"), ("32x2", "32x2"), ("16x4", "16x4")]
    text = MESHES.format("image")
    for mesh, other in others:
        text = text.replace(mesh, other)
    assert said(tmp_path, text) == []


def test_a_sequence_that_another_table_denies_too_is_the_one_of_two(tmp_path: Path):
    head = "Sequence length 1024 and a batch of 512 sequences everywhere but where the table has a column.\n\n"
    one = "### Sizes\n\n| chips | step (s) | tokens/s |\n|---|---|---|\n" + "".join(
        f"| {chips} | {time} | {512 * 2048 / time:.0f} |\n"
        for chips, time in ((16, 4.155), (32, 2.115), (64, 1.076), (128, 0.834)))
    two = "\n### Batches\n\n| batch (seqs) | step (s) | tokens/s |\n|---|---|---|\n" + "".join(
        f"| {gbs} | {time} | {gbs * 2048 / time:.0f} |\n"
        for gbs, time in ((128, 0.205), (256, 0.369), (512, 0.671), (1024, 1.318)))
    found = [f for f in said(tmp_path, head + one + two) if f.code == "header-vs-row"]
    assert {(f.line, f.printed, f.proposed) for f in found} == {(1, "1024", "2048")}


STRONG = """Nodes of 4 V100, batch of 768 sequences of 512 tokens.

| GPU | Nodes | s/it | tok/s |
|---|---|---|---|
| 1 | 1 | 19.30 | 20,374 |
| 2 | 1 | 9.546 | 41,191 |
| {one} | 1 | 4.718 | 83,344 |
| 8 | 2 | 2.538 | 154,932 |
| 12 | {three} | 1.760 | 223,418 |
| 16 | 4 | 1.356 | 289,982 |
| 32 | 8 | 0.741 | 530,656 |
"""


def test_a_part_of_one_node_is_where_scaling_starts(tmp_path: Path):
    path = tmp_path / "notes.md"
    for one, three, lines in ((4, 3, []), (3, 3, []), (4, 13, [9]), (4, 1, [9]), (16, 3, [7])):
        path.write_text(STRONG.format(one=one, three=three))
        assert [f.line for f in look_at([str(path)])[0] if f.level == "error"] == lines


CELLS = "# Jobs\n\n" + "\n".join((
    "| model | GPUs | layout | tok/s |", "|---|---|---|---|", "| 8B | 8 | dp8 | 73,294 |", "| 8B | 32 | dp8 cp4 | 287,106 |",
    "| 13B | 32 | dp16 tp2 | 176,043 |", "| 13B | 64 | dp32 tp2 | 346,545 |", "| 70B | 64 | dp4 tp4 pp4 | 63,104 |",
    "| 8x7B | 64 | dp16 pp4 ep8 | 295,759 |")) + "\n"  # fmt: skip


def test_axes_in_one_cell_are_all_that_there_are(tmp_path):
    from seatrial.notes import lint

    note = tmp_path / "note.md"
    for text, lines in ((CELLS, []), (CELLS.replace("dp32 tp2", "dp16 tp2"), [8]), (CELLS.replace("dp8 |", "dp4 |"), [5])):
        note.write_text(text, encoding="utf-8")
        assert [f.line for f in lint.look_at([str(note)])[0] if f.level == "error"] == lines
