"""One linear layer of a fused block: its three GEMMs, and the kernels that make what they take, in 16 or in eight bits.

    up, down = (Product(linear, column=c, kernels=kernels, gemm=gemm, tp=tp) for linear, c in …)
    x, h, stats = up.normed(stream, norm)               h: what may be kept of it
    y = down.onto(stream, down.activated(up(x))[0])     the residual stream is what the GEMM adds to

An operand is what a GEMM takes. In 16 bits that is the matrix itself; in eight (`Product8`) it is cast by the kernel that makes
it, once more and transposed in the backward pass: nothing in eight bits is kept, so `none` keeps as little as `selective`. The
first training step after a start is the one in bf16, which warms up the amax history.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seatrial.engine.core.comm import TensorParallel
from seatrial.engine.core.layers import LayerNorm, RmsNorm, main_grad_of, rows_of, weight_gradient
from seatrial.engine.core.loss import PlainHead
from seatrial.engine.core.ops import Gemm
from seatrial.engine.fast.fp8 import FORWARD, GRADIENT, ScaledGemm, scaled_gemm
from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.fast.kernels.plain import Parts
from seatrial.engine.fast.kernels.scaling import Scales

if TYPE_CHECKING:
    from seatrial.engine.core.model import Linear

Operand = Any
"""A matrix; in eight bits rows, or (rows, transposed) of what is cast both ways, or transposed where the tokens come last."""


class Product:
    def __init__(self, linear: Linear, *, column: bool, gated: bool, kernels: Kernels, gemm: Gemm, tp: TensorParallel):
        """`column`: the weight is [out, in] and its rows are spread over the ranks, else [in, out]; `gated`: of a SwiGLU."""
        self.weight, self.bias, self.column, self.gated = linear.weight, linear.bias, column, gated
        self.kernels, self.gemm, self.tp = kernels, gemm, tp

    def weights_changed(self) -> None:
        pass

    # what the GEMMs take

    def normed(self, x: Tensor, norm: LayerNorm | RmsNorm, batch: int) -> tuple[Operand, Tensor | None, Tensor]:
        """The input, what of it can be kept, and the norm's statistics."""
        h, stats = self.kernels.norm(x, norm.weight, norm_bias(norm), norm.eps)
        return self.into(h, batch), h, stats

    def normed_again(self, h: Tensor | None, x: Tensor, stats: Tensor, norm: LayerNorm | RmsNorm, batch: int) -> Operand:
        """For the weight's GEMM."""
        if h is None:
            with self.tp.comm.timers("recompute"):
                h = self.kernels.norm_recompute(x, stats, norm.weight, norm_bias(norm))
        return self.into(h, batch)

    def mixed(self, mixed: Tensor) -> Operand:
        """Attention's output."""
        return mixed

    def mixed_again(self, mixed: Tensor) -> Operand:
        return mixed

    def activated(self, pre: Tensor) -> tuple[Operand, Tensor | None]:
        """The activation's output; and what the backward pass does not make by itself."""
        if self.gated:
            return self.kernels.gated(pre), None
        g = self.kernels.gelu(pre)
        return g, g

    def gradient(self, dy: Tensor, batch: int) -> Operand:
        return self.into(dy, batch)

    def activation_gradient(self, d: Tensor, pre: Tensor, g: Tensor | None,
                            down: Product) -> tuple[Operand, Operand, Tensor | None]:
        """The gradient of `pre`; the activation, for the weight of `down`; column sums. Both arguments are used up."""
        if self.gated:
            self.kernels.gated_backward(d, pre)
            return pre, d, None if self.bias is None else pre.sum(0, dtype=torch.float32)[None, None]
        d_pre, made, sums = self.kernels.gelu_backward(d, pre, recompute=g is None)
        return d_pre, made if g is None else g, sums

    def qkv_gradient(self, parts: Parts) -> tuple[Operand, Tensor]:
        """Side by side, with their column sums."""
        return self.kernels.cat_qkv(parts)

    # the GEMMs

    def __call__(self, x: Operand) -> Tensor:
        return self.gemm(x, self.weight.t() if self.column else self.weight, self.bias if self.column else None)

    def onto(self, stream_BSH: Tensor, x: Operand) -> Tensor:
        """stream + x weight (+ bias), summed over the tensor-parallel ranks."""
        if self.tp.size == 1:
            return self._onto(rows_of(stream_BSH), x).view(stream_BSH.shape)
        y = self.tp.out_of_region(shaped(self(x), len(stream_BSH))).wait().add_(stream_BSH)
        return y if self.bias is None else y.add_(self.bias)

    def _onto(self, stream: Tensor, x: Operand) -> Tensor:
        return self.gemm(x, self.weight, self.bias, stream)

    def input_gradient(self, dy: Operand) -> Tensor:
        return self.gemm(dy, self.weight if self.column else self.weight.t())

    def weight_gradient(self, x: Operand, dy: Operand) -> None:
        weight_gradient(self.tp, self.weight, *((dy, x) if self.column else (x, dy)))

    def into(self, x: Tensor, batch: int) -> Tensor:
        """All tokens of the region, as a matrix."""
        return rows_of(self.tp.into_region(shaped(x, batch))) if self.tp.sequence_parallel else x


class Product8(Product):
    def __init__(self, linear: Linear, *, scales: Scales, fast: str, scaled_gemm: ScaledGemm = scaled_gemm, **given: Any):
        super().__init__(linear, **given)
        self.scales, self.scaled_gemm = scales, scaled_gemm
        self.x, self.w, self.dy = scales.state(FORWARD), scales.state(FORWARD), scales.state(GRADIENT)
        self.fast_forward, self.fast_backward = fast != "none", fast == "all"
        self._cast: tuple[Tensor, Tensor] | None = None
        self._seen = False

    @property
    def warming_up(self) -> bool:
        return self.scales.updates == 0

    def weights_changed(self) -> None:
        self._cast = None

    def weights(self) -> tuple[Tensor, Tensor]:
        """The matrix as [out, in] and as [in, out]; cast once a step."""
        if self._cast is None:
            rows, cols = self.kernels.cast8(self.weight.detach(), self.w, rows=True, cols=True)
            self._cast = (rows, cols) if self.column else (cols, rows)
        return self._cast

    def _see(self, x: Tensor) -> None:
        self.x.update_amax(x)
        if not self._seen:
            self.w.update_amax(self.weight.detach())
            self._seen = True

    def normed(self, x: Tensor, norm: LayerNorm | RmsNorm, batch: int) -> tuple[Operand, Tensor | None, Tensor]:
        if not self.warming_up and not self.tp.sequence_parallel:
            h8, stats = self.kernels.norm8(x, norm.weight, norm_bias(norm), norm.eps, self.x)
            return h8, None, stats
        h, _, stats = super().normed(x, norm, batch)
        if self.warming_up:
            self._see(h)
            return h, None, stats
        return self.kernels.cast8(h, self.x)[0], None, stats

    def normed_again(self, h: Tensor | None, x: Tensor, stats: Tensor, norm: LayerNorm | RmsNorm, batch: int) -> Operand:
        if self.warming_up:
            return super().normed_again(h, x, stats, norm, batch)
        if not self.tp.sequence_parallel:
            return self.kernels.norm_recompute8(x, stats, norm.weight, norm_bias(norm), self.x)
        return self.mixed_again(super().normed_again(h, x, stats, norm, batch))

    def mixed(self, mixed: Tensor) -> Operand:
        if self.warming_up:
            self._see(mixed)
            return mixed
        return self.kernels.cast8(mixed, self.x)[0]

    def mixed_again(self, mixed: Tensor) -> Operand:
        return mixed if self.warming_up else self.kernels.cast8(mixed, self.x, rows=False, cols=True)[1]

    def activated(self, pre: Tensor) -> tuple[Operand, Tensor | None]:
        if not self.warming_up:
            return (self.kernels.gated8 if self.gated else self.kernels.gelu8)(pre, self.x), None
        g, _ = super().activated(pre)
        self._see(g)
        return g, None

    def gradient(self, dy: Tensor, batch: int) -> Operand:
        whole = super().gradient(dy, batch)
        if not self.warming_up:
            return self.kernels.cast8(whole, self.dy, rows=True, cols=True)
        self.dy.update_amax(whole)
        return whole

    def activation_gradient(self, d: Tensor, pre: Tensor, g: Tensor | None,
                            down: Product) -> tuple[Operand, Operand, Tensor | None]:
        if self.warming_up:
            found = super().activation_gradient(d, pre, g, down)
            self.dy.update_amax(found[0])
            return found
        assert isinstance(down, Product8)
        if self.gated:
            d8, d8_t, g8_t, sums = self.kernels.gated_backward8(d, pre, self.dy, down.x, sums=self.bias is not None)
        else:
            d8, d8_t, g8_t, sums = self.kernels.gelu_backward8(d, pre, self.dy, down.x)
        return (d8, d8_t), g8_t, sums

    def qkv_gradient(self, parts: Parts) -> tuple[Operand, Tensor]:
        if not self.warming_up:
            d8, d8_t, sums = self.kernels.cat_qkv8(parts, self.dy)
            return (d8, d8_t), sums
        found = super().qkv_gradient(parts)
        self.dy.update_amax(found[0])
        return found

    def __call__(self, x: Operand) -> Tensor:
        return super().__call__(x) if self.warming_up else self._forward(x, self.bias if self.column else None, None)

    def _onto(self, stream: Tensor, x: Operand) -> Tensor:
        return super()._onto(stream, x) if self.warming_up else self._forward(x, self.bias, stream)

    def _forward(self, x8: Tensor, bias: Tensor | None, onto: Tensor | None) -> Tensor:
        return self.scaled_gemm(x8, self.weights()[0], self.x.inverse, self.w.inverse, bias=bias, onto=onto,
                                fast=self.fast_forward)

    def input_gradient(self, dy: Operand) -> Tensor:
        if self.warming_up:
            return super().input_gradient(dy)
        return self.scaled_gemm(dy[0], self.weights()[1], self.dy.inverse, self.w.inverse, fast=self.fast_backward)

    def weight_gradient(self, x: Operand, dy: Operand) -> None:
        if self.warming_up:
            return super().weight_gradient(x, dy)
        main_grad, by_x, by_dy = main_grad_of(self.weight), (x, self.x.inverse), (dy[1], self.dy.inverse)
        assert main_grad is not None
        (left, a), (right, b) = (by_dy, by_x) if self.column else (by_x, by_dy)

        def make(out: Tensor | None, dtype: torch.dtype) -> Tensor:
            return self.scaled_gemm(left, right, a, b, out_dtype=dtype, fast=self.fast_backward, out=out)

        if self.tp.deferred is not None:
            self.tp.deferred.append(lambda: main_grad.add_computed(make))
        else:
            main_grad.add_computed(make)


class Head8(PlainHead):
    """The vocabulary's matrix in eight bits; cast for each micro-batch, so that none of it is held meanwhile."""

    def __init__(self, *, scales: Scales, fast: str, kernels: Kernels, gemm: Gemm, scaled_gemm: ScaledGemm = scaled_gemm):
        super().__init__(gemm)
        self.scales, self.kernels, self.scaled_gemm, self.fast = scales, kernels, scaled_gemm, fast
        self.x, self.w, self.dy = scales.state(FORWARD), scales.state(FORWARD), scales.state(GRADIENT)
        self._cast: tuple[int, Tensor, Tensor] | None = None

    def _weights(self, weight_VH: Tensor) -> tuple[Tensor, Tensor]:
        if self._cast is None or self._cast[0] != self.scales.updates:
            self._cast = None
            self._cast = self.scales.updates, *self.kernels.cast8(weight_VH.detach(), self.w, rows=True, cols=True)
        return self._cast[1:]

    def logits(self, h_TH: Tensor, weight_VH: Tensor) -> Tensor:
        if self.scales.updates:
            h8, _ = self.kernels.cast8(h_TH, self.x)
            return self.scaled_gemm(h8, self._weights(weight_VH)[0], self.x.inverse, self.w.inverse, fast=self.fast != "none")
        for scaling, seen in ((self.x, h_TH), (self.w, weight_VH.detach())):
            scaling.update_amax(seen)
        return super().logits(h_TH, weight_VH)

    def back(self, d_logits_TV: Tensor, h_TH: Tensor, weight_VH: Tensor, d_h_TH: Tensor, *, scale: float, last: bool) -> None:
        if not self.scales.updates:
            self.dy.update_amax(d_logits_TV)
            return super().back(d_logits_TV, h_TH, weight_VH, d_h_TH, scale=scale, last=last)
        d8, d8_t = self.kernels.cast8(d_logits_TV, self.dy, rows=True, cols=True)
        by, fast, main_grad = self.dy.inverse * scale, self.fast == "all", main_grad_of(weight_VH)
        self.scaled_gemm(d8, self._weights(weight_VH)[1], by, self.w.inverse, fast=fast, out=d_h_TH)
        del d8
        if main_grad is not None:
            _, h8_t = self.kernels.cast8(h_TH, self.x, rows=False, cols=True)
            main_grad.add_computed(lambda out, dtype: self.scaled_gemm(d8_t, h8_t, by, self.x.inverse, out_dtype=dtype,
                                                                       fast=fast, out=out), last)
        if last:
            self._cast = None


def norm_bias(norm: LayerNorm | RmsNorm) -> Tensor | None:
    return norm.bias if isinstance(norm, LayerNorm) else None


def shaped(x_TH: Tensor, batch: int) -> Tensor:
    return x_TH.view(batch, -1, x_TH.shape[-1])
