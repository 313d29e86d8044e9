"""Experts as a GPU computes them, in plain torch here: against autograd through a loop over tokens and experts."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.fast.choose import build
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.experts import FastExperts, Route
from seatrial.engine.fast.grouped import LOOP, TORCH, FastGrouped, GroupedShape, _Run, fastest, key, torch_grouped_gradient
from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Router, Topology, Trial

T, K, E, H, W = 24, 2, 4, 16, 24


class Held:
    """A main_grad with room of its own."""

    def __init__(self, like: torch.Tensor):
        self.place, self.fresh, self.ready = torch.full_like(like, torch.nan, dtype=torch.float32), True, 0

    def add_grouped(self, left, right, counts):
        FastGrouped().into(self.place.view(counts.numel(), -1, H), left, right, counts, add=not self.fresh)
        self.fresh, self.ready = False, self.ready + 1


def some(*shape: int, std: float = 1.0) -> torch.Tensor:
    return (std * torch.randn(*shape)).requires_grad_()


def reference(x, expert, weight, up, down):
    rows = []
    for token in range(T):
        total = torch.zeros(H)
        for choice, number in enumerate(expert[token].tolist()):
            if number < E:
                gate, inner = (up.view(E, 2 * W, H)[number] @ x[token]).chunk(2)
                total = total + weight[token, choice] * ((F.silu(gate) * inner) @ down.view(E, W, H)[number])
        rows.append(total)
    return torch.stack(rows)


def drawn(*, drops: bool):
    torch.manual_seed(0)
    expert = torch.rand(T, E).topk(K).indices
    expert[expert == 1] = 3  # one that nobody takes
    if drops:
        expert[::3, 0] = E
    return some(T, H), expert, some(T, K), some(E * 2 * W, H, std=0.2), some(E * W, H, std=0.2)


@pytest.mark.parametrize("way", [LOOP, TORCH])
@pytest.mark.parametrize("drops", [False, True])
def test_outputs_and_gradients_are_those_of_a_loop_over_tokens(way, drops):
    x, expert, weight, up, down = given = drawn(drops=drops)
    leaves, dy = (x, weight, up, down), torch.randn(T, H)
    expected = reference(*given)
    expected_grads = torch.autograd.grad(expected, leaves, dy)
    shape = GroupedShape(rows=T * K, experts=E, hidden=H, up=2 * W, down=W, dtype=torch.float32, gradients=torch.float32)
    grouped = FastGrouped(dict.fromkeys(shape.cases(), way), Kernels())
    y = FastExperts(E, Kernels(), grouped)(x, expert, weight, up, down, SimpleNamespace(deferred=None))
    torch.testing.assert_close(y, expected)
    for found, wanted in zip(torch.autograd.grad(y, leaves, dy), expected_grads, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("waits", [False, True])
def test_weight_gradients_are_added_up_in_their_places_now_or_when_they_are_asked_for(waits):
    x, expert, weight, up, down = given = drawn(drops=False)
    wanted = torch.autograd.grad(reference(*given).sum(), (up, down))
    up.main_grad, down.main_grad = places = Held(up), Held(down)
    tp = SimpleNamespace(deferred=None)
    for turn in (1, 2):
        y = FastExperts(E, Kernels(), FastGrouped())(x, expert, weight, up, down, tp)
        tp.deferred = [] if waits else None  # the schedule says so late
        y.sum().backward()
        if waits:
            assert [place.ready for place in places] == [turn - 1] * 2 and len(tp.deferred) == 2
            for product in tp.deferred:
                product()
        for place, once in zip(places, wanted, strict=True):
            assert place.ready == turn
            torch.testing.assert_close(place.place, turn * once)


def test_rows_lie_by_expert_then_by_token_and_those_dropped_behind_all():
    route = Route.of(torch.tensor([[2, 0], [3, 2], [0, 2]]), 3)
    assert route.counts_E.tolist() == [2, 0, 3]
    assert route.order_R.tolist() == [1, 4, 0, 3, 5, 2]
    assert route.place_TK.tolist() == [[2, 0], [-1, 3], [1, 4]]


def test_the_seam_of_the_core_takes_matrices_either_way_and_numbers_of_rows():
    torch.manual_seed(0)
    matrices, counts = torch.randn(3, 8, 16), torch.tensor([2, 0, 5])
    x, dy, seen = torch.randn(7, 16), torch.randn(7, 8), []
    grouped = FastGrouped({key(8, 16, True): LOOP, key(8, 16, False): LOOP, key(8, 16): LOOP})

    def noted(kind, plain):
        return lambda *given, **named: seen.append((kind, *named.values())) or plain(*given, **named)

    for kind, ways in grouped._ways.items():
        ways[LOOP] = noted(kind, ways[LOOP])
    by_hand = torch.cat([x[:2] @ matrices[0].t(), x[2:] @ matrices[2].t()])
    torch.testing.assert_close(grouped(x, matrices.transpose(1, 2), counts), by_hand)
    torch.testing.assert_close(grouped(dy, matrices, counts), torch.cat([dy[:2] @ matrices[0], dy[2:] @ matrices[2]]))
    out = torch.ones(3, 8, 16)
    grouped.into(out, dy, x, counts, add=True)
    torch.testing.assert_close(out, 1 + torch.stack([dy[:2].t() @ x[:2], torch.zeros(8, 16), dy[2:].t() @ x[2:]]))
    assert seen == [("grouped", True), ("grouped", False), ("grouped_gradient", True)]


def test_a_way_that_leaves_an_idle_experts_gradient_as_it_was_is_not_taken():
    """As torch's own does on some devices."""
    shape = GroupedShape(rows=400, experts=4, hidden=16, up=48, down=24, dtype=torch.bfloat16, gradients=torch.float32)

    def careless(left, right, ends, out, *, add):
        first = 0
        for expert, end in enumerate(ends.tolist()):
            if end > first:
                out[expert] = left[first:end].t().float() @ right[first:end].float()
            first = end

    run = _Run(shape, *shape.cases()[key(48, 16)], device=torch.device("cpu"))
    assert run.uneven.diff()[0] == 0 and run.drawn.diff()[0] > 0
    assert not run.agrees(careless) and run.agrees(torch_grouped_gradient) and run.agrees(Kernels.grouped_gradient)
    for of, case in shape.cases().items():
        run = _Run(shape, *case, device=torch.device("cpu"))
        ways = FastGrouped()._ways[case[0]]
        assert run.agrees(ways[LOOP]) and run.agrees(ways[TORCH]), of
        assert not run.agrees(lambda *given, way=ways[LOOP], **named: way(given[0] * 1.1, *given[1:], **named)), of


def test_a_loop_for_which_the_host_waits_must_be_clearly_faster():
    assert fastest({LOOP: 1.0, TORCH: 1.02}) == TORCH and fastest({LOOP: 1.0, TORCH: 1.04, "tiles": 1.05}) == LOOP


MOE = Model(family="llama", layers=2, hidden=32, heads=4, vocab=61, seq=16, experts=4, top_k=2, shared_experts=1, expert_ffn=24)


@pytest.mark.parametrize("model", [MOE, replace(MOE, router=Router(capacity=1.0, aux_loss=0.02))], ids=["dropless", "drops"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_an_engine_with_them_trains_as_one_without(model, recompute):
    """With a capacity the rows are sorted by the core, and the experts' products alone are the fast ones."""
    def losses(config: KernelConfig) -> list[float]:
        trial = Trial(model=model, batch=Batch(gbs=4), topology=Topology(mbs=2, recompute=recompute))
        mesh, recipe = Mesh(trial.topology, device=torch.device("cpu")), Recipe(steps=3, lr=1e-2)
        ops = build(config, trial, mesh.device)
        assert (ops.experts is not None) == config.experts
        engine = Engine(trial, recipe, mesh, ops=ops)
        batches = Batches(recipe, model, recipe.seed)
        return [engine.step(i + 1, first_sample=4 * i, batches=batches).loss for i in range(recipe.steps)]

    plain = losses(KernelConfig())
    assert losses(KernelConfig(experts=True)) == pytest.approx(plain, rel=1e-5)
    assert plain[0] != plain[2]
