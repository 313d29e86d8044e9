"""The fused block with its four GEMMs in eight bits (see `fp8.py`); attention, norms and the residual stream stay in bf16.

The kernels that make a GEMM's input cast it on the way, and cast it once more, transposed, in the backward pass: norms and
the activation are made again there from what is kept anyway, so that nothing in eight bits is kept, and `none` keeps as little
as `selective`. A block's first training step after a start is the bf16 one, which warms up the amax history.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seatrial.engine.core.layers import LayerNorm, main_grad_of, rows_of
from seatrial.engine.core.ops import Gemm
from seatrial.engine.fast.block import FusedBlock, Kept
from seatrial.engine.fast.fp8 import Linear8, ScaledGemm, scaled_gemm
from seatrial.engine.fast.kernels import Kernels
from seatrial.engine.fast.kernels.scaling import Scales

if TYPE_CHECKING:
    from seatrial.engine.core.model import Block


class FusedBlock8(FusedBlock):
    def __init__(self, block: Block, *, kernels: Kernels, gemm: Gemm, residual_in_gemm: bool, scales: Scales, fast: str,
                 scaled_gemm: ScaledGemm = scaled_gemm):
        super().__init__(block, kernels=kernels, gemm=gemm, residual_in_gemm=residual_in_gemm)
        self.scales = scales
        self.qkv, self.up = (Linear8(p.weight, scales, stored="out,in", fast=fast, gemm=scaled_gemm)
                             for p in (block.qkv, block.up))
        self.out, self.down = (Linear8(p.weight, scales, stored="in,out", fast=fast, gemm=scaled_gemm)
                               for p in (block.out, block.down))
        self.linears = (self.qkv, self.out, self.up, self.down)

    @property
    def warming_up(self) -> bool:
        return self.scales.updates == 0

    def run(self, x_BSH: Tensor, *, keep: str | None, mlp_out: bool = True) -> tuple[Tensor | None, Kept | None]:
        return super().run(x_BSH, keep="selective" if keep == "none" else keep, mlp_out=mlp_out)

    def weights_changed(self) -> None:
        for linear in self.linears:
            linear.drop()

    # attention

    def attention(self, x_BSH: Tensor, kept: Kept, keep: str | None) -> Tensor:
        if self.warming_up:
            return self._warm_up_attention(x_BSH, kept, keep)
        b, k = self.block, self.kernels
        h8, kept.stats1, _ = self._normed8(rows_of(x_BSH), b.norm1, self.qkv, x_BSH)
        mixed = self.core(self.qkv.forward(h8, b.qkv.bias, k), x_BSH, kept, keep)
        eight, _ = k.cast8(mixed, self.out.x)
        kept.stream = self._row_gemm(self.out, eight, b.out.bias, x_BSH)
        return x_BSH

    def attention_back(self, d_stream_BSH: Tensor, kept: Kept) -> Tensor:
        if self.warming_up:
            return super().attention_back(d_stream_BSH, kept)
        b, k, x = self.block, self.kernels, rows_of(kept.x)
        assert kept.core is not None and kept.stats1 is not None
        dy8, dy8_t = k.cast8(self._into(rows_of(d_stream_BSH), kept.x), self.out.dy, rows=True, cols=True)
        d_mixed = self.out.input_gradient(dy8, k)
        _, mixed8_t = k.cast8(kept.core.mixed, self.out.x, rows=False, cols=True)
        self._weight_gradient(self.out, mixed8_t, dy8_t)
        parts = kept.core.back(d_mixed)
        kept.core = None
        d8, d8_t, sums = k.cat_qkv8(parts, self.qkv.dy)
        del parts, d_mixed, mixed8_t, dy8, dy8_t
        self.reduce_partials(sums, b.qkv.bias)
        in_flight = self.tp.out_of_region(self._shaped(self.qkv.input_gradient(d8, k), kept.x))
        self._weight_gradient(self.qkv, self._recompute_norm8(x, kept.stats1, b.norm1, self.qkv, kept.x), d8_t)
        del d8, d8_t
        dx, sums = k.norm_backward(rows_of(in_flight.wait()), x, kept.stats1, b.norm1.weight, rows_of(d_stream_BSH))
        self.reduce_partials(sums, b.norm1.weight, b.norm1.bias, b.out.bias)
        return dx.view(kept.x.shape)

    # the MLP

    def mlp(self, stream_BSH: Tensor, kept: Kept, keep: str | None, *, mlp_out: bool) -> Tensor | None:
        if self.warming_up:
            return self._warm_up_mlp(stream_BSH, kept, keep, mlp_out=mlp_out)
        b, k = self.block, self.kernels
        # `stream` is the input still: what attention adds to it comes in with the norm's own pass.
        assert kept.stream is not None
        h8, kept.stats2, both = self._normed8(rows_of(stream_BSH), b.norm2, self.up, stream_BSH, added=rows_of(kept.stream))
        kept.stream = both.view(stream_BSH.shape)
        kept.pre = self.up.forward(h8, b.up.bias, k)
        if not mlp_out:
            return None
        y = self._row_gemm(self.down, k.gelu8(kept.pre, self.down.x), b.down.bias, stream_BSH)
        return y.add_(kept.stream)

    def mlp_back(self, dy_BSH: Tensor, kept: Kept) -> Tensor:
        if self.warming_up:
            return super().mlp_back(dy_BSH, kept)
        b, k = self.block, self.kernels
        assert kept.stream is not None and kept.stats2 is not None and kept.pre is not None
        stream = rows_of(kept.stream)
        dy8, dy8_t = k.cast8(self._into(rows_of(dy_BSH), kept.x), self.down.dy, rows=True, cols=True)
        d8, d8_t, g8_t, sums = k.gelu_backward8(self.down.input_gradient(dy8, k), kept.pre, self.up.dy, self.down.x)
        kept.pre = None
        self._weight_gradient(self.down, g8_t, dy8_t)
        del g8_t, dy8, dy8_t
        self.reduce_partials(sums, b.up.bias)
        in_flight = self.tp.out_of_region(self._shaped(self.up.input_gradient(d8, k), kept.x))
        self._weight_gradient(self.up, self._recompute_norm8(stream, kept.stats2, b.norm2, self.up, kept.x), d8_t)
        del d8, d8_t
        d_stream, sums = k.norm_backward(rows_of(in_flight.wait()), stream, kept.stats2, b.norm2.weight, rows_of(dy_BSH))
        self.reduce_partials(sums, b.norm2.weight, b.norm2.bias, b.down.bias)
        kept.stream = None
        return d_stream.view(dy_BSH.shape)

    # casts

    def _normed8(self, x: Tensor, norm: LayerNorm, linear: Linear8, like_BSH: Tensor, *, added: Tensor | None = None) -> Any:
        """The norm of x (+ added) for the GEMM, its statistics, and the sum."""
        if not self.tp.sequence_parallel:
            return self.kernels.norm8(x, norm.weight, norm.bias, norm.eps, linear.x, added=added)
        both = x if added is None else x + added
        h, stats, _ = self.kernels.norm(both, norm.weight, norm.bias, norm.eps)
        return self.kernels.cast8(self._into(h, like_BSH), linear.x)[0], stats, both

    def _recompute_norm8(self, x: Tensor, stats: Tensor, norm: LayerNorm, linear: Linear8, like_BSH: Tensor) -> Tensor:
        """Transposed, for the weight's GEMM."""
        if not self.tp.sequence_parallel:
            return self.kernels.norm_recompute8(x, stats, norm.weight, norm.bias, linear.x)
        h = self._into(self.kernels.norm_recompute(x, stats, norm.weight, norm.bias), like_BSH)
        return self.kernels.cast8(h, linear.x, rows=False, cols=True)[1]  # type: ignore[no-any-return]

    def _row_gemm(self, linear: Linear8, x8: Tensor, bias: Tensor, like_BSH: Tensor) -> Tensor:
        """The sum over the tensor-parallel ranks, then the bias."""
        if self.tp.size == 1:
            return linear.forward(x8, bias, self.kernels).view(like_BSH.shape)
        y = self.tp.out_of_region(self._shaped(linear.forward(x8, None, self.kernels), like_BSH)).wait()
        return y.add_(bias)

    def _weight_gradient(self, linear: Linear8, x_t8: Tensor, dy_t8: Tensor) -> None:
        main_grad = main_grad_of(linear.weight)
        assert main_grad is not None

        def make(out: Tensor | None, dtype: torch.dtype) -> Tensor:
            return linear.weight_gradient(x_t8, dy_t8, out, dtype)

        if self.tp.deferred is not None:
            self.tp.deferred.append(lambda: main_grad.add_computed(make))
        else:
            main_grad.add_computed(make)

    # the first step

    def observe_grad(self, linear: str, dy: Tensor) -> None:
        getattr(self, linear).dy.update_amax(dy)

    def _warm_up_attention(self, x_BSH: Tensor, kept: Kept, keep: str | None) -> Tensor:
        stream = super().attention(x_BSH, kept, keep)
        assert kept.stats1 is not None and kept.core is not None
        b = self.block
        self.qkv.warm_up(self.kernels.norm_recompute(rows_of(x_BSH), kept.stats1, b.norm1.weight, b.norm1.bias))
        self.out.warm_up(kept.core.mixed)
        return stream

    def _warm_up_mlp(self, stream_BSH: Tensor, kept: Kept, keep: str | None, *, mlp_out: bool) -> Tensor | None:
        y = super().mlp(stream_BSH, kept, keep, mlp_out=mlp_out)
        assert kept.stats2 is not None and kept.pre is not None
        b = self.block
        self.up.warm_up(self.kernels.norm_recompute(rows_of(stream_BSH), kept.stats2, b.norm2.weight, b.norm2.bias))
        self.down.warm_up(self.kernels.gelu(kept.pre))
        return y
