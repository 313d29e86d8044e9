"""Attention inside packed documents on a GPU: one kernel for all of them beside the best kernel for each.

    python3 benchmarks/gpu/packed.py --seq 32768 --heads 32 --kv-heads 8 --head-dim 128

Forward and backward of one sequence, by the length of its documents, and both beside the sequence as one document.
"""
from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from seatrial.engine.core.lse_kernels import Cudnn, Flash, Kernel, Squares
from seatrial.engine.core.pieces import Softmax, SoftmaxBackward, Stretch, packed


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


class Sequence:
    def __init__(self, *, seq: int, heads: int, kv_heads: int, head_dim: int):
        self.seq, shape = seq, dict(device="cuda", dtype=torch.bfloat16)
        self.q, self.d_out = (torch.randn(1, seq, heads, head_dim, **shape) for _ in range(2))
        self.k, self.v = (torch.randn(1, seq, kv_heads, head_dim, **shape) for _ in range(2))

    def both_ways(self, length: int, kernel: Kernel, *, together: bool) -> list[Tensor]:
        starts = tuple(range(0, self.seq, length))
        stretch = (Stretch(0, 0, self.seq),)
        found = packed(stretch, stretch, (starts,), self.seq)
        ends = torch.tensor([*starts, self.seq], dtype=torch.int32, device="cuda")
        squares = Squares(ends, length) if together else None
        softmax = Softmax(self.q, kernel)
        softmax.add(self.k, self.v, found, squares=squares)
        out, lse = softmax.result()
        backward = SoftmaxBackward(self.d_out, self.q, out, lse, kernel)
        dk, dv = backward.add(self.k, self.v, found, squares=squares)
        return [out, backward.result(), dk, dv]


def main() -> None:
    asked = argparse.ArgumentParser()
    for name, default in (("seq", 32768), ("heads", 32), ("kv-heads", 8), ("head-dim", 128)):
        asked.add_argument(f"--{name}", type=int, default=default)
    one = Sequence(**vars(asked.parse_args()))
    for length in (256, 512, 1024, 2048, 4096, 8192, 16384, one.seq):
        taken = {"together": seconds(lambda n=length: one.both_ways(n, Flash(), together=True)),
                 "flash": seconds(lambda n=length: one.both_ways(n, Flash(), together=False)),
                 "cudnn": seconds(lambda n=length: one.both_ways(n, Cudnn(), together=False))}
        ours, theirs = (one.both_ways(length, Flash(), together=t) for t in (True, False))
        off = max(float((a - b).norm() / b.norm()) for a, b in zip(ours, theirs))
        print(json.dumps({"length": length, **{f"{what}_ms": round(1e3 * s, 3) for what, s in taken.items()},
                          "differ": round(off, 6)}))


if __name__ == "__main__":
    main()
