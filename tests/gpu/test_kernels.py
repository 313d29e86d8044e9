"""On a CUDA device each kernel is plain torch's function, and the blocks built on them train as the CPU's do."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from seatrial.engine.core.masters import merge_bits, split_bits
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.fast import fp8
from seatrial.engine.fast.choose import build, choose, ops_for
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.kernels import FP8, NAMES, plain, triton_kernels
from seatrial.engine.fast.kernels.scaling import Scales
from seatrial.engine.fast.kernels.verified import CLOSE, CLOSE_FP8, difference
from seatrial.engine.fast.ops import Fp32Gemm
from seatrial.engine.fast.tuned_gemm import Cache, TunedGemm, autotune, cublaslt, gemm_shapes
from seatrial.engine.io.data import Batches
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Recompute, Topology, Trial

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)
in_eight_bits = pytest.mark.skipif(not torch.cuda.is_available() or fp8.refuse(CUDA) is not None,
                                   reason="the device has no 8-bit products")
MODEL = Model(layers=2, hidden=128, heads=4, vocab=301, seq=32)
MODELS = {
    "gpt2": MODEL, "llama": replace(MODEL, family="llama", kv_heads=2, vocab=320), "qwen2": replace(MODEL, family="qwen2"),
    "qwen3": replace(MODEL, family="qwen3", kv_heads=1, head_dim=64),
}


@pytest.mark.parametrize("hidden", [768, 2048, 4096, 14336])
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_plain_torchs(name: str, hidden: int) -> None:
    limit = CLOSE_FP8 if name in FP8 else CLOSE
    assert difference(name, triton_kernels()[name], device=CUDA, dtype=torch.bfloat16, hidden=hidden) <= limit


@in_eight_bits
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_what_is_cast_both_ways_is_the_same_byte_for_byte_and_saturates(scale: float) -> None:
    """A compiler once stored bytes of the turn before in the transposed one."""
    scales, kernels = Scales(CUDA, capacity=2), triton_kernels()
    e5, e4 = scales.state(torch.float8_e5m2), scales.state(torch.float8_e4m3fn)
    e5.scale.fill_(scale), e4.scale.fill_(scale)
    one, two, three, four = (torch.randn(8192, 2048, device=CUDA, dtype=torch.bfloat16) for _ in range(4))
    d, d_t, g_t, _ = kernels["gelu_backward8"](four, one, e5, e4)
    pre, narrow = torch.cat((one, two), 1), three[:, :512].contiguous()
    dg, dg_t, gg_t, _ = kernels["gated_backward8"](four, pre, e5, e4)
    found = [(d, d_t), (kernels["gelu8"](one, e4), g_t), (dg, dg_t), (kernels["gated8"](pre, e4), gg_t),
             kernels["cat_qkv8"]((one, two, three), e5)[:2], kernels["cat_qkv8"]((one, narrow, narrow), e5)[:2],
             kernels["cast8"](one, e4, cols=True), kernels["cast8"](two, e5, cols=True)]
    for eight, transposed in found:
        assert torch.equal(transposed.view(torch.int8), eight.view(torch.int8).t())
        assert eight.float().isfinite().all()
        assert scale == 1.0 or eight.float().abs().amax() == torch.finfo(eight.dtype).max


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_rows_of_common_and_rare_tokens_are_added_up_the_same_every_time(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    rows = (5000 ** torch.rand(16384, device=CUDA, dtype=torch.float64)).long() - 1
    assert rows.bincount().max() > 1000
    before, values = torch.randn(4900, 2048, device=CUDA).to(kind), torch.randn(16384, 2048, device=CUDA).bfloat16()
    expected, found, again = before.clone(), before.clone(), before.clone()
    plain.add_rows(expected, rows, values)
    for place in (found, again):
        triton_kernels()["add_rows"](place, rows, values)
    assert torch.equal(found, again)
    torch.testing.assert_close(found, expected, rtol=1e-2 if kind == torch.bfloat16 else 1e-4, atol=1e-3)


def engine_of(trial: Trial, recipe: Recipe, config: KernelConfig | None = None) -> Engine:
    mesh = Mesh(trial.topology, device=CUDA)
    ops, _, notes = ops_for(trial, mesh, config)
    assert not any("plain torch is used" in note for note in notes.values()), notes
    return Engine(trial, recipe, mesh, ops=ops)


def losses(precision: str, recompute: Recompute = "none", *, model: Model = MODEL, mbs: int = 4,
           **changed: object) -> list[float]:
    """At a step size of 1e-2 the fifth loss of qwen3 moves by 2.7 % with the last bit of its weights, at 3e-3 by 0.06 %."""
    topology = Topology(precision=precision, recompute=recompute, mbs=mbs)  # type: ignore[arg-type]
    trial, recipe = Trial(model=model, batch=Batch(gbs=4), topology=topology), Recipe(steps=5, lr=3e-3)
    config = replace(KernelConfig.of(CUDA, precision), **changed)  # type: ignore[arg-type]
    engine = engine_of(trial, recipe, config)
    batches = Batches(recipe, model, recipe.seed)
    return [engine.step(i + 1, first_sample=4 * i, batches=batches).loss for i in range(recipe.steps)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("recompute", "mbs"), [("none", 4), ("none", 2), ("selective", 4), ("full", 2)])
def test_fused_blocks_train_as_ordinary_ones(recompute: Recompute, mbs: int, name: str) -> None:
    expected = losses("bf16", model=MODELS[name], mbs=mbs, fused=False, triton=(), narrow_gradients=False)
    assert losses("bf16", recompute, model=MODELS[name], mbs=mbs) == pytest.approx(expected, rel=5e-3)


def test_split_masters_train_as_whole_ones() -> None:
    """One kernel, the same arithmetic: weights differ where a master lies between two, as one in 65,536 does."""
    assert losses("bf16") == pytest.approx(losses("bf16", split_masters=False), rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["adamw", "adamw_split"])
def test_the_update_of_moments_in_16_bits_rounds_them_as_plain_torch_does(name: str, dtype: torch.dtype) -> None:
    found = difference(name, triton_kernels()[name], device=CUDA, dtype=dtype, hidden=14336, moments=torch.bfloat16)
    assert found <= 1e-3


@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp16"])
def test_moments_in_bf16_train_as_those_in_fp32(precision: str) -> None:
    """In fp32, too, the update is the kernel's: torch's own takes one type alone."""
    found = {}
    for moments in ("bf16", "fp32"):
        recipe = Recipe(steps=5, lr=1e-3)
        topology = Topology(mbs=4, precision=precision)  # type: ignore[arg-type]
        trial = Trial(model=MODEL, batch=Batch(gbs=4), topology=topology, execution=Execution(moments=moments))
        # Each engine would time the attention backends for itself, and on so small a shape now one, now another is the fastest.
        config = replace(KernelConfig.of(CUDA, precision, trial.execution), attention="efficient")
        engine = engine_of(trial, recipe, config)
        assert (engine.optimizer.one_pass is None) is ((precision, moments) == ("fp32", "fp32"))
        batches = Batches(recipe, MODEL, recipe.seed)
        found[moments] = [engine.step(i + 1, first_sample=4 * i, batches=batches).loss for i in range(recipe.steps)]
    assert found["bf16"] == pytest.approx(found["fp32"], rel=2e-3) and found["bf16"][0] == found["fp32"][0]


@pytest.mark.parametrize("held", [torch.float32, torch.bfloat16])
def test_the_split_update_is_that_of_whole_masters_to_the_last_bit(held: torch.dtype) -> None:
    kernels = triton_kernels()
    drawn = torch.Generator(device=CUDA).manual_seed(0)
    master, first, grad = (torch.randn(100_000, generator=drawn, device=CUDA) for _ in range(3))
    second, grad = torch.rand(100_000, generator=drawn, device=CUDA).to(held), grad.bfloat16()
    first = first.to(held)
    (weights, rest), moments = split_bits(master), (first.clone(), second.clone())
    numbers = torch.tensor([1.5, 1e-5, 0.8, 0.0], device=CUDA)
    named = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "keep": 0.9999}
    for _ in range(20):
        kernels["adamw"](master, grad, first, second, None, numbers, **named)
        kernels["adamw_split"](weights, rest, grad, *moments, numbers, **named)
    assert torch.equal(merge_bits(weights, rest), master)
    assert torch.equal(moments[0], first) and torch.equal(moments[1], second)


@in_eight_bits
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_eight_bits_train(recompute: Recompute, name: str) -> None:
    assert losses("fp8", recompute, model=MODELS[name]) == pytest.approx(losses("bf16", model=MODELS[name]), rel=2e-2)


LARGE = Model(layers=1, hidden=1024, heads=8, vocab=5000, seq=1024)
"""Large enough for its GEMMs to be tuned."""


tuned_precisions = pytest.mark.parametrize("precision", ["bf16", "fp16", pytest.param("fp8", marks=in_eight_bits)])


@tuned_precisions
def test_a_tuned_gemm_is_torchs(precision: str, tmp_path: Path) -> None:
    """By the last algorithm that the heuristic offers, which is seldom torch's; then again from the cache."""
    trial = Trial(model=LARGE, batch=Batch(gbs=8), topology=Topology(mbs=4, precision=precision))  # type: ignore[arg-type]
    config, library, path, plain_gemm = KernelConfig.of(CUDA, precision), cublaslt(), tmp_path / "gemm.json", Fp32Gemm()
    assert library is not None
    shapes = gemm_shapes(trial, config)
    found, _ = autotune(shapes, CUDA, plain_gemm, library, Cache(path), worth=0.0,
                        time_ms=lambda ways: {algorithm: 1 / (1 + at) for at, algorithm in enumerate(ways)})
    assert set(found) == {shape.name for shape in shapes}
    gemm = TunedGemm(found, shapes, CUDA, plain_gemm, library)

    def operand(rows: int, cols: int, turned: bool, dtype: torch.dtype) -> torch.Tensor:
        made = torch.randn(*((cols, rows) if turned else (rows, cols)), device=CUDA).to(dtype)
        return made.t() if turned else made

    for shape in shapes:
        left = operand(shape.rows, shape.inner, shape.left_t, shape.left)
        right = operand(shape.inner, shape.cols, shape.right_t, shape.right)
        bias = torch.randn(shape.cols, device=CUDA).to(shape.out) if shape.bias else None
        before = torch.full((shape.rows, shape.cols), 30.0, device=CUDA, dtype=shape.out)
        if shape.left.itemsize == 1:
            scales = torch.full((1,), 0.5, device=CUDA), torch.full((1,), 4.0, device=CUDA)
            onto = before if shape.onto else None
            ours = gemm.scaled(left, right.t(), *scales, bias=bias, onto=onto, fast=shape.fast)
            torchs = fp8.scaled_gemm(left, right.t(), *scales, bias=bias, onto=onto, fast=shape.fast)
        elif bias is not None or shape.onto:
            onto = before if shape.onto else None
            ours, torchs = gemm(left, right, bias, onto), plain_gemm(left, right, bias, onto)
        else:
            ours, torchs = (g.into(before.clone(), left, right, alpha=0.5, add=shape.add) for g in (gemm, plain_gemm))
        assert (ours.float() - torchs.float()).norm() / torchs.float().norm() < 1e-2, shape.name
    assert autotune(shapes, CUDA, plain_gemm, library, Cache(path), worth=0.0)[1].endswith(f"; {len(shapes)} from the cache")


@tuned_precisions
def test_an_engine_with_tuned_gemms_trains_as_one_without(precision: str, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    topology, recipe = Topology(mbs=8, precision=precision), Recipe(steps=4, lr=1e-3)  # type: ignore[arg-type]
    trial, found = Trial(model=replace(LARGE, vocab=20000), batch=Batch(gbs=16), topology=topology), {}
    for tuned in (True, False):
        config = replace(KernelConfig.of(CUDA, precision), attention="flash", tuned_gemm=tuned)
        config, notes = choose(trial, CUDA, config)
        assert ("tuned gemm" in notes) is tuned and config.tuned_gemm is tuned
        ops = build(config, trial, CUDA)
        assert isinstance(ops.gemm, TunedGemm) is bool(config.gemm_algorithms)
        engine = Engine(trial, recipe, Mesh(topology, device=CUDA), ops=ops)
        batches = Batches(recipe, trial.model, recipe.seed)
        found[tuned] = [engine.step(i + 1, first_sample=16 * i, batches=batches).loss for i in range(recipe.steps)]
    assert found[True] == pytest.approx(found[False], rel=2e-3)
