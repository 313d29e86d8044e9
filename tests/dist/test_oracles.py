"""The engine's gradients are those of others: of torch's own pipeline and FSDP2, and of transformers for each model type."""
from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from dist.many import first_step, gradients, in_world, joined
from dist.native import Found, compare_each, size_of
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.io.data import Batches
from seatrial.huggingface.hfconfig import model_of
from seatrial.huggingface.names import tensor_names
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

RECIPE = Recipe(steps=1, clip=0.0)
EXECUTION = Execution(bucket_mib=0.05)


UNTIED = Model(layers=4, hidden=32, heads=4, vocab=101, seq=16, tied=False)
LAYOUTS = [dict(dp=2, pp=2), dict(dp=2, pp=2, zero=3), dict(dp=2, pp=2, schedule="zb-h1", zero=1), dict(dp=2, tp=2),
           dict(tp=2, pp=2)]


@pytest.fixture(scope="module")
def beside_native() -> list[dict[str, Found]]:
    """What each of four ranks found, by layout."""
    trials = {str(layout): Trial(model=UNTIED, batch=Batch(gbs=8), topology=Topology(**layout),
                                 execution=EXECUTION) for layout in LAYOUTS}
    return in_world(4, compare_each, trials, RECIPE)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients_are_those_of_torch_native(layout: dict, beside_native: list[dict[str, Found]]) -> None:
    for of_rank in beside_native:
        ours, theirs, worst, checked = of_rank[str(layout)]
        assert ours == pytest.approx(theirs, rel=1e-5)
        assert checked > 0 and worst < 1e-5


ROTARY = dict(num_hidden_layers=2, hidden_size=48, num_attention_heads=6, num_key_value_heads=2, vocab_size=300,
              intermediate_size=80, max_position_embeddings=32, rms_norm_eps=1e-5)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 2.0,
        "beta_slow": 0.25}
HF = {
    "gpt2": ("GPT2", dict(n_layer=2, n_embd=48, n_head=4, n_positions=32, vocab_size=300, attn_pdrop=0, embd_pdrop=0,
                          resid_pdrop=0)),
    "bloom": ("Bloom", dict(n_layer=2, hidden_size=48, n_head=6, vocab_size=300, seq_length=32)),
    "llama": ("Llama", ROTARY),
    "llama-3.1": ("Llama", dict(**ROTARY, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3)),
    "mistral": ("Mistral", dict(**ROTARY, sliding_window=32, head_dim=16)),
    "qwen2": ("Qwen2", ROTARY),
    "qwen3": ("Qwen3", dict(**ROTARY, head_dim=24)),
    "llama packed": ("Llama", ROTARY),
    "mixtral": ("Mixtral", dict(**ROTARY, num_local_experts=4)),
    "qwen3_moe": ("Qwen3Moe", dict(**ROTARY, head_dim=24, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=20,
                                   mlp_only_layers=[0])),
    "qwen3_moe normalised": ("Qwen3Moe", dict(**ROTARY, num_experts=8, num_experts_per_tok=4, moe_intermediate_size=20,
                                              norm_topk_prob=True, decoder_sparse_step=2)),
    "deepseek_v3": ("DeepseekV3", dict(
        **{**ROTARY, "num_key_value_heads": 6, "rms_norm_eps": 1e-6},
        rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 0.8}, n_routed_experts=8, num_experts_per_tok=3, n_group=4,
        topk_group=2, moe_intermediate_size=20, n_shared_experts=2, first_k_dense_replace=1, q_lora_rank=28, kv_lora_rank=12,
        qk_rope_head_dim=8, qk_nope_head_dim=10, v_head_dim=14)),
    "gpt_oss": ("GptOss", dict(**ROTARY, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
                               rope_parameters={**YARN, "truncate": False})),
}  # fmt: skip


DIVIDED = {"gpt2": dict(cp=4), "bloom": dict(cp=4, cp_kind="gather"), "llama-3.1": dict(cp=4, cp_kind="ulysses+ring"),
           "qwen3": dict(cp=2, dp=2), "llama packed": dict(cp=2, dp=2),
           "mixtral": dict(dp=2, tp=2, ep=4, etp=1), "qwen3_moe": dict(dp=2, cp=2, ep=2)}
"""The sequence over ranks, by the three kinds of positions and with norms over heads; and experts."""
PACKED = {"llama packed": "uniform:1:12"}
"""Documents, where they hide under a mask from those of transformers; positions go on."""


def beside(family: str, **layout: Any) -> tuple[Any, Trial]:
    """Theirs, and a trial of ours with the same model."""
    import transformers

    prefix, config = HF[family]
    head = "LMHeadModel" if family == "gpt2" else "ForCausalLM"
    theirs = getattr(transformers, prefix + head)(getattr(transformers, prefix + "Config")(**config)).train()
    model = model_of(theirs.config.to_dict(), where=family)
    batch = Batch(gbs=4, documents=PACKED.get(family))
    return theirs, Trial(model=model, batch=batch, topology=Topology(mbs=2, **layout), execution=EXECUTION)


Gradients = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def divided() -> dict[str, tuple[float, float, Gradients]]:
    ranks = in_world(4, first_step, {family: beside(family, **layout)[1] for family, layout in DIVIDED.items()}, RECIPE)
    whole = {family: joined((name, at, torch.from_numpy(values)) for rank in ranks for name, at, values in rank[family][2])
             for family in DIVIDED}
    return {family: (*ranks[0][family][:2], whole[family]) for family in DIVIDED}


def mask(documents: tuple[tuple[int, ...], ...] | None, seq: int) -> dict[str, torch.Tensor]:
    """What is added to the scores, [samples, 1, queries, keys]; theirs is causal where there is none."""
    if documents is None:
        return {}
    added = torch.full((len(documents), 1, seq, seq), torch.finfo(torch.float32).min)
    for sample, starts in enumerate(documents):
        for start, end in itertools.pairwise((*starts, seq)):
            added[sample, 0, start:end, start:end].triu_(1)
    return {"attention_mask": added}


@pytest.mark.parametrize("family", HF)
def test_gradients_are_those_of_transformers(family: str, divided: dict[str, tuple[float, float, Gradients]]) -> None:
    theirs, trial = beside(family)
    model = trial.model
    engine = Engine(trial, RECIPE, Mesh(trial.topology, device=torch.device("cpu")))
    entries = tensor_names(model, fused=True)
    for shard in engine.shards():
        if shard.name.endswith("correction"):  # starts at 0, which would hide a mistake
            with shard.changing() as numbers:
                numbers.copy_(torch.linspace(-0.1, 0.1, numbers.numel()).roll(3))
    weights = joined((s.name, s.offsets, s.tensor) for s in engine.shards() if s.kind == "weight")
    with torch.no_grad():
        for entry in entries:
            theirs.state_dict()[entry.theirs].copy_(entry.made_of(weights, model))
    batches = Batches(RECIPE, model, RECIPE.seed, documents=trial.batch.documents)
    tokens, targets = batches.microbatch(0, 4)
    loss = torch.nn.functional.cross_entropy(theirs(tokens, **mask(batches.documents(0, 4), model.seq)).logits.flatten(0, 1),
                                             targets.flatten())
    loss.backward()
    result = engine.step(1, first_sample=0, batches=batches)
    found = [(result.loss, result.grad_norm, joined(gradients(engine)))]
    if family in divided:
        found.append(divided[family])
    parameters = dict(theirs.named_parameters())
    trained = [entry for entry in entries if entry.theirs in parameters]
    assert len(trained) == len(parameters)
    for our_loss, norm, ours in found:
        assert our_loss == pytest.approx(loss.item(), rel=1e-5)
        for entry in trained:
            expected = parameters[entry.theirs].grad
            assert expected is not None
            assert (entry.made_of(ours, model) - expected).norm() <= 1e-5 * size_of(expected, norm), entry.theirs
