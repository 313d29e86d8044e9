"""The same GPT out of torch's own parts: torch.distributed.pipelining x FSDP2 x DTensor. The oracle of the tests, the peer of
the benchmark.

    native = Native(trial, training, weights)           on every rank of a world of dp x tp x pp processes
    loss = native.forward_backward(first_sample=0)      the batch's mean loss on the last stage, gradients in place

Untied, since torch has no way to share an embedding between the first and the last stage.
"""
from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from dist.many import gradients
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.params import fill_normal
from seatrial.engine.core.step import Engine
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe
from seatrial.spec import Model, Trial, stages_of


class PlainBlock(nn.Module):
    def __init__(self, m: Model):
        super().__init__()
        self.head_dim = m.head_size
        self.norm1, self.norm2 = nn.LayerNorm(m.hidden, eps=m.norm_eps), nn.LayerNorm(m.hidden, eps=m.norm_eps)
        self.q, self.k, self.v, self.out = (nn.Linear(m.hidden, m.hidden) for _ in range(4))
        self.up, self.down = nn.Linear(m.hidden, m.inner), nn.Linear(m.inner, m.hidden)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        q, k, v = (f(h).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class PlainStage(nn.Module):
    def __init__(self, m: Model, first: int, last: int):
        super().__init__()
        self.tokens = nn.Embedding(m.vocab, m.hidden) if first == 0 else None
        self.positions = nn.Embedding(m.seq, m.hidden) if first == 0 else None
        self.layers = nn.ModuleDict({str(i): PlainBlock(m) for i in range(first, last)})
        self.final_norm = nn.LayerNorm(m.hidden, eps=m.norm_eps) if last == m.layers else None
        self.head = nn.Linear(m.hidden, m.vocab, bias=False) if last == m.layers else None

    def forward(self, x: Tensor) -> Tensor:
        if self.tokens is not None and self.positions is not None:
            x = self.tokens(x) + self.positions.weight
        for block in self.layers.values():
            x = block(x)
        return self.head(self.final_norm(x)) if self.head is not None and self.final_norm is not None else x


def our_name(name: str) -> str:
    """Ours of a parameter of PlainStage."""
    if name.startswith("layers."):
        _, number, rest = name.split(".", 2)
        part = rest.split(".")[0]
        group = {"q": "attn.", "k": "attn.", "v": "attn.", "out": "attn.", "up": "mlp.", "down": "mlp."}.get(part, "")
        return f"layers.{number}.{group}{rest}"
    return f"embed.{name}" if name.startswith(("tokens", "positions")) else name


def is_turned(name: str) -> bool:
    """Ours keeps what leads back into the residual stream as [in, out]."""
    return name.endswith(("out.weight", "down.weight"))


def fill(stage: PlainStage, model: Model, recipe: Recipe) -> None:
    """The engine's own first values."""
    with torch.no_grad():
        for name, p in stage.named_parameters():
            if p.dim() == 1:
                p.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
                continue
            std = recipe.init_std / ((2 * model.layers) ** 0.5 if is_turned(name) else 1.0)
            value = torch.empty(p.shape[::-1] if is_turned(name) else p.shape)
            fill_normal(value, seed=recipe.seed, name=our_name(name), first=0, std=std)
            p.copy_(value.t() if is_turned(name) else value)


class Native:
    def __init__(self, trial: Trial, recipe: Recipe):
        m, t = trial.model, trial.topology
        assert m.family == "gpt2" and not m.ties and t.vp == 1
        self.trial, self.batches = trial, Batches(recipe, m, recipe.seed)
        mesh = init_device_mesh("cpu", (t.pp, t.dp, t.tp), mesh_dim_names=("pp", "dp", "tp"))
        self.dp_rank, stage = mesh.get_local_rank("dp"), mesh.get_local_rank("pp")
        split = stages_of(m, t)
        self.module = PlainStage(m, sum(split[:stage]), sum(split[: stage + 1]))
        fill(self.module, m, recipe)
        if t.tp > 1:
            for block in self.module.layers.values():
                plan = {n: ColwiseParallel() for n in ("q", "k", "v", "up")} | {n: RowwiseParallel() for n in ("out", "down")}
                parallelize_module(block, mesh["tp"], plan)
            if self.module.head is not None:
                parallelize_module(self.module.head, mesh["tp"], ColwiseParallel(output_layouts=Replicate()))
        if t.dp > 1:
            for block in self.module.layers.values():
                fully_shard(block, mesh=mesh["dp"])
            fully_shard(self.module, mesh=mesh["dp"])
        self.microbatches = trial.batch.gbs // t.dp // t.mbs
        tokens = trial.batch.gbs * m.seq
        # FSDP takes the mean over the replicas, ours the sum.
        self.loss: Callable[[Tensor, Tensor], Tensor] = lambda logits, targets: t.dp * F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="sum") / tokens
        if t.pp > 1:
            pipe = PipelineStage(self.module, stage, t.pp, torch.device("cpu"), group=mesh.get_group("pp"))
            self.schedule = Schedule1F1B(pipe, self.microbatches, loss_fn=self.loss, scale_grads=False)
        self.is_first, self.is_last = stage == 0, stage == t.pp - 1

    def batch(self, first_sample: int) -> tuple[Tensor, Tensor]:
        t = self.trial.topology
        starts = [first_sample + (i * t.dp + self.dp_rank) * t.mbs for i in range(self.microbatches)]
        parts = [self.batches.microbatch(start, t.mbs) for start in starts]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    def forward_backward(self, first_sample: int) -> float:
        """This replica's share of the batch's mean loss (last stage; 0 elsewhere)."""
        tokens, targets = self.batch(first_sample)
        if self.trial.topology.pp == 1:
            loss = self.loss(self.module(tokens), targets)
            loss.backward()
            return loss.item() / self.trial.topology.dp
        losses: list[Tensor] = []
        inputs = [tokens] if self.is_first else []
        self.schedule.step(*inputs, **({"target": targets, "losses": losses} if self.is_last else {}))
        return sum(x.item() for x in losses) / self.trial.topology.dp

    def gradients(self) -> dict[str, Tensor]:
        """By our names, whole."""
        found = {}
        for name, p in self.module.named_parameters():
            grad = p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
            assert grad is not None
            found[our_name(name)] = grad.t().contiguous() if is_turned(name) else grad
        return found


def size_of(gradient: Tensor, whole_norm: float) -> float:
    """What an error is measured by. Keys' biases cancel in the softmax: their gradient is rounding alone, without a size."""
    return max(gradient.norm().item(), 0.01 * whole_norm)


Found = tuple[float, float, float, int]
"""The engine's loss, the native one's, the worst gradient's error, and how many numbers were compared."""


def compare(trial: Trial, recipe: Recipe) -> Found:
    native = Native(trial, recipe)
    share = torch.tensor(native.forward_backward(0))
    torch.distributed.all_reduce(share)
    expected = native.gradients()
    engine = Engine(trial, recipe, Mesh(trial.topology, device=torch.device("cpu")))
    result = engine.step(1, first_sample=0, batches=Batches(recipe, trial.model, recipe.seed))
    worst, checked = 0.0, 0
    for name, offsets, values in gradients(engine):
        theirs = expected[name][tuple(slice(o, o + n) for o, n in zip(offsets, values.shape))]
        worst = max(worst, (values - theirs).norm().item() / size_of(expected[name], result.grad_norm))
        checked += values.numel()
    return result.loss, share.item() / trial.topology.tp, worst, checked


def compare_each(trials: dict[str, Trial], recipe: Recipe) -> dict[str, Found]:
    return {label: compare(trial, recipe) for label, trial in trials.items()}
