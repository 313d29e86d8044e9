"""What is said of one layout adds up, and each proposed change is what explaining that layout itself gives."""
from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial import presets, rules, terminal
from seatrial.errors import BadInput, Infeasible
from seatrial.plan import explain, step
from seatrial.plan.ask import one_trial
from seatrial.plan.configs import Configs
from seatrial.schedule import walk
from seatrial.spec import Batch, Topology, Trial

AS_RUN = Trial(
    model=presets.model("bloom-181b"), cluster=presets.cluster("jz-a100", nodes=48), batch=Batch(gbs=2048), engine="megatron",
    topology=Topology(dp=8, tp=4, pp=12, mbs=2, zero=1, recompute="full", precision="bf16"),
)  # fmt: skip
GPT = presets.model("gpt-1.3b")
LAYOUTS = {
    "1f1b": AS_RUN,
    "interleaved": replace(AS_RUN, batch=Batch(gbs=2304), topology=replace(AS_RUN.topology, schedule="interleaved", vp=2)),
    "one stage": replace(AS_RUN, model=GPT, topology=Topology(dp=384, precision="bf16"), batch=Batch(gbs=384)),
    "two stages": replace(AS_RUN, model=GPT, topology=Topology(dp=192, pp=2, precision="bf16"), batch=Batch(gbs=384)),
    "zero bubble": replace(AS_RUN, engine="seatrial", topology=replace(AS_RUN.topology, schedule="zb-h1")),
}  # fmt: skip


@pytest.mark.parametrize("trial", LAYOUTS.values(), ids=LAYOUTS)
def test_the_parts_add_up(trial):
    told = explain.explain(trial)
    assert sum(told.parts.values()) == pytest.approx(told.sec, rel=1e-6)
    assert sum(told.memory.values()) == pytest.approx(told.mem_gib, rel=1e-6)
    assert told.lo < told.sec < told.hi
    assert told.timeline is not None and len(told.timeline.ranks) == trial.topology.pp
    assert set(told.parts) <= set(explain.WHY) | {"embedding"}


@pytest.mark.parametrize("trial", LAYOUTS.values(), ids=LAYOUTS)
def test_a_change_is_worth_what_the_changed_layout_takes(trial):
    told = explain.explain(trial)
    checked = 0
    for change in told.changes:
        if change.trial is None:
            assert change.reject
            continue
        rules.check(change.trial)
        again = explain.explain(change.trial)
        assert again.sec == pytest.approx(change.sec, rel=1e-9)
        assert again.fits == (change.reject != "memory")
        assert change.gain == pytest.approx(1 - again.sec / told.sec)
        checked += 1
    assert checked >= 3
    gains = [change.gain for change in told.changes if not change.reject]
    assert gains == sorted(gains, reverse=True)


@pytest.mark.parametrize("trial", LAYOUTS.values(), ids=LAYOUTS)
def test_the_pipeline_that_is_drawn_takes_as_long_as_the_forecast_says(trial):
    timed = step.time(Configs.from_trials([trial]), trial.cluster)
    whole, drawn = explain.draw(trial, timed, most=trial.microbatches)
    assert drawn == trial.microbatches
    after = sum(float(timed.parts[name][0]) for name in ("gradients", "optimizer", "fixed"))
    assert whole.total_s == pytest.approx(float(timed.sec[0]) - after, rel=1e-3)


def test_a_step_changes_one_thing():
    for trial in LAYOUTS.values():
        for what, other in explain.neighbours(trial):
            assert other.world == trial.topology.world, what
            changed = {name for name in ("dp", "tp", "pp", "cp", "vp", "mbs", "zero", "zero_group", "recompute", "schedule",
                                                 "sequence_parallel")
                       if getattr(other, name) != getattr(trial.topology, name)}  # fmt: skip
            moved = len(changed) == 2 and changed < {"dp", "tp", "pp", "cp"}
            assert len(changed) == 1 or moved or changed == {"schedule", "vp"}, what


def test_what_breaks_a_rule_is_refused_with_what_would_work():
    with pytest.raises(Infeasible, match="36 or 72 stages would do"):
        explain.explain(replace(AS_RUN, topology=replace(AS_RUN.topology, tp=1, pp=48)))


def test_very_many_stages_are_explained_without_a_picture():
    deep = replace(AS_RUN, model=replace(GPT, layers=384), topology=Topology(pp=384, precision="bf16"), batch=Batch(gbs=64))
    told = explain.explain(deep)
    assert told.timeline is None and told.sec > 0


def test_a_layout_that_does_not_fit_is_explained_and_says_so():
    told = explain.explain(replace(AS_RUN, topology=replace(AS_RUN.topology, recompute="none", mbs=8)))
    assert not told.fits and "would run out" in told.limits[0]
    near = explain.explain(replace(AS_RUN, topology=replace(AS_RUN.topology, recompute="selective", mbs=4)))
    chosen = explain.better(near)
    assert not near.fits and chosen and all(change.odds >= explain.LIKELY for change in chosen), "also what makes it slower"
    assert min(change.gain for change in chosen) < 0


@pytest.mark.parametrize(("engine", "has_it"), [("megatron-core", True), ("megatron-deepspeed", False), ("deepspeed", False)])
def test_sequence_parallelism_is_proposed_where_the_engine_has_it(engine, has_it):
    told = explain.explain(replace(AS_RUN, engine=engine))
    assert any(what == "sequence parallelism on" for what, _ in explain.neighbours(told.trial)) == has_it
    slow = explain.limits({"memory": 1.0}, 2.0, 1.0, 80.0, 1.0, told.engine)[0]
    assert ("sequence parallelism" in slow) == has_it


def test_the_picture_as_svg_stands_alone_and_holds_every_action():
    made = walk("interleaved", pp=2, microbatches=4, virtual=2, forward_s=1.0, backward_s=2.0)
    drawn = explain.svg(made, title='<script>alert("x")</script> & more')
    tree = ET.fromstring(drawn)
    assert "<script" not in drawn and "href" not in drawn
    titles = [element.text or "" for element in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(title[:1] in "FB" for title in titles) == sum(len(spans) for spans in made.ranks) == 32


def test_bars_are_as_long_as_their_share():
    assert [len(terminal.bar(share, 8).rstrip()) for share in (0.0, 0.5, 1.0, 7.0)] == [0, 4, 8, 8]
    lines = terminal.breakdown({"a": 3.0, "b": 1.0, "c": 0.0001}, "s").splitlines()
    assert [line.split()[0] for line in lines] == ["a", "b", "the"]
    assert "75.0%" in lines[0]


PATHS = ("model", "cluster", "topology", "batch", "model.base", "model.layers", "cluster.base", "cluster.nodes", "batch.gbs",
         "cluster.device", "topology.zero", "topology.pp", "topology.stage_layers", "environment.clock_ghz", "engine", "x.y")
VALUES = ("5", "-1", "0", "tiny", "jz-v100", "[]", "{}", "1e9", "nan", "true", "", "2", "[4, 4]", "[8]")


GIVEN = {"model": {"base": "tiny"}, "cluster": {"base": "jz-a100", "nodes": 1}, "batch": {"gbs": 64}, "topology": {"tp": 2}}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.builds("{}={}".format, st.sampled_from(PATHS), st.sampled_from(VALUES)), max_size=3))
def test_whatever_is_set_is_explained_or_refused_in_one_line(changes):
    try:
        told = explain.explain(one_trial({}, GIVEN, changes))
        assert 0 < told.sec < float("inf")
    except BadInput as error:
        assert len(str(error).splitlines()) == 1
