"""Every kernel in plain torch: what runs where Triton does not, and what Triton's are compared with.

    h, stats, shifted = norm(x, weight, bias, 1e-5, plus=out_bias)      shifted = x + out_bias
    dx, sums = norm_backward(dh, x, stats, weight, residual=dy)         sums: [3 (or 2), groups, hidden], still to be added

Matrices are [tokens, columns]. Column sums come as fp32 partial sums, which `reduce_partials` adds into their outs.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seatrial.engine.core.masters import merge_bits, split_bits
from seatrial.engine.fast.kernels.scaling import ScalingState

Asked = Any
"""A tensor where the arguments ask for it, else None."""
Out = tuple[Tensor, bool]
"""A vector, and whether it is overwritten (else added to)."""
AT_ONCE = 1 << 24
"""Numbers of an update: a dozen vectors as long are made on the way, and a layer may have billions."""


def norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, *,
         plus: Tensor | None = None) -> tuple[Tensor, Tensor, Asked]:
    h, mean, rstd = torch.native_layer_norm(x, (x.shape[1],), weight, bias, eps)
    stats = torch.stack((mean.view(-1), rstd.view(-1))).float()
    return h, stats, None if plus is None else x + plus


def norm_recompute(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.addcmul(bias.float(), _normed(x, stats), weight.float()).to(x.dtype)


def norm_backward(dh: Tensor, x: Tensor, stats: Tensor, weight: Tensor,
                  residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The gradient of x with the residual's added; the sums over the tokens for weight, bias and `residual`."""
    normed, d = _normed(x, stats), dh.to(torch.float32, copy=True)
    sums = [(d * normed).sum(0), d.sum(0)]
    d *= weight.float()
    inner = (d * normed).mean(1, keepdim=True)
    d.sub_(d.mean(1, keepdim=True)).sub_(normed.mul_(inner)).mul_(stats[1].unsqueeze(1))
    if residual is not None:
        d += residual
        sums.append(residual.sum(0, dtype=torch.float32))
    return d.to(x.dtype), torch.stack(sums).unsqueeze(1)


def gelu(pre: Tensor) -> Tensor:
    return F.gelu(pre, approximate="tanh")


def gelu_backward(dg: Tensor, pre: Tensor, *, recompute: bool) -> tuple[Tensor, Asked, Tensor]:
    """The gradient of `pre`, in the place of dg; its column sums; the activation itself where it was not kept."""
    dpre = torch.ops.aten.gelu_backward(dg, pre, approximate="tanh")
    dg.copy_(dpre)
    return dg, gelu(pre) if recompute else None, dpre.float().sum(0)[None, None]


def cat_qkv(parts: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The three side by side, and their column sums."""
    whole = torch.cat(parts, 1)
    return whole, whole.float().sum(0)[None, None]


def reduce_partials(sums: Tensor, outs: list[Out]) -> None:
    for part, (out, fresh) in zip(sums.sum(1), outs):
        out.copy_(part) if fresh else out.add_(part)


def add_rows(out: Tensor, rows: Tensor, values: Tensor) -> None:
    """out[rows] += values; each row's are added up in fp32 and rounded once. Rows that are not in the place are left out."""
    inside = (rows >= 0) & (rows < out.shape[0])
    rows, order = rows.clamp(0, out.shape[0] - 1).sort(stable=True)
    run = F.pad(rows.diff() != 0, (1, 0)).cumsum(0)
    values = values.float().masked_fill(~inside.unsqueeze(1), 0.0)
    sums = torch.zeros_like(values).index_add_(0, run, values[order])
    out.index_copy_(0, rows, (out[rows].float() + sums[run]).to(out.dtype))


# cross-entropy


def softmax_parts(logits: Tensor, targets: Tensor, real: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row's first `real` columns: the largest, the sum of exponentials below it, and the target's (0 where absent)."""
    seen = logits[:, :real].float()
    largest = seen.amax(1) if real else torch.full((logits.shape[0],), -torch.inf, device=logits.device)
    here = (targets >= 0) & (targets < real)
    at_target = logits.gather(1, targets.clamp(0, logits.shape[1] - 1).unsqueeze(1)).squeeze(1).float()
    return largest, (seen - largest.unsqueeze(1)).exp_().sum(1), at_target.masked_fill_(~here, 0.0)


def softmax_gradient(logits: Tensor, targets: Tensor, log_sum: Tensor, real: int) -> None:
    """logits become softmax minus one at the target, zero in the padding."""
    p = (logits.float() - log_sum.unsqueeze(1)).exp_()
    p[:, real:] = 0.0
    here = ((targets >= 0) & (targets < real)).float()
    p.scatter_add_(1, targets.clamp(0, logits.shape[1] - 1).unsqueeze(1), -here.unsqueeze(1))
    logits.copy_(p)


# optimizer


def squared(parts: list[Tensor]) -> Tensor:
    """The sum of squares of all, in double precision."""
    return torch.stack([torch.linalg.vector_norm(p, dtype=torch.float32) for p in parts]).double().square().sum()


def adamw(master: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, weights: Tensor | None, numbers: Tensor, *,
          beta1: float, beta2: float, eps: float, keep: float) -> None:
    """`numbers`: what to divide the gradient by, the step size, the root of the second correction, 1.0 to change nothing.

    Moments in 16 bits are rounded once, after the step was computed with them.
    """
    divide_by, size, root, overflowed = numbers.unbind()
    go = overflowed == 0.0
    for here in _pieces(master.numel()):
        g = grad[here].float() / divide_by
        first = torch.lerp(exp_avg[here].float(), g, 1.0 - beta1)
        second = exp_avg_sq[here].float() * beta2 + (1.0 - beta2) * g * g
        after = master[here] * keep - size * first / (second.sqrt() / root + eps)
        for state, new in ((exp_avg, first), (exp_avg_sq, second), (master, after)):
            state[here] = torch.where(go, new, state[here])
    if weights is not None:
        weights.copy_(master)


def adamw_split(weights: Tensor, rest: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, numbers: Tensor, *,
                beta1: float, beta2: float, eps: float, keep: float) -> None:
    """Of masters that are their bf16 weights and the bits below (`masters.py`)."""
    for here in _pieces(weights.numel()):
        master = merge_bits(weights[here], rest[here])
        adamw(master, grad[here], exp_avg[here], exp_avg_sq[here], None, numbers, beta1=beta1, beta2=beta2, eps=eps, keep=keep)
        weights[here], rest[here] = split_bits(master)


def _pieces(count: int) -> Iterator[slice]:
    return (slice(at, at + AT_ONCE) for at in range(0, count, AT_ONCE))


# eight bits: rows as they are, and transposed where a GEMM wants the tokens last


def cast8(x: Tensor, scaling: ScalingState, *, rows: bool = True, cols: bool = False) -> tuple[Asked, Asked]:
    eight = scaling.cast(x)
    return eight if rows else None, eight.t().contiguous() if cols else None


def norm8(x: Tensor, weight: Tensor, bias: Tensor, eps: float, scaling: ScalingState, *,
          added: Tensor | None = None) -> tuple[Tensor, Tensor, Asked]:
    """The norm of x (+ added) in eight bits, its statistics, and the sum."""
    both = None if added is None else x + added
    h, stats, _ = norm((x if both is None else both).float(), weight.float(), bias.float(), eps)
    return scaling.cast(h), stats, both


def norm_recompute8(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor, scaling: ScalingState) -> Tensor:
    """Transposed."""
    return scaling.cast(norm_recompute(x.float(), stats, weight, bias)).t().contiguous()


def gelu8(pre: Tensor, scaling: ScalingState) -> Tensor:
    return scaling.cast(gelu(pre.float()))


def gelu_backward8(dg: Tensor, pre: Tensor, scaling: ScalingState,
                   g_scaling: ScalingState) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradient of `pre` both ways, the activation transposed, and the gradient's column sums; rounded once."""
    wide = pre.float()
    dpre = torch.ops.aten.gelu_backward(dg.float(), wide, approximate="tanh")
    eight = scaling.cast(dpre)
    return eight, eight.t().contiguous(), g_scaling.cast(gelu(wide)).t().contiguous(), dpre.sum(0)[None, None]


def cat_qkv8(parts: tuple[Tensor, Tensor, Tensor], scaling: ScalingState) -> tuple[Tensor, Tensor, Tensor]:
    whole = torch.cat(parts, 1)
    eight = scaling.cast(whole)
    return eight, eight.t().contiguous(), whole.float().sum(0)[None, None]


def _normed(x: Tensor, stats: Tensor) -> Tensor:
    return (x - stats[0].unsqueeze(1)).mul_(stats[1].unsqueeze(1))
