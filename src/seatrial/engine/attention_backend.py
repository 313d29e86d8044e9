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
REPEATS = 3


def fastest(*, batch: int, seq: int, heads: int, head_dim: int, dtype: torch.dtype, bias: Tensor | None,
            device: torch.device) -> tuple[SDPBackend | None, dict[str, float]]:
    """The backend, and the seconds of one forward and backward pass of each that works."""
    took: dict[str, float] = {}
    for name, backend in BACKENDS.items():
        try:
            with warnings.catch_warnings():
                # A backend that refuses says why in a warning for each reason, then raises.
                warnings.simplefilter("ignore")
                took[name] = _seconds(backend, batch, seq, heads, head_dim, dtype, bias, device)
        except RuntimeError:
            continue
    if not took:
        return None, took
    return BACKENDS[min(took, key=lambda name: took[name])], took


def _seconds(backend: SDPBackend, batch: int, seq: int, heads: int, head_dim: int, dtype: torch.dtype, bias: Tensor | None,
             device: torch.device) -> float:
    qkv = torch.randn(batch, seq, 3, heads, head_dim, dtype=dtype, device=device)
    q, k, v = (t.transpose(1, 2).detach().requires_grad_() for t in qkv.unbind(2))
    found = []
    for _ in range(REPEATS + 1):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None)
        torch.autograd.grad(out, (q, k, v), out.detach())
        events[1].record()
        events[1].synchronize()
        found.append(events[0].elapsed_time(events[1]) / 1e3)
    return statistics.median(found[1:])
