"""Sums in fp32, a loss scale that only fp16 has, and a run that learns nothing any more."""
from __future__ import annotations

import math

import pytest
import torch

from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.ops import PlainGemm
from seatrial.engine.core.optim import LossScale
from seatrial.engine.core.step import Engine
from seatrial.engine.io.data import Batches
from seatrial.engine.loop import Sound
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Model, Topology, Trial


def test_what_fp16_skips_does_not_depend_on_the_micro_batch():
    """Sums over a micro-batch's tokens are fp32: the scale is one that the same sums in fp16 overflow with."""
    model = Model(layers=2, hidden=32, heads=4, vocab=101, seq=16, family="llama")

    def skipped(mbs: int) -> list[bool]:
        recipe = Recipe(steps=4, lr=1e-2, loss_scale=2.0**22)
        trial = Trial(model=model, batch=Batch(gbs=8), topology=Topology(precision="fp16", mbs=mbs))
        engine = Engine(trial, recipe, Mesh(trial.topology, device=torch.device("cpu")))
        batches = Batches(recipe, model, 1)
        return [engine.step(i + 1, first_sample=8 * i, batches=batches).skipped for i in range(4)]

    assert skipped(1) == skipped(8) == [True, True, False, False]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("add", [False, True])
def test_a_gradient_of_16_bits_is_scaled_in_fp32(dtype, add):
    left, right = torch.full((1, 64), 30.0, dtype=dtype), torch.full((64, 1), 30.0, dtype=dtype)
    out = PlainGemm().into(torch.zeros(1, 1), left, right, alpha=3.3, add=add)
    assert out.item() == pytest.approx(64 * 900.0 * 3.3, rel=1e-6)


def test_a_loss_scale_is_that_of_fp16_alone():
    whole, half = LossScale("fp32", Recipe()), LossScale("fp16", Recipe())
    half.restore(whole.state())
    assert (whole.state(), half.value) == ({}, Recipe().loss_scale)
    half.update(overflowed=True)
    again = LossScale("fp16", Recipe())
    again.restore(half.state())
    assert again.value == half.value == Recipe().loss_scale / 2


def test_a_run_whose_loss_is_no_number_is_given_up():
    sound = Sound(Recipe(nan_steps=3))
    losses = [math.nan, math.nan, 2.0, math.inf, math.nan, math.nan]
    assert [sound.lost_after(loss) for loss in losses] == [False] * 5 + [True]
    assert sound.ever and not any(Sound(Recipe(nan_steps=0)).lost_after(math.nan) for _ in range(9))
