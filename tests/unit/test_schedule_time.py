"""Laws of the times: the bubbles of the papers, and that what is computed without the walk equals the walk."""
from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attempts
from schedule_cases import layouts, timed_layouts
from seatrial import presets
from seatrial.errors import BadInput
from seatrial.plan import step
from seatrial.plan.configs import SCHEDULES, SPLITS, Configs, rank_layers
from seatrial.schedule import KINDS, Action, Kind, Schedule, peak_activations, picture, schedule, walk
from seatrial.schedule.vector import makespan, makespans, peaks


@given(timed_layouts())
def test_the_makespan_is_that_of_the_walk_for_all_stages_alike_or_not(asked):
    assert makespan(**asked) == pytest.approx(walk(**asked).total_s, rel=1e-9)


def durations_of(how: str, stages: int, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """[stages, n] forward and backward."""
    forward, backward = np.ones((stages, n)), np.full((stages, n), 2.0)
    if how == "every stage its own":
        return forward * rng.uniform(0.1, 2, (stages, n)), backward * rng.uniform(0.1, 2, (stages, n))
    if how == "one of two lengths":
        return forward + rng.integers(0, 2, (stages, n)), backward + rng.integers(0, 2, (stages, n))
    reach = {"ends of their own": 0.2, "ends hardly their own": 1e-3, "all alike": 0.0}[how]
    for end in (0, -1):
        forward[end] *= 1 + rng.uniform(-reach, reach, n)
        backward[end] *= 1 + rng.uniform(-reach, reach, n)
    return forward, backward


HOW = ("every stage its own", "one of two lengths", "ends of their own", "ends hardly their own", "all alike")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", HOW)
def test_many_layouts_at_once_take_what_the_walk_of_each_takes(kind, how):
    """From fewer micro-batches than ranks to far more, of different numbers side by side."""
    rng = np.random.default_rng([list(KINDS).index(kind), HOW.index(how)])
    for _ in range(12):
        virtual = int(rng.integers(2, 5)) if KINDS[kind].virtual else 1
        pp, n = int(rng.integers(2 if virtual > 1 else 1, 12)), 6
        m = KINDS[kind].group(pp) * rng.integers(1, 8 if virtual > 1 else 60, n)
        forward, backward = durations_of(how, pp * virtual, n, rng)
        send = rng.uniform(0, 0.5, (pp * virtual - 1, n)) * rng.integers(0, 2)
        found = makespans(kind, pp=pp, virtual=virtual, microbatches=m, forward_s=forward, backward_s=backward, send_s=send)
        walked = [walk(kind, pp=pp, virtual=virtual, microbatches=int(m[i]), forward_s=forward[:, i].tolist(),
                       backward_s=backward[:, i].tolist(), send_s=send[:, i].tolist()).total_s for i in range(n)]
        np.testing.assert_allclose(found, walked, rtol=1e-9)


def planned(kinds: tuple[str, ...], count: int, seed: int) -> Configs:
    """Layouts as people try them: models of 1B to 200B, pipelines of 1 to 24, any number of layers and of micro-batches."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        kind = kinds[rng.integers(len(kinds))]
        vp = int(rng.integers(2, 5)) if KINDS[kind].virtual else 1
        pp = int(rng.choice([2, 3, 4, 6, 8, 12, 16, 24][: 6 if vp > 1 else 8]))
        layers = int(rng.integers(pp * vp, 5 * pp * vp))
        m = KINDS[kind].group(pp) * int(rng.integers(1, 4 if KINDS[kind].grouped else 3 * pp))
        hidden, mbs = int(rng.choice([2048, 6144, 14336])), int(rng.choice([1, 2, 4]))
        row = {"layers": layers, "hidden": hidden, "heads": hidden // 128, "seq": 2048, "pp": pp, "vp": vp, "dp": 4, "mbs": mbs,
               "gbs": 4 * mbs * m, "vocab": int(rng.choice([51200, 250880])), "tp": int(rng.choice([1, 2, 4, 8])),
               "recompute": int(rng.integers(3)), "schedule": SCHEDULES.index(kind), "procs_per_node": 8}
        if rng.integers(4) == 0:  # as given by hand, with whatever on each stage
            given = tuple(int(n) for n in rng.integers(1, 6, pp * vp))
            rows.append(row | {"layers": sum(given)} | rank_layers(given, pp))
        else:
            one = Configs.from_columns(1, **row)
            rows.append({name: int(getattr(one, name)[0]) for name in (*row, *rank_layers(SPLITS[one.split[0]], pp))})
    return Configs.from_columns(count, **{name: np.array([row[name] for row in rows]) for name in rows[0]})


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_takes_what_the_walk_over_its_own_stages_takes(kind):
    c = planned((kind,), 60, seed=11)
    timed = step.time(c, presets.cluster("jz-a100"))
    assert timed.stages is not None
    inside = [part for name, part in timed.parts.items() if name not in ("gradients", "optimizer", "fixed")]
    for i, took in enumerate(np.sum(inside, axis=0)):
        forward, backward = (seconds[:, 0].tolist() for seconds in timed.stages.seconds(np.array([i])))
        assert sum(SPLITS[c.split[i]]) == c.layers[i] and len(forward) == c.pp[i] * c.vp[i]
        exact = walk(kind, pp=int(c.pp[i]), virtual=int(c.vp[i]), microbatches=int(c.microbatches[i]), forward_s=forward,
                     backward_s=backward).total_s
        assert took == pytest.approx(exact, rel=1e-9)


def test_a_layout_takes_the_same_alone_and_among_others():
    c = planned(tuple(KINDS), 200, seed=7)
    together = step.time(c.take(np.tile(np.arange(200), 100)), presets.cluster("jz-a100")).sec
    alone = [step.time(c.take([i]), presets.cluster("jz-a100")).sec[0] for i in range(200)]
    np.testing.assert_allclose(together, np.tile(alone, 100), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_run_is_not_walked(kind):
    virtual = 2 if KINDS[kind].virtual else 1
    stages = 16 * virtual
    asked = {
        "kind": kind, "pp": 16, "microbatches": 512, "virtual": virtual,
        "forward_s": [1.01] + [1.0] * (stages - 2) + [1.3], "backward_s": [2.02] + [2.0] * (stages - 2) + [2.6], "send_s": 0.1,
    }  # fmt: skip

    def check() -> None:
        start_s = time.process_time()
        walked_s = walk(**asked).total_s
        between_s = time.process_time()
        assert makespan(**asked) == pytest.approx(walked_s, rel=1e-9)
        assert time.process_time() - between_s < (between_s - start_s) / 5

    attempts.one_of_three(check)


@given(timed_layouts())
def test_no_action_starts_before_its_rank_is_free_and_all_time_is_work_or_wait(asked):
    timeline = walk(**asked)
    for spans, busy_s, wait_s in zip(timeline.ranks, timeline.busy_s, timeline.wait_s):
        assert all(later.start_s >= earlier.end_s for earlier, later in pairwise(spans))
        assert wait_s >= -1e-9
        assert busy_s + wait_s == pytest.approx(timeline.total_s)


@given(st.integers(1, 8), st.integers(1, 32), st.sampled_from(["gpipe", "1f1b"]))
def test_the_bubble_of_gpipe_and_1f1b_is_pp_minus_1_microbatches(pp, microbatches, kind):
    timeline = walk(kind, pp=pp, microbatches=microbatches, forward_s=1.0, backward_s=2.0)
    assert timeline.wait_s == pytest.approx([3.0 * (pp - 1)] * pp)


@given(st.integers(2, 8), st.integers(1, 4), st.integers(2, 4))
def test_virtual_stages_divide_the_bubble(pp, groups, virtual):
    timeline = walk(
        "interleaved", pp=pp, microbatches=pp * groups, virtual=virtual, forward_s=1.0 / virtual, backward_s=2.0 / virtual
    )
    assert timeline.wait_s == pytest.approx([3.0 * (pp - 1) / virtual] * pp)


@given(st.integers(1, 8), st.integers(0, 24))
def test_zero_bubble_waits_for_one_part_of_three(pp, more):
    """(PP - 1)(F + B - W), from PP micro-batches on; 1F1B waits (PP - 1)(F + B + W)."""
    timeline = walk("zb-h1", pp=pp, microbatches=pp + more, forward_s=1.0, backward_s=1.0, weight_s=1.0)
    assert timeline.wait_s == pytest.approx([1.0 * (pp - 1)] * pp)


@given(st.integers(1, 8), st.integers(1, 32), st.tuples(*[st.floats(0.1, 2.0)] * 3), st.floats(0.0, 0.05))
def test_splitting_the_backward_pass_never_costs_time_when_stages_are_alike(pp, microbatches, parts_s, send_s):
    parts = dict(zip(("forward_s", "backward_s", "weight_s"), parts_s))
    asked = {"pp": pp, "microbatches": microbatches, "send_s": send_s} | parts
    assert makespan("zb-h1", **asked) <= makespan("1f1b", **asked) * (1 + 1e-12)


def test_one_stage_takes_its_work_and_no_more():
    for kind in ("gpipe", "1f1b", "zb-h1"):
        assert makespan(kind, pp=1, microbatches=5, forward_s=1.0, backward_s=2.0, send_s=9.0) == 15.0


def test_kinds_are_compared_on_the_same_work():
    """Whole backward or its two parts: the work of a rank is the same for every kind."""
    for parts in ({"backward_s": 2.0}, {"backward_s": 1.2, "weight_s": 0.8}):
        for kind in ("gpipe", "1f1b", "zb-h1"):
            assert walk(kind, pp=4, microbatches=8, forward_s=1.0, **parts).busy_s == pytest.approx([24.0] * 4)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"forward_s": [1.0, 1.0]}, "forward_s has 2 values: give one number, or 4"),
        ({"send_s": -1.0}, "send_s has -1.0 s: durations are not negative"),
    ],
)
def test_durations_that_do_not_fit_the_stages_are_refused(wrong, says):
    for timed in (walk, makespan):
        with pytest.raises(BadInput, match=says):
            timed(**({"kind": "1f1b", "pp": 4, "microbatches": 8, "forward_s": 1.0, "backward_s": 2.0} | wrong))


def test_the_picture_has_a_line_a_rank_and_names_every_action_where_there_is_room():
    timeline = walk("zb-h1", pp=3, microbatches=4, forward_s=1.0, backward_s=1.0, weight_s=1.0)
    lines = picture(timeline, width=7 + 4 * 14).splitlines()
    assert [line[:7] for line in lines] == ["rank 0 ", "rank 1 ", "rank 2 "]
    assert {len(line) for line in lines} == {7 + 4 * 14}
    for rank, line in enumerate(lines):
        drawn = line[7:].replace(".", " ").replace("-", " ").split()
        assert drawn == [str(action) for action in schedule("zb-h1", pp=3, rank=rank, microbatches=4)]
    assert lines[0].count(".") == 4 * 2, "two actions' worth of bubble"


@given(layouts(), st.integers(10, 200))
def test_the_picture_is_as_wide_as_asked(layout, width):
    lines = picture(walk(**layout, forward_s=1.0, backward_s=2.0), width).splitlines()
    assert {len(line) for line in lines} == {width}


@given(st.integers(1, 8), st.integers(0, 24), st.tuples(*[st.floats(0.1, 2.0)] * 3))
def test_zero_bubble_waits_for_the_longest_of_f_b_and_f_plus_b_minus_w_a_stage(pp, more, parts_s):
    f, b, w = parts_s
    took_s = makespan("zb-h1", pp=pp, microbatches=pp + more, forward_s=f, backward_s=b, weight_s=w)
    assert took_s == pytest.approx((pp + more) * (f + b + w) + (pp - 1) * max(f + b - w, f, b))


def test_a_further_schedule_is_timed_and_counted_from_its_function_alone(monkeypatch):
    """1F1B that runs twice as far ahead, whole and with the weight gradients put off."""
    def eager(pp: int, rank: int, m: int, virtual: int) -> list[Action]:
        run = [Action(kind, i) for i in range(-2 * pp, m) for kind in (Kind.FORWARD, Kind.BACKWARD)]
        shifted = [Action(a.kind, a.microbatch + (2 * (pp - rank - 1) if a.kind is Kind.FORWARD else 0)) for a in run]
        return [a for a in shifted if 0 <= a.microbatch < m]

    def split(pp: int, rank: int, m: int, virtual: int) -> list[Action]:
        return [part for a in eager(pp, rank, m, virtual)
                for part in ([a, Action(Kind.WEIGHT, a.microbatch)] if a.kind is Kind.BACKWARD else [a])]

    rng = np.random.default_rng(3)
    for name, kind in (("eager", Schedule(actions=eager, fill=4)),
                       ("eager split", Schedule(actions=split, fill=4, splits_backward=True))):
        monkeypatch.setitem(KINDS, name, kind)
        for pp in (1, 2, 5, 8):
            m = rng.integers(1, 50, 6)
            forward, backward = durations_of("ends of their own", pp, 6, rng)
            found = makespans(name, pp=pp, microbatches=m, forward_s=forward, backward_s=backward)
            for i in range(6):
                asked = {"pp": pp, "microbatches": int(m[i])}
                walked = walk(name, **asked, forward_s=forward[:, i].tolist(), backward_s=backward[:, i].tolist())
                assert found[i] == pytest.approx(walked.total_s, rel=1e-9)
                peak = peak_activations(schedule(name, rank=0, **asked))
                assert peaks(name, pp=pp, rank=0, microbatches=m[i : i + 1])[0] == peak.activations + peak.weight_inputs
