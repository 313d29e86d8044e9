"""Layers of each stage: as text, as `auto`, and exact."""
from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seatrial import columns, fields, presets, rules, stages, trialfile
from seatrial.errors import BadInput
from seatrial.notes.lint import lint
from seatrial.notes.read import import_file
from seatrial.plan import rows, step
from seatrial.plan.ask import ask, question
from seatrial.plan.configs import Configs
from seatrial.plan.explain import better, explain
from seatrial.plan.fits import lighter
from seatrial.plan.held import Held
from seatrial.plan.odds import LIKELY
from seatrial.plan.stages import balanced, shared_out, shared_out_by_rank
from seatrial.spec import Batch, Model, Topology, Trial, stage_split, stages_of
from seatrial.sweep import file as sweeps


@pytest.mark.parametrize("text", ["1-4-3", "1,4,3", "[1, 4, 3]", "1 + 4 + 3", "1/4/3", "1 4 3", "(1-4-3)", "Et|tttt|tttL",
                                  "Et|t*4|t*3,L"])
def test_a_split_is_read_as_people_write_it(text: str) -> None:
    assert stages.read(text) == (1, 4, 3)


def test_either_side_of_a_run_may_be_how_often():
    assert stages.read("3,4x14,2") == (3, *(14,) * 4, 2) == stages.read("3,4x14,2", (6,))
    assert stages.read("3,4x14,2", (16, 32)) == (3, *(4,) * 14, 2)
    assert stages.read("3,4x999999,2", (16,)) == (3, *(999999,) * 4, 2)


@pytest.mark.parametrize("split", [(1, 4, 3), (5, *(6,) * 10, 5), (0, 1, 0), (7,), (0, *(2,) * 30, 1, 0)])
def test_every_text_of_a_split_is_read_back(split: tuple[int, ...]) -> None:
    assert [stages.read(text) for text in (stages.said(split), stages.short(split))] == [split, split]
    assert len(split) == 1 or stages.read(stages.megatron(split)) == split


@pytest.mark.parametrize("text", ["", "1-x-3", "1--3", "-1-2", "E|t|t", "9999999", "(t|)*99999999"])
def test_what_is_no_split_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(BadInput, match="1-4-3|expected a layout"):
        stages.read(text)


def _trial(stage_layers: object, **more: object) -> Trial:
    return trialfile.build({"model": "tiny-llama", "batch": {"gbs": 8}, "topology": {"pp": 3, "stage_layers": stage_layers},
                            **more})[0]


def test_a_list_a_text_and_what_auto_finds_have_one_id() -> None:
    assert _trial([1, 4, 3]).run_id() == _trial("1-4-3").run_id() != _trial(None).run_id()
    auto = _trial("auto")
    assert auto.topology.stage_layers is not None and sum(auto.topology.stage_layers) == 8
    assert _trial(list(auto.topology.stage_layers)).run_id() == auto.run_id()


def test_a_split_that_is_none_is_named_by_its_path() -> None:
    for wrong, said in (("1-x-3", "topology.stage_layers: '1-x-3'"), ("1-7", "2 entries for pp 3"),
                        ([-1, 5, 4], "0 layers at least")):
        with pytest.raises(BadInput, match=said):
            _trial(wrong)
    with pytest.raises(BadInput, match="9, the model has 8 layers"):
        stages_of(_trial("1-4-3").model, replace(_trial("1-4-3").topology, stage_layers=(2, 4, 3)))


def _every_split(layers: int, count: int) -> list[tuple[int, ...]]:
    bars = itertools.combinations(range(layers + count - 1), count - 1)
    return [tuple(b - a - 1 for a, b in itertools.pairwise((-1, *bar, layers + count - 1))) for bar in bars]


def _longest(split: tuple[int, ...], own: list[float], each: float, pp: int) -> float:
    return max(alone + count * each for alone, count in zip(own, split))


def _busiest(split: tuple[int, ...], own: list[float], each: float, pp: int) -> float:
    return max(sum(own[rank::pp]) + sum(split[rank::pp]) * each for rank in range(pp))


def test_the_longest_stage_is_as_short_as_in_any_split() -> None:
    rng, met = random.Random(17), 0
    for _ in range(400):
        layers, pp, vp = rng.randint(0, 7), rng.randint(1, 4), rng.choice((1, 1, 2))
        vp = 1 if pp * vp > 5 else vp
        own = [rng.choice((0.0, rng.random() * 3)) for _ in range(pp * vp)]
        room = [rng.randint(0, layers + 1) if rng.random() < 0.5 else layers for _ in range(pp)]
        each = rng.choice((0.3, 1.0))
        every = [split for split in _every_split(layers, pp * vp)
                 if all(sum(split[rank::pp]) <= room[rank] for rank in range(pp))]
        for way, figure in ((shared_out, _longest), (shared_out_by_rank, _busiest)):
            found = way(layers, own, each, pp, room)
            assert found in every or (found is None and not every)
            if found is not None:
                assert figure(found, own, each, pp) == pytest.approx(min(figure(split, own, each, pp) for split in every))
                met += 1
    assert met > 300


def drawn(rng: random.Random) -> Trial:
    """A layout that breaks no rule but that of layers; `benchmarks/stages.py` draws thousands."""
    while True:
        heads = rng.choice((8, 16, 32))
        model = Model(layers=rng.randint(2, 100), hidden=heads * 128, heads=heads, seq=rng.choice((1024, 4096)),
                      vocab=rng.choice((4096, 32000, 128256, 256000)), family=rng.choice(("gpt2", "llama")))
        pp, mbs, m = rng.choice((2, 3, 4, 8)), rng.choice((1, 2)), rng.choice((1, 2, 4))
        vp = 2 if rng.random() < 0.3 and model.layers >= 2 * pp else 1
        kind = "interleaved" if vp > 1 else rng.choice(("1f1b", "gpipe", "zb-h1"))
        topology = Topology(pp=pp, dp=rng.choice((1, 4)), tp=rng.choice((1, 8)), vp=vp, mbs=mbs, zero=rng.choice((0, 1)),
                            schedule=kind, recompute=rng.choice(("none", "full")), precision="bf16")  # type: ignore[arg-type]
        node = min(8, topology.world)
        cluster = presets.cluster("jz-a100").with_procs(node).with_nodes(topology.world // node)
        trial = Trial(model=model, batch=Batch(gbs=topology.dp * mbs * m * pp), topology=topology, cluster=cluster,
                      engine=rng.choice(("seatrial", "megatron-core", "fsdp2")))
        if all(v.level == "warning" or v.code == "layers-divisible" for v in rules.violations(trial)):
            return trial


def test_auto_is_never_slower_in_the_forecast_nor_less_likely_to_fit() -> None:
    rng, changed = random.Random(61), 0
    for _ in range(60):
        trial = drawn(rng)
        default = stage_split(trial.model.layers, trial.topology.pp * trial.topology.vp)
        found = balanced(trial)
        pair = [replace(trial, topology=replace(trial.topology, stage_layers=split)) for split in (default, found)]
        configs = Configs.from_trials(pair)
        held, sec = Held.of(configs, trial.cluster, None), step.time(configs, trial.cluster).sec  # type: ignore[arg-type]
        if held.odds[0] >= LIKELY:
            assert held.odds[1] >= LIKELY
            assert sec[1] <= sec[0] * (1 + 1e-12)
        changed += found != default
    assert changed > 20


def test_ranks_that_hold_more_micro_batches_get_fewer_layers_where_memory_is_short() -> None:
    model = Model(layers=40, hidden=8192, heads=64, seq=4096, vocab=32000, family="llama")
    cluster = presets.cluster("jz-a100").with_procs(8).with_nodes(4)
    trial = Trial(model=model, batch=Batch(gbs=64), topology=Topology(tp=8, pp=4, mbs=1, precision="bf16"), cluster=cluster)

    def with_room(gib: float) -> tuple[int, ...]:
        device = replace(cluster.device, memory_gib=gib, usable_gib=gib)
        return balanced(replace(trial, cluster=replace(cluster, device=device)))

    wide, short = with_room(80), with_room(32)
    assert max(wide) - min(wide) <= 2
    assert short[0] < wide[0] and list(short) == sorted(short)


def test_without_a_cluster_a_large_vocabulary_counts_as_the_layers_it_is_worth() -> None:
    model = Model(layers=9, hidden=512, heads=4, seq=512, vocab=32768, family="llama")
    trial = Trial(model=model, batch=Batch(gbs=8), topology=Topology(pp=2))
    # The GEMM of the logits has as many weights as 4.9 layers, which have attention beside theirs.
    assert balanced(trial) == (7, 2)
    small = balanced(replace(trial, model=replace(model, vocab=128, layers=8)))
    assert small == (4, 4)


def test_more_stages_than_layers_leave_the_ends_to_embedding_and_loss() -> None:
    trial = Trial(model=Model(layers=2, hidden=128, heads=4, seq=64, vocab=32768, family="llama"), batch=Batch(gbs=8),
                  topology=Topology(pp=4))
    found = balanced(trial)
    assert sum(found) == 2 and found[-1] == 0
    asked = replace(trial, topology=replace(trial.topology, stage_layers=found))
    assert all(v.level == "warning" for v in rules.violations(asked))


def test_an_engine_that_divides_for_itself_refuses_a_list_and_auto_is_its_own_split() -> None:
    trial = trialfile.build({"model": {"base": "llama3-8b", "layers": 30}, "batch": {"gbs": 8}, "engine": "megatron-deepspeed",
                             "topology": {"pp": 4, "stage_layers": "auto"}})[0]
    assert trial.topology.stage_layers == (7, 8, 8, 7)
    assert not [v for v in rules.violations(trial) if v.code == "stages-own"]
    own = replace(trial, topology=replace(trial.topology, stage_layers=(8, 8, 8, 6)))
    assert [v.code for v in rules.violations(own) if v.level == "error"] == ["stages-own"]
    assert not [v for v in rules.violations(replace(own, engine="megatron-core")) if v.level == "error"]


def test_what_a_topology_says_of_itself_is_the_text() -> None:
    asked = fields.build(Topology, {"pp": 3, "stage_layers": "1-4-3"}, where="topology")
    assert asked.stage_layers == (1, 4, 3) and asked.stages_said == "1-4-3" and Topology().stages_said == ""
    assert fields.plain(asked)["stage_layers"] == [1, 4, 3]
    assert np.array_equal(Configs.from_trials([_trial("1-4-3")]).first_layers, [1])
    assert columns.flat(_trial("1-4-3"))["stage_layers"] == "1-4-3" and columns.flat(_trial(None))["stage_layers"] == ""
    assert columns.aliases()["layers per stage"] == columns.aliases()["pipeline layout"] == ("stage_layers", "stages")


NOTES = """# Runs

| Layers | Hidden | Heads | Seq | Nodes | DP | TP | PP | VP | MBS | GBS | Layers per stage | Sec/it |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| 32 | 4096 | 32 | 4096 | 2 | 2 | 2 | 4 | 1 | 1 | 64 | {} | 4.1 |
"""


@pytest.mark.parametrize("cell, kept, doubt", [
    ("9-8-8-7", "9-8-8-7", ""), ("9,8,8,7", "9-8-8-7", ""), ("[9, 8, 8, 7]", "9-8-8-7", ""), ("8", "8", ""), ("-", "", ""),
    ("9-8-8-8", "9-8-8-8", "adds up to 33, the model has 32 layers"), ("11-11-10", "11-11-10", "3 entries for PP 4 stages"),
])
def test_a_column_of_splits_is_read_and_added_up(tmp_path: Path, cell: str, kept: str, doubt: str) -> None:
    path = tmp_path / "notes.md"
    path.write_text(NOTES.format(cell))
    found = import_file(path)
    assert [record.stage_layers for record in found.records] == [kept]
    said = [finding for finding in lint(found.records, found.problems) if finding.code == "stages-sum"]
    assert len(said) == bool(doubt) and all(doubt in finding.message for finding in said)


def test_a_row_with_a_split_is_forecast_with_it_and_auto_with_what_it_finds(tmp_path: Path) -> None:
    path, cluster = tmp_path / "rows.csv", presets.cluster("jz-a100")
    cells = ("16-16-15-14", "auto", "16-16-15-15", "x", "")
    path.write_text("layers,hidden,heads,seq,vocab,dp,tp,pp,mbs,gbs,engine,stage_layers\n" + "".join(
        f"61,8192,64,4096,128256,1,8,4,1,64,megatron-core,{cell}\n" for cell in cells))
    listed, auto, wrong, unread, plain = rows.read(path, cluster).rows
    assert listed.trial and listed.trial.topology.stage_layers == (16, 16, 15, 14)
    assert auto.trial and sum(auto.trial.topology.stage_layers or ()) == 61
    assert plain.trial and plain.trial.topology.stage_layers is None
    assert "adds up to 62" in wrong.reject and "1-4-3" in unread.reject


def test_a_plan_of_a_list_has_layouts_of_so_many_stages_alone() -> None:
    asked = {"model": "llama3-8b", "cluster": "jz-a100", "knobs": {"gbs": 64}, "nodes": 1, "engine": "megatron-core"}
    given = question(**asked, settings=["topology.stage_layers=9-8-8-7"])  # type: ignore[arg-type]
    found = ask(given.request).document["candidates"]
    assert found and all(c["pp"] * c["vp"] == 4 and c["stage_layers"] == "9-8-8-7" for c in found)
    free = ask(question(**asked).request, top=50).document["candidates"]  # type: ignore[arg-type]
    assert any(c.get("stage_layers") for c in free)
    with pytest.raises(BadInput, match="adds up to 33"):
        question(**asked, settings=["topology.stage_layers=9-8-8-8"])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="divides layers by itself"):
        question(**{**asked, "engine": "deepspeed"}, settings=["topology.stage_layers=9-8-8-7"])  # type: ignore[arg-type]


def test_an_explanation_proposes_the_split_with_its_gain_and_an_out_of_memory_a_lighter_one() -> None:
    cluster = presets.cluster("jz-a100").with_nodes(4)
    trial = Trial(model=presets.model("llama3-8b"), batch=Batch(gbs=512), cluster=cluster,
                  topology=Topology(dp=8, pp=4, zero=1, precision="bf16"))
    first = better(explain(trial))[0]
    assert first.what == "layers per stage 4 x 8 -> 9 + 2 x 8 + 7" and (first.gain or 0) > 0.05
    asked = replace(trial, topology=replace(trial.topology, stage_layers=(16, 8, 4, 4)))
    assert any("layers per stage 16 + 8 + 2 x 4" in change.what for change in explain(asked).changes)
    splits = [other.topology.stage_layers for _, other in lighter(asked, cluster)]
    assert splits and all(split is not None and sum(split) == 32 and split[0] < 16 for split in splits)


def test_splits_are_an_axis_of_a_sweep(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    text = ('model = "tiny-llama"\nbatch = {{ gbs = 6 }}\ntopology = {{ pp = 3 }}\n'
            '[axes]\n"topology.stage_layers" = ["auto", "1-4-3", [2, 4, 2], {}]\n')
    path.write_text(text.format('"4-3-1"'))
    tasks = sweeps.load(path).tasks
    assert [task.trial.topology.stages_said for task in tasks if task.trial][1:] == ["1-4-3", "2-4-2", "4-3-1"]
    assert tasks[1].trial is not None and tasks[1].trial.run_id() == _trial([1, 4, 3], batch={"gbs": 6}).run_id()
    path.write_text(text.format('"3-x"'))
    with pytest.raises(BadInput, match=r"stage_layers\[3\]: '3-x'.*1-4-3"):
        sweeps.load(path)
