"""Precision: the type that is computed in, and the dynamic loss scale that fp16 needs.

Masters are always fp32, and so are gradients wherever they are added up. fp8 is bf16 with the blocks' products in eight bits
(`fp8.py`).
"""
from __future__ import annotations

from collections.abc import Sequence

import torch

from seatrial.errors import BadInput
from seatrial.training import Training

TYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
                                 "fp8": torch.bfloat16}


def compute_type(precision: str, known: Sequence[str]) -> torch.dtype:
    """`known`: those that the device has."""
    if precision not in known:
        raise BadInput(f"topology.precision: this engine has no {precision} on this device; {', '.join(known)} work")
    return TYPES[precision]


class LossScale:
    """A power of two that keeps small fp16 gradients from vanishing: halved on overflow, doubled after a good stretch."""

    def __init__(self, precision: str, training: Training):
        self.dynamic = precision == "fp16"
        self.value = training.loss_scale if self.dynamic else 1.0
        self.window = training.loss_scale_window
        self.good_steps = 0

    def update(self, *, overflowed: bool) -> None:
        if not self.dynamic:
            return
        self.good_steps = 0 if overflowed else self.good_steps + 1
        if overflowed:
            self.value = max(1.0, self.value / 2)
        elif self.good_steps == self.window:
            self.value, self.good_steps = self.value * 2, 0

    def state(self) -> dict[str, float]:
        return {"value": self.value, "good_steps": self.good_steps}

    def restore(self, state: dict[str, float]) -> None:
        self.value, self.good_steps = float(state["value"]), int(state["good_steps"])
