"""One step kernel by kernel: how long each kind takes, and how near it comes to what the device could do.

    kernels_of(step, trial, moments="fp32")     {"busy_ms": …, "kinds": {"products": {"ms", "share", "rate"}}, "top": [...]}
"""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from seatrial import arith
from seatrial.arith.flops import attention_core_forward
from seatrial.spec import BYTES, Trial

KINDS = (
    ("attention", r"cudnn_generated|fmha|flash|sdpa|attention"),
    ("products", r"nvjet|gemm|cutlass|xmma|splitK|cublas"),
    ("optimizer", r"_adamw|_squared|multi_tensor|adam"),
    ("loss", r"^_parts|^_gradient|softmax"),
    ("norms", r"_norm|layer_norm|RowwiseMoments"),
    ("activation", r"gelu|Gelu|_gated"),
    ("casts and copies", r"^_cat_qkv|^_rotate|^_transpose8|^_cast8|^_reduce_partials|copy|Cat|Memcpy|Memset|fill"),
)


def kernels_of(step: Callable[[], Any], trial: Trial, *, moments: str) -> dict[str, Any]:
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
        step()
        torch.cuda.synchronize()
    kernels: dict[str, tuple[int, float]] = {}
    spans = []
    for event in found.events() or []:
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        count, ms = kernels.get(event.name, (0, 0.0))
        kernels[event.name] = count + 1, ms + event.time_range.elapsed_us() / 1e3
        spans.append((event.time_range.start, event.time_range.end))
    busy = sum(ms for _, ms in kernels.values())
    kinds: dict[str, dict[str, Any]] = {}
    for name, (count, ms) in kernels.items():
        kind = kinds.setdefault(_kind(name), {"ms": 0.0, "count": 0})
        kind["ms"] += ms
        kind["count"] += count
    for kind, work in _work(trial, moments).items():
        if kind in kinds:
            kinds[kind][work[0]] = work[1] / kinds[kind]["ms"] * 1e3
    top = sorted(kernels.items(), key=lambda item: -item[1][1])[:24]
    return {"busy_ms": busy, "span_ms": (max(e for _, e in spans) - min(s for s, _ in spans)) / 1e3 if spans else 0.0,
            "kinds": kinds, "top": [{"name": name[:120], "count": count, "ms": ms} for name, (count, ms) in top]}


def _kind(name: str) -> str:
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), "other")


def _work(trial: Trial, moments: str) -> dict[str, tuple[str, float]]:
    """What a kind must do at least: operations, or bytes, with the unit of its rate."""
    m, samples = trial.model, trial.batch.gbs
    attention = 3 * m.layers * attention_core_forward(m) * samples
    whole = arith.flops("model", m, samples=samples)
    # Masters and weights 8, the gradient 2 and 2 more for its norm; each moment is read and written.
    update = 12 + 4 * BYTES[moments]
    return {"attention": ("TFLOP/s", attention / 1e12), "products": ("TFLOP/s", (whole - attention) / 1e12),
            "optimizer": ("TB/s", update * arith.parameters(m).total / 1e12)}


def lines(found: dict[str, Any], *, count: int = 12) -> list[str]:
    """As text, the largest first."""
    kinds = sorted(found["kinds"].items(), key=lambda item: -item[1]["ms"])
    rates = {u for u in ("TFLOP/s", "TB/s")}
    said = [f"    busy {found['busy_ms']:.1f} of {found['span_ms']:.1f} ms: " + ", ".join(
        f"{name} {k['ms']:.1f}" + "".join(f" ({k[u]:.3g} {u})" for u in rates if u in k) for name, k in kinds)]
    return said + [f"    {k['ms']:8.2f} ms {k['count']:5d} x {k['name'][:84]}" for k in found["top"][:count]]
