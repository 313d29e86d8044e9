"""Attention whose backward pass is asked for by hand: its gradients lie as the kernels after it read them."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from seatrial.engine.fast.attention import Core


class SideBySide(Function):
    """Gradients of queries, keys and values as parts of one tensor, as some backends return them."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q + 2.0 * k + 3.0 * v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        batch, heads, seq, size = grads[0].shape
        packed = torch.empty(batch, seq, 3, heads, size)
        for part in range(3):
            packed[:, :, part] = (part + 1.0) * grads[0].transpose(1, 2)
        return tuple(part.transpose(1, 2) for part in packed.unbind(2))


def test_each_gradient_is_a_matrix_by_itself() -> None:
    leaves = tuple(torch.zeros(2, 5, 3, 4, requires_grad=True) for _ in range(3))
    core = Core(torch.zeros(10, 12), leaves, SideBySide.apply(*leaves))  # type: ignore[arg-type]
    given = torch.arange(120.0).view(10, 12)
    for part, found in enumerate(core.back(given)):
        assert found.is_contiguous()
        assert torch.equal(found, (part + 1.0) * given)
