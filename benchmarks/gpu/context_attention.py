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


class Rank:
    def __init__(self, *, seq: int, cp: int, heads: int, kv_heads: int, head_dim: int):
        self.tokens, self.width = seq // cp, heads * head_dim
        of = [ring_stretches(seq, cp, i) for i in range(cp)]
        self.found = [pieces(of[cp // 2], keys) for keys in of]
        shape = dict(device="cuda", dtype=torch.bfloat16)
        self.q, self.d_out = (torch.randn(1, self.tokens, heads, head_dim, **shape) for _ in range(2))
        self.k, self.v = (torch.randn(1, self.tokens, kv_heads, head_dim, **shape) for _ in range(2))

    def attend(self, kernel: Kernel) -> tuple[Tensor, Tensor]:
        softmax = Softmax(self.q, kernel)
        for one in self.found:
            softmax.add(self.k, self.v, one)
        return softmax.result()

    def back(self, kernel: Kernel, out: Tensor, lse: Tensor) -> Tensor:
        backward = SoftmaxBackward(self.d_out, self.q, out, lse, kernel)
        for one in self.found:
            backward.add(self.k, self.v, one)
        return backward.result()

    def alone(self, kernel: Kernel, found: list[list[Piece]]) -> None:
        for p in (p for one in found for p in one):
            kernel.forward(*at_hand(self.q, self.k, self.v, p), causal=p.causal, bias=None)

    def alone_back(self, kernel: Kernel, out: Tensor, lse: Tensor) -> None:
        for p in (p for one in self.found for p in one):
            rows = slice(p.q, p.q + p.q_len)
            kernel.backward(self.d_out[:, rows].transpose(1, 2), *at_hand(self.q, self.k, self.v, p),
                            out[:, rows].transpose(1, 2), lse[..., rows], causal=p.causal, bias=None)

    def measure(self, kernel: Kernel) -> dict[str, float]:
        square = [[Piece(0, self.tokens, 0, self.tokens, True)]]
        out, lse = self.attend(kernel)
        taken = {"forward": seconds(lambda: self.attend(kernel)),
                 "forward_alone": seconds(lambda: self.alone(kernel, self.found)),
                 "backward": seconds(lambda: self.back(kernel, out, lse)),
                 "backward_alone": seconds(lambda: self.alone_back(kernel, out, lse)),
                 "own_square": seconds(lambda: self.alone(kernel, square))}
        flops = 4 * pairs(self.found) * self.width
        both, both_alone = (taken[f"forward{w}"] + taken[f"backward{w}"] for w in ("", "_alone"))
        tflops = {"forward": flops / taken["forward"], "backward": 2.5 * flops / taken["backward"],
                  "own_square": 4 * pairs(square) * self.width / taken["own_square"]}
        return {**{f"{what}_ms": 1e3 * s for what, s in taken.items()}, "of_alone": both_alone / both,
                **{f"{what}_tflops": rate / 1e12 for what, rate in tflops.items()}}


def main() -> None:
    asked = argparse.ArgumentParser()
    for name, default in (("seq", 131072), ("cp", 8), ("heads", 32), ("kv-heads", 8), ("head-dim", 128)):
        asked.add_argument(f"--{name}", type=int, default=default)
    rank = Rank(**vars(asked.parse_args()))
    for kernel in (Cudnn(), Flash()):
        print(json.dumps({"kernel": type(kernel).__name__, **{k: round(v, 4) for k, v in rank.measure(kernel).items()}}))


if __name__ == "__main__":
    main()
