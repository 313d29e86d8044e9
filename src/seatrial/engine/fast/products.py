"""Matrix products, each by the fastest of cuBLASLt's kernels for its form: tried before the first step, else torch's choice.

    products = Products()                               torch's choice, always
    products, note = measured(forms, device)            each form's kernels checked against torch, timed, the fastest kept
    y = products(x, weight.t(), bias)                   [tokens, out]
    products.into(grad, dy.t(), x, add=True)            grad += dyᵀ x, in its place
    products(x8, weight8.t(), scales=(a, b))            in eight bits

A library's guess is made for a device that may draw what it likes. A large one at its power limit runs at three quarters of its
clock, and there the kernel that draws least is the fastest. So each runs until the clock has settled before it is timed, which
takes a second a form; what was chosen is remembered (`product_notes.py`) and only checked the next time.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from seatrial.engine.fast.cublaslt import ALIGNED, Form, Kernel, Refused, kernel_of, kernels, version
from seatrial.engine.fast.product_notes import Choice, Notebook

Pair = tuple[Tensor, Tensor]
Ways = dict[Kernel | None, Callable[[], None]]
"""None is torch's own."""

WORTH = 2e10
"""Operations from which a product is long enough for the choice to matter."""
BURST_MS = 6.0
BEHIND = 1.08
"""Kernels slower than the fastest by this in a burst are out."""
SETTLE_MS, SLICE_MS = 90.0, 60.0
"""The others run for so long that the clock follows what they draw, and are timed then."""
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
        kernel = None
        if self.chosen and (bias is None or bias.data_ptr() % ALIGNED == 0):
            form = Form.of(left, right, dtype, bias=bias is not None, fast=scales is not None and fast)
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
    if scales is not None and left.device.type != "cuda":
        wide = _emulated(left, right, scales)
        return (wide if bias is None else wide + bias.float()).bfloat16()
    if scales is not None:
        return torch._scaled_mm(left, right, *scales, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=fast)
    return left @ right if bias is None else torch.addmm(bias, left, right)


def plain_into(out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False, scales: Pair | None = None,
               fast: bool = True) -> Tensor:
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
            plain_into(out, left.t(), right, alpha=0.5, add=add)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return bool(torch.allclose(out, left.float().t() @ right.float(), rtol=1e-3, atol=1e-2))


def measured(forms: Iterable[Form], device: torch.device) -> tuple[Products, str]:
    """And what was found, in a line."""
    wanted = [form for form in dict.fromkeys(forms) if form.operations >= WORTH]
    if not wanted or not version():
        return Products(), "left to torch: " + ("there is no cuBLASLt" if wanted else "too small for a choice")
    notebook = Notebook(device)
    chosen: dict[Form, Kernel] = {}
    known = 0
    before_ms = after_ms = 0.0
    for form in wanted:
        remembered = notebook.get(form)
        try:
            choice = _choice(form, device, remembered)
        except torch.OutOfMemoryError:
            # The run itself may fit: it need not hold both operands and two results at once.
            continue
        known += choice is remembered
        notebook.put(form, choice)
        before_ms, after_ms = before_ms + choice.torch_ms, after_ms + choice.ms
        if choice.code:
            chosen[form] = kernel_of(choice.code, form, device)
    notebook.save()
    # What was tried on is of sizes that training does not ask for again.
    torch.cuda.empty_cache()
    return Products(chosen), (f"{len(chosen)} of {len(wanted)} forms by another kernel than torch's: {after_ms:.2f} ms instead "
                              f"of {before_ms:.2f}, one of each; {known} known from before")


def _choice(form: Form, device: torch.device, remembered: Choice | None) -> Choice:
    trial = _Trial(form, device)
    return remembered if remembered is not None and trial.still_right(remembered) else trial.choose()


class _Trial:
    """One form on random numbers."""

    def __init__(self, form: Form, device: torch.device):
        self.form, self.device = form, device
        self.left = _operand(form.left, form.rows, form.inner, form.left_t, device)
        self.right = _operand(form.right, form.inner, form.cols, form.right_t, device)
        eight = form.left in (torch.float8_e4m3fn, torch.float8_e5m2)
        self.scales = (torch.ones(4, device=device)[:1], torch.ones(4, device=device)[:1]) if eight else None
        self.bias = torch.randn(form.cols, device=device).to(form.out) if form.bias else None
        self.out = torch.zeros(form.rows, form.cols, dtype=form.out, device=device)
        self.expected = plain(self.left, self.right, self.bias, scales=self.scales, fast=form.fast)

    def agrees(self, kernel: Kernel) -> bool:
        """Whether it computes what torch does."""
        self.out.zero_()
        try:
            self._run(kernel)
        except Refused:
            return False
        off = torch.linalg.vector_norm(self.out - self.expected, dtype=torch.float32)
        return bool(off < CLOSE * torch.linalg.vector_norm(self.expected, dtype=torch.float32))

    def still_right(self, choice: Choice) -> bool:
        """Of a choice that was remembered."""
        try:
            return not choice.code or self.agrees(kernel_of(choice.code, self.form, self.device))
        except (ValueError, Refused):
            return False

    def choose(self) -> Choice:
        ways: Ways = {None: self._torchs}
        for kernel in kernels(self.form, self.device):
            if self.agrees(kernel):
                ways[kernel] = partial(self._run, kernel)
        once = _turn(ways, dict.fromkeys(ways, 0.0))
        took = _turn(ways, once, BURST_MS)
        ways = {way: run for way, run in ways.items() if way is None or took[way] <= BEHIND * min(took.values())}
        took = _turn(ways, once, SETTLE_MS, SLICE_MS)
        best = min(took, key=lambda way: took[way])
        if best is None or took[best] > GAIN * took[None]:
            return Choice(code="", torch_ms=took[None], ms=took[None])
        return Choice(code=best.code, torch_ms=took[None], ms=took[best])

    def _run(self, kernel: Kernel) -> None:
        kernel(self.left, self.right, self.out, bias=self.bias, scales=self.scales)

    def _torchs(self) -> None:
        if self.form.bias or self.scales is not None:
            plain(self.left, self.right, self.bias, scales=self.scales, fast=self.form.fast)
        else:
            plain_into(self.out, self.left, self.right, add=self.form.add)


def _turn(ways: Ways, once_ms: dict[Kernel | None, float], *slices_ms: float) -> dict[Kernel | None, float]:
    """Milliseconds of one product each, in the last of the slices; one kernel after the other without a pause."""
    marks: dict[Kernel | None, tuple[torch.cuda.Event, torch.cuda.Event, int]] = {}
    for way, run in ways.items():
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for slice_ms in slices_ms or (0.0,):
            repeats = max(1, round(slice_ms / once_ms[way])) if once_ms[way] else 1
            start.record()
            for _ in range(repeats):
                run()
        end.record()
        marks[way] = start, end, repeats
    torch.cuda.synchronize()
    return {way: start.elapsed_time(end) / repeats for way, (start, end, repeats) in marks.items()}


def _operand(dtype: torch.dtype, rows: int, cols: int, transposed: bool, device: torch.device) -> Tensor:
    shape = (cols, rows) if transposed else (rows, cols)
    made = torch.empty(shape, dtype=torch.bfloat16, device=device).normal_().to(dtype)
    return made.t() if transposed else made
