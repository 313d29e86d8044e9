"""Tuned GEMMs: the fastest algorithm that is right, for the shapes that a step computes; torch's for all others."""
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dist.gemm_cases import gemms_of_a_step
from seatrial.engine.core.ops import PlainGemm
from seatrial.engine.fast import fp8
from seatrial.engine.fast.choose import choose
from seatrial.engine.fast.config import KernelConfig, Tuned
from seatrial.engine.fast.ops import Fp32Gemm
from seatrial.engine.fast.tuned_gemm import (
    Cache,
    CublasLt,
    GemmShape,
    Refused,
    Run,
    TunedGemm,
    Ways,
    autotune,
    gemm_shapes,
    refusal,
)
from seatrial.spec import Batch, Execution, Model, Topology, Trial

CPU, FP32 = torch.device("cpu"), torch.float32
MODEL = Model(layers=2, hidden=64, heads=4, vocab=301, seq=32)
TRIAL = Trial(model=MODEL, batch=Batch(gbs=4), topology=Topology(mbs=4, precision="bf16"))
SHAPE = GemmShape(16, 32, 64, FP32, FP32, FP32, right_t=True)
NO_CACHE = Cache(None)


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


class FakeLibrary(CublasLt):
    """Algorithms in torch, each as fast as it is told to be; torch's own takes 2 ms."""

    def __init__(self, version: int = 13, **ms: float) -> None:
        self.version, self.ms = version, ms
        self.wrong: set[str] = set()
        self.refused: set[str] = set()
        self.full: set[GemmShape] = set()
        self.ran: list[tuple[str, float, bool]] = []

    def heuristic(self, shape: GemmShape, device: torch.device) -> list[str]:
        if shape in self.full:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return list(self.ms)

    def bind(self, algorithm: str, shape: GemmShape, device: torch.device) -> Run:
        if algorithm not in self.ms:
            raise ValueError(algorithm)

        def run(left: Tensor, right: Tensor, out: Tensor, *, alpha: float = 1.0, bias: Tensor | None = None,
                onto: Tensor | None = None, scales: Any = None) -> None:
            if algorithm in self.refused:
                raise Refused("cublasLtMatmul gave status 15")
            self.ran.append((algorithm, alpha, bias is not None))
            made = alpha * (left.float() @ right.float()) + (0.0 if bias is None else bias)
            before = out if onto is None else onto
            out.copy_(made + before if (shape.add or shape.onto) ^ (algorithm in self.wrong) else made)

        return run

    def time_ms(self, ways: Ways) -> dict[str, float]:
        return {algorithm: self.ms.get(algorithm, 2.0) for algorithm in ways}

    def tune(self, *shapes: GemmShape, cache: Cache = NO_CACHE) -> tuple[dict[str, Tuned], str]:
        return autotune(shapes, CPU, PlainGemm(), self, cache, time_ms=self.time_ms, worth=0.0)


@pytest.mark.parametrize("added", [{}, {"add": True}, {"onto": True}, {"onto": True, "bias": True}])
def test_the_fastest_algorithm_that_computes_the_same_is_chosen(added: dict[str, bool]) -> None:
    """One that adds where it should not, or does not where it should, is neither timed nor chosen."""
    library, shape = FakeLibrary(a=1.5, b=0.1, c=1.0, d=0.2), SHAPE._replace(**added)
    library.wrong, library.refused = {"b"}, {"d"}
    found, note = library.tune(shape)
    assert found == {shape.name: Tuned(algorithm="c", torch_ms=2.0, ms=1.0)}
    assert note == "1 of 1 GEMMs by another algorithm than torch's: 1.00 ms instead of 2.00, one of each; 0 from the cache"


def test_an_algorithm_hardly_faster_than_torchs_is_left() -> None:
    assert FakeLibrary(a=1.995).tune(SHAPE)[0] == {}


def test_small_gemms_are_left_to_torch() -> None:
    assert autotune([SHAPE], CPU, PlainGemm(), FakeLibrary(a=1.0), NO_CACHE) == ({}, "GEMMs too small to be tuned")


def test_where_memory_is_short_that_gemm_alone_is_torchs() -> None:
    library, other = FakeLibrary(a=1.0), SHAPE._replace(rows=8)
    library.full = {SHAPE}
    assert list(library.tune(SHAPE, other)[0]) == [other.name]


def test_what_was_tuned_is_known_to_the_next_process_and_verified_again(tmp_path: Path) -> None:
    library, path = FakeLibrary(a=1.5, c=1.0), tmp_path / "new" / "gemm-x-13.json"
    first, _ = library.tune(SHAPE, cache=Cache(path))
    library.ms["a"] = 0.5
    found, note = library.tune(SHAPE, cache=Cache(path))
    assert found == first and note.endswith("1 from the cache")
    library.wrong = {"c"}
    found, note = library.tune(SHAPE, cache=Cache(path))
    assert found[SHAPE.name].algorithm == "a" and note.endswith("0 from the cache")
    assert library.tune(SHAPE, cache=Cache(path))[1].endswith("1 from the cache")


def test_processes_that_tune_at_a_time_keep_each_others_finds(tmp_path: Path) -> None:
    one, two = Tuned(algorithm="a", torch_ms=2.0, ms=1.5), Tuned(algorithm="", torch_ms=1.0, ms=1.0)
    path = tmp_path / "gemm-x-13.json"
    first, second, other = Cache(path), Cache(path), SHAPE._replace(add=True)
    first.add({SHAPE.name: one})
    second.add({other.name: two})
    third = Cache(path)
    assert (third.get(SHAPE), third.get(other), third.get(SHAPE._replace(left_t=True))) == (one, two, None)


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", '{"sha256": "", "gemms": []}', '{"sha256": 1, "gemms": {"x": 3}}', "\0"])
def test_a_cache_that_cannot_be_read_is_an_empty_one(text: str, tmp_path: Path) -> None:
    path, library = tmp_path / "gemm-x-13.json", FakeLibrary(a=1.0)
    path.write_text(text)
    assert library.tune(SHAPE, cache=Cache(path))[0]
    assert Cache(path).get(SHAPE) is not None


def test_a_cache_of_another_device_or_with_another_algorithm_written_in_is_an_empty_one(tmp_path: Path) -> None:
    path, foreign = tmp_path / "gemm-x-13.json", tmp_path / "gemm-y-13.json"
    FakeLibrary(a=1.0).tune(SHAPE, cache=Cache(path))
    foreign.write_text(path.read_text())
    path.write_text(path.read_text().replace('"algorithm": "a"', '"algorithm": "b"'))
    assert Cache(path).get(SHAPE) is None and Cache(foreign).get(SHAPE) is None


def test_the_cache_is_in_the_users_folder_and_without_a_home_there_is_none(monkeypatch: pytest.MonkeyPatch,
                                                                           tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.of(CPU, 13).path == tmp_path / "seatrial" / "gemm-cpu-13.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert Cache.of(CPU, 13).path is None
    assert FakeLibrary(a=1.0).tune(SHAPE, cache=Cache.of(CPU, 13))[0]


def test_a_cache_that_cannot_be_written_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert FakeLibrary(a=1.0).tune(SHAPE, cache=Cache(tmp_path / "file" / "gemm-x-13.json"))[0]
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_tuned_gemm_computes_its_shape_and_no_other() -> None:
    library, x, w, b = FakeLibrary(a=1.0), some(16, 64), some(32, 64), some(32)
    shapes = [SHAPE, SHAPE._replace(bias=True), SHAPE._replace(add=True), SHAPE._replace(rows=8)]
    found, _ = library.tune(shapes[1], shapes[2])
    library.ran.clear()
    gemm = TunedGemm(found, shapes, CPU, PlainGemm(), library)
    torch.testing.assert_close(gemm(x, w.t(), b), x @ w.t() + b)
    out = some(16, 32)
    torch.testing.assert_close(gemm.into(out.clone(), x, w.t(), alpha=0.5, add=True), out + 0.5 * (x @ w.t()))
    assert library.ran == [("a", 1.0, True), ("a", 0.5, False)]
    torch.testing.assert_close(gemm(x, w.t()), x @ w.t())
    torch.testing.assert_close(gemm(x, w.t().contiguous(), b), x @ w.t() + b)
    torch.testing.assert_close(gemm.into(out.clone(), x, w.t(), alpha=0.5), 0.5 * (x @ w.t()))
    torch.testing.assert_close(gemm(some(16, 128)[:, :64], w.t(), b), some(16, 128)[:, :64] @ w.t() + b)
    gemm.into(some(16, 64)[:, :32], x, w.t(), add=True)
    assert len(library.ran) == 2


def test_a_scaled_gemm_is_tuned_where_its_operands_are_in_eight_bits() -> None:
    one, x, w = torch.ones(1), some(16, 64).to(fp8.GRADIENT), some(32, 64).to(fp8.FORWARD)
    shape = GemmShape(16, 32, 64, fp8.GRADIENT, fp8.FORWARD, torch.bfloat16, right_t=True, fast=True)
    library = FakeLibrary(a=1.0)
    found, _ = library.tune(shape)
    library.ran.clear()
    gemm, expected = TunedGemm(found, [shape], CPU, PlainGemm(), library), fp8.scaled_gemm(x, w, one, one)
    torch.testing.assert_close(gemm.scaled(x, w, one, one), expected)
    torch.testing.assert_close(gemm.scaled(x, w, one, one, out=torch.empty_like(expected)), expected)
    assert len(library.ran) == 2
    gemm.scaled(x, w, one, one, fast=False)
    gemm.scaled(x, w, one, one, out_dtype=FP32)
    assert len(library.ran) == 2


def config_of(library: FakeLibrary, trial: Trial = TRIAL) -> KernelConfig:
    config = replace(KernelConfig.of(torch.device("cuda"), "bf16"), triton=(), attention="default")
    return replace(config, gemm_algorithms=library.tune(*gemm_shapes(trial, config))[0], cublaslt_version=library.version)


def test_tuned_algorithms_survive_being_sent_and_the_events_have_their_gains() -> None:
    config = config_of(FakeLibrary(QUJD=1.0))
    assert config.gemm_algorithms and KernelConfig.of_plain(json.loads(json.dumps(config.plain()))) == config
    told = json.dumps(config.summary())
    assert "QUJD" not in told and all(name in told for name in config.gemm_algorithms) and "1.000 ms instead of 2.000" in told


def test_a_rank_refuses_algorithms_of_another_library_and_those_that_compute_something_else() -> None:
    library, config = FakeLibrary(a=1.0), config_of(FakeLibrary(a=1.0))

    def why(library: FakeLibrary | None) -> str | None:
        return refusal(config, TRIAL, CPU, Fp32Gemm(), library)

    # Small bf16 operands: fp32 results of 16-bit GEMMs are a GPU's, and stand aside.
    config = replace(config, gemm_algorithms={n: t for n, t in config.gemm_algorithms.items() if "fp32" not in n})
    assert why(library) is None
    assert why(FakeLibrary(version=12, a=1.0)) == "GEMM algorithms of cuBLASLt 13 (12 here)"
    assert why(None) == "GEMM algorithms of cuBLASLt 13 (none here)"
    library.wrong = {"a"}
    assert (why(library) or "").startswith("the algorithm tuned for GEMM ")
    assert refusal(KernelConfig(), TRIAL, CPU, Fp32Gemm(), None) is None


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8", "fp32"])
def test_gemms_are_tuned_in_few_bits_on_a_gpu_unless_compiled(precision: str) -> None:
    cuda = torch.device("cuda")
    assert KernelConfig.of(cuda, precision).tuned_gemm is (precision != "fp32")
    assert not KernelConfig.of(cuda, precision, Execution(compile=True)).tuned_gemm
    assert not KernelConfig.of(CPU, precision).tuned_gemm


def test_on_a_cpu_nothing_is_tuned_even_if_asked_for() -> None:
    assert choose(TRIAL, CPU, KernelConfig(tuned_gemm=True)) == (KernelConfig(), {})


@pytest.mark.parametrize("family, precision, mbs", [("gpt2", "bf16", 4), ("gpt2", "bf16", 2), ("bloom", "bf16", 4),
                                                    ("llama", "bf16", 4), ("llama", "bf16", 2), ("gpt2", "fp8", 4)])
def test_the_shapes_are_those_that_a_step_computes(family: Any, precision: Any, mbs: int) -> None:
    asked, described = gemms_of_a_step(replace(MODEL, family=family), Topology(mbs=mbs, precision=precision))
    assert asked == described
