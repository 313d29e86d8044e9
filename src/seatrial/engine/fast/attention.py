"""Attention for blocks whose backward pass is written out, and which of SDPA's kernels is fastest on a run's own shape.

    core = attend_apart(qkv, heads=32, positions=positions, backend=None, keep=True)
    d_q, d_k, d_v = core.back(d_mixed)
    name, took_s = fastest(batch=16, seq=1024, heads=32, head_dim=64, dtype=torch.bfloat16, bias=None, device=device)

A kernel that refuses the shape is left out; where none works there is nothing to choose.
"""
from __future__ import annotations

import statistics
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from seatrial.engine.core.attention import Positions

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION}
ROUNDS, WARM = 8, 4
"""The kernels take turns, so that a clock which is still rising, or falling, is the same for all; the first rounds warm up."""


@dataclass
class Core:
    """Attention whose backward pass is asked for by hand."""

    mixed: Tensor
    """[tokens, heads x head size]"""
    _leaves: tuple[Tensor, Tensor, Tensor] | None
    _out: Tensor | None

    def back(self, d_mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of queries, keys and values, each [tokens, heads x head size]; once."""
        assert self._leaves is not None and self._out is not None
        batch, heads, seq, size = self._out.shape
        grads = torch.autograd.grad(self._out, self._leaves, d_mixed.view(batch, seq, heads, size).transpose(1, 2))
        self._leaves = self._out = None
        # A backend may lay the three side by side; the kernels that take them want each by itself.
        q, k, v = (g.transpose(1, 2).reshape(batch * seq, heads * size).contiguous() for g in grads)
        return q, k, v


def attend_apart(qkv_BSD: Tensor, *, heads: int, positions: Positions, backend: SDPBackend | None, keep: bool) -> Core:
    """Causal attention of this rank's heads (as many keys as queries, not transposed), with a small graph of its own."""
    batch, seq, width = qkv_BSD.shape
    with torch.set_grad_enabled(keep), nullcontext() if backend is None else sdpa_kernel(backend):
        q, k, v = (t.transpose(1, 2).detach().requires_grad_(keep) for t in qkv_BSD.view(batch, seq, 3, heads, -1).unbind(2))
        if positions.context is not None:
            out = positions.context.attend(*(t.transpose(1, 2) for t in (q, k, v)), backend=backend).transpose(1, 2)
        else:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=positions.bias, is_causal=positions.bias is None)
    mixed = out.detach().transpose(1, 2).reshape(batch * seq, width // 3)
    return Core(mixed, (q, k, v) if keep else None, out if keep else None)


class Shape(TypedDict):
    """The attention of one rank's heads."""

    batch: int
    seq: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    bias: Tensor | None
    device: torch.device


def fastest(**shape: Unpack[Shape]) -> tuple[str | None, dict[str, float]]:
    """The backend, and the seconds of one forward and backward pass of each that works."""
    qkv, bias, device = _inputs(shape), shape["bias"], shape["device"]
    marks: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {
        name: [] for name in BACKENDS if _runs(name, qkv, bias)}
    if not marks:
        return None, {}
    for _ in range(ROUNDS):
        for name, seen in marks.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            _both_ways(name, qkv, bias)
            end.record()
            seen.append((start, end))
    torch.cuda.synchronize(device)
    took = {name: statistics.median(a.elapsed_time(b) for a, b in seen[WARM:]) / 1e3 for name, seen in marks.items()}
    return min(took, key=lambda name: took[name]), took


def works(name: str, **shape: Unpack[Shape]) -> bool:
    return name == "default" or _runs(name, _inputs(shape), shape["bias"])


def _inputs(shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    qkv = torch.randn(shape["batch"], shape["seq"], 3, shape["heads"], shape["head_dim"], dtype=shape["dtype"],
                      device=shape["device"])
    q, k, v = (t.transpose(1, 2).detach().requires_grad_() for t in qkv.unbind(2))
    return q, k, v


def _runs(name: str, qkv: tuple[Tensor, Tensor, Tensor], bias: Tensor | None) -> bool:
    try:
        with warnings.catch_warnings():
            # A backend that refuses says why in a warning for each reason, then raises.
            warnings.simplefilter("ignore")
            _both_ways(name, qkv, bias)
    except RuntimeError:
        return False
    return True


def _both_ways(name: str, qkv: tuple[Tensor, Tensor, Tensor], bias: Tensor | None) -> None:
    with sdpa_kernel(BACKENDS[name]):
        out = F.scaled_dot_product_attention(*qkv, attn_mask=bias, is_causal=bias is None)
    torch.autograd.grad(out, qkv, out.detach())
