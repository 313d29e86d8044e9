"""A block as one function with its backward pass written out: fewer passes over memory, and nothing kept that is not needed.

    fused = FusedBlock(block, kernels=kernels, gemm=gemm, residual_in_gemm=True)
    y = fused(x)                        the same numbers as Block's own path, but for the rounding of 16-bit intermediates

What that gains: a norm's backward pass takes the residual's gradient along and adds up the columns for its weight, its bias
and the bias before it; GELU's does so for its own; the residual stream is what a GEMM adds to. Weight gradients go to
their main_grads as in `layers.py`, now or when the schedule says W, and tensor parallelism talks at the same places.

Recompute is a matter of what is kept: `none` everything, `selective` all but the norms' and the activation's outputs, which the
backward pass makes again on the way, `full` the input alone (and the last GEMM is not made again).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from seatrial.engine.core.layers import LayerNorm, rows_of, weight_gradient
from seatrial.engine.core.ops import Gemm
from seatrial.engine.fast.attention import Core, attend_apart
from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.fast.ops import reduce_partials

if TYPE_CHECKING:
    from seatrial.engine.core.model import Block


@dataclass
class Kept:
    """Of one block's forward pass, for its backward pass. Matrices are [tokens, columns]; x and the stream as they came."""

    x: Tensor
    stats1: Tensor | None = None
    h1: Tensor | None = None
    core: Core | None = None
    stream: Tensor | None = None
    """The residual stream between the two halves."""
    stats2: Tensor | None = None
    h2: Tensor | None = None
    pre: Tensor | None = None
    g: Tensor | None = None


class _Apply(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, fused: FusedBlock) -> Tensor:
        ctx.fused = fused
        y, ctx.kept = fused.run(x, keep=fused.shared.recompute)
        assert y is not None
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        # The graph lives until its root does; what is not taken out of it here would wait for that.
        kept, ctx.kept = ctx.kept, None
        return ctx.fused.back(grads[0].contiguous(), kept), None


class FusedBlock:
    def __init__(self, block: Block, *, kernels: Kernels, gemm: Gemm, residual_in_gemm: bool = False):
        self.shared, self.tp = block.shared, block.shared.tp
        self.block: Any = block
        """Of a family whose norms and linear layers have biases."""
        self.kernels, self.gemm, self.residual_in_gemm = kernels, gemm, residual_in_gemm
        self.heads = block.heads

    def __call__(self, x_BSH: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x_BSH.requires_grad:
            return _Apply.apply(x_BSH, self)  # type: ignore[no-any-return]
        y, _ = self.run(x_BSH, keep=None)
        assert y is not None
        return y

    def weights_changed(self) -> None:
        pass

    def run(self, x_BSH: Tensor, *, keep: str | None, mlp_out: bool = True) -> tuple[Tensor | None, Kept | None]:
        """The block's output, and what `keep` says of the way there; not `mlp_out`: without the MLP's last GEMM."""
        kept = Kept(x_BSH)
        stream = self.attention(x_BSH, kept, keep)
        y = self.mlp(stream, kept, keep, mlp_out=mlp_out)
        if keep is None:
            return y, None
        return y, Kept(x_BSH) if keep == "full" else kept

    def back(self, dy_BSH: Tensor, kept: Kept) -> Tensor:
        if kept.core is None:
            with self.tp.comm.timers("recompute"), torch.no_grad():
                _, made = self.run(kept.x, keep="none", mlp_out=False)
            assert made is not None
            kept = made
        d_stream = self.mlp_back(dy_BSH, kept)
        return self.attention_back(d_stream, kept)

    def observe_grad(self, linear: str, dy: Tensor) -> None:
        """Of each linear layer, the gradient of its output, as it comes by."""

    # attention

    def attention(self, x_BSH: Tensor, kept: Kept, keep: str | None) -> Tensor:
        b, x = self.block, rows_of(x_BSH)
        h, kept.stats1, shifted = self.kernels.norm(x, b.norm1.weight, b.norm1.bias, b.norm1.eps, plus=b.out.bias)
        qkv = self.gemm(self._into(h, x_BSH), b.qkv.weight.t(), b.qkv.bias)
        kept.h1 = h if keep == "none" else None
        mixed = self.core(qkv, x_BSH, kept, keep)
        kept.stream = self.onto(mixed, b.out.weight, shifted, x_BSH)
        return kept.stream

    def core(self, qkv: Tensor, x_BSH: Tensor, kept: Kept, keep: str | None) -> Tensor:
        """[tokens, columns of this rank]"""
        apart = attend_apart(qkv.view(x_BSH.shape[0], -1, qkv.shape[-1]), heads=self.heads, positions=self.shared.positions,
                             backend=self.shared.ops.attention, keep=keep in ("none", "selective"))
        kept.core = apart
        return apart.mixed

    def attention_back(self, d_stream_BSH: Tensor, kept: Kept) -> Tensor:
        b, k, x = self.block, self.kernels, rows_of(kept.x)
        assert kept.core is not None and kept.stats1 is not None
        dy = self._into(rows_of(d_stream_BSH), kept.x)
        self.observe_grad("out", dy)
        d_mixed = self.gemm(dy, b.out.weight.t())
        weight_gradient(self.tp, b.out.weight, kept.core.mixed, dy)
        parts = kept.core.back(d_mixed)
        kept.core = None
        d_qkv, sums = k.cat_qkv(parts)
        del parts, d_mixed
        self.observe_grad("qkv", d_qkv)
        self.reduce_partials(sums, b.qkv.bias)
        in_flight = self.tp.out_of_region(self._shaped(self.gemm(d_qkv, b.qkv.weight), kept.x))
        weight_gradient(self.tp, b.qkv.weight, d_qkv, self._into(self.recompute_norm(kept.h1, x, kept.stats1, b.norm1), kept.x))
        del d_qkv
        dx, sums = k.norm_backward(rows_of(in_flight.wait()), x, kept.stats1, b.norm1.weight, rows_of(d_stream_BSH))
        self.reduce_partials(sums, b.norm1.weight, b.norm1.bias, b.out.bias)
        return dx.view(kept.x.shape)

    # the MLP

    def mlp(self, stream_BSH: Tensor, kept: Kept, keep: str | None, *, mlp_out: bool) -> Tensor | None:
        b = self.block
        h, kept.stats2, shifted = self.kernels.norm(rows_of(stream_BSH), b.norm2.weight, b.norm2.bias, b.norm2.eps,
                                                    plus=b.down.bias if mlp_out else None)
        kept.pre = self.gemm(self._into(h, stream_BSH), b.up.weight.t(), b.up.bias)
        kept.h2 = h if keep == "none" else None
        if not mlp_out:
            return None
        g = self.kernels.gelu(kept.pre)
        kept.g = g if keep == "none" else None
        return self.onto(g, b.down.weight, shifted, stream_BSH)

    def mlp_back(self, dy_BSH: Tensor, kept: Kept) -> Tensor:
        b, k = self.block, self.kernels
        assert kept.stream is not None and kept.stats2 is not None and kept.pre is not None
        stream = rows_of(kept.stream)
        dy = self._into(rows_of(dy_BSH), kept.x)
        self.observe_grad("down", dy)
        d_pre, made, sums = k.gelu_backward(self.gemm(dy, b.down.weight.t()), kept.pre, recompute=kept.g is None)
        weight_gradient(self.tp, b.down.weight, made if kept.g is None else kept.g, dy)
        kept.pre = kept.g = made = None
        self.observe_grad("up", d_pre)
        self.reduce_partials(sums, b.up.bias)
        in_flight = self.tp.out_of_region(self._shaped(self.gemm(d_pre, b.up.weight), kept.x))
        h2 = self.recompute_norm(kept.h2, stream, kept.stats2, b.norm2)
        weight_gradient(self.tp, b.up.weight, d_pre, self._into(h2, kept.x))
        del h2
        kept.h2 = None
        del d_pre
        d_stream, sums = k.norm_backward(rows_of(in_flight.wait()), stream, kept.stats2, b.norm2.weight, rows_of(dy_BSH))
        self.reduce_partials(sums, b.norm2.weight, b.norm2.bias, b.down.bias)
        kept.stream = None
        return d_stream.view(dy_BSH.shape)

    # what both halves use

    def onto(self, h: Tensor, weight: Tensor, stream: Tensor, like_BSH: Tensor) -> Tensor:
        """stream + h weight, summed over the tensor-parallel ranks; `stream` is used up."""
        if self.tp.size == 1 and self.residual_in_gemm:
            return self.gemm.into(stream, h, weight, add=True).view(like_BSH.shape)
        y = self.tp.out_of_region(self._shaped(self.gemm(h, weight), like_BSH)).wait()
        return y.add_(stream.view(y.shape))

    def recompute_norm(self, h: Tensor | None, x: Tensor, stats: Tensor, norm: LayerNorm) -> Tensor:
        if h is not None:
            return h
        with self.tp.comm.timers("recompute"):
            return self.kernels.norm_recompute(x, stats, norm.weight, norm.bias)

    def reduce_partials(self, sums: Tensor, *params: Tensor | None) -> None:
        """Column sums into the gradients of biases and norms."""
        reduce_partials(self.kernels, sums, *params)

    def _into(self, x_TH: Tensor, like_BSH: Tensor) -> Tensor:
        """All tokens of the region, as a matrix."""
        if not self.tp.sequence_parallel:
            return x_TH
        return rows_of(self.tp.into_region(x_TH.view(like_BSH.shape)))

    def _shaped(self, x_TH: Tensor, like_BSH: Tensor) -> Tensor:
        return x_TH.view(like_BSH.shape[0], -1, x_TH.shape[-1])
