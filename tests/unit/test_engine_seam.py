"""The seam between the engine's core and what makes it fast, held by the imports themselves."""
from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from seatrial import engine
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.ops import Ops
from seatrial.engine.core.step import Engine
from seatrial.engine.fast import attention, choose
from seatrial.engine.fast.choose import CannotRun, build
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.fast.kernels import NAMES
from seatrial.errors import BadInput
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Topology, Trial

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
TRIAL = Trial(model=Model(layers=1, hidden=32, heads=4, vocab=101, seq=16), batch=Batch(gbs=1), topology=Topology())
CORE = sorted(Path(engine.__path__[0], "core").glob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_the_core_knows_no_kernel(path: Path) -> None:
    forbidden = ("seatrial.engine.fast", "triton")
    assert not [name for name in imported(path) if name.startswith(forbidden)]
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert not names & {"KernelConfig", "Kernels"}


def test_the_engine_needs_torch_and_the_standard_library_alone() -> None:
    """Itself and all of ours that it imports: a cluster's image has a fixed torch and nothing else."""
    root = Path(engine.__path__[0]).parent
    todo, seen, others = sorted((root / "engine").rglob("*.py")), set(), set()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in imported(path):
            top, *rest = name.split(".")
            if top == "seatrial":
                parts = [root.joinpath(*rest[:n]) for n in range(1, len(rest) + 1)]
                found = [f for part in parts for f in (part.with_suffix(".py"), part / "__init__.py") if f.exists()]
                assert found, f"{path}: {name}"
                todo += found
            elif top not in sys.stdlib_module_names:
                others.add(top)
    assert others == {"torch", "triton"}, others
    assert not {f.relative_to(root).parts[0] for f in seen} & {"plan", "launch", "sweep", "tune", "report", "rehearse"}


def test_without_a_device_of_its_own_everything_is_plain_torch() -> None:
    """Also where they are built by the chooser: on a CPU the two are the same functions."""
    chosen, notes = choose.choose(TRIAL, CPU)
    assert chosen == KernelConfig() and notes == {}
    made, plain = build(chosen, TRIAL, CPU), Ops()
    for field in fields(Ops):
        if field.name in ("gemm", "grouped"):
            assert type(getattr(made, field.name)) is type(getattr(plain, field.name))
        elif field.name != "step_done":
            assert getattr(made, field.name) == getattr(plain, field.name), field.name


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "fp8"])
def test_a_config_survives_being_sent(precision: str) -> None:
    config = KernelConfig.of(CUDA, precision, Execution(moments="bf16"))
    assert config.triton and KernelConfig.of_plain(json.loads(json.dumps(config.plain()))) == config


def test_a_config_is_refused_where_this_rank_cannot_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh, trial = Mesh(Topology(), device=CPU), TRIAL

    def sent(_value: object, _device: torch.device) -> object:
        return KernelConfig(triton=NAMES[:2], fp32_gradient_gemm=True, attention="cudnn").plain()

    monkeypatch.setattr(choose, "broadcast_json", sent)
    monkeypatch.setattr(attention, "works", lambda name, **shape: False)
    with pytest.raises(CannotRun) as refused:
        choose.agree(KernelConfig(), {f"kernel {NAMES[0]}": "differs by 3"}, trial, mesh)
    said = str(refused.value)
    assert "rank 0 chose" in said and torch.__version__ in said
    assert all(word in said for word in (f"{NAMES[0]} (differs by 3)", f"{NAMES[1]} (not tried)", "fp32 results", "cudnn"))


def test_a_precision_that_the_ops_do_not_have_is_refused() -> None:
    topology = Topology(precision="fp8")
    with pytest.raises(BadInput, match="no fp8 on this device; fp32, bf16, fp16 work"):
        Engine(Trial(model=TRIAL.model, batch=Batch(gbs=1), topology=topology), Recipe(), Mesh(topology, device=CPU))
