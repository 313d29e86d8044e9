"""Megatron-core as it runs without Transformer Engine and Apex: its local layers and compiled fusions, bf16 weights, fp32
gradients and masters. Attention is torch's SDPA, given through the layer's spec; AdamW is torch's, fused."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.gpu.peers import ADAMW, CLIP, alone
from benchmarks.gpu.shapes import Row
from torch import Tensor

from seatrial.spec import Model, Trial


def build(row: Row, trial: Trial, tokens: Tensor, targets: Tensor) -> Callable[[], Tensor]:
    alone()
    torch.distributed.init_process_group("nccl" if tokens.is_cuda else "gloo")
    from megatron.core import optimizer as optimizers
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.gpt import GPTModel
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer.module import Float16Module

    m, mbs = trial.model, trial.topology.mbs
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(1234)
    init_num_microbatches_calculator(0, None, mbs, mbs, 1)
    config = _config(m, fused=row.compiled)
    model = GPTModel(config=config, transformer_layer_spec=_layer(m), vocab_size=m.vocab, max_sequence_length=m.seq,
                     position_embedding_type="rope" if m.rope else "learned_absolute", rotary_base=m.rope_theta,
                     share_embeddings_and_output_weights=m.ties).to(tokens.device)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True),
                                    Float16Module(config, model))
    by_lists = optimizers.Adam
    optimizers.Adam = lambda *given, **named: by_lists(*given, **named, fused=True)
    (beta1, beta2) = ADAMW["betas"]
    optimizer = optimizers.get_megatron_optimizer(optimizers.OptimizerConfig(
        optimizer="adam", lr=ADAMW["lr"], weight_decay=ADAMW["weight_decay"], adam_beta1=beta1, adam_beta2=beta2, bf16=True,
        params_dtype=torch.bfloat16, clip_grad=CLIP), [model])
    config.finalize_model_grads_func, config.grad_scale_func = finalize_model_grads, optimizer.scale_loss
    places = torch.arange(m.seq, device=tokens.device).expand(mbs, m.seq)
    run = get_forward_backward_func()

    def forward(_: Any, model: Any) -> tuple[Tensor, Callable[[Tensor], Any]]:
        def mean(losses: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            loss = losses.float().mean()
            return loss, {"loss": loss.detach()}

        return model(tokens, places, None, labels=targets), mean

    def step() -> Tensor:
        model.zero_grad_buffer()
        optimizer.zero_grad()
        (said,) = run(forward_step_func=forward, data_iterator=None, model=[model], num_microbatches=1, seq_length=m.seq,
                      micro_batch_size=mbs, forward_only=False)
        optimizer.step()
        return said["loss"]  # type: ignore[no-any-return]

    return step


def _config(m: Model, *, fused: bool) -> Any:
    from megatron.core.transformer.transformer_config import TransformerConfig

    return TransformerConfig(
        num_layers=m.layers, hidden_size=m.hidden, num_attention_heads=m.heads, num_query_groups=m.kv, ffn_hidden_size=m.inner,
        kv_channels=m.head_size, attention_dropout=0.0, hidden_dropout=0.0, layernorm_epsilon=m.norm_eps,
        normalization="LayerNorm" if m.layernorm else "RMSNorm", gated_linear_unit=m.gated,
        activation_func=F.silu if m.gated else F.gelu, add_bias_linear=m.architecture.biases == "all",
        bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, bias_activation_fusion=fused,
        bias_dropout_fusion=fused, cross_entropy_loss_fusion=fused, cross_entropy_fusion_impl="native",
        masked_softmax_fusion=False, persist_layer_norm=False, gradient_accumulation_fusion=False,
        deallocate_pipeline_outputs=False)


def _layer(m: Model) -> Any:
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.module import MegatronModule

    class Sdpa(MegatronModule):  # type: ignore[misc]
        def __init__(self, config: Any, *_: Any, **__: Any):
            super().__init__(config=config)

        def forward(self, q_SBND: Tensor, k_SBND: Tensor, v_SBND: Tensor, *_: Any, **__: Any) -> Tensor:
            q, k, v = (t.permute(1, 2, 0, 3) for t in (q_SBND, k_SBND, v_SBND))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=m.kv != m.heads)
            return mixed.permute(2, 0, 1, 3).flatten(2)

    spec = get_gpt_layer_local_spec(normalization="LayerNorm" if m.layernorm else "RMSNorm")
    spec.submodules.self_attention.submodules.core_attention = Sdpa
    return spec
