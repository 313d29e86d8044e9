"""Formulas, parameters and peaks that the text says: what TFLOPs and MFU are by definition, whatever the other rows have."""
from __future__ import annotations

import pytest

from lint_tables import table
from seatrial.notes.lint.models.stated import Stated

CARDS = "Dense peaks: 4090 165.2, 3090 71, 4060 Ti 44, L40S 362 TFLOPS. MFU = 6·N·tokens/s over all cards.\n" + (
    "N: 124M 0.124, 355M 0.355. Sequence 1024.\n\n") + table("""
    cards  model  tokens/s  MFU
    1x 4090  124M  91840  41.4%
    2x 4090  124M  180310  40.6%
    1x L40S  355M  60720  35.7%
    2x 3090  355M  27450  41.2%
    2x 4060 Ti  124M  52130  44.1%
""")  # fmt: skip
SHAPES = "TFLOPs: (6 * params + 12 * layers * hidden * seq) per token. Sequence 4096, batch 512.\n\n" + table("""
    params (B)  layers  hidden  gpus  s/step  tokens/s  TFLOPs
    6.65  32  4096  16  13.405  156446  453.1
    6.65  32  4096  32  6.932  302532  438.1
    12.85  40  5120  32  14.160  148104  403.4
    12.85  40  5120  64  7.306  287045  390.9
    12.85  40  5120  128  3.667  571899  389.5
""")
ONE_PEAK = "H100, 8.03B parameters, 6N, MFU always over 989. Sequence 4096.\n\n" + table("""
    GPUs  precision  tokens/s  TFLOPS/GPU  MFU %
    8  bf16  58896  355  35.9
    8  fp8  77384  466  47.1
    16  bf16  121600  366  37.0
    64  bf16  460096  346  35.0
""")
AUDIT = "8.03 B parameters, 6·N per token; what is recomputed is not counted.\n\n" + table("""
    GPU  dense bf16 (TFLOP/s)
    H100  989
    L40S  362
""") + "\n" + table("""
    GPU  GPUs  recompute  tok/s  TFLOP/s/GPU  MFU (%)
    H100  8  none  67963  409.3  41.4
    H100  16  none  135546  408.2  41.3
    L40S  16  full  32732  98.6  27.2
    L40S  32  full  65145  98.1  27.1
    H100  32  full  188999  284.6  28.8
""")  # fmt: skip
ENGINES = "A100 (312), 13B of 40 layers, hidden 5120, vocab 50304, sequence 2048, batch 1024, 64 GPUs.\n\n" + (
    table("""
    engine  FLOPs by  MBS  s/step  samples/s  TFLOP/s/GPU
    mega  Megatron  1  16.63  61.6  161.7
    mega  Megatron  2  16.31  62.8  164.9
    mega  Megatron  4  16.45  62.2  163.5
    deep  6N  1  19.82  51.7  127.5
    deep  6N  2  16.36  62.6  154.4
    full  6N  1  20.54  49.9  123.0
"""))


def test_rows_that_say_by_what_they_count_are_held_against_their_kind(lint):
    assert lint(ENGINES) == []
    found = lint(ENGINES.replace("| 127.5 |", "| 172.5 |"))
    assert [(f.line, f.column, f.proposed) for f in found] == [(8, "TFLOP/s/GPU", "127.5")]


@pytest.mark.parametrize(("note", "was", "typed", "column", "proposed"), [
    pytest.param(CARDS, "44.1%", "20.5%", "MFU", "44.1%", id="the only row of a card that no data sheet has here"),
    pytest.param(CARDS, "35.7%", "13.1%", "MFU", "35.7%", id="the peak of a device that is not there"),
    pytest.param(SHAPES, "40 | 5120 | 32 |", "40 | 4096 | 32 |", "hidden", "5120", id="a width of another model"),
    pytest.param(SHAPES, "| 438.1", "| 584.1", "TFLOPs", "438.1", id="more by a third than the formula"),
    pytest.param(ONE_PEAK, "| 47.1", "| 23.5", "MFU %", "47.1", id="of 8 bits, and all are over one peak"),
    pytest.param(AUDIT, "98.1 | 27.1", "98.1 | 36.2", "MFU (%)", "27.1", id="what was recomputed"),
    pytest.param(AUDIT, "284.6 | 28.8", "379.5 | 38.4", "TFLOP/s/GPU", "284.6", id="TFLOPs and MFU with what was recomputed"),
])  # fmt: skip
def test_what_the_text_defines_needs_no_other_row(lint, note: str, was: str, typed: str, column: str, proposed: str):
    assert lint(note) == [] and note.count(was) == 1
    line = note[: note.index(was)].count("\n") + 1
    found = lint(note.replace(was, typed))
    assert [(f.line, f.column) for f in found] == [(line, column)]
    assert found[0].proposed is not None
    assert abs(float(found[0].proposed.rstrip("%")) / float(proposed.rstrip("%")) - 1) < 0.01


@pytest.mark.parametrize(("line", "attentions"), [
    ("FLOPs: 6N per token", {0.0}),
    ("TFLOP/s = 6 × 6.74 B × tokens/s", {0.0}),
    ("six times the *active* parameters per token", {0.0}),
    ("(6N + 12·L·h·s) per token", {12.0}),
    ("6N + 6·layers·hidden·seq (causal), and 6N where nothing is said", {6.0, 0.0}),
    ("TFLOPS/卡 = (6N + 12·层数·隐藏维度·序列长度) × 每卡吞吐", {12.0}),
    ("on 6 nodes", set()),
    ("C = 6·N·D and 16 N", {0.0}),
])
def test_formulas_of_the_text(line: str, attentions: set[float]):
    assert Stated.of([line]).attentions == attentions


@pytest.mark.parametrize(("lines", "label", "parameters"), [
    (["N, B: 124M 0.124; 3B 3.426."], "3B", 3.426e9),
    (["shapes (6.74B, 13.02B)"], "13B", 13.02e9),
    (["N = 1.10 / 3.43 / 6.74 Mrd"], "7B", 6.74e9),
    (["12.88 B (8x7B) and 39.1 B (8x22B) are active"], "Mixtral-8x22B", 39.1e9),
    (["6.74 B or 7.24 B"], "7B", None),
    (["nothing"], "14.77e9", 14.77e9),
    (["7.24 B parameters"], "", 7.24e9),
])
def test_parameters_of_the_text(lines: list[str], label: str, parameters: float | None):
    assert Stated.of(lines).parameters(label) == pytest.approx(parameters)


@pytest.mark.parametrize(("lines", "device", "dtype", "peak"), [
    (["dense tensor peak: 989 (H100), 312 (A100),", "362 (L40S), 165 (RTX 4090)."], "L40S", "", 362),
    (["peak: A100 312, H100 and GH200 989"], "H100", "", 989),
    (["Peaks: B200 2250 bf16 / 4500 fp8"], "B200", "fp8", 4500),
    (["we divide by the peaks: B200 2250 (bf16) and 4500 (fp8), H100 989 and 1979"], "H100", "fp8", 1979),
    (["we divide by the peaks: B200 2250 (bf16) and 4500 (fp8), H100 989 and 1979"], "B200", "bf16", 2250),
    (["MFU over the peak; H100 has 79.1 GiB"], "H100", "", None),
    (["| GPU | dense bf16 | GB |", "|---|---|---|", "| MI300X | 1307 | 192 |"], "MI300X", "", 1307),
    (["MFU rose by 25 points on v4", "peaks: v3 123, v4 275"], "v4", "", 275),
])
def test_peaks_of_the_text(lines: list[str], device: str, dtype: str, peak: float | None):
    assert Stated.of(lines).peak(device, dtype) == peak
