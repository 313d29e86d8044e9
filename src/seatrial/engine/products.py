"""Matrix products, each by the fastest of cuBLASLt's kernels for its form: tried before the first step, else torch's choice.

    products = Products()                               torch's choice, always
    products, note = measured(forms, device)            each form's kernels checked against torch, timed, the fastest kept
    y = products(x, weight.t(), bias)                   [tokens, out]
    products.into(grad, dy.t(), x, add=True)            grad += dyᵀ x, in its place
    products(x8, weight8.t(), scales=(a, b))            in eight bits

A library's guess is made for a device that may draw what it likes. A large one at its power limit runs at three quarters of its
clock, and there another tile is often the faster one.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from seatrial.engine.cublaslt import ALIGNED, Form, Kernel, Refused, kernels

Pair = tuple[Tensor, Tensor]

WORTH = 2e10
"""Operations from which a product is long enough for the choice to matter."""
SLICE_MS, ROUNDS = 6.0, 3
"""Each kernel runs about so long at a time, in turns: what the clock does in between, it does to all of them."""
BEHIND = 1.05
"""Kernels slower than the fastest by this after their first turn get no other."""
GAIN = 0.995
"""Less than this of torch's time, or torch keeps the product."""
CLOSE = 1e-2
"""‖difference‖ / ‖torch's‖ of a kernel that computes the same."""


class Products:
    def __init__(self, chosen: dict[Form, Kernel] | None = None):
        self.chosen = chosen or {}

    def __call__(self, left: Tensor, right: Tensor, bias: Tensor | None = None, *, scales: Pair | None = None,
                 fast: bool = True) -> Tensor:
        """left right (+ bias), in the type of 16-bit operands; `scales` undo those of operands in eight bits."""
        dtype = left.dtype if scales is None else torch.bfloat16
        placed = bias is None or bias.data_ptr() % ALIGNED == 0
        form = self.chosen and placed and Form.of(left, right, dtype, bias=bias is not None, fast=scales is not None and fast)
        kernel = self.chosen.get(form) if form else None
        if kernel is None:
            return plain(left, right, bias, scales=scales, fast=fast)
        out = torch.empty(left.shape[0], right.shape[1], dtype=dtype, device=left.device)
        kernel(left, right, out, bias=bias, scales=scales)
        return out

    def into(self, out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False,
             scales: Pair | None = None, fast: bool = True) -> Tensor:
        """out = alpha x left right, or out + that."""
        if self.chosen and out.is_contiguous() and out.data_ptr() % ALIGNED == 0:
            form = Form.of(left, right, out.dtype, add=add, fast=scales is not None and fast)
            kernel = self.chosen.get(form) if form else None
            if kernel is not None:
                kernel(left, right, out, alpha=alpha, scales=scales)
                return out
        return plain_into(out, left, right, alpha=alpha, add=add, scales=scales, fast=fast)


def plain(left: Tensor, right: Tensor, bias: Tensor | None = None, *, scales: Pair | None = None, fast: bool = True) -> Tensor:
    if scales is not None:
        return torch._scaled_mm(left, right, *scales, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=fast)
    return left @ right if bias is None else torch.addmm(bias, left, right)


def plain_into(out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False, scales: Pair | None = None,
               fast: bool = True) -> Tensor:
    if scales is not None:
        assert alpha == 1.0 and not add, "eight-bit products overwrite"
        return torch._scaled_mm(left, right, *scales, out_dtype=out.dtype, use_fast_accum=fast, out=out)
    beta = 1.0 if add else 0.0
    if out.dtype == left.dtype:
        return torch.addmm(out, left, right, beta=beta, alpha=alpha, out=out)
    return torch.addmm(out, left, right, out_dtype=out.dtype, beta=beta, alpha=alpha, out=out)


def wide_products_work(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this torch adds products of 16-bit matrices up in fp32 without a 16-bit result between, tried on small ones."""
    if device.type != "cuda" or dtype == torch.float32:
        return False
    left, right = (torch.randn(64, 64, device=device, dtype=dtype) for _ in range(2))
    out = torch.zeros(64, 64, device=device)
    try:
        for add in (False, True):
            plain_into(out, left.t(), right, alpha=0.5, add=add)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return bool(torch.allclose(out, left.float().t() @ right.float(), rtol=1e-3, atol=1e-2))


def measured(forms: Iterable[Form], device: torch.device) -> tuple[Products, str]:
    """And what was found, in a line."""
    chosen: dict[Form, Kernel] = {}
    before_ms = after_ms = 0.0
    wanted = [form for form in dict.fromkeys(forms) if form.operations >= WORTH]
    for form in wanted:
        kernel, torchs_ms, best_ms = _fastest(form, device)
        before_ms, after_ms = before_ms + torchs_ms, after_ms + best_ms
        if kernel is not None:
            chosen[form] = kernel
    if not wanted:
        return Products(), "too small for a choice"
    if device.type == "cuda":
        # What was tried on is of sizes that training does not ask for again.
        torch.cuda.empty_cache()
    return Products(chosen), (f"{len(chosen)} of {len(wanted)} forms by another kernel than torch's: {after_ms:.2f} ms instead "
                              f"of {before_ms:.2f}, one of each")


def _fastest(form: Form, device: torch.device) -> tuple[Kernel | None, float, float]:
    """The kernel if one is faster than torch's, and the milliseconds of torch's and of the fastest."""
    left, right = _operand(form.left, form.rows, form.inner, form.left_t, device), _operand(form.right, form.inner, form.cols,
                                                                                            form.right_t, device)
    eight = form.left in (torch.float8_e4m3fn, torch.float8_e5m2)
    scales = (torch.ones(4, device=device)[:1], torch.ones(4, device=device)[:1]) if eight else None
    bias = torch.randn(form.cols, device=device).to(form.out) if form.bias else None
    out = torch.zeros(form.rows, form.cols, dtype=form.out, device=device)

    def torchs() -> None:
        if form.bias or eight:
            plain(left, right, bias, scales=scales, fast=form.fast)
        else:
            plain_into(out, left, right, add=form.add)

    def with_kernel(kernel: Kernel) -> Callable[[], None]:
        return lambda: kernel(left, right, out, bias=bias, scales=scales)

    expected = plain(left, right, bias, scales=scales, fast=form.fast).float()
    ways: dict[Kernel | None, Callable[[], None]] = {None: torchs}
    for kernel in kernels(form, device):
        out.zero_()
        try:
            with_kernel(kernel)()
        except Refused:
            continue
        if float((out.float() - expected).norm() / expected.norm().clamp(min=1e-30)) < CLOSE:
            ways[kernel] = with_kernel(kernel)
    del expected
    first = _turn(ways, dict.fromkeys(ways, 1))
    repeats = {way: max(1, round(SLICE_MS / ms)) for way, ms in first.items()}
    first = _turn(ways, repeats)
    ways = {way: run for way, run in ways.items() if way is None or first[way] <= BEHIND * min(first.values())}
    turns = [_turn(ways, repeats) for _ in range(ROUNDS)]
    took = {way: sum(turn[way] for turn in turns) / ROUNDS for way in ways}
    best = min(took, key=lambda way: took[way])
    if took[best] > GAIN * took[None]:
        best = None
    return best, took[None], took[best]


def _turn(ways: dict[Kernel | None, Callable[[], None]], repeats: dict[Kernel | None, int]) -> dict[Kernel | None, float]:
    """Milliseconds of one product each, one kernel after the other without a pause."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(ways) + 1)]
    marks[0].record()
    for (way, run), mark in zip(ways.items(), marks[1:]):
        for _ in range(repeats[way]):
            run()
        mark.record()
    marks[-1].synchronize()
    return {way: a.elapsed_time(b) / repeats[way] for way, a, b in zip(ways, marks, marks[1:])}


def _operand(dtype: torch.dtype, rows: int, cols: int, transposed: bool, device: torch.device) -> Tensor:
    shape = (cols, rows) if transposed else (rows, cols)
    made = torch.empty(shape, dtype=torch.bfloat16, device=device).normal_().to(dtype)
    return made.t() if transposed else made
