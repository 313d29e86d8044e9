"""Megatron-core behind a small script: its GPTModel, schedules, data parallelism and optimizer, on random tokens.

    torchrun --nproc-per-node 2 mcore_train.py --layers 8 --hidden 128 --heads 16 --tp 2 --zero 1 --steps 10

`megatron-core` of the package index has no training loop; this is one. Without a GPU it runs on gloo through `cpu_cuda.py`.
Layers are its local ones (no Transformer Engine, no Apex), with torch's attention.
"""
import resource
import sys
import time
import typing

import fsdp2
import torch
import torch.nn.functional as F

if not hasattr(typing, "override"):  # Python 3.12's
    from typing_extensions import override

    typing.override = override


def attention(MegatronModule):
    class Attention(MegatronModule):
        """The core of a layer's attention by torch; Megatron's layout is [sequence, batch, heads, head]."""

        def __init__(self, config, layer_number, attn_mask_type, attention_type, *_, **__):
            super().__init__(config=config)

        def forward(self, q, k, v, *_, **__):
            seq, batch, heads, size = q.shape
            q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1])
            return mixed.permute(2, 0, 1, 3).reshape(seq, batch, heads * size)

    return Attention


def main():
    a = fsdp2.arguments(tp=1, pp=1, vp=1)
    real = torch.cuda.is_available() and a.device != "cpu"
    if not real:
        import cpu_cuda

        cpu_cuda.install()
        a.device = "cpu"
    rank, device = fsdp2.begin(a, "megatron-core")
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer.module import Float16Module, MegatronModule
    from megatron.core.transformer.transformer_config import TransformerConfig

    parallel_state.initialize_model_parallel(a.tp, a.pp, a.vp if a.vp > 1 else None)
    tensor_parallel.model_parallel_cuda_manual_seed(a.seed)
    data_ranks = parallel_state.get_data_parallel_world_size()
    init_num_microbatches_calculator(rank, None, a.gbs, a.mbs, data_ranks)
    half = torch.bfloat16 if a.precision == "bf16" else torch.float32
    config = TransformerConfig(
        num_layers=a.layers, hidden_size=a.hidden, num_attention_heads=a.heads, num_query_groups=a.kv_heads or a.heads,
        ffn_hidden_size=a.ffn, attention_dropout=0.0, hidden_dropout=0.0, add_bias_linear=a.biased,
        normalization="LayerNorm" if a.norm == "layernorm" else "RMSNorm", gated_linear_unit=a.mlp == "swiglu",
        activation_func=F.silu if a.mlp == "swiglu" else F.gelu, bf16=half is torch.bfloat16, params_dtype=half,
        pipeline_dtype=half, tensor_model_parallel_size=a.tp, pipeline_model_parallel_size=a.pp,
        virtual_pipeline_model_parallel_size=a.vp if a.vp > 1 else None, masked_softmax_fusion=False, persist_layer_norm=False,
        bias_activation_fusion=False, bias_dropout_fusion=False, gradient_accumulation_fusion=False,
        recompute_granularity=None if a.recompute == "none" else a.recompute,
        recompute_method="uniform" if a.recompute == "full" else None,
        recompute_num_layers=1 if a.recompute == "full" else None, deallocate_pipeline_outputs=True)  # fmt: skip
    spec = get_gpt_layer_local_spec(normalization=config.normalization)
    spec.submodules.self_attention.submodules.core_attention = attention(MegatronModule)
    chunks = []
    for part in range(a.vp):
        ends = {"vp_stage": part, "ignore_virtual": False} if a.vp > 1 else {}
        model = GPTModel(
            config=config, transformer_layer_spec=spec, vocab_size=a.vocab, max_sequence_length=a.seq,
            pre_process=parallel_state.is_pipeline_first_stage(**ends),
            post_process=parallel_state.is_pipeline_last_stage(**ends),
            share_embeddings_and_output_weights=a.tied, vp_stage=part if a.vp > 1 else None,
            position_embedding_type="rope" if a.positions == "rope" else "learned_absolute").to(device)  # fmt: skip
        model = Float16Module(config, model) if half is torch.bfloat16 else model
        ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=real,
                                            use_distributed_optimizer=a.zero == 1)
        chunks.append(DistributedDataParallel(config, ddp, model))
    optimizer = get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=a.lr, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.95, bf16=half is torch.bfloat16,
        params_dtype=half, clip_grad=a.clip, use_distributed_optimizer=a.zero == 1), chunks)  # fmt: skip
    config.finalize_model_grads_func, config.grad_scale_func = finalize_model_grads, optimizer.scale_loss
    microbatches = a.gbs // (a.mbs * data_ranks)
    last = parallel_state.is_pipeline_last_stage(ignore_virtual=True)
    speaks = rank == torch.distributed.get_world_size() - 1
    if speaks:
        count = sum(p.numel() for chunk in chunks for p in chunk.parameters())
        print(f"{count:,} parameters on this rank; tensor parallel {a.tp}, stages {a.pp}, data parallel {data_ranks}, global "
              f"batch {microbatches * a.mbs * data_ranks}, sequence {a.seq}, layers {a.layers}, hidden {a.hidden}", flush=True)
    draw = torch.Generator().manual_seed(a.seed * data_ranks + parallel_state.get_data_parallel_rank())
    places = torch.arange(a.seq, device=device).unsqueeze(0).expand(a.mbs, a.seq).contiguous()

    def batches():
        while True:
            yield torch.randint(0, a.vocab, (a.mbs, a.seq + 1), generator=draw).to(device)

    def forward(data, model):
        tokens = next(data)
        out = model(tokens[:, :-1].contiguous(), places, None, labels=tokens[:, 1:].contiguous())

        def loss(losses):
            mean = losses.float().mean()
            return mean, {"loss": mean.detach().clone()}  # the schedule divides it in place

        return out, loss

    step_func, data = get_forward_backward_func(), [batches() for _ in chunks]
    for step in range(1, a.steps + 1):
        began = time.perf_counter()
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        said = step_func(forward_step_func=forward, data_iterator=data if a.vp > 1 else data[0], model=chunks,
                         num_microbatches=microbatches, seq_length=a.seq, micro_batch_size=a.mbs, forward_only=False)
        good, norm, _ = optimizer.step()
        total = torch.stack([one["loss"] for one in said]).mean() if last else torch.zeros((), device=device)
        if last:
            torch.distributed.all_reduce(total, group=parallel_state.get_data_parallel_group())
        peak = torch.cuda.max_memory_reserved() if real else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        seconds = time.perf_counter() - began
        if speaks:
            print(f"step {step}/{a.steps} | loss {float(total) / data_ranks:.5f} | grad norm {float(norm or 0):.4f} | "
                  f"{seconds:.5f} s | {peak / 2**30:.3f} GiB", flush=True)
        if not good:
            sys.exit(f"RuntimeError: step {step} had gradients that are no numbers")
    fsdp2.leave()


if __name__ == "__main__":
    main()
