"""A layer of experts on one GPU beside the same FLOPs done dense, and beside transformers' own with its grouped GEMM.

    python -m benchmarks.gpu.experts                            both shapes, uniform and skewed
    python -m benchmarks.gpu.experts --shapes qwen3 -o out      one; out/experts.json

Forward and backward in bf16, router and gradients of all weights included; all rows of a shape take turns in one process. The
dense row is one MLP of an expert's width that every (token, choice) passes: same FLOPs, no routing, cuBLAS. Ours and dense
write their weights' gradients where they stay, transformers' are autograd's. First each grouped GEMM by each way there is.
"""
from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from seatrial.engine.core.experts import router_linear
from seatrial.engine.core.ops import PlainGemm
from seatrial.engine.fast.experts import FastExperts
from seatrial.engine.fast.grouped import TORCH, FastGrouped, GroupedShape, fastest, measure
from seatrial.engine.fast.kernels import EXPERTS, Kernels, verified

HALF = torch.bfloat16
WARM, ROUNDS, REPEATS = 3, 9, 3
"""Rounds, of which the first are not counted; of each row so many passes after another in a round."""
SKEW = 0.75
"""The n-th expert's logits are lower by so many times ln n."""


NOW: Any = SimpleNamespace(deferred=None)


@dataclass(frozen=True, kw_only=True)
class Shape:
    hidden: int
    experts: int
    width: int
    top_k: int
    tokens: int = 8192

    @property
    def rows(self) -> int:
        return self.tokens * self.top_k

    @property
    def tflop(self) -> float:
        """Of one pass forward and backward: three matrices, three GEMMs each."""
        return 18e-12 * self.rows * self.hidden * self.width


SHAPES = {"mixtral": Shape(hidden=4096, experts=8, width=14336, top_k=2),
          "qwen3": Shape(hidden=2048, experts=128, width=768, top_k=8),
          "tiny": Shape(hidden=64, experts=8, width=48, top_k=2, tokens=96)}
BARS = {"mixtral": 0.85, "qwen3": 0.55}


class Place:
    """Where a weight's gradient stays."""

    def __init__(self, weight: Tensor, grouped: FastGrouped):
        self.grad, self.grouped = torch.empty_like(weight), grouped

    def add_gemm(self, left_TM: Tensor, right_TN: Tensor) -> None:
        self.grad.copy_(left_TM.t() @ right_TN)

    def add_grouped(self, left_TM: Tensor, right_TN: Tensor, counts_E: Tensor) -> None:
        self.grouped.into(self.grad.view(counts_E.numel(), -1, self.grad.shape[1]), left_TM, right_TN, counts_E)


class Layer:
    """One layer's weights and tokens; and the passes that are timed."""

    def __init__(self, shape: Shape, device: torch.device, kernels: Kernels, grouped: FastGrouped, *, skewed: bool):
        s, self.shape, self.kernels, self.fast = shape, shape, kernels, FastExperts(shape.experts, kernels, grouped)
        torch.manual_seed(0)

        def some(*size: int, std: float) -> Tensor:
            return (torch.randn(*size, device=device) * std).to(HALF)

        self.x, self.dy = some(s.tokens, s.hidden, std=1.0), some(s.tokens, s.hidden, std=1.0)
        self.router = some(s.experts, s.hidden, std=s.hidden**-0.5)
        # One feature is the same for all tokens: what the router makes of it is how much each expert is liked.
        self.x[:, 0], self.router[:, 0] = 1.0, -SKEW * torch.arange(1, s.experts + 1, device=device).log() if skewed else 0.0
        self.up, self.down = some(s.experts * 2 * s.width, s.hidden, std=0.02), some(s.experts * s.width, s.hidden, std=0.02)
        self.x.requires_grad_()
        for weight in (self.router, self.up, self.down):
            weight.requires_grad_()
            weight.main_grad = Place(weight, grouped)  # type: ignore[attr-defined]

    def chosen(self) -> tuple[Tensor, Tensor]:
        """Experts and weights: softmax over all, of which the chosen add up to 1, is softmax over the chosen."""
        best, expert = router_linear(self.x, self.router, NOW).topk(self.shape.top_k)
        return expert, best.softmax(-1)

    def ours(self) -> list[Tensor]:
        y = self.fast(self.x, *self.chosen(), self.up, self.down, NOW)
        (dx,) = torch.autograd.grad(y, (self.x,), self.dy)
        return [y.detach(), dx, *(w.main_grad.grad for w in (self.router, self.up, self.down))]  # type: ignore[attr-defined]

    def peer(self) -> tuple[Callable[[], list[Tensor]], Tensor]:
        """One pass, and which tokens choose the same experts there: its router rounds logits to bf16."""
        block = peer_block(self.shape, self.x.device)
        with torch.no_grad():
            block.gate.weight.copy_(self.router)
            block.experts.gate_up_proj.copy_(self.up.view_as(block.experts.gate_up_proj))
            block.experts.down_proj.copy_(self.down.view(self.shape.experts, -1, self.shape.hidden).mT)
        leaves = (block.gate.weight, block.experts.gate_up_proj, block.experts.down_proj)

        def both_ways() -> list[Tensor]:
            y = block(self.x.unsqueeze(0))[0]
            dx, router, up, down = torch.autograd.grad(y, (self.x, *leaves), self.dy)
            return [y.detach(), dx, router, up.flatten(0, 1), down.mT.flatten(0, 1)]

        with torch.no_grad():
            theirs, ours = block.gate(self.x)[2], self.chosen()[0]
        return both_ways, (theirs.sort().values == ours.sort().values).all(1)

    def load(self) -> tuple[int, float]:
        """Rows of the fullest expert, and in multiples of the mean."""
        with torch.no_grad():
            most = int(self.chosen()[0].flatten().bincount(minlength=self.shape.experts).max())
        return most, most * self.shape.experts / self.shape.rows


def peer_block(s: Shape, device: torch.device) -> Any:
    from transformers import MixtralConfig, Qwen3MoeConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    known: dict[str, Any] = {"hidden_size": s.hidden, "num_experts_per_tok": s.top_k, "experts_implementation": "grouped_mm"}
    if s == SHAPES["mixtral"]:
        made: type[nn.Module] = MixtralSparseMoeBlock
        config = MixtralConfig(**known, num_local_experts=s.experts, intermediate_size=s.width)
    else:
        made = Qwen3MoeSparseMoeBlock
        config = Qwen3MoeConfig(**known, num_experts=s.experts, moe_intermediate_size=s.width, norm_topk_prob=True)
    assert config._experts_implementation == "grouped_mm"
    with torch.device(device):
        return made(config).to(HALF)  # type: ignore[call-arg]


class Dense:
    """One MLP of an expert's width for all rows, with the same kernels between its GEMMs."""

    def __init__(self, s: Shape, device: torch.device, kernels: Kernels):
        self.kernels, self.ones = kernels, torch.ones(s.rows, device=device)
        self.x, self.dy = (torch.randn(s.rows, s.hidden, device=device, dtype=HALF) for _ in range(2))
        self.up, self.down = (torch.randn(n, s.hidden, device=device, dtype=HALF) * 0.02 for n in (2 * s.width, s.width))
        self.d_up, self.d_down = torch.empty_like(self.up), torch.empty_like(self.down)

    def both_ways(self) -> tuple[Tensor, Tensor]:
        pre = self.x @ self.up.t()
        y = self.kernels.gated(pre, self.ones) @ self.down
        d = self.dy @ self.down.t()
        self.kernels.gated_backward(d, pre, self.ones)
        dx = pre @ self.up
        torch.mm(d.t(), self.dy, out=self.d_down)
        torch.mm(pre.t(), self.x, out=self.d_up)
        return y, dx


def milliseconds(rows: dict[str, Callable[[], Any]], device: torch.device) -> dict[str, list[float]]:
    """All in turns, so that a clock that rises or falls is the same for each."""
    took: dict[str, list[float]] = {name: [] for name in rows}
    for round_number in range(WARM + ROUNDS):
        for name, work in rows.items():
            if device.type == "cuda":
                marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                torch.cuda.synchronize()
                work()  # the host gets ahead
                marks[0].record()
                for _ in range(REPEATS):
                    work()
                marks[1].record()
                torch.cuda.synchronize()
                each = marks[0].elapsed_time(marks[1]) / REPEATS
            else:
                began = time.perf_counter()
                work()
                each = 1e3 * (time.perf_counter() - began)
            if round_number >= WARM:
                took[name].append(each)
    return took


def distances(found: list[Tensor], reference: list[Tensor], same_T: Tensor) -> dict[str, float]:
    """Relative; of outputs and their inputs those of tokens that chose the same, of weights all."""
    names = ("output", "input gradient", "router gradient", "up gradient", "down gradient")
    pairs = [(a[same_T], b[same_T]) if i < 2 else (a, b) for i, (a, b) in enumerate(zip(found, reference, strict=True))]
    return {name: float((a.float() - b.float()).norm() / b.float().norm()) for name, (a, b) in zip(names, pairs, strict=True)}


def run(name: str, device: torch.device, kernels: Kernels, say: Callable[[str], None], *, peer: bool) -> dict[str, Any]:
    s = SHAPES[name]
    say(f"{name}: hidden {s.hidden}, {s.experts} experts of {s.width}, top {s.top_k}, {s.tokens} tokens; {s.tflop:.2f} TFLOP "
        "forward and backward")
    found: dict[str, Any] = {"shape": asdict(s), "rows": {}}
    shape = GroupedShape(rows=s.rows, experts=s.experts, hidden=s.hidden, up=2 * s.width, down=s.width, dtype=HALF,
                         gradients=HALF)
    choices = dict.fromkeys(shape.cases(), TORCH)
    if device.type == "cuda":
        found["gemms"] = measure(shape, device, kernels, PlainGemm())
        for of, took in found["gemms"].items():
            flop = 2e-9 * s.rows * s.hidden * (2 * s.width if of.startswith(f"{2 * s.width} ") else s.width)
            choices[of] = fastest(took)
            say(f"  {of}: " + ", ".join(f"{flop / ms:.0f} ({way})" for way, ms in sorted(took.items(), key=lambda t: t[1])))
        torch.cuda.empty_cache()
    grouped = FastGrouped(choices, kernels)
    dense = Dense(s, device, kernels)
    for load in ("uniform", "skewed"):
        layer = Layer(s, device, kernels, grouped, skewed=load == "skewed")
        rows: dict[str, Callable[[], Any]] = {"dense": dense.both_ways, "ours": layer.ours}
        if peer:
            rows["transformers"], same = layer.peer()
            found[f"{load} differs"] = off = distances(layer.ours(), rows["transformers"](), same)
            say(f"  {load}: ours differs from transformers' by " + ", ".join(f"{what} {by:.1e}" for what, by in off.items()) +
                f"; {int((~same).sum())} of {s.tokens} tokens chose otherwise there")
        most, times = layer.load()
        say(f"  {load}: {most} rows at the fullest expert, {times:.2f} of the mean")
        took = milliseconds(rows, device)
        middle = {row: statistics.median(ms) for row, ms in took.items()}
        for row, ms in middle.items():
            ratio = middle["dense"] / ms
            found["rows"][f"{load} {row}"] = {"ms": ms, "all_ms": took[row], "tflops": 1e3 * s.tflop / ms, "of_dense": ratio}
            bar = f"  (bar {100 * BARS[name]:.0f} %)" if row == "ours" and name in BARS else ""
            say(f"  {load:<8} {row:<13} {ms:8.3f} ms {1e3 * s.tflop / ms:7.1f} TFLOP/s {100 * ratio:6.1f} % of dense{bar}")
        del layer, rows
    return found


def layers(say: Callable[[str], None], names: Sequence[str] = tuple(BARS), device: torch.device | None = None, *,
           peer: bool = True, triton: bool = True) -> dict[str, Any]:
    """All rows of these shapes, the kernels held against plain torch first."""
    device = device or torch.device("cuda")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
                             "torch": torch.__version__}
    say(", ".join(found.values()))
    works: tuple[str, ...] = EXPERTS if triton else ()
    for hidden in dict.fromkeys(SHAPES[name].hidden for name in names) if triton else ():
        works, notes = verified.usable(works, device, HALF, hidden=hidden, experts=True)
        say(f"kernels at {hidden}: " + ", ".join(f"{n} {w}" for n, w in notes.items()))
    return found | {name: run(name, device, Kernels.of(works), say, peer=peer) for name in names}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.experts", description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=tuple(SHAPES), default=["mixtral", "qwen3"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--no-peer", action="store_true", help="without transformers")
    parser.add_argument("--no-triton", action="store_true", help="plain torch between the GEMMs, torch's grouped product")
    parser.add_argument("-o", "--out", type=Path, help="folder for experts.json")
    asked = parser.parse_args(argv)
    device = torch.device(asked.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device here; --device cpu --shapes tiny --no-triton runs the same code without figures to report")
    found = layers(lambda line: print(line, flush=True), asked.shapes, device, peer=not asked.no_peer,
                   triton=not asked.no_triton)
    if asked.out:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "experts.json").write_text(json.dumps({"schema": 1, **found}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
