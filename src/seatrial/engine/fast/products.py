"""Matrix products of 16-bit and of eight-bit operands, with their result where it is wanted.

    products = Products()
    y = products(x, weight.t(), bias)                   [tokens, out]
    products.into(grad, dy.t(), x, add=True)            grad += dyᵀ x, in its place
    products(x8, weight8.t(), scales=(a, b))            in eight bits
"""
from __future__ import annotations

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]


class Products:
    def __call__(self, left: Tensor, right: Tensor, bias: Tensor | None = None, *, scales: Pair | None = None,
                 fast: bool = True) -> Tensor:
        """left right (+ bias), in the type of 16-bit operands; `scales` undo those of operands in eight bits."""
        if scales is not None and left.device.type != "cuda":
            wide = _emulated(left, right, scales)
            return (wide if bias is None else wide + bias.float()).bfloat16()
        if scales is not None:
            return torch._scaled_mm(left, right, *scales, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=fast)
        return left @ right if bias is None else torch.addmm(bias, left, right)

    def into(self, out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False,
             scales: Pair | None = None, fast: bool = True) -> Tensor:
        """out = alpha x left right, or out + that."""
        if scales is not None:
            assert alpha == 1.0 and not add, "eight-bit products overwrite"
            if left.device.type != "cuda":
                return out.copy_(_emulated(left, right, scales))
            return torch._scaled_mm(left, right, *scales, out_dtype=out.dtype, use_fast_accum=fast, out=out)
        beta = 1.0 if add else 0.0
        if out.dtype == left.dtype:
            return torch.addmm(out, left, right, beta=beta, alpha=alpha, out=out)
        return torch.addmm(out, left, right, out_dtype=out.dtype, beta=beta, alpha=alpha, out=out)


def _emulated(left: Tensor, right: Tensor, scales: Pair) -> Tensor:
    return (left.float() * scales[0]) @ (right.float() * scales[1])


def wide_products_work(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this torch adds products of 16-bit matrices up in fp32 without a 16-bit result between, tried on small ones."""
    if device.type != "cuda" or dtype == torch.float32:
        return False
    left, right = (torch.randn(64, 64, device=device, dtype=dtype) for _ in range(2))
    out = torch.zeros(64, 64, device=device)
    try:
        for add in (False, True):
            Products().into(out, left.t(), right, alpha=0.5, add=add)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return bool(torch.allclose(out, left.float().t() @ right.float(), rtol=1e-3, atol=1e-2))
