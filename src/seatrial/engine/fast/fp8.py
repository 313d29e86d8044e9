"""Products in eight bits: e4m3 forward, e5m2 for gradients, one scale a tensor; weights are cast once a step.

    linear = Linear8(weight, scales, stored="out,in", fast="all")
    y = linear.forward(linear.x.cast(h), bias)          [tokens, out], bf16
    dx = linear.input_gradient(dy8)

`torch._scaled_mm` multiplies a matrix whose rows lie one after the other by one whose columns do: a weight is therefore kept
both as it is and transposed, and the GEMM over the tokens takes both of its matrices transposed. A step's scales come from
what the steps before it saw; the first step after a start has seen nothing, computes in bf16, and looks.
"""
from __future__ import annotations

from typing import Literal, Protocol

import torch
from torch import Tensor

from seatrial.engine.fast.config import fusable
from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.fast.kernels.scaling import Scales
from seatrial.errors import BadInput
from seatrial.spec import Model, Topology

FORWARD, GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16
"""What the sides of a GEMM must be multiples of."""


class ScaledGemm(Protocol):
    def __call__(self, left: Tensor, right_t: Tensor, left_inverse: Tensor, right_inverse: Tensor, *,
                 bias: Tensor | None = None, out_dtype: torch.dtype = torch.bfloat16, fast: bool = True,
                 out: Tensor | None = None) -> Tensor:
        """left [m, k] x right_tᵀ [k, n], both k-contiguous; the scales' inverses undo them."""


def scaled_gemm(left: Tensor, right_t: Tensor, left_inverse: Tensor, right_inverse: Tensor, *, bias: Tensor | None = None,
                out_dtype: torch.dtype = torch.bfloat16, fast: bool = True, out: Tensor | None = None) -> Tensor:
    """On a device without 8-bit GEMMs emulated, for tests."""
    assert bias is None or out is None and out_dtype == torch.bfloat16, "a bias comes with a result in bf16"
    out_dtype = out_dtype if out is None else out.dtype
    if left.device.type != "cuda":
        wide = (left.float() * left_inverse) @ (right_t.t().float() * right_inverse)
        wide = wide if bias is None else wide + bias.float()
        return wide.to(out_dtype) if out is None else out.copy_(wide)
    given = {} if out is None else {"out": out}
    return torch._scaled_mm(left, right_t.t(), left_inverse, right_inverse, bias=bias, out_dtype=out_dtype, use_fast_accum=fast,
                            **given)


def refuse(device: torch.device) -> str | None:
    """Why eight bits do not work on this device, or None."""
    if device.type != "cuda":
        return "fp8 needs a GPU with 8-bit GEMMs (Hopper, Ada or newer)"
    if torch.cuda.get_device_capability(device) < (8, 9):
        return f"{torch.cuda.get_device_name(device)} has no 8-bit GEMMs (Hopper and Ada have)"
    if not hasattr(torch, "_scaled_mm"):
        return f"torch {torch.__version__} has no scaled GEMM for fp8"
    return None


def check(device: torch.device, model: Model, topology: Topology, *, compiled: bool) -> None:
    """Refuses with a reason and with what would work."""
    why = refuse(device)
    if why:
        raise BadInput(f"topology.precision: {why}; bf16 works here")
    check_shape(model, topology, compiled=compiled)


def check_shape(model: Model, topology: Topology, *, compiled: bool) -> None:
    if compiled:
        raise BadInput("topology.precision: fp8 blocks have their backward pass written out and are not compiled: "
                       "set execution.compile = false")
    if not fusable(model):
        raise BadInput(f"topology.precision: fp8 is there for gpt2 and bloom blocks; {model.family} works in bf16")
    for name, value in (("hidden / TP", model.hidden // topology.tp), ("ffn / TP", model.inner // topology.tp),
                        ("MBS x sequence" + (" / CP" if topology.cp > 1 else ""), topology.mbs * model.seq // topology.cp)):
        if value % MULTIPLE:
            raise BadInput(f"topology.precision: fp8 GEMMs need multiples of {MULTIPLE}, {name} is {value}; bf16 works")


class Linear8:
    """The scales of one linear layer and its weight in eight bits."""

    def __init__(self, weight: Tensor, scales: Scales, *, stored: Literal["out,in", "in,out"], fast: str,
                 gemm: ScaledGemm = scaled_gemm):
        self.weight, self.stored, self.gemm = weight, stored, gemm
        self.x, self.w, self.dy = scales.state(FORWARD), scales.state(FORWARD), scales.state(GRADIENT)
        self.fast_forward, self.fast_backward = fast != "none", fast == "all"
        self._cast: tuple[Tensor, Tensor] | None = None
        self._seen = False

    def drop(self) -> None:
        """The weights changed, or went away."""
        self._cast = None

    def _weights(self, kernels: Kernels) -> tuple[Tensor, Tensor]:
        """The matrix as it is stored, and transposed."""
        if self._cast is None:
            rows, cols = kernels.cast8(self.weight.detach(), self.w, rows=True, cols=True)
            self._cast = rows, cols
        return self._cast

    def warm_up(self, x: Tensor) -> None:
        """In a step that computes in bf16."""
        self.x.update_amax(x)
        if not self._seen:
            self.w.update_amax(self.weight.detach())
            self._seen = True

    def forward(self, x8: Tensor, bias: Tensor | None, kernels: Kernels) -> Tensor:
        rows, cols = self._weights(kernels)
        return self.gemm(x8, rows if self.stored == "out,in" else cols, self.x.inverse, self.w.inverse, bias=bias,
                         fast=self.fast_forward)

    def input_gradient(self, dy8: Tensor, kernels: Kernels) -> Tensor:
        rows, cols = self._weights(kernels)
        return self.gemm(dy8, cols if self.stored == "out,in" else rows, self.dy.inverse, self.w.inverse,
                         fast=self.fast_backward)

    def weight_gradient(self, x_t8: Tensor, dy_t8: Tensor, out: Tensor | None, dtype: torch.dtype) -> Tensor:
        """[rows, columns] as the weight is stored."""
        x, dy = (x_t8, self.x.inverse), (dy_t8, self.dy.inverse)
        (left, a), (right, b) = (dy, x) if self.stored == "out,in" else (x, dy)
        return self.gemm(left, right, a, b, out_dtype=dtype, fast=self.fast_backward, out=out)
