"""What runs is decided on rank 0: every rank has its config, also where it would have chosen another one itself."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dist.gemm_cases import gemms_of_a_step
from dist.kernel_cases import FUSED, as_chosen, refusal
from dist.many import in_world
from seatrial.engine.fast.config import KernelConfig, Tuned
from seatrial.spec import Model, Topology


@pytest.mark.parametrize("first", [FUSED, KernelConfig()], ids=["fused on rank 0", "plain on rank 0"])
def test_every_rank_runs_what_rank_0_chose(first: KernelConfig) -> None:
    other = KernelConfig() if first.fused else FUSED
    ranks = in_world(2, as_chosen, [first, other])
    assert [config for config, _, _ in ranks] == [first.plain()] * 2
    assert [fused for _, fused, _ in ranks] == [first.fused] * 2
    assert ranks[0][2] == ranks[1][2]


def test_a_rank_that_cannot_says_so() -> None:
    tuned = {"a GEMM": Tuned(algorithm="AAAA", torch_ms=2.0, ms=1.0)}
    said = in_world(2, refusal, replace(FUSED, triton=("norm",), fp32_gradient_gemm=True, gemm_algorithms=tuned,
                                        cublaslt_version=1))
    assert said[0] == "" and said[1].startswith("rank 1 cannot run what rank 0 chose: norm (not tried); GEMMs of 16-bit")
    assert "; GEMM algorithms of cuBLASLt 1 (" in said[1]


@pytest.mark.parametrize("precision, sequence_parallel", [("bf16", False), ("bf16", True), ("fp8", False)])
def test_gemms_described_for_tuning_are_those_of_a_tensor_parallel_rank(precision: Any, sequence_parallel: bool) -> None:
    model = Model(layers=1, hidden=64, heads=4, vocab=301, seq=32)
    topology = Topology(tp=2, mbs=4, precision=precision, sequence_parallel=sequence_parallel)
    for asked, described in in_world(2, gemms_of_a_step, model, topology):
        assert asked == described
