"""A plain training script on DeepSpeed, with ZeRO 0 to 3 or its pipeline: ds_config.json says how, the arguments what.

    torchrun --nproc-per-node 2 ds_train.py --config ds_config.json --layers 8 --hidden 128 --heads 16 --pp 2 --steps 10

The model is that of `fsdp2.py` beside it; `deepspeed.toml` tells seatrial how to start it and how to read its lines.
"""
import os
import sys
import time

import fsdp2
import torch
import torch.nn.functional as F
from torch import nn

on_gpu = torch.cuda.is_available() and "--device" not in sys.argv or "cuda" in sys.argv
if not on_gpu:
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed  # noqa: E402 - it looks for its accelerator when it is imported
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec  # noqa: E402

# Its shared-memory reductions are compiled at the first start, which takes minutes, and gloo does without.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


class Embedding(nn.Module):
    """The first stage's part, and by its weight the head's where they are tied."""

    def __init__(self, a):
        super().__init__()
        self.tokens = nn.Embedding(a.vocab, a.hidden)
        self.places = nn.Embedding(a.seq, a.hidden) if a.positions == "learned" else None
        fsdp2.initialize(self)

    @property
    def weight(self):
        return self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens)
        return x if self.places is None else x + self.places(torch.arange(tokens.shape[1], device=tokens.device))


class Block(fsdp2.Block):
    """With its first values when it is made: a stage makes its own layers alone."""

    def __init__(self, a):
        super().__init__(a)
        fsdp2.initialize(self)


class Head(nn.Linear):
    def __init__(self, a):
        super().__init__(a.hidden, a.vocab, bias=False)
        fsdp2.initialize(self)


def pipeline(a):
    norm = LayerSpec(nn.LayerNorm if a.norm == "layernorm" else nn.RMSNorm, a.hidden, eps=1e-5)
    blocks = [LayerSpec(Block, a) for _ in range(a.layers)]
    if a.tied:
        first = TiedLayerSpec("embedding", Embedding, a, tied_weight_attr="weight")
        last = TiedLayerSpec("embedding", Embedding, a, forward_fn=lambda layer, x: F.linear(x, layer.weight),
                             tied_weight_attr="weight")
    else:
        first, last = LayerSpec(Embedding, a), LayerSpec(Head, a)
    return PipelineModule([first, *blocks, norm, last], num_stages=a.pp, partition_method="type:Block",
                          loss_fn=lambda logits, targets: F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten()))


def applied(engine, a):
    """What DeepSpeed made of its JSON file."""
    half = "bf16" if engine.bfloat16_enabled() else "fp16" if engine.fp16_enabled() else "fp32"
    stages = engine.grid.pipe_parallel_size if a.pp > 1 else 1
    return {"dp": engine.dp_world_size, "pp": stages, "tp": 1, "cp": 1, "vp": 1, "gbs": engine.train_batch_size(),
            "mbs": engine.train_micro_batch_size_per_gpu(), "zero": engine.zero_optimization_stage(), "precision": half,
            **({"schedule": "1f1b", "layers": sum(spec.typename is Block for spec in engine.module._layer_specs
                                                 if isinstance(spec, LayerSpec))} if stages > 1 else {})}


def main():
    a = fsdp2.arguments(config="ds_config.json", pp=1)
    rank, device = fsdp2.begin(a, "deepspeed", init=False)
    deepspeed.init_distributed("nccl" if device.type == "cuda" else "gloo")
    world = torch.distributed.get_world_size()
    torch.manual_seed(a.seed)
    model = pipeline(a) if a.pp > 1 else fsdp2.Model(a)
    count = sum(p.numel() for p in model.parameters())
    engine, *_ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=a.config)
    steps = engine.gradient_accumulation_steps()
    if rank == 0:
        fsdp2.say(count, **fsdp2.sizes(model) | applied(engine, a), seq=a.seq)
    replicas = world // a.pp  # neighbours; the same tokens on all stages of one
    draw = torch.Generator().manual_seed(a.seed * world + rank % replicas)
    own = {rank // replicas: fsdp2.handed_on(engine.module)} if a.pp > 1 else {0: []}

    def batches():
        while True:
            tokens = torch.randint(0, a.vocab, (a.mbs, a.seq + 1), generator=draw).to(device)
            yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    data = batches()
    for step in range(1, a.steps + 1):
        began = time.perf_counter()
        if a.pp > 1:
            total = engine.train_batch(data)  # the mean of all, on every rank
        else:
            total = torch.zeros((), device=device)
            for _ in range(steps):
                loss = engine(*next(data))
                engine.backward(loss)
                engine.step()
                total += loss.detach().float() / steps
            own[0].append(total.clone())
            torch.distributed.all_reduce(total)
            total = total / world
        seconds = fsdp2.passed(began, device)
        if rank == 0:
            fsdp2.line(a, step, total, engine.get_global_grad_norm(), seconds, device)  # of ZeRO 0 in fp32 it keeps no norm
        fsdp2.lost(rank, step, own)
    fsdp2.leave()


if __name__ == "__main__":
    main()
