"""What no engine can leave out of a step with fp32 masters: its GEMMs by the best algorithms of cuBLASLt, its attention, and
one pass of AdamW over all parameters; no norm, activation, loss or copy between them. The device's own limits, power among
them, are in it: an engine's step is this and what it adds."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from benchmarks.gpu.shapes import Row
from torch import Tensor

from seatrial.arith import layer
from seatrial.arith.parameters import parameters
from seatrial.engine.core.attention import Positions
from seatrial.engine.core.masters import split_bits
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.fast.attention import attend_apart
from seatrial.engine.fast.choose import ops_for
from seatrial.spec import Trial


def build(row: Row, trial: Trial, tokens: Tensor, targets: Tensor) -> Callable[[], Tensor]:
    m, device, count = trial.model, tokens.device, tokens.numel()
    ops, config, _ = ops_for(trial, Mesh(trial.topology, device=device))
    some = partial(_some, device=device)
    block = [gemms(ops.gemm, some, count, m.hidden, linear.width(1), column=linear.column, bias=bool(linear.bias))
             for linear in layer.linears(m)]
    chunk = config.logits_chunk(trial)
    head = gemms(ops.gemm, some, chunk, m.hidden, m.padded_vocab(1), column=True)
    qkv, d_mixed = some(count, (m.heads + 2 * m.kv) * m.head_size), some(count, m.heads * m.head_size)
    positions = Positions(m, first_head=0, heads=m.heads, device=device, dtype=qkv.dtype)
    mix = partial(attend_apart, qkv, qkv, batch=len(tokens), heads=m.heads, kv_heads=m.kv, positions=positions,
                  backend=ops.attention, window=None, keep=True)
    first, second = (torch.zeros(parameters(m).total, device=device) for _ in range(2))
    weights, rest = split_bits(first)
    grad, numbers = torch.full_like(weights, 1e-3), torch.tensor([1.0, 1e-4, 0.9, 0.0], device=device)

    def step() -> Tensor:
        for _ in range(m.layers):
            for linear in block:
                linear()
            mix().back(d_mixed)
        for _ in range(count // chunk):
            head()
        norm: Tensor = ops.kernels.squared([grad])
        ops.kernels.adamw_split(weights, rest, grad, first, second, numbers, beta1=0.9, beta2=0.95, eps=1e-8, keep=1.0)
        return norm

    return step


def gemms(gemm: Any, some: Callable[..., Tensor], rows: int, hidden: int, width: int, *, column: bool,
          bias: bool = False) -> Callable[[], None]:
    """One linear layer's three: forward, and the gradients of its input and its weight [width, hidden]."""
    at_hidden, at_width, weight = some(rows, hidden), some(rows, width), some(width, hidden)
    residual, gradient = None if column else some(rows, hidden), torch.empty_like(weight)
    added = some(width if column else hidden) if bias else None

    def run() -> None:
        gemm(at_hidden, weight.t(), added if column else None)
        gemm(at_width, weight, None if column else added, residual)
        gemm.into(gradient, at_width.t(), at_hidden)

    return run


def _some(*shape: int, device: torch.device) -> Tensor:
    return torch.randn(*shape, device=device, dtype=torch.bfloat16)
