"""What a GPU's kernels and GEMMs hand back, without the work: tensors of the right shape and type, and no temporaries.

    kernels().norm(x, weight, bias, 1e-5)           three tensors, never written
    FakeGemm()(x, weight.t())                       [tokens, out]

For a rehearsal that stands for a GPU where there is none: plain torch's own would be counted with matrices in fp32 that a GPU
never makes. For tensors without memory, whose values nobody reads.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.fast.kernels.slot import Slot

Parts = tuple[Tensor, Tensor, Tensor]


class FakeGemm:
    """In their place, or in a matrix of their own."""

    def __call__(self, left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
        return left.new_empty(left.shape[0], right.shape[1])

    def into(self, out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False) -> Tensor:
        return out


def scaled_gemm(left: Tensor, right_t: Tensor, left_inverse: Tensor, right_inverse: Tensor, *, bias: Tensor | None = None,
                out_dtype: torch.dtype = torch.bfloat16, fast: bool = True, out: Tensor | None = None) -> Tensor:
    return left.new_empty(left.shape[0], right_t.shape[0], dtype=out_dtype) if out is None else out


def kernels() -> Kernels:
    return Kernels(norm=_norm, norm_again=_norm_again, norm_backward=_norm_backward, gelu=torch.empty_like,
                   gelu_backward=_gelu_backward, join=_join, fold=_nothing, add_rows=_nothing, softmax_parts=_softmax_parts,
                   softmax_gradient=_nothing, squared=_squared, adamw=_nothing, adamw_split=_nothing, cast8=_cast8,
                   norm8=_norm8, norm_again8=_turned, gelu8=_eight, gelu_backward8=_gelu_backward8, join8=_join8)


def _nothing(*_given: Any, **_numbers: Any) -> None:
    pass


def _sums(like: Tensor, count: int, width: int) -> Tensor:
    return like.new_empty(count, 1, width, dtype=torch.float32)


def _norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, *,
          plus: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    stats = x.new_empty(2, x.shape[0], dtype=torch.float32)
    return torch.empty_like(x), stats, None if plus is None else torch.empty_like(x)


def _norm_again(x: Tensor, stats: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(x)


def _norm_backward(dh: Tensor, x: Tensor, stats: Tensor, weight: Tensor,
                   residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), _sums(x, 2 if residual is None else 3, x.shape[1])


def _gelu_backward(dg: Tensor, pre: Tensor, *, again: bool) -> tuple[Tensor, Tensor | None, Tensor]:
    return dg, torch.empty_like(pre) if again else None, _sums(pre, 1, pre.shape[1])


def _join(parts: Parts) -> tuple[Tensor, Tensor]:
    tokens, width = parts[0].shape
    return parts[0].new_empty(tokens, 3 * width), _sums(parts[0], 1, 3 * width)


def _softmax_parts(logits: Tensor, targets: Tensor, real: int) -> Parts:
    largest, total, at_target = logits.new_empty(3, logits.shape[0], dtype=torch.float32)
    return largest, total, at_target


def _squared(parts: list[Tensor]) -> Tensor:
    return parts[0].new_empty((), dtype=torch.float64)


# eight bits


def _eight(x: Tensor, slot: Slot) -> Tensor:
    return torch.empty_like(x, dtype=slot.dtype)


def _turned(x: Tensor, *given: Any) -> Tensor:
    """By the slot that comes last."""
    return x.new_empty(x.shape[::-1], dtype=given[-1].dtype)


def _cast8(x: Tensor, slot: Slot, *, rows: bool = True, cols: bool = False) -> tuple[Tensor | None, Tensor | None]:
    return _eight(x, slot) if rows else None, _turned(x, slot) if cols else None


def _norm8(x: Tensor, weight: Tensor, bias: Tensor, eps: float, slot: Slot, *,
           added: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    stats = x.new_empty(2, x.shape[0], dtype=torch.float32)
    return _eight(x, slot), stats, None if added is None else torch.empty_like(x)


def _gelu_backward8(dg: Tensor, pre: Tensor, slot: Slot, again: Slot) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _eight(pre, slot), _turned(pre, slot), _turned(pre, again), _sums(pre, 1, pre.shape[1])


def _join8(parts: Parts, slot: Slot) -> tuple[Tensor, Tensor, Tensor]:
    tokens, width = parts[0].shape
    whole = parts[0].new_empty(tokens, 3 * width, dtype=slot.dtype)
    return whole, _turned(whole, slot), _sums(parts[0], 1, 3 * width)
