"""Attention of one context-parallel rank beside the same kernel alone: what putting pieces together costs on a GPU.

    python3 benchmarks/gpu/context_attention.py --seq 131072 --cp 8 --heads 32 --kv-heads 8 --head-dim 128

Both compute as many pairs of queries and keys, forward and backward; the kernel alone on squares and rectangles of one size,
its results thrown away. No peers: keys of the others are this rank's own.
"""
from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from seatrial.engine.core.context import ring_stretches
from seatrial.engine.core.lse_kernels import Cudnn, Flash, Kernel
from seatrial.engine.core.pieces import Piece, Softmax, SoftmaxBackward, at_hand, pieces


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    taken = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end) / 1e3)
    return statistics.median(taken[2:])


def pairs(found: list[list[Piece]]) -> int:
    return sum(p.q_len * (p.q_len + 1) // 2 if p.causal else p.q_len * p.k_len for one in found for p in one)


def main() -> None:
    asked = argparse.ArgumentParser()
    for name, default in (("seq", 131072), ("cp", 8), ("heads", 32), ("kv-heads", 8), ("head-dim", 128)):
        asked.add_argument(f"--{name}", type=int, default=default)
    a = asked.parse_args()
    tokens, member = a.seq // a.cp, a.cp // 2
    of = [ring_stretches(a.seq, a.cp, i) for i in range(a.cp)]
    found = [pieces(of[member], keys) for keys in of]
    q, d_out = (torch.randn(1, tokens, a.heads, a.head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    k, v = (torch.randn(1, tokens, a.kv_heads, a.head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    flops = 4 * pairs(found) * a.heads * a.head_dim
    kernels: dict[str, Kernel] = {"cudnn": Cudnn(), "flash": Flash()}
    for name, kernel in kernels.items():
        def attend(kernel: Kernel = kernel) -> tuple[Tensor, Tensor]:
            softmax = Softmax(q, kernel)
            for one in found:
                softmax.add(k, v, one)
            return softmax.result()

        def back(out: Tensor, lse: Tensor, kernel: Kernel = kernel) -> Tensor:
            backward = SoftmaxBackward(d_out, q, out, lse, kernel)
            for one in found:
                backward.add(k, v, one)
            return backward.result()

        def alone(kernel: Kernel = kernel) -> None:
            for p in (p for one in found for p in one):
                kernel.forward(*at_hand(q, k, v, p), causal=p.causal, bias=None)

        def alone_back(out: Tensor, lse: Tensor, kernel: Kernel = kernel) -> None:
            for p in (p for one in found for p in one):
                rows = slice(p.q, p.q + p.q_len)
                kernel.backward(d_out[:, rows].transpose(1, 2), *at_hand(q, k, v, p), out[:, rows].transpose(1, 2),
                                lse[..., rows], causal=p.causal, bias=None)

        out, lse = attend()
        taken = {"forward": seconds(attend), "forward_alone": seconds(alone), "backward": seconds(lambda: back(out, lse)),
                 "backward_alone": seconds(lambda: alone_back(out, lse))}
        both, both_alone = (taken[f"forward{w}"] + taken[f"backward{w}"] for w in ("", "_alone"))
        square = [Piece(0, tokens, 0, tokens, True)]
        causal_s = seconds(lambda: kernel.forward(*at_hand(q, k, v, square[0]), causal=True, bias=None))
        print(json.dumps({"kernel": name, **{what: round(1e3 * s, 3) for what, s in taken.items()}, "unit": "ms",
                          "of_alone": round(both_alone / both, 4), "forward_tflops": round(flops / taken["forward"] / 1e12, 1),
                          "backward_tflops": round(2.5 * flops / taken["backward"] / 1e12, 1),
                          "causal_square_tflops": round(4 * pairs([square]) * a.heads * a.head_dim / causal_s / 1e12, 1)}))


if __name__ == "__main__":
    main()
