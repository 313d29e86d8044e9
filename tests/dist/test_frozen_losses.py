"""Losses and gradient norms on a CPU are what they were, to the last bit on the processor that they were made on."""
from __future__ import annotations

import pytest

from freeze import cpu, frozen, train_all

FROZEN = frozen("losses.json")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return train_all({label: entry["run"] for label, entry in FROZEN["runs"].items()}, tmp_path_factory.mktemp("losses"))


@pytest.mark.parametrize("label", FROZEN["runs"])
def test_losses_are_what_they_were(found, label):
    for name in ("losses", "grad_norms"):
        expected, now = FROZEN["runs"][label][name], found[label][name]
        assert len(now) == 3
        if cpu() == FROZEN["on"]:
            assert now == expected, f"{name}: {[*map(float.fromhex, now)]} for {[*map(float.fromhex, expected)]}"
        else:
            # Another processor or PyTorch adds in another order.
            assert [*map(float.fromhex, now)] == pytest.approx([*map(float.fromhex, expected)], rel=1e-6)
