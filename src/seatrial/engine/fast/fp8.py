"""GEMMs in eight bits: e4m3 forward, e5m2 for gradients, one scale a tensor; and where there are none, why.

    y = scaled_gemm(x8, weight8, x.inverse, w.inverse, bias=bias)           [tokens, out], bf16

`torch._scaled_mm` multiplies a matrix whose rows lie one after the other by one whose columns do: a weight is therefore kept
both as it is and transposed, and the GEMM over the tokens takes both of its matrices transposed. A step's scales come from
what the steps before it saw; the first step after a start has seen nothing, computes in bf16, and looks.
"""
from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from seatrial.arith import layer
from seatrial.engine.fast.config import fusable
from seatrial.errors import BadInput
from seatrial.spec import Model, Topology

FORWARD, GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16
"""What the sides of a GEMM must be multiples of."""


class ScaledGemm(Protocol):
    def __call__(self, left: Tensor, right_t: Tensor, left_inverse: Tensor, right_inverse: Tensor, *,
                 bias: Tensor | None = None, out_dtype: torch.dtype = torch.bfloat16, fast: bool = True,
                 out: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        """left [m, k] x right_tᵀ [k, n] (+ bias) (+ onto), both k-contiguous; the scales' inverses undo them."""


def scaled_gemm(left: Tensor, right_t: Tensor, left_inverse: Tensor, right_inverse: Tensor, *, bias: Tensor | None = None,
                out_dtype: torch.dtype = torch.bfloat16, fast: bool = True, out: Tensor | None = None,
                onto: Tensor | None = None) -> Tensor:
    """On a device without 8-bit GEMMs emulated, for tests."""
    assert bias is None or out is None and out_dtype == torch.bfloat16, "a bias comes with a result in bf16"
    out_dtype = out_dtype if out is None else out.dtype
    if left.device.type != "cuda":
        wide = (left.float() * left_inverse) @ (right_t.t().float() * right_inverse)
        for more in (bias, onto):
            wide = wide if more is None else wide + more.float()
        return wide.to(out_dtype) if out is None else out.copy_(wide)
    given = {} if out is None else {"out": out}
    y = torch._scaled_mm(left, right_t.t(), left_inverse, right_inverse, bias=bias, out_dtype=out_dtype, use_fast_accum=fast,
                         **given)
    return y if onto is None else y.add_(onto)


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


def head_fits(model: Model, topology: Topology, chunk: int) -> bool:
    """Whether the GEMMs with the vocabulary's matrix can be in eight bits, `chunk` tokens at a time."""
    tokens = topology.mbs * model.seq // topology.cp
    return not any(side % MULTIPLE for side in (model.padded_vocab(topology.tp) // topology.tp, chunk, tokens % chunk))


def check_shape(model: Model, topology: Topology, *, compiled: bool) -> None:
    if compiled:
        raise BadInput("topology.precision: fp8 blocks have their backward pass written out and are not compiled: "
                       "set execution.compile = false")
    if not fusable(model) or model.mixture:
        raise BadInput("topology.precision: fp8 is there for dense blocks without latent attention, sinks or a clamped "
                       f"activation; {model.family} works in bf16")
    widths = [(f"{linear.label} / TP", linear.width(topology.tp)) for linear in layer.linears(model)]
    for name, value in (("hidden", model.hidden), *widths,
                        ("MBS x sequence" + (" / CP" if topology.cp > 1 else ""), topology.mbs * model.seq // topology.cp)):
        if value % MULTIPLE:
            raise BadInput(f"topology.precision: fp8 GEMMs need multiples of {MULTIPLE}, {name} is {value}; bf16 works")
