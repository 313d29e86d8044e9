"""A block as one function with its backward pass written out: fewer passes over memory, and nothing kept that is not needed.

    fused = FusedBlock(block, product=partial(Product, kernels=kernels, gemm=gemm), kernels=kernels)
    y = fused(x)                        the same numbers as Block's own path, but for the rounding of 16-bit intermediates

Both halves of a block are alike: a norm, a linear layer, attention or an activation, a linear layer back onto the residual
stream. What a model chooses (which norm, rotary positions, norms of queries and keys, SwiGLU, biases) is in the parts, and how
the GEMMs are computed in `product.py`. A norm's backward pass takes the residual's gradient along and adds up the columns for
its weight, its bias and the bias before it. Weight gradients go to their main_grads as in `layers.py`, now or when the schedule
says W, and tensor parallelism talks at the same places.

Recompute is a matter of what is kept: `none` everything, `selective` all but the norms' and the activation's outputs, which the
backward pass makes again on the way, `full` the input alone (and the last GEMM is not made again).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from seatrial.engine.core.layers import LayerNorm, RmsNorm, rows_of
from seatrial.engine.fast.attention import Core, attend_apart
from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.fast.kernels.plain import HeadNorms
from seatrial.engine.fast.ops import reduce_partials
from seatrial.engine.fast.product import Operand, Product, norm_bias, shaped

if TYPE_CHECKING:
    from seatrial.engine.core.model import Block


class Kept(NamedTuple):
    """Of one half's forward pass, for its backward pass. Matrices are [tokens, columns]."""

    x_BSH: Tensor
    stats: Tensor
    h: Tensor | None
    """The norm's output."""
    inner: list[Any]
    """What attention, or the activation, keeps."""


Halves = list[Kept]
"""Whoever uses one takes it out."""


class _Apply(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, fused: FusedBlock) -> Tensor:
        ctx.fused, keep = fused, fused.recompute
        y, kept = fused.run(x, keep=keep)
        ctx.kept = x if keep == "full" else kept
        assert y is not None
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        # The graph lives until its root does; what is not taken out of it here would wait for that.
        kept, ctx.kept = ctx.kept, None
        return ctx.fused.back(grads[0].contiguous(), kept), None


class FusedBlock:
    def __init__(self, block: Block, *, product: Callable[..., Product], kernels: Kernels):
        """`product`: makes one of a linear layer."""
        self.recompute, self.timers, tp = block.shared.recompute, block.shared.tp.comm.timers, block.shared.tp
        gated = block.shared.model.gated
        qkv, up = (product(linear, column=True, gated=gated, tp=tp) for linear in (block.qkv, block.up))
        out, down = (product(linear, column=False, gated=gated, tp=tp) for linear in (block.out, block.down))
        self.halves = (Attention(block, block.norm1, qkv, out, kernels), Mlp(block, block.norm2, up, down, kernels))

    def __call__(self, x_BSH: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x_BSH.requires_grad:
            return _Apply.apply(x_BSH, self)  # type: ignore[no-any-return]
        y, _ = self.run(x_BSH, keep="full")
        assert y is not None
        return y

    def weights_changed(self) -> None:
        for half in self.halves:
            half.column.weights_changed()
            half.row.weights_changed()

    def run(self, x_BSH: Tensor, *, keep: str, last: bool = True) -> tuple[Tensor | None, Halves]:
        """The block's output, and what `keep` says of the way there; not `last`: without the last GEMM."""
        attention, mlp = self.halves
        stream, one = attention.run(x_BSH, keep=keep)
        assert stream is not None
        y, two = mlp.run(stream, keep=keep, last=last)
        return y, [one, two]

    def back(self, dy_BSH: Tensor, kept: Tensor | Halves) -> Tensor:
        if isinstance(kept, Tensor):
            with self.timers("recompute"), torch.no_grad():
                _, kept = self.run(kept, keep="none", last=False)
        attention, mlp = self.halves
        return attention.back(mlp.back(dy_BSH, kept.pop()), kept.pop())


class Half:
    def __init__(self, block: Block, norm: LayerNorm | RmsNorm, column: Product, row: Product, kernels: Kernels):
        self.block, self.norm, self.column, self.row, self.kernels = block, norm, column, row, kernels
        self.tp = block.shared.tp

    def inner(self, pre: Tensor, batch: int, keep: str, last: bool) -> tuple[Operand, list[Any]]:
        """From the first linear layer's output to the second one's input, and what is kept of it."""
        raise NotImplementedError

    def inner_back(self, d: Tensor, inner: list[Any], dy: Operand) -> tuple[Operand, Tensor | None]:
        """The gradient of the first linear layer's output, and its column sums; and the second one's weight gradient. What was
        kept is taken out of `inner`."""
        raise NotImplementedError

    def run(self, x_BSH: Tensor, *, keep: str, last: bool = True) -> tuple[Tensor | None, Kept]:
        operand, h, stats = self.column.normed(rows_of(x_BSH), self.norm, len(x_BSH))
        pre = self.column(operand)
        h = h if keep == "none" else None
        del operand
        operand, inner = self.inner(pre, len(x_BSH), keep, last)
        return self.row.onto(x_BSH, operand) if last else None, Kept(x_BSH, stats, h, inner)

    def back(self, dy_BSH: Tensor, kept: Kept) -> Tensor:
        x_BSH, stats, h, inner = kept
        del kept
        batch, x = len(dy_BSH), rows_of(x_BSH)
        dy = self.row.gradient(rows_of(dy_BSH), batch)
        d, sums = self.inner_back(self.row.input_gradient(dy), inner, dy)
        del dy
        if sums is not None:
            reduce_partials(self.kernels, sums, self.column.bias)
        in_flight = self.tp.out_of_region(shaped(self.column.input_gradient(d), batch))
        self.column.weight_gradient(self.column.normed_again(h, x, stats, self.norm, batch), d)
        del d, h
        before = self.row.bias
        dx, sums = self.kernels.norm_backward(rows_of(in_flight.wait()), x, stats, self.norm.weight, rows_of(dy_BSH),
                                              sum_residual=before is not None)
        reduce_partials(self.kernels, sums, self.norm.weight, norm_bias(self.norm), before)
        return dx.view(dy_BSH.shape)


class Attention(Half):
    def inner(self, pre: Tensor, batch: int, keep: str, last: bool) -> tuple[Operand, list[Any]]:
        b, shared = self.block, self.block.shared
        cos_sin, norms, turned = shared.positions.rope_cos_sin, self.norms, pre
        if cos_sin is not None or norms is not None:
            turned = self.kernels.rotate(pre, (b.heads, b.kv_heads), cos_sin, norms)
        core = attend_apart(turned, pre, batch=batch, heads=b.heads, kv_heads=b.kv_heads, positions=shared.positions,
                            backend=shared.ops.attention, window=b.window, keep=keep != "full")
        return self.row.mixed(core.mixed), [core, None if norms is None else pre]

    def inner_back(self, d: Tensor, inner: list[Any], dy: Operand) -> tuple[Operand, Tensor | None]:
        pre, core = inner.pop(), inner.pop()
        assert isinstance(core, Core)
        self.row.weight_gradient(self.row.mixed_again(core.mixed), dy)
        parts, cos_sin, norms = core.back(d), self.block.shared.positions.rope_cos_sin, self.norms
        del d, core
        if cos_sin is not None or norms is not None:
            sums = self.kernels.rotate_backward(*parts[:2], pre, cos_sin, norms)
            if sums is not None:
                reduce_partials(self.kernels, sums, *(norm.weight for norm in (self.block.q_norm, self.block.k_norm) if norm))
        del pre
        return self.column.qkv_gradient(parts)

    @property
    def norms(self) -> HeadNorms | None:
        q, k = self.block.q_norm, self.block.k_norm
        return None if q is None or k is None else (q.weight, k.weight, q.eps)


class Mlp(Half):
    def inner(self, pre: Tensor, batch: int, keep: str, last: bool) -> tuple[Operand, list[Any]]:
        operand, g = self.row.activated(pre) if last else (None, None)
        return operand, [pre, g if keep == "none" else None]

    def inner_back(self, d: Tensor, inner: list[Any], dy: Operand) -> tuple[Operand, Tensor | None]:
        g, pre = inner.pop(), inner.pop()
        d_pre, made, sums = self.column.activation_gradient(d, pre, g, self.row)
        del d, pre, g
        self.row.weight_gradient(made, dy)
        return d_pre, sums
