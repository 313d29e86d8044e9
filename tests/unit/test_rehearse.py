"""Parts of a rehearsal on their own: what is recorded is replayed, what was timed is assembled, which ranks are alike."""
from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from seatrial import presets
from seatrial.arith import footprint
from seatrial.engine.core.mesh import Mesh
from seatrial.errors import BadInput, SeatrialError
from seatrial.plan import network
from seatrial.plan.configs import Configs
from seatrial.recipe import Recipe
from seatrial.rehearse import rank, run
from seatrial.rehearse.asked import RehearsalOptions, distinct, stage_rank
from seatrial.rehearse.fake import fake_world
from seatrial.rehearse.iteration import NOTHING, Curve, Free, Measured, Modelled, RankTimes, Timed, assemble, replay
from seatrial.rehearse.load import Load
from seatrial.rehearse.rank import measure_memory, one_by_one, time_actions
from seatrial.rehearse.recorder import Moment
from seatrial.rehearse.run import rehearse
from seatrial.rehearse.show import Forecast, record
from seatrial.schedule import Kind, walk
from seatrial.spec import Batch, Execution, Model, Topology, Trial

RECIPE = Recipe()
EXECUTION = Execution(bucket_mib=0.25, logits_chunk=64, device="cpu", threads=1)
CPU = torch.device("cpu")


def trial_of(gbs: int = 4, family: Any = "gpt2", layers: int = 2, **layout: Any) -> Trial:
    model = Model(family=family, layers=layers, hidden=32, heads=4, vocab=301, seq=16)
    return Trial(model=model, batch=Batch(gbs=gbs), topology=Topology(mbs=1, **layout), execution=EXECUTION)


class Costs:
    """A network on which everything takes as long as its name says."""

    def __init__(self, **seconds: float):
        self.given = seconds

    def seconds(self, name: str, group: str, size_bytes: int) -> float:
        return self.given[name]

    def send_s(self, size_bytes: int) -> float:
        return self.given["send"]


def moment(kind: Any, at_s: float, **rest: Any) -> Moment:
    return Moment(kind=kind, at_s=at_s, **rest)


# recorded, replayed


ISSUED = [moment("mark", 0.0, phase="backward"), moment("issue", 1.0, number=1, name="all_reduce", group="tp"),
          moment("wait", 4.0, number=1), moment("mark", 5.0, phase="end")]


@pytest.mark.parametrize(("cost", "overlap", "charged"), [(2.0, True, 0.0), (7.0, True, 4.0), (2.0, False, 2.0)])
def test_a_collective_hides_behind_what_is_computed_until_it_is_waited_for(cost, overlap, charged):
    (passed,) = replay(ISSUED, Costs(all_reduce=cost), overlap=overlap)
    assert (passed.phase, passed.compute_s, passed.charged_s) == ("backward", 5.0, pytest.approx(charged))


def test_collectives_of_a_group_come_one_after_the_other_and_reach_into_the_next_action():
    moments = [moment("mark", 0.0, phase="backward"), moment("issue", 0.0, number=1, name="all_reduce", group="dp"),
               moment("issue", 1.0, number=2, name="all_reduce", group="dp"), moment("mark", 2.0, phase="reduce"),
               moment("wait", 2.0, number=1), moment("wait", 2.0, number=2), moment("mark", 2.5, phase="end")]
    backward, reduce = replay(moments, Costs(all_reduce=3.0), overlap=True)
    assert (backward.charged_s, reduce.charged_s) == (0.0, pytest.approx(4.0))


def test_what_stands_aside_takes_no_time():
    moments = [moment("mark", 0.0, phase="forward"), moment("aside", 1.0), moment("back", 9.0),
               moment("mark", 10.0, phase="end")]
    (passed,) = replay(moments, Free(), overlap=False)
    assert passed.compute_s == pytest.approx(2.0)


def test_a_curve_goes_through_its_points_and_on_in_proportion():
    curve = Curve(((1000, 1e-3), (100_000, 1e-1)))
    assert [curve(s) for s in (10, 1000, 10_000, 200_000)] == pytest.approx([1e-3, 1e-3, 1e-2, 2e-1])
    network = Measured(collectives={"all_reduce": curve}, message=Curve(((1, 5.0),)))
    assert network.seconds("sum_tied", "pp", 1) == 5.0 and network.seconds("all_reduce", "tp", 1000) == 1e-3


def test_a_modelled_network_is_the_planners():
    cluster = presets.cluster("jz-a100")
    trial = replace(trial_of(dp=4, tp=8, pp=12, layers=12, gbs=64, family="gpt2"), cluster=cluster)
    trial = replace(trial, model=presets.model("bloom-181b"))
    network = Modelled(trial, cluster)
    inside, across = network.seconds("all_reduce", "tp", 2**26), network.seconds("all_reduce", "dp", 2**26)
    assert 0 < inside < across
    assert network.seconds("all_gather", "dp", 2**26) == pytest.approx(across / 2, rel=0.1)
    assert network.seconds("all_reduce", "world", 24) > 0 and network.send_s(2**26) > 0


def test_groups_of_a_node_are_as_fast_as_its_links():
    cluster = presets.cluster("jz-a100")
    trial = trial_of(dp=32, layers=12, gbs=64, family="gpt2", zero=3, zero_group=16, weights_group=8)
    network = Modelled(replace(trial, cluster=cluster), cluster)
    inside, across, replicas = (network.seconds("all_gather", name, 2**26) for name in ("shard", "gradients", "replicas"))
    assert 0 < inside < across and across == pytest.approx(replicas)


@pytest.mark.parametrize(("kind", "name", "group"), [("ring", "shift", "cp"), ("gather", "all_gather", "cp"),
                                                     ("ulysses", "all_to_all", "cp"), ("ulysses+ring", "all_to_all", "heads"),
                                                     ("ulysses+ring", "shift", "ring")])
@pytest.mark.parametrize("cp", [4, 16])
def test_an_exchange_of_context_takes_what_the_planner_says(kind, name, group, cp):
    cluster, size_bytes = presets.cluster("jz-a100"), 2**26
    model = Model(layers=2, hidden=2048, heads=32, kv_heads=2 if kind == "ulysses+ring" else 16, vocab=301, seq=4096)
    trial = replace(trial_of(cp=cp, cp_kind=kind, gbs=1), cluster=cluster, model=model)
    c = Configs.from_trials([trial])
    found = Modelled(trial, cluster).seconds(name, group, size_bytes)
    if name == "all_to_all":
        expected = network.all_to_all_s(cluster, network.heads_group(c), size_bytes)
    else:
        members = network.context_group(c)
        ways = int(members.size[0]) if name == "shift" else 1
        expected = network.gather_s(cluster, members, ways * size_bytes) / max(1, ways - 1)
    assert found == pytest.approx(float(expected[0])) and found > size_bytes / 1e13


def recorded(**layout: Any) -> list[Moment]:
    trial = replace(trial_of(**layout), model=Model(layers=2, hidden=32, heads=4, vocab=301, seq=512))
    with fake_world(rank=1, world=trial.topology.world):
        return time_actions(trial, RECIPE, CPU, repeats=2, as_gpu=True)


def behind(moments: list[Moment], number: int) -> float:
    """What was computed between a collective's issue and its wait."""
    first, last = (next(i for i, m in enumerate(moments) if (m.kind, m.number) == (kind, number)) for kind in ("issue", "wait"))
    return sum(b.at_s - a.at_s for a, b in pairwise(moments[first : last + 1]) if a.kind != "aside")


def charged(moments: list[Moment], cost_s: float, name: str) -> float:
    """Of the forward passes, where this kind of talk takes so long and no other any time."""
    costs = Costs(**{m.name: cost_s * (m.name == name) for m in moments if m.kind == "issue"})
    return sum(p.charged_s for p in replay(moments, costs, overlap=True) if p.phase == "forward")


def issued(moments: list[Moment], name: str) -> list[Moment]:
    """In forward passes."""
    found, phase = [], ""
    for one in moments:
        phase = one.phase if one.kind == "mark" else phase
        if one.kind == "issue" and one.name == name and phase == "forward":
            found.append(one)
    return found


def test_a_ring_hides_behind_the_attention_that_was_timed_and_an_all_to_all_does_not():
    ring = recorded(cp=4, cp_kind="ring", gbs=2)
    shifts = issued(ring, "shift")
    hidden = [behind(ring, one.number) for one in shifts]
    assert len(shifts) == 2 * 2 * 3 and min(hidden) > 0
    assert charged(ring, 0.9 * min(hidden), "shift") == pytest.approx(0.0, abs=1e-12)
    long_s = 10 * max(hidden)
    assert charged(ring, long_s, "shift") == pytest.approx(len(shifts) * long_s - sum(hidden), rel=1e-6)
    dealt = recorded(cp=4, cp_kind="ulysses", gbs=2)
    count = len(issued(dealt, "all_to_all"))
    assert count == 2 * 2 * 2
    assert charged(dealt, long_s, "all_to_all") == pytest.approx(
        count * long_s - sum(behind(dealt, one.number) for one in issued(dealt, "all_to_all")), rel=1e-6)
    assert charged(dealt, long_s, "all_to_all") > 0.9 * count * long_s


# assembled


def timed(sec: float) -> Timed:
    return Timed(compute_s=sec, charged_s=0.0, repeats=(sec,))


def times(forward: float, backward: float, *, weight: float | None = None, vp: int = 1) -> RankTimes:
    return RankTimes(forward=(timed(forward),) * vp, backward=(timed(backward),) * vp,
                     weight=(NOTHING if weight is None else timed(weight),) * vp, reduce=timed(0.5), update=timed(0.25))


@pytest.mark.parametrize("layout", [{"pp": 4}, {"pp": 4, "schedule": "gpipe"}, {"pp": 2, "vp": 2, "schedule": "interleaved"},
                                    {"pp": 4, "schedule": "zb-h1"}, {}], ids=str)
def test_an_iteration_is_the_schedules_walk_and_its_end(layout):
    trial = trial_of(gbs=8, layers=4, **layout)
    t = trial.topology
    weight = 1.0 if t.schedule == "zb-h1" else None
    found = assemble(trial, [times(1.0 + r, 2.0, weight=weight, vp=t.vp) for r in range(t.pp)], send_s=0.125)
    forward = [1.0 + stage % t.pp for stage in range(t.pp * t.vp)]
    expected = walk(t.schedule, pp=t.pp, microbatches=8, virtual=t.vp, forward_s=forward, backward_s=2.0, weight_s=weight,
                    send_s=0.125)
    ends = [spans[-1].end_s for spans in expected.ranks]
    assert found.sec == pytest.approx(max(ends) + 0.75)
    assert sum(found.parts.values()) == pytest.approx(found.sec)
    assert found.busiest == t.pp - 1


def test_a_very_long_schedule_is_not_walked(monkeypatch):
    trial = trial_of(gbs=64, layers=4, pp=4)
    walked = assemble(trial, [times(1.0, 2.0)] * 4, send_s=0.1)
    monkeypatch.setattr("seatrial.rehearse.iteration.MOST_WALKED", 10)
    assert assemble(trial, [times(1.0, 2.0)] * 4, send_s=0.1).sec == pytest.approx(walked.sec)


def test_actions_come_one_by_one_and_are_told_apart_by_stage():
    plan = one_by_one(Topology(pp=2, vp=2, schedule="interleaved"), 2)
    assert [str(a) for a in plan] == ["F0", "F0.1", "B0.1", "B0", "F1", "F1.1", "B1.1", "B1"]
    phases = {Kind.FORWARD: "forward", Kind.BACKWARD: "backward"}
    marks = [moment("mark", float(i), phase=phases[a.kind], microbatch=a.microbatch) for i, a in enumerate(plan)]
    marks += [moment("mark", 8.0, phase="reduce"), moment("mark", 8.5, phase="optimizer"), moment("mark", 9.0, phase="end")]
    found = RankTimes.of(replay(marks, Free(), overlap=False), Topology(pp=2, vp=2, schedule="interleaved"))
    assert [len(t.repeats) for t in (*found.forward, *found.backward)] == [2, 2, 2, 2]


# which ranks


def test_ranks_are_distinct_by_layers_ends_and_what_they_hold():
    trial = trial_of(gbs=2, layers=6, pp=6)
    found = distinct(trial, RehearsalOptions(all_stages=True))
    # Two micro-batches fill every rank but the last two alike.
    assert [one.alike for one in found] == [(0,), (1, 2, 3, 4), (5,)]
    every = distinct(trial_of(gbs=8, layers=6, pp=6), RehearsalOptions(all_stages=True))
    assert [one.in_flight for one in every] == [6, 5, 4, 3, 2, 1]
    assert stage_rank(trial_of(layers=4, pp=4, tp=2, dp=2, gbs=4), "middle") == 8


@pytest.mark.parametrize(("asked", "words"), [
    (lambda t: RehearsalOptions(rank=4), "--rank 4: DP 2 x TP 1 x PP 2 = 4 processes, counted from 0 to 3"),
    (lambda t: RehearsalOptions(rank=stage_rank(t, "middle")), "PP 2 has none"),
    (lambda t: RehearsalOptions(rank=stage_rank(t, "upper")), "use first, middle or last"),
    (lambda t: RehearsalOptions(repeats=0), "at least once"),
])  # fmt: skip
def test_what_is_not_there_is_said(asked, words):
    trial = trial_of(dp=2, pp=2)
    with pytest.raises(BadInput, match=words):
        rehearse(trial, RECIPE, asked(trial))


# one rank


def test_a_world_of_thousands_has_one_process_and_the_groups_that_it_is_in():
    with fake_world(rank=4242, world=6144):
        mesh = Mesh(Topology(dp=32, tp=4, pp=48), device=CPU, acts_as="nccl")
        assert (mesh.tp.size, mesh.dp.size, mesh.pp.size, len(mesh._pool)) == (4, 32, 48, 7)
        with pytest.raises(SeatrialError, match="a process of its own"), fake_world(rank=0, world=2):
            pass
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("layout", [{"tp": 2, "pp": 2, "dp": 2, "zero": 1}, {"dp": 2, "zero": 3},
                                    {"precision": "fp16", "pp": 2}], ids=str)
def test_losses_and_gradients_are_finite_with_peers_made_up(layout, monkeypatch):
    seen = []
    real = rank.StandIn.step

    def step(self, *args, **kwargs):
        seen.append(real(self, *args, **kwargs))
        return seen[-1]

    monkeypatch.setattr(rank.StandIn, "step", step)
    trial = trial_of(**layout)
    found = rehearse(trial, RECIPE, RehearsalOptions(rank=trial.topology.world - 1, repeats=1))
    assert all(math.isfinite(r.loss) and math.isfinite(r.grad_norm) and r.grad_norm > 0 for r in seen)
    assert found.ranks[0].times is not None and found.ranks[0].times.forward[0].compute_s > 0


@pytest.mark.parametrize("layout", [{"pp": 2}, {"pp": 2, "schedule": "zb-h1"},
                                    {"pp": 2, "vp": 2, "schedule": "interleaved"}], ids=str)
def test_part_of_a_long_batch_shows_the_fullest_moment(layout, monkeypatch):
    trial = trial_of(gbs=16, layers=4, **layout)
    with fake_world(rank=0, world=2):
        short = rank.measure_memory(trial, RECIPE, CPU, fake=False, as_gpu=False)
        monkeypatch.setattr(rank, "microbatches_to_peak", lambda trial, pp_rank: trial.microbatches)
        long = rank.measure_memory(trial, RECIPE, CPU, fake=False, as_gpu=False)
    assert short.microbatches < long.microbatches
    assert (short.peak_bytes, short.parts) == (long.peak_bytes, long.parts)


def test_tensors_without_memory_count_like_real_ones():
    with fake_world(rank=1, world=4):
        trial = trial_of(tp=2, pp=2, recompute="selective", family="bloom")
        real, fake = (rank.measure_memory(trial, RECIPE, CPU, fake=f, as_gpu=False) for f in (False, True))
    assert fake.peak_bytes == real.peak_bytes and fake.parts == real.parts and fake.fake


def test_a_device_that_is_too_small_is_one_line_with_the_way_out(monkeypatch):
    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has …")

    monkeypatch.setattr(rank, "StandIn", full)
    with pytest.raises(rank.OutOfMemory, match=r"TP 2, PP 1, DP 1, MBS 1 needs about .* GiB per rank.*--memory-only") as error:
        rehearse(trial_of(tp=2), RECIPE, RehearsalOptions())
    assert "\n" not in str(error.value)
    assert not torch.distributed.is_initialized()


def test_a_rank_that_does_not_fit_is_counted_without_memory(monkeypatch):
    monkeypatch.setattr(run, "_free_gib", lambda device: 1e-6)
    found = rehearse(trial_of(pp=2), RECIPE, RehearsalOptions())
    assert found.iteration is None and found.ranks[0].memory.fake and "are free here" in found.notes[0]


def test_the_logbook_never_takes_it_for_measured():
    found = rehearse(trial_of(), RECIPE, RehearsalOptions(repeats=1))
    kept = record(found, RECIPE)
    assert kept.state == "estimated" and kept.measurement["kind"] == "rehearsed" and "sec_per_it" in kept.estimated
    assert kept.to_dict() and kept.sec_per_it and kept.mem_value is not None


def test_the_planner_beside_it_has_compute_without_talk():
    cluster = presets.cluster("jz-a100")
    trial = Trial(model=presets.model("bloom-181b"), batch=Batch(gbs=2048), cluster=cluster,
                  topology=Topology(dp=4, tp=8, pp=12, mbs=2, zero=1, recompute="full", precision="bf16"), execution=EXECUTION)
    found = Forecast.of(trial, cluster)
    for f, b, compute in zip(found.forward_s, found.backward_s, found.compute_s):
        assert 0 < compute < f + b


@pytest.mark.parametrize("name, layout, load", [
    ("tiny-moe", {"dp": 4, "ep": 4}, 1.5), ("tiny-deepseek", {"dp": 2, "ep": 2, "recompute": "full"}, 2.0),
    ("tiny-moe", {"dp": 4, "ep": 2, "zero": 2, "recompute": "selective"}, 1.0),
])  # fmt: skip
@pytest.mark.parametrize("gpu", [False, True])
def test_experts_hold_what_the_load_says(name: str, layout: dict[str, Any], load: float, gpu: bool) -> None:
    """One device cannot route to others: what came is as much as is said, and as many bytes as the shapes say."""
    trial = Trial(model=presets.model(name), batch=Batch(gbs=8), topology=Topology(mbs=2, precision="bf16", **layout))
    with fake_world(rank=0, world=trial.topology.world):
        found = measure_memory(trial, Recipe(), torch.device("cpu"), fake=True, as_gpu=gpu, load=Load(load))
    counted = footprint(trial, gpu=gpu, load=(load, load))
    assert found.peak_bytes == pytest.approx(counted.total, rel=0.02)
    assert found.parts["activations"] == pytest.approx(counted.activations, rel=0.03)


def test_a_trace_says_what_each_expert_receives(tmp_path: Path) -> None:
    trial = Trial(model=presets.model("tiny-moe"), batch=Batch(gbs=2), topology=Topology(dp=2, ep=2))
    path = tmp_path / "tokens.txt"
    path.write_text("# of each expert\n1 1 1 1 0 0 2 2\n")
    load = Load.of(str(path))
    load.check(trial)
    # 64 tokens of each of two ranks choose two experts each.
    assert [load.rows(trial, rank, layer=3) for rank in (0, 1)] == [[32, 32, 32, 32], [0, 0, 64, 64]]
    assert Load(1.5).rows(trial, 0, layer=0) == [48] * 4 and load.of_balance(trial, 0) == (1.0, 1.0)
    for said in ("5", "0", "no-such-file"):
        with pytest.raises(BadInput, match="--moe-load"):
            Load.of(said).check(trial)
    for text, reason in (("1 2 3\n", "line 1 has 3 numbers; 8 experts"), ("# none\n", "is empty"), ("0 " * 8, "some in all"),
                         ("inf" + " 1" * 7, "some in all"), ("9" + " 1" * 7, "expert 0 has 56% of the choices; 50% at most")):
        path.write_text(text)
        with pytest.raises(BadInput, match=reason):
            Load.of(str(path)).check(trial)
