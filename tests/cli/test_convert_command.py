"""`seatrial convert`: there and back, and one line for what is not a model."""
from __future__ import annotations

import json


def test_there_and_back(seatrial, tmp_path):
    import transformers

    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, n_positions=8, vocab_size=50)
    original = transformers.GPT2LMHeadModel(config)
    original.save_pretrained(tmp_path / "hf")
    said = seatrial("convert", "import", tmp_path / "hf", tmp_path / "ours", "--json")
    assert said.status == 0 and json.loads(said.out)["model"]["hidden"] == 16, said.err
    assert seatrial("convert", "export", tmp_path / "ours", tmp_path / "back", "--dtype", "bf16").status == 0
    back = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "back")
    assert (back.transformer.wte.weight.float() - original.transformer.wte.weight).abs().max() < 1e-3
    assert seatrial("convert", "import", tmp_path / "hf", tmp_path / "ours").status == 2
    assert seatrial("convert", "export", tmp_path / "ours", tmp_path / "back").status == 2


def test_a_folder_that_is_no_model_is_one_line(seatrial, tmp_path):
    for direction in ("import", "export"):
        said = seatrial("convert", direction, tmp_path, tmp_path / "x")
        assert (said.status, len(said.err.splitlines())) == (2, 1) and not (tmp_path / "x").exists()
