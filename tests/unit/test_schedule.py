"""Laws of the lists: what is done, in which order, what is held, who sends to whom."""
from __future__ import annotations

from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule_cases import layouts
from seatrial.errors import Infeasible
from seatrial.schedule import (
    GROUPED,
    KINDS,
    Action,
    Kind,
    PeakActivations,
    ScheduleKind,
    arrivals_in_order,
    channels,
    comes_from,
    global_stage,
    goes_to,
    peak_activations,
    schedule,
    splits_backward,
    walk,
)
from seatrial.schedule.vector import peaks


def plan_of(layout: dict) -> list[list[Action]]:
    return [schedule(rank=rank, **layout) for rank in range(layout["pp"])]


def in_flight(actions: list[Action]) -> int:
    """The most (micro-batch, chunk) activations at once, each from its forward to its backward."""
    change = {Kind.FORWARD: 1, Kind.BACKWARD: -1, Kind.WEIGHT: 0}
    return int(np.cumsum([change[action.kind] for action in actions]).max())


def test_a_topology_can_name_every_kind_that_there_is_and_no_other():
    assert get_args(ScheduleKind) == tuple(KINDS)


@given(layouts(), st.integers(1, 3))
def test_more_micro_batches_change_nothing_in_the_order_of_the_first_ones(layout, more):
    longer = layout | {"microbatches": layout["microbatches"] + more * KINDS[layout["kind"]].group(layout["pp"])}
    for few, many in zip(plan_of(layout), plan_of(longer)):
        assert few == [action for action in many if action.microbatch < layout["microbatches"]]


@given(layouts())
def test_every_microbatch_goes_forward_once_and_back_once_through_every_chunk(layout):
    kinds = "FBW" if splits_backward(layout["kind"]) else "FB"
    once = {(k, m, c): 1 for k in kinds for m in range(layout["microbatches"]) for c in range(layout["virtual"])}
    for actions in plan_of(layout):
        assert Counter((a.kind.value, a.microbatch, a.chunk) for a in actions) == once


@given(layouts())
def test_no_rank_goes_back_before_it_went_forward_nor_makes_weight_gradients_before_it_went_back(layout):
    for actions in plan_of(layout):
        at = {action: place for place, action in enumerate(actions)}
        for action, place in at.items():
            if action.kind is Kind.BACKWARD:
                assert at[Action(Kind.FORWARD, action.microbatch, action.chunk)] < place
            if action.kind is Kind.WEIGHT:
                assert at[Action(Kind.BACKWARD, action.microbatch, action.chunk)] < place


@given(layouts())
def test_no_list_deadlocks(layout):
    timeline = walk(**layout, forward_s=1.0, backward_s=2.0, send_s=0.5)
    assert [[span.action for span in spans] for spans in timeline.ranks] == plan_of(layout)


@given(layouts())
def test_every_channel_delivers_in_the_order_in_which_it_is_read(layout):
    assert arrivals_in_order(**layout)


@given(layouts())
def test_channels_join_neighbours_and_carry_every_boundary_once_each_way(layout):
    pp, stages = layout["pp"], layout["pp"] * layout["virtual"]
    found = channels(plan_of(layout), virtual=layout["virtual"])
    for source, target, kind in found:
        assert (target - source) % pp == (1 if kind is Kind.FORWARD else pp - 1)
    messages = sum(len(sent) for sent, _ in found.values())
    assert messages == 2 * (stages - 1) * layout["microbatches"]


@given(layouts())
def test_who_an_action_waits_for_sends_to_that_action(layout):
    pp, virtual = layout["pp"], layout["virtual"]
    for rank, actions in enumerate(plan_of(layout)):
        for action in actions:
            if source := comes_from(action, pp=pp, rank=rank, virtual=virtual):
                assert goes_to(source[1], pp=pp, rank=source[0], virtual=virtual) == (rank, action)


@given(layouts(), st.integers(0, 40))
def test_peaks_for_columns_are_those_counted_in_the_lists(layout, more):
    group = KINDS[layout["kind"]].group(layout["pp"])
    sizes = [layout["microbatches"], layout["microbatches"] + more * group]
    shape = {name: layout[name] for name in ("kind", "pp", "virtual")}
    for rank in range(layout["pp"]):
        counted = [peak_activations(schedule(rank=rank, microbatches=m, **shape)) for m in sizes]
        assert peaks(rank=rank, microbatches=np.array(sizes), **shape).tolist() == [
            peak.activations + peak.weight_inputs for peak in counted]


@given(layouts(("1f1b", "interleaved", "zb-h1")))
def test_activations_in_flight_never_rise_from_first_rank_to_last(layout):
    peaks = [in_flight(actions) for actions in plan_of(layout)]
    assert peaks == sorted(peaks, reverse=True)


@given(st.integers(1, 8), st.integers(1, 32))
def test_zero_bubble_holds_no_more_activations_than_1f1b_and_no_more_in_all_than_its_first_rank(pp, microbatches):
    first = in_flight(schedule("1f1b", pp=pp, rank=0, microbatches=microbatches))
    for rank in range(pp):
        split = schedule("zb-h1", pp=pp, rank=rank, microbatches=microbatches)
        assert in_flight(split) == in_flight(schedule("1f1b", pp=pp, rank=rank, microbatches=microbatches))
        fullest = peak_activations(split)
        assert fullest.activations + fullest.weight_inputs == first


def test_gpipe_holds_the_whole_batch_and_1f1b_as_many_as_stages_follow():
    assert [in_flight(schedule("gpipe", pp=4, rank=r, microbatches=16)) for r in range(4)] == [16] * 4
    assert [in_flight(schedule("1f1b", pp=4, rank=r, microbatches=16)) for r in range(4)] == [4, 3, 2, 1]
    split = [peak_activations(schedule("zb-h1", pp=4, rank=r, microbatches=16)) for r in range(4)]
    assert split == [PeakActivations(4 - r, r) for r in range(4)]


def test_interleaving_costs_the_first_rank_pp_minus_1_over_pp_v_more_activations_than_1f1b():
    pp, virtual = 4, 2
    chunks = in_flight(schedule("interleaved", pp=pp, rank=0, microbatches=16, virtual=virtual))
    assert chunks / virtual == pp * (1 + (pp - 1) / (pp * virtual))


def test_interleaved_takes_groups_of_pp_microbatches_chunk_by_chunk():
    last = schedule("interleaved", pp=2, rank=1, microbatches=4, virtual=2)
    assert " ".join(map(str, last)) == "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3"


def test_stages_are_dealt_round_the_ranks():
    assert [[global_stage(4, rank, chunk) for rank in range(4)] for chunk in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(
    ("asked", "code", "says"),
    [
        ({"kind": "2f2b", "pp": 4, "microbatches": 8}, "schedule-kind", "gpipe, 1f1b, interleaved, zb-h1"),
        ({"kind": "1f1b", "pp": 0, "microbatches": 8}, "pp", "at least 1"),
        ({"kind": "1f1b", "pp": 4, "microbatches": 0}, "microbatches", "at least DP x MBS"),
        ({"kind": "1f1b", "pp": 4, "microbatches": 8, "virtual": 2}, "virtual-stages", "interleaved"),
        ({"kind": "interleaved", "pp": 4, "microbatches": 8, "virtual": 1}, "virtual-stages", "vp >= 2"),
        ({"kind": "interleaved", "pp": 1, "microbatches": 8, "virtual": 2}, "virtual-stages", "pp >= 2"),
        ({"kind": "interleaved", "pp": 4, "microbatches": 10, "virtual": 2}, GROUPED, "8 and 12"),
        ({"kind": "interleaved", "pp": 4, "microbatches": 3, "virtual": 2}, GROUPED, "nearest is 4"),
    ],
)
def test_what_cannot_run_says_the_numbers_and_what_would_work(asked, code, says):
    with pytest.raises(Infeasible, match=says) as refused:
        schedule(rank=0, **asked)
    assert refused.value.code == code


def test_a_rank_outside_the_pipeline_is_refused():
    with pytest.raises(Infeasible, match="0 to 3"):
        schedule("1f1b", pp=4, rank=4, microbatches=8)
