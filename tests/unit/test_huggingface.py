"""Weights go to and from Hugging Face: their model and ours give the same logits, both ways, for each model type."""
from __future__ import annotations

import json
import struct
from dataclasses import replace

import pytest
import torch

from seatrial.engine.io import checkpoint
from seatrial.errors import BadInput
from seatrial.huggingface import convert, hfconfig
from seatrial.spec import Model
from theirs import our_logits, random_model

ROTARY = dict(num_hidden_layers=2, hidden_size=48, num_attention_heads=6, num_key_value_heads=2, intermediate_size=80,
              vocab_size=300, max_position_embeddings=32)
CONFIGS = {
    "gpt2": dict(n_layer=2, n_embd=48, n_head=4, n_positions=32, vocab_size=300),
    "bloom": dict(n_layer=2, hidden_size=48, n_head=6, vocab_size=300, seq_length=32),
    "llama": dict(**ROTARY, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "llama-tied": dict(**{**ROTARY, "num_key_value_heads": 6}, tie_word_embeddings=True),
    "llama-biased": dict(**ROTARY, attention_bias=True, mlp_bias=True),
    "llama-3.1": dict(**{**ROTARY, "num_attention_heads": 2}, rope_parameters={
        "rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16}),
    "mistral": dict(**ROTARY, sliding_window=32, head_dim=16),
    "qwen2": dict(**ROTARY, tie_word_embeddings=True),
    "qwen3": dict(**ROTARY, head_dim=24),
}  # fmt: skip


PREFIX = {"gpt2": "GPT2", "bloom": "Bloom", "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


def theirs(family: str):
    return random_model(PREFIX[family.split("-")[0]], CONFIGS[family])


def checkpoint_weights(folder) -> dict[str, torch.Tensor]:
    reader = checkpoint.latest(folder).reader()
    return {key.removeprefix("model."): reader.whole(key) for key in reader.tensors}


@pytest.mark.parametrize("family", CONFIGS)
def test_the_same_logits_both_ways(tmp_path, family):
    import transformers

    original = theirs(family)
    original.save_pretrained(tmp_path / "hf")
    model = convert.import_weights(tmp_path / "hf", tmp_path / "ours")
    tokens = torch.randint(0, 300, (2, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = original(tokens).logits
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(our_logits(model, tmp_path / "ours", tokens), expected, atol=1e-4, rtol=1e-4)

    exported = convert.export_weights(tmp_path / "ours", tmp_path / "back", shard_bytes=100_000)
    assert exported == model and len(list((tmp_path / "back").glob("*.safetensors"))) > 1
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back").eval()
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, expected)
    convert.import_weights(tmp_path / "back", tmp_path / "ours2")  # and sharded files are read
    first, second = checkpoint_weights(tmp_path / "ours"), checkpoint_weights(tmp_path / "ours2")
    assert first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_names_without_the_head_models_prefix_are_found(tmp_path):
    original = theirs("gpt2")
    original.transformer.save_pretrained(tmp_path / "hf")
    convert.import_weights(tmp_path / "hf", tmp_path / "ours")
    assert torch.equal(checkpoint_weights(tmp_path / "ours")["embed.tokens.weight"], original.transformer.wte.weight)


def header(path, text: bytes, data: bytes = b""):
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize("entry", [
    {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]},
    {"dtype": "F32", "shape": [4], "data_offsets": [0, 1600]},
    {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]},
    {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]},
    {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 16]},
    7,
])
def test_a_header_that_lies_is_refused(tmp_path, entry):
    header(tmp_path / "x", json.dumps({"a": entry}).encode(), bytes(16))
    with pytest.raises(BadInput, match="x: not a safetensors file, or damaged"):
        convert.File(tmp_path / "x")


@pytest.mark.parametrize("raw", [b"", b"abc", struct.pack("<Q", 2**60) + b"{}", struct.pack("<Q", 2) + b"[]",
                                 struct.pack("<Q", 3) + b"{]}"])
def test_what_is_not_safetensors_is_refused(tmp_path, raw):
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(BadInput, match="not a safetensors file"):
        convert.File(tmp_path / "x")


def test_pickles_are_never_opened(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **CONFIGS["gpt2"]}))
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match="pickle"):
        convert.import_weights(tmp_path, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def changed(folder, family: str, **change) -> None:
    """A model of theirs whose configuration says something else."""
    theirs(family).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))


@pytest.mark.parametrize(("change", "words"), [
    ({"model_type": "opt"}, "model_type 'opt'"), ({"activation_function": "relu"}, "activation_function is 'relu'"),
    ({"n_layer": None}, "n_layer must be given"), ({"n_layer": 3}, "no tensor transformer.h.2"),
    ({"n_layer": 1}, r"tensor transformer.h.1\S+, and 11 more, has no place"), ({"n_embd": 64}, "the configuration says"),
    ({"add_cross_attention": True}, "add_cross_attention is True: the engine does not know this key"),
])
def test_a_model_that_the_engine_does_not_have_is_refused_by_name(tmp_path, change, words):
    changed(tmp_path / "hf", "gpt2", **change)
    with pytest.raises(BadInput, match=words):
        convert.import_weights(tmp_path / "hf", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


LLAMA = {"model_type": "llama", **ROTARY}


@pytest.mark.parametrize(("change", "words"), [
    ({"num_experts": 8}, "num_experts is 8"), ({"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"), ({"query_pre_attn_scalar": 224}, "query_pre_attn_scalar"),
    ({"embedding_multiplier": 12.0}, "embedding_multiplier is 12.0"), ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "kind 'linear'"),
    ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "must give low_freq_factor"),
    ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5"),
    ({"sliding_window": 16}, "--seq 16 takes the model"), ({"model_type": "mistral"}, None),
    ({"model_type": "mistral", "attention_bias": True}, "attention_bias is True"),
    ({"model_type": "qwen2", "sliding_window": 16}, None),
    ({"model_type": "qwen2", "sliding_window": 16, "use_sliding_window": True, "max_window_layers": 1}, "sliding_window is 16"),
    ({"model_type": "qwen3", "layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
    ({"num_experts": 0, "logit_scale": 1.0, "query_pre_attn_scalar": 8, "attention_dropout": 0.1, "do_sample": True}, None),
])
def test_a_key_that_changes_what_is_computed_is_known_or_refused(change, words):
    if words is None:
        assert hfconfig.model_of({**LLAMA, **change}, where="config.json").hidden == 48
        return
    with pytest.raises(BadInput, match=words):
        hfconfig.model_of({**LLAMA, **change}, where="config.json")


SLIDING, FULL = "sliding_attention", "full_attention"


@pytest.mark.parametrize(("change", "window", "full_every"), [
    ({"model_type": "mistral", "max_position_embeddings": 8192}, 4096, None),
    ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 0}, 16, None),
    ({"model_type": "qwen3", "num_hidden_layers": 5, "layer_types": [SLIDING, FULL, SLIDING, FULL, SLIDING]}, 16, 2),
    ({"model_type": "qwen3", "layer_types": [FULL, FULL]}, None, None),
])
def test_layers_look_back_as_far_as_they_are_said_to(change, window, full_every):
    said = {**LLAMA, "sliding_window": 16} if window != 4096 else LLAMA
    model = hfconfig.model_of({**said, **change}, where="config.json")
    assert (model.sliding_window, model.full_every) == (window, full_every)
    assert hfconfig.model_of(hfconfig.config_of(model, dtype="float32"), where="back") == model


def test_layers_that_look_back_in_no_order_are_taken_for_sequences_that_fit():
    said = {**LLAMA, "model_type": "qwen3", "num_hidden_layers": 3, "sliding_window": 16,
            "layer_types": [FULL, SLIDING, SLIDING]}
    with pytest.raises(BadInput, match="--seq 16 takes the model"):
        hfconfig.model_of(said, where="config.json")
    assert hfconfig.model_of(said, where="config.json", seq=16).has_windows is False


def resaved(folder, change) -> None:
    """A model of theirs whose tensors are other ones."""
    import safetensors.torch as library

    theirs("llama").save_pretrained(folder)
    tensors = library.load_file(folder / "model.safetensors")
    change(tensors)
    library.save_file(tensors, folder / "model.safetensors")


def test_a_number_that_is_none_is_refused_by_its_tensors_name(tmp_path):
    def spoil(tensors):
        tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")

    resaved(tmp_path / "hf", spoil)
    with pytest.raises(BadInput, match=r"model.layers.1.mlp.up_proj.weight has 1 of 3840 numbers that are NaN or infinite"):
        convert.import_weights(tmp_path / "hf", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_tensor_that_nothing_takes_is_refused_unless_it_says_nothing(tmp_path):
    resaved(tmp_path / "a", lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))
    convert.import_weights(tmp_path / "a", tmp_path / "ours")
    resaved(tmp_path / "b", lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(48)}))
    with pytest.raises(BadInput, match=r"tensor model.layers.0.self_attn.q_proj.bias, has no place in a llama of 2 layers"):
        convert.import_weights(tmp_path / "b", tmp_path / "other")


def test_a_tensor_that_the_index_does_not_name_is_refused_too(tmp_path):
    def index(tensors):
        (tmp_path / "hf" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(tensors, name)}))
        tensors["model.layers.0.extra.weight"] = torch.ones(2)

    name = "model.safetensors"
    resaved(tmp_path / "hf", index)
    with pytest.raises(BadInput, match=r"tensor model.layers.0.extra.weight, has no place"):
        convert.import_weights(tmp_path / "hf", tmp_path / "ours")


def test_a_head_that_is_not_the_embedding_it_is_tied_to_is_refused(tmp_path):
    tied = replace(SMALL, tied=True)
    head = {name: torch.ones(convert.shape_of(name, tied)) for e in convert.tensor_names(tied) for name in e.names}
    theirs = {e.theirs: e.made_of(head, tied) for e in convert.tensor_names(tied)}
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text(json.dumps(hfconfig.config_of(tied, dtype="float32")))
    for value in (1.0, 2.0):
        both = {n: t.clone() for n, t in theirs.items()} | {"lm_head.weight": torch.full((300, 48), value)}
        convert.save_file(both, tmp_path / "hf" / "model.safetensors", metadata={"format": "pt"})
        if value == 1.0:
            convert.import_weights(tmp_path / "hf", tmp_path / "ours")
            continue
        with pytest.raises(BadInput, match="lm_head.weight is not the embedding that config.json ties it to"):
            convert.import_weights(tmp_path / "hf", tmp_path / "other")


SMALL = Model(layers=2, hidden=48, heads=6, vocab=300, seq=32, family="llama")


def test_a_model_goes_out_as_the_type_that_can_say_it():
    like_gpt = {"norm": "layernorm", "positions": "learned", "mlp": "gelu", "biases": "all"}
    choices = ({}, {"qk_norm": True}, {"biases": "qkv"}, {"sliding_window": 64}, like_gpt)
    assert [hfconfig.type_of(replace(SMALL, **each)) for each in choices] == ["llama", "qwen3", "qwen2", "mistral", "gpt2"]
    with pytest.raises(BadInput, match="llama has no positions alibi"):
        hfconfig.type_of(replace(SMALL, positions="alibi"))
