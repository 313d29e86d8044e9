"""Before anything else: each kernel against plain torch on this device, and what each reaches on the real shapes.

Prints as it goes, so that a run that is cut still tells. Times are medians of a few calls queued behind a pause:
the device's own, without the host's launches.
"""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.gpu.shapes import SHAPES
from torch import Tensor

from seatrial.engine.fast import fp8
from seatrial.engine.fast.attention import fastest
from seatrial.engine.fast.kernels import EXPERTS, NAMES, Kernels, verified
from seatrial.engine.fast.kernels.scaling import Scales
from seatrial.engine.fast.ops import fp32_gemm_works

HALF = torch.bfloat16


def milliseconds(work: Callable[[], Any], repeats: int = 5) -> float:
    work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    host_s = time.perf_counter() - began
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    # While the device sleeps the host gets ahead of it.
    torch.cuda._sleep(int(2e9 * (1e-3 + 1.5 * repeats * host_s)))  # type: ignore[no-untyped-call]
    for mark in marks[:-1]:
        mark.record()
        work()
    marks[-1].record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairwise(marks))


def run(say: Callable[[str], None]) -> dict[str, Any]:
    device = torch.device("cuda")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    say(f"{found['device']}, torch {torch.__version__}")
    for part in (_kernels, _wide, _eight, _attention, _products, _streams):
        try:
            found[part.__name__.strip("_")] = part(device, say)
        except Exception as error:
            say(f"  {part.__name__}: {type(error).__name__}: {str(error)[:300]}")
            found[part.__name__.strip("_")] = f"{type(error).__name__}: {error}"
        torch.cuda.empty_cache()
    return found


def _kernels(device: torch.device, say: Callable[[str], None]) -> dict[str, str]:
    notes: dict[str, str] = {}
    for shape in ("1.3b", "5.6b"):
        hidden = SHAPES[shape][0].hidden
        _, narrow = verified.usable(("adamw", "adamw_split"), device, HALF, hidden=hidden, moments=HALF)
        _, found = verified.usable(NAMES, device, HALF, hidden=hidden)
        found |= {f"{n} of bf16 moments": w for n, w in narrow.items()}
        notes.update({f"{name} {hidden}": note for name, note in found.items()})
        say(f"  {hidden}: " + ", ".join(f"{n} {w.split()[-1] if w.startswith('differs') and 'plain torch is' not in w else w}"
                                        for n, w in found.items()))
    return notes


def _wide(device: torch.device, say: Callable[[str], None]) -> bool:
    works = fp32_gemm_works(device, HALF)
    say(f"  GEMMs of bf16 with fp32 results: {'yes' if works else 'NO'}")
    return works


def _eight(device: torch.device, say: Callable[[str], None]) -> dict[str, float]:
    """The shim against fp32, in each combination of types, with a bias, into a place."""
    found = {}
    for left_type, right_type in ((fp8.FORWARD, fp8.FORWARD), (fp8.GRADIENT, fp8.FORWARD), (fp8.FORWARD, fp8.GRADIENT)):
        scales = Scales(device)
        a, b = scales.state(left_type), scales.state(right_type)
        x, w = torch.randn(256, 512, device=device, dtype=HALF), torch.randn(384, 512, device=device, dtype=HALF) * 0.02
        a.update_amax(x), b.update_amax(w)
        scales.update()
        x8, w8 = a.cast(x), b.cast(w)
        exact = (x8.float() * a.inverse) @ (w8.float() * b.inverse).t()
        for fast in (True, False):
            out = torch.empty(256, 384, device=device, dtype=HALF)
            y = fp8.scaled_gemm(x8, w8, a.inverse, b.inverse, fast=fast, out=out)
            name = f"{left_type} x {right_type} fast={fast}".replace("torch.float8_", "")
            found[name] = float((y.float() - exact).norm() / exact.norm())
    bias = torch.randn(384, device=device, dtype=HALF)
    y = fp8.scaled_gemm(x8, w8, a.inverse, b.inverse, bias=bias)
    found["bias"] = float((y.float() - exact - bias.float()).norm() / exact.norm())
    say("  fp8 products: " + ", ".join(f"{n} {e:.1e}" for n, e in found.items()))
    return found


def _attention(device: torch.device, say: Callable[[str], None]) -> dict[str, Any]:
    found = {}
    for shape in ("1.3b", "5.6b"):
        m, mbs = SHAPES[shape]
        backend, took = fastest(batch=mbs, seq=m.seq, heads=m.heads, kv_heads=m.kv, head_dim=m.head_size, dtype=HALF, bias=None,
                                device=device)
        operations = 12 * m.seq**2 * m.hidden * mbs
        found[shape] = {name: operations / s / 1e12 for name, s in took.items()}
        say(f"  attention {shape}: {backend}, " + ", ".join(f"{n} {r:.0f} TFLOP/s" for n, r in found[shape].items()))
    return found


def _products(device: torch.device, say: Callable[[str], None]) -> dict[str, float]:
    """The block's products forward, for the input and for the weight, in bf16 and in eight bits; in TFLOP/s."""
    found: dict[str, float] = {}
    for shape in ("1.3b", "5.6b"):
        m, mbs = SHAPES[shape]
        tokens, h = mbs * m.seq, m.hidden
        for name, out, inner in (("qkv", 3 * h, h), ("out", h, h), ("up", 4 * h, h), ("down", h, 4 * h)):
            rates = _rates(device, tokens, out, inner, by_rows=name in ("out", "down"))
            found.update({f"{shape} {name} {case}": rate for case, rate in rates.items()})
            say(f"  {shape} {name}: " + ", ".join(f"{case} {rate:.0f}" for case, rate in rates.items()))
        for chunk in (1024, 4096, 8192, 16384):
            if chunk <= tokens:
                rates = _head_rates(device, chunk, m.vocab, h)
                found.update({f"{shape} head {chunk} {case}": rate for case, rate in rates.items()})
                say(f"  {shape} head, {chunk} tokens: " + ", ".join(f"{case} {rate:.0f}" for case, rate in rates.items()))
    return found


def _rates(device: torch.device, tokens: int, out: int, inner: int, *, by_rows: bool) -> dict[str, float]:
    """`by_rows`: the weight is stored [inner, out]."""
    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=HALF)

    def eight(x: Tensor, kind: torch.dtype) -> Tensor:
        return x.float().clamp_(-400, 400).to(kind)

    x, dy, w = some(tokens, inner), some(tokens, out), some(inner, out) if by_rows else some(out, inner)
    grad, bias, stream, one = torch.empty_like(w), some(out), some(tokens, out), torch.ones(1, device=device)
    x8, w8 = eight(x, fp8.FORWARD), eight(w.t().contiguous() if by_rows else w, fp8.FORWARD)
    x8_t, dy8_t = eight(x.t().contiguous(), fp8.FORWARD), eight(dy.t().contiguous(), fp8.GRADIENT)
    left, right = (x, dy) if by_rows else (dy, x)
    cases: dict[str, Callable[[], Any]] = {
        "forward": (lambda: x @ w) if by_rows else (lambda: F.linear(x, w, bias)),
        "input": (lambda: dy @ w.t()) if by_rows else (lambda: dy @ w),
        "weight": lambda: torch.addmm(grad, left.t(), right, beta=0.0, out=grad),
        "fp8": lambda: fp8.scaled_gemm(x8, w8, one, one),
        "fp8 slow": lambda: fp8.scaled_gemm(x8, w8, one, one, fast=False),
        "fp8 weight": lambda: fp8.scaled_gemm(dy8_t, x8_t, one, one),
    }  # fmt: skip
    if by_rows:
        cases["onto"] = lambda: stream.addmm_(x, w)
    return {case: 2e-9 * tokens * out * inner / milliseconds(work, 3) for case, work in cases.items()}


def _head_rates(device: torch.device, chunk: int, vocab: int, hidden: int) -> dict[str, float]:
    x, w = torch.randn(chunk, hidden, device=device, dtype=HALF), torch.randn(vocab, hidden, device=device, dtype=HALF)
    logits = x @ w.t()
    cases: dict[str, Callable[[], Any]] = {"forward": lambda: x @ w.t(), "input": lambda: logits @ w,
                                           "weight": lambda: logits.t() @ x}
    return {case: 2e-9 * chunk * vocab * hidden / milliseconds(work, 3) for case, work in cases.items()}


def _streams(device: torch.device, say: Callable[[str], None]) -> dict[str, float]:
    """Each of our kernels on the real shapes, in TB/s of the bytes it must move."""
    found: dict[str, float] = {}
    for shape in ("1.3b", "5.6b"):
        m, mbs = SHAPES[shape]
        line = []
        for name, (size, work) in _cases(device, m.hidden, mbs * m.seq, m.vocab).items():
            try:
                took = milliseconds(work)
                found[f"{shape} {name}"] = size / took / 1e9
                line.append(f"{name} {size / took / 1e9:.2f} ({1e3 * took:.0f} us)")
            except Exception as error:
                line.append(f"{name} {type(error).__name__}: {str(error)[:120]}")
        say(f"  TB/s {shape}: " + ", ".join(line))
    return found


def _text(tokens: int, vocab: int, device: torch.device) -> Tensor:
    """Tokens as frequent as words are: the n-th most common has 1/n of the first one's share, which is one in sixteen."""
    return (vocab ** torch.rand(tokens, device=device, dtype=torch.float64)).long() - 1


def _cases(device: torch.device, h: int, tokens: int, vocab: int) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Bytes, and the work."""
    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=HALF)

    k = Kernels.of(verified.usable([n for n in NAMES if n not in EXPERTS], device, HALF, hidden=h)[0])
    scales = Scales(device)
    e4, e5 = scales.state(fp8.FORWARD), scales.state(fp8.GRADIENT)
    x, dy, r, w, b = some(tokens, h), some(tokens, h), some(tokens, h), some(h), some(h)
    pre, dg, logits = some(tokens, 4 * h), some(tokens, 4 * h), some(4096, vocab)
    stats, wide, angles = k.norm(x, w, b, 1e-5)[1], some(tokens, 2 * h), (some(tokens, 32), some(tokens, 32))
    n, count = tokens * h, 2**28
    first, second = (torch.zeros(count, device=device) for _ in range(2))
    narrow = [m.to(HALF) for m in (first, second)]
    rest = torch.zeros(count, device=device, dtype=torch.int16)
    grad, weights = some(count), some(count)
    numbers = torch.tensor([1.0, 1e-4, 1.0, 0.0], device=device)
    targets, log_sum = torch.zeros(4096, device=device, dtype=torch.int64), torch.full((4096,), 12.0, device=device)
    vocabulary, random, text = some(vocab, h), torch.randint(vocab, (tokens,), device=device), _text(tokens, vocab, device)
    sums, places = torch.randn(3, 528, h, device=device), [(some(h), True) for _ in range(3)]
    return {
        "norm": (4 * n, lambda: k.norm(x, w, b, 1e-5)),
        "rms norm": (4 * n, lambda: k.norm(x, w, None, 1e-5)),
        "norm_recompute": (4 * n, lambda: k.norm_recompute(x, stats, w, b)),
        "norm_backward": (8 * n, lambda: k.norm_backward(dy, x, stats, w, r, sum_residual=True)),
        "rms norm_backward": (8 * n, lambda: k.norm_backward(dy, x, stats[1:], w, r)),
        "norm_backward alone": (6 * n, lambda: k.norm_backward(dy, x, stats, w)),
        "add_rows": (2 * n + 4 * h * len(random.unique()), lambda: k.add_rows(vocabulary, random, dy)),
        "add_rows of a text": (2 * n + 4 * h * len(text.unique()), lambda: k.add_rows(vocabulary, text, dy)),
        "torch's gelu": (16 * n, lambda: F.gelu(pre, approximate="tanh")),
        "gelu": (16 * n, lambda: k.gelu(pre)),
        "gelu_backward": (24 * n, lambda: k.gelu_backward(dg, pre, recompute=False)),
        "gelu_backward again": (32 * n, lambda: k.gelu_backward(dg, pre, recompute=True)),
        "gated": (12 * n, lambda: k.gated(pre)),
        "gated_backward": (24 * n, lambda: k.gated_backward(wide, pre)),
        "rotate": (8 * n, lambda: k.rotate(pre, (h // 64, h // 64), angles, None)),
        "rotate_backward": (8 * n, lambda: k.rotate_backward(x, dy, None, angles, None)),
        "cat_qkv": (12 * n, lambda: k.cat_qkv((x, dy, r))),
        "reduce_partials": (12 * 528 * h, lambda: k.reduce_partials(sums, places)),
        "adamw": (26 * count, lambda: k.adamw_split(weights, rest, grad, first, second, numbers, beta1=0.9, beta2=0.95,
                                                    eps=1e-8, keep=1.0)),
        "adamw of bf16 moments": (18 * count, lambda: k.adamw_split(weights, rest, grad, *narrow, numbers, beta1=0.9,
                                                                    beta2=0.95, eps=1e-8, keep=1.0)),
        "squared": (2 * count, lambda: k.squared([grad])),
        "softmax_parts": (2 * logits.numel(), lambda: k.softmax_parts(logits, targets, vocab)),
        "softmax_gradient": (4 * logits.numel(), lambda: k.softmax_gradient(logits, targets, log_sum, vocab)),
        "norm8": (3 * n, lambda: k.norm8(x, w, b, 1e-5, e4)),
        "norm_recompute8": (3 * n, lambda: k.norm_recompute8(x, stats, w, b, e4)),
        "gelu8": (12 * n, lambda: k.gelu8(pre, e4)),
        "gelu_backward8": (28 * n, lambda: k.gelu_backward8(dg, pre, e5, e4)),
        "gated8": (10 * n, lambda: k.gated8(pre, e4)),
        "gated_backward8": (22 * n, lambda: k.gated_backward8(wide, pre, e5, e4)),
        "cat_qkv8": (12 * n, lambda: k.cat_qkv8((x, dy, r), e5)),
        "cast8": (3 * n, lambda: k.cast8(x, e4)),
        "cast8 cols": (3 * n, lambda: k.cast8(x, e4, rows=False, cols=True)),
        "cast8 both": (4 * n, lambda: k.cast8(x, e4, rows=True, cols=True)),
    }  # fmt: skip
