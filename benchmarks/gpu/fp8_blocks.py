"""The fp8 GEMMs of llama3-8b with one scale a tensor, as the engine has them, and with one a block of 128 (DeepSeek's).

    python -m benchmarks.gpu.fp8_blocks

Activations and gradients in rows of 1 x 128, weights in tiles of 128 x 128, all e4m3, by cuBLASLt's own kernels, each held
against its operands in fp32. All ways of a GEMM take turns. Casts are left out: those of blocks pass
over memory as often.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from seatrial.engine.fast.fp8 import scaled_gemm
from seatrial.engine.fast.turns import milliseconds

BLOCK, TOKENS, REPEATS = 128, 8192, 4
CLOSE = 1e-2
WEIGHTS = {"qkv": (6144, 4096), "out": (4096, 4096), "up": (28672, 4096), "down": (4096, 14336), "head": (128256, 4096)}
"""[out, in]."""


def blocks(matrix: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """In eight bits, and what undoes the scales: [m / rows, k / 128], its first side contiguous as cuBLASLt has it."""
    m, k = matrix.shape
    tiles = matrix.float().view(m // rows, rows, k // BLOCK, BLOCK)
    inverse = tiles.abs().amax((1, 3), keepdim=True) / 448.0
    return (tiles / inverse).view(m, k).to(torch.float8_e4m3fn), inverse.view(m // rows, k // BLOCK)


def blockwise(left: Tensor, right_t: Tensor, right_rows: int) -> Callable[[], Tensor]:
    """left [m, k] x right_tᵀ [k, n]."""
    (a, a_inverse), (b, b_inverse) = blocks(left, 1), blocks(right_t, right_rows)
    kinds = F.ScalingType.BlockWise1x128, {1: F.ScalingType.BlockWise1x128, BLOCK: F.ScalingType.BlockWise128x128}[right_rows]
    # Scales of rows lie a column apart, those of tiles in the order of k, by fours.
    a_inverse = a_inverse.t().contiguous().t()
    b_inverse = b_inverse.t().contiguous().t() if right_rows == 1 else F.pad(b_inverse, (0, -b_inverse.shape[1] % 4)).t()
    return partial(F.scaled_mm, a, b.t(), a_inverse, kinds[0], b_inverse, kinds[1], output_dtype=torch.bfloat16)


def tensorwise(left: Tensor, right_t: Tensor) -> Callable[[], Tensor]:
    operands = []
    for matrix in (left, right_t):
        inverse = matrix.float().abs().amax() / 448.0
        operands.append(((matrix.float() / inverse).to(torch.float8_e4m3fn), inverse))
    (a, a_inverse), (b, b_inverse) = operands
    return partial(scaled_gemm, a, b, a_inverse, b_inverse)


def repeated(way: Callable[[], Tensor]) -> None:
    for _ in range(REPEATS):
        way()


def main() -> int:
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(1)

    def some(m: int, k: int) -> Tensor:
        return torch.randn(m, k, generator=generator, device=device, dtype=torch.bfloat16)

    total = {"one scale a tensor": 0.0, "one a block": 0.0}
    print(f"{'GEMM':<22} {'tensor ms':>10} {'block ms':>10} {'ratio':>7} {'TFLOP/s':>8} {'TFLOP/s':>8}")
    for name, (n, k) in WEIGHTS.items():
        for what, (m, wide, other), rows in (("forward", (TOKENS, n, k), BLOCK), ("input", (TOKENS, k, n), BLOCK),
                                             ("weight", (n, k, TOKENS), 1)):
            left, right_t = some(m, other), some(wide, other)
            ways = {"one scale a tensor": tensorwise(left, right_t), "one a block": blockwise(left, right_t, rows)}
            exact = left[:256].float() @ right_t.float().t()
            for way, run in ways.items():
                far = float((run()[:256].float() - exact).norm() / exact.norm())
                assert far < 5 * CLOSE, f"{name} {what}, {way}: {far:.1e} from the GEMM in fp32"
            del exact
            took = milliseconds({way: partial(repeated, run) for way, run in ways.items()}, device)
            one, other_ms = (ms / REPEATS for ms in took.values())
            tflop = 2e-12 * m * wide * other
            for way, ms in zip(total, (one, other_ms), strict=True):
                total[way] += ms
            print(f"{name + ' ' + what:<22} {one:10.3f} {other_ms:10.3f} {other_ms / one:7.3f} {1e3 * tflop / one:8.0f} "
                  f"{1e3 * tflop / other_ms:8.0f}", flush=True)
    one, other_ms = total.values()
    print(f"{'all':<22} {one:10.3f} {other_ms:10.3f} {other_ms / one:7.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
