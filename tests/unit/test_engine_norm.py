"""The norm of the gradients must not depend on how they are cut: layouts are compared by it."""
from __future__ import annotations

import torch

from seatrial.engine.core.ops import NORM_ROW, squared_norm


def test_the_norm_of_a_long_vector_is_as_exact_as_that_of_its_parts():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1_600_001, generator=generator) * 1e-3
    x[:1000] *= 1000
    exact = x.double().square().sum()
    for parts in ([x], list(x.split(12_345)), [x[: NORM_ROW // 2], x[NORM_ROW // 2 :]], [x, x[:0]]):
        torch.testing.assert_close(squared_norm(parts), exact, rtol=2e-6, atol=0.0)
