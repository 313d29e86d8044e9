"""Weights go to and from Hugging Face: their model and ours give the same logits, both ways, for the three families."""
from __future__ import annotations

import json
import struct

import pytest
import torch
import torch.nn.functional as F

from seatrial.engine.core.attention import Positions
from seatrial.engine.core.comm import Comm, TensorParallel
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.model import Shared, Stage
from seatrial.engine.core.params import spec_of
from seatrial.engine.io import checkpoint, convert, safetensors
from seatrial.engine.watch.timers import Timers
from seatrial.errors import BadInput
from seatrial.spec import Model, Topology

CONFIGS = {
    "gpt2": dict(n_layer=2, n_embd=48, n_head=4, n_positions=32, vocab_size=300),
    "bloom": dict(n_layer=2, hidden_size=48, n_head=6, vocab_size=300, seq_length=32),
    "llama": dict(num_hidden_layers=2, hidden_size=48, num_attention_heads=6, num_key_value_heads=2, intermediate_size=80,
                  vocab_size=300, max_position_embeddings=32, rope_parameters={"rope_type": "default", "rope_theta": 5000.0}),
    "llama-tied": dict(num_hidden_layers=2, hidden_size=48, num_attention_heads=6, num_key_value_heads=6, intermediate_size=80,
                       vocab_size=300, max_position_embeddings=32, tie_word_embeddings=True),
}  # fmt: skip


def theirs(family: str, seed: int = 0):
    """A random model of theirs, with no zero bias that would hide a mistake."""
    import transformers

    names = {"gpt2": ("GPT2Config", "GPT2LMHeadModel"), "bloom": ("BloomConfig", "BloomForCausalLM"),
             "llama": ("LlamaConfig", "LlamaForCausalLM")}[family.split("-")[0]]
    torch.manual_seed(seed)
    model = getattr(transformers, names[1])(getattr(transformers, names[0])(**CONFIGS[family])).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    return model


def our_logits(model: Model, weights: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """The engine's own stage, filled by name."""
    comm = Comm(Mesh(Topology(), device=torch.device("cpu")), Timers())
    positions = Positions(model, first_head=0, heads=model.heads, device=torch.device("cpu"), dtype=torch.float32)
    shared = Shared(model=model, tp=TensorParallel(comm), positions=positions, std=0.02)
    stage = Stage(shared, first=0, last=model.layers, has_embedding=True, has_head=True)
    used = set()
    for p in stage.parameters():
        spec = spec_of(p)
        used |= {s.name for s in spec.segments}
        value = torch.cat([weights[s.name] for s in spec.segments])
        p.data = F.pad(value, (0, 0, 0, spec.shape[0] - value.shape[0])) if value.dim() > 1 else value
    assert used == set(weights)
    x = tokens
    with torch.no_grad():
        for _, unit in stage.path():
            x = unit(x)
        return (x @ stage.head.weight.t())[..., : model.vocab]


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
    torch.testing.assert_close(our_logits(model, checkpoint_weights(tmp_path / "ours"), tokens), expected, atol=1e-4, rtol=1e-4)

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


def test_the_library_reads_our_files_and_we_read_its(tmp_path):
    import safetensors.torch as library

    tensors = {"a": torch.randn(3, 5), "b": torch.arange(7), "c": torch.randn(4).bfloat16(), "empty": torch.zeros(0, 3)}
    library.save_file(tensors, tmp_path / "x.safetensors")
    file = safetensors.File(tmp_path / "x.safetensors")
    assert all(torch.equal(file[k], v) for k, v in tensors.items())
    safetensors.write(tmp_path / "y.safetensors", {k: (v.dtype, tuple(v.shape)) for k, v in tensors.items()}, tensors.items())
    found = library.load_file(tmp_path / "y.safetensors")
    assert all(torch.equal(found[k], v) for k, v in tensors.items())


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
    with pytest.raises(BadInput, match="a: "):
        safetensors.File(tmp_path / "x")


@pytest.mark.parametrize("raw", [b"", b"abc", struct.pack("<Q", 2**60) + b"{}", struct.pack("<Q", 2) + b"[]",
                                 struct.pack("<Q", 3) + b"{]}"])
def test_what_is_not_safetensors_is_refused(tmp_path, raw):
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(BadInput, match="not a safetensors file"):
        safetensors.File(tmp_path / "x")


def test_pickles_are_never_opened(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **CONFIGS["gpt2"]}))
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match="pickle"):
        convert.import_weights(tmp_path, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(("change", "words"), [
    ({"model_type": "opt"}, "model_type 'opt'"), ({"activation_function": "relu"}, "activation_function is 'relu'"),
    ({"n_layer": None}, "n_layer must be given"), ({"n_layer": 3}, "no tensor transformer.h.2"),
    ({"n_embd": 64}, "the configuration says"),
])
def test_a_model_that_the_engine_does_not_have_is_refused_by_name(tmp_path, change, words):
    theirs("gpt2").save_pretrained(tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(BadInput, match=words):
        convert.import_weights(tmp_path / "hf", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
