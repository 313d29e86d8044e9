"""What fused attention and eager blocks reach on one GPU: `python -m benchmarks.attention_gpu -o results/attention-h200.json`.

Every kernel that PyTorch's scaled dot product attention can be told to take, by head size, sequence and number of heads, causal
or with a dense bias, forward and backward; and a Llama block, eager and compiled, beside the time of its GEMMs and attention
alone, which says what everything else in such a block costs. `plan/attention.py` and the engine models rest on these.
"""
from __future__ import annotations

import argparse
import functools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
           "efficient": SDPBackend.EFFICIENT_ATTENTION}  # fmt: skip


def seconds(call: Callable[[], Any], budget_s: float = 0.25) -> float:
    """Of one call: the median of three groups, after a warm-up."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(2, min(50, int(budget_s / 3 / max(time.perf_counter() - begin, 1e-5))))
    found = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - begin) / count)
    return sorted(found)[1]


def attention(kernel: str, batch: int, heads: int, seq: int, dim: int, bias: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"kernel": kernel, "batch": batch, "heads": heads, "seq": seq, "head_dim": dim, "bias": bias}
    q, k, v = (torch.randn(batch, heads, seq, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    mask = torch.randn(1, heads, seq, seq, device="cuda", dtype=torch.bfloat16) if bias else None
    try:
        with sdpa_kernel([KERNELS[kernel]]):
            def forward() -> torch.Tensor:
                return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not bias)

            out = forward()
            grad = torch.randn_like(out)
            row["forward_s"] = seconds(forward)
            row["backward_s"] = seconds(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
    except RuntimeError as error:
        return {**row, "error": str(error).splitlines()[0][:120]}
    flops = 2.0 * batch * heads * seq * seq * dim * (2 if bias else 1)
    row["forward_tflops"], row["backward_tflops"] = flops / row["forward_s"] / 1e12, 2.5 * flops / row["backward_s"] / 1e12
    return row


class Block(nn.Module):
    """A Llama block as people write it without a kernel library."""

    def __init__(self, hidden: int, heads: int, kv: int, inner: int):
        super().__init__()
        self.heads, self.kv, self.dim = heads, kv, hidden // heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.q, self.k, self.v = (nn.Linear(hidden, n * self.dim, bias=False) for n in (heads, kv, kv))
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        y = self.norm1(x)
        made = ((self.q, self.heads), (self.k, self.kv), (self.v, self.kv))
        q, k, v = (linear(y).view(b, s, n, self.dim).transpose(1, 2) for linear, n in made)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    @staticmethod
    def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def block(hidden: int, heads: int, kv: int, inner: int, batch: int, seq: int, compiled: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"hidden": hidden, "heads": heads, "kv": kv, "inner": inner, "batch": batch, "seq": seq,
                           "compiled": compiled}
    layer: Any = Block(hidden, heads, kv, inner).cuda().bfloat16()
    if compiled:
        layer = torch.compile(layer)
    x = torch.randn(batch, seq, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    angle = torch.rand(seq, hidden // heads, device="cuda", dtype=torch.bfloat16)
    cos, sin = angle.cos(), angle.sin()

    def both() -> None:
        out = layer(x, cos, sin)
        out.backward(out.detach())
        for p in layer.parameters():
            p.grad = None

    with torch.no_grad():
        row["forward_s"] = seconds(lambda: layer(x, cos, sin))
    row["step_s"] = seconds(both, 0.5)
    before = torch.cuda.memory_allocated()
    out = layer(x, cos, sin)
    row["kept_bytes"] = torch.cuda.memory_allocated() - before
    torch.cuda.reset_peak_memory_stats()
    out.sum().backward()
    row["backward_peak_bytes"] = torch.cuda.max_memory_allocated() - before
    del out
    tokens = batch * seq
    gemms = [(hidden, (heads + 2 * kv) * hidden // heads), (hidden, hidden), (hidden, 2 * inner), (inner, hidden)]
    total = 0.0
    for a, b in gemms:
        w, i, o = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in ((b, a), (tokens, a), (tokens, b)))
        total += (seconds(functools.partial(F.linear, i, w)) + seconds(functools.partial(torch.matmul, o, w))
                  + seconds(functools.partial(torch.matmul, o.t(), i)))
    row["gemms_s"] = total
    one = attention("flash", batch, heads, seq, hidden // heads, False)
    row["attention_s"] = one["forward_s"] + one["backward_s"]
    return row


def casts() -> list[dict[str, Any]]:
    """To 8 bits and transposed, the largest found first; Adam; the loss."""
    found = []
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    scale = torch.ones((), device="cuda")

    def cast() -> torch.Tensor:
        return (x * scale).to(torch.float8_e4m3fn)

    def with_amax() -> torch.Tensor:
        return (x * (448.0 / x.abs().amax().float())).to(torch.float8_e4m3fn)

    for name, call in (("cast", cast), ("amax and cast", with_amax)):
        for how, f in (("eager", call), ("compiled", torch.compile(call))):
            found.append({"what": name, "how": how, "bytes": x.numel(), "s": seconds(f)})
    for how in ("foreach", "fused"):
        params = [nn.Parameter(torch.randn(4096, 14336, device="cuda")) for _ in range(8)]
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer = torch.optim.AdamW(params, foreach=how == "foreach", fused=how == "fused")
        found.append({"what": "adamw", "how": how, "parameters": sum(p.numel() for p in params), "s": seconds(optimizer.step)})
        found.append({"what": "clip", "how": how, "parameters": sum(p.numel() for p in params),
                      "s": seconds(functools.partial(nn.utils.clip_grad_norm_, params, 1.0))})
    logits = torch.randn(4096, 128256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    target = torch.randint(0, 128256, (4096,), device="cuda")

    def loss() -> None:
        logits.grad = None
        F.cross_entropy(logits.float(), target).backward()

    compiled_loss = torch.compile(lambda a, b: F.cross_entropy(a.float(), b))

    def fast_loss() -> None:
        logits.grad = None
        compiled_loss(logits, target).backward()

    for how, call2 in (("eager", loss), ("compiled", fast_loss)):
        seconds_ = seconds(call2)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call2()
        found.append({"what": "loss", "how": how, "logits": logits.numel(), "s": seconds_,
                      "peak_bytes": torch.cuda.max_memory_allocated() - before})
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("-o", "--output", type=Path, required=True)
    options.add_argument("--limit", type=float, default=300.0, help="seconds")
    asked = options.parse_args()
    end = time.perf_counter() + asked.limit
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "attention": [], "blocks": [],
                             "others": []}

    def save() -> None:
        asked.output.write_text(json.dumps(found, indent=1) + "\n")

    for shape in ((4096, 32, 8, 14336, 2, 4096), (2048, 16, 16, 5632, 4, 2048), (8192, 64, 8, 28672, 1, 4096),
                  (5120, 40, 40, 13824, 1, 4096), (1024, 16, 16, 2816, 4, 1024)):
        for compiled in (False, True):
            found["blocks"].append(block(*shape, compiled=compiled))
            torch.cuda.empty_cache()
    save()
    found["others"] = casts()
    save()
    tokens = 16384
    shapes = [(kernel, dim, seq, bias) for dim in (128, 64, 256, 96, 80) for seq in (2048, 8192, 4096, 512, 1024, 16384, 32768)
              for kernel in KERNELS for bias in (False, True)
              if not (bias and (kernel == "flash" or seq > 8192 or dim not in (64, 128)))]
    for kernel, dim, seq, bias in shapes:
        if time.perf_counter() > end:
            found["cut"] = True
            break
        heads = 4096 // dim
        if bias:
            heads = min(heads, max(1, 2**32 // (2 * seq * seq * 2)))
        found["attention"].append(attention(kernel, max(1, tokens // seq), heads, seq, dim, bias))
        torch.cuda.empty_cache()
    for few in (1, 4, 8):  # what a tensor-parallel rank has
        for kernel in ("flash", "cudnn"):
            for seq in (2048, 4096, 8192):
                found["attention"].append(attention(kernel, 1, few, seq, 128, False))
    save()
    print(math.floor(asked.limit - (end - time.perf_counter())), "s")


if __name__ == "__main__":
    main()
