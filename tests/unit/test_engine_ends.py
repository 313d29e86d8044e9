"""Before the first block and after the last: the fused path's gradients are the ordinary one's, parameter by parameter."""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.ops import Ops
from seatrial.engine.core.params import spec_of
from seatrial.engine.core.step import Engine
from seatrial.engine.fast.choose import build
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.kernels import plain
from seatrial.engine.io.data import Batches
from seatrial.engine.watch.tracker import LiveStorages
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

GPT2 = Model(layers=1, hidden=32, heads=4, vocab=67, seq=16)
MODELS = {
    "gpt2": GPT2,
    "gpt2 untied": replace(GPT2, tied=False),
    "bloom": replace(GPT2, family="bloom"),
}


def gradients(model: Model, config: KernelConfig | None, *, mbs: int, precision: str = "fp32") -> dict[str, torch.Tensor]:
    topology = Topology(mbs=mbs, precision=precision)  # type: ignore[arg-type]
    recipe = Recipe(steps=1, clip=0)
    trial = Trial(model=model, batch=Batch(gbs=4), topology=topology, execution=Execution(logits_chunk=24))
    cpu = torch.device("cpu")
    engine = Engine(trial, recipe, Mesh(topology, device=cpu), ops=config and build(config, trial, cpu))
    assert (engine.ops.layer_norm is not Ops().layer_norm) == (config is not None)
    engine.step(1, first_sample=0, batches=Batches(recipe, model, recipe.seed))
    return {spec_of(p).segments[0].name: p.main_grad.view().float().clone()  # type: ignore[attr-defined]
            for bucket in engine.buckets for p in bucket.params}


@pytest.mark.parametrize("mbs", [4, 2])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_ordinary_path(name: str, mbs: int) -> None:
    """One micro-batch overwrites every place, the second of two adds to it."""
    expected = gradients(MODELS[name], None, mbs=mbs)
    found = gradients(MODELS[name], KernelConfig(fused=True), mbs=mbs)
    assert found.keys() == expected.keys() and "embed.tokens.weight" in found
    for parameter, gradient in found.items():
        torch.testing.assert_close(gradient, expected[parameter], rtol=1e-4, atol=1e-6, msg=lambda m, p=parameter: f"{p}: {m}")


@pytest.mark.parametrize("name", MODELS)
def test_gradients_in_16_bits_are_near_those_in_32(name: str) -> None:
    expected = gradients(MODELS[name], None, mbs=4)
    config = KernelConfig(fused=True, logits_in_16_bits=True, one_pass_update=True, narrow_gradients=True)
    found = gradients(MODELS[name], config, mbs=4, precision="bf16")
    ends = {p for p in found if not p.startswith("layers.")}
    assert len(ends) >= 4
    for parameter in ends:
        distance = (found[parameter] - expected[parameter]).norm() / expected[parameter].norm()
        assert distance < 0.01, f"{parameter} is {distance:.3f} away"


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_rows_are_added_where_they_belong_and_others_left_out(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    place, values = torch.randn(11, 8).to(kind), torch.randn(300, 8).to(kind)
    rows = torch.randint(-3, 14, (300,))
    expected = place.double()
    for row, value in zip(rows.tolist(), values.double(), strict=True):
        if 0 <= row < 11:
            expected[row] += value
    plain.add_rows(place, rows, values)
    torch.testing.assert_close(place, expected.to(kind))


def test_a_common_tokens_row_does_not_stand_still_in_16_bits() -> None:
    """1 + 2⁻⁹ is 1 in bf16, however often it is added."""
    place = torch.ones(3, 4, dtype=torch.bfloat16)
    plain.add_rows(place, torch.full((1024,), 1), torch.full((1024, 4), 2.0**-9, dtype=torch.bfloat16))
    assert place.tolist() == [[1.0] * 4, [3.0] * 4, [1.0] * 4]


def test_rows_are_added_without_a_matrix_of_all_of_them() -> None:
    place, rows, values = torch.zeros(20_000, 8), torch.arange(10), torch.ones(10, 8)
    with LiveStorages(tagged={"gradients": [place]}) as live:
        plain.add_rows(place, rows, values)
    assert live.peaks["activations"] < place.numel() * 4 / 10
    assert float(place.sum()) == 80.0
