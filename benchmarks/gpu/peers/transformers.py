"""transformers' own model of the shape (GPT-2, Llama, Qwen3-MoE), fp32 weights under autocast, with torch's fused AdamW."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from benchmarks.gpu.peers.plain import trained
from benchmarks.gpu.shapes import Row
from torch import Tensor

from seatrial.spec import Model, Trial


def build(row: Row, trial: Trial, tokens: Tensor, targets: Tensor) -> Callable[[], Tensor]:
    m = trial.model
    with tokens.device:
        model = _model(m).train()
    run = torch.compile(model, disable=not row.compiled)

    def loss_of(tokens: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(run(tokens).logits.flatten(0, 1), targets.flatten())

    return trained(model, loss_of, tokens, targets, casts=True)


def _model(m: Model) -> Any:
    import transformers as hf

    known: dict[str, Any] = {"vocab_size": m.vocab, "use_cache": False, "attn_implementation": "sdpa"}
    if m.family == "gpt2":
        return hf.GPT2LMHeadModel(hf.GPT2Config(
            **known, n_positions=m.seq, n_embd=m.hidden, n_layer=m.layers, n_head=m.heads, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0))
    known |= {"hidden_size": m.hidden, "num_hidden_layers": m.layers, "num_attention_heads": m.heads,
              "num_key_value_heads": m.kv, "head_dim": m.head_size, "intermediate_size": m.inner, "rms_norm_eps": m.norm_eps,
              "max_position_embeddings": m.seq, "tie_word_embeddings": m.ties,
              "rope_parameters": {"rope_type": "default", "rope_theta": m.rope_theta}}
    if m.experts is None:
        return hf.LlamaForCausalLM(hf.LlamaConfig(**known))
    return hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(
        **known, num_experts=m.experts, num_experts_per_tok=m.chosen, moe_intermediate_size=m.expert_inner, norm_topk_prob=True,
        experts_implementation="grouped_mm"))
