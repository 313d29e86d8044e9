"""Which kernels a run has: each of Triton's is held against plain torch on the device, and one that fails is left out.

    with compiling(names, device, dtype, hidden, moments): ...          meanwhile, for those that are not in Triton's cache
    works, notes = usable(names, device, dtype, hidden, moments)
"""
from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import torch
from torch import Tensor

from seatrial.engine.core.masters import merge_bits, split_bits
from seatrial.engine.fast.kernels import EXPERTS, FP8, Kernels, plain, triton_kernels
from seatrial.engine.fast.kernels.grid import fewer_programs
from seatrial.engine.fast.kernels.scaling import Scales, ScalingState

CLOSE = 1e-2
"""‖difference‖ / ‖plain‖ that two roundings to 16 bits stay well below."""
TOKENS = 336
COMPILED_S = 0.15
"""Longer than a kernel takes to be loaded, shorter than to be compiled."""
CLOSE_FP8 = 2e-2
"""One in many numbers falls on the other side of a rounding edge, by a sixteenth of itself."""


def usable(names: Sequence[str], device: torch.device, dtype: torch.dtype, hidden: int,
           moments: torch.dtype = torch.float32) -> tuple[tuple[str, ...], dict[str, str]]:
    """Which of these Triton kernels agree with plain torch for rows of `hidden` numbers; and how far each is from it."""
    try:
        found = triton_kernels()
    except Exception as error:
        return (), {"all": f"plain torch is used: Triton is not usable: {type(error).__name__}: {error}"}
    works: list[str] = []
    notes: dict[str, str] = {}
    for name in names:
        try:
            distance = difference(name, found[name], device=device, dtype=dtype, hidden=hidden, moments=moments)
            limit = CLOSE_FP8 if name in FP8 else CLOSE
            notes[name] = f"differs from plain torch by {distance:.1e}"
            if distance <= limit:
                works.append(name)
            else:
                notes[name] += f", above {limit:g}: plain torch is used"
        except Exception as error:
            first_line = (str(error).strip().splitlines() or [""])[0]
            notes[name] = f"plain torch is used: {type(error).__name__}: {first_line}"
    return tuple(works), notes


@contextlib.contextmanager
def compiling(names: Sequence[str], *given: Any) -> Iterator[None]:
    """Every form of a kernel that `difference` calls, each compiled in a thread: the compiler works outside of Python's lock,
    and beside what is done within. What fails here fails again where it is looked at. If the second kernel is there at
    once, the others are in Triton's cache, too; the first waits for Triton itself."""

    def once(name: str, case: int, few: bool) -> None:
        with contextlib.suppress(Exception), torch.cuda.device(given[0]), fewer_programs() if few else contextlib.nullcontext():
            _call(name, triton_kernels()[name], case, *given)

    def all_of_them() -> None:
        forms = itertools.product(range(2), names, (False, True))
        for case, name, few in itertools.islice(forms, 3):
            began = time.monotonic()
            once(name, case, few)
        if time.monotonic() - began > COMPILED_S:
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
                for case, name, few in forms:
                    threads.submit(once, name, case, few)

    beside = Thread(target=all_of_them)
    if names and given[0].type == "cuda":
        beside.start()
    try:
        yield
    finally:
        if beside.ident is not None:
            beside.join()


def difference(name: str, kernel: Callable[..., Any], *, device: torch.device, dtype: torch.dtype, hidden: int,
               tokens: int = TOKENS, moments: torch.dtype = torch.float32) -> float:
    """The largest relative distance between what the kernel and plain torch return or write, on fresh random numbers."""
    distances: list[Tensor] = []
    for case in range(2):
        mine = _call(name, kernel, case, device, dtype, hidden, moments, tokens)
        with fewer_programs():
            walked = _call(name, kernel, case, device, dtype, hidden, moments, tokens)
        theirs = _call(name, getattr(Kernels, name), case, device, dtype, hidden, moments, tokens)
        for a, b in zip(mine + walked, theirs + theirs, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, f"{tuple(a.shape)} {a.dtype} for {tuple(b.shape)} {b.dtype}"
            distances.append((a.float() - b.float()).norm() / b.float().norm().clamp(min=1e-30))
    return float(torch.stack(distances).nan_to_num(nan=torch.inf, posinf=torch.inf).max())


def _call(name: str, function: Callable[..., Any], case: int, device: torch.device, dtype: torch.dtype, hidden: int,
          moments: torch.dtype = torch.float32, tokens: int = TOKENS) -> list[Tensor]:
    """One call on numbers that depend on the case alone; all that it returned or changed."""
    generator = torch.Generator(device=device).manual_seed(case)

    def some(*shape: int, std: float = 1.0, kind: torch.dtype = dtype) -> Tensor:
        return (torch.randn(*shape, generator=generator, device=device) * std).to(kind)

    def known(dtype: torch.dtype, scale: float) -> ScalingState:
        scaling = Scales(device, capacity=1).state(dtype)
        scaling.scale.fill_(scale)
        return scaling

    e4, e5 = known(torch.float8_e4m3fn, 100.0), known(torch.float8_e5m2, 5000.0)
    x, weight, bias, plus = some(tokens, hidden), some(hidden), some(hidden), some(tokens, hidden)
    # The second case is an RMS norm.
    stats = torch.stack((x.float().mean(1), (x.float().var(1, unbiased=False) + 1e-5).rsqrt()))[case:]
    norm_bias = None if case else bias
    if name == "norm":
        return _all(function(x, weight, norm_bias, 1e-5))
    if name == "norm_recompute":
        return _all(function(x, stats, weight, norm_bias))
    if name == "norm_backward":
        found = [function(some(tokens, hidden), x, stats, weight),
                 function(some(tokens, hidden), x, stats, weight, plus, sum_residual=not case)]
        return [t for dx, sums in found for t in (dx, sums.sum(1))]
    if name == "gelu":
        return [function(x)]
    if name == "gelu_backward":
        d, g, sums = function(some(tokens, hidden), x, recompute=bool(case))
        return [*_all((d, g)), sums.sum(1)]
    if name in ("gated", "gated_backward"):
        pre, row_weight = some(tokens, 2 * hidden), some(tokens, kind=torch.float32).sigmoid() if case else None
        found = function(*((x,) if name == "gated_backward" else ()), pre, row_weight)
        return [found] if name == "gated" else _all((found, x, pre))
    heads, size = (5, 2), min(128, 2 * (hidden // 32))
    qkv = some(tokens, (sum(heads) + heads[1]) * size)
    cos_sin = some(tokens // 2, size // 2), some(tokens // 2, size // 2)
    norms = (some(size), some(size), 1e-5) if case else None
    if name == "rotate":
        return [function(qkv, heads, cos_sin, norms), *([function(qkv, heads, None, norms)] if case else [])]
    d_q, d_k, d_v = (some(tokens, heads[i] * size) for i in (0, 1, 1))
    if name == "rotate_backward":
        sums = function(d_q, d_k, qkv, cos_sin, norms)
        return [d_q, d_k, *([] if sums is None else [sums.sum(1)])]
    parts = (d_q, d_k, d_v) if case else (x, some(tokens, hidden), some(tokens, hidden))
    if name == "cat_qkv":
        whole, sums = function(parts)
        return [whole, sums.sum(1)]
    if name == "reduce_partials":
        outs = [some(hidden, kind=torch.float32 if case else dtype) for _ in range(3)]
        function(some(3, 37, hidden, kind=torch.float32), [(p, bool((i + case) % 2)) for i, p in enumerate(outs)])
        return outs
    if name == "add_rows":
        out = some(100, hidden, kind=torch.float32 if case else dtype)
        rows = torch.randint(-5, 105, (tokens,), generator=generator, device=device)
        rows[: tokens * 3 // 4] = 7
        function(out, rows, x)
        return [out]
    if name in ("softmax_parts", "softmax_gradient"):
        width, real = 128 * (hidden // 128 + 1), hidden
        logits = some(tokens, width, std=3.0)
        targets = torch.randint(-width, 2 * width, (tokens,), generator=generator, device=device)
        if name == "softmax_parts":
            return _all(function(logits, targets, real))
        log_sum = torch.logsumexp(logits[:, :real].float(), 1)
        function(logits, targets, log_sum, real)
        return [logits]
    if name == "squared":
        return [function([some(5, hidden).view(-1), some(1, kind=torch.float32)])]
    if name == "adamw":
        count = 3 * hidden + 16 * case
        master, first, second = (some(count, kind=torch.float32) for _ in range(3))
        state = [master, first.to(moments), second.square().to(moments)]
        weights = torch.zeros(count, dtype=dtype, device=device) if dtype != torch.float32 else None
        numbers = torch.tensor([2.0, 1e-1, 0.9, 0.0], device=device)
        grad, how = some(count, kind=torch.float32 if case else dtype), {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
        exact = [t.to(torch.float32, copy=True) for t in state]
        plain.adamw(exact[0], grad, exact[1], exact[2], None, numbers, **how, keep=0.99)
        function(state[0], grad, state[1], state[2], weights, numbers, **how, keep=0.99)
        return [*_all((*state, weights)), *_biases(state[1:], exact[1:])]
    if name == "adamw_split":
        count = 3 * hidden + 16 * case
        before, first, second = (some(count, kind=torch.float32) for _ in range(3))
        first, second = first.to(moments), second.square().to(moments)
        weights, rest = split_bits(before)
        # A step far below what bf16 can tell: it is lost where the lower half is.
        numbers = torch.tensor([2.0, 1e-4, 0.9, 0.0], device=device)
        grad, how = some(count, kind=torch.float32 if case else torch.bfloat16), {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
        exact = [t.to(torch.float32, copy=True) for t in (before, first, second)]
        plain.adamw(exact[0], grad, exact[1], exact[2], None, numbers, **how, keep=1.0)
        function(weights, rest, grad, first, second, numbers, **how, keep=1.0)
        return [merge_bits(weights, rest) - before, weights, first, second, *_biases([first, second], exact[1:])]
    if name in EXPERTS:
        return _experts(name, function, case, some, hidden, tokens, x)
    if name == "cast8":
        return [*_all(function(x, e5 if case else e4, rows=bool(case), cols=True)), e4.amax, e5.amax]
    if name == "norm8":
        return [*function(x, weight, norm_bias, 1e-5, e4), e4.amax]
    if name == "norm_recompute8":
        return [function(x, stats, weight, norm_bias, e4), e4.amax]
    if name == "gelu8":
        return [function(x, e4), e4.amax]
    if name == "gelu_backward8":
        d, d_t, g_t, sums = function(some(tokens, hidden), x, e5, e4)
        return [d, d_t, g_t, sums.sum(1), e4.amax, e5.amax]
    if name == "gated8":
        return [function(some(tokens, 2 * hidden), e4), e4.amax]
    if name == "gated_backward8":
        d, d_t, g_t, sums = function(x, some(tokens, 2 * hidden), e5, e4, sums=bool(case))
        return [d, d_t, g_t, *([sums.sum(1)] if case else []), e4.amax, e5.amax]
    assert name == "cat_qkv8", name
    eight, transposed, sums = function(parts, e5)
    return [eight, transposed, sums.sum(1), e5.amax]


def _experts(name: str, function: Callable[..., Any], case: int, some: Callable[..., Tensor], hidden: int, tokens: int,
             x: Tensor) -> list[Tensor]:
    """Three choices of five experts, one of which nobody takes and one many; in the second case some are dropped."""
    scores = some(tokens, 5, kind=torch.float32)
    scores[:, 1], scores[:, 4] = -9.0, scores[:, 4] + 1.5
    choice = scores.topk(3).indices
    if case:
        choice[:: 4, 1] = 5
    order = choice.flatten().argsort(stable=True)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(3 * tokens, device=x.device)).view(tokens, 3)
    place = place.masked_fill(choice == 5, -1).int()
    ends = (choice.flatten() <= torch.arange(5, device=x.device)[:, None]).sum(1).int()
    rows, width = int(ends[-1]), min(1096, 3 * hidden // 2 // 8 * 8)
    if name == "put_rows":
        return [function(x, place, rows)]
    taken = some(rows, hidden)
    if name == "sum_rows":
        return [function(taken, place)]
    d = some(rows, width)
    if name == "grouped":
        up, down = some(5, 2 * width, hidden), some(5, width, hidden)
        return [function(taken, up, ends, transposed=True), function(d, down, ends)]
    out = some(5, width, hidden, kind=torch.float32 if case else x.dtype)
    function(d, taken, ends, out, add=bool(case))
    return [out]


def _all(found: Any) -> list[Tensor]:
    return [t for t in (found if isinstance(found, tuple) else (found,)) if t is not None]


def _biases(rounded: list[Tensor], exact: list[Tensor]) -> list[Tensor]:
    """One plus the mean error, in bf16's 2^-8 of each number: 0.3 where numbers are cut off instead of rounded."""
    return [1.0 + ((r.float() / e - 1.0) * 2**8).nan_to_num(0.0).clamp(-2.0, 2.0).mean() for r, e in zip(rounded, exact)]
