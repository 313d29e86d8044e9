"""Dense attention kernels that also give each row's log-sum-exp, so that parts of one softmax can be computed apart and put
together again.

    kernel = kernel_for(device, dtype, backend=None, biased=False)
    out, lse = kernel.forward(q, k, v, causal=True, bias=None)
    dq, dk, dv = kernel.backward(d_out, q, k, v, out, lse, causal=True, bias=None)

    out, lse = squares_forward(q, k, v, squares)            many causal squares along the diagonal at once, on a GPU

Tensors are [batch, heads, tokens, head size], log-sum-exps [batch, heads, tokens]. The backward pass takes the output and the
log-sum-exp of the WHOLE softmax that these keys are a part of; its result is then this part's. Queries may have more heads than
keys, a multiple.
"""
from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend

aten = torch.ops.aten
Gradients = tuple[Tensor, Tensor, Tensor]


class Kernel(Protocol):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, bias: Tensor | None) -> tuple[Tensor, Tensor]: ...

    def backward(self, d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool,
                 bias: Tensor | None) -> Gradients: ...


class OnCpu:
    """Takes every type, any head size, fewer heads of keys, and a bias."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=bias)
        return out, lse

    def backward(self, d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool,
                 bias: Tensor | None) -> Gradients:
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(  # type: ignore[no-any-return]
            d_out, q, k, v, out, lse, 0.0, causal, attn_mask=bias)


class Flash:
    """16 bits, no bias."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        found = aten._scaled_dot_product_flash_attention(*_padded(q, k, v), 0.0, causal, scale=_scale(q))
        return found[0][..., : q.shape[-1]], found[1]

    def backward(self, d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool,
                 bias: Tensor | None) -> Gradients:
        d, *qkv, o = _padded(d_out, q, k, v, out)
        seed = torch.zeros(2, dtype=torch.uint64, device=q.device)
        found = aten._scaled_dot_product_flash_attention_backward(
            d, *qkv, o, lse.contiguous(), None, None, q.shape[2], k.shape[2], 0.0, causal, seed, seed, scale=_scale(q))
        return _cut(found, q)


class Cudnn:
    """16 bits; the fastest on Hopper."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        found = aten._scaled_dot_product_cudnn_attention(*_padded(q, k, v), bias, True, 0.0, causal, scale=_scale(q))
        return found[0][..., : q.shape[-1]], found[1].view(q.shape[:3])

    def backward(self, d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool,
                 bias: Tensor | None) -> Gradients:
        d, *qkv, o = _padded(d_out, q, k, v, out)
        seed = torch.zeros((), dtype=torch.int64, device=q.device)
        found = aten._scaled_dot_product_cudnn_attention_backward(
            d, *qkv, o, lse.contiguous().unsqueeze(-1), seed, seed, bias, None, None, q.shape[2], k.shape[2], 0.0, causal,
            scale=_scale(q))
        return _cut(found, q)


class Efficient:
    """Every type, and a bias; keys of fewer heads are repeated."""

    ROWS = 32
    """The log-sum-exps of a head come in a multiple of these; what is beyond the last query is infinite, its weights are 0."""
    ALIGNED = 8
    """Numbers that a row of the bias is a multiple of."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        k, v = _repeated(k, q.shape[1]), _repeated(v, q.shape[1])
        found = aten._scaled_dot_product_efficient_attention(*_padded(q, k, v), self._bias(bias, q), True, 0.0, causal,
                                                             scale=_scale(q))
        return found[0][..., : q.shape[-1]], found[1][..., : q.shape[2]]

    def backward(self, d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *, causal: bool,
                 bias: Tensor | None) -> Gradients:
        kv_heads, heads = k.shape[1], q.shape[1]
        d, *qkv, o = _padded(d_out, q, _repeated(k, heads), _repeated(v, heads), out)
        d, o = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (d, o))
        seed = torch.zeros((), dtype=torch.int64, device=q.device)
        lse = F.pad(lse, (0, -lse.shape[-1] % self.ROWS), value=math.inf).contiguous()
        found = aten._scaled_dot_product_efficient_attention_backward(
            d, *qkv, self._bias(bias, q), o, lse, seed, seed, 0.0, [True, True, True, False], causal, scale=_scale(q))
        dq, dk, dv = _cut(found[:3], q)
        return dq, _summed(dk, kv_heads), _summed(dv, kv_heads)

    def _bias(self, bias: Tensor | None, q: Tensor) -> Tensor | None:
        if bias is None:
            return None
        rows = bias.shape[-1]
        if rows % self.ALIGNED:
            bias = F.pad(bias, (0, -rows % self.ALIGNED))[..., :rows]
        return bias.expand(q.shape[0], q.shape[1], -1, -1)


def kernel_for(device: torch.device, dtype: torch.dtype, *, backend: SDPBackend | None, biased: bool) -> Kernel:
    """`backend`: which one was chosen for a whole attention, where one was."""
    if device.type != "cuda":
        return OnCpu()
    if biased or dtype not in (torch.bfloat16, torch.float16) or backend is SDPBackend.EFFICIENT_ATTENTION:
        return Efficient()
    if backend is None:
        hopper = torch.cuda.get_device_capability(device)[0] >= 9
        backend = SDPBackend.CUDNN_ATTENTION if hopper and torch.backends.cudnn.is_available() else SDPBackend.FLASH_ATTENTION
    return Cudnn() if backend is SDPBackend.CUDNN_ATTENTION else Flash()


class Squares(NamedTuple):
    """All tokens of a micro-batch, sample after sample, each among those of its square: documents of one kernel call."""

    ends: Tensor
    """Where squares begin, and where the last one ends; int32."""
    longest: int

    def taken_by(self, kernel: Kernel, q_BSND: Tensor) -> bool:
        """Whether one call for all is better than one of this kernel for each."""
        batch, tokens, heads, _ = q_BSND.shape
        mean = batch * tokens / (len(self.ends) - 1)
        return isinstance(kernel, Flash) or isinstance(kernel, Cudnn) and mean * heads <= SMALL_SQUARE


SMALL_SQUARE = 1 << 15
"""Tokens x heads: where squares are larger, the faster kernel of a Hopper makes up for its many calls. On an H200 the two are
even at 1,300 tokens of 32 heads and at 6,000 of 4 (`benchmarks/gpu/packed.py`)."""


def squares_forward(q_BSND: Tensor, k_BSND: Tensor, v_BSND: Tensor, squares: Squares) -> tuple[Tensor, Tensor]:
    """Here [batch, tokens, heads, head size], as the kernel has it."""
    flat = [x.flatten(0, 1) for x in _padded(q_BSND, k_BSND, v_BSND)]
    out, lse, *_ = aten._flash_attention_forward(*flat, squares.ends, squares.ends, squares.longest, squares.longest, 0.0, True,
                                                 False, scale=_scale(q_BSND))
    lse = lse.unflatten(1, q_BSND.shape[:2]).transpose(0, 1)
    return out.unflatten(0, q_BSND.shape[:2])[..., : q_BSND.shape[-1]], lse


def squares_backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse_BNS: Tensor,
                     squares: Squares) -> Gradients:
    flat = [x.flatten(0, 1).contiguous() for x in _padded(d_out, q, k, v, out)]
    seed = torch.zeros(2, dtype=torch.uint64, device=q.device)
    found = aten._flash_attention_backward(*flat, lse_BNS.transpose(0, 1).flatten(1).contiguous(), squares.ends, squares.ends,
                                           squares.longest, squares.longest, 0.0, True, seed, seed, scale=_scale(q))
    dq, dk, dv = (g.unflatten(0, q.shape[:2])[..., : q.shape[-1]] for g in found)
    return dq, dk, dv


def _scale(q: Tensor) -> float:
    return 1.0 / math.sqrt(q.shape[-1])


def _padded(*tensors: Tensor) -> list[Tensor]:
    """Head sizes that the kernels of a GPU take; what is added is zero and changes no product. In memory tokens stay before
    heads: one of the kernels takes an output for such without a look at its strides."""
    missing = -tensors[0].shape[-1] % 8
    return [F.pad(t.transpose(1, 2), (0, missing)).transpose(1, 2) for t in tensors] if missing else list(tensors)


def _cut(grads: Gradients, q: Tensor) -> Gradients:
    dq, dk, dv = (g[..., : q.shape[-1]] for g in grads)
    return dq, dk, dv


def _repeated(x_BNSD: Tensor, heads: int) -> Tensor:
    return x_BNSD if x_BNSD.shape[1] == heads else x_BNSD.repeat_interleave(heads // x_BNSD.shape[1], 1)


def _summed(x_BNSD: Tensor, heads: int) -> Tensor:
    return x_BNSD if x_BNSD.shape[1] == heads else x_BNSD.unflatten(1, (heads, -1)).sum(2)
