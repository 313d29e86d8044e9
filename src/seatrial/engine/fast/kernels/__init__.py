"""Kernels of the fused step: Triton's where it is installed and the device is its own, plain torch's everywhere else.

    kernels = choose(device, dtype, hidden=2048)        each kernel is tried once against plain torch on the device
    kernels.norm(x, weight, bias, 1e-5)
    kernels.notes                                       which ones fell back, and why

Triton is never required: without it the engine runs the same functions out of `plain`.
"""
from __future__ import annotations

from seatrial.engine.fast.kernels.verified import Kernels, choose, plain_kernels

__all__ = ["Kernels", "choose", "plain_kernels"]
