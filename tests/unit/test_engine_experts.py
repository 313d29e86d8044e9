"""A layer of experts on one process against a plain version that autograd differentiates, token by token."""
from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from seatrial.engine.core.experts import ExpertParallel, Experts, choose
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.core.tokensets import runs_at
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Router, Topology, Trial

MODEL = Model(family="llama", layers=1, hidden=16, heads=2, vocab=31, seq=12, ffn=32, experts=6, top_k=2, shared_experts=1,
              expert_ffn=10)
ROUTERS = {
    "softmax": Router(),
    "not normalised": Router(normalised=False, scale=1.7),
    "bias and z": Router(bias=True, z_loss=0.3),
    "aux of a sequence": Router(aux_loss=0.7),
    "aux of a rank": Router(aux_loss=0.7, over="rank"),
    "sigmoid in groups": Router(kind="sigmoid", groups=3, group_limit=2, correction=0.01, scale=2.5, aux_loss=0.2),
    "capacity": Router(capacity=0.8, aux_loss=0.4),
    "capacity of a rank": Router(capacity=1.0, over="rank"),
}


def _layer(model: Model, **layout: Any) -> tuple[Experts, ExpertParallel]:
    trial = Trial(model=model, batch=Batch(gbs=4), topology=Topology(mbs=2, **layout))
    engine = Engine(trial, Recipe(steps=1, init_std=0.4), Mesh(trial.topology, device=torch.device("cpu")))
    for bucket in engine.buckets:
        bucket.begin(1)
    common = engine.shared.experts
    assert common is not None
    layer = common.layers[0]
    generator = torch.Generator().manual_seed(3)
    for bias in (layer.router_bias, layer.up_bias, layer.down_bias):
        if bias is not None:
            bias.data.copy_(torch.randn(bias.shape, generator=generator))
    if layer.correction is not None:
        layer.correction.copy_(torch.randn(layer.correction.shape, generator=generator) * 0.2)
    return layer, common


def _plain(model: Model, weights: dict[str, Tensor], correction: Tensor | None, h_BSH: Tensor) -> tuple[Tensor, Tensor, int]:
    """Output, the sum of the balance losses, dropped choices."""
    r, k, experts = model.router, model.chosen or 0, model.experts or 0
    batch, seq, hidden = h_BSH.shape
    x = h_BSH.reshape(-1, hidden)
    logits = x @ weights["router"].t() + weights.get("router_bias", torch.zeros(experts))
    scores = logits.softmax(-1) if r.kind == "softmax" else logits.sigmoid()
    sets = [range(b * seq, (b + 1) * seq) for b in range(batch)] if r.over == "sequence" else [range(batch * seq)]
    chosen: list[list[int]] = []
    for token in range(batch * seq):
        ranked = scores[token].detach() + (0.0 if correction is None else correction)
        per = experts // r.groups
        best = sorted(range(r.groups), key=lambda g: -ranked[g * per : (g + 1) * per].topk(min(2, per)).values.sum())[: r.limit]
        allowed = [e for g in best for e in range(g * per, (g + 1) * per)]
        chosen.append(sorted(allowed, key=lambda e: -ranked[e])[:k])
    loss, out, dropped = torch.zeros(()), [], 0
    for tokens in sets:
        counts, taken = Counter(e for t in tokens for e in chosen[t]), Counter[int]()
        for t in tokens:
            share = scores[t] if r.kind == "softmax" else scores[t] / scores[t].sum()
            loss = loss + r.z_loss * torch.logsumexp(logits[t], 0) ** 2
            for e in range(experts):
                loss = loss + r.aux_loss * experts * counts[e] / (len(tokens) * k) * share[e]
            total = scores[t][chosen[t]].sum() if r.normalised else 1.0
            y = torch.zeros(hidden)
            for e in chosen[t]:
                if r.capacity is not None and taken[e] >= math.ceil(r.capacity * len(tokens) * k / experts):
                    dropped += 1
                    continue
                taken[e] += 1
                y = y + r.scale * scores[t][e] / total * _expert(model, weights, e, x[t])
            if "shared_up" in weights:
                gate, up = (weights["shared_up"] @ x[t]).chunk(2)
                y = y + (F.silu(gate) * up) @ weights["shared_down"]
            out.append(y)
    return torch.stack(out).view_as(h_BSH), loss, dropped


def _expert(model: Model, weights: dict[str, Tensor], e: int, x: Tensor) -> Tensor:
    width = model.expert_inner or 0
    up = weights["up"].view(model.experts or 0, -1, model.hidden)[e] @ x
    if "up_bias" in weights:
        up = up + weights["up_bias"].view(model.experts or 0, -1)[e]
    if model.architecture.mlp == "gelu":
        inner = F.gelu(up, approximate="tanh")
    elif model.architecture.mlp == "swiglu":
        inner = F.silu(up[:width]) * up[width:]
    else:
        gate = up[:width].clamp(max=7.0)
        inner = gate * torch.sigmoid(1.702 * gate) * (up[width:].clamp(-7.0, 7.0) + 1.0)
    y = inner @ weights["down"].view(model.experts or 0, -1, model.hidden)[e]
    return y + weights["down_bias"][e] if "down_bias" in weights else y


CASES = {name: replace(MODEL, shared_experts=0, router=router) for name, router in ROUTERS.items()}
CASES["shared"] = replace(MODEL, shared_experts=2)
CASES["gelu and biases"] = replace(MODEL, family="gpt2", shared_experts=0)
CASES["clamped"] = replace(MODEL, mlp="swiglu-clamped", biases="mlp", shared_experts=0)


@pytest.mark.parametrize("name", CASES)
def test_layer_is_the_plain_one(name: str) -> None:
    model = CASES[name]
    layer, common = _layer(model)
    common.scale = 0.5
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(2, model.seq, model.hidden, generator=generator)
    d_out = torch.randn(h.shape, generator=generator)
    names = ("router", "router_bias", "up", "down", "up_bias", "down_bias")
    held = {name: p for name in names if (p := getattr(layer, name)) is not None}
    if layer.shared_up is not None and layer.shared_down is not None:
        held |= {"shared_up": layer.shared_up.weight, "shared_down": layer.shared_down.weight}
    plain = {name: p.detach().clone().requires_grad_() for name, p in held.items()}
    one, other = h.clone().requires_grad_(), h.clone().requires_grad_()
    out = layer(one)
    expected, loss, dropped = _plain(model, plain, layer.correction, other)
    torch.testing.assert_close(out, expected)
    out.backward(d_out)
    torch.autograd.backward((expected, 0.5 * loss), (d_out, None))
    torch.testing.assert_close(one.grad, other.grad)
    for name, p in held.items():
        torch.testing.assert_close(p.main_grad.view(), plain[name].grad, msg=lambda m, name=name: f"{name}: {m}")
    assert common.losses.item() == pytest.approx(loss.item(), rel=1e-5)
    assert int(common.dropped) == dropped and (dropped > 0) == (model.router.capacity is not None)
    assert int(layer.load.sum()) == 2 * model.seq * 2


def test_forced_balance_gives_every_expert_as_many() -> None:
    layer, _ = _layer(MODEL, moe_balance="forced")
    layer(torch.randn(2, MODEL.seq, MODEL.hidden).requires_grad_()).sum().backward()
    assert layer.load.tolist() == [2 * MODEL.seq * 2 // 6] * 6


def test_correction_moves_towards_the_mean_and_stays_after_an_overflow() -> None:
    layer, common = _layer(CASES["sigmoid in groups"])
    assert layer.correction is not None
    before = layer.correction.clone()
    layer.load.copy_(torch.tensor([0, 8, 10, 8, 6, 16]))
    common.end(overflowed=torch.tensor(1.0))
    assert torch.equal(layer.correction, before)
    common.end(overflowed=torch.tensor(0.0))
    torch.testing.assert_close(layer.correction - before, 0.01 * torch.tensor([1.0, 0.0, -1.0, 0.0, 1.0, -1.0]))


def test_groups_are_ranked_by_their_two_best() -> None:
    scores = torch.tensor([[0.9, 0.1, 0.6, 0.5, 0.2, 0.3]])
    router = Router(kind="sigmoid", groups=3, group_limit=1)
    assert sorted(choose(scores, None, router, 2)[0].tolist()) == [2, 3]
    assert sorted(choose(scores, torch.tensor([0.0, 0.5, 0.0, 0.0, 0.0, 0.0]), router, 2)[0].tolist()) == [0, 1]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("layout", [{"tp": 4}, {"tp": 2, "cp": 2}, {"cp": 4}, {"tp": 2, "cp": 2, "mbs": 3}])
def test_runs_of_all_ranks_are_all_tokens_once(layout: dict[str, Any], parallel: bool) -> None:
    t, model = Topology(**{"mbs": 2, **layout}), replace(MODEL, seq=48, heads=4)
    runs = [run for rank in range(t.world) for run in runs_at(t.place(rank), model, t, sequence_parallel=parallel)]
    tokens = sorted((run.sample, run.start + i) for run in runs for i in range(run.length))
    assert tokens == [(sample, i) for sample in range(t.mbs) for i in range(48)]
