"""Every kernel in plain torch: what runs where Triton does not, and what Triton's are compared with.

    h, stats = norm(x, weight, bias, 1e-5)                          without a bias an RMS norm
    dx, sums = norm_backward(dh, x, stats, weight, residual=dy)     sums: [1 to 3, groups, hidden], still to be added

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
Parts = tuple[Tensor, Tensor, Tensor]
CosSin = tuple[Tensor, Tensor]
"""Of each position, and each pair of a head's coordinates."""
HeadNorms = tuple[Tensor, Tensor, float]
"""Weights of queries and of keys, and eps: an RMS norm over each head."""
AT_ONCE = 1 << 24
"""Numbers of an update: a dozen vectors as long are made on the way, and a layer may have billions."""


def norm(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Layer norm with a bias, RMS norm without; and each row's mean (of the first alone) and reciprocal deviation."""
    if bias is None:
        stats = torch.rsqrt(x.float().square().mean(1).add_(eps))[None]
        return norm_recompute(x, stats, weight, None), stats
    h, mean, rstd = torch.native_layer_norm(x, (x.shape[1],), weight, bias, eps)
    return h, torch.stack((mean.view(-1), rstd.view(-1))).float()


def norm_recompute(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    h = _normed(x, stats).mul_(weight.float())
    return (h if bias is None else h.add_(bias.float())).to(x.dtype)


def norm_backward(dh: Tensor, x: Tensor, stats: Tensor, weight: Tensor, residual: Tensor | None = None, *,
                  sum_residual: bool = False) -> tuple[Tensor, Tensor]:
    """The gradient of x with the residual's added; the sums over the tokens for weight, bias and, if asked for, `residual`."""
    normed, d, centred = _normed(x, stats), dh.to(torch.float32, copy=True), len(stats) == 2
    sums = [(d * normed).sum(0), *([d.sum(0)] if centred else [])]
    d *= weight.float()
    inner = (d * normed).mean(1, keepdim=True)
    if centred:
        d.sub_(d.mean(1, keepdim=True))
    d.sub_(normed.mul_(inner)).mul_(stats[-1].unsqueeze(1))
    if residual is not None:
        d += residual
        sums += [residual.sum(0, dtype=torch.float32)] if sum_residual else []
    return d.to(x.dtype), torch.stack(sums).unsqueeze(1)


def gelu(pre: Tensor) -> Tensor:
    return F.gelu(pre, approximate="tanh")


def gelu_backward(dg: Tensor, pre: Tensor, *, recompute: bool) -> tuple[Tensor, Asked, Tensor]:
    """The gradient of `pre`, in the place of dg; its column sums; the activation itself where it was not kept."""
    dpre = torch.ops.aten.gelu_backward(dg, pre, approximate="tanh")
    dg.copy_(dpre)
    return dg, gelu(pre) if recompute else None, dpre.float().sum(0)[None, None]


def gated(pre: Tensor, weight_R: Tensor | None = None) -> Tensor:
    """silu(gate) x up (x the row's weight), out of (gate, up) side by side."""
    gate, up = pre.float().chunk(2, -1)
    out = F.silu(gate) * up
    return (out if weight_R is None else out * weight_R[:, None]).to(pre.dtype)


def gated_backward(d: Tensor, pre: Tensor, weight_R: Tensor | None = None) -> Asked:
    """`pre` becomes its gradient, `d` becomes the activation; the weights' gradients come back, in fp32."""
    (gate, up), wide = pre.float().chunk(2, -1), d.float()
    s = gate.sigmoid()
    value = gate * s
    by_weight, out = (wide, value * up) if weight_R is None else (wide * weight_R[:, None], value * up * weight_R[:, None])
    d_weight = None if weight_R is None else (wide * value * up).sum(1)
    # In fp32 all these are views of what is overwritten.
    pre.copy_(torch.cat((by_weight * up * (s + value * (1.0 - s)), by_weight * value), 1))
    d.copy_(out)
    return d_weight


def cat_qkv(parts: Parts) -> tuple[Tensor, Tensor]:
    """The three side by side, keys and values as wide as each other; and their column sums."""
    whole = torch.cat(parts, 1)
    return whole, whole.float().sum(0)[None, None]


def rotate(qkv: Tensor, heads: tuple[int, int], cos_sin: CosSin | None, norms: HeadNorms | None) -> Tensor:
    """Queries and keys of so many heads, normed and turned: where they lie, or with norms, whose backward pass needs what came
    in, in a matrix of their own. Tokens are those of whole sequences."""
    many, size = sum(heads), head_size(cos_sin, norms)
    x = qkv.view(len(qkv), -1, size)[:, :many].float()
    if norms is not None:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norms[2])
        x = torch.cat((x[:, : heads[0]] * norms[0].float(), x[:, heads[0] :] * norms[1].float()), 1)
    x = _turned(x, cos_sin, 1.0)
    if norms is not None:
        return x.to(qkv.dtype).flatten(1)
    qkv[:, : many * size] = x.flatten(1)
    return qkv


def rotate_backward(d_q: Tensor, d_k: Tensor, qkv: Tensor | None, cos_sin: CosSin | None, norms: HeadNorms | None) -> Asked:
    """The gradients of queries and keys become those of `qkv`, which norms alone need; those of their weights as sums."""
    size = head_size(cos_sin, norms)
    first, sums = 0, []
    for number, d in enumerate((d_q, d_k)):
        x = _turned(d.view(len(d), -1, size).float(), cos_sin, -1.0)
        if norms is not None and qkv is not None:
            raw = qkv[:, first : first + d.shape[1]].view(x.shape).float()
            rstd = torch.rsqrt(raw.square().mean(-1, keepdim=True) + norms[2])
            normed = raw * rstd
            sums.append((x * normed).sum((0, 1)))
            x = x * norms[:2][number].float()
            x = (x - normed * (x * normed).mean(-1, keepdim=True)) * rstd
        d.copy_(x.flatten(1))
        first += d.shape[1]
    return torch.stack(sums)[:, None] if sums else None


def head_size(cos_sin: CosSin | None, norms: HeadNorms | None) -> int:
    return len(norms[0]) if norms else 2 * cos_sin[0].shape[1] if cos_sin else 0


def _turned(x_TND: Tensor, cos_sin: CosSin | None, way: float) -> Tensor:
    if cos_sin is None:
        return x_TND
    cos, sin = (t.float().repeat(len(x_TND) // len(t), 1)[:, None] for t in cos_sin)
    one, two = x_TND.chunk(2, -1)
    return torch.cat((one * cos - way * two * sin, two * cos + way * one * sin), -1)


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


def norm8(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, scaling: ScalingState) -> tuple[Tensor, Tensor]:
    """In eight bits, rounded once."""
    h, stats = norm(x.float(), weight.float(), None if bias is None else bias.float(), eps)
    return scaling.cast(h), stats


def norm_recompute8(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor | None, scaling: ScalingState) -> Tensor:
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


def gated8(pre: Tensor, scaling: ScalingState) -> Tensor:
    return scaling.cast(gated(pre.float()))


def gated_backward8(d: Tensor, pre: Tensor, scaling: ScalingState, g_scaling: ScalingState, *,
                    sums: bool = True) -> tuple[Tensor, Tensor, Tensor, Asked]:
    """As GELU's."""
    wide, dpre = d.float(), pre.to(torch.float32, copy=True)
    gated_backward(wide, dpre)
    eight, g8 = scaling.cast(dpre), g_scaling.cast(gated(pre.float()))
    return eight, eight.t().contiguous(), g8.t().contiguous(), dpre.sum(0)[None, None] if sums else None


def cat_qkv8(parts: Parts, scaling: ScalingState) -> tuple[Tensor, Tensor, Tensor]:
    whole = torch.cat(parts, 1)
    eight = scaling.cast(whole)
    return eight, eight.t().contiguous(), whole.float().sum(0)[None, None]


def _normed(x: Tensor, stats: Tensor) -> Tensor:
    """In fp32; `stats` without a mean is an RMS norm's."""
    wide = x.float() if len(stats) == 1 else x - stats[0].unsqueeze(1)
    return wide * stats[-1].unsqueeze(1)
