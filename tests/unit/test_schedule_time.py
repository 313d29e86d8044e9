"""Laws of the times: the bubbles of the papers, and that what is computed without the walk equals the walk."""
from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import attempts
from schedule_cases import layouts, timed_layouts
from seatrial.errors import BadInput
from seatrial.schedule import KINDS, makespan, picture, schedule, walk


@given(timed_layouts())
def test_the_makespan_is_that_of_the_walk_for_all_stages_alike_or_not(asked):
    assert makespan(**asked) == pytest.approx(walk(**asked).total_s, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_run_is_not_walked(kind):
    virtual = 2 if kind == "interleaved" else 1
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
