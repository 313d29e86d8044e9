"""Which GEMMs a step asks for, beside those that are described for tuning: on one rank or several, on the CPU."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.ops import PlainGemm
from seatrial.engine.core.step import Engine
from seatrial.engine.fast import fp8
from seatrial.engine.fast.choose import build
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.tuned_gemm import GemmShape, gemm_shapes
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

CPU = torch.device("cpu")
CONFIG = KernelConfig(fused=True, narrow_gradients=True, one_pass_update=True, fp32_gradient_gemm=True,
                      logits_bytes=2**15)


class Recording(PlainGemm):
    """Asked for, and computed by torch."""

    def __init__(self) -> None:
        self.seen: set[GemmShape | None] = set()

    def __call__(self, left: Tensor, right: Tensor, bias: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        self.seen.add(GemmShape.of(left, right, left.dtype, bias=bias is not None, onto=onto is not None))
        return super().__call__(left, right, bias, onto)

    def into(self, out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False) -> Tensor:
        self.seen.add(GemmShape.of(left, right, out.dtype, add=add))
        return super().into(out, left, right, alpha=alpha, add=add)

    def scaled(self, left: Tensor, right_t: Tensor, *given: Tensor, bias: Tensor | None = None, onto: Tensor | None = None,
               fast: bool = True, **more: Any) -> Tensor:
        self.seen.add(GemmShape.of(left, right_t.t(), torch.bfloat16, bias=bias is not None, onto=onto is not None, fast=fast))
        return fp8.scaled_gemm(left, right_t, *given, bias=bias, onto=onto, fast=fast, **more)


def gemms_of_a_step(model: Model, topology: Topology) -> tuple[set[str], set[str]]:
    """By name: what steps of four sequences asked for, and what is described."""
    trial = Trial(model=model, batch=Batch(gbs=4), topology=topology, execution=Execution(logits_chunk=32))
    gemm, recipe, mesh = Recording(), Recipe(steps=3), Mesh(topology, device=CPU)
    engine = Engine(trial, recipe, mesh, ops=build(CONFIG, trial, CPU, gemm=gemm, scaled_gemm=gemm.scaled))
    for number in (1, 2, 3):
        if number == 2 and topology.precision == "fp8":
            # The first step of all is computed in bf16.
            gemm.seen.clear()
        engine.step(number, first_sample=4 * (number - 1), batches=Batches(recipe, model, recipe.seed))
    mesh.close()
    return {shape.name if shape else "in no order" for shape in gemm.seen}, {s.name for s in gemm_shapes(trial, CONFIG)}
