"""Bytes that one layer of Megatron-core keeps for its backward pass, with modules recomputed: its local layers, on the CPU.

    PYTHONPATH=examples/engines .engines/megatron-core/bin/python tests/mcore_saved.py dense none mlp mlp+layernorm

Prints a JSON object, list of modules -> bytes of storages that tensors saved for backward hold when the forward pass is over.
"""
import contextlib
import json
import os
import sys
import types

sys.argv += ["cpu"]
import mcore_train  # noqa: E402 - with a stand-in for CUDA
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from megatron.core import parallel_state, tensor_parallel  # noqa: E402
from megatron.core.fusions.fused_bias_swiglu import weighted_bias_swiglu_impl  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.transformer import multi_latent_attention  # noqa: E402
from megatron.core.transformer.moe import experts, moe_utils  # noqa: E402
from megatron.core.transformer.spec_utils import build_module  # noqa: E402
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig  # noqa: E402

SEQ, HIDDEN, HEADS, FFN, EXPERT, COUNT, TOP, SHARED, Q_RANK, KV_RANK, NOPE, ROPE, VALUE = (
    64, 128, 4, 320, 96, 8, 2, 192, 48, 32, 24, 8, 32)
COMMON = dict(num_layers=1, hidden_size=HIDDEN, num_attention_heads=HEADS, ffn_hidden_size=FFN, attention_dropout=0.0,
              hidden_dropout=0.0, add_bias_linear=False, normalization="LayerNorm", gated_linear_unit=True,
              activation_func=F.silu, bf16=True, params_dtype=torch.bfloat16, masked_softmax_fusion=False,
              persist_layer_norm=False, bias_activation_fusion=True, bias_dropout_fusion=False,
              gradient_accumulation_fusion=False)
MIXTURE = dict(num_moe_experts=COUNT, moe_router_topk=TOP, moe_ffn_hidden_size=EXPERT, moe_grouped_gemm=True,
               moe_shared_expert_intermediate_size=SHARED, moe_token_dispatcher_type="alltoall", moe_router_dtype="fp32",
               multi_latent_attention=True, q_lora_rank=Q_RANK, kv_lora_rank=KV_RANK, qk_head_dim=NOPE,
               qk_pos_emb_head_dim=ROPE, v_head_dim=VALUE, qk_layernorm=True, rope_type="rope", apply_rope_fusion=False)


def grouped(rows, weights, sizes, trans_b=False):
    """What the library of grouped GEMMs computes and keeps: a GEMM an expert over pieces of one input."""
    return torch.cat([part @ weight for part, weight in zip(rows.split(sizes.tolist()), weights)])


def kept(kind, modules):
    asked = {} if modules == "none" else {"recompute_granularity": "selective", "recompute_modules": modules.split("+")}
    torch.manual_seed(0)
    if kind == "dense":
        config, spec = TransformerConfig(**COMMON, **asked), get_gpt_layer_local_spec(normalization="LayerNorm")
    else:
        config = MLATransformerConfig(**COMMON, **MIXTURE, **asked)
        spec = get_gpt_layer_local_spec(num_experts=COUNT, moe_grouped_gemm=True, moe_use_legacy_grouped_gemm=True,
                                        qk_layernorm=True, multi_latent_attention=True, normalization="LayerNorm")
    spec.submodules.self_attention.submodules.core_attention = mcore_train.Attention
    layer = build_module(spec, config=config, layer_number=1).to(torch.bfloat16).train()
    if kind == "mixture":  # the kernel that its layers with Transformer Engine have
        layer.mlp.experts.activation_func_with_probs = lambda x, probs: weighted_bias_swiglu_impl(x, None, probs)
    weights = {p.untyped_storage()._cdata for p in layer.parameters()}
    saved = []
    given = torch.randn(SEQ, 1, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        out, _ = layer(given, attention_mask=None)
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in saved}
    total = sum(size for where, size in storages.items() if where not in weights)
    out.float().sum().backward()  # what was left out is made again
    assert given.grad is not None and torch.isfinite(given.grad).all()
    return total


if __name__ == "__main__":
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    library = types.SimpleNamespace(ops=types.SimpleNamespace(gmm=grouped), assert_grouped_gemm_is_available=lambda: None)
    experts.gg = library
    # Of Transformer Engine, which its checkpoints without output ask even outside of fp8.
    tensor_parallel.random.FP8GlobalStateManager = types.SimpleNamespace(is_fp8_enabled=lambda: False)
    for name in ("activation_recompute_forward", "fp8_autocast"):
        setattr(tensor_parallel.random, name, lambda **_: contextlib.nullcontext())
    multi_latent_attention.TELinear = type("TELinear", (), {})
    moe_utils.te_general_gemm = None
    print(json.dumps({modules: kept(sys.argv[1], modules) for modules in sys.argv[2:-1]}))
