"""Multi-token prediction against the same written out with plain autograd."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from dist.many import gradients
from seatrial import rules
from seatrial.arith.flops import attention_core_forward, flops
from seatrial.arith.parameters import parameters
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.mtp import Further
from seatrial.engine.core.step import Engine
from seatrial.engine.io.data import Batches
from seatrial.errors import Infeasible
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Topology, Trial

MODEL = Model(family="llama", layers=2, hidden=16, heads=2, ffn=24, vocab=37, seq=12, mtp=2, mtp_loss=0.3)
RECIPE = Recipe(steps=1, clip=0.0)


def engine_of(model: Model) -> Engine:
    return Engine(Trial(model=model, batch=Batch(gbs=2), topology=Topology(mbs=2)), RECIPE,
                  Mesh(Topology(mbs=2), device=torch.device("cpu")))


@pytest.mark.parametrize("model", [MODEL, replace(MODEL, experts=4, top_k=2, dense_layers=1, expert_ffn=8, tied=True)])
def test_its_layers_are_counted_beside_the_model(model: Model) -> None:
    """As the published sizes do; FLOPs count them, as they are computed."""
    stage, counted = engine_of(model).chunks[0].stage, parameters(model)
    of_mtp = [p for p in stage.further.parameters() if p is not stage.head.weight and p is not stage.tokens.weight]
    assert counted.mtp == sum(p.numel() for p in of_mtp)
    without = replace(model, mtp=0)
    assert counted.total == parameters(without).total
    passed = sum(p.numel() for p in of_mtp if p.dim() > 1)
    if model.experts:  # two of four
        named = stage.further.named_parameters()
        passed -= sum(p.numel() for name, p in named if name.endswith(("experts.up", "experts.down"))) // 2
    more = flops("model", model, samples=1) - flops("model", without, samples=1)
    logits = 2 * model.hidden * model.vocab
    assert more == pytest.approx(3 * (2 * model.seq * (passed + logits) + 2 * attention_core_forward(model)))


@pytest.mark.parametrize("tied", [False, True])
def test_losses_and_gradients_are_those_of_plain_autograd(tied: bool) -> None:
    model = replace(MODEL, tied=tied)
    engine, other = engine_of(model), engine_of(model)
    batches = Batches(RECIPE, model, RECIPE.seed)
    tokens, targets = batches.microbatch(0, 2)
    stage = other.chunks[0].stage
    for p in stage.parameters():
        p.main_grad = None  # type: ignore[attr-defined]
    assert stage.tokens is not None and stage.head is not None and stage.final_norm is not None
    h = stage.tokens(tokens)
    for _, block in stage.blocks():
        h = block(h)
    h = stage.final_norm(h)
    losses = [F.cross_entropy(F.linear(h, stage.head.weight)[..., :37].flatten(0, 1), targets.flatten())]
    for depth, layer in enumerate(stage.further.values(), 1):
        assert isinstance(layer, Further)
        ahead = F.pad(targets, (0, depth))[:, depth - 1 : depth - 1 + model.seq]
        both = torch.cat((layer.norm_hidden(h), layer.norm_embedding(stage.tokens(ahead))), -1)
        h = layer.block(both @ layer.proj)
        logits = F.linear(layer.norm(h), stage.head.weight)[:, :-depth, :37]
        each = F.cross_entropy(logits.flatten(0, 1), targets[:, depth:].flatten(), reduction="sum")
        losses.append(each / targets.numel())
    expected = losses[0] + 0.3 * (losses[1] + losses[2]) / 2
    names, weights = zip(*stage.named_parameters())
    theirs = dict(zip(names, torch.autograd.grad(expected, weights)))
    result = engine.step(1, first_sample=0, batches=batches)
    assert result.loss == pytest.approx(expected.item(), rel=1e-6)
    ours = {name: values for name, _, values in gradients(engine)}
    whole = torch.cat([g.flatten() for g in theirs.values()])
    assert result.grad_norm == pytest.approx(whole.norm().item(), rel=1e-5)
    for name, there in (("embed.tokens.weight", "tokens.weight"), ("mtp.1.proj.weight", "further.1.proj"),
                        ("mtp.0.norm_embedding.weight", "further.0.norm_embedding.weight"),
                        ("layers.0.mlp.down.weight", "layers.0.down.weight")):
        assert torch.allclose(ours[name], theirs[there][: ours[name].shape[0]], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("layout", "batch", "says"), [
    (dict(cp=2, cp_kind="ring"), {}, "with CP 2: CP 1 would do"),
    ({}, dict(documents="fixed:4"), "whole sequences would do"),
])  # fmt: skip
def test_what_does_not_go_with_it_is_refused(layout: dict[str, Any], batch: dict[str, Any], says: str) -> None:
    with pytest.raises(Infeasible, match=says):
        rules.check(Trial(model=MODEL, batch=Batch(gbs=2, **batch), topology=Topology(**layout)))
