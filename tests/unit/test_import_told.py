"""What one sentence says of a model and its machine, in the words of many people."""
from __future__ import annotations

from typing import Any

import pytest

from seatrial.notes.read import import_file
from seatrial.notes.read.sentences import read_sentence

SHAPE = {"layers": 40, "hidden": 5120, "heads": 40, "seq": 4096, "gbs": 1024}


@pytest.mark.parametrize("text", [
    "We trained a model of 40 layers, 5120 wide, with 40 heads; context 4096, global batch 1024.",
    "The model: 40 layers, width 5120, 40 heads, sequence length 4096, global batch 1024.",
    "Modell: 40 Schichten, Breite 5120, 40 Köpfe, Sequenzlänge 4096, globale Batchgröße 1024.",
    "Modèle de 40 couches, largeur 5120, 40 têtes, longueur de séquence 4096, batch global de 1024.",
    "Модель: 40 слоёв, скрытая размерность 5120, 40 голов, длина последовательности 4096, глобальный батч 1024.",
    "模型40层，隐藏维度5120，40个注意力头，序列长度4096，全局批大小1024。",
    "모델: 40 레이어, 히든 5120, 40 헤드, 시퀀스 길이 4096, 글로벌 배치 1024.",
])  # fmt: skip
def test_a_model_in_many_tongues(text: str):
    assert {name: read_sentence(text).get(name) for name in SHAPE} == SHAPE


@pytest.mark.parametrize(("text", "machine"), [
    ("8 Knoten à 8 A100", {"gpus": 64, "procs_per_node": 8}), ("8 узлов по 8 A100", {"gpus": 64, "procs_per_node": 8}),
    ("8 węzłów po 8 A100", {"gpus": 64, "procs_per_node": 8}), ("8 nodi da 8 A100", {"gpus": 64, "procs_per_node": 8}),
    ("All ran on 64 H100s (8 per node).", {"gpus": 64, "procs_per_node": 8}), ("8 H100s per node", {"procs_per_node": 8}),
])  # fmt: skip
def test_so_many_devices_of_so_many_nodes(text: str, machine: dict[str, Any]):
    said = read_sentence(text)
    assert {name: said.get(name) for name in machine} == machine


@pytest.mark.parametrize("text", ["heads of 128 wide", "the FFN 13824 wide", "experts 1408 wide", "mlp width 13824",
                                  "the table is 3 wide", "head width 128"])  # fmt: skip
def test_how_wide_a_part_is_says_nothing_of_the_model(text: str):
    assert "hidden" not in read_sentence(text)


@pytest.mark.parametrize(("title", "value"), [
    ("What recomputation costs", ""), ("The effect of activation recomputation", ""), ("Recompute policies", ""),
    ("With activation recomputation", "full"), ("Full recomputation and its costs", "full"),
])  # fmt: skip
def test_a_chapter_on_what_recomputation_costs_says_of_no_run_that_it_did_it(title, value):
    assert read_sentence(title).get("recompute", "") == value


@pytest.mark.parametrize(("text", "said"), [
    ("micro/global batch 2/512", {"mbs": 2, "gbs": 512}), ("TP = PP = 2", {"tp": 2, "pp": 2}),
    ("Tensor/pipeline = 8/4", {"tp": 8, "pp": 4}), ("2-way tensor, 16-way pipeline", {"tp": 2, "pp": 16}),
    ("Sequence length is 2^12 tokens", {"seq": 4096}), ("no pipeline, tensor parallelism of two", {"pp": 1, "tp": 2}),
    ("a model of width 2048 and thirty-two layers", {"hidden": 2048, "layers": 32}),
    ("vier Knoten mit je vier H100", {"gpus": 16}), ("单机八卡 H800", {"gpus": 8}),
    ("eight nodes, four A100 each", {"gpus": 32}),
    ("4 layers per stage", {"layers": None}), ("batch 8 per GPU", {"gbs": None}), ("no tensor cores used", {"tp": None}),
    ("the pipeline bubble is 5 %", {"pp": None}), ("the feed-forward layer is 4× wider than the model", {"layers": None}),
])  # fmt: skip
def test_settings_in_other_words(text: str, said: dict[str, Any]):
    found = read_sentence(text)
    assert {name: found.get(name) for name in said} == said


@pytest.mark.parametrize(("headings", "row", "mbs", "gbs"), [
    ("seq | cp | dp | batch | accum | step (s) | tok/s/GPU", "8192 | 1 | 32 | 512 | 16 | 17.52 | 7482", 1, 512),
    ("seq | cp | dp | batch | accum | step (s) | tok/s/GPU", "8192 | 1 | 32 | 2 | 16 | 35.04 | 7482", 2, 1024),
    ("séq. | lot | accum. | s/pas | jetons/s", "1024 | 16 | 16 | 10.65 | 24692", 16, 256),
])  # fmt: skip
def test_a_batch_beside_the_accumulation_is_what_rate_and_time_show(tmp_path, headings: str, row: str, mbs: int, gbs: int):
    path = tmp_path / "notes.md"
    path.write_text(f"| {headings} |\n|{'---|' * (headings.count('|') + 1)}\n| {row} |\n", encoding="utf-8")
    (record,) = import_file(path).records
    assert (record.mbs, record.gbs) == (mbs, gbs)
