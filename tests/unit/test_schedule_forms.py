"""The closed forms against the walk: exact where stages are alike, never more than it, and how much less at worst."""
from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule_cases import layouts
from seatrial.errors import BadInput
from seatrial.schedule import KINDS, makespan, walk
from seatrial.schedule_forms import Run, Stage, bulk_makespan, runs


def form_s(layout: dict, first: Stage, middle: Stage, last: Stage, send_s: float) -> float:
    pp, virtual, microbatches = layout["pp"], layout["virtual"], layout["microbatches"]
    stages = runs(pp, virtual, first, middle, last)
    return bulk_makespan(layout["kind"], pp=pp, microbatches=microbatches, virtual=virtual, stages=stages, send_s=send_s)


def stage_by_stage(layout: dict, first: Stage, middle: Stage, last: Stage, send_s: float) -> dict:
    """The same for `walk` and `makespan`."""
    count = layout["pp"] * layout["virtual"]
    each = [first, *[middle] * (count - 2), last] if count > 1 else [last]
    forward_s, backward_s, weight_s = (list(values) for values in zip(*each))
    return layout | {"forward_s": forward_s, "backward_s": backward_s, "weight_s": weight_s, "send_s": send_s}


def random_layout(rng: random.Random, kind: str) -> dict:
    if kind != "interleaved":
        return {"kind": kind, "pp": rng.choice([1, 2, 3, 4, 6, 8, 12]), "microbatches": rng.randint(1, 48), "virtual": 1}
    pp = rng.choice([2, 3, 4, 6, 8])
    return {"kind": kind, "pp": pp, "microbatches": pp * rng.randint(1, 6), "virtual": rng.randint(2, 4)}


durations = st.floats(0.5, 1.0)


@given(layouts(), durations, durations, durations, st.sampled_from([0.0, 0.1, 0.2]))
def test_the_form_is_the_walk_when_stages_are_alike(layout, forward_s, backward_s, weight_s, send_s):
    stage = Stage(forward_s, backward_s, weight_s)
    walked_s = walk(**stage_by_stage(layout, stage, stage, stage, send_s)).total_s
    assert form_s(layout, stage, stage, stage, send_s) == pytest.approx(walked_s, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_with_embedding_and_logits_the_form_is_within_a_thousandth_of_the_walk(kind):
    """First stage up to 10 % more than the others, last up to twice, messages up to 30 % of a forward."""
    rng = random.Random(2021)
    for _ in range(200):
        layout = random_layout(rng, kind)
        sizes = rng.uniform(1.0, 1.1), 1.0, rng.uniform(1.0, 2.0)
        split = rng.choice([(1.0, 1.0), (1.1, 0.9), (1.3, 0.9), (1.9, 0.9)])
        stages = [Stage(size, size * split[0], size * split[1]) for size in sizes]
        send_s = rng.choice([0.0, rng.uniform(0.0, 0.3)])
        exact_s = walk(**stage_by_stage(layout, *stages, send_s)).total_s
        assert form_s(layout, *stages, send_s) == pytest.approx(exact_s, rel=1e-3), (layout, stages, send_s)


@pytest.mark.parametrize("kind", KINDS)
def test_the_form_is_never_more_than_the_walk_and_rarely_a_thousandth_less_even_where_first_or_last_is_light(kind):
    rng = random.Random(384)
    off = []
    for _ in range(400):
        layout = random_layout(rng, kind)
        sizes = rng.uniform(0.6, 1.3), 1.0, rng.uniform(0.6, 2.0)
        stages = [Stage(size, size * rng.uniform(0.9, 1.2), size * rng.uniform(0.8, 1.0)) for size in sizes]
        send_s = rng.choice([0.0, rng.uniform(0.0, 0.3)])
        exact_s = makespan(**stage_by_stage(layout, *stages, send_s))
        off.append(1 - form_s(layout, *stages, send_s) / exact_s)
    assert min(off) > -1e-9, "a chain of actions cannot be longer than the longest"
    assert max(off) < 0.03
    assert sum(o > 1e-3 for o in off) <= 0.06 * len(off)


@pytest.mark.parametrize("kind", ["gpipe", "1f1b", "zb-h1"])
def test_stages_may_come_in_more_runs_than_three(kind):
    """As where layers do not divide: 7 stages with 3 layers, then 3 with 2, between the embedding and the logits."""
    big, small = Stage(3.0, 3.3, 2.7), Stage(2.0, 2.2, 1.8)
    stages = [Run(1, *big), Run(6, *big), Run(3, *small), Run(1, 2.5, 2.8, 2.2)]
    each = [big] * 7 + [small] * 3 + [Stage(2.5, 2.8, 2.2)]
    forward_s, backward_s, weight_s = (list(values) for values in zip(*each))
    for microbatches in (1, 4, 11, 40):
        exact_s = makespan(
            kind, pp=11, microbatches=microbatches, forward_s=forward_s, backward_s=backward_s, weight_s=weight_s, send_s=0.2
        )
        form = bulk_makespan(kind, pp=11, microbatches=microbatches, stages=stages, send_s=0.2)
        assert form == pytest.approx(exact_s, rel=1e-3)


def test_interleaved_takes_three_runs_and_says_so():
    with pytest.raises(BadInput, match="3 runs of stages, not 1: use makespan"):
        bulk_makespan("interleaved", pp=2, microbatches=4, virtual=2, stages=[Run(4, 1.0, 2.0)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_gives_what_each_of_its_rows_gives(kind):
    rng = random.Random(7)
    rows = [(random_layout(rng, kind), rng.uniform(0.9, 1.1), rng.uniform(0.7, 2.0), rng.uniform(0.0, 0.3)) for _ in range(50)]
    pp, microbatches, virtual = (np.array([layout[key] for layout, *_ in rows]) for key in ("pp", "microbatches", "virtual"))
    first, last, send_s = (np.array(column) for column in zip(*(row[1:] for row in rows)))
    table = bulk_makespan(
        kind, pp=pp, microbatches=microbatches, virtual=virtual, send_s=send_s, maximum=np.maximum, minimum=np.minimum,
        stages=runs(pp, virtual, Stage(first, first, first), Stage(1.0, 1.0, 1.0), Stage(last, last, last)),
    )  # fmt: skip
    alone = [form_s(layout, Stage(a, a, a), Stage(1.0, 1.0, 1.0), Stage(z, z, z), x) for layout, a, z, x in rows]
    assert table == pytest.approx(alone, rel=1e-12)
