"""Kernels of a Megatron layer on the GPU at hand, as figures for the planner: `python benchmarks/kernels_gpu.py OUT.json`.

Times matrix products by shape and alignment, the memory-bound kernels, attention, and one whole layer with and without
blocking launches. Needs torch and a CUDA device alone, so it runs on a bare machine.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import torch
import torch.utils.checkpoint

DEVICE = "cuda"
HALF = torch.bfloat16


def seconds(work, repeats: int = 10) -> float:
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeats


def tensor(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=HALF, requires_grad=grad)


def products(hidden: int, tps: list[int], tokens: list[int]) -> list[dict]:
    found = []
    for tp in tps:
        for t in tokens:
            for name, cols, inner in (("qkv", 3 * hidden // tp, hidden), ("proj", hidden, hidden // tp),
                                      ("up", 4 * hidden // tp, hidden), ("down", hidden, 4 * hidden // tp)):
                x, w, y = tensor(t, inner), tensor(cols, inner), tensor(t, cols)
                for kind, work in (("forward", lambda x=x, w=w: x @ w.T), ("input", lambda y=y, w=w: y @ w),
                                   ("weight", lambda x=x, y=y: y.T @ x)):
                    s = seconds(work, 5)
                    found.append({"hidden": hidden, "tp": tp, "tokens": t, "name": name, "kind": kind, "cols": cols,
                                  "inner": inner, "s": s, "tflops": 2e-12 * t * cols * inner / s})
    return found


def attention(seq: int = 2048, heads: int = 8, batch: int = 4) -> list[dict]:
    found = []
    for dim in (56, 64, 96, 100, 104, 108, 112, 128, 144, 150, 192, 208, 216, 224, 448):
        # Megatron's layout: [sequence, batch, heads, 3 x dim], the heads as strided batches.
        mixed = tensor(seq, batch * heads, 3 * dim)
        q, k, v = (mixed[..., i * dim:(i + 1) * dim].transpose(0, 1) for i in range(3))
        p = tensor(batch * heads, seq, seq)
        for kind, work in (("scores", lambda q=q, k=k: torch.bmm(q, k.transpose(1, 2))),
                           ("context", lambda p=p, v=v: torch.bmm(p, v)),
                           ("gradient", lambda p=p, q=q: torch.bmm(p.transpose(1, 2), q))):
            s = seconds(work, 5)
            found.append({"dim": dim, "kind": kind, "s": s, "tflops": 2e-12 * batch * heads * seq * seq * dim / s})
    return found


@torch.jit.script
def bias_dropout_add(x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return residual + torch.nn.functional.dropout(x + bias, p=0.1, training=True)


@torch.jit.script
def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    y = x + bias
    return y * 0.5 * (1.0 + torch.tanh(0.79788456 * y * (1 + 0.044715 * y * y)))


def both(function, *inputs: torch.Tensor) -> tuple[float, float]:
    """Seconds forward, and backward."""
    out = function(*inputs)
    grad = torch.randn_like(out)
    forward = seconds(lambda: function(*inputs))
    together = seconds(lambda: torch.autograd.grad(function(*inputs), [i for i in inputs if i.requires_grad], grad))
    return forward, together - forward


def streams(tokens: int = 4096, hidden: int = 14336, seq: int = 2048) -> list[dict]:
    x, r, b = tensor(tokens, hidden, grad=True), tensor(tokens, hidden, grad=True), tensor(hidden, grad=True)
    big = tensor(tokens, 4 * hidden // 8, grad=True)
    bb = tensor(4 * hidden // 8, grad=True)
    scores = tensor(16, seq, seq, grad=True)
    logits = tensor(tokens // 2, 250880 // 8, grad=True)
    labels = torch.randint(0, 31360, (tokens // 2,), device=DEVICE)
    n = tokens * hidden
    cases = {
        "norm": (lambda x, b: torch.nn.functional.layer_norm(x, (hidden,), b, b), (x, b), 4 * n, 6 * n),
        "bias_dropout_add": (bias_dropout_add, (x, b, r), 7 * n, 5 * n),
        "bias_gelu": (bias_gelu, (big, bb), 4 * big.numel(), 6 * big.numel()),
        "softmax": (lambda s: torch.softmax(s, -1), (scores,), 4 * scores.numel(), 6 * scores.numel()),
        "dropout": (lambda s: torch.nn.functional.dropout(s, 0.1), (scores,), 5 * scores.numel(), 5 * scores.numel()),
        "add": (lambda x, r: x + r, (x, r), 6 * n, 0),
        "cross_entropy": (lambda l: torch.nn.functional.cross_entropy(l.float(), labels), (logits,), 38 * logits.numel(),
                          14 * logits.numel()),
    }
    found = []
    for name, (function, inputs, bytes_f, bytes_b) in cases.items():
        f, back = both(function, *inputs)
        found.append({"name": name, "forward_s": f, "backward_s": back, "forward_bytes": bytes_f, "backward_bytes": bytes_b})
    g, acc = tensor(200_000_000), tensor(200_000_000)
    found.append({"name": "accumulate", "forward_s": seconds(lambda: acc.add_(g)), "backward_s": 0.0,
                  "forward_bytes": 6 * g.numel(), "backward_bytes": 0})
    return found


class Layer(torch.nn.Module):
    """A tensor-parallel rank's share of a layer, without its collectives."""

    def __init__(self, hidden: int, heads: int, tp: int):
        super().__init__()
        self.heads, self.dim = heads // tp, hidden // heads

        def make(*shape: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.randn(*shape, device=DEVICE, dtype=HALF) * 0.01)

        self.n1, self.n2, self.b1, self.b2 = make(hidden), make(hidden), make(hidden), make(hidden)
        self.qkv, self.qkv_bias = make(3 * hidden // tp, hidden), make(3 * hidden // tp)
        self.proj, self.up, self.up_bias = make(hidden, hidden // tp), make(4 * hidden // tp, hidden), make(4 * hidden // tp)
        self.down = make(hidden, 4 * hidden // tp)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s, b, h = x.shape
        y = torch.nn.functional.layer_norm(x, (h,), self.n1, self.n1)
        mixed = torch.nn.functional.linear(y, self.qkv, self.qkv_bias).view(s, b * self.heads, 3 * self.dim)
        q, k, v = (t.transpose(0, 1) for t in mixed.split(self.dim, -1))
        scores = torch.baddbmm(torch.empty(1, device=DEVICE, dtype=HALF), q, k.transpose(1, 2), beta=0.0, alpha=0.06)
        p = torch.nn.functional.dropout(torch.softmax(scores, -1), 0.1)
        context = torch.bmm(p, v).transpose(0, 1).reshape(s, b, -1)
        x = bias_dropout_add(torch.nn.functional.linear(context, self.proj), self.b1, x)
        y = torch.nn.functional.layer_norm(x, (h,), self.n2, self.n2)
        y = bias_gelu(torch.nn.functional.linear(y, self.up), self.up_bias)
        return bias_dropout_add(torch.nn.functional.linear(y, self.down), self.b2, x)


def layers(hidden: int, heads: int, cases: list[tuple[int, int]]) -> list[dict]:
    found = []
    for tp, mbs in cases:
        layer = Layer(hidden, heads, tp)
        x = tensor(2048, mbs, hidden, grad=True)
        grad = tensor(2048, mbs, hidden)

        def step(layer=layer, x=x, grad=grad) -> None:
            torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=True).backward(grad)

        f = seconds(lambda layer=layer, x=x: layer(x.detach()), 5)
        found.append({"hidden": hidden, "heads": heads, "tp": tp, "mbs": mbs, "forward_s": f, "step_s": seconds(step, 5)})
        del layer
    return found


def sustained(for_s: float = 8.0) -> dict:
    a, b = tensor(8192, 8192), tensor(8192, 8192)
    first = 2e-12 * 8192**3 / seconds(lambda: a @ b, 20)
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        seconds(lambda: a @ b, 100)
    return {"first_tflops": first, "later_tflops": 2e-12 * 8192**3 / seconds(lambda: a @ b, 100)}


def main() -> None:
    torch.manual_seed(0)
    cases = [(8, 1), (8, 2), (8, 4), (8, 8), (4, 1), (4, 2), (4, 4), (2, 1), (2, 2)]
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        print(json.dumps(layers(14336, 64, cases)))
        return
    result = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "products": products(14336, [8, 4, 2], [2048, 4096, 8192, 16384]) + products(14400, [8], [2048, 8192])
        + products(4096, [1, 2, 4], [2048, 8192]) + products(2048, [1], [2048, 8192]) + products(1024, [1], [4096]),
        "attention": attention(), "streams": streams(),
        "layers": layers(14336, 64, cases) + layers(14400, 96, [(8, 1), (8, 4)]) + layers(13824, 128, [(8, 4)])
        + layers(14336, 112, [(8, 4)]) + layers(14336, 256, [(8, 4)]) + layers(4096, 32, [(1, 1), (1, 4)])
        + layers(1024, 16, [(1, 1), (1, 8)]),
        "sustained": sustained(),
    }
    blocking = subprocess.run([sys.executable, __file__, "-"], env={**os.environ, "CUDA_LAUNCH_BLOCKING": "1"},
                              capture_output=True, text=True, check=True)
    result["layers_blocking"] = json.loads(blocking.stdout.splitlines()[-1])
    with open(sys.argv[1], "w") as file:
        json.dump(result, file)
    print(json.dumps({k: result[k] for k in ("device", "layers", "sustained", "layers_blocking", "streams")}, indent=None))


if __name__ == "__main__":
    main()
