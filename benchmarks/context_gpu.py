"""Context parallelism of one rank on one GPU: `python -m benchmarks.context_gpu -o results/context-h200.json`.

Attention of a llama3-8b layer at 131,072 tokens, CP 8: all ring steps of a rank, forward and backward, with keys that are
there, beside the same kernel alone on the same FLOPs as one causal sequence (the fewer heads that the FLOPs leave), in one run.
Then the whole rank: bytes that the rehearsal counts without memory, and the footprint's, over what the allocator had at its
peak when the rank was executed under a process group that has nobody else in it.
"""
from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.attention_gpu import seconds

from seatrial import presets
from seatrial.arith import footprint
from seatrial.engine.core.context import ring_stretches
from seatrial.engine.core.lse_kernels import Cudnn, Flash, Kernel
from seatrial.engine.core.pieces import Piece, Softmax, SoftmaxBackward, pieces
from seatrial.recipe import Recipe
from seatrial.rehearse.fake import fake_world
from seatrial.rehearse.rank import measure_memory
from seatrial.spec import Batch, Execution, Topology, Trial

KERNELS: dict[str, Kernel] = {"cudnn": Cudnn(), "flash": Flash()}


def pairs(found: list[Piece]) -> int:
    return sum(p.q_len * (p.q_len + 1) // 2 if p.causal else p.q_len * p.k_len for p in found)


def ring(kernel: Kernel, seq: int, cp: int, member: int, heads: int, kv: int, dim: int) -> tuple[Callable[[], Any], float]:
    """Every step of one ring member, and its FLOPs."""
    of = [ring_stretches(seq, cp, one) for one in range(cp)]
    found = [pieces(of[member], keys) for keys in of]
    order = [(member - step) % cp for step in range(cp)]
    q, d_out = (torch.randn(1, seq // cp, heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    keys = [torch.randn(2, 1, seq // cp, kv, dim, device="cuda", dtype=torch.bfloat16) for _ in range(cp)]

    def step() -> None:
        softmax = Softmax(q, kernel)
        for source in order:
            softmax.add(*keys[source], found[source])
        out, lse = softmax.result()
        backward = SoftmaxBackward(d_out, q, out, lse, kernel)
        for source in order:
            backward.add(*keys[source], found[source])
        backward.result()

    return step, 3.5 * 4.0 * heads * dim * sum(map(pairs, found))


def alone(kernel: Kernel, seq: int, heads: int, kv: int, dim: int) -> tuple[Callable[[], Any], float]:
    q, d_out = (torch.randn(1, heads, seq, dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    k, v = (torch.randn(1, kv, seq, dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def step() -> None:
        out, lse = kernel.forward(q, k, v, causal=True, bias=None)
        kernel.backward(d_out, q, k, v, out, lse, causal=True, bias=None)

    return step, 3.5 * 4.0 * heads * dim * seq * (seq + 1) / 2


def attention(seq: int, cp: int) -> list[dict[str, Any]]:
    m = presets.model("llama3-8b")
    rows = []
    for name, kernel in KERNELS.items():
        for member in (0, cp - 1):
            step, flops = ring(kernel, seq, cp, member, m.heads, m.kv, m.head_size)
            ring_s = seconds(step)
            whole, whole_flops = alone(kernel, seq, m.heads // cp, max(1, m.kv // cp), m.head_size)
            whole_s = seconds(whole)
            short, short_flops = alone(kernel, seq // cp, m.heads, m.kv, m.head_size)
            short_s = seconds(short)
            row = {"kernel": name, "seq": seq, "cp": cp, "member": member, "ring_s": ring_s,
                   "ring_tflops": flops / ring_s / 1e12, "alone_tflops": whole_flops / whole_s / 1e12,
                   "alone_short_tflops": short_flops / short_s / 1e12}
            row["share"] = row["ring_tflops"] / row["alone_tflops"]
            print(f"{name:6} CP {cp} at {seq}, member {member}: {row['ring_tflops']:.0f} TFLOP/s, the kernel alone "
                  f"{row['alone_tflops']:.0f} (one causal sequence of {seq // cp}: {row['alone_short_tflops']:.0f}): "
                  f"{row['share']:.1%}", flush=True)
            rows.append(row)
    return rows


def memory(seq: int, cp: int, layers: int, kind: str, recompute: str) -> dict[str, Any]:
    model = replace(presets.model("llama3-8b"), seq=seq, layers=layers)
    topology = Topology(cp=cp, cp_kind=kind, zero=1, recompute=recompute, precision="bf16")  # type: ignore[arg-type]
    trial = Trial(model=model, batch=Batch(gbs=1), topology=topology, execution=Execution(device="cuda"))
    with fake_world(rank=0, world=topology.world):
        counted = measure_memory(trial, Recipe(), torch.device("cpu"), fake=True, as_gpu=True)
    torch.cuda.empty_cache()
    with fake_world(rank=0, world=topology.world):
        real = measure_memory(trial, Recipe(), torch.device("cuda"), fake=False, as_gpu=True)
    had = real.allocated_bytes or 0
    row = {"seq": seq, "cp": cp, "layers": layers, "kind": kind, "recompute": recompute, "allocated_gib": had / 2**30,
           "rehearsed": counted.peak_bytes / had - 1, "footprint": footprint(trial, rank=0, gpu=True).total / had - 1,
           "parts": real.at_peak, "counted_parts": counted.at_peak}  # fmt: skip
    print(f"llama3-8b of {layers} layers at {seq}, CP {cp} by {kind}, recompute {recompute}: allocator "
          f"{row['allocated_gib']:.2f} GiB, rehearsed without memory {row['rehearsed']:+.2%}, footprint "
          f"{row['footprint']:+.2%}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--seq", type=int, default=131_072)
    parser.add_argument("--cp", type=int, default=8)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--memory", action="store_true", help="That alone.")
    asked = parser.parse_args()
    made: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    if not asked.memory:
        made["attention"] = attention(asked.seq, asked.cp)
    made["memory"] = [memory(asked.seq, asked.cp, asked.layers, kind, recompute)
                      for kind, recompute in (("ring", "full"), ("gather", "full"), ("ulysses", "full"), ("ring", "selective"))]
    if asked.out is not None:
        asked.out.write_text(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
