"""The seam for speed: the few operations of a step that a device may have a better form of, each in plain torch here.

    Engine(trial, recipe, mesh)                           all of it in plain torch
    Engine(trial, recipe, mesh, ops=replace(Ops(), cross_entropy=mine))

`engine/fast` builds an `Ops` for a device (`fast/choose.py`); nothing in core knows what is in it.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.attention import SDPBackend

from seatrial.engine.core import layers
from seatrial.engine.core.layers import AddRows, LayerNormOp, RmsNormOp, finite, layer_norm, rms_norm, swiglu, with_room
from seatrial.engine.core.loss import CrossEntropy, Head, cross_entropy

if TYPE_CHECKING:
    from seatrial.engine.core.comm import TensorParallel
    from seatrial.engine.core.model import Block


class Gemm(Protocol):
    def __call__(self, left: Tensor, right: Tensor, bias: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        """left right (+ bias) (+ onto)"""

    def into(self, out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False) -> Tensor:
        """out = alpha x left right, or out + that; `out` may be of a wider type."""


class BlockImpl(Protocol):
    """A block as one function with a backward pass, and a recompute, of its own."""

    def __call__(self, x_BSH: Tensor) -> Tensor: ...

    def weights_changed(self) -> None:
        """After an update, and when ZeRO 3 lets the weights go."""


class OnePassAdamW(Protocol):
    """An update that also reads 16-bit gradients, and writes the weights that are computed with.

    `numbers`: what to divide the gradient by, the step size, the root of the second correction, 1.0 to change nothing.
    `keep`: one minus the decay.
    """

    def adamw(self, master: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, weights: Tensor | None,
              numbers: Tensor, *, beta1: float, beta2: float, eps: float, keep: float) -> None: ...

    def adamw_split(self, weights: Tensor, rest: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, numbers: Tensor, *,
                    beta1: float, beta2: float, eps: float, keep: float) -> None:
        """Of masters that are their bf16 weights and the bits below (`masters.py`)."""


class PlainGemm:
    def __call__(self, left: Tensor, right: Tensor, bias: Tensor | None = None, onto: Tensor | None = None) -> Tensor:
        if bias is None or onto is None:
            added = bias if onto is None else onto
            return left @ right if added is None else torch.addmm(added, left, right)
        return (onto + bias).addmm_(left, right)

    def into(self, out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False) -> Tensor:
        if out.dtype == left.dtype:
            return torch.addmm(out, left, right, beta=1.0 if add else 0.0, alpha=alpha, out=out)
        result = left @ right
        if result.dtype == torch.float16 and not result.is_cuda and not finite(result):
            result = left.float() @ right.float()  # see `with_room`
        return out.add_(result, alpha=alpha) if add else out.copy_(result).mul_(alpha)


class Grouped(Protocol):
    """Products of several matrices, each with its own rows: those of the first come first, `counts_E` of each."""

    def __call__(self, x_NK: Tensor, weight_EKM: Tensor, counts_E: Tensor) -> Tensor: ...

    def into(self, out_EMN: Tensor, left_TM: Tensor, right_TN: Tensor, counts_E: Tensor, *, add: bool = False) -> None:
        """out = leftᵀ right of each one's rows, or out + that."""


class PlainGrouped:
    """One GEMM after the other."""

    gemm = PlainGemm()

    def __call__(self, x_NK: Tensor, weight_EKM: Tensor, counts_E: Tensor) -> Tensor:
        out = x_NK.new_empty(x_NK.shape[0], weight_EKM.shape[2])
        sizes = counts_E.tolist()
        for x, weight, y in zip(x_NK.split(sizes), weight_EKM, out.split(sizes)):
            torch.mm(x, weight, out=y)
        return out

    def into(self, out_EMN: Tensor, left_TM: Tensor, right_TN: Tensor, counts_E: Tensor, *, add: bool = False) -> None:
        sizes = counts_E.tolist()
        for out, left, right in zip(out_EMN, left_TM.split(sizes), right_TN.split(sizes)):
            self.gemm.into(out, left.t(), right, add=add)


class ExpertsImpl(Protocol):
    """Experts gated by SwiGLU, without biases. `up` has of each expert its gate's rows, then its up's."""

    def __call__(self, x_TH: Tensor, expert_TK: Tensor, weight_TK: Tensor, up: Tensor, down: Tensor,
                 tp: TensorParallel) -> Tensor:
        """All of a layer's experts on this rank; none of the choices is dropped."""

    def mlp(self, rows_NH: Tensor, counts_E: Tensor, up: Tensor, down: Tensor, tp: TensorParallel) -> Tensor:
        """Those of rows that lie by expert."""


Rows = slice | Tensor
"""Of a matrix: consecutive, or by their numbers."""


class _AddPositions(Function):
    @staticmethod
    def forward(ctx: Any, x_BSH: Tensor, weight: Tensor, rows: Rows) -> Tensor:
        ctx.weight, ctx.rows = weight, rows
        return x_BSH + weight[rows]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        dy, weight = grads[0], ctx.weight

        def sums(kind: torch.dtype) -> Tensor:
            found = torch.zeros(weight.shape, dtype=kind, device=dy.device)
            found[ctx.rows] = dy.sum(0, dtype=kind)
            return found

        return dy, with_room(weight, sums(weight.dtype), lambda: sums(torch.float32)), None


def add_positions(x_BSH: Tensor, weight: nn.Parameter, rows: Rows) -> Tensor:
    """Rows of the weight, each at most once, added to each sequence."""
    return _AddPositions.apply(x_BSH, weight, rows)  # type: ignore[no-any-return]


NORM_ROW = 2048


def squared_norm(parts: list[Tensor]) -> Tensor:
    """By rows: torch's norm of a long fp32 vector on a CPU adds up in fp32 and was seen 6e-4 off."""
    rows = [part[: part.numel() // NORM_ROW * NORM_ROW].view(-1, NORM_ROW) for part in parts]
    rests = [part[part.numel() // NORM_ROW * NORM_ROW :] for part in parts]
    found = [torch.linalg.vector_norm(one, dim=-1).double().square().sum() for one in (*rows, *rests) if one.numel()]
    return torch.stack(found).sum()


def no_block(block: Block) -> BlockImpl | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Ops:
    gemm: Gemm = field(default_factory=PlainGemm)
    """Of the head and of weight gradients."""
    grouped: Grouped = field(default_factory=PlainGrouped)
    """Of experts."""
    experts: ExpertsImpl | None = None
    """What runs in place of experts' products and all between them; None leaves those."""
    block: Callable[[Block], BlockImpl | None] = no_block
    """What runs in place of a block's own forward pass; None leaves that one."""
    layer_norm: LayerNormOp = layer_norm
    """Outside the blocks."""
    rms_norm: RmsNormOp = rms_norm
    swiglu: Callable[[Tensor], Tensor] = swiglu
    clamped_swiglu: Callable[[Tensor], Tensor] = layers.clamped_swiglu
    add_positions: Callable[[Tensor, nn.Parameter, Rows], Tensor] = add_positions
    add_rows: AddRows | None = None
    """What adds an embedding's gradient into its buffer; None: torch's."""
    head: Head | None = None
    """None: in the weights' type, by `gemm`."""
    cross_entropy: CrossEntropy = cross_entropy
    squared_norm: Callable[[list[Tensor]], Tensor] = squared_norm
    """Of all parts together, in double precision."""
    update: OnePassAdamW | None = None
    """None: torch's own AdamW, on fp32 gradients."""
    step_done: Callable[[], None] = lambda: None
    """After each update."""

    precisions: tuple[str, ...] = ("fp32", "bf16", "fp16")
    attention: SDPBackend | None = None
    """Which of SDPA's kernels; None leaves it to torch."""
    narrow_values: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    """Attention whose values are narrower than its keys, [batch, sequence, heads, size] each; None: torch's."""
    logits_tokens: int = 0
    """Tokens whose logits are made at once, where that is more than the run asks for."""
    narrow_gradients: bool = False
    """Gradients stay in the weights' type where nothing is added to them: one micro-batch, one replica."""
    release_gradients: bool = False
    """Gradients' memory goes back to the allocator after the update."""
    split_masters: bool = False
    """A master is its bf16 weight and the 16 bits that are missing to fp32. Needs `update`, in bf16."""
