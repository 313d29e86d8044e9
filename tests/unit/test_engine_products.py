"""Products: torch's where nothing was chosen, the chosen kernel where one was, and every product of a block among the forms."""
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seatrial.engine.core import step
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.fast import products
from seatrial.engine.fast.choices import Choices
from seatrial.engine.fast.cublaslt import Form, kernels
from seatrial.engine.fast.product_notes import Choice, Notebook
from seatrial.engine.fast.products import Products, measured
from seatrial.engine.io.data import Batches
from seatrial.spec import Batch, Execution, Model, Topology, Trial
from seatrial.training import Training

MODEL = Model(layers=2, hidden=64, heads=4, vocab=301, seq=32)
CHOICES = Choices(fused=True, residual_in_product=True, narrow_gradients=True, products="measured", logits_bytes=2**15)


def some(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_without_a_choice_products_are_torchs() -> None:
    x, w, b = some(6, 8), some(4, 8), some(4)
    torch.testing.assert_close(Products()(x, w.t(), b), torch.nn.functional.linear(x, w, b), rtol=0, atol=0)
    out = some(6, 4)
    expected = out + 0.5 * (x @ w.t())
    assert Products().into(out, x, w.t(), alpha=0.5, add=True) is out
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(Products().into(out.fill_(torch.nan), x, w.t()), x @ w.t())


def test_without_a_choice_nobody_asks_where_tensors_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a rehearsal lie nowhere, and torch warns of asking."""
    def asked(_tensor: Tensor) -> int:
        raise AssertionError("asked for an address")

    monkeypatch.setattr(Tensor, "data_ptr", asked)
    Products()(some(6, 8), some(8, 4), some(4))
    Products().into(some(6, 4), some(6, 8), some(8, 4))


class Chosen:
    def __init__(self) -> None:
        self.calls: list[tuple[float, bool]] = []

    def __call__(self, left: Tensor, right: Tensor, out: Tensor, *, alpha: float = 1.0, bias: Tensor | None = None,
                 scales: Any = None) -> None:
        self.calls.append((alpha, bias is not None))
        out.copy_(alpha * (left @ right) + (0.0 if bias is None else bias))


def test_a_chosen_kernel_computes_its_form_and_no_other() -> None:
    kernel, x, w, b = Chosen(), some(6, 8), some(4, 8), some(4)
    form = Form(rows=6, cols=4, inner=8, right_t=True, bias=True, left=x.dtype, right=x.dtype, out=x.dtype)
    product = Products({form: kernel})  # type: ignore[dict-item]
    torch.testing.assert_close(product(x, w.t(), b), x @ w.t() + b)
    product(x, w.t())
    product(x, w.t().contiguous(), b)
    product.into(some(6, 4), x, w.t())
    assert kernel.calls == [(1.0, True)]


def test_an_operand_that_is_part_of_a_wider_matrix_has_no_form() -> None:
    wide = some(6, 16)
    assert Form.of(wide[:, :8], some(8, 4), torch.float32) is None
    assert Form.of(wide[:3], some(16, 4), torch.float32) is not None
    turned = Form.of(some(8, 6).t(), some(8, 4), torch.float32)
    assert turned is not None and turned.left_t and not turned.right_t


def test_without_a_gpu_there_is_nothing_to_choose() -> None:
    form = Form(rows=4096, cols=4096, inner=4096)
    assert kernels(form, torch.device("cpu")) == []
    assert measured([replace(form, rows=16)], torch.device("cpu"))[0].chosen == {}


def test_what_was_chosen_is_known_to_the_next_process(tmp_path: Path) -> None:
    cpu, form = torch.device("cpu"), Form(rows=64, cols=32, inner=16, bias=True)
    first, second = Notebook(cpu, tmp_path), Notebook(cpu, tmp_path)
    first.put(form, Choice(code="00ff", torch_ms=2.0, ms=1.5))
    second.put(replace(form, add=True), Choice(code="", torch_ms=1.0, ms=1.0))
    first.save()
    second.save()
    third = Notebook(cpu, tmp_path)
    assert third.get(form) == Choice(code="00ff", torch_ms=2.0, ms=1.5)
    assert third.get(replace(form, add=True)) == Choice(code="", torch_ms=1.0, ms=1.0)
    assert third.get(replace(form, left_t=True)) is None


def noted(code: object, ms: object) -> str:
    return json.dumps({"schema": 1, "choices": {"x": {"code": code, "torch_ms": 1.0, "ms": ms}}})


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 99, "choices": {}}', '{"schema": 1, "choices": {"x": 3}}',
                                  noted(5, 1.0), noted("no hex", 1.0), noted("00", None), noted("00", "fast")])
def test_a_notebook_that_cannot_be_read_is_an_empty_one(text: str, tmp_path: Path) -> None:
    cpu, form = torch.device("cpu"), Form(rows=64, cols=32, inner=16)
    path = Notebook(cpu, tmp_path).path
    path.write_text(text.replace('"x"', f'"{form!r}"'))
    notebook = Notebook(cpu, tmp_path)
    assert notebook.get(form) is None
    notebook.put(form, Choice(code="", torch_ms=1.0, ms=1.0))
    notebook.save()
    assert Notebook(cpu, tmp_path).get(form) is not None


def test_who_has_no_home_has_an_empty_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.chdir(tmp_path)
    notebook, form = Notebook(torch.device("cpu")), Form(rows=1, cols=1, inner=1)
    assert notebook.get(form) is None
    notebook.put(form, Choice(code="", torch_ms=1.0, ms=1.0))
    notebook.save()
    assert list(tmp_path.iterdir()) == []


def test_a_notebook_that_cannot_be_written_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    notebook = Notebook(torch.device("cpu"), tmp_path / "file")
    notebook.put(Form(rows=1, cols=1, inner=1), Choice(code="", torch_ms=1.0, ms=1.0))
    notebook.save()
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


class Offered:
    """A kernel of the library, as fast as `ms`; `wrong`: computes something else."""

    def __init__(self, code: str, ms: float = 0.0, wrong: bool = False):
        self.code, self.ms, self.wrong = code, ms, wrong

    def __call__(self, left: Tensor, right: Tensor, out: Tensor, *, alpha: float = 1.0, bias: Tensor | None = None,
                 scales: Any = None) -> None:
        out.copy_(2 * (left @ right) if self.wrong else left @ right)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Offered]:
    """Three kernels; torch's own takes 2 ms."""
    offered = {k.code: k for k in (Offered("aa", 1.5), Offered("bb", 0.1, wrong=True), Offered("cc", 1.0))}

    def kernel_of(code: str, _form: Form, _device: torch.device) -> Offered:
        if code not in offered:
            raise ValueError(code)
        return offered[code]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(products, "WORTH", 0)
    monkeypatch.setattr(products, "version", lambda: 13)
    monkeypatch.setattr(products, "kernels", lambda _form, _device: list(offered.values()))
    monkeypatch.setattr(products, "kernel_of", kernel_of)
    monkeypatch.setattr(products, "_turn", lambda ways, *_: {way: 2.0 if way is None else way.ms for way in ways})
    return offered


def test_the_fastest_kernel_that_is_right_is_chosen_and_remembered(library: dict[str, Offered]) -> None:
    form, cpu = Form(rows=16, cols=32, inner=64, right_t=True), torch.device("cpu")
    found, note = measured([form, form], cpu)
    assert found.chosen == {form: library["cc"]}
    assert note == "1 of 1 forms by another kernel than torch's: 1.00 ms instead of 2.00, one of each; 0 known from before"
    library["aa"].ms = 0.5
    found, note = measured([form], cpu)
    assert found.chosen == {form: library["cc"]} and note.endswith("1 known from before")
    library["cc"].wrong = True
    assert measured([form], cpu)[0].chosen == {form: library["aa"]}
    assert measured([form], cpu)[1].endswith("1 known from before")
    del library["aa"]
    found, note = measured([form], cpu)
    assert found.chosen == {} and note.startswith("0 of 1") and note.endswith("0 known from before")


def test_a_kernel_hardly_faster_than_torchs_is_left(library: dict[str, Offered]) -> None:
    library["aa"].ms = library["cc"].ms = 1.995
    assert measured([Form(rows=16, cols=32, inner=64)], torch.device("cpu"))[0].chosen == {}


def test_where_memory_is_short_the_product_is_torchs(library: dict[str, Offered], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(products, "_operand", full)
    assert measured([Form(rows=16, cols=32, inner=64)], torch.device("cpu"))[0].chosen == {}


class Recording(Products):
    """Asked for, and computed by torch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Form | None] = set()

    def __call__(self, left: Tensor, right: Tensor, bias: Tensor | None = None, **given: Any) -> Tensor:
        self.seen.add(Form.of(left, right, left.dtype, bias=bias is not None))
        return super().__call__(left, right, bias, **given)

    def into(self, out: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, add: bool = False, **given: Any) -> Tensor:
        self.seen.add(Form.of(left, right, out.dtype, add=add))
        return super().into(out, left, right, alpha=alpha, add=add, **given)


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("family", ["gpt2", "bloom"])
def test_the_forms_are_those_that_a_step_computes(family: str, sequence_parallel: bool,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequence parallelism changes nothing where TP is 1."""
    recording, asked = Recording(), []

    def remember(forms: list[Form], _device: torch.device) -> tuple[Products, str]:
        asked.extend(forms)
        return recording, "remembered"

    monkeypatch.setattr(step, "measured", remember)
    topology = Topology(mbs=4, precision="bf16", sequence_parallel=sequence_parallel)
    trial = Trial(model=replace(MODEL, family=family), batch=Batch(gbs=4), topology=topology,
                  execution=Execution(logits_chunk=64))  # type: ignore[arg-type]
    training = Training(steps=2)
    engine = Engine(trial, training, Mesh(topology, device=torch.device("cpu")), choices=CHOICES)
    for number in (1, 2):
        engine.step(number, first_sample=4 * (number - 1), batches=Batches(training, trial.model, training.seed))
    assert recording.seen == set(asked)
    assert engine.notes["kernels of products"] == "remembered"
