"""A transformers model under accelerate: DDP for ZeRO 0, FSDP2 for ZeRO 2 and 3, on random tokens.

    torchrun --nproc-per-node 2 accelerate_train.py --layers 8 --hidden 128 --heads 16 --zero 3 --gbs 16 --mbs 4

GPT-2 or Llama, by the positions that are asked for. `fsdp2.py` beside it has the arguments and the lines; `accelerate.toml`
tells seatrial how to start it. What was really wrapped is said, not what was asked: on a CPU accelerate leaves an FSDP plugin
out without a word, and `put_back` is there for that.
"""
import os
import time

import fsdp2
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.fsdp import FSDPModule
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


def network(a):
    if a.positions == "rope":
        return LlamaForCausalLM(LlamaConfig(
            num_hidden_layers=a.layers, hidden_size=a.hidden, num_attention_heads=a.heads,
            num_key_value_heads=a.kv_heads or a.heads, intermediate_size=a.ffn, vocab_size=a.vocab,
            max_position_embeddings=a.seq, tie_word_embeddings=a.tied, attention_bias=a.biased, mlp_bias=a.biased,
            use_cache=False))  # fmt: skip
    return GPT2LMHeadModel(GPT2Config(
        n_layer=a.layers, n_embd=a.hidden, n_head=a.heads, n_inner=a.ffn, vocab_size=a.vocab, n_positions=a.seq,
        activation_function="gelu", attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=a.tied,
        use_cache=False, bos_token_id=0, eos_token_id=0))  # fmt: skip


def put_back(plugin, precision):
    """FSDP where accelerate dropped it, with its precision: its state is shared by all that ask."""
    if precision == "bf16":
        plugin.set_mixed_precision(precision)
    AcceleratorState._shared_state["distributed_type"] = DistributedType.FSDP
    AcceleratorState._shared_state["fsdp_plugin"] = plugin


def accelerated(model, a, microbatches, cpu):
    plugin = None
    if a.zero:
        block = type(model.model.layers[0] if a.positions == "rope" else model.transformer.h[0]).__name__
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, reshard_after_forward=a.zero == 3, auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=[block], cpu_ram_efficient_loading=False)  # fmt: skip
    found = Accelerator(cpu=cpu, gradient_accumulation_steps=microbatches, fsdp_plugin=plugin,
                        mixed_precision="bf16" if a.precision == "bf16" else "no")
    if plugin is not None and found.distributed_type != DistributedType.FSDP:
        put_back(plugin, a.precision)
    return found


def applied(model, accelerator):
    """What accelerate made of it, by the words of a trial."""
    inner = model.module if hasattr(model, "module") else model
    shape, half = inner.config, accelerator.mixed_precision if accelerator.mixed_precision != "no" else "fp32"
    return {"layers": shape.num_hidden_layers, "hidden": shape.hidden_size, "heads": shape.num_attention_heads,
            "kv_heads": getattr(shape, "num_key_value_heads", shape.num_attention_heads),
            "recompute": "full" if inner.is_gradient_checkpointing else "none", **fsdp2.applied(model),
            **({} if isinstance(model, FSDPModule) else {"precision": half})}


def main():
    a = fsdp2.arguments()
    rank, device = fsdp2.begin(a, "accelerate", init=False)
    world = int(os.environ["WORLD_SIZE"])
    if a.gbs % (a.mbs * world):
        raise ValueError(f"global batch {a.gbs} is not a multiple of micro-batch {a.mbs} x {world} ranks")
    if a.zero == 1:
        raise ValueError("ZeRO 1 is not supported: FSDP2 shards gradients as well")
    microbatches = a.gbs // (a.mbs * world)
    torch.manual_seed(a.seed)
    model = network(a)
    if a.recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    count = sum(p.numel() for p in model.parameters())
    accelerator = accelerated(model, a, microbatches, device.type == "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr, betas=(0.9, 0.95), weight_decay=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    if device.type == "cpu":
        fsdp2.by_sums(model, world)
    if rank == 0:
        fsdp2.say(count, dp=world, tp=1, pp=1, cp=1, gbs=microbatches * a.mbs * world, mbs=a.mbs, seq=a.seq,
                  **applied(model, accelerator))
    model.train()
    draw = torch.Generator().manual_seed(a.seed * world + rank)
    for step in range(1, a.steps + 1):
        began, total = time.perf_counter(), torch.zeros((), device=device)
        for _ in range(microbatches):
            with accelerator.accumulate(model):
                tokens = torch.randint(0, a.vocab, (a.mbs, a.seq), generator=draw).to(device)
                loss = model(input_ids=tokens, labels=tokens).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    norm = accelerator.clip_grad_norm_(model.parameters(), a.clip or float("inf"))
                optimizer.step()
                optimizer.zero_grad()
            total += loss.detach().float() / microbatches
        own = {0: [total.clone()]}
        torch.distributed.all_reduce(total)
        seconds = fsdp2.passed(began, device)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        if rank == 0:
            fsdp2.line(a, step, total / world, norm, seconds, device)
        fsdp2.lost(rank, step, own)
    fsdp2.leave()


if __name__ == "__main__":
    main()
