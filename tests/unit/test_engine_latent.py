"""Latent attention against `transformers`, number by number."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from seatrial.engine.core.latent import LatentAttention
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.errors import BadInput
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Latent, Model, Topology, Trial

MODEL = Model(family="llama", layers=1, hidden=32, heads=4, head_dim=6, ffn=40, vocab=101, seq=16, norm_eps=1e-6,
              latent=Latent(q_rank=14, kv_rank=10, rope_dim=4, value_dim=8))


def half_of(model: Model) -> LatentAttention:
    """The attention of a model's first layer, with weights that matter."""
    torch.manual_seed(7)
    engine = Engine(Trial(model=model, batch=Batch(gbs=1), topology=Topology()), Recipe(),
                    Mesh(Topology(), device=torch.device("cpu")))
    half = engine.chunks[0].stage.blocks()[0][1].latent
    assert half is not None
    for p in half.parameters():
        p.data.normal_(0.0, 0.3)
    return half


def theirs_of(model: Model, half: LatentAttention, rope: dict[str, Any]) -> Any:
    deepseek = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    latent = model.latent
    assert latent is not None
    config = deepseek.DeepseekV3Config(
        hidden_size=model.hidden, num_attention_heads=model.heads, num_key_value_heads=model.heads, q_lora_rank=latent.q_rank,
        kv_lora_rank=latent.kv_rank, qk_nope_head_dim=model.head_size, qk_rope_head_dim=latent.rope_dim,
        v_head_dim=latent.value_dim, rope_interleave=False, rope_parameters=rope, max_position_embeddings=64)
    config._attn_implementation = "eager"
    theirs = deepseek.DeepseekV3Attention(config, 0)
    with torch.no_grad():
        q_rank = latent.q_rank or 0
        if q_rank:
            theirs.q_a_proj.weight.copy_(half.down[:q_rank])
            theirs.q_a_layernorm.weight.copy_(half.q_norm.weight)  # type: ignore[union-attr]
            theirs.q_b_proj.weight.copy_(half.q_up)
        else:
            theirs.q_proj.weight.copy_(half.q_up)
        theirs.kv_a_proj_with_mqa.weight.copy_(half.down[q_rank:])
        theirs.kv_a_layernorm.weight.copy_(half.kv_norm.weight)
        theirs.kv_b_proj.weight.copy_(half.kv_up)
        theirs.o_proj.weight.copy_(half.out.t())
    turns = deepseek.DeepseekV3RotaryEmbedding(config)

    def run(x: Tensor) -> Tensor:
        seq = x.shape[1]
        mask = torch.full((seq, seq), -torch.inf).triu(1)[None, None]
        return theirs(x, turns(x, torch.arange(seq)[None]), mask)[0]  # type: ignore[no-any-return]

    return run


PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7,
        "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1}
SCALED = replace(MODEL, rope_scaling="yarn", rope_factor=4.0, rope_original_seq=16, rope_mscale=0.7, rope_mscale_all_dim=1.0)
STRAIGHT = replace(MODEL, latent=Latent(kv_rank=10, rope_dim=4, value_dim=12))


@pytest.mark.parametrize(("model", "rope"), [(MODEL, PLAIN), (STRAIGHT, PLAIN), (SCALED, YARN)],
                         ids=["compressed", "straight", "yarn"])
def test_it_computes_what_deepseek_does(model: Model, rope: dict[str, Any]) -> None:
    half = half_of(model)
    theirs = theirs_of(model, half, rope)
    x = torch.randn(2, model.seq, model.hidden)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    ours, expected = half(inputs[0], torch.nn.Identity()), theirs(inputs[1])
    assert torch.allclose(ours, expected, rtol=1e-5, atol=1e-5)
    way = torch.randn_like(x)
    for out in (ours, expected):
        out.backward(way)
    assert inputs[0].grad is not None and inputs[1].grad is not None
    assert torch.allclose(inputs[0].grad, inputs[1].grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("change", "says"), [
    (dict(positions="learned"), "a part of each head is rotated"),
    (dict(kv_heads=2), "kv_heads is 2 of 4"),
    (dict(biases="all"), "have none here"),
    (dict(qk_norm=True), "norms of their own"),
])  # fmt: skip
def test_what_does_not_go_with_it_is_said(change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        replace(MODEL, **change)
