"""A rank's experts on a GPU: rows to their experts, two grouped GEMMs with SwiGLU and the gate's weight between, and back.

    route = Route.of(choice_TK, experts)                                  where each choice's row lies; the host waits for nothing
    rows = put_rows(kernels, x_TH, route)
    y_TH = sum_rows(kernels, mlp(kernels, gemm, rows, weight_R, route.ends_E, up, down), route)

The row's weight is multiplied onto the activation, so that the way back only adds up. The backward pass writes the activation's
gradient over what the first GEMM left, and the activation over its own gradient: both GEMMs for the weights read them there.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from seatrial.engine.core.layers import main_grad_of
from seatrial.engine.fast.grouped import GroupedGemm
from seatrial.engine.fast.kernels import Kernels


@dataclass(frozen=True)
class Route:
    """Rows by expert, then by token. A choice of `experts` itself is dropped, and its row lies behind all others."""

    order_R: Tensor
    """Row to choice, a number of token x K + choice."""
    place_TK: Tensor
    """Choice to row, int32; -1: dropped."""
    ends_E: Tensor
    """Where each expert's rows end, int32."""

    @classmethod
    def of(cls, choice_TK: Tensor, experts: int) -> Route:
        flat = choice_TK.flatten()
        # Short keys are sorted in fewer passes.
        by_expert, order = flat.to(torch.uint8 if experts < 256 else torch.int16).sort(stable=True)
        ends = torch.searchsorted(by_expert.int(), torch.arange(experts, dtype=torch.int32, device=flat.device), right=True,
                                  out_int32=True)
        place = torch.empty_like(order, dtype=torch.int32)
        place[order] = torch.arange(flat.numel(), dtype=torch.int32, device=flat.device)
        return cls(order, torch.where(flat < experts, place, -1).view_as(choice_TK), ends)

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


def put_rows(kernels: Kernels, x_TH: Tensor, route: Route) -> Tensor:
    return _PutRows.apply(x_TH, route.place_TK, kernels, route.rows)  # type: ignore[no-any-return]


def sum_rows(kernels: Kernels, rows_RH: Tensor, route: Route) -> Tensor:
    return _SumRows.apply(rows_RH, route.place_TK, kernels)  # type: ignore[no-any-return]


class _Mlp(Function):
    @staticmethod
    def forward(ctx: Any, rows_RH: Tensor, weight_R: Tensor, up: Tensor, down: Tensor, ends_E: Tensor, kernels: Kernels,
                gemm: GroupedGemm, deferred: list[Callable[[], None]] | None) -> Tensor:
        experts = ends_E.numel()
        pre = gemm.rows("up", rows_RH, _matrices(up, experts), ends_E, transposed=True)
        ctx.save_for_backward(rows_RH, weight_R, pre, ends_E)
        ctx.up, ctx.down, ctx.kernels, ctx.gemm, ctx.deferred = up, down, kernels, gemm, deferred
        return gemm.rows("down", kernels.gated(pre, weight_R), _matrices(down, experts), ends_E)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (rows, weight, pre, ends), dy, gemm = ctx.saved_tensors, grads[0].contiguous(), ctx.gemm
        experts = ends.numel()
        d = gemm.rows("down_input", dy, _matrices(ctx.down, experts), ends, transposed=True)
        d_weight = ctx.kernels.gated_backward(d, pre, weight)
        d_rows = gemm.rows("up_input", pre, _matrices(ctx.up, experts), ends) if ctx.needs_input_grad[0] else None
        # By now `d` is the activation and `pre` its gradient.
        d_down = _gradient("down_weight", ctx.down, d, dy, ends, gemm, ctx.deferred)
        d_up = _gradient("up_weight", ctx.up, pre, rows, ends, gemm, ctx.deferred)
        return d_rows, d_weight, d_up, d_down, None, None, None, None


def mlp(kernels: Kernels, gemm: GroupedGemm, rows_RH: Tensor, weight_R: Tensor, ends_E: Tensor, up: Tensor, down: Tensor,
        deferred: list[Callable[[], None]] | None = None) -> Tensor:
    """weight x (silu(gate) x up) down of each expert's rows. `up` has of each expert its gate's rows, then its up's."""
    found = _Mlp.apply(rows_RH, weight_R.float(), up, down, ends_E, kernels, gemm, deferred)
    return found  # type: ignore[no-any-return]


def _matrices(weight: Tensor, experts: int) -> Tensor:
    return weight.view(experts, -1, weight.shape[-1])


def _gradient(name: str, weight: Tensor, left: Tensor, right: Tensor, ends: Tensor, gemm: GroupedGemm,
              deferred: list[Callable[[], None]] | None) -> Tensor | None:
    """To the weight's main_grad, now or when the schedule says W; without one, as a plain gradient."""
    main_grad, experts = main_grad_of(weight), ends.numel()
    if main_grad is None:
        out = torch.empty_like(weight)
        gemm.gradient(name, left, right, ends, _matrices(out, experts), add=False)
        return out

    def into() -> None:
        buffer, fresh = main_grad.buffer()
        gemm.gradient(name, left, right, ends, _matrices(buffer.view(weight.shape), experts), add=not fresh)
        main_grad.mark_ready()

    into() if deferred is None else deferred.append(into)
    return None
