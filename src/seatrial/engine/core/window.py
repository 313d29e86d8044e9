"""Attention that looks back over a sliding window, and attention sinks, by which it may go nowhere.

    out = look_back(q, k, v, window=128, sinks=None)            [batch, tokens, heads, head size]

A window is a band along the diagonal: queries in blocks of a window's length meet the keys of their own block and of the one
before, all blocks as one batch, so work and memory grow with tokens x window. A sink is one more score of each head in the sum
of the softmax, with no value to it; the kernels' log-sum-exps take it in (`lse_kernels.py`).
"""
from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.nn.attention import SDPBackend, sdpa_kernel

from seatrial.engine.core.eager import eager
from seatrial.engine.core.lse_kernels import Kernel, kernel_for


def look_back(q_BSND: Tensor, k_BSND: Tensor, v_BSND: Tensor, *, window: int | None = None, sinks: Tensor | None = None,
              backend: SDPBackend | None = None, scale: float | None = None) -> Tensor:
    """Causal attention over the last `window` tokens, or over all."""
    batch, seq = q_BSND.shape[:2]
    if window is None or window >= seq:
        return _softmax(q_BSND, k_BSND, v_BSND, None, sinks, backend, scale)
    missing = -seq % window
    q, k, v = (F.pad(x, (0, 0, 0, 0, 0, missing)) if missing else x for x in (q_BSND, k_BSND, v_BSND))
    first = _softmax(q[:, :window], k[:, :window], v[:, :window], None, sinks, backend, scale)
    q, k, v = (x.unflatten(1, (-1, window)) for x in (q, k, v))
    keys, values = (torch.cat((x[:, :-1], x[:, 1:]), 2).flatten(0, 1) for x in (k, v))
    rest = _softmax(q[:, 1:].flatten(0, 1), keys, values, _band(window, q.device, q.dtype), sinks, backend, scale)
    return torch.cat((first, rest.unflatten(0, (batch, -1)).flatten(1, 2)), 1)[:, :seq]


@lru_cache(maxsize=8)
def _band(window: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """[1, 1, window, 2 x window], of a block's queries and the keys of the block before and its own; minus infinity where the
    future is, and what is too long ago."""
    q, k = torch.arange(window, device=device)[:, None], torch.arange(2 * window, device=device)[None]
    unseen = (k <= q) | (k > q + window)
    return torch.zeros(unseen.shape, dtype=dtype, device=device).masked_fill_(unseen, -torch.inf)[None, None]


def _softmax(q_BSND: Tensor, k_BSND: Tensor, v_BSND: Tensor, band: Tensor | None, sinks: Tensor | None,
             backend: SDPBackend | None, scale: float | None) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q_BSND, k_BSND, v_BSND))
    if sinks is not None:
        if scale is not None:
            q = q * (scale * q.shape[-1] ** 0.5)
        return _with_sinks(q, k, v, sinks, band, kernel_for(q.device, q.dtype, backend=backend, biased=band is not None))
    with nullcontext() if backend is None or band is not None else sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=band, is_causal=band is None, scale=scale,
                                             enable_gqa=k.shape[1] != q.shape[1])
    return out.transpose(1, 2)


def with_sinks(out_BSND: Tensor, lse_BNS: Tensor, sinks_N: Tensor) -> tuple[Tensor, Tensor]:
    """What is left of an attention when each head's sink takes its share."""
    both = torch.logaddexp(lse_BNS, sinks_N.to(lse_BNS.dtype)[:, None])
    return out_BSND * (lse_BNS - both).exp().transpose(1, 2).unsqueeze(-1).to(out_BSND.dtype), both


def sinks_gradient(d_out_BSND: Tensor, out_BSND: Tensor, lse_BNS: Tensor, sinks_N: Tensor) -> Tensor:
    """Of a softmax that has them in it: a share with no value to it only takes from the others."""
    share = (sinks_N.to(lse_BNS.dtype)[:, None] - lse_BNS).exp().transpose(1, 2)
    return -((d_out_BSND.to(lse_BNS.dtype) * out_BSND).sum(-1) * share).sum((0, 1)).to(sinks_N.dtype)


class _WithSinks(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, band: Tensor | None, kernel: Kernel) -> Tensor:
        out, lse = kernel.forward(q, k, v, causal=band is None, bias=band)
        out, lse = with_sinks(out.transpose(1, 2), lse, sinks)
        ctx.save_for_backward(q, k, v, sinks, out, lse)
        ctx.band, ctx.kernel = band, kernel
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        q, k, v, sinks, out, lse = ctx.saved_tensors
        d_out = grads[0]
        found = ctx.kernel.backward(d_out.transpose(1, 2), q, k, v, out.transpose(1, 2), lse, causal=ctx.band is None,
                                    bias=ctx.band)
        return *found, sinks_gradient(d_out, out, lse, sinks), None, None


@eager
def _with_sinks(*given: Any) -> Tensor:
    return _WithSinks.apply(*given)  # type: ignore[no-any-return]
