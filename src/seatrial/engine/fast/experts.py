"""A rank's experts on a GPU: rows to their experts, two grouped GEMMs with SwiGLU and the gate's weight between, and back.

    experts = FastExperts(8, kernels, grouped)                              an `Ops.experts`
    y_TH = experts(x_TH, expert_TK, weight_TK, up, down, tp)                all on this rank
    y_NH = experts.mlp(rows_NH, counts_E, up, down, tp)                     rows that came from others, by expert

Where the rows lie is known to the device alone: the host waits for nothing. The row's weight is multiplied onto the activation,
so that the way back only adds up. The backward pass writes the activation's gradient over what the first GEMM left, and the
activation over its own gradient: both GEMMs for the weights read them there.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from seatrial.engine.core.comm import TensorParallel
from seatrial.engine.core.experts import grouped_gradient
from seatrial.engine.fast.grouped import FastGrouped, ends_of
from seatrial.engine.fast.kernels import Kernels


@dataclass(frozen=True)
class Route:
    """Rows by expert, then by token. A choice of `experts` itself is dropped, and its row lies behind all others."""

    order_R: Tensor
    """Row to choice, a number of token x K + choice."""
    place_TK: Tensor
    """Choice to row, int32; -1: dropped."""
    counts_E: Tensor
    """Rows of each expert, int32."""

    @classmethod
    def of(cls, choice_TK: Tensor, experts: int) -> Route:
        flat = choice_TK.flatten()
        # Short keys are sorted in fewer passes.
        by_expert, order = flat.to(torch.uint8 if experts < 256 else torch.int16).sort(stable=True)
        ends = torch.searchsorted(by_expert.int(), torch.arange(experts, dtype=torch.int32, device=flat.device), right=True,
                                  out_int32=True)
        place = torch.empty_like(order, dtype=torch.int32)
        place[order] = torch.arange(flat.numel(), dtype=torch.int32, device=flat.device)
        return cls(order, torch.where(flat < experts, place, -1).view_as(choice_TK), ends.diff(prepend=ends.new_zeros(1)))

    @property
    def rows(self) -> int:
        return self.order_R.numel()


class _PutRows(Function):
    @staticmethod
    def forward(ctx: Any, x_TH: Tensor, place_TK: Tensor, kernels: Kernels, rows: int) -> Tensor:
        ctx.place, ctx.kernels = place_TK, kernels
        return kernels.put_rows(x_TH.contiguous(), place_TK, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.kernels.sum_rows(grads[0].contiguous(), ctx.place), None, None, None


class _SumRows(Function):
    @staticmethod
    def forward(ctx: Any, rows_RH: Tensor, place_TK: Tensor, kernels: Kernels) -> Tensor:
        ctx.place, ctx.kernels, ctx.rows = place_TK, kernels, rows_RH.shape[0]
        return kernels.sum_rows(rows_RH, place_TK)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return ctx.kernels.put_rows(grads[0].contiguous(), ctx.place, ctx.rows), None, None


class _PutWeights(Function):
    @staticmethod
    def forward(ctx: Any, weight_TK: Tensor, route: Route) -> Tensor:
        ctx.place = route.place_TK
        return weight_TK.flatten()[route.order_R].float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return torch.where(ctx.place >= 0, grads[0][ctx.place.clamp(min=0)], 0.0), None


class _Mlp(Function):
    @staticmethod
    def forward(ctx: Any, rows_RH: Tensor, weight_R: Tensor, up: Tensor, down: Tensor, counts_E: Tensor,
                fast: FastExperts, tp: TensorParallel) -> Tensor:
        experts, ends_E, grouped = counts_E.numel(), ends_of(counts_E), fast.grouped
        pre = grouped.rows(rows_RH, _matrices(up, experts), ends_E, transposed=True)
        ctx.save_for_backward(rows_RH, weight_R, pre, counts_E, ends_E)
        ctx.up, ctx.down, ctx.fast, ctx.tp = up, down, fast, tp
        return grouped.rows(fast.kernels.gated(pre, weight_R), _matrices(down, experts), ends_E)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (rows, weight, pre, counts, ends), dy, grouped = ctx.saved_tensors, grads[0].contiguous(), ctx.fast.grouped
        experts = ends.numel()
        d = grouped.rows(dy, _matrices(ctx.down, experts), ends, transposed=True)
        d_weight = ctx.fast.kernels.gated_backward(d, pre, weight)
        d_rows = grouped.rows(pre, _matrices(ctx.up, experts), ends)
        # By now `d` is the activation and `pre` its gradient.
        d_down = grouped_gradient(ctx.down, d, dy, counts, grouped, ctx.tp)
        d_up = grouped_gradient(ctx.up, pre, rows, counts, grouped, ctx.tp)
        return d_rows, d_weight, d_up, d_down, None, None, None


@dataclass(frozen=True)
class FastExperts:
    """What `core.ops.ExpertsImpl` says."""

    experts: int
    """Of a layer."""
    kernels: Kernels
    grouped: FastGrouped

    def __call__(self, x_TH: Tensor, expert_TK: Tensor, weight_TK: Tensor, up: Tensor, down: Tensor,
                 tp: TensorParallel) -> Tensor:
        route = Route.of(expert_TK, self.experts)
        rows = _PutRows.apply(x_TH, route.place_TK, self.kernels, route.rows)
        y = _Mlp.apply(rows, _PutWeights.apply(weight_TK, route), up, down, route.counts_E, self, tp)
        return _SumRows.apply(y, route.place_TK, self.kernels)  # type: ignore[no-any-return]

    def mlp(self, rows_NH: Tensor, counts_E: Tensor, up: Tensor, down: Tensor, tp: TensorParallel) -> Tensor:
        ones = torch.ones(rows_NH.shape[0], device=rows_NH.device)
        return _Mlp.apply(rows_NH, ones, up, down, counts_E, self, tp)  # type: ignore[no-any-return]


def _matrices(weight: Tensor, experts: int) -> Tensor:
    return weight.view(experts, -1, weight.shape[-1])
