"""A run that goes on from a checkpoint has the losses of one that never stopped, on any other topology and ZeRO stage.

    pytest tests/dist/test_resume.py
"""
from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dist.looping import go, go_each
from seatrial.engine.core.mesh import Mesh
from seatrial.engine.core.step import Engine
from seatrial.engine.io import checkpoint, indexed
from seatrial.engine.runfile import RunFile
from seatrial.engine.watch import events
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Router, Topology, Trial

STEPS, STOP = 6, 3
MODELS = {
    "gpt2": Model(layers=4, hidden=32, heads=4, vocab=101, seq=16),
    "llama": Model(layers=4, hidden=32, heads=4, vocab=101, seq=16, family="llama", kv_heads=2, ffn=40),
    "qwen3": Model(layers=4, hidden=32, heads=4, vocab=101, seq=16, family="qwen3", kv_heads=2, ffn=40, head_dim=16,
                   norm_eps=1e-3),
    "experts": Model(layers=4, hidden=32, heads=4, vocab=101, seq=16, family="llama", ffn=40, experts=8, expert_ffn=24,
                     shared_experts=1, dense_layers=1, biases="mlp",
                     router=Router(kind="sigmoid", groups=4, group_limit=2, correction=0.05, aux_loss=0.01)),
}
RECIPE = Recipe(steps=STEPS, decay_steps=STEPS, lr=1e-2, min_lr=1e-3, eval_every=STEPS, eval_batches=1,
                    warmup_iterations=0)
EXECUTION = Execution(bucket_mib=0.05)
WRITERS = {
    "one": ("gpt2", {}),
    "zero3": ("gpt2", {"dp": 2, "tp": 2, "zero": 3}),
    "pipeline": ("gpt2", {"tp": 2, "pp": 2, "sequence_parallel": True}),
    "zero1-pp": ("gpt2", {"dp": 2, "pp": 2, "zero": 1}),
    "llama": ("llama", {"dp": 4, "zero": 2}),
    "shared-kv": ("qwen3", {"tp": 4}),
    "cp": ("gpt2", {"dp": 2, "cp": 2, "zero": 3}),
    "hybrid": ("gpt2", {"dp": 4, "zero": 3, "zero_group": 2, "weights_group": 1}),
}
READERS = {
    "one": {}, "tp4": {"tp": 4}, "pp4": {"pp": 4}, "zero2": {"dp": 4, "zero": 2}, "zero3": {"dp": 2, "tp": 2, "zero": 3},
    "interleaved": {"pp": 2, "vp": 2, "dp": 2, "schedule": "interleaved", "zero": 1},
    "cp": {"cp": 4, "zero": 1},
    "groups": {"dp": 4, "zero": 3, "gradients_group": 2},
}  # fmt: skip
BATCH = Batch(gbs=8, rampup_start=4, rampup_increment=4, rampup_samples=16)
PAIRS = [(w, r) for i, w in enumerate(WRITERS) for j, r in enumerate(READERS) if (i + j) % 3 == 0]
"""Every writer and every reader at least once; all pairs that the models allow agree as well."""
WRITERS |= {"ep4": ("experts", {"dp": 4, "ep": 4, "zero": 1}), "etp2": ("experts", {"dp": 2, "pp": 2, "etp": 2, "zero": 3})}
READERS |= {"tp2": {"tp": 2}, "folded": {"tp": 2, "dp": 2, "ep": 4, "etp": 1, "zero": 3},
            "shared": {"dp": 4, "ep": 2, "etp": 2}}
PAIRS += [("ep4", r) for r in ("one", "tp2", "shared", "interleaved")] + [("etp2", r) for r in ("folded", "zero2")]


def run_file(model: Model, layout: dict[str, Any], out: Path, **recipe: Any) -> RunFile:
    trial = Trial(model=model, batch=BATCH, topology=Topology(**layout), execution=EXECUTION)
    return RunFile(trial=trial, recipe=replace(RECIPE, **recipe), out=str(out))


def said(out: Path, kind: str) -> list[float]:
    return [e["loss"] for e in events.read_events(out / events.FILE_NAME) if e["event"] == kind]


def write_corpus(prefix: Path) -> None:
    rng = random.Random(5)
    with indexed.Writer(prefix, vocab=101) as out:
        for _ in range(20):
            out.add([rng.randrange(101) for _ in range(rng.randrange(3, 60))])


@pytest.fixture(scope="module")
def series(tmp_path_factory) -> dict[Any, tuple[list[float], list[float]]]:
    """Losses and the validation loss: of runs that never stopped, and of every reader of every writer's checkpoint."""
    folder = tmp_path_factory.mktemp("resume")
    whole = {name: run_file(model, {}, folder / name) for name, model in MODELS.items()}
    writers = {w: run_file(MODELS[m], layout, folder / f"w-{w}", steps=STOP, checkpoint_dir=str(folder / f"c-{w}"))
               for w, (m, layout) in WRITERS.items()}
    write_corpus(folder / "corpus")
    on_corpus = {f"corpus {w}": run_file(MODELS["gpt2"], WRITERS[w][1], folder / f"d-{w}", data=str(folder / "corpus"),
                                         valid_data=str(folder / "corpus")) for w in ("one", "zero3", "zero1-pp", "cp")}
    go_each([*whole.values(), *writers.values(), *on_corpus.values()])
    readers = {}
    for w, r in PAIRS:
        shutil.copytree(folder / f"c-{w}", folder / f"c-{w}-{r}")
        readers[w, r] = run_file(MODELS[WRITERS[w][0]], READERS[r], folder / f"r-{w}-{r}", resume=True,
                                 checkpoint_dir=str(folder / f"c-{w}-{r}"))
    go_each(list(readers.values()))
    return {key: (said(Path(run.out), "iteration"), said(Path(run.out), "validation"))
            for key, run in {**whole, **on_corpus, **readers}.items()}


@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_the_series_goes_on_as_if_nothing_had_happened(series, writer, reader):
    expected, validation = series[WRITERS[writer][0]]
    losses, final = series[writer, reader]
    assert len(expected) == STEPS and len(losses) == STEPS - STOP
    assert losses == pytest.approx(expected[STOP:], rel=1e-5)
    assert final == pytest.approx(validation, rel=1e-5) and len(final) == 1


def test_samples_of_a_corpus_come_in_one_order_on_every_topology(series):
    losses, validation = series["corpus one"]
    assert losses != series["gpt2"][0] and len(losses) == STEPS
    for layout in ("zero3", "zero1-pp", "cp"):
        assert series[f"corpus {layout}"][0] == pytest.approx(losses, rel=1e-5)
        assert series[f"corpus {layout}"][1] == pytest.approx(validation, rel=1e-5)


def test_the_loss_scale_of_fp16_goes_on_too(tmp_path):
    common = {"loss_scale": 2.0**18, "loss_scale_window": 2, "eval_every": 0}
    layout, model = {"precision": "fp16"}, Model(layers=1, hidden=8, heads=1, vocab=20, seq=4)
    whole = run_file(model, layout, tmp_path / "whole", **common)
    first = run_file(model, layout, tmp_path / "first", steps=STOP, checkpoint_dir=str(tmp_path / "c"), **common)
    rest = run_file(model, layout, tmp_path / "rest", resume=True, checkpoint_dir=str(tmp_path / "c"), **common)
    go([whole, first, rest])

    def scales(run: RunFile) -> list[tuple[float, float]]:
        found = events.read_events(Path(run.out) / events.FILE_NAME)
        return [(e["loss_scale"], e["loss"]) for e in found if e["event"] == "iteration"]

    assert len({scale for scale, _ in scales(whole)}) > 1
    assert scales(first) + scales(rest) == scales(whole)


def test_fp16_goes_on_from_fp32_with_its_own_loss_scale(tmp_path):
    model, common = Model(layers=1, hidden=8, heads=1, vocab=20, seq=4), {"eval_every": 0, "loss_scale": 2.0**12}
    first = run_file(model, {}, tmp_path / "first", steps=1, checkpoint_dir=str(tmp_path / "c"), **common)
    rest = run_file(model, {"precision": "fp16"}, tmp_path / "rest", steps=2, resume=True, checkpoint_dir=str(tmp_path / "c"),
                    **common)
    go([first, rest])
    said = events.read_events(tmp_path / "rest" / events.FILE_NAME)
    assert [e["loss_scale"] for e in said if e["event"] == "iteration"] == [2.0**12]
    assert [e["message"] for e in said if e["event"] == "resume"] == ["step 1, which latest names"]


def test_a_run_that_is_no_number_from_its_first_step_ends_and_saves_nothing(tmp_path):
    run = run_file(MODELS["gpt2"], {}, tmp_path / "out", steps=50, resume=True, checkpoint_dir=str(tmp_path / "c"))
    engine = Engine(run.trial, run.recipe, Mesh(Topology(), device=torch.device("cpu")))
    weights = [replace(c, tensor=torch.full_like(c.tensor, float("nan")))
               for c in checkpoint.chunks_of(s for s in engine.shards() if s.kind == "weight")]
    keeper = checkpoint.Checkpointer(tmp_path / "c", rank=0, world=1, model=run.trial.model)
    keeper.write(0, weights, {"step": 0, "consumed_samples": 0, "weights_only": True})
    go([run])
    said = events.read_events(tmp_path / "out" / events.FILE_NAME)
    assert said[-1]["event"] == "end" and (said[-1]["status"], said[-1]["step"]) == ("lost", RECIPE.nan_steps)
    assert checkpoint.steps_in(tmp_path / "c") == [0]


def test_padding_rows_are_not_in_a_checkpoint_and_every_number_is_there_once(tmp_path):
    run = run_file(MODELS["gpt2"], {}, tmp_path / "out", steps=1, checkpoint_dir=str(tmp_path / "c"))
    go([run])
    reader = checkpoint.latest(tmp_path / "c").reader()
    assert tuple(reader.tensors["model.embed.tokens.weight"].size) == (101, 32)
    kinds = {key.split(".layers")[0] for key in reader.tensors if ".layers.0.norm1.weight" in key}
    assert kinds == {"model", "optim.exp_avg", "optim.exp_avg_sq"}


def test_weights_alone_are_a_start(tmp_path):
    """An imported model has no optimizer state: the first step is that of a fresh run from the same weights."""
    run = run_file(MODELS["gpt2"], {}, tmp_path / "a", steps=2)
    go([run])
    start = run_file(MODELS["gpt2"], {}, tmp_path / "b", steps=2, resume=True, checkpoint_dir=str(tmp_path / "c"))
    engine = Engine(run.trial, run.recipe, Mesh(Topology(), device=torch.device("cpu")))
    weights = [s for s in engine.shards() if s.kind == "weight"]
    keeper = checkpoint.Checkpointer(tmp_path / "c", rank=0, world=1, model=run.trial.model)
    keeper.write(0, checkpoint.chunks_of(weights), {"step": 0, "consumed_samples": 0, "weights_only": True})
    go([start])
    assert said(tmp_path / "b", "iteration") == pytest.approx(said(tmp_path / "a", "iteration"), rel=1e-6)
