"""Attention through SDPA: learned positions need nothing, ALiBi adds a bias, RoPE turns queries and keys.

q, k and v come out of one GEMM as [batch, sequence, heads, head size] and go in as views; the kernels return the same order,
so nothing is copied.
"""
from __future__ import annotations

import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from seatrial.engine.core.context import Context, alibi_bias
from seatrial.engine.core.rope import cos_sin, rotate
from seatrial.engine.core.window import look_back
from seatrial.spec import Model


def attend(qkv_BSD: Tensor, *, heads: int, kv_heads: int, positions: Positions, backend: SDPBackend | None = None,
           q_norm: nn.Module | None = None, k_norm: nn.Module | None = None, window: int | None = None,
           sinks: Tensor | None = None) -> Tensor:
    """Causal attention of this rank's heads."""
    batch, seq, width = qkv_BSD.shape
    head_dim = width // (heads + 2 * kv_heads)
    q, k, v = qkv_BSD.view(batch, seq, -1, head_dim).split((heads, kv_heads, kv_heads), 2)
    if q_norm is not None and k_norm is not None:
        q, k = q_norm(q), k_norm(k)
    if positions.rope_cos_sin is not None:
        q, k = rotate(q, *positions.rope_cos_sin), rotate(k, *positions.rope_cos_sin)
    mixed = mix(q, k, v, positions=positions, backend=backend, window=window, sinks=sinks)
    return mixed.reshape(batch, seq, heads * head_dim)


def mix(q_BSND: Tensor, k_BSND: Tensor, v_BSND: Tensor, *, positions: Positions, backend: SDPBackend | None = None,
        scale: float | None = None, window: int | None = None, sinks: Tensor | None = None) -> Tensor:
    """Causal attention of queries over keys; `scale`: of the scores, where it is not one over the root of a head's size."""
    if positions.context is not None:
        assert window is None, "rules refuse it"
        if scale is not None:
            q_BSND = q_BSND * (scale * math.sqrt(q_BSND.shape[-1]))
        return positions.context.attend(q_BSND, k_BSND, v_BSND, backend=backend, sinks=sinks)
    if positions.bias is None:
        return look_back(q_BSND, k_BSND, v_BSND, window=window, sinks=sinks, backend=backend, scale=scale)
    q, k, v = q_BSND.transpose(1, 2), k_BSND.transpose(1, 2), v_BSND.transpose(1, 2)
    with nullcontext() if backend is None else sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=positions.bias, enable_gqa=k.shape[1] != q.shape[1])
    return out.transpose(1, 2)


class Positions:
    """What all blocks of a rank share: where its tokens stand, the ALiBi bias, or RoPE's angles. Made once."""

    def __init__(self, model: Model, *, first_head: int, heads: int, device: torch.device, dtype: torch.dtype,
                 context: Context | None = None):
        self.context = context
        """Where the sequence is divided over ranks; the bias is then one of each piece."""
        self.bias: Tensor | None = None
        """[1, heads, seq, seq], minus infinity where the future is."""
        self.rope_cos_sin: tuple[Tensor, Tensor] | None = None
        """Cosines and sines, [tokens of this rank, half of what is rotated]."""
        at = context.positions.float() if context else torch.arange(model.seq, dtype=torch.float32, device=device)
        if model.alibi:
            slopes = alibi_slopes(model.heads)[first_head : first_head + heads].to(device)
            if context is not None:
                context.use_alibi(slopes, dtype)
            else:
                self.bias = alibi_bias(slopes, at, at).to(dtype)
        elif model.rope:
            cos, sin = cos_sin(model, at)
            self.rope_cos_sin = cos.to(dtype), sin.to(dtype)

    def rows(self, first: int, count: int) -> slice | Tensor:
        """Positions of `count` of this rank's tokens, from its `first` on."""
        return slice(first, first + count) if self.context is None else self.context.positions[first : first + count]

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors())

    def tensors(self) -> list[Tensor]:
        found = [self.bias, *(self.rope_cos_sin or ())]
        if self.context is not None:
            found += [self.context.positions, *self.context.biases.values()]
        return [t for t in found if t is not None]


def alibi_slopes(heads: int) -> Tensor:
    """A geometric series from 2^(-8/n) down, n the power of two below; heads past n take every second of the next finer one."""
    n = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / n) for i in range(n)]
    slopes += [2 ** (-8 * (2 * i + 1) / (2 * n)) for i in range(heads - n)]
    return torch.tensor(slopes, dtype=torch.float32)
