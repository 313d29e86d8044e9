"""What lint does not say: habits of engines and authors that are no slips, and the levels of what it does say."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import Finding, look_at

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
