"""Mixtures of experts in the words of a config.json: Mixtral, Qwen3-MoE, DeepSeek-V3, gpt-oss.

    words_of(read)              what a configuration says of experts, router and latent attention, in ours
    keys_of(model, kind)        and back
    why_not(model, kind)        what a type cannot say

Coefficients of losses and capacity are a run's, not the network's: they go out where there is a key, and are read from none.
"""
from __future__ import annotations

from typing import Any

from seatrial.errors import BadInput
from seatrial.fields import shown
from seatrial.huggingface.reading import Reader
from seatrial.spec import Model

CLASSES = {"mixtral": "MixtralForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
           "gpt_oss": "GptOssForCausalLM"}
FAMILY = {"mixtral": "mistral", "qwen3_moe": "qwen3", "deepseek_v3": "llama", "gpt_oss": "llama"}
"""The family of ours whose layers they have, but for the experts."""

_ALL = ("num_experts_per_tok", "output_router_logits", "router_aux_loss_coef")
KEYS = {
    "mixtral": (*_ALL, "num_local_experts", "router_jitter_noise"),
    "qwen3_moe": (*_ALL, "num_experts", "num_local_experts", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step",
                  "mlp_only_layers", "use_qk_norm"),
    "deepseek_v3": (*_ALL, "n_routed_experts", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace",
                    "moe_layer_freq", "n_group", "topk_group", "norm_topk_prob", "routed_scaling_factor", "scoring_func",
                    "topk_method", "q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "qk_head_dim",
                    "v_head_dim", "rope_interleave", "num_nextn_predict_layers", "num_mtp_layers", "ep_size",
                    "aux_loss_alpha", "seq_aux"),
    "gpt_oss": (*_ALL, "num_local_experts", "experts_per_token", "initial_context_length", "swiglu_alpha", "swiglu_limit"),
}  # fmt: skip

THETA = {"mixtral": 1_000_000.0, "gpt_oss": 150_000.0}
EPS = {"mixtral": 1e-5, "gpt_oss": 1e-5}
KV_HEADS = {"mixtral": 8, "qwen3_moe": 4, "gpt_oss": 8}
GPT_OSS_ROPE = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
"""What their classes fill in where a key is missing."""

CORRECTION = 0.001
"""DeepSeek-V3's report moves the bias of an expert by so much a step; its configuration does not say."""
LATENT_EPS = 1e-6
"""Of DeepSeek-V3's norms of compressed queries and keys, whatever rms_norm_eps is."""


def words_of(read: Reader) -> dict[str, Any]:
    kind = read.config["model_type"]
    read.must("output_router_logits", False, None)  # there the balance loss takes all layers for one
    found = dict(top_k=read.number("num_experts_per_tok"))
    return found | {"mixtral": _mixtral, "qwen3_moe": _qwen3, "deepseek_v3": _deepseek, "gpt_oss": _gpt_oss}[kind](read)


def _mixtral(read: Reader) -> dict[str, Any]:
    read.must("router_jitter_noise", 0.0, None)
    return dict(experts=read.number("num_local_experts"))


def _qwen3(read: Reader) -> dict[str, Any]:
    read.must("use_qk_norm", True, None)
    dense = read.config.get("mlp_only_layers") or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        raise BadInput(f"{read.where}: mlp_only_layers is {shown(dense)}: the engine has dense layers at the start alone, "
                       "as [] or [0, 1]")
    return dict(experts=read.number("num_experts", "num_local_experts"), expert_ffn=read.number("moe_intermediate_size"),
                dense_layers=len(dense), expert_every=read.number("decoder_sparse_step", default=1),
                router={"normalised": read.flag("norm_topk_prob", default=False)})


def _deepseek(read: Reader) -> dict[str, Any]:
    config, heads = read.config, read.number("num_attention_heads")
    read.must("scoring_func", "sigmoid")
    read.must("topk_method", "noaux_tc")
    read.must("moe_layer_freq", 1, None)
    read.must("rope_interleave", True)
    read.must("rms_norm_eps", LATENT_EPS)
    read.must("num_key_value_heads", heads, None)
    groups, limit = read.number("n_group", default=8), read.number("topk_group", default=4)
    queries = None if config.get("q_lora_rank", 1536) is None else read.number("q_lora_rank", default=1536)
    latent = {"q_rank": queries, "kv_rank": read.number("kv_lora_rank"), "rope_dim": read.number("qk_rope_head_dim"),
              "value_dim": read.number("v_head_dim")}
    router = {"kind": "sigmoid", "normalised": read.flag("norm_topk_prob", default=True), "correction": CORRECTION,
              "scale": config.get("routed_scaling_factor", 2.5), "groups": groups,
              "group_limit": limit if limit != groups else None}
    return dict(experts=read.number("n_routed_experts"), shared_experts=read.number("n_shared_experts", default=1),
                expert_ffn=read.number("moe_intermediate_size"), dense_layers=read.count("first_k_dense_replace", default=3),
                head_dim=read.number("qk_nope_head_dim"), kv_heads=None, latent=latent, router=router)


def _gpt_oss(read: Reader) -> dict[str, Any]:
    read.must("swiglu_alpha", 1.702)
    read.must("swiglu_limit", 7.0)
    return dict(experts=read.number("num_local_experts"), mlp="swiglu-clamped", sinks=True, router={"bias": True})


def why_not(model: Model, kind: str) -> str | None:
    m, r = model, model.router
    deepseek, qwen = kind == "deepseek_v3", kind == "qwen3_moe"
    if not m.mixture:
        return "mixture without experts"
    said = [  # whether the type can say it, and what it is
        (m.is_latent == deepseek, "latent attention" if m.is_latent else "attention without latent"),
        (m.has_sinks == (kind == "gpt_oss"), f"sinks {m.has_sinks}"),
        ((m.shared or 0) > 0 if deepseek else not m.shared, f"shared_experts {m.shared}"),
        (m.dense_layers == 0 or deepseek or qwen, f"dense_layers {m.dense_layers}"),
        (m.expert_every == 1 or qwen, f"expert_every {m.expert_every}"),
        ((r.kind == "sigmoid") == deepseek, f"router.kind {r.kind}"),
        (r.corrected == deepseek, f"router.correction {r.correction}"),
        (r.normalised or deepseek or qwen, f"router.normalised {r.normalised}"),
        (r.scale == 1 or deepseek, f"router.scale {r.scale}"),
        (r.groups == 1 or deepseek, f"router.groups {r.groups}"),
        (r.bias == (kind == "gpt_oss"), f"router.bias {r.bias}"),
        (not deepseek or m.norm_eps == LATENT_EPS, f"norm_eps {m.norm_eps}, where its latent norms have {LATENT_EPS}"),
        (not deepseek or m.kv == m.heads, f"kv_heads {m.kv}"),
    ]
    return next((words for fits, words in said if not fits), None)


def keys_of(model: Model, kind: str) -> dict[str, Any]:
    m, r = model, model.router
    made: dict[str, Any] = {"num_experts_per_tok": m.chosen, "output_router_logits": False, "router_aux_loss_coef": r.aux_loss}
    if kind == "qwen3_moe":
        return made | {"num_experts": m.experts, "moe_intermediate_size": m.expert_inner, "norm_topk_prob": r.normalised,
                       "decoder_sparse_step": m.expert_every, "mlp_only_layers": list(range(m.dense_layers))}
    if m.latent is not None:
        return made | {
            "n_routed_experts": m.experts, "n_shared_experts": m.shared, "moe_intermediate_size": m.expert_inner,
            "first_k_dense_replace": m.dense_layers, "n_group": r.groups, "topk_group": r.limit,
            "norm_topk_prob": r.normalised, "routed_scaling_factor": r.scale, "scoring_func": "sigmoid",
            "topk_method": "noaux_tc", "moe_layer_freq": 1, "q_lora_rank": m.latent.q_rank, "kv_lora_rank": m.kv_rank,
            "qk_rope_head_dim": m.rope_dim, "qk_nope_head_dim": m.head_size, "v_head_dim": m.value_dim,
            "head_dim": m.rope_dim, "rope_interleave": True, "num_nextn_predict_layers": 0}
    made |= {"num_local_experts": m.experts, "intermediate_size": m.expert_inner}
    if kind == "mixtral":
        return made | {"router_jitter_noise": 0.0}
    return made | {"swiglu_alpha": 1.702, "swiglu_limit": 7.0}
