"""Attention that keeps no scores, by kernel: what share of a device's matrix rate it reaches.

    fused_s(machine, kernel, heads, seq, head_dim)          seconds forward and backward of so many heads, causal

Two generations: FlashAttention 2 and its like, which every GPU since Ampere runs, and those written for Hopper (FlashAttention
3, cuDNN). A kernel comes near its best rate with long sequences, and needs blocks of rows enough for all multiprocessors; head
sizes that it has no form for are padded. Figures are `benchmarks/attention_gpu.py` on an H200 (results/attention-h200.json);
for Ampere the ratio to the peak that its authors state for their second version (arXiv:2307.08691), for Volta that of the
memory-efficient kernels which are all it has.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from seatrial.plan.configs import Floats, Ints
from seatrial.plan.facts import FUSED, HOPPER


class Rate(NamedTuple):
    """Of the device's matrix peak, by head size, with a long sequence and many heads."""

    forward: dict[int, float]
    backward: dict[int, float]


H200_PEAK = 989.4
"""TFLOP/s, of which the measured rates are shares."""

RATES: dict[tuple[int, str], Rate] = {
    (FUSED, "hopper"): Rate({64: 309 / H200_PEAK, 96: 338 / H200_PEAK, 128: 339 / H200_PEAK, 256: 304 / H200_PEAK},
                            {64: 283 / H200_PEAK, 96: 275 / H200_PEAK, 128: 316 / H200_PEAK, 256: 262 / H200_PEAK}),
    (HOPPER, "hopper"): Rate({64: 448 / H200_PEAK, 128: 592 / H200_PEAK, 256: 640 / H200_PEAK},
                             {64: 420 / H200_PEAK, 128: 532 / H200_PEAK, 256: 382 / H200_PEAK}),
    (FUSED, "ampere"): Rate({64: 0.58, 96: 0.60, 128: 0.64, 256: 0.58}, {64: 0.51, 96: 0.50, 128: 0.56, 256: 0.45}),
    (FUSED, "volta"): Rate({64: 0.32, 128: 0.36}, {64: 0.24, 128: 0.28}),
}  # fmt: skip

HALF_FORWARD, HALF_BACKWARD = {FUSED: 360.0, HOPPER: 250.0}, {FUSED: 840.0, HOPPER: 730.0}
"""The sequence with which a causal kernel reaches half of its best rate: blocks on the diagonal are half empty (same
benchmark)."""

ROWS = 128
"""Of a block that one multiprocessor works on …"""
IMBALANCE = 0.9
"""… and in units of the multiprocessors, how many blocks it takes to fill half of them: causal blocks differ in length."""


def generation(machine: Any) -> str:
    return "hopper" if machine.narrow_loads else "ampere" if machine.bf16 else "volta"


def fused_s(machine: Any, kernel: Ints, heads: Ints, seq: Ints, head_dim: Ints, queries: Any = 1) -> tuple[Floats, Floats]:
    """`kernel`: FUSED or HOPPER; what the device has no kernel for counts as the older one. `queries`: ranks that share
    them, each with as many keys."""
    flops = 2.0 * heads.astype(np.float64) * seq * seq * head_dim / queries  # both GEMMs, half of them masked away
    blocks = heads * np.ceil(seq / (ROWS * queries))
    full = blocks / (blocks + IMBALANCE * machine.units) if machine.gpu else 1.0
    kind = generation(machine)
    found = []
    for way, half, work in (("forward", HALF_FORWARD, flops), ("backward", HALF_BACKWARD, 2.5 * flops)):
        share = _share(RATES[FUSED, kind], way, head_dim) * seq / (seq + half[FUSED])
        if kind == "hopper":
            newer = _share(RATES[HOPPER, kind], way, head_dim) * seq / (seq + half[HOPPER])
            share = np.where(kernel == HOPPER, newer, share)
        found.append(work / (machine.peak_flops * share * full))
    return found[0], found[1]


def _share(rate: Rate, way: str, head_dim: Ints) -> Floats:
    """A head size between two is padded to the next."""
    sizes = np.array(list(getattr(rate, way)))
    shares = np.array(list(getattr(rate, way).values()))
    place = np.minimum(np.searchsorted(sizes, head_dim), len(sizes) - 1)
    return shares[place] * np.minimum(head_dim / sizes[place], 1.0)
