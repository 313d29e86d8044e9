"""Laws of the engine's core that one process can show."""
from __future__ import annotations

import itertools
import math
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from seatrial.engine.core import autograd
from seatrial.engine.core.comm import Comm, TensorParallel
from seatrial.engine.core.loss import token_loss
from seatrial.engine.core.mesh import Group, Mesh
from seatrial.engine.core.ops import Ops
from seatrial.engine.core.optim import LossScale, learning_rate
from seatrial.engine.core.params import Layout, ParamSpec, Segment, fill_normal, spec_of
from seatrial.engine.core.step import Engine, StepResult
from seatrial.engine.io.data import Batches
from seatrial.engine.watch.timers import Timers
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

CPU = torch.device("cpu")
TINY = Model(layers=2, hidden=32, heads=4, vocab=101, seq=16)


def build(model: Model = TINY, recipe: Recipe | None = None, execution: Execution = Execution(),
          **layout: object) -> tuple[Engine, Batches]:
    recipe = recipe or Recipe(lr=1e-2)
    trial = Trial(model=model, batch=Batch(gbs=4), topology=Topology(**layout),  # type: ignore[arg-type]
                  execution=execution)
    return Engine(trial, recipe, Mesh(trial.topology, device=CPU)), Batches(recipe, model, recipe.seed)


def steps(engine: Engine, batches: Batches, count: int) -> list[StepResult]:
    return [engine.step(i + 1, first_sample=4 * i, batches=batches) for i in range(count)]


# initial values


def test_a_slice_of_initial_values_is_the_slice_of_the_whole() -> None:
    whole = torch.empty(300, 7)
    fill_normal(whole, seed=1, name="x", first=0, std=0.02)
    part = torch.empty(40, 7)
    fill_normal(part, seed=1, name="x", first=100 * 7, std=0.02)
    assert torch.equal(part, whole[100:140])


def test_initial_values_are_normal_and_differ_by_name_and_seed() -> None:
    def values(seed: int, name: str) -> torch.Tensor:
        out = torch.empty(600_000)
        fill_normal(out, seed=seed, name=name, first=0, std=1.0)
        return out.double()

    x = values(1, "x")
    # Moments of 600,000 draws: four standard errors.
    assert abs(x.mean()) < 4 / 775 and abs(x.var() - 1) < 4 * math.sqrt(2) / 775
    assert abs((x**4).mean() - 3) < 4 * math.sqrt(96) / 775
    assert abs((x[:-1] * x[1:]).mean()) < 4 / 775
    for other in (values(2, "x"), values(1, "y")):
        assert abs((x * other).mean()) < 4 / 775


# flat buckets


def specs() -> list[ParamSpec]:
    def spec(name: str, *shape: int, rows: int | None = None, split: bool = True, decay: bool = True) -> ParamSpec:
        segment = Segment(name=name, global_shape=shape, start=0, rows=rows or shape[0])
        return ParamSpec(segments=(segment,), split=split, decay=decay, fill="normal")

    return [spec("norm", 8, split=False, decay=False), spec("w", 5, 8), spec("bias", 11, decay=False),
            spec("vocab", 13, 8, rows=16), spec("positions", 6, 8, split=False)]


def _group(rank: int, size: int) -> Group:
    return Group(name="", ranks=tuple(range(size)), rank=rank, handle=None)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_shards_cover_every_number_once_and_cut_between_rows(shards: int) -> None:
    layout = Layout(specs(), hidden=8, shards=shards)
    seen: dict[str, list[int]] = {}
    for rank in range(shards):
        for piece in layout.pieces(*_group(rank, shards).part(0, layout.size)):
            width = math.prod(piece.segment.global_shape[1:])
            assert piece.numel == piece.rows * width
            seen.setdefault(piece.segment.name, []).extend(range(piece.row, piece.row + piece.rows))
    assert {name: sorted(rows) for name, rows in seen.items()} == {
        s.segments[0].name: list(range(s.segments[0].global_shape[0])) for s in specs()}


def test_what_tensor_parallel_ranks_have_alike_is_one_stretch() -> None:
    layout = Layout(specs(), hidden=8, shards=2)
    whole = layout.stretches(0, layout.size, split=False)
    assert sum(b - a for a, b in whole) == 8 + 48
    assert whole[-1][1] - whole[0][0] == 8 + 48


# loss


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_loss_and_gradients_are_those_of_cross_entropy_and_padding_gets_none(chunk: int) -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(2, 6, 8, requires_grad=True), torch.randn(40, 8, requires_grad=True)
    targets = torch.randint(0, 33, (2, 6))
    expected = F.cross_entropy((hidden @ weight[:33].t()).flatten(0, 1), targets.flatten(), reduction="sum")
    expected.backward()

    class Adding:
        total = torch.zeros(40, 8)

        def add_gemm(self, left: torch.Tensor, right: torch.Tensor, alpha: float = 1.0, last: bool = True) -> None:
            self.total += alpha * (left.t() @ right)

    plain = weight.detach().clone()
    plain.main_grad = Adding()  # type: ignore[attr-defined]
    tp = TensorParallel(Comm(Mesh(Topology(), device=CPU), Timers()))
    total, d_hidden = token_loss(hidden.detach(), plain, targets, tp, vocab=33, chunk=chunk, scale=0.5, ops=Ops())
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    assert hidden.grad is not None and weight.grad is not None and d_hidden is not None
    torch.testing.assert_close(d_hidden, 0.5 * hidden.grad, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(plain.main_grad.total, 0.5 * weight.grad, rtol=1e-5, atol=1e-6)  # type: ignore[attr-defined]
    assert not plain.main_grad.total[33:].any()  # type: ignore[attr-defined]


def test_a_hopeless_target_has_a_finite_loss() -> None:
    """Its probability is zero in fp32; its loss is not infinite."""
    weight = torch.tensor([[300.0], [-300.0]])
    weight.main_grad = None  # type: ignore[attr-defined]
    tp = TensorParallel(Comm(Mesh(Topology(), device=CPU), Timers()))
    total, _ = token_loss(torch.ones(1, 1, 1), weight, torch.tensor([[1]]), tp, vocab=2, chunk=8, scale=None, ops=Ops())
    assert total.item() == pytest.approx(600.0)


# updates


def test_fused_and_plain_adamw_agree() -> None:
    found = [[r.loss for r in steps(*build(execution=Execution(optimizer=name)), 4)]  # type: ignore[arg-type]
             for name in ("adamw-fused", "adamw-plain")]
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_only_matrices_decay() -> None:
    engine, _ = build()
    decaying = {n for b in engine.buckets for p in b.params if spec_of(p).decay for n in (s.name for s in spec_of(p).segments)}
    every = {s.name for s in engine.shards()}
    assert decaying == {n for n in every if n.endswith("weight") and "norm" not in n}


def test_clipping_bounds_the_update_not_the_reported_norm() -> None:
    loose = steps(*build(recipe=Recipe(lr=1e-2, clip=0.0)), 2)
    tight = steps(*build(recipe=Recipe(lr=1e-2, clip=1e-3)), 2)
    assert loose[0].grad_norm == tight[0].grad_norm > 1e-3
    assert loose[1].loss != tight[1].loss


@pytest.mark.parametrize("optimizer", ["adamw-fused", "adamw-plain"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_step_that_is_not_finite_changes_nothing(optimizer: str, precision: str) -> None:
    engine, batches = build(execution=Execution(optimizer=optimizer), precision=precision)  # type: ignore[arg-type]
    steps(engine, batches, 1)
    before = [s.tensor.clone() for s in engine.shards()]
    scale = engine.loss_scale.value
    bad = engine.step(2, first_sample=4, batches=batches, poison=True)
    assert bad.skipped and math.isnan(bad.loss)
    assert all(torch.equal(a, s.tensor) for a, s in zip(before, engine.shards()))
    assert engine.optimizer.steps_done.item() == 1
    assert engine.loss_scale.value == (scale / 2 if precision == "fp16" else 1.0)
    good = engine.step(3, first_sample=4, batches=batches)
    assert not good.skipped and math.isfinite(good.loss)


def test_loss_scale_halves_on_overflow_and_doubles_after_a_good_stretch() -> None:
    scale = LossScale("fp16", Recipe(loss_scale=1024.0, loss_scale_window=3))
    scale.update(overflowed=True)
    assert scale.value == 512.0
    for _ in range(3):
        scale.update(overflowed=False)
    assert scale.value == 1024.0


def test_learning_rate_warms_up_and_falls_to_its_floor() -> None:
    recipe = Recipe(steps=100, lr=1e-3, min_lr=1e-4, warmup_steps=10)
    rates = [learning_rate(recipe, s) for s in range(1, 121)]
    assert rates[:10] == pytest.approx([1e-4 * i for i in range(1, 11)])
    assert all(a >= b for a, b in itertools.pairwise(rates[9:]))
    assert rates[54] == pytest.approx((1e-3 + 1e-4) / 2)
    assert rates[99:] == pytest.approx([1e-4] * 21)


# precision, recompute


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 1e-2), ("fp16", 2e-3)])
@pytest.mark.parametrize("family", ["gpt2", "bloom", "llama"])
def test_low_precision_follows_fp32(precision: str, tolerance: float, family: str) -> None:
    model = Model(layers=2, hidden=32, heads=4, vocab=101, seq=16, family=family)  # type: ignore[arg-type]
    wide = [r.loss for r in steps(*build(model), 4)]
    low = [r.loss for r in steps(*build(model, precision=precision), 4)]
    assert low == pytest.approx(wide, rel=tolerance) and low != wide


def test_gradients_that_autograd_keeps_to_itself_are_the_same() -> None:
    """Compiled blocks cannot write into buckets: they take the plain way."""
    direct, plain = build(), build()
    plain[0].tp.direct = False
    assert [r.loss for r in steps(*plain, 3)] == pytest.approx([r.loss for r in steps(*direct, 3)], rel=1e-6)


def test_evaluation_gives_the_training_loss_and_changes_nothing() -> None:
    engine, batches = build()
    held = engine.evaluate(batches, first_sample=0, samples=4)
    assert engine.step(1, first_sample=0, batches=batches).loss == pytest.approx(held, rel=1e-6)


def test_starting_the_engine_does_not_import_the_compiler_or_torchs_checkpoints() -> None:
    """Each takes about as long as torch itself, in every process of a run that may need neither."""
    code = "import sys, seatrial.engine.loop; print({'torch._dynamo', 'torch.distributed.checkpoint'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "set()\n", found.stdout + found.stderr


def test_gradients_that_are_given_go_back_as_torch_takes_them() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    given = torch.randn(3, 4)
    (expected,) = torch.autograd.grad(x.sin(), x, given)
    assert torch.equal(autograd.gradients([x.sin()], [x], [given])[0], expected)
    autograd.backward([x.sin()], [given])
    assert x.grad is not None and torch.equal(x.grad, expected)


@pytest.mark.parametrize("kept", [True, False])
def test_bytecode_goes_to_the_cache_where_it_cannot_stay_beside_the_sources(tmp_path: Path, kept: bool) -> None:
    package = tmp_path / "big"
    package.mkdir()
    (package / "__init__.py").write_text("")
    if kept:
        py_compile.compile(str(package / "__init__.py"))
    code = "import sys; from seatrial.engine import bytecode; bytecode.keep('big'); import big; print(sys.pycache_prefix)"
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(tmp_path / "cache"),
           "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}  # fmt: skip
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert found.stdout == f"{None if kept else tmp_path / 'cache' / 'seatrial' / 'bytecode'}\n", found.stderr
    assert bool(list((tmp_path / "cache").rglob("big/__init__*.pyc"))) is not kept
