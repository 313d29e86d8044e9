"""Attention for blocks whose backward pass is written out, and which of SDPA's kernels is fastest on a run's own shape.

    core = attend_apart(qkv, qkv, batch=16, heads=32, kv_heads=8, positions=positions, backend=None, window=None, keep=True)
    d_q, d_k, d_v = core.back(d_mixed)
    name, took_s = fastest(batch=16, seq=1024, heads=32, kv_heads=8, head_dim=64, dtype=dtype, bias=None, device=device)

A kernel that refuses the shape is left out; where none works there is nothing to choose.
"""
from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from seatrial.engine.core.attention import Positions, mix
from seatrial.engine.core.autograd import gradients
from seatrial.engine.fast import turns
from seatrial.engine.fast.kernels.plain import Parts

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION}


@dataclass
class Core:
    """Attention whose backward pass is asked for by hand."""

    mixed: Tensor
    """[tokens, heads x head size]"""
    _leaves: tuple[Tensor, Tensor, Tensor] | None
    _out: Tensor | None

    def back(self, d_mixed: Tensor) -> Parts:
        """Gradients of queries, keys and values, each [tokens, heads x head size]; once."""
        assert self._leaves is not None and self._out is not None
        grads = gradients([self._out], self._leaves, [d_mixed.view(self._out.shape)])
        self._leaves = self._out = None
        # A backend may lay the three side by side; the kernels that take them want each by itself.
        q, k, v = (g.flatten(2).flatten(0, 1).contiguous() for g in grads)
        return q, k, v


def attend_apart(turned: Tensor, qkv: Tensor, *, batch: int, heads: int, kv_heads: int, positions: Positions,
                 backend: SDPBackend | None, window: int | None, keep: bool) -> Core:
    """Causal attention of this rank's heads, with a small graph of its own. Queries and keys lie in `turned`, values in `qkv`,
    which may be one; both [tokens, columns]."""
    size = qkv.shape[1] // (heads + 2 * kv_heads)
    split = (x.view(batch, len(x) // batch, -1, size) for x in (turned, turned, qkv))
    begins = ((0, heads), (heads, kv_heads), (heads + kv_heads, kv_heads))
    with torch.set_grad_enabled(keep):
        q, k, v = (x.narrow(2, *at).detach().requires_grad_(keep) for x, at in zip(split, begins))
        out = mix(q, k, v, positions=positions, backend=backend, window=window)
    return Core(out.detach().reshape(len(qkv), heads * size), (q, k, v) if keep else None, out if keep else None)


class Shape(TypedDict):
    """The attention of one rank's heads."""

    batch: int
    seq: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    bias: Tensor | None
    device: torch.device


def fastest(**shape: Unpack[Shape]) -> tuple[str | None, dict[str, float]]:
    """The backend, and the seconds of one forward and backward pass of each that works."""
    qkv, bias = _inputs(shape), shape["bias"]
    took = turns.milliseconds({name: partial(_both_ways, name, qkv, bias) for name in BACKENDS if _runs(name, qkv, bias)},
                              shape["device"])
    return min(took, key=lambda name: took[name], default=None), {name: ms / 1e3 for name, ms in took.items()}


def prepare(**shape: Unpack[Shape]) -> None:
    """What a backend does once for a shape, which takes longer than to measure it."""
    qkv = _inputs(shape)
    for name in BACKENDS:
        _runs(name, qkv, shape["bias"])


def works(name: str, **shape: Unpack[Shape]) -> bool:
    return name == "default" or _runs(name, _inputs(shape), shape["bias"])


def _inputs(shape: Shape) -> Parts:
    heads, kv_heads = shape["heads"], shape["kv_heads"]
    qkv = torch.randn(shape["batch"], shape["seq"], heads + 2 * kv_heads, shape["head_dim"], dtype=shape["dtype"],
                      device=shape["device"])
    q, k, v = (t.transpose(1, 2).detach().requires_grad_() for t in qkv.split((heads, kv_heads, kv_heads), 2))
    return q, k, v


def _runs(name: str, qkv: Parts, bias: Tensor | None) -> bool:
    try:
        with warnings.catch_warnings():
            # A backend that refuses says why in a warning for each reason, then raises.
            warnings.simplefilter("ignore")
            _both_ways(name, qkv, bias)
    except RuntimeError:
        return False
    return True


def _both_ways(name: str, qkv: Parts, bias: Tensor | None) -> None:
    with sdpa_kernel(BACKENDS[name]):
        out = F.scaled_dot_product_attention(*qkv, attn_mask=bias, is_causal=bias is None,
                                             enable_gqa=qkv[0].shape[1] != qkv[1].shape[1])
    gradients([out], qkv, [out.detach()])
