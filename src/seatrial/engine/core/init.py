"""Initial values out of a counter: the number at (seed, global name, index) is the same on every topology and device.

    fill_normal(out, seed=1234, name="layers.0.attn.q.weight", first=0, std=0.02)

A rank computes its own slice and nothing else: splitmix64 of the element's global index, then Box-Muller in double precision.
"""
from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

from seatrial.engine.core.params import ParamSpec, Segment
from seatrial.engine.io.data import mix

CHUNK = 1 << 18
"""Numbers made at once: the intermediates stay in cache."""
CHUNK_ON_GPU = 1 << 22
"""There each operation costs a launch."""


def key_of(seed: int, name: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def fill_normal(out: Tensor, *, seed: int, name: str, first: int, std: float) -> None:
    """Fill the contiguous `out` with N(0, std²); `first` is the global index of its first number."""
    key = key_of(seed, name)
    flat = out.view(-1)
    chunk = CHUNK if out.device.type == "cpu" else CHUNK_ON_GPU
    for at in range(0, flat.numel(), chunk):
        n = min(chunk, flat.numel() - at)
        index = torch.arange(first + at, first + at + n, dtype=torch.int64, device=out.device)
        # Two words for each number: the second is a hash of the first, so one counter is enough.
        one = mix(index ^ key)
        two = mix(one)
        radius = _uniform(one).log_().mul_(-2.0).sqrt_()
        flat[at : at + n] = radius.mul_(_uniform(two).mul_(2 * math.pi).cos_()).mul_(std)


def _uniform(bits: Tensor) -> Tensor:
    """In (0, 1]: the top 53 bits, and never zero since its logarithm is taken."""
    return (((bits >> 11) & ((1 << 53) - 1)) + 1).to(torch.float64).mul_(1.0 / (1 << 53))


def fill(out: Tensor, spec: ParamSpec, segment: Segment, *, row: int, seed: int) -> None:
    """Fill `out`, the rows of `segment` from global row `row` on."""
    if spec.fill == "normal":
        width = math.prod(segment.global_shape[1:])
        fill_normal(out, seed=seed, name=segment.name, first=row * width, std=spec.std)
    else:
        out.fill_(1.0 if spec.fill == "ones" else 0.0)
