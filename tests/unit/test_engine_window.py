"""Windows, sinks, clamped SwiGLU and scaled rotary positions, against plain formulas and against `transformers`."""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from seatrial import presets, rules
from seatrial.arith.parameters import parameters
from seatrial.engine.core.layers import clamped_swiglu
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.rope import cos_sin, frequencies, score_scale
from seatrial.engine.core.step import Engine
from seatrial.engine.core.window import look_back
from seatrial.errors import BadInput, Infeasible
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Topology, Trial

OSS = Model(family="llama", layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=40, vocab=101, seq=22, biases="all",
            mlp="swiglu-clamped", sinks=True, sliding_window=5, full_every=2, rope_theta=150_000.0, rope_scaling="yarn",
            rope_factor=32.0, rope_original_seq=4096, rope_truncate=False)


def naive(q: Tensor, k: Tensor, v: Tensor, window: int | None, sinks: Tensor | None) -> Tensor:
    """All scores at once, in double precision."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    back = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])[None]
    unseen = (back < 0) | (back >= (window or q.shape[2]))
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(unseen, -torch.inf)
    if sinks is not None:
        scores = torch.cat((scores, sinks.double()[:, None, None].expand(*scores.shape[:3], 1)), -1)
    return (scores.softmax(-1)[..., : q.shape[2]] @ v).transpose(1, 2).float()


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize(("seq", "window"), [(24, 8), (22, 5), (12, 7), (9, None), (6, 6), (5, 1)])
def test_a_window_and_sinks_are_what_all_scores_at_once_give(seq: int, window: int | None, sinks: bool) -> None:
    torch.manual_seed(3)
    given = [torch.randn(2, seq, heads, 8, requires_grad=True) for heads in (4, 2, 2)]
    sink = torch.randn(4, requires_grad=True) if sinks else None
    leaves, way = [*given, *([] if sink is None else [sink])], torch.randn(2, seq, 4, 8)
    found, expected = look_back(*given, window=window, sinks=sink), naive(*given, window, sink)
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(torch.autograd.grad(found, leaves, way), torch.autograd.grad(expected, leaves, way)):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_clamped_swiglu_is_that_of_gpt_oss() -> None:
    gate_up = (6.0 * torch.randn(64, 20)).requires_grad_()
    gate, up = gate_up.chunk(2, -1)
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    expected, found = (up + 1) * gate * torch.sigmoid(1.702 * gate), clamped_swiglu(gate_up)
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5)
    way = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(y, gate_up, way)[0] for y in (found, expected))
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert 0.1 < (theirs == 0).float().mean() < 0.5


YARN = dict(rope_scaling="yarn", rope_factor=40.0, rope_original_seq=4096)


@pytest.mark.parametrize("change", [
    YARN, {**YARN, "rope_truncate": False}, {**YARN, "rope_mscale": 0.707, "rope_mscale_all_dim": 1.0},
    {**YARN, "rope_mscale": 1.0, "rope_mscale_all_dim": 1.0}, {**YARN, "rope_beta_fast": 4.0, "rope_beta_slow": 2.0},
    {**YARN, "head_dim": 64, "rope_theta": 150_000.0, "rope_truncate": False, "rope_factor": 32.0},
])  # fmt: skip
def test_yarn_is_that_of_transformers(change: dict[str, Any]) -> None:
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    llama = pytest.importorskip("transformers").LlamaConfig
    model = replace(Model(family="llama", layers=1, hidden=32, heads=4, vocab=101, seq=16), **change)
    given = {"factor": model.rope_factor, "beta_fast": model.rope_beta_fast, "beta_slow": model.rope_beta_slow,
             "truncate": model.rope_truncate, "mscale": model.rope_mscale, "mscale_all_dim": model.rope_mscale_all_dim,
             "original_max_position_embeddings": model.rope_original_seq}
    config = llama(hidden_size=32, num_attention_heads=4, head_dim=model.head_size, max_position_embeddings=163_840,
                   rope_parameters={"rope_type": "yarn", "rope_theta": model.rope_theta,
                                    **{key: value for key, value in given.items() if value is not None}})
    theirs, factor = rope_utils.ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    assert torch.allclose(frequencies(model), theirs, rtol=1e-6, atol=0)
    cos, _ = cos_sin(model, torch.zeros(1))
    assert cos.flatten().tolist() == pytest.approx([factor] * (model.head_size // 2), rel=1e-7)


def test_deepseek_has_yarns_factor_on_the_scores() -> None:
    """As its own attention does: 1/√192 x (0.1 ln 40 + 1)²."""
    assert score_scale(presets.model("deepseek-v3")) == pytest.approx((0.1 * math.log(40) + 1) ** 2 / math.sqrt(192))
    assert score_scale(presets.model("gpt-oss-120b")) == 1 / 8


@pytest.mark.parametrize("number", [0, 1])
def test_attention_is_that_of_gpt_oss(number: int) -> None:
    """Layer 0 has a window, layer 1 none."""
    oss = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    torch.manual_seed(5)
    engine = Engine(Trial(model=OSS, batch=Batch(gbs=1), topology=Topology()), Recipe(),
                    Mesh(Topology(), device=torch.device("cpu")))
    block = engine.chunks[0].stage.blocks()[number][1]
    for p in block.parameters():
        p.data.normal_(0.0, 0.5)
    config = oss.GptOssConfig(num_hidden_layers=2, hidden_size=32, head_dim=8, num_attention_heads=4, num_key_value_heads=2,
                              sliding_window=5, num_local_experts=2, intermediate_size=8)
    config._attn_implementation = "eager"
    theirs = oss.GptOssAttention(config, number)
    with torch.no_grad():
        for to, weight, bias in zip((theirs.q_proj, theirs.k_proj, theirs.v_proj), block.qkv.weight.split((32, 16, 16)),
                                    block.qkv.bias.split((32, 16, 16))):
            to.weight.copy_(weight)
            to.bias.copy_(bias)
        theirs.o_proj.weight.copy_(block.out.weight.t())
        theirs.o_proj.bias.copy_(block.out.bias)
        theirs.sinks.copy_(block.sinks)
    x = torch.randn(2, OSS.seq, 32)
    back = torch.arange(OSS.seq)[:, None] - torch.arange(OSS.seq)[None]
    unseen = (back < 0) | (back >= (theirs.sliding_window or OSS.seq))
    turns = oss.GptOssRotaryEmbedding(config)(x, torch.arange(OSS.seq)[None])
    expected, _ = theirs(x, turns, torch.zeros(unseen.shape).masked_fill(unseen, -torch.inf)[None, None])
    block.norm1 = torch.nn.Identity()
    assert torch.allclose(block._attention(x), expected, rtol=1e-5, atol=1e-5)


def test_gpt_oss_has_as_many_parameters_as_there() -> None:
    oss = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    with torch.device("meta"):
        built = oss.GptOssForCausalLM(oss.GptOssConfig())
    model = presets.model("gpt-oss-120b")
    assert sum(p.numel() for p in built.parameters()) == parameters(model).total
    kinds = ["sliding_attention" if model.window(layer) else "full_attention" for layer in range(model.layers)]
    assert kinds == built.config.layer_types


def test_a_window_beside_a_divided_sequence_is_refused() -> None:
    trial = Trial(model=replace(OSS, seq=20), batch=Batch(gbs=2), topology=Topology(cp=2, cp_kind="ring"))
    with pytest.raises(Infeasible, match=r"sliding_window 5 in a sequence of 20 with CP 2: CP 1 would do"):
        rules.check(trial)
    rules.check(replace(trial, model=replace(OSS, seq=4)))


@pytest.mark.parametrize(("change", "says"), [
    (dict(full_every=2, sliding_window=None), "sliding_window says how far"),
    (dict(positions="alibi", rope_factor=None), "with ALiBi positions"),
    (dict(rope_beta_fast=1.0), "must be above rope_beta_slow"),
])  # fmt: skip
def test_what_does_not_go_together_is_said(change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        replace(OSS, **change)
