"""Megatron-core behind a small script: its GPTModel, schedules, data parallelism and optimizer, on random tokens.

    torchrun --nproc-per-node 2 mcore_train.py --layers 8 --hidden 128 --heads 16 --tp 2 --zero 1 --steps 10

`megatron-core` of the package index has no training loop; this is one. Without a GPU it runs on gloo through `cpu_cuda.py`.
Layers are its local ones (no Transformer Engine, no Apex), with torch's attention.
"""
import sys
import time
import typing

import fsdp2
import torch
import torch.nn.functional as F

if not hasattr(typing, "override"):  # Python 3.12's
    from typing_extensions import override

    typing.override = override


real = torch.cuda.is_available() and "cpu" not in sys.argv
if not real:
    import cpu_cuda

    cpu_cuda.install()

from megatron.core import parallel_state, tensor_parallel  # noqa: E402 - it asks for the device when it is imported
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.num_microbatches_calculator import get_num_microbatches, init_num_microbatches_calculator  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer.module import Float16Module, MegatronModule  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402


class Attention(MegatronModule):
    """The core of a layer's attention by torch; Megatron's layout is [sequence, batch, heads, head]."""

    def __init__(self, config, layer_number, attn_mask_type, attention_type, *_, **__):
        super().__init__(config=config)

    def forward(self, q, k, v, *_, **__):
        seq, batch = q.shape[:2]
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1])
        return mixed.permute(2, 0, 1, 3).reshape(seq, batch, -1)


def applied(config, chunks):
    """What Megatron-core made of its arguments."""
    stages, virtual = parallel_state.get_pipeline_model_parallel_world_size(), len(chunks)
    return {"tp": parallel_state.get_tensor_model_parallel_world_size(), "pp": stages, "vp": virtual,
            "cp": parallel_state.get_context_parallel_world_size(), "dp": parallel_state.get_data_parallel_world_size(),
            "zero": int(chunks[0].ddp_config.use_distributed_optimizer), "sequence_parallel": config.sequence_parallel,
            "zero_group": parallel_state.get_data_parallel_group(with_context_parallel=True, partial_data_parallel=True).size(),
            "precision": "bf16" if config.bf16 else "fp32", "recompute": config.recompute_granularity or "none",
            "layers": config.num_layers, "hidden": config.hidden_size, "ffn": config.ffn_hidden_size,
            "heads": config.num_attention_heads, "kv_heads": config.num_query_groups,
            **({"recompute_modules": "+".join(config.recompute_modules)} if config.recompute_granularity == "selective" else {}),
            **({"schedule": "1f1b" if virtual == 1 else "interleaved"} if stages > 1 else {})}


def main():
    a = fsdp2.arguments(tp=1, pp=1, vp=1, recompute=("none", "full", "selective"), modules="core_attn")
    a.device = "cuda" if real else "cpu"
    rank, device = fsdp2.begin(a, "megatron-core")
    world = torch.distributed.get_world_size()
    # ZeRO 1 in groups is an optimizer that is whole several times.
    copies = max(1, world // (a.tp * a.pp * (a.zero_group or world))) if a.zero else 1
    parallel_state.initialize_model_parallel(a.tp, a.pp, a.vp if a.vp > 1 else None, num_distributed_optimizer_instances=copies)
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
        recompute_modules=a.modules.split("+"), recompute_method="uniform" if a.recompute == "full" else None,
        recompute_num_layers=1 if a.recompute == "full" else None,
        # As Megatron-LM has it: with virtual stages two ranks send each other two things at once, which a batch would mix up.
        # gloo still reads what is sent then, where NCCL's streams would keep it.
        overlap_p2p_comm=a.vp > 1, batch_p2p_comm=a.vp == 1, deallocate_pipeline_outputs=real or a.vp == 1)  # fmt: skip
    spec = get_gpt_layer_local_spec(normalization=config.normalization)
    spec.submodules.self_attention.submodules.core_attention = Attention
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
                                            use_distributed_optimizer=a.zero == 1, num_distributed_optimizer_instances=copies)
        chunks.append(DistributedDataParallel(config, ddp, model))
    optimizer = get_megatron_optimizer(OptimizerConfig(
        optimizer="adam", lr=a.lr, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.95, bf16=half is torch.bfloat16,
        params_dtype=half, clip_grad=a.clip, use_distributed_optimizer=a.zero == 1), chunks)  # fmt: skip
    config.finalize_model_grads_func, config.grad_scale_func = finalize_model_grads, optimizer.scale_loss
    last = parallel_state.is_pipeline_last_stage(ignore_virtual=True)
    stage = parallel_state.get_pipeline_model_parallel_rank()
    own = {part * a.pp + stage: fsdp2.handed_on(chunk) for part, chunk in enumerate(chunks)}
    speaks = rank == world - 1
    if speaks:
        count = sum(p.numel() for chunk in chunks for p in chunk.parameters())
        fsdp2.say(count, **applied(config, chunks), gbs=get_num_microbatches() * a.mbs * data_ranks, mbs=a.mbs, seq=a.seq)
    places = torch.arange(a.seq, device=device).unsqueeze(0).expand(a.mbs, a.seq).contiguous()

    def batches():
        """The same tokens on all stages of a data-parallel rank."""
        draw = torch.Generator().manual_seed(a.seed * data_ranks + parallel_state.get_data_parallel_rank())
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
                         num_microbatches=get_num_microbatches(), seq_length=a.seq, micro_batch_size=a.mbs, forward_only=False)
        good, norm, _ = optimizer.step()
        total = torch.stack([one["loss"] for one in said]).mean() if last else torch.zeros((), device=device)
        if last:
            torch.distributed.all_reduce(total, group=parallel_state.get_data_parallel_group())
        seconds = fsdp2.passed(began, device)
        if speaks:
            fsdp2.line(a, step, total / data_ranks, norm, seconds, device)
        fsdp2.lost(rank, step, own)
        if not good:
            sys.exit(f"RuntimeError: step {step} had gradients that are no numbers")
    fsdp2.leave()


if __name__ == "__main__":
    main()
