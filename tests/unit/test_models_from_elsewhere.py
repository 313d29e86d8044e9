"""A model by whatever describes it: a preset, a TOML file, a config.json or its folder, a row of a logbook."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial import fields, presets
from seatrial.errors import BadInput
from seatrial.logbook import Logbook

LLAMA = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 2,
         "intermediate_size": 352, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu",
         "rope_theta": 500000.0, "vocab_size": 512, "tie_word_embeddings": False}


def test_a_configuration_of_hugging_face_is_a_model_by_its_file_and_by_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    model = presets.model(str(folder))
    assert (model.layers, model.kv, model.inner, model.seq, model.name) == (4, 2, 352, 4096, "small")
    assert presets.model(str(folder / "config.json")) == model
    assert presets.model(str(folder), {"seq": 128, "layers": 2}).seq == 128
    (folder / "config.json").write_text('{"model_type": "llama"')
    with pytest.raises(BadInput, match="not JSON"):
        presets.model(str(folder))


def test_a_row_of_a_logbook_is_a_model_by_the_beginning_of_its_run_id(tmp_path: Path) -> None:
    kept = presets.model("tiny-llama", {"layers": 6})
    with Logbook(tmp_path / "book", create=True) as book:
        book.append({"state": "planned", "run_id": "aa11", "trial": {"model": fields.plain(kept)}})
        book.append({"state": "planned", "run_id": "ab22", "layers": 4, "hidden": 64, "heads": 4, "vocab": 100, "seq": 32})
        book.append({"state": "planned", "run_id": "cc33", "layers": 4})
    assert presets.model(f"{tmp_path}/book:aa") == kept
    assert presets.model(f"{tmp_path}/book:ab22", {"layers": 5}).layers == 5
    for name, said in (("a", "2 run ids begin so: aa11, ab22"), ("dd", "no run ids"), ("cc33", "hidden, heads, vocab, seq"),
                       ("", "name the row too")):
        with pytest.raises(BadInput, match=said):
            presets.model(f"{tmp_path}/book:{name}")


def test_a_folder_that_has_no_model_says_what_would_be_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"a folder without config.json; a row of a logbook is .*:RUN-ID"):
        presets.model(str(tmp_path))


@pytest.mark.parametrize("name", ["9" * 300, f"{'a' * 300}:b"])
def test_a_name_too_long_for_a_file_is_no_preset_either(name: str) -> None:
    with pytest.raises(BadInput, match="bloom"):
        presets.model(name)
    cluster = {"machine": f"{name}.json"}
    assert presets.beside("plan.toml", cluster) == cluster
