"""AdamW's moments in bf16 on every ZeRO stage: as one process has them, and from a checkpoint as if nothing had happened."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dist.fused_cases import narrow_moments, taken_up
from dist.many import in_world
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

pytestmark = pytest.mark.timeout(600)

RECIPE = Recipe(steps=6, lr=1e-2, clip=0.0)
EXECUTION = Execution(bucket_mib=0.05, logits_chunk=24, moments="bf16")
LAYOUTS: dict[str, dict[str, Any]] = {"replicas": {}, "zero 1": {"zero": 1}, "zero 2": {"zero": 2}, "zero 3": {"zero": 3}}


def trial(**layout: Any) -> Trial:
    model = Model(layers=2, hidden=32, heads=4, vocab=101, seq=16)
    return Trial(model=model, batch=Batch(gbs=4), topology=Topology(mbs=2, **layout), execution=EXECUTION)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("moments"))


@pytest.fixture(scope="module")
def by_rank(folder) -> list[dict[str, Any]]:
    return in_world(2, narrow_moments, {name: trial(dp=2, **layout) for name, layout in LAYOUTS.items()}, RECIPE, folder)


@pytest.fixture(scope="module")
def alone(folder) -> dict[str, Any]:
    return narrow_moments({"one": trial()}, RECIPE, folder)


@pytest.mark.parametrize("name", LAYOUTS)
def test_two_replicas_train_as_one_process(name, by_rank, alone):
    """A sum in another order puts some moments on the other side of a rounding edge, by 2^-8 of themselves."""
    expected = [v for pair in alone["one"][0] for v in pair]
    assert [v for pair in by_rank[0][name][0] for v in pair] == pytest.approx(expected, rel=1e-5)
    assert by_rank[0][name][0] == by_rank[1][name][0]


@pytest.mark.parametrize("name", ["zero 1", "zero 3"])
def test_shards_hold_what_replicas_hold(name, by_rank):
    """Two replicas add two numbers, whose order does not matter: bit for bit where nothing is divided by the norm."""
    assert [loss for loss, _ in by_rank[0][name][0]] == [loss for loss, _ in by_rank[0]["replicas"][0]]
    whole = by_rank[0]["replicas"][1]
    shards = [(key, values) for found in by_rank for key, values in found[name][1].items() if key.startswith("optim.")]
    assert {key for key, _ in shards} == {key for key in whole if key.startswith("optim.")}
    for key, values in shards:
        assert any(np.array_equal(values, whole[key][at : at + len(values)]) for at in range(len(whole[key]))), key


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_checkpoint_goes_on_to_the_last_bit(name, by_rank, alone):
    assert by_rank[0][f"{name} again"] == by_rank[0][name][0]
    assert alone["one again"] == alone["one"][0]


@pytest.mark.parametrize("moments", ["bf16", "fp32"])
def test_one_process_takes_up_what_shards_saved_in_either_form(moments, by_rank, alone, folder):
    half = RECIPE.steps // 2
    found = taken_up(replace(trial(), execution=replace(EXECUTION, moments=moments)), RECIPE, f"{folder}/2-zero 3", half)
    expected = [v for pair in alone["one"][0][half:] for v in pair]
    assert [v for pair in found for v in pair] == pytest.approx(expected, rel=1e-5 if moments == "bf16" else 1e-3)
