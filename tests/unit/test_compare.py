"""Comparisons: the interval holds what it should, drift cancels, and equal things are called equal."""
from __future__ import annotations

import math
import random

import pytest

from seatrial.compare import overall, paired, unpaired
from seatrial.errors import BadInput
from seatrial.sweep import versus

DATA = {"model": "tiny", "batch": {"gbs": 8}}


def noisy(rng, ratio, n, noise=0.02, drift=0.0):
    """A and B in turns, A B B A, on a machine that becomes slower with every run."""
    a, b = [], []
    for i in range(n):
        at = {side: 2 * i + ((side == "b") ^ (i % 2)) for side in "ab"}
        a.append(rng.lognormvariate(0, noise) * (1 + drift * at["a"]))
        b.append(ratio * rng.lognormvariate(0, noise) * (1 + drift * at["b"]))
    return a, b


def test_equal_things_are_called_equal_nineteen_times_of_twenty():
    rng = random.Random(1)
    said = [paired(*noisy(rng, 1.0, 8)).verdict for _ in range(1000)]
    assert 0.93 <= said.count("no difference can be seen") / 1000 <= 0.97


def test_a_difference_of_five_per_cent_is_found_and_its_size_is_right():
    rng = random.Random(2)
    found = [paired(*noisy(rng, 0.95, 8)) for _ in range(500)]
    assert sum(c.verdict == "b is faster" for c in found) > 0.95 * 500
    assert sum(c.low <= 0.95 <= c.high for c in found) > 0.93 * 500


def test_a_machine_that_drifts_slows_both_alike():
    rng = random.Random(3)
    said = [paired(*noisy(rng, 1.0, 8, drift=0.01)).verdict for _ in range(500)]
    assert said.count("no difference can be seen") > 0.92 * 500
    # One after the other, the same drift would be a difference.
    first, second = [1 + 0.01 * i for i in range(8)], [1 + 0.01 * i for i in range(8, 16)]
    assert unpaired(first, second).verdict == "a is faster"


def test_swapping_a_and_b_turns_the_ratio_over():
    a, b = noisy(random.Random(4), 0.8, 6)
    for compared in (paired, unpaired):
        there, back = compared(a, b), compared(b, a)
        assert there.ratio == pytest.approx(1 / back.ratio) and there.low == pytest.approx(1 / back.high)
        assert (there.verdict, back.verdict) == ("b is faster", "a is faster")


def test_one_repeat_says_how_much_but_not_how_sure():
    found = paired([1.0], [0.5])
    assert found.ratio == 0.5 and not found.known and found.verdict == "too few repeats"
    assert "cannot say how sure" in found.words("x", "y")


def test_no_difference_says_what_would_have_been_seen():
    text = paired([1.0, 1.02, 0.98, 1.01], [1.01, 0.99, 1.0, 1.0]).words("plain", "tcmalloc")
    assert text.startswith("no difference can be seen between plain and tcmalloc: 0.99") and "would have been" in text


def test_unpaired_needs_both_sides():
    with pytest.raises(BadInput, match="each side needs"):
        unpaired([], [1.0])
    with pytest.raises(BadInput, match="no pairs"):
        paired([1.0], [1.0, 2.0])


def test_configurations_together_are_judged_by_how_far_they_lie_apart():
    alike = [paired([1.0, 1.01], [0.9, 0.91]) for _ in range(5)]
    apart = [paired([1.0, 1.01], [r, r * 1.01]) for r in (0.5, 2.0, 1.0, 0.7, 1.4)]
    assert overall(alike).verdict == "b is faster" and overall(apart).verdict == "no difference can be seen"
    assert overall(apart).ratio == pytest.approx(math.exp(sum(math.log(r) for r in (0.5, 2.0, 1.0, 0.7, 1.4)) / 5))


def test_a_and_b_run_in_turns_and_the_first_of_a_pair_changes():
    sweep = versus.in_turns({**DATA, "axes": {"dp": [1, 2]}}, a=[], b=["topology.zero=1"], repeats=2, name="x")
    assert [(t.repeat, t.knobs["dp"], t.knobs[versus.SIDE]) for t in sweep.tasks] == [
        (0, "1", "a"), (0, "1", "b"), (0, "2", "a"), (0, "2", "b"), (1, "1", "b"), (1, "1", "a"), (1, "2", "b"), (1, "2", "a")]
    assert [t.trial.topology.zero for t in sweep.tasks] == [0, 1, 0, 1, 1, 0, 1, 0]


def test_more_pairs_keep_the_identities_of_the_first_ones():
    few, more = (versus.in_turns(DATA, a=[], b=["topology.mbs=2"], repeats=n, name="x") for n in (2, 4))
    assert {t.key for t in few.tasks} < {t.key for t in more.tasks}


def row(sec, **fields):
    return {"state": "measured", "sec_per_it": sec, "gbs": 8, "dp": 2, **fields}


def test_records_are_compared_within_one_configuration_only():
    monday = [row(1.0, session="m"), row(1.1, session="m"), row(9.0, session="m", dp=4)]
    tuesday = [row(0.5, session="t"), row(0.55, session="t"), row(7.0, session="t", dp=8)]
    [group] = versus.side_by_side(monday, tuesday, apart=["session"])
    assert group.comparison.ratio == pytest.approx(0.5) and group.label == "dp=2 gbs=8"


def test_what_tells_a_from_b_is_not_part_of_the_configuration():
    plain, preloaded = [row(1.0, env={"OMP_NUM_THREADS": "1"})], [row(0.8, env={"OMP_NUM_THREADS": "1", "LD_PRELOAD": "x"})]
    assert len(versus.side_by_side(plain, preloaded, apart=["env.LD_PRELOAD"])) == 1
    assert versus.side_by_side(plain, preloaded, apart=["session"]) == []
    assert len(versus.side_by_side([row(1.0, dtype="fp16")], [row(1.0, dtype="bf16")], apart=["dtype"])) == 1


def test_batches_of_different_size_are_compared_by_the_sample():
    [group] = versus.side_by_side([row(1.0)], [{**row(2.0), "gbs": 16}], apart=["gbs"])
    assert group.comparison.ratio == pytest.approx(1.0)
