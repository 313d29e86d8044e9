"""Before a fused model's first block and after its last: norms and positions with their backward pass written out.

    norm = FusedNorm("final_norm", hidden, eps, kernels)
    x = add_positions(x, weight, first=0)           sequences that begin at position `first`

Gradients of weights go straight to their sinks: columns are added up on the way, and positions are summed over the batch where
they lie, without a matrix between.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from seatrial.engine.core.layers import LayerNorm, sink_of
from seatrial.engine.fast.kernels import Kernels


class _Norm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: FusedNorm) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        h, stats, _ = norm.kernels.norm(rows, norm.weight, norm.bias, norm.eps)
        ctx.norm = norm
        ctx.save_for_backward(rows, stats)
        return h.view(x.shape)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (rows, stats), norm = ctx.saved_tensors, ctx.norm
        dx, sums = norm.kernels.norm_backward(grads[0].reshape(rows.shape).contiguous(), rows, stats, norm.weight)
        fold(norm.kernels, sums, norm.weight, norm.bias)
        return dx.view(grads[0].shape), None


class FusedNorm(LayerNorm):
    def __init__(self, name: str, hidden: int, eps: float, kernels: Kernels):
        super().__init__(name, hidden, eps)
        self.kernels = kernels

    def forward(self, x: Tensor) -> Tensor:
        return _Norm.apply(x, self)  # type: ignore[no-any-return]


class _AddPositions(Function):
    @staticmethod
    def forward(ctx: Any, x_BSH: Tensor, weight: nn.Parameter, first: int) -> Tensor:
        ctx.weight, ctx.here = weight, slice(first, first + x_BSH.shape[1])
        return x_BSH + weight[ctx.here]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (dx_BSH,), sink = grads, sink_of(ctx.weight)
        assert sink is not None
        place, fresh = sink.place()
        whole = place.view(ctx.weight.shape)
        if fresh and dx_BSH.shape[1] < whole.shape[0]:
            whole.zero_()
        here = whole[ctx.here]
        if fresh:
            torch.sum(dx_BSH, 0, dtype=here.dtype, out=here)
        else:
            here += dx_BSH.sum(0, dtype=torch.float32)
        sink.filled()
        return dx_BSH, None, None


def add_positions(x_BSH: Tensor, weight: nn.Parameter, first: int) -> Tensor:
    return _AddPositions.apply(x_BSH, weight, first)  # type: ignore[no-any-return]


def fold(kernels: Kernels, sums: Tensor, *params: Tensor | None) -> None:
    """Column sums into the gradients of biases and norms."""
    sinks = [sink for p in params if p is not None and (sink := sink_of(p)) is not None]
    kernels.fold(sums, [sink.place() for sink in sinks])
    for sink in sinks:
        sink.filled()
