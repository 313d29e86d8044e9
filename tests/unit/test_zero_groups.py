"""Groups that ZeRO divides weights, gradients and optimizer state over: one inside the other, and what makes no sense."""
from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from seatrial import rules
from seatrial.engine.core.mesh import Levels, Mesh
from seatrial.rehearse.fake import fake_world
from seatrial.spec import Batch, Model, Topology, Trial

GROUPS: list[dict[str, int]] = [
    {"zero": 0}, {"zero": 1}, {"zero": 2}, {"zero": 3},
    {"zero": 1, "zero_group": 4}, {"zero": 2, "zero_group": 4}, {"zero": 3, "zero_group": 4}, {"zero": 2, "gradients_group": 2},
    {"zero": 3, "weights_group": 2}, {"zero": 3, "gradients_group": 4, "weights_group": 2},
    {"zero": 3, "zero_group": 4, "gradients_group": 2, "weights_group": 1},
]  # fmt: skip


def _levels(t: Topology) -> list[Levels]:
    """By rank."""
    found = []
    for rank in range(t.world):
        with fake_world(rank=rank, world=t.world):
            mesh = Mesh(t, device=torch.device("cpu"))
            found.append(mesh.levels)
            mesh.close()
    return found


@pytest.mark.parametrize("groups", GROUPS, ids=lambda groups: " ".join(f"{k}{v}" for k, v in groups.items()))
def test_each_rank_holds_a_part_of_a_part_and_all_of_them_everything(groups: dict[str, int]) -> None:
    t = Topology(dp=4, cp=2, tp=2, **groups)
    every = _levels(t)
    size = math.lcm(*t.divided_over) * 3
    for what, over in zip(("weights", "gradients", "state"), t.divided_over):
        at = []
        for levels in every:
            stretch = (0, size)
            for name in ("weights", "gradients", "state"):
                inside, stretch = stretch, getattr(levels, name).part(*stretch)
                assert inside[0] <= stretch[0] < stretch[1] <= inside[1]
                if name == what:
                    break
            at.append(stretch)
        assert Counter(at) == {(n * size // over, (n + 1) * size // over): t.world // over for n in range(over)}
    for levels in every:
        assert math.prod(group.size for group in levels) == t.data_ranks
        # All of a group know it by the same name and members; what is gathered every layer stays among neighbours.
        for name, group in levels._asdict().items():
            assert {(getattr(every[rank], name).name, getattr(every[rank], name).ranks) for rank in group.ranks} == {
                (group.name, group.ranks)}
        assert levels.weights.ranks[-1] - levels.weights.ranks[0] == (levels.weights.size - 1) * t.tp


def test_by_default_everybody_is_in_the_one_group() -> None:
    for zero in (0, 1, 2, 3):
        (levels, *_) = _levels(Topology(dp=4, zero=zero))
        assert [group.name for group in levels if group.size > 1] == ["dp"]


@pytest.mark.parametrize(("layout", "says"), [
    ({"zero": 0, "zero_group": 2}, "zero_group 2 with ZeRO 0, which leaves the optimizer's state whole: ZeRO 1 or above would"),
    ({"zero": 1, "gradients_group": 2}, "gradients_group 2 with ZeRO 1, which leaves the gradient whole: ZeRO 2 or above"),
    ({"zero": 2, "weights_group": 2}, "weights_group 2 with ZeRO 2, which leaves the model whole: ZeRO 3 would divide it"),
])  # fmt: skip
def test_a_group_for_what_stays_whole_is_refused(layout: dict[str, Any], says: str) -> None:
    trial = Trial(model=Model(layers=2, hidden=32, heads=4, vocab=64, seq=16), batch=Batch(gbs=4),
                  topology=Topology(dp=4, **layout))
    (found,) = rules.violations(trial)
    assert (found.code, found.level) == ("zero-group", "error") and found.message.startswith(says)
