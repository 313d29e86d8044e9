"""A rank's experts on a GPU: rows to their experts, two grouped GEMMs with SwiGLU and the gate's weight between, and back.

    y_TH = FastExperts(kernels, grouped)(x_TH, expert_TK, weight_TK, up, down, experts=8)     one rank has all experts
    y_RH = FastExperts(kernels, grouped).mlp(rows_RH, weight_R, ends_E, up, down)             rows that came, sorted

Where the rows lie is known to the device alone: the host waits for nothing. The row's weight is multiplied onto the activation,
so that the way back only adds up. The backward pass writes the activation's gradient over what the first GEMM left, and the
activation over its own gradient: both GEMMs for the weights read them there.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from seatrial.engine.core.layers import main_grad_of
from seatrial.engine.fast.grouped import FastGrouped
from seatrial.engine.fast.kernels import Kernels

Deferred = list[Callable[[], None]] | None
"""Where GEMMs for weights wait until the schedule says W; None: they do not wait."""


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
    def forward(ctx: Any, rows_RH: Tensor, weight_R: Tensor, up: Tensor, down: Tensor, ends_E: Tensor, fast: FastExperts,
                deferred: Deferred) -> Tensor:
        experts, grouped = ends_E.numel(), fast.grouped
        pre = grouped.rows(rows_RH, _matrices(up, experts), ends_E, transposed=True)
        ctx.save_for_backward(rows_RH, weight_R, pre, ends_E)
        ctx.up, ctx.down, ctx.fast, ctx.deferred = up, down, fast, deferred
        return grouped.rows(fast.kernels.gated(pre, weight_R), _matrices(down, experts), ends_E)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (rows, weight, pre, ends), dy, grouped = ctx.saved_tensors, grads[0].contiguous(), ctx.fast.grouped
        experts = ends.numel()
        d = grouped.rows(dy, _matrices(ctx.down, experts), ends, transposed=True)
        d_weight = ctx.fast.kernels.gated_backward(d, pre, weight)
        d_rows = grouped.rows(pre, _matrices(ctx.up, experts), ends)
        # By now `d` is the activation and `pre` its gradient.
        d_down = _gradient(ctx.down, d, dy, ends, grouped, ctx.deferred)
        d_up = _gradient(ctx.up, pre, rows, ends, grouped, ctx.deferred)
        return d_rows, d_weight, d_up, d_down, None, None, None


@dataclass(frozen=True)
class FastExperts:
    """Gated by SwiGLU, without biases. `up` has of each expert its gate's rows, then its up's."""

    kernels: Kernels
    grouped: FastGrouped

    def __call__(self, x_TH: Tensor, expert_TK: Tensor, weight_TK: Tensor, up: Tensor, down: Tensor, *, experts: int,
                 deferred: Deferred = None) -> Tensor:
        route = Route.of(expert_TK, experts)
        rows = _PutRows.apply(x_TH, route.place_TK, self.kernels, route.rows)
        y = self.mlp(rows, _PutWeights.apply(weight_TK, route), route.ends_E, up, down, deferred=deferred)
        return _SumRows.apply(y, route.place_TK, self.kernels)  # type: ignore[no-any-return]

    def mlp(self, rows_RH: Tensor, weight_R: Tensor, ends_E: Tensor, up: Tensor, down: Tensor, *,
            deferred: Deferred = None) -> Tensor:
        return _Mlp.apply(rows_RH, weight_R, up, down, ends_E, self, deferred)  # type: ignore[no-any-return]


class _RouterLinear(Function):
    """Logits in fp32: products of 16-bit numbers are exact there, and so the choice does not hang on a rounded sum."""

    @staticmethod
    def forward(ctx: Any, x_TH: Tensor, weight_EH: Tensor, deferred: Deferred) -> Tensor:
        ctx.save_for_backward(x_TH)
        ctx.weight, ctx.deferred = weight_EH, deferred
        if x_TH.is_cuda and x_TH.dtype != torch.float32:
            return torch.mm(x_TH, weight_EH.t(), out_dtype=torch.float32)
        return x_TH.float() @ weight_EH.t().float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,), weight, main_grad = ctx.saved_tensors, ctx.weight, main_grad_of(ctx.weight)
        dy = grads[0].to(x.dtype)
        if main_grad is None:
            return dy @ weight, dy.t() @ x, None
        kept = x.detach()

        def into() -> None:
            main_grad.add_gemm(dy, kept)

        into() if ctx.deferred is None else ctx.deferred.append(into)
        return dy @ weight, None, None


def router_linear(x_TH: Tensor, weight_EH: Tensor, deferred: Deferred = None) -> Tensor:
    return _RouterLinear.apply(x_TH, weight_EH, deferred)  # type: ignore[no-any-return]


def _matrices(weight: Tensor, experts: int) -> Tensor:
    return weight.view(experts, -1, weight.shape[-1])


def _gradient(weight: Tensor, left: Tensor, right: Tensor, ends: Tensor, grouped: FastGrouped,
              deferred: Deferred) -> Tensor | None:
    """To the weight's main_grad, now or when the schedule says W; without one, as a plain gradient."""
    main_grad, experts = main_grad_of(weight), ends.numel()
    if main_grad is None:
        out = torch.empty_like(weight)
        grouped.gradient(left, right, ends, _matrices(out, experts), add=False)
        return out

    # Detached: what waits must not hold the graph that the rest of the backward pass frees.
    kept = left.detach(), right.detach()

    @torch.no_grad()
    def into() -> None:
        buffer, fresh = main_grad.buffer()
        grouped.gradient(*kept, ends, _matrices(buffer.view(weight.shape), experts), add=not fresh)
        main_grad.mark_ready()

    into() if deferred is None else deferred.append(into)
    return None
