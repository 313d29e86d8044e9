"""The search finds what looking at every layout finds, counts what it rejects, and ranks by what it says it ranks by."""
from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial import arith, expression, presets, rules
from seatrial.arith import TIE
from seatrial.errors import BadInput
from seatrial.plan import step
from seatrial.plan.configs import Configs
from seatrial.plan.held import Held
from seatrial.plan.nearest import ways
from seatrial.plan.odds import LIKELY, UNLIKELY, Headroom
from seatrial.plan.search import RULE_NAMES, configs_of, search
from seatrial.plan.space import Space, chunks
from seatrial.spec import Batch, Execution, Topology, Trial

BLOOM = presets.model("bloom-181b")
JEAN_ZAY = presets.cluster("jz-a100", nodes=48)
AS_RUN = Space(models=(BLOOM,), cluster=JEAN_ZAY, gbs=(2048,), zero=(1,), recompute=("full",), schedule=("1f1b",), vp=(1,))
"""What the teams of 2022 searched by hand."""
SMALL = Space(models=(presets.model("gpt-1.3b"),), cluster=presets.cluster("jz-a100", nodes=2), gbs=(64,), engine="seatrial",
              sequence_parallel=(False, True))  # fmt: skip


def one_by_one(space: Space, precision: str = "bf16") -> dict[Topology, float]:
    """Every layout that the rules and the memory allow, with its seconds, without the search."""
    trials = [_trial(dict(zip(columns, row)), space, precision) for columns in chunks(space)
              for row in zip(*(column.tolist() for column in columns.values()))]  # fmt: skip
    allowed = [trial for trial in trials if not any(v.level == "error" for v in rules.violations(trial))]
    configs = Configs.from_trials(allowed)
    fits = Held.of(configs, space.cluster, None).odds >= UNLIKELY
    return {trial.topology: sec for trial, sec, ok in zip(allowed, step.time(configs, space.cluster).sec.tolist(), fits) if ok}


def _trial(values: dict[str, int], space: Space, precision: str) -> Trial:
    from seatrial.plan.configs import RECOMPUTE, SCHEDULES

    topology = Topology(
        dp=values["dp"], tp=values["tp"], pp=values["pp"], vp=values["vp"], mbs=values["mbs"], zero=values["zero"],
        recompute=RECOMPUTE[values["recompute"]], schedule=SCHEDULES[values["schedule"]], precision=precision,
        sequence_parallel=bool(values["sequence_parallel"]))
    return Trial(model=space.models[0], topology=topology, batch=Batch(gbs=values["gbs"]), engine=space.engine,
                 cluster=space.cluster.with_nodes(values["nodes"]))


def test_it_finds_what_looking_at_each_finds_in_the_same_order():
    space = dataclasses.replace(SMALL, zero=(0, 3), vp=(1, 2), schedule=("1f1b", "interleaved", "zb-h1"))
    alone, found = one_by_one(space), search(space)
    assert 100 < len(alone) == found.accepted == len(found)
    uneven = 0
    for i in range(len(found)):
        topology = found.trial(i).topology
        default = alone[dataclasses.replace(topology, stage_layers=None)]
        if topology.stage_layers is None:
            assert found.sec[i] == pytest.approx(default, rel=1e-9)
        else:  # a split of its own has to be worth it, and is what its list is forecast to take
            assert found.sec[i] < default * (1 - TIE)
            configs = Configs.from_trials([found.trial(i)])
            assert found.sec[i] == pytest.approx(float(step.time(configs, space.cluster).sec[0]), rel=1e-9)
            uneven += 1
    assert uneven and (np.diff(found.key) >= 0).all()
    assert found.sec[0] <= min(alone.values()) * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["tiny-llama", "gpt-1.3b", "bloom-176b"]), st.sampled_from([1, 2, 6]), st.integers(1, 300),
       st.sampled_from(["megatron", "seatrial"]))
def test_each_layout_is_accepted_or_rejected_once(model, nodes, gbs, engine):
    space = Space(models=(presets.model(model),), cluster=presets.cluster("jz-a100", nodes=nodes), gbs=(gbs,), engine=engine)
    found = search(space, rules=[expression.parse("dp % 2 == 0 or tp < 8", RULE_NAMES)])
    assert found.considered == found.accepted + sum(found.rejected.values())
    assert found.considered == sum(len(c["dp"]) for c in chunks(space))


@pytest.mark.parametrize("engine", ["megatron", "seatrial"])
@pytest.mark.parametrize("model", [presets.model("tiny-llama", {"heads": 12, "hidden": 96}), presets.model("bloom-176b")],
                         ids=lambda model: model.name)
def test_rejections_are_counted_as_the_rules_would_one_by_one(model, engine):
    space = Space(models=(model,), cluster=presets.cluster("jz-a100", nodes=3), gbs=(40,), engine=engine,
                  sequence_parallel=(False, True), recompute=("none", "full"), zero=(0, 1), mbs=(1, 2, 3))  # fmt: skip
    expected: Counter[str] = Counter()
    for columns in chunks(space):
        for row in zip(*(column.tolist() for column in columns.values())):
            broken = rules.violations(_trial(dict(zip(columns, row)), space, "bf16"))
            expected.update([next((v.code for v in broken if v.level == "error"), "accepted")])
    found = search(space)
    assert {code: count for code, count in found.rejected.items() if code != "memory"} == \
        {code: count for code, count in expected.items() if code != "accepted"}
    assert found.accepted + found.rejected.get("memory", 0) == expected["accepted"]
    assert len(expected) >= 4


def test_columns_in_bulk_are_those_of_the_trials():
    for model, engine in (("bloom-176b", "megatron"), ("llama3-8b", "fsdp2"), ("gpt-30b", "seatrial")):
        space = Space(models=(presets.model(model),), cluster=JEAN_ZAY, gbs=(3072,), sequence_parallel=(False, True),
                      engine=engine, execution=Execution(attention="fused"))  # fmt: skip
        found = search(space)
        picked = list(range(0, len(found), max(1, len(found) // 60)))
        bulk = configs_of({n: c[picked] for n, c in found.ranked.items()}, space, "bf16")
        alone = Configs.from_trials([found.trial(i) for i in picked])
        for field in dataclasses.fields(Configs):
            np.testing.assert_array_equal(getattr(bulk, field.name), getattr(alone, field.name), err_msg=field.name)


def test_the_size_of_the_chunks_changes_nothing():
    whole, pieces = search(SMALL), search(SMALL, rows=1000)
    assert (whole.considered, whole.rejected, whole.accepted) == (pieces.considered, pieces.rejected, pieces.accepted)
    np.testing.assert_allclose(whole.sec, pieces.sec)


def test_a_rule_of_ones_own_holds_and_is_counted():
    free = search(AS_RUN)
    ruled = search(AS_RUN, rules=[expression.parse("dp % 4 == 0", RULE_NAMES)])
    assert (ruled.ranked["dp"] % 4 == 0).all()
    assert free.accepted > ruled.accepted > 0
    lost = sum(free.ranked["dp"] % 4 != 0)
    assert lost <= ruled.rejected["rule: dp % 4 == 0"]


@pytest.mark.parametrize("text", ["layers // stages <= 6", "microbatches >= 2 * pp", "world == 384 and hidden > seq % tp"])
def test_a_rule_may_speak_of_anything_about_a_layout(text):
    found = search(AS_RUN, rules=[expression.parse(text, RULE_NAMES)])
    for i in range(min(5, len(found))):
        trial = found.trial(i)
        t = trial.topology
        values = {"layers": 72, "stages": t.pp * t.vp, "microbatches": trial.microbatches, "pp": t.pp, "world": t.world,
                  "hidden": 14336, "seq": 2048, "tp": t.tp}  # fmt: skip
        assert expression.parse(text).holds(values)


def test_a_ramp_up_that_a_layout_cannot_serve_rejects_it():
    ramp = Batch(gbs=2048, rampup_start=32, rampup_increment=32, rampup_samples=1000)
    found = search(AS_RUN, ramp=ramp)
    assert found.rejected["rampup-start"] > 0
    assert (32 % (found.ranked["dp"] * found.ranked["mbs"]) == 0).all()


def test_ranks_are_by_what_was_asked():
    space = dataclasses.replace(AS_RUN, nodes=(24, 48))
    by_memory = search(space, by="memory")
    assert (np.diff(by_memory.mem_gib) >= 0).all()
    by_tflops = search(space, by="tflops")
    rates = [by_tflops.tflops(i) for i in range(20) if by_tflops.odds[i] >= LIKELY]
    assert rates == sorted(rates, reverse=True)
    by_cost = search(space, by="cost")
    spent = (by_cost.sec * by_cost.ranked["nodes"])[by_cost.odds >= LIKELY]
    assert (np.diff(spent) >= -1e-9 * spent[1:]).all()
    by_time = search(space)
    assert set(by_time.ranked["nodes"][:5]) == {48} and 24 in set(by_cost.ranked["nodes"][:5])


def test_recompute_does_not_count_as_work_when_it_is_searched():
    """By the sc21 formula full recompute earns a third more TFLOPs for the same time; a rank must not reward it."""
    space = dataclasses.replace(AS_RUN, recompute=None, models=(presets.model("gpt-30b"),), cluster=presets.cluster("dgx-a100"))
    found = search(space, by="tflops")
    assert found.formula == "model"
    likely = found.sec[found.odds >= LIKELY]
    np.testing.assert_array_equal(likely, np.sort(likely))


def test_ties_are_those_within_one_per_cent_of_the_first():
    found = search(AS_RUN)
    near = (found.sec / found.sec[0] - 1 < TIE) & (found.odds >= LIKELY)
    assert found.ties == near.sum()
    assert found.excess(found.ties) >= TIE


def test_megatron_is_not_offered_zero_beyond_one_with_a_pipeline_unless_asked():
    searched = search(dataclasses.replace(AS_RUN, zero=None))
    assert ((searched.ranked["zero"] < 2) | (searched.ranked["pp"] == 1)).all()
    assert searched.rejected["zero-pipeline"] > 0
    asked = search(dataclasses.replace(AS_RUN, zero=(2,)))
    assert len(asked) and (asked.ranked["pp"] > 1).any()


def test_a_larger_shape_may_take_longer_and_be_as_good():
    """Seconds are ranked for each parameter, so a model is not chosen for being small."""
    small, large = dataclasses.replace(BLOOM, layers=60), BLOOM
    found = search(dataclasses.replace(AS_RUN, models=(small, large)))
    sizes = np.array([arith.parameters(m).total for m in (small, large)])
    each, likely = found.sec / sizes[found.ranked["shape"]], found.odds >= LIKELY
    assert likely.sum() > 20
    np.testing.assert_allclose((found.key / found.key[0])[likely], (each / each[0])[likely])


@pytest.mark.parametrize(("space", "freed"), [
    (dataclasses.replace(AS_RUN, pp=(48,), tp=(1,), dp=(8,)), {"pp", "tp"}),
    (dataclasses.replace(AS_RUN, dp=(7,)), {"dp"}),
    (dataclasses.replace(AS_RUN, recompute=("none",), mbs=(16,)), {"mbs", "recompute"}),
    (dataclasses.replace(AS_RUN, cluster=presets.cluster("jz-a100", nodes=4)), {"nodes"}),
    (dataclasses.replace(AS_RUN, cluster=presets.cluster("dgx-h100", nodes=12500), gbs=(12800,)), {"gbs"}),
])  # fmt: skip
def test_when_nothing_works_the_nearest_that_does_really_works(space, freed):
    assert not len(search(space))
    found = list(ways(space))
    assert freed & {way.freed.split()[0] for way in found}
    for way in found:
        trial = way.found.trial(way.index)
        assert trial.cluster is not None
        rules.check(trial)
        assert Held.of(Configs.from_trials([trial]), trial.cluster, None).odds[0] >= UNLIKELY


def test_a_rule_that_nothing_meets_is_named_as_the_way_out():
    impossible = expression.parse("dp == 5", RULE_NAMES)
    assert not len(search(AS_RUN, rules=[impossible]))
    assert "rule 'dp == 5'" in {way.freed for way in ways(AS_RUN, rules=[impossible])}


@pytest.mark.parametrize("change", [{"dp": (0,)}, {"zero": (4,)}, {"vp": (2,)}, {"schedule": ("interleaved",)}])
def test_what_cannot_be_meant_is_refused(change):
    with pytest.raises(BadInput):
        search(dataclasses.replace(AS_RUN, **change))


def test_a_hundred_thousand_devices_are_no_burden_on_memory():
    import tracemalloc

    space = Space(models=(BLOOM,), cluster=presets.cluster("dgx-h100", nodes=12500), gbs=(10000,), engine="seatrial",
                  sequence_parallel=(False, True))  # fmt: skip
    tracemalloc.start()
    found = search(space)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.considered > 500_000 and found.accepted > 0
    assert peak < 200 * 2**20


def test_no_two_candidates_are_the_same():
    found = search(SMALL)
    assert len({found.trial(i).topology for i in range(len(found))}) == len(found)
    assert all(a != b for a, b in itertools.pairwise(found.trial(i).topology for i in range(50)))


# ---- fitting as odds

FULL = dataclasses.replace(AS_RUN, recompute=None, models=(presets.model("gpt-30b"),), cluster=presets.cluster("dgx-a100"))
"""Many of these lie near the limit."""


@pytest.mark.parametrize("by", ["time", "tflops", "cost"])
def test_what_may_not_fit_ranks_by_time_over_odds_and_never_first(by):
    found = search(FULL, by=by)
    likely = found.odds >= LIKELY
    assert (found.odds >= UNLIKELY).all() and (~likely).sum() >= 3 and likely[0]
    plain = search(dataclasses.replace(FULL, cluster=roomy(FULL.cluster)), by=by)  # all fit: the key of the time alone
    alone = dict(zip(map(layout, range(len(plain)), itertools.repeat(plain)), plain.key.tolist()))
    for i in np.flatnonzero(~likely):
        key, odds = alone[layout(i, found)], found.odds[i]
        expected = key / odds if key > 0 else key * odds
        assert found.key[i] >= expected * (1 - 1e-9) if key > 0 else found.key[i] >= expected * (1 + 1e-9)
        assert found.excess(i) >= TIE
    assert (np.diff(found.key) >= 0).all()


def roomy(cluster):
    return dataclasses.replace(cluster, device=dataclasses.replace(cluster.device, memory_gib=10_000.0, usable_gib=None))


def layout(i, found):
    return tuple(int(column[i]) for column in found.ranked.values())


def test_headroom_moves_the_limit():
    free, held = search(FULL), search(dataclasses.replace(FULL, headroom=Headroom.read("10%")))
    assert held.rejected["memory"] > free.rejected["memory"]
    assert held.considered == free.considered
    before = {layout(i, free): free.odds[i] for i in range(len(free))}
    assert all(held.odds[i] <= before[layout(i, held)] for i in range(len(held)))


def test_an_engines_facts_say_what_is_searched():
    def tried(engine, name):
        space = dataclasses.replace(AS_RUN, engine=engine, zero=None, schedule=None, vp=None, models=FULL.models)
        return {value for c in chunks(space) for value in np.unique(c[name]).tolist()}

    assert tried("megatron", "zero") == {0, 1, 2, 3} and tried("megatron-core", "zero") == {0, 1}
    assert tried("deepspeed", "vp") == {1} and len(tried("megatron", "vp")) > 3
    fsdp = Space(models=(presets.model("llama3-8b"),), cluster=presets.cluster("dgx-h100", nodes=2), gbs=(64,), engine="fsdp2")
    cut = [(c["tp"] > 1) == (c["sequence_parallel"] == 1) for c in chunks(fsdp)]
    assert all(one.all() for one in cut)
    uneven = dataclasses.replace(fsdp, pp=(3,), cluster=presets.cluster("dgx-h100", nodes=3), gbs=(96,))
    assert len(search(uneven)) and not len(search(dataclasses.replace(uneven, engine="megatron")))


def test_another_kernel_of_attention_is_a_way_out_where_stored_scores_do_not_fit():
    model = presets.model("gpt-1.3b", {"seq": 32768})
    space = Space(models=(model,), cluster=presets.cluster("jz-a100", nodes=4), gbs=(64,), tp=(1,))
    assert not len(search(space))
    first = next(ways(space))
    assert first.freed.startswith("attention stored") and first.found.trial(first.index).execution.attention == "fused"
    assert len(search(dataclasses.replace(space, execution=Execution(attention="fused"))))
