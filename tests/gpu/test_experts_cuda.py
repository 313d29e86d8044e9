"""On a CUDA device: experts' GEMMs in every tile, the layer and its gradients, and that the host waits for nothing."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.ops import PlainGemm
from seatrial.engine.core.step import Engine
from seatrial.engine.fast.choose import ops_for
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.experts import FastExperts
from seatrial.engine.fast.grouped import LOOP, FastGrouped, GroupedShape, _ways, autotune
from seatrial.engine.fast.kernels import EXPERTS, Kernels, plain_experts
from seatrial.engine.fast.kernels.verified import CLOSE
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Topology, Trial

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)
HALF = torch.bfloat16
T, K, E, H, W = 1000, 2, 8, 256, 200
NOW: Any = SimpleNamespace(deferred=None)


def some(*shape: int, std: float = 1.0, kind: torch.dtype = HALF) -> Tensor:
    return (torch.randn(*shape, device=CUDA) * std).to(kind)


def off(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def ways(kind: str) -> dict[str, Any]:
    found = _ways(Kernels.of(EXPERTS), PlainGemm())[kind]
    assert len(found) > 2
    return found


@pytest.mark.parametrize("ends", [(250, 250, 251, 700, 828, 956, 999, 1000), (0, 0, 0, 1000, 1000, 1000, 1000, 1000)])
def test_every_way_is_a_loop_over_the_experts(ends: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    until, rows, inner, matrices = torch.tensor(ends, device=CUDA).int(), some(T, H), some(T, W), some(E, W, H)
    for name, way in ways("grouped").items():
        for left, transposed in ((rows, True), (inner, False)):
            found = way(left, matrices, until, transposed=transposed)
            assert off(found, plain_experts.grouped(left, matrices, until, transposed=transposed)) < CLOSE, name
    for name, way in ways("grouped_gradient").items():
        for kind in (HALF, torch.float32):
            for add in (False, True):
                found, expected = (some(E, W, H, kind=kind) for _ in range(2))
                expected.copy_(found)
                if not add:
                    found.fill_(torch.nan)
                way(inner, rows, until, found, add=add)
                plain_experts.grouped_gradient(inner, rows, until, expected, add=add)
                assert off(found, expected) < CLOSE, (name, kind, add)


def layer() -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    expert = (torch.rand(T, E, device=CUDA) + torch.linspace(0, 0.7, E, device=CUDA)).topk(K).indices
    expert[expert == 3] = E - 1
    leaves = some(T, H), torch.rand(T, K, device=CUDA), some(E * 2 * W, H, std=0.05), some(E * W, H, std=0.05)
    return expert, *(leaf.requires_grad_() for leaf in leaves)


def chosen() -> FastGrouped:
    shape = GroupedShape(rows=T * K, experts=E, hidden=H, up=2 * W, down=W, dtype=HALF, gradients=HALF)
    kernels = Kernels.of(EXPERTS)
    choices, note = autotune(shape, CUDA, kernels, PlainGemm())
    assert choices.keys() == shape.cases().keys(), note
    return FastGrouped(choices, kernels)


def test_the_layer_and_its_gradients_are_those_of_fp32() -> None:
    expert, *leaves = layer()
    x, weight, up, down = exact = [leaf.detach().float().requires_grad_() for leaf in leaves]
    expected = torch.zeros(T, H, device=CUDA)
    for number in range(E):
        token, choice = (expert == number).nonzero(as_tuple=True)
        gate, inner = (x[token] @ up.view(E, 2 * W, H)[number].t()).chunk(2, -1)
        part = (F.silu(gate) * inner) @ down.view(E, W, H)[number]
        expected = expected.index_add(0, token, part * weight[token, choice, None])
    dy = some(T, H)
    y = FastExperts(E, Kernels.of(EXPERTS), chosen())(leaves[0], expert, leaves[1], leaves[2], leaves[3], NOW)
    assert off(y, expected) < CLOSE
    for found, wanted in zip(torch.autograd.grad(y, leaves, dy), torch.autograd.grad(expected, exact, dy.float()), strict=True):
        assert off(found, wanted) < CLOSE


def test_the_host_waits_for_nothing() -> None:
    expert, *leaves = layer()
    kernels, grouped = Kernels.of(EXPERTS), chosen()
    without = {of: next(name for name in grouped._ways["grouped_gradient" if of.endswith("gradient") else "grouped"]
                        if name != LOOP) if way == LOOP else way for of, way in grouped.choices.items()}
    experts = FastExperts(E, kernels, FastGrouped(without, kernels))

    def both_ways() -> None:
        y = experts(leaves[0], expert, leaves[1], leaves[2], leaves[3], NOW)
        torch.autograd.grad(y, leaves, torch.ones_like(y))

    both_ways()
    torch.cuda.set_sync_debug_mode("error")
    try:
        both_ways()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_an_engine_with_them_trains_as_one_without() -> None:
    model = Model(family="llama", layers=2, hidden=128, heads=4, vocab=301, seq=32, experts=8, top_k=2, shared_experts=1,
                  expert_ffn=64)
    trial, recipe = Trial(model=model, batch=Batch(gbs=4), topology=Topology(precision="bf16", mbs=4)), Recipe(steps=5, lr=1e-2)

    def losses(**changed: Any) -> list[float]:
        mesh = Mesh(trial.topology, device=CUDA)
        ops, config, notes = ops_for(trial, mesh, replace(KernelConfig.of(CUDA, "bf16"), **changed))
        assert not any("plain torch is used" in note for note in notes.values()), notes
        assert (ops.experts is not None) == config.experts
        batches = Batches(recipe, model, recipe.seed)
        engine = Engine(trial, recipe, mesh, ops=ops)
        return [engine.step(i + 1, first_sample=4 * i, batches=batches).loss for i in range(recipe.steps)]

    assert losses() == pytest.approx(losses(experts=False), rel=1e-2)
