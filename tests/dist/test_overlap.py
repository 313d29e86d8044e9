"""Gradients are reduced while the backward pass goes on, and gathered weights do not stay."""
from __future__ import annotations

import pytest

from dist.many import in_world
from dist.watching import reductions, weights_held


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_reductions_start_before_the_last_gradient(zero: int, watched: dict[int, tuple[list[int], int]]) -> None:
    started, arrivals = watched[zero]
    assert len(started) > 2, "one bucket cannot overlap with anything"
    assert started[0] <= arrivals / 2
    assert started == sorted(started) and started[-1] == arrivals


@pytest.fixture(scope="module")
def watched() -> dict[int, tuple[list[int], int]]:
    return in_world(2, reductions)[0]


def test_zero_3_holds_the_weights_of_two_layers_at_most() -> None:
    """The one in use and the one on its way."""
    for most, largest, total in in_world(2, weights_held):
        assert most <= 2 * largest < total / 2
