"""One tensor's scale in eight bits: what it is multiplied by before the cast, and the largest value seen since the last update.

    scales = Scales(device)
    scaling = scales.state(torch.float8_e4m3fn)         one for each activation, weight and gradient that is cast
    scales.update()                                 once a step: the next one's scales come from what this one saw

All states are rows of a few tensors, so that an update is a handful of operations on the device, however many there are, and
the host never waits. A cast saturates: a value that outgrew its scale becomes the largest number of the type.
"""
from __future__ import annotations

import torch
from torch import Tensor

HISTORY = 16
"""Steps over which the largest value counts."""
MARGIN = {torch.float8_e4m3fn: 1.25, torch.float8_e5m2: 4.0}
"""How much larger than ever seen a value may become before it saturates: gradients move more, their type reaches further."""


class Scales:
    def __init__(self, device: torch.device, capacity: int = 4096):
        self.amax = torch.zeros(capacity, dtype=torch.float32, device=device)
        self.history = torch.zeros(HISTORY, capacity, dtype=torch.float32, device=device)
        self.scale = torch.ones(capacity, dtype=torch.float32, device=device)
        self.inverse = torch.ones(capacity, 4, dtype=torch.float32, device=device)
        """Of each the first of four: GEMMs take their scales at addresses that 16 divides."""
        self.fp8_max = torch.ones(capacity, dtype=torch.float32, device=device)
        self.states: list[ScalingState] = []
        self.updates = 0

    def state(self, dtype: torch.dtype) -> ScalingState:
        number = len(self.states)
        assert number < self.amax.numel(), "more states than the scales were made for"
        self.fp8_max[number] = torch.finfo(dtype).max / MARGIN[dtype]
        self.states.append(ScalingState(self, number, dtype))
        return self.states[-1]

    def update(self) -> None:
        # A step that overflowed is skipped, and so is what it saw.
        self.history[self.updates % HISTORY] = torch.where(self.amax.isfinite(), self.amax, 0.0)
        self.updates += 1
        largest = self.history.amax(0)
        torch.where(largest > 0, self.fp8_max / largest.clamp(min=1e-30), self.scale, out=self.scale)
        self.inverse[:, 0] = self.scale.reciprocal()
        self.amax.zero_()


class ScalingState:
    def __init__(self, scales: Scales, number: int, dtype: torch.dtype):
        self.dtype, self.largest = dtype, torch.finfo(dtype).max
        here = slice(number, number + 1)
        self.amax, self.scale, self.inverse = scales.amax[here], scales.scale[here], scales.inverse[number, :1]
        self.amax_bits = self.amax.view(torch.int32)
        """The same as integers, whose order is that of the floats they are: what an atomic maximum wants."""

    def update_amax(self, x: Tensor) -> None:
        torch.maximum(self.amax, torch.linalg.vector_norm(x, ord=torch.inf, dtype=torch.float32).view(1), out=self.amax)

    def cast(self, x: Tensor) -> Tensor:
        self.update_amax(x)
        return (x.float() * self.scale).clamp_(-self.largest, self.largest).to(self.dtype)
