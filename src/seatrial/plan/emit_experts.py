"""Experts and latent attention in Megatron-LM's flags (megatron/core/transformer/transformer_config.py, megatron/training).

    list(experts(trial))        [("--num-experts", "128"), …]: nothing where the model has none
    list(latent(model))         [("--multi-latent-attention",), …]
    list(beyond(trial))         what its flags cannot say
"""
from __future__ import annotations

from collections.abc import Iterator

from seatrial.spec import Model, Router, Trial

BALANCES = {"sequence": "seq_aux_loss", "rank": "aux_loss", "global": "global_aux_loss"}
"""Tokens over which the balance loss is counted -> its word for it."""


def experts(trial: Trial) -> Iterator[tuple[str, ...]]:
    m, t, r = trial.model, trial.topology, trial.model.router
    if not m.mixture:
        return
    yield "--num-experts", str(m.experts)
    yield "--moe-router-topk", str(m.chosen)
    yield "--moe-ffn-hidden-size", str(m.expert_inner)
    if m.shared_inner:
        yield "--moe-shared-expert-intermediate-size", str(m.shared_inner)
        if t.moe_dispatcher == "alltoall" and not (t.recompute == "selective" and "shared_experts" in t.modules(m)):
            yield ("--moe-shared-expert-overlap",)
    if m.dense_layers:
        yield "--moe-layer-freq", str([int(m.has_experts(layer)) for layer in range(m.layers)]).replace(" ", "")
    elif m.expert_every > 1:
        yield "--moe-layer-freq", str(m.expert_every)
    yield "--expert-model-parallel-size", str(t.ep)
    yield "--expert-tensor-parallel-size", str(t.expert_tp)
    yield "--moe-token-dispatcher-type", t.moe_dispatcher
    if t.moe_dispatcher == "flex":
        yield ("--moe-enable-deepep",)  # what it sends by; the default from 0.15 on
    yield ("--moe-grouped-gemm",)
    yield ("--moe-permute-fusion",)
    yield "--moe-router-score-function", r.kind
    yield "--moe-router-dtype", "fp32"
    if r.kind == "softmax" and not r.normalised:
        yield ("--moe-router-pre-softmax",)
    if r.groups > 1:
        yield "--moe-router-num-groups", str(r.groups)
        yield "--moe-router-group-topk", str(r.limit)
    if r.scale != 1.0:
        yield "--moe-router-topk-scaling-factor", repr(r.scale)
    if r.correction is not None:
        yield ("--moe-router-enable-expert-bias",)
        yield "--moe-router-bias-update-rate", repr(r.correction)
    yield "--moe-router-load-balancing-type", BALANCES[r.over] if r.aux_loss else "none"
    if r.aux_loss:
        yield "--moe-aux-loss-coeff", repr(r.aux_loss)
    if r.z_loss:
        yield "--moe-z-loss-coeff", repr(r.z_loss)
    if r.capacity is not None:
        yield "--moe-expert-capacity-factor", repr(r.capacity)
        yield "--moe-token-drop-policy", "position"  # its own default drops the least probable
    if t.moe_balance == "forced":
        yield ("--moe-router-force-load-balancing",)


def latent(m: Model) -> Iterator[tuple[str, ...]]:
    if m.latent is None:
        return
    yield ("--multi-latent-attention",)
    if m.latent.q_rank is not None:
        yield "--q-lora-rank", str(m.latent.q_rank)
    yield "--kv-lora-rank", str(m.latent.kv_rank)
    yield "--qk-head-dim", str(m.head_size)
    yield "--qk-pos-emb-head-dim", str(m.latent.rope_dim)
    yield "--v-head-dim", str(m.latent.value_dim)
    yield ("--qk-layernorm",)  # the norms of what is compressed
    yield "--rope-type", "yarn" if m.yarn else "rope"
    if m.yarn:
        yield "--rotary-scaling-factor", repr(m.rope_factor or 1.0)
        yield "--mscale", repr(m.rope_mscale or 1.0)
        yield "--mscale-all-dim", repr(m.rope_mscale_all_dim or 0.0)


def beyond(trial: Trial) -> Iterator[str]:
    m, r = trial.model, trial.model.router
    if m.rope_factor is not None and m.yarn and (m.latent is None or (m.rope_original_seq, m.rope_beta_fast, m.rope_beta_slow)
                                                 != (4096, 32.0, 1.0)):  # fmt: skip
        yield "YaRN but of latent attention, from a sequence of 4096 and between 1 and 32 turns, is not among its flags"
    if m.has_windows or m.sinks:
        yield "windows and sinks of attention are not written for Megatron-LM"
    if m.architecture.mlp == "swiglu-clamped":
        yield "a clamped SwiGLU is not written for Megatron-LM"
    if m.mixture and m.chosen is not None:
        yield from _routers(m, r, m.chosen)
        if m.mlp_bias and trial.topology.expert_tp > 1:
            yield f"biases of experts with ETP {trial.topology.expert_tp}: Megatron-LM has them with ETP 1 alone"


def _routers(m: Model, r: Router, chosen: int) -> Iterator[str]:
    """megatron/core/transformer/moe/router.py, moe_utils.py, and what transformer_config.py refuses."""
    if r.kind == "sigmoid" and not r.normalised and chosen > 1:
        yield "sigmoid scores that do not add up to 1 are not in Megatron-LM's router"
    if r.normalised and chosen == 1:
        yield "top_k 1 with weights that add up to 1, so that the router learns nothing: normalised = false would do"
    if r.corrected and r.kind != "sigmoid":
        yield f"a correction of {r.kind} scores: Megatron-LM has one with sigmoid alone"
    if r.limit < r.groups:
        if r.kind == "softmax" and r.normalised:
            yield "groups of a softmax that is taken after the choice: Megatron-LM ranks them by logits"
        best, each = min(2, (m.experts or 0) // r.groups), chosen // r.limit
        if each != best:
            yield f"groups by their {best} best scores: Megatron-LM takes top_k {chosen} / {r.limit} groups = {each} of each"
    if r.bias and m.architecture.biases != "all":
        yield "a bias of the router alone is not in Megatron-LM: its linears all have one, or none"
    if r.capacity is not None and r.over != "rank":
        yield f"capacity over {r.over}: Megatron-LM counts it over the tokens of a rank"
