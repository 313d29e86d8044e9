"""What is timed on one device: GEMMs, attention, kernels that move memory, the optimizer, copies from and to the host; and the
time of the host itself.

Each function makes items; nothing is allocated before an item is prepared, and all of it is let go after.
"""
from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from seatrial.engine.core.attention import Positions, attend
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.ops import squared_norm
from seatrial.engine.core.step import Engine
from seatrial.engine.fast import choose
from seatrial.engine.fast.attention import BACKENDS, fastest
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.io.data import Batches
from seatrial.probe.shapes import Attention, GemmShape
from seatrial.probe.timing import Item, Sample, Works, summary
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

TYPES: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CROSS_ENTROPY_BYTES = 52
"""For each logit, forward and backward, as the planner counts them."""
WIDTH = 1024
"""Of the rows that norms and activations work on."""
FEW, MANY = 1, 9
"""Layers of the models that the host's own time is found with."""
HOST_SEQ = 8


def gemms(shapes: Iterable[GemmShape], dtype: str, device: torch.device) -> Iterator[Item]:
    for shape in dict.fromkeys(shapes):
        if dtype == "fp8":
            if shape.batch == 1 and not any(side % 16 for side in shape[1:4]):
                yield Item("matmul", {"dtype": dtype, **shape._asdict()}, lambda p=shape: _fp8_gemm(p, device))  # type: ignore[misc]
        else:
            yield Item("matmul", {"dtype": dtype, **shape._asdict()}, lambda p=shape: _gemm(p, TYPES[dtype], device))  # type: ignore[misc]


def _gemm(p: GemmShape, dtype: torch.dtype, device: torch.device) -> Works:
    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    if p.kind == "batched":
        left, right = made(p.batch, p.rows, p.inner), made(p.batch, p.inner, p.cols)
        return {"s": lambda: torch.bmm(left, right)}
    if p.kind == "forward":
        x, w = made(p.rows, p.inner), made(p.cols, p.inner)
        return {"s": lambda: x @ w.t()}
    if p.kind == "input":
        dy, w = made(p.rows, p.inner), made(p.inner, p.cols)
        return {"s": lambda: dy @ w}
    dy, x = made(p.inner, p.rows), made(p.inner, p.cols)
    out = torch.empty(p.rows, p.cols, dtype=dtype, device=device)
    return {"s": lambda: torch.mm(dy.t(), x, out=out)}


def _fp8_gemm(p: GemmShape, device: torch.device) -> Works:
    kind = torch.float8_e4m3fn
    left = torch.randn(p.rows, p.inner, device=device).to(kind)
    right = torch.randn(p.cols, p.inner, device=device).to(kind)
    one = torch.ones((), device=device)
    return {"s": lambda: torch._scaled_mm(left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)}


def attentions(shapes: Iterable[Attention], dtype: str, device: torch.device) -> Iterator[Item]:
    for shape in dict.fromkeys(shapes):
        yield Item("attention", {"dtype": dtype, **shape._asdict()}, lambda a=shape: _attention(a, TYPES[dtype], device))  # type: ignore[misc]


def _attention(a: Attention, dtype: torch.dtype, device: torch.device) -> Works:
    """The engine's own, with the backend that it would choose; heads as views of one GEMM's result."""
    width = a.heads * a.head_dim
    model = Model(layers=1, hidden=width, heads=a.heads, vocab=64, seq=a.seq, family="bloom" if a.bias else "gpt2")
    positions = Positions(model, first_head=0, heads=a.heads, device=device, dtype=dtype)
    mixed = torch.randn(a.batch, a.seq, width + 2 * a.kv_heads * a.head_dim, device=device).to(dtype).requires_grad_()
    grad = torch.randn(a.batch, a.seq, width, device=device).to(dtype)

    backend = None
    if device.type == "cuda":
        name, _ = fastest(batch=a.batch, seq=a.seq, heads=a.heads, kv_heads=a.kv_heads, head_dim=a.head_dim, dtype=dtype,
                          bias=positions.bias, device=device)
        backend = BACKENDS[name] if name else None

    def forward() -> Tensor:
        return attend(mixed, heads=a.heads, kv_heads=a.kv_heads, positions=positions, backend=backend)

    return {"forward_s": forward, "both_s": lambda: torch.autograd.grad(forward(), mixed, grad)}


def streams(sizes: Iterable[int], dtype: str, device: torch.device) -> Iterator[Item]:
    """Kernels that only move memory; `bytes` is what one tensor has, `moved` what is read and written."""
    each = torch.empty((), dtype=TYPES[dtype]).element_size()
    for size in sizes:
        for name, passes in (("copy", 2), ("add", 3), ("norm", 2), ("norm_backward", 3), ("gelu", 2), ("gelu_backward", 3)):
            what = {"name": name, "dtype": dtype, "bytes": size, "moved": passes * size}
            yield Item("memory", what, lambda name=name, n=size // each: _stream(name, n, TYPES[dtype], device))  # type: ignore[misc]


def _stream(name: str, elements: int, dtype: torch.dtype, device: torch.device) -> Works:
    x = torch.randn(max(1, elements // WIDTH), WIDTH, device=device).to(dtype)
    y, weight = torch.randn_like(x), torch.ones(WIDTH, device=device, dtype=dtype)
    if name == "copy":
        return {"s": lambda: x.copy_(y)}
    if name == "add":
        return {"s": lambda: x + y}
    if name == "gelu":
        return {"s": lambda: F.gelu(x, approximate="tanh")}
    if name == "gelu_backward":
        return {"s": lambda: torch.ops.aten.gelu_backward(y, x, approximate="tanh")}
    if name == "norm":
        return {"s": lambda: F.layer_norm(x, (WIDTH,), weight, weight)}
    _, mean, rstd = torch.native_layer_norm(x, (WIDTH,), weight, weight, 1e-5)
    return {"s": lambda: torch.ops.aten.native_layer_norm_backward(y, x, (WIDTH,), mean, rstd, weight, weight, [True] * 3)}


def cross_entropy(tokens: int, vocab: int, dtype: str, device: torch.device) -> Item:
    """A part of the loss as the engine computes it, gradient included, less its GEMMs."""
    count = tokens * vocab
    what = {"name": "cross_entropy", "dtype": dtype, "bytes": count * (4 if dtype == "fp32" else 2),
            "moved": count * CROSS_ENTROPY_BYTES}
    return Item("memory", what, lambda: _cross_entropy(tokens, vocab, TYPES[dtype], device))


def _cross_entropy(tokens: int, vocab: int, dtype: torch.dtype, device: torch.device) -> Works:
    first = torch.randn(tokens, vocab, device=device).to(dtype)
    index = torch.randint(0, vocab, (tokens, 1), device=device)
    one = torch.ones(tokens, 1, device=device)

    def loss() -> Tensor:
        logits = first.float()
        at_target, largest = logits.gather(1, index).squeeze(1), logits.amax(1)
        torch.ops.aten._softmax.out(logits, 1, False, out=logits)
        log_sum = largest - logits.amax(1).log()
        logits.scatter_add_(1, index, -one)
        return (log_sum - at_target).sum() + logits.to(dtype)[0, 0]

    return {"s": loss}


def optimizer(parameters: int, dtype: str, device: torch.device) -> Item:
    """The gradients' norm, one fused AdamW update in fp32, and the weights that are computed with written anew."""
    what = {"name": "adamw", "dtype": dtype, "parameters": parameters}
    return Item("optimizer", what, lambda: _optimizer(parameters, TYPES[dtype], device))


def _optimizer(parameters: int, dtype: torch.dtype, device: torch.device) -> Works:
    master, grad, first, second = (torch.rand(parameters, device=device) for _ in range(4))
    weights = None if dtype == torch.float32 else torch.empty(parameters, dtype=dtype, device=device)
    done, none = torch.ones((), device=device), torch.zeros((), device=device)

    def step() -> None:
        norm = squared_norm([grad]).sqrt().float()
        torch._fused_adamw_([master], [grad], [first], [second], [], [done], lr=1e-4, beta1=0.9, beta2=0.95, weight_decay=0.1,
                            eps=1e-8, amsgrad=False, maximize=False, grad_scale=norm.clamp(min=1.0), found_inf=none)
        if weights is not None:
            weights.copy_(master)

    return {"s": step}


def copies(sizes: Iterable[int], device: torch.device) -> Iterator[Item]:
    """Between host and device, with pages that stay in place and without."""
    for size in sizes:
        for way in ("to device", "to host"):
            for pinned in (True, False):
                yield Item("copies", {"way": way, "pinned": pinned, "bytes": size},
                           lambda size=size, way=way, pinned=pinned: _copy(size, way, pinned, device))  # type: ignore[misc]


def _copy(size: int, way: str, pinned: bool, device: torch.device) -> Works:
    near = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
    far = torch.zeros(size, dtype=torch.uint8, device=device)
    pair = (far, near) if way == "to device" else (near, far)
    return {"s": lambda: pair[0].copy_(pair[1], non_blocking=pinned)}


def launches(device: torch.device) -> Item:
    """What the host needs to start one kernel of no length."""
    return Item("launch", {"name": "add"}, lambda: _launch(device), on_host=True)


def _launch(device: torch.device) -> Works:
    x = torch.zeros(1, device=device)

    def many() -> None:
        for _ in range(100):
            x.add_(1.0)

    return {"hundred_s": many}


def host_overhead(device: torch.device, *, repeats: int) -> dict[str, float]:
    """The host's own time: what one layer and one iteration cost when the tensors are too small to take any.

    The engine trains a model of a few numbers with one layer and with nine; the difference is what a layer takes, the rest what
    an iteration takes. Before the ranks have met: here nobody waits for anybody.
    """
    few, few_forward = _host_steps(FEW, device, repeats)
    many, many_forward = _host_steps(MANY, device, repeats)
    each = max((many.s - few.s) / (MANY - FEW), 1e-7)
    forward = min(max((many_forward.s - few_forward.s) / (MANY - FEW), 1e-8), 0.9 * each)
    return {"forward_s": forward, "backward_s": each - forward, "fixed_s": max(few.s - each * FEW, 1e-6),
            "spread": max(few.spread, many.spread)}


def _host_steps(layers: int, device: torch.device, repeats: int) -> tuple[Sample, Sample]:
    """Of a whole iteration, and of a forward pass alone."""
    model = Model(layers=layers, hidden=32, heads=2, vocab=64, seq=HOST_SEQ)
    trial = Trial(model=model, batch=Batch(gbs=1), topology=Topology(precision="bf16" if device.type == "cuda" else "fp32"),
                  execution=Execution(device=device.type))  # type: ignore[arg-type]
    recipe = Recipe(steps=1_000_000)
    # Triton's kernels would be compiled for widths that nobody has.
    config = KernelConfig.of(device, trial.topology.precision)
    ops = choose.build(replace(config, triton=(), attention="default"), trial, device)
    engine = Engine(trial, recipe, Mesh(trial.topology, device=device), ops=ops)
    batches = Batches(recipe, model, recipe.seed)
    steps, forwards = [], []
    for number in range(1, repeats + 4):
        began = time.perf_counter()
        engine.step(number, first_sample=0, batches=batches)
        steps.append(time.perf_counter() - began)
        began = time.perf_counter()
        engine.evaluate(batches, first_sample=0, samples=1)
        forwards.append(time.perf_counter() - began)
    return summary(steps[3:]), summary(forwards[3:])
