"""A plain FSDP2 training script, as teams have them: torch and nothing else, one process a rank, a line a step.

    torchrun --nproc-per-node 2 fsdp2.py --layers 8 --hidden 128 --heads 16 --zero 3 --gbs 16 --mbs 4

`fsdp2.toml` beside it tells seatrial how to start it, what it can run and how to read its lines; see docs/howto/engines.md.
"""
import argparse
import contextlib
import faulthandler
import functools
import importlib.metadata
import json
import os
import platform
import resource
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


def arguments(**more):
    yes = {"type": lambda text: text.lower() in ("true", "1", "yes")}
    whole = {"layers": 8, "hidden": 128, "heads": 16, "kv-heads": 0, "ffn": 512, "vocab": 256, "seq": 64, "gbs": 16, "mbs": 4,
             "zero": 3, "zero-group": 0, "steps": 10, "seed": 1234}
    words = {"positions": ("learned", "rope"), "norm": ("layernorm", "rmsnorm"), "mlp": ("gelu", "swiglu"),
             "recompute": ("none", "full"), "precision": ("fp32", "bf16"), "device": ("auto", "cpu", "cuda")}
    parser = argparse.ArgumentParser()
    for name, usual in {**whole, **words, **more}.items():
        if isinstance(usual, tuple):
            parser.add_argument(f"--{name}", choices=usual, default=usual[0])
        else:
            parser.add_argument(f"--{name}", type=type(usual), default=usual)
    parser.add_argument("--tied", default=True, **yes)
    parser.add_argument("--biased", default=True, **yes)
    parser.add_argument("--compile", default=False, **yes)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--clip", type=float, default=1.0)
    return parser.parse_args()


class Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads, self.kv, self.size = a.heads, a.kv_heads or a.heads, a.hidden // a.heads
        self.qkv = nn.Linear(a.hidden, (self.heads + 2 * self.kv) * self.size, bias=a.biased)
        self.out = nn.Linear(self.heads * self.size, a.hidden, bias=a.biased)
        self.rope = a.positions == "rope"

    def forward(self, x_BSH):
        batch, seq, _ = x_BSH.shape
        widths = [self.heads * self.size, self.kv * self.size, self.kv * self.size]
        q, k, v = (part.view(batch, seq, -1, self.size).transpose(1, 2) for part in self.qkv(x_BSH).split(widths, dim=-1))
        if self.rope:
            q, k = rotated(q), rotated(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, -1))


@functools.lru_cache(maxsize=8)
def waves(seq, size, device, dtype, base=10_000.0):
    angles = torch.outer(torch.arange(seq, dtype=torch.float32), base ** (-torch.arange(0, size, 2) / size))
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def rotated(x):
    cos, sin = waves(x.shape[-2], x.shape[-1], x.device, x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        norm = nn.LayerNorm if a.norm == "layernorm" else functools.partial(nn.RMSNorm, eps=1e-5)
        self.norm1, self.norm2, self.attention = norm(a.hidden), norm(a.hidden), Attention(a)
        self.gate = nn.Linear(a.hidden, a.ffn, bias=False) if a.mlp == "swiglu" else None
        self.up, self.down = nn.Linear(a.hidden, a.ffn, bias=a.biased), nn.Linear(a.ffn, a.hidden, bias=a.biased)
        self.recompute = a.recompute == "full"

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False) if self.recompute else self.block(x)

    def block(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        inner = F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        return x + self.down(inner)


def initialize(model):
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.tokens = nn.Embedding(a.vocab, a.hidden)
        self.places = nn.Embedding(a.seq, a.hidden) if a.positions == "learned" else None
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.hidden) if a.norm == "layernorm" else nn.RMSNorm(a.hidden, eps=1e-5)
        self.head = nn.Linear(a.hidden, a.vocab, bias=False)
        initialize(self)
        if a.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def parallel(model, a, device):
    """ZeRO 0 is DDP; 2 and 3 are FSDP2, with the weights kept after forward or not; a smaller group is HSDP."""
    world = dist.get_world_size()
    if a.zero == 0:
        return DistributedDataParallel(model) if world > 1 else model
    group = a.zero_group or world
    shape, names = ((world // group, group), ("replicate", "shard")) if group < world else ((world,), ("shard",))
    how = {"mesh": init_device_mesh(device.type, shape, mesh_dim_names=names), "reshard_after_forward": a.zero == 3}
    if a.precision == "bf16":
        how["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, **how)
    fully_shard(model, **how)
    if device.type == "cpu":
        by_sums(model, world)
    return model


def by_sums(model, world):
    """gloo has no average: sums, divided beside them."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(float(world))
            module.set_force_sum_reduction_for_comms(True)


def applied(model):
    """What the model really is, for whoever compares it with what was asked."""
    if not isinstance(model, FSDPModule):
        return {"zero": 0, "zero_group": dist.get_world_size(), "precision": "fp32"}
    # What is left to the whole model is settled in its first step alone.
    parts = (module._get_fsdp_state()._fsdp_param_group for module in model.modules()
             if isinstance(module, FSDPModule) and module is not model)
    groups = [part for part in parts if part is not None]
    return {"zero": 3 if any(group.post_forward_mesh_info is not None for group in groups) else 2,
            "zero_group": groups[0].mesh_info.shard_mesh_size,
            "precision": "bf16" if groups[0].mp_policy.param_dtype is torch.bfloat16 else "fp32"}


def sizes(model):
    """Of the model that was built, by the words of a trial; of its parts where it is a pipeline's stage."""
    model = getattr(model, "module", model)
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    if not blocks:
        return {}
    one = blocks[0]
    return {"layers": len(blocks), "hidden": one.up.in_features, "ffn": one.up.out_features, "heads": one.attention.heads,
            "kv_heads": one.attention.kv, "recompute": "full" if one.recompute else "none",
            "mlp": "gelu" if one.gate is None else "swiglu"}


def begin(a, engine, init=True):
    """(rank, device); a stuck rank can be asked where it stands from then on."""
    rank = int(os.environ["RANK"])
    if folder := os.environ.get("SEATRIAL_RUN_DIR"):
        os.makedirs(f"{folder}/watch", exist_ok=True)
        stacks = open(f"{folder}/watch/rank{rank}.stacks", "w")  # noqa: SIM115
        faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=True)
    name = "cuda" if a.device == "cuda" or a.device == "auto" and torch.cuda.is_available() else "cpu"
    device = torch.device(name, int(os.environ["LOCAL_RANK"]) if name == "cuda" else 0)
    if name == "cuda":
        torch.cuda.set_device(device)
    if init:
        dist.init_process_group("nccl" if name == "cuda" else "gloo")
    if rank == 0:
        said = {"engine": engine, "engine_version": version(engine), "torch": torch.__version__,
                "python": platform.python_version(), "device": torch.cuda.get_device_name() if name == "cuda" else "cpu"}
        print("seatrial-engine", json.dumps(said), flush=True)
    return rank, device


def version(engine):
    try:
        return importlib.metadata.version(engine)
    except importlib.metadata.PackageNotFoundError:
        return ""


def say(count, **applied):
    """What was built, before the first step: the words are those of a trial."""
    print(f"{count:,} parameters on this rank", flush=True)
    print("seatrial-applied", json.dumps(applied), flush=True)


def passed(began, device):
    """Seconds until the device is done: on a GPU a step, its collectives too, is only handed over until then."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def line(a, step, loss, norm, seconds, device):
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = torch.cuda.max_memory_reserved() if device.type == "cuda" else own
    norm = "-" if norm is None else f"{float(norm):.4f}"
    print(f"step {step}/{a.steps} | loss {float(loss):.5f} | grad norm {norm} | {seconds:.5f} s | {peak / 2**30:.3f} GiB",
          flush=True)


def handed_on(stage):
    """A list that gets the sum of each tensor that a pipeline's stage hands on."""
    kept = []
    stage.register_forward_hook(lambda _, __, out: kept.append(out.detach().sum()))
    return kept


def lost(rank, step, own):
    """`own`: stage -> its losses, or sums of what it hands on, before any sum over ranks. Says the first stage of this rank where
    one is no number: the first of all stages has the rank where it began."""
    bad = [stage for stage, found in own.items() if not torch.isfinite(torch.stack(found)).all()]
    if bad:
        print("seatrial-nan", json.dumps({"rank": rank, "step": step, "stage": min(bad)}), flush=True)
    for found in own.values():
        found.clear()


def leave():
    """Taking gloo's threads down can stand still, once in some hundred times, and nothing is left to do."""
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def main():
    a = arguments()
    rank, device = begin(a, "fsdp2")
    world, name = dist.get_world_size(), device.type
    if a.gbs % (a.mbs * world):
        raise ValueError(f"global batch {a.gbs} is not a multiple of micro-batch {a.mbs} x {world} ranks")
    torch.manual_seed(a.seed)
    model = Model(a).to(device)
    count = sum(p.numel() for p in model.parameters())
    model = parallel(model, a, device)
    if a.compile:
        model.compile()
    half = a.precision == "bf16" and not isinstance(model, FSDPModule)
    if rank == 0:
        what = sizes(model) | applied(model) | ({"precision": "bf16"} if half else {})
        say(count, dp=world, tp=1, pp=1, cp=1, gbs=a.gbs, mbs=a.mbs, seq=a.seq, **what)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    draw = torch.Generator().manual_seed(a.seed * world + rank)
    microbatches = a.gbs // (a.mbs * world)
    for step in range(1, a.steps + 1):
        began, total = time.perf_counter(), torch.zeros((), device=device)
        for number in range(microbatches):
            tokens = torch.randint(0, a.vocab, (a.mbs, a.seq + 1), generator=draw).to(device)
            last = number == microbatches - 1
            waits = model.no_sync() if isinstance(model, DistributedDataParallel) and not last else contextlib.nullcontext()
            with waits, torch.autocast(name, torch.bfloat16, enabled=half):
                loss = model(tokens[:, :-1], tokens[:, 1:]) / microbatches
                loss.backward()
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), a.clip or float("inf"))
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        optimizer.step()
        optimizer.zero_grad()
        own = {0: [total.clone()]}
        dist.all_reduce(total)
        seconds = passed(began, device)
        if rank == 0:
            line(a, step, total / world, norm, seconds, device)
        lost(rank, step, own)
    leave()


if __name__ == "__main__":
    main()
