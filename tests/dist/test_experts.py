"""Every layout of a mixture of experts trains as one process does that counts the same sets of tokens.

    pytest tests/dist/test_experts.py -k "ep4"          all layouts run once, in one world a size; -k picks what is checked

Losses and gradient norms of a few steps are equal to 1e-5 in fp32, and so is what each expert was chosen: a choice may differ
only where the scores of the last that was chosen and the first that was not are within 1e-6, and those are counted.
"""
from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from dist.looping import go_each
from dist.many import in_world
from seatrial.engine.core import experts
from seatrial.engine.core.mesh import Mesh, Pool
from seatrial.engine.core.step import Engine
from seatrial.engine.fast.choose import build
from seatrial.engine.fast.config import KernelConfig
from seatrial.engine.io.data import Batches
from seatrial.engine.runfile import RunFile
from seatrial.engine.watch import events
from seatrial.recipe import Recipe
from seatrial.spec import Batch, Execution, Model, Router, Topology, Trial

pytestmark = pytest.mark.timeout(1200)

RECIPE = Recipe(steps=3, lr=1e-2, min_lr=1e-3, warmup_steps=1)
EXECUTION = Execution(bucket_mib=0.05, logits_chunk=24)
TOLERANCE, MARGIN = 1e-5, 1e-6

MOE = Model(family="llama", layers=4, hidden=32, heads=4, vocab=61, seq=16, ffn=48, experts=8, top_k=2, shared_experts=1,
            expert_ffn=24)
PLAIN = replace(MOE, shared_experts=0, router=Router(normalised=False, aux_loss=0.02, z_loss=0.01, over="rank"))
DEEPSEEK = replace(MOE, dense_layers=1, top_k=3, router=Router(kind="sigmoid", scale=2.5, groups=4, group_limit=2,
                                                             correction=0.01, aux_loss=0.01))
OSS = replace(MOE, family="gpt2", mlp="swiglu-clamped", shared_experts=0, expert_every=2, router=Router(bias=True, z_loss=0.01))
GELU = replace(MOE, family="bloom", top_k=1, router=Router(normalised=False))
FULL = {over: replace(MOE, router=Router(capacity=1.0, aux_loss=0.02, over=over))  # type: ignore[arg-type]
        for over in ("sequence", "rank", "global")}
TIGHT = replace(DEEPSEEK, router=replace(DEEPSEEK.router, capacity=0.5, over="global", z_loss=0.01))


def _layouts() -> dict[str, Trial]:
    found: dict[str, Trial] = {}

    def add(prefix: str, model: Model, batch: Batch | None = None, **layout: Any) -> None:
        label = " ".join([prefix, *(f"{k}{v}" if not isinstance(v, str) else v for k, v in layout.items())])
        assert label not in found
        found[label] = Trial(model=model, batch=batch or Batch(gbs=8), topology=Topology(**layout), execution=EXECUTION)

    add("moe", MOE, dp=2, ep=2)
    add("moe", MOE, dp=4, ep=2, zero=1)
    add("moe", MOE, tp=2)
    add("moe", MOE, tp=2, dp=2, ep=4, etp=1)
    add("moe", MOE, tp=2, ep=2, etp=1, sequence_parallel=True)
    add("moe", MOE, tp=2, dp=2, ep=2, zero=3, sequence_parallel=True)
    add("moe", MOE, dp=2, etp=2)
    add("moe", MOE, dp=4, ep=2, etp=2, mbs=2)
    add("moe", MOE, dp=2, zero=3, recompute="full")
    add("moe", MOE, dp=8, ep=8, mbs=1)
    add("moe", MOE, dp=8, ep=2, zero=3, weights_group=2)
    add("moe", MOE, dp=8, ep=2, zero=3, zero_group=4, gradients_group=2)
    add("moe", MOE, dp=4, ep=2, zero=2, recompute="selective")
    add("moe", MOE, dp=2, pp=2, ep=2, zero=3, recompute="full")
    add("moe", MOE, dp=2, pp=4, ep=2, schedule="zb-h1")
    add("moe", MOE, dp=2, pp=2, vp=2, schedule="interleaved", ep=2, zero=2)
    add("moe", MOE, tp=2, pp=2, schedule="zb-h1", ep=2, etp=1, sequence_parallel=True)
    add("moe", MOE, tp=2, dp=2, pp=2, ep=4, etp=1, schedule="gpipe", recompute="selective")
    add("moe", MOE, cp=2, dp=2, ep=4)
    add("moe", MOE, cp=2, tp=2, ep=2, etp=2, sequence_parallel=True)
    add("ramp-up", MOE, Batch(gbs=8, rampup_start=4, rampup_increment=2, rampup_samples=12), dp=2, ep=2)
    add("packed", MOE, Batch(gbs=8, documents="fixed:6"), cp=2, dp=2, ep=2)
    add("forced", MOE, dp=4, ep=4, moe_balance="forced")
    add("forced", MOE, tp=2, dp=2, ep=2, moe_balance="forced", moe_dispatcher="allgather")
    add("gather", MOE, dp=4, ep=4, moe_dispatcher="allgather")
    add("gather", DEEPSEEK, tp=2, dp=2, ep=4, etp=1, moe_dispatcher="allgather", mbs=2)
    add("gather", OSS, dp=4, ep=2, etp=2, moe_dispatcher="allgather", zero=1, recompute="full")
    add("gather", FULL["rank"], dp=2, pp=2, ep=2, moe_dispatcher="allgather", schedule="zb-h1", recompute="selective")
    add("plain", PLAIN, dp=2, ep=2, mbs=2)
    add("plain", PLAIN, tp=2, dp=2, ep=2, mbs=2)
    add("plain", PLAIN, tp=2, cp=2, ep=4, etp=1, zero=3, mbs=2)
    add("plain", PLAIN, dp=4, pp=2, ep=4, mbs=2)
    add("plain", replace(PLAIN, router=replace(PLAIN.router, over="global")), dp=4, ep=2, mbs=2)
    add("deepseek", DEEPSEEK, dp=4, ep=4)
    add("deepseek", DEEPSEEK, tp=2, dp=2, ep=2, zero=2)
    add("deepseek", DEEPSEEK, tp=2, dp=2, pp=2, ep=4, etp=1, sequence_parallel=True, recompute="full", zero=1)
    add("deepseek", DEEPSEEK, cp=2, dp=2, ep=2, mbs=2, recompute="selective")
    add("deepseek", DEEPSEEK, dp=2, pp=4, ep=2, schedule="zb-h1", zero=3)
    add("deepseek", DEEPSEEK, pp=2, vp=2, dp=2, schedule="interleaved", ep=2, etp=1)
    add("oss", OSS, dp=2, ep=2, zero=3)
    add("oss", OSS, tp=2)
    add("oss", OSS, tp=2, dp=2, ep=2, etp=2, sequence_parallel=True, recompute="selective")
    add("oss", OSS, dp=2, pp=2, etp=2, schedule="zb-h1")
    add("gelu", GELU, tp=2, dp=2, ep=2, etp=2)
    add("gelu", GELU, dp=4, ep=2, zero=3, recompute="full")
    for over, model in FULL.items():
        add(f"full {over}", model, dp=4, ep=2, mbs=2)
        add(f"full {over}", model, tp=2, dp=2, ep=4, etp=1, mbs=2)
        add(f"full {over}", model, tp=2, cp=2, dp=2, ep=2, sequence_parallel=True)
        add(f"full {over}", model, cp=2, pp=2, ep=2, etp=1, mbs=2, recompute="full", zero=3)
    add("tight", TIGHT, tp=2, dp=2, ep=4, etp=1, mbs=2)
    add("tight", TIGHT, cp=4, dp=2, ep=8, recompute="selective", zero=2)
    add("tight", TIGHT, dp=4, pp=2, ep=2, etp=2, schedule="zb-h1", zero=1)
    return found


LAYOUTS = _layouts()
OFTEN = list(LAYOUTS)[::3]


class Found(NamedTuple):
    losses: list[float]
    norms: list[float]
    loads: dict[int, list[list[int]]]
    """Of each layer that the rank has, step by step."""
    dropped: list[int]
    close: int = 0
    """Choices that were within the margin."""


def _train(trial: Trial, pool: Pool | None = None, *, fast: bool = False) -> Found:
    mesh = Mesh(trial.topology, device=torch.device("cpu"), pool=pool)
    engine = Engine(trial, RECIPE, mesh, ops=build(KernelConfig(experts=True), trial, mesh.device) if fast else None)
    batches = Batches(RECIPE, trial.model, RECIPE.seed, documents=trial.batch.documents)
    common = engine.shared.experts
    assert common is not None
    found, sample = Found([], [], {layer.number: [] for layer in common.layers}, []), 0
    for step in range(1, RECIPE.steps + 1):
        result = engine.step(step, first_sample=sample, batches=batches)
        sample += result.gbs
        assert result.balance is not None
        found.losses.append(result.loss)
        found.norms.append(result.grad_norm)
        found.dropped.append(result.balance.dropped)
        for layer, loads in zip(common.layers, common.loads.tolist()):
            found.loads[layer.number].append(loads)
    return found


def _train_each(trials: dict[str, Trial]) -> dict[str, Found]:
    pool: Pool = {}
    return {label: _train(trial, pool) for label, trial in trials.items()}


def _train_as_a_gpu_does(trials: dict[str, Trial]) -> dict[str, Found]:
    pool: Pool = {}
    return {label: _train(trial, pool, fast=True) for label, trial in trials.items()}


@cache
def in_one_world(world: int, slow: bool) -> dict[str, Found] | Exception:
    wanted = {label: t for label, t in LAYOUTS.items() if (slow or label in OFTEN) and t.topology.world == world}
    try:
        return in_world(world, _train_each, wanted)[0]
    except Exception as error:
        return error


def _alone(trial: Trial) -> Trial:
    """One process with the same sets of tokens."""
    t, over = trial.topology, trial.model.router.over
    mbs = {"sequence": 1, "rank": t.mbs, "global": t.mbs * t.dp}[over]
    return replace(trial, topology=Topology(mbs=mbs, moe_balance=t.moe_balance))


ALONE = {repr(one): one for one in map(_alone, LAYOUTS.values())}


@cache
def alone(which: str) -> Found:
    torch.set_num_threads(1)
    plain, close = experts.choose, 0

    def counted(scores_TE: Tensor, correction_E: Tensor | None, router: Router, top_k: int) -> Tensor:
        nonlocal close
        chosen = plain(scores_TE, correction_E, router, top_k)
        ranked = scores_TE if correction_E is None else scores_TE + correction_E
        last = ranked.gather(1, chosen).min(1, keepdim=True).values
        others = ranked.scatter(1, chosen, -1.0)
        close += int(((last - others).abs() < MARGIN).any(1).sum())
        return chosen

    experts.choose = counted
    try:
        found = _train(ALONE[which])
    finally:
        experts.choose = plain
    return found._replace(close=close)


def test_there_are_enough_layouts() -> None:
    assert len(LAYOUTS) >= 40 and len(OFTEN) >= 15


@pytest.mark.parametrize("label", [pytest.param(label, marks=[pytest.mark.slow] * (label not in OFTEN)) for label in LAYOUTS])
def test_layout_trains_as_one_process_does(label: str, request: pytest.FixtureRequest) -> None:
    trial = LAYOUTS[label]
    every = in_one_world(trial.topology.world, bool(request.config.getoption("--run-slow")))
    if isinstance(every, Exception):
        raise every
    found, one = every[label], alone(repr(_alone(trial)))
    assert found.losses == pytest.approx(one.losses, rel=TOLERANCE)
    assert found.norms == pytest.approx(one.norms, rel=TOLERANCE)
    assert abs(sum(found.dropped) - sum(one.dropped)) <= one.close
    moved = sum(abs(a - b) for number, loads in found.loads.items() for step, those in zip(loads, one.loads[number])
                for a, b in zip(step, those))
    assert moved <= 2 * one.close


def test_layouts_train_so_with_the_functions_of_a_gpu() -> None:
    """Experts as one function, on whole ranks and on parts, with gradients that wait."""
    wanted = {label: t for label, t in LAYOUTS.items() if t.topology.world == 4 and label.split()[0] in ("moe", "tight")}
    kinds = [(t.topology.ep > 1, t.topology.expert_tp > 1, t.topology.schedule.startswith("zb")) for t in wanted.values()]
    assert all(any(has) for has in zip(*kinds)), wanted.keys()
    for label, found in in_world(4, _train_as_a_gpu_does, wanted)[0].items():
        one = alone(repr(_alone(wanted[label])))
        assert found.losses == pytest.approx(one.losses, rel=TOLERANCE), label
        assert found.norms == pytest.approx(one.norms, rel=TOLERANCE), label


def test_the_references_learn_and_drop() -> None:
    """Equal series say nothing if weights never change, or if nothing is ever full."""
    for which in {repr(_alone(LAYOUTS[label])) for label in OFTEN}:
        found, trial = alone(which), ALONE[which]
        assert found.losses[-1] < found.losses[0] - 0.1
        assert all(n > 0 for n in found.norms)
        assert (sum(found.dropped) > 0) == (trial.model.router.capacity is not None)


def test_a_run_says_how_even_its_experts_were(tmp_path: Path) -> None:
    """Natural choices are uneven; forced ones are not, on any rank."""
    runs = {balance: RunFile(trial=replace(LAYOUTS["moe dp2 ep2"], topology=Topology(dp=2, ep=2, moe_balance=balance)),
                             recipe=RECIPE, out=str(tmp_path / balance)) for balance in ("natural", "forced")}
    go_each(list(runs.values()))
    said = {name: [e["balance"] for e in events.read_events(Path(run.out) / events.FILE_NAME) if e["event"] == "iteration"]
            for name, run in runs.items()}
    even = 8 * MOE.seq * 2 / 8
    assert said["forced"] == [{"least": even, "mean": even, "most": even, "dropped": 0, "excess": 0.0}] * RECIPE.steps
    for one in said["natural"]:
        assert one["least"] < one["mean"] == even < one["most"] and one["dropped"] == 0 and 0 < one["excess"] < 1
