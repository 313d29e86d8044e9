"""The page's planner: every knob, one's own model and cluster as texts, and no word of a query taken for a file."""
from __future__ import annotations

import json

import pytest

from seatrial import fields, presets
from seatrial.columns import SEARCHED
from seatrial.errors import BadInput
from seatrial.record import Record
from seatrial.report import data
from seatrial.report.start import start
from seatrial.report.whatif import choices, own_cluster, own_model, what_if

ASKED = {"model": "gpt2-124m", "cluster": "jz-a100", "nodes": "1", "gbs": "64", "pp": "1", "mbs": "4"}
CONFIG = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
          "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 4096,
          "tie_word_embeddings": True}


def test_every_knob_that_is_searched_can_be_held():
    first = what_if({**ASKED, "tp": "2", "zero": "1", "recompute": "full", "schedule": "1f1b", "vp": "1"})["candidates"][0]
    assert {first[name] for name in ("tp",)} == {2} and first["zero"] == 1 and first["recompute"] == "full"
    assert set(choices()["words"]) >= {name for name in SEARCHED if name in ("recompute", "schedule")}
    free = what_if({**ASKED, "sequence_parallel": "off"})
    tight = what_if({**ASKED, "sequence_parallel": "off", "headroom": "99%"})
    assert free["accepted"] > tight["accepted"], "what is to stay free is taken off"
    longer = what_if({**ASKED, "seq": "512"})["candidates"][0]["sec_per_it"]
    assert longer < free["candidates"][0]["sec_per_it"]


def test_a_model_of_ones_own_is_a_table_or_a_config():
    based = own_model('[model]\nbase = "gpt2-124m"\nlayers = 40')
    assert based.layers == 40 and based == own_model('base = "gpt2-124m"\nlayers = 40')
    assert own_model(json.dumps(CONFIG)).hidden == 2048
    asked = {name: value for name, value in ASKED.items() if name != "model"}
    assert what_if({**asked, "model_text": json.dumps(CONFIG)})["candidates"]


def test_a_cluster_of_ones_own_is_a_table():
    mine = own_cluster('base = "jz-a100"\nnodes = 2\nprocs_per_node = 4\ndevice = { memory_gib = 40 }')
    assert (mine.nodes, mine.procs_per_node, mine.device.memory_gib) == (2, 4, 40)
    asked = {name: value for name, value in ASKED.items() if name not in ("cluster", "nodes")}
    found = what_if({**asked, "cluster_text": 'base = "jz-a100"\nnodes = 2'})
    assert found["candidates"][0]["dp"] * found["candidates"][0]["tp"] == 16


@pytest.mark.parametrize(("query", "said"), [
    ({"model": "/etc/hostname.toml"}, "known are"),
    ({"model_text": 'base = "/etc/hostname.toml"'}, "base '/etc/hostname.toml'"),
    ({"model_text": 'base = "mine.json"'}, "base 'mine.json'"),
    ({"model_text": "layers = "}, "not TOML"),
    ({"model_text": "{"}, "not JSON"),
    ({"model_text": '{"model_type": "horse"}'}, "horse"),
    ({"model_text": "wheels = 4"}, "wheels"),
    ({"model_text": "model = 3"}, "a [model] table"),
    ({"cluster_text": 'base = "here"'}, "base 'here'"),
    ({"cluster_text": 'base = "local"'}, "base 'local'"),
    ({"cluster_text": 'base = "jz-a100"\nmachine = "/etc/x.json"'}, "machine file"),
    ({"cluster_text": 'base = "jz-a100"\nnodes = 100000', "nodes": ""}, "up to 2048"),
    ({"nodes": "3000"}, "up to 2048"), ({"headroom": "lots"}, "headroom"), ({"seq": "x"}, "whole number"),
    ({"sequence_parallel": "perhaps"}, "sequence-parallel"), ({"engine": "horse"}, "known are"),
])  # fmt: skip
def test_what_cannot_be_is_said_and_no_file_is_read(query, said):
    with pytest.raises(BadInput) as error:
        what_if({**ASKED, **query})
    assert said in str(error.value), str(error.value)


def test_the_form_begins_with_the_logbooks_own_model_and_cluster():
    said = {"state": "measured", "layers": 72, "hidden": 14336, "heads": 64, "seq": 2048, "vocab": 50257, "nodes": 48,
            "procs_per_node": 8, "dp": 8, "tp": 4, "pp": 12, "mbs": 2, "gbs": 1024, "dtype": "bf16", "sec_per_it": 100.0}

    def begun(record: Record) -> dict[str, str]:
        return start(data.build([record], title=""))

    known = begun(Record(**said, machine="jz-a100", engine="megatron-core"))
    assert {key: known[key] for key in ("cluster", "engine", "nodes", "gbs")} == {
        "cluster": "jz-a100", "engine": "megatron-core", "nodes": "48", "gbs": "1024"}
    assert own_model(known["model_text"]).hidden == 14336 and what_if({**known, "tp": "4"})["candidates"]

    trial = {"model": fields.plain(presets.model("tiny")), "batch": {"gbs": 16},
             "cluster": {**fields.plain(presets.cluster("jz-a100")), "name": "ours", "nodes": 2}}
    own = begun(Record(state="measured", trial=trial, gbs=16, nodes=2, sec_per_it=1.0))
    assert own["model"] == "tiny" and own_cluster(own["cluster_text"]).name == "ours" and own["nodes"] == "2"
    assert what_if(own)["candidates"]
    assert start(data.build([], title=""))["model"] == "bloom-176b"
