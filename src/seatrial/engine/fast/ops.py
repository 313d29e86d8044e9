"""The operations of `core/ops.py` with kernels: norms and positions outside the blocks, cross-entropy, GEMMs into fp32.

Gradients of weights go straight to their main_grads: columns are added up on the way, and positions are summed over the batch
where they lie, without a matrix between.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function

from seatrial.engine.core.comm import TensorParallel
from seatrial.engine.core.layers import main_grad_of
from seatrial.engine.core.ops import Ops, PlainGemm, Rows
from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.fast.kernels.scaling import Scales


@dataclass(frozen=True, kw_only=True)
class FastOps(Ops):
    kernels: Kernels = field(default_factory=Kernels)
    scales: Scales | None = None
    """Of GEMMs in eight bits."""


class Fp32Gemm(PlainGemm):
    """Results of 16-bit operands are added up in fp32 without a rounding between."""

    def into(self, out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False) -> Tensor:
        if out.dtype == left.dtype:
            return super().into(out, left, right, alpha=alpha, add=add)
        return torch.addmm(out, left, right, out_dtype=out.dtype, beta=1.0 if add else 0.0, alpha=alpha, out=out)


def fp32_gemm_works(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this torch has it, tried on small matrices."""
    if device.type != "cuda" or dtype == torch.float32:
        return False
    left, right = (torch.randn(64, 64, device=device, dtype=dtype) for _ in range(2))
    out = torch.zeros(64, 64, device=device)
    try:
        for add in (False, True):
            Fp32Gemm().into(out, left.t(), right, alpha=0.5, add=add)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return bool(torch.allclose(out, left.float().t() @ right.float(), rtol=1e-3, atol=1e-2))


def cross_entropy(kernels: Kernels, logits_TV: Tensor, targets_T: Tensor, tp: TensorParallel, *, real: int,
                  gradient: bool) -> tuple[Tensor, Tensor]:
    """On 16-bit logits, which become their own gradient in place."""
    largest, total, at_target = kernels.softmax_parts(logits_TV, targets_T, real)
    if tp.size > 1:
        mine = largest.clone()
        tp.comm.all_reduce(largest, tp.group, timer="tp_comm", op=dist.ReduceOp.MAX)
        both = torch.stack((total * (mine - largest).exp(), at_target))
        tp.comm.all_reduce(both, tp.group, timer="tp_comm")
        total, at_target = both
    log_sum = largest + total.log()
    if gradient:
        kernels.softmax_gradient(logits_TV, targets_T, log_sum, real)
    return log_sum - at_target, logits_TV


class _Norm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kernels: Kernels, weight: nn.Parameter, bias: nn.Parameter | None, eps: float) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        h, stats = kernels.norm(rows, weight, bias, eps)
        ctx.kernels, ctx.weight, ctx.bias = kernels, weight, bias
        ctx.save_for_backward(rows, stats)
        return h.view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        rows, stats = ctx.saved_tensors
        dx, sums = ctx.kernels.norm_backward(grads[0].reshape(rows.shape).contiguous(), rows, stats, ctx.weight)
        reduce_partials(ctx.kernels, sums, ctx.weight, ctx.bias)
        return dx.view(grads[0].shape), None, None, None, None


def layer_norm(kernels: Kernels, x: Tensor, weight: nn.Parameter, bias: nn.Parameter, eps: float) -> Tensor:
    return _Norm.apply(x, kernels, weight, bias, eps)  # type: ignore[no-any-return]


def rms_norm(kernels: Kernels, x: Tensor, weight: nn.Parameter, eps: float) -> Tensor:
    return _Norm.apply(x, kernels, weight, None, eps)  # type: ignore[no-any-return]


class _AddPositions(Function):
    @staticmethod
    def forward(ctx: Any, x_BSH: Tensor, weight: nn.Parameter, rows: Rows) -> Tensor:
        ctx.weight, ctx.rows = weight, rows
        return x_BSH + weight[rows]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (dx_BSH,), main_grad = grads, main_grad_of(ctx.weight)
        assert main_grad is not None
        buffer, fresh = main_grad.buffer()
        whole = buffer.view(ctx.weight.shape)
        if fresh and dx_BSH.shape[1] < whole.shape[0]:
            whole.zero_()
        if fresh and isinstance(ctx.rows, slice):
            here = whole[ctx.rows]
            torch.sum(dx_BSH, 0, dtype=here.dtype, out=here)
        else:
            whole[ctx.rows] += dx_BSH.sum(0, dtype=torch.float32)
        main_grad.mark_ready()
        return dx_BSH, None, None


def add_positions(x_BSH: Tensor, weight: nn.Parameter, rows: Rows) -> Tensor:
    return _AddPositions.apply(x_BSH, weight, rows)  # type: ignore[no-any-return]


def reduce_partials(kernels: Kernels, sums: Tensor, *params: Tensor | None) -> None:
    """Column sums into the gradients of biases and norms."""
    main_grads = [main_grad for p in params if p is not None and (main_grad := main_grad_of(p)) is not None]
    if main_grads:
        kernels.reduce_partials(sums, [main_grad.buffer() for main_grad in main_grads])
    for main_grad in main_grads:
        main_grad.mark_ready()
