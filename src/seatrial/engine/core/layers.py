"""The layers that tensor parallelism cuts, and the norms and activations between them.

Weight gradients go straight into the parameter's `main_grad` (a view of a flat bucket, see zero.py): one GEMM that adds into
the bucket, no temporary and no second pass. A parameter without a main_grad gets an ordinary gradient. While `tp.deferred` is a
list (zero-bubble schedules), the GEMM is put there and the input gradient goes ahead.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from seatrial.engine.core.comm import TensorParallel, enter, leave
from seatrial.engine.core.params import whole_vector
from seatrial.engine.watch.timers import Timers

AddRows = Callable[[Tensor, Tensor, Tensor], None]
"""(gradient, rows, values): rows that the gradient does not have are left out."""
LayerNormOp = Callable[[Tensor, nn.Parameter, nn.Parameter, float], Tensor]
"""(x, weight, bias, eps)"""
RmsNormOp = Callable[[Tensor, nn.Parameter, float], Tensor]
"""(x, weight, eps)"""


CLAMP, STEEPER = 7.0, 1.702


class MainGrad(Protocol):
    """Where one parameter's gradients are added up."""

    def add(self, grad: Tensor) -> None: ...

    def add_gemm(self, left_TM: Tensor, right_TN: Tensor, alpha: float = 1.0, last: bool = True) -> None:
        """gradient[M, N] += alpha x leftᵀ right; `last`: nothing more comes from this use in this micro-batch."""

    def add_grouped(self, left_TM: Tensor, right_TN: Tensor, counts_E: Tensor) -> None:
        """The same for each of several matrices, whose rows of both lie one after the other, `counts_E` of each."""

    def add_rows(self, rows: Tensor, values_TN: Tensor, add: AddRows | None = None) -> None:
        """`add`: a kernel that adds them into a buffer; it leaves out rows that the buffer does not have."""

    def add_computed(self, make: Callable[[Tensor | None, torch.dtype], Tensor], last: bool = True) -> None:
        """gradient += make(out or None, type): where `out` is given the result is written there; `last` as of `add_gemm`."""

    def buffer(self) -> tuple[Tensor, bool]:
        """Where to put the gradient, and whether it overwrites what is there; `mark_ready` follows."""

    def mark_ready(self) -> None: ...


def main_grad_of(weight: Tensor) -> MainGrad | None:
    return getattr(weight, "main_grad", None)


def rows_of(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def weight_gradient(tp: TensorParallel, weight: Tensor, left: Tensor, right: Tensor) -> Tensor | None:
    """leftᵀ right to the weight's main_grad, now or when the schedule says W; without a main_grad, as a plain gradient."""
    main_grad = main_grad_of(weight)
    if main_grad is None:
        return rows_of(left).t() @ rows_of(right)
    if tp.deferred is not None:
        # Detached: the GEMMs must not hold the graph that the rest of the backward pass frees.
        kept = left.detach(), right.detach()
        tp.deferred.append(lambda: main_grad.add_gemm(rows_of(kept[0]), rows_of(kept[1])))
    else:
        main_grad.add_gemm(rows_of(left), rows_of(right))
    return None


def finite(x: Tensor) -> bool:
    """Without a copy of it: `isfinite` makes one. NaN is the least and the most of what it is in."""
    least, most = x.aminmax()
    return math.isfinite(least.item()) and math.isfinite(most.item())


def with_room(weight: Tensor, narrow: Tensor, wide: Callable[[], Tensor]) -> Tensor | None:
    """A gradient that is a sum over a micro-batch. Where fp16 has no room for it once it is scaled, it goes to the main_grad in
    fp32: else what overflows would depend on DP and MBS. On a GPU the answer would have to be waited for."""
    if torch.compiler.is_compiling():
        return narrow
    main_grad = main_grad_of(weight)
    if main_grad is None or narrow.dtype != torch.float16 or narrow.is_cuda or finite(narrow):
        return narrow
    main_grad.add(wide())
    return None


def bias_gradient(bias: Tensor | None, dy: Tensor) -> Tensor | None:
    if bias is None:
        return None
    return with_room(bias, rows_of(dy).sum(0), lambda: rows_of(dy).sum(0, dtype=torch.float32))


class _ColumnLinear(Function):
    """y = x Wᵀ + b with the rows of W [out, in] spread over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tp: TensorParallel) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.tp, ctx.bias = weight, tp, bias
        return F.linear(tp.into_region(x), weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,), (dy,), tp, weight = ctx.saved_tensors, grads, ctx.tp, ctx.weight
        whole = tp.gather(x) if tp.sequence_parallel else None
        dx = (rows_of(dy) @ weight).view(*dy.shape[:-1], weight.shape[1])
        # The sum over the ranks travels while the weight gradient is computed.
        in_flight = tp.out_of_region(dx)
        dw = weight_gradient(tp, weight, dy, x if whole is None else whole.wait())
        db = bias_gradient(ctx.bias, dy)
        return in_flight.wait(), dw, db, None


class _WholeLinear(Function):
    """y = x Wᵀ, all of W on every rank: each computes with the tokens that it has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, tp: TensorParallel) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.tp = weight, tp
        return F.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,), (dy,), weight = ctx.saved_tensors, grads, ctx.weight
        dx = (rows_of(dy) @ weight).view_as(x)
        return dx, weight_gradient(ctx.tp, weight, dy, x), None


class _RowLinear(Function):
    """y = x W + b with the rows of W [in, out] spread over the ranks; the sum over the ranks comes before the bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tp: TensorParallel) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.tp, ctx.bias = weight, tp, bias
        if tp.size == 1 and bias is not None:
            return torch.addmm(bias, rows_of(x), weight).view(*x.shape[:-1], weight.shape[1])
        y = tp.out_of_region((rows_of(x) @ weight).view(*x.shape[:-1], weight.shape[1])).wait()
        return y if bias is None else y.add_(bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,), (dy,), tp, weight = ctx.saved_tensors, grads, ctx.tp, ctx.weight
        db = bias_gradient(ctx.bias, dy)
        dy = tp.into_region(dy)
        dx = (rows_of(dy) @ weight.t()).view_as(x)
        return dx, weight_gradient(tp, weight, x, dy), db, None


def column_linear(x: Tensor, weight: Tensor, bias: Tensor | None, tp: TensorParallel) -> Tensor:
    if tp.direct:
        return _ColumnLinear.apply(x, weight, bias, tp)  # type: ignore[no-any-return]
    return F.linear(enter(x, tp), weight, bias)


def row_linear(x: Tensor, weight: Tensor, bias: Tensor | None, tp: TensorParallel) -> Tensor:
    if tp.direct:
        return _RowLinear.apply(x, weight, bias, tp)  # type: ignore[no-any-return]
    y = leave(x @ weight, tp)
    return y if bias is None else y + bias


def whole_linear(x: Tensor, weight: Tensor, tp: TensorParallel) -> Tensor:
    return _WholeLinear.apply(x, weight, tp) if tp.direct else F.linear(x, weight)  # type: ignore[no-any-return]


class _Embedding(Function):
    """Rows of a matrix whose rows are spread over the ranks: what is not here is zero, and the sum over the ranks has all."""

    @staticmethod
    def forward(ctx: Any, tokens_BS: Tensor, weight: Tensor, tp: TensorParallel, add: AddRows | None) -> Tensor:
        ctx.weight, ctx.tp, ctx.add = weight, tp, add
        if tp.size == 1:
            ctx.save_for_backward(tokens_BS)
            return F.embedding(tokens_BS, weight)
        local = tokens_BS - tp.rank * weight.shape[0]
        absent = (local < 0) | (local >= weight.shape[0])
        here = local.masked_fill(absent, 0)
        ctx.save_for_backward(*((here, absent) if add is None else (local,)))
        return tp.out_of_region(F.embedding(here, weight).masked_fill_(absent.unsqueeze(-1), 0.0)).wait()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        local, *absent = ctx.saved_tensors
        dy = ctx.tp.into_region(grads[0])
        if absent:
            dy = dy.masked_fill(absent[0].unsqueeze(-1), 0.0)
        main_grad = main_grad_of(ctx.weight)
        if main_grad is None:
            dw = torch.zeros_like(ctx.weight).index_add_(0, local.reshape(-1), rows_of(dy))
            return None, dw, None, None
        main_grad.add_rows(local.reshape(-1), rows_of(dy), ctx.add)
        return None, None, None, None


def embedding(tokens_BS: Tensor, weight: Tensor, tp: TensorParallel, add: AddRows | None = None) -> Tensor:
    """`add`: what puts the gradients into the weight's main_grad."""
    return _Embedding.apply(tokens_BS, weight, tp, add)  # type: ignore[no-any-return]


class _RmsNorm(Function):
    """x / rms(x) x weight, keeping x and one number a row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(eps))
        ctx.save_for_backward(x, weight, scale)
        ctx.weight = weight
        return (wide * scale).to(x.dtype).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight, scale = ctx.saved_tensors
        dy, normed = grads[0].float(), x.float() * scale
        sums = rows_of(dy * normed).sum(0)
        dw = with_room(ctx.weight, sums.to(weight.dtype), lambda: sums)
        dnormed = dy * weight.float()
        dx = (dnormed - normed * (dnormed * normed).mean(-1, keepdim=True)).mul_(scale)
        return dx.to(x.dtype), dw, None


class _HalfLayerNorm(Function):
    """torch's own, whose sums have room."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        y, *moments = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
        ctx.save_for_backward(x, *moments)
        ctx.weight, ctx.bias = weight, bias
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x, *moments), weight, bias, dy = ctx.saved_tensors, ctx.weight, ctx.bias, grads[0].contiguous()

        def sums(kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
            of_kind = [t.to(kind) for t in (dy, x, *moments, weight, bias)]
            return torch.ops.aten.native_layer_norm_backward(  # type: ignore[no-any-return]
                of_kind[0], of_kind[1], weight.shape, *of_kind[2:], [True, True, True])

        dx, dw, db = sums(x.dtype)
        roomy = with_room(weight, dw, lambda: sums(torch.float32)[1])
        return dx, roomy, with_room(bias, db, lambda: sums(torch.float32)[2]), None


def layer_norm(x: Tensor, weight: nn.Parameter, bias: nn.Parameter, eps: float) -> Tensor:
    if x.dtype == torch.float16 and not x.is_cuda:
        return _HalfLayerNorm.apply(x, weight, bias, eps)  # type: ignore[no-any-return]
    return F.layer_norm(x, weight.shape, weight, bias, eps)


class LayerNorm(nn.Module):
    def __init__(self, name: str, hidden: int, eps: float, op: LayerNormOp = layer_norm, *, partial: bool = False):
        """`partial`: each tensor-parallel rank norms its own heads, and has a part of the gradients."""
        super().__init__()
        self.eps, self.op = eps, op
        self.weight = whole_vector(f"{name}.weight", hidden, "ones", partial=partial)
        self.bias = whole_vector(f"{name}.bias", hidden, "zeros", partial=partial)

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x, self.weight, self.bias, self.eps)


def rms_norm(x: Tensor, weight: nn.Parameter, eps: float) -> Tensor:
    if x.is_cuda:
        return F.rms_norm(x, weight.shape, weight, eps)
    return _RmsNorm.apply(x, weight, eps)  # type: ignore[no-any-return]


class RmsNorm(nn.Module):
    def __init__(self, name: str, hidden: int, eps: float, op: RmsNormOp = rms_norm, *, partial: bool = False):
        super().__init__()
        self.eps, self.op = eps, op
        self.weight = whole_vector(f"{name}.weight", hidden, "ones", partial=partial)

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x, self.weight, self.eps)


class _SwiGlu(Function):
    """silu(gate) x up out of one tensor that holds both; keeps that one alone."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (gate_up,), (dy,) = ctx.saved_tensors, grads
        gate, up = gate_up.chunk(2, -1)
        d_gate_up = torch.empty_like(gate_up)
        d_gate, d_up = d_gate_up.chunk(2, -1)
        torch.mul(dy, F.silu(gate), out=d_up)
        d_gate.copy_(torch.ops.aten.silu_backward(dy * up, gate))
        return d_gate_up


def swiglu(gate_up: Tensor) -> Tensor:
    return swiglu_by_autograd(gate_up) if gate_up.is_cuda else _SwiGlu.apply(gate_up)  # type: ignore[no-any-return]


def swiglu_by_autograd(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


class _ClampedSwiGlu(Function):
    """gate x sigmoid(1.702 gate) x (up + 1), the gate 7 at most and up within ±7; keeps what came in alone."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, -1)
        gate = gate.clamp(max=CLAMP)
        return (gate * STEEPER).sigmoid_().mul_(gate).mul_(up.clamp(-CLAMP, CLAMP).add_(1.0))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (gate_up,), (dy,) = ctx.saved_tensors, grads
        d_gate_up = torch.empty_like(gate_up)
        (gate, up), (d_gate, d_up) = gate_up.chunk(2, -1), d_gate_up.chunk(2, -1)
        clamped = gate.clamp(max=CLAMP)
        share = (clamped * STEEPER).sigmoid_()
        torch.mul(dy, clamped * share, out=d_up).masked_fill_(up.abs() > CLAMP, 0.0)
        slope = share * (1.0 + STEEPER * clamped * (1.0 - share))
        torch.mul(dy, slope.mul_(up.clamp(-CLAMP, CLAMP).add_(1.0)), out=d_gate).masked_fill_(gate > CLAMP, 0.0)
        return d_gate_up


def clamped_swiglu(gate_up: Tensor) -> Tensor:
    return _ClampedSwiGlu.apply(gate_up)  # type: ignore[no-any-return]


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


# ---- recompute: what is thrown away in the forward pass and made again in the backward pass


def recompute_block(block: Callable[[Tensor], Tensor], x: Tensor, timers: Timers) -> Tensor:
    def contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
        return nullcontext(), timers("recompute")

    return checkpoint(block, x, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)


class Discarded:
    """An intermediate whose storage is empty between its use in the forward pass and its reader's backward pass.

        h = Discarded(norm, x, timers)
        y = h.free(linear(h.value))           the linear kept h.value for its backward; it comes back just before
    """

    def __init__(self, make: Callable[[Tensor], Tensor], source: Tensor, timers: Timers):
        self.make, self.timers = make, timers
        self.value = make(source)
        self.bytes = self.value.untyped_storage().nbytes()
        self._kept: tuple[Tensor, Tensor] | None = (source, self.value)

    def free(self, result: Tensor, *others: Tensor) -> Tensor:
        """Throw the value away; the first gradient of what was made of it brings it back."""
        value = self.value
        del self.value
        if result.requires_grad:
            value.untyped_storage().resize_(0)
            for one in (result, *others):
                one.register_hook(self._restore)
        return result

    def _restore(self, grad: Tensor) -> None:
        if self._kept is None:
            return
        source, value = self._kept
        # Hooks outlive the tensors that autograd saved: what they held would pile up until the whole graph is gone.
        self._kept = None
        with self.timers("recompute"), torch.no_grad():
            again = self.make(source)
            value.untyped_storage().resize_(self.bytes)
            # Through .data: the saved tensor must not look modified, since it holds the same numbers again.
            value.data.copy_(again)
