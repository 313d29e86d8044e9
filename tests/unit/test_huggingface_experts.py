"""Mixtures of experts go to and from Hugging Face: words, names, layouts and counts, with transformers as the authority."""
from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from seatrial import presets
from seatrial.arith.flops import attention_core_forward, flops
from seatrial.arith.parameters import parameters
from seatrial.engine.io import checkpoint
from seatrial.errors import BadInput
from seatrial.huggingface import convert, hfconfig
from seatrial.huggingface.names import tensor_names
from seatrial.spec import Latent, Model, Router
from theirs import our_logits, random_model

ROTARY = dict(num_hidden_layers=3, hidden_size=48, num_attention_heads=6, num_key_value_heads=2, vocab_size=300,
              intermediate_size=80, max_position_embeddings=32)
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 2.0,
        "beta_slow": 0.25}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("Mixtral", dict(**ROTARY, num_local_experts=4)),
    "qwen3_moe": ("Qwen3Moe", dict(**ROTARY, head_dim=24, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=20,
                                   norm_topk_prob=True, mlp_only_layers=[0])),
    "deepseek_v3": ("DeepseekV3", dict(
        **{**ROTARY, "num_key_value_heads": 6}, rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 0.8},
        n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, n_group=4,
        topk_group=2, n_shared_experts=2, first_k_dense_replace=1, q_lora_rank=28, kv_lora_rank=12, qk_rope_head_dim=8,
        qk_nope_head_dim=10, v_head_dim=14)),
    "gpt_oss": ("GptOss", dict(**ROTARY, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
                               rope_parameters={**YARN, "truncate": False})),
}  # fmt: skip


def theirs(kind: str, **change: Any) -> Any:
    prefix, config = CONFIGS[kind]
    return random_model(prefix, {**config, **change})


@pytest.mark.parametrize("kind", CONFIGS)
def test_there_and_back_each_bit_is_the_same(tmp_path, kind):
    import transformers

    original = theirs(kind)
    original.save_pretrained(tmp_path / "hf")
    model = convert.import_weights(tmp_path / "hf", tmp_path / "ours")
    assert convert.export_weights(tmp_path / "ours", tmp_path / "back", shard_bytes=50_000) == model
    files = sorted((tmp_path / "back").glob("*.safetensors"))
    back = {name: tensor for file in files for name, tensor in load_file(file).items()}
    expected = load_file(tmp_path / "hf" / "model.safetensors")
    assert len(files) > 1 and back.keys() == expected.keys()
    assert all(torch.equal(back[name], expected[name]) for name in back)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    assert all(torch.equal(value, original.state_dict()[name]) for name, value in again.state_dict().items())
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert hfconfig.model_of(config, where="back") == model


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_engine_has_their_logits(tmp_path, kind):
    original = theirs(kind)
    original.save_pretrained(tmp_path / "hf")
    model = convert.import_weights(tmp_path / "hf", tmp_path / "ours")
    tokens = torch.randint(0, 300, (2, 32), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = original(tokens).logits
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(our_logits(model, tmp_path / "ours", tokens), expected, atol=1e-5, rtol=1e-5)


def test_in_16_bits_a_routers_correction_stays_what_it_is(tmp_path):
    theirs("deepseek_v3").save_pretrained(tmp_path / "hf")
    convert.import_weights(tmp_path / "hf", tmp_path / "ours")
    convert.export_weights(tmp_path / "ours", tmp_path / "back", dtype=torch.bfloat16)
    before, after = (load_file(tmp_path / form / "model.safetensors") for form in ("hf", "back"))
    fp32 = {name for name, tensor in after.items() if tensor.dtype == torch.float32}
    assert fp32 == {f"model.layers.{i}.mlp.gate.e_score_correction_bias" for i in (1, 2)}
    assert all(torch.equal(before[name], after[name]) for name in fp32)


@pytest.mark.parametrize("kind", CONFIGS)
def test_names_of_modules_are_read_too(tmp_path, kind):
    """As a state dict has them that was saved by hand."""
    original = theirs(kind)
    original.save_pretrained(tmp_path / "hf")
    convert.import_weights(tmp_path / "hf", tmp_path / "each")
    save_file({n: t.contiguous() for n, t in original.state_dict().items()}, tmp_path / "hf" / "model.safetensors")
    convert.import_weights(tmp_path / "hf", tmp_path / "fused")
    each, fused = (checkpoint.latest(tmp_path / form).reader() for form in ("each", "fused"))
    assert each.tensors.keys() == fused.tensors.keys()
    assert all(torch.equal(each.whole(key), fused.whole(key)) for key in each.tensors)


def test_experts_lie_one_under_the_other(tmp_path):
    """What the engine's experts are, said once more by hand."""
    original = theirs("qwen3_moe")
    original.save_pretrained(tmp_path / "hf")
    convert.import_weights(tmp_path / "hf", tmp_path / "ours")
    reader = checkpoint.latest(tmp_path / "ours").reader()
    whole = original.state_dict()
    gate_up, down = (whole[f"model.layers.2.mlp.experts.{part}_proj"] for part in ("gate_up", "down"))
    assert torch.equal(reader.whole("model.layers.2.experts.gate.weight")[20 * 5 : 20 * 6], gate_up[5, :20])
    assert torch.equal(reader.whole("model.layers.2.experts.up.weight")[20 * 5 : 20 * 6], gate_up[5, 20:])
    assert torch.equal(reader.whole("model.layers.2.experts.down.weight")[20 * 5 : 20 * 6], down[5].t())


@pytest.mark.parametrize(("kind", "change", "words"), [
    ("mixtral", {"router_jitter_noise": 0.1}, "router_jitter_noise is 0.1"),
    ("mixtral", {"output_router_logits": True}, "output_router_logits is True"),
    ("mixtral", {"num_local_experts": None}, "num_local_experts must be given"),
    ("mixtral", {"num_shared_experts": 2}, "num_shared_experts is 2: the engine does not know this key"),
    ("qwen3_moe", {"mlp_only_layers": [1]}, r"mlp_only_layers is \[1\]: the engine has dense layers at the start alone"),
    ("qwen3_moe", {"use_qk_norm": False}, "use_qk_norm is False"),
    ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
    ("deepseek_v3", {"topk_method": "greedy"}, "topk_method is 'greedy'"),
    ("deepseek_v3", {"rope_interleave": False}, "rope_interleave is False"),
    ("deepseek_v3", {"rms_norm_eps": 1e-5}, "rms_norm_eps is 1e-05"),
    ("deepseek_v3", {"attention_bias": True}, "attention_bias is True"),
    ("deepseek_v3", {"num_key_value_heads": 2}, "num_key_value_heads is 2"),
    ("deepseek_v3", {"n_group": 3}, "8 experts are not a multiple of 3 groups"),
    ("gpt_oss", {"swiglu_limit": 5.0}, "swiglu_limit is 5.0"), ("gpt_oss", {"swiglu_alpha": 1.0}, "swiglu_alpha is 1.0"),
])
def test_a_key_that_changes_what_is_computed_is_known_or_refused(kind, change, words):
    import transformers

    prefix, config = CONFIGS[kind]
    plain = getattr(transformers, f"{prefix}Config")(**config).to_dict()
    hfconfig.model_of(plain, where="config.json")
    with pytest.raises(BadInput, match=words):
        hfconfig.model_of({**plain, **change}, where="config.json")


@pytest.mark.parametrize(("kind", "keys"), [
    ("deepseek_v3", {"aux_loss_alpha": 0.001, "seq_aux": True, "ep_size": 1, "pretraining_tp": 1, "moe_layer_freq": 1}),
    ("qwen3_moe", {"use_qk_norm": True, "qkv_bias": False, "shared_expert_intermediate_size": 0}),
])
def test_keys_that_published_files_have_and_the_classes_have_not_are_known(kind, keys):
    import transformers

    prefix, config = CONFIGS[kind]
    plain = getattr(transformers, f"{prefix}Config")(**config).to_dict()
    assert hfconfig.model_of({**plain, **keys}, where="config.json") == hfconfig.model_of(plain, where="config.json")


VALUES = ([1], {"a": 1}, "x", -3, 0, 10**400, 1.5, float("nan"), True, False, None, [], [None], [0, 2])


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_configuration_with_another_kind_of_value(kind):
    import transformers

    prefix, config = CONFIGS[kind]
    plain = getattr(transformers, f"{prefix}Config")(**config).to_dict()
    for key, value in itertools.product(plain, VALUES):
        try:
            assert isinstance(hfconfig.model_of({**plain, key: value}, where="c"), Model)
        except BadInput as error:
            assert str(error).startswith("c"), (key, value)
        for inside in plain["rope_parameters"]:
            try:
                hfconfig.model_of({**plain, "rope_parameters": {**plain["rope_parameters"], inside: value}}, where="c")
            except BadInput as error:
                assert str(error).startswith("c"), (inside, value)


def test_weights_that_are_quantised_are_refused_and_their_model_can_be_planned(tmp_path):
    _, config = CONFIGS["mixtral"]
    stored = {"model_type": "mixtral", **config, "num_experts_per_tok": 2, "quantization_config": {"quant_method": "mxfp4"}}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(BadInput, match=r"stored as mxfp4 .* save them in bf16 first"):
        convert.import_weights(tmp_path, tmp_path / "ours")
    assert hfconfig.model_of(stored, where="config.json").experts == 4


def test_layers_that_draft_tokens_are_left_out_as_transformers_does(tmp_path):
    theirs("deepseek_v3").save_pretrained(tmp_path / "hf")
    file = tmp_path / "hf" / "model.safetensors"
    drafting = {f"model.layers.3.{name}.weight": torch.ones(2) for name in ("eh_proj", "enorm", "mlp.experts.0.up_proj")}
    save_file({**load_file(file), **drafting}, file)
    convert.import_weights(tmp_path / "hf", tmp_path / "ours")
    del drafting["model.layers.3.eh_proj.weight"]
    save_file({**{n: t for n, t in load_file(file).items() if "layers.3" not in n}, **drafting}, file)
    with pytest.raises(BadInput, match=r"tensor model.layers.3\S+, and 1 more, has no place"):
        convert.import_weights(tmp_path / "hf", tmp_path / "other")


SMALL = Model(layers=2, hidden=48, heads=6, vocab=300, seq=32, family="llama", experts=4)
DEEPSEEK = dict(latent=Latent(kv_rank=16), shared_experts=1, norm_eps=1e-6, router=Router(kind="sigmoid", correction=0.001))

GPT_OSS = dict(mlp="swiglu-clamped", biases="all", sinks=True, router=Router(bias=True))


def test_a_mixture_goes_out_as_the_type_that_can_say_it():
    choices = ({}, {"qk_norm": True}, DEEPSEEK, GPT_OSS)
    types = ["mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss"]
    assert [hfconfig.type_of(replace(SMALL, **each)) for each in choices] == types
    with pytest.raises(BadInput, match=re.escape("mixtral has no shared_experts 1, qwen3_moe has no qk_norm False")):
        hfconfig.type_of(replace(SMALL, shared_experts=1))


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3", "gpt-oss-120b"])
def test_parameters_of_presets_are_those_of_transformers(name):
    import transformers

    model = presets.model(name)
    config = hfconfig.config_of(model, dtype="bfloat16")
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    assert sum(p.numel() for p in built.parameters()) == parameters(model).total
    assert {e.theirs for e in tensor_names(model, fused=True)} == set(built.state_dict())


@pytest.mark.parametrize(("name", "kind", "said"), [
    ("mixtral-8x7b", "Mixtral", {}), ("gpt-oss-120b", "GptOss", {}),
    ("deepseek-v3", "DeepseekV3", {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
                                                    "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}}),
    ("qwen3-30b-a3b", "Qwen3Moe", {"num_hidden_layers": 48, "head_dim": 128, "norm_topk_prob": True, "rope_theta": 1e6}),
])
def test_presets_are_what_their_classes_fill_in(name, kind, said):
    """Their defaults are the published models', but for what is said; a balance loss is a run's choice."""
    import transformers

    preset = presets.model(name)
    config = getattr(transformers, f"{kind}Config")(**said).to_dict()
    found = hfconfig.model_of(config, where=name, seq=preset.seq)
    assert replace(found, name=preset.name) == replace(preset, router=replace(preset.router, aux_loss=0.0))


@pytest.mark.parametrize(("name", "total", "convention", "active"), [
    ("mixtral-8x7b", "46.7", "whole", "12.9"),
    ("qwen3-30b-a3b", "30.5", "whole", "3.3"),  # 3.353, which the card cuts
    ("qwen3-235b-a22b", "235", "whole", "22"),
    ("deepseek-v3", "671", "without word embedding", "37"),
    ("gpt-oss-120b", "116.8", "without word embedding", "5.1"),
])
def test_active_parameters_are_those_of_the_model_card(name, total, convention, active):
    p = parameters(presets.model(name))
    for value, published in ((p.total, total), (p.active - (p.embedding if convention != "whole" else 0), active)):
        how = ROUND_DOWN if published == "3.3" else ROUND_HALF_UP
        assert (Decimal(value) / 10**9).quantize(Decimal(published), how) == Decimal(published)


def causal(model: Model) -> float:
    """`model` FLOPs of a token, of the attention those alone that the mask leaves."""
    return (flops("model", model, samples=1) - 1.5 * model.layers * attention_core_forward(model)) / model.seq


@pytest.mark.parametrize(("name", "published"), [("deepseek-v3", 250e9)])
def test_flops_of_a_token_are_those_that_were_published(name, published):
    """Zhao et al., "Insights into DeepSeek-V3" (2025), table 2: sequences of 4096."""
    assert causal(replace(presets.model(name), seq=4096)) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen3-30b-a3b", "qwen3-235b-a22b"])
def test_flops_of_a_token_are_those_that_megatron_counts(name):
    """4 h p (h + h x kv / heads + s / 2) of attention, 4 h x 3/2 x width x top-k of experts, 2 h V of logits, times three."""
    m = presets.model(name)
    attention = 4 * m.heads * m.head_size * (m.hidden + m.hidden * m.kv / m.heads + m.seq / 2)
    expected = 3 * (m.layers * (attention + 6 * m.hidden * m.expert_inner * m.chosen) + 2 * m.hidden * m.vocab)
    assert causal(m) == pytest.approx(expected, rel=0.01)
