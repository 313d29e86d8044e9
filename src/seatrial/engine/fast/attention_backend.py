"""Which of SDPA's kernels is fastest for the attention of a run: measured on its own shape, once, before the first step.

    backend, took_s = fastest(batch=16, seq=1024, heads=32, head_dim=64, dtype=torch.bfloat16, bias=None, device=device)

A kernel that refuses the shape is left out; where none or one works there is nothing to choose.
"""
from __future__ import annotations

import statistics
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}
ROUNDS, WARM = 8, 4
"""The kernels take turns, so that a clock which is still rising, or falling, is the same for all; the first rounds warm up."""


def fastest(*, batch: int, seq: int, heads: int, head_dim: int, dtype: torch.dtype, bias: Tensor | None,
            device: torch.device) -> tuple[SDPBackend | None, dict[str, float]]:
    """The backend, and the seconds of one forward and backward pass of each that works."""
    qkv = torch.randn(batch, seq, 3, heads, head_dim, dtype=dtype, device=device)
    q, k, v = (t.transpose(1, 2).detach().requires_grad_() for t in qkv.unbind(2))
    marks: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {}
    for name, backend in BACKENDS.items():
        try:
            with warnings.catch_warnings():
                # A backend that refuses says why in a warning for each reason, then raises.
                warnings.simplefilter("ignore")
                _both_ways(backend, q, k, v, bias)
            marks[name] = []
        except RuntimeError:
            continue
    if not marks:
        return None, {}
    for _ in range(ROUNDS):
        for name, seen in marks.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            _both_ways(BACKENDS[name], q, k, v, bias)
            end.record()
            seen.append((start, end))
    torch.cuda.synchronize(device)
    took = {name: statistics.median(a.elapsed_time(b) for a, b in seen[WARM:]) / 1e3 for name, seen in marks.items()}
    return BACKENDS[min(took, key=lambda name: took[name])], took


def _both_ways(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> None:
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None)
    torch.autograd.grad(out, (q, k, v), out.detach())
