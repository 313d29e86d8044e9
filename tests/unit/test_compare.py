"""Comparisons: the interval holds what it should, drift cancels, and equal things are called equal."""
from __future__ import annotations

import math
import random

import pytest

from seatrial.errors import BadInput
from seatrial.sweep import compare as versus
from seatrial.sweep.compare import overall, paired, signed_rank, unpaired

DATA = {"model": "tiny", "batch": {"gbs": 8}}


def noisy(rng, ratio, n, noise=0.02, drift=0.0, bursts=0.0):
    """Pairs of A and B in an order of chance, on a machine that drifts, and on which others come and go for a while."""
    a, b, burst = [], [], 0.0
    for i in range(n):
        order = ["a", "b"] if rng.random() < 0.5 else ["b", "a"]
        for place, side in enumerate(order):
            if bursts and rng.random() < 0.4:
                burst = rng.choice([0.0, bursts, 2 * bursts])
            seconds = rng.lognormvariate(0, noise) * (1 + drift * (2 * i + place)) * (1 + burst)
            a.append(seconds) if side == "a" else b.append(seconds * ratio)
    return a, b


def test_equal_things_are_called_equal_nineteen_times_of_twenty():
    rng = random.Random(1)
    said = [paired(*noisy(rng, 1.0, 8)).verdict for _ in range(1000)]
    assert 0.94 <= said.count("no difference can be seen") / 1000 <= 0.98


def test_a_difference_of_five_per_cent_is_found_and_its_size_is_right():
    rng = random.Random(2)
    found = [paired(*noisy(rng, 0.95, 10)) for _ in range(500)]
    assert sum(c.verdict == "b is faster" for c in found) > 0.95 * 500
    assert sum(c.low <= 0.95 <= c.high for c in found) > 0.93 * 500


def test_a_machine_that_drifts_slows_both_alike():
    rng = random.Random(3)
    for trouble in (dict(drift=0.01), dict(bursts=1.5), dict(bursts=1.5, drift=0.03)):
        said = [paired(*noisy(rng, 1.0, 8, **trouble)).verdict for _ in range(1000)]
        assert said.count("no difference can be seen") > 0.93 * 1000, trouble
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
    assert "cannot say how sure" in found.sentence("x", "y")


def test_no_difference_says_what_would_have_been_seen():
    text = paired([1.0, 1.02, 0.98, 1.01, 0.99, 1.0], [1.01, 0.99, 1.0, 1.0, 1.0, 1.0]).sentence("plain", "tcmalloc")
    assert text.startswith("no difference can be seen between plain and tcmalloc: 1.000") and "would have been" in text


def test_six_pairs_are_the_fewest_that_say_anything_and_many_agree_with_the_tables():
    assert [signed_rank(n) for n in (1, 5, 6, 8, 10, 20)] == [0, 0, 1, 4, 9, 53]
    assert abs(signed_rank(60) - signed_rank(61)) < 40


def test_the_estimate_hardly_feels_one_ruined_pair():
    a, b = [1.0] * 12, [0.9, 0.91, 0.89] * 3 + [0.9, 0.9, 30.0]
    assert paired(a, b).ratio == pytest.approx(0.9, rel=0.02) and paired(a, b).verdict == "b is faster"


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


def test_a_and_b_run_in_pairs_and_chance_decides_which_is_first():
    sweep = versus.in_turns({**DATA, "axes": {"dp": [1, 2]}}, a=[], b=["topology.zero=1"], repeats=40, name="x")
    pairs = list(zip(sweep.tasks[::2], sweep.tasks[1::2]))
    assert all((x.repeat, x.knobs["dp"]) == (y.repeat, y.knobs["dp"]) for x, y in pairs)
    assert all({x.knobs[versus.SIDE], y.knobs[versus.SIDE]} == {"a", "b"} for x, y in pairs)
    assert all(t.trial.topology.zero == (t.knobs[versus.SIDE] == "b") for t in sweep.tasks)
    firsts = [x.knobs[versus.SIDE] for x, _ in pairs]
    assert 25 < firsts.count("a") < 55 and [t.repeat for t in sweep.tasks] == sorted(t.repeat for t in sweep.tasks)


def test_more_pairs_keep_the_identities_of_the_first_ones():
    few, more = (versus.in_turns(DATA, a=[], b=["topology.mbs=2"], repeats=n, name="x") for n in (2, 4))
    assert [t.key for t in few.tasks] == [t.key for t in more.tasks][:4]


def row(sec, **fields):
    return {"state": "measured", "sec_per_it": sec, "gbs": 8, "dp": 2, **fields}


def test_what_must_differ_with_the_other_is_found_and_named():
    one = [row(1.0, tp=1, dp=2, gpus=2), row(1.1, tp=1, dp=2, gpus=2), row(9.0, tp=1, dp=4, gpus=4)]
    two = [row(2.0, tp=2, dp=1, gpus=2), row(2.2, tp=2, dp=1, gpus=2)]
    [group] = versus.side_by_side_or_near(one, two, apart=["tp"])
    assert group.also == {"dp": (2, 1)} and group.a == [1.0 / 8, 1.1 / 8] and len(group.b) == 2
    [group] = versus.side_by_side_or_near(one[:1], [row(2.0, tp=2, dp=2, gpus=4, nodes=1)], apart=["tp"])
    assert group.also == {"gpus": (2, 4), "nodes": (None, 1)}
    [group] = versus.side_by_side_or_near(one[:1], [row(2.0, tp=2, dp=2, gpus=2)], apart=["tp"])
    assert group.also == {}


def test_a_mixture_is_not_compared():
    one = [row(1.0, tp=1, dp=2, mbs=1), row(1.1, tp=1, dp=2, mbs=2)]
    assert versus.side_by_side_or_near(one, [row(2.0, tp=2, dp=2, mbs=4)], apart=["tp"]) == []


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
    assert versus.side_by_side([row(1.0)], [row(0.9, compile=True)], apart=["session"]) == []


def test_batches_of_different_size_are_compared_by_the_sample():
    [group] = versus.side_by_side([row(1.0)], [{**row(2.0), "gbs": 16}], apart=["gbs"])
    assert group.comparison.ratio == pytest.approx(1.0)


def test_a_row_may_have_null_for_a_table():
    null = [row(1.0, session="m", outcome=None, measurement=None, host=None)]
    [group] = versus.side_by_side(null, [row(0.5, session="t")], apart=["session"])
    assert group.ran == {"a": 1, "b": 1} and group.comparison.ratio == pytest.approx(0.5)


def test_a_rehearsal_is_no_repeat_of_a_measurement():
    measured = [row(1.0, session="m"), row(1.1, session="m")]
    rehearsed = [row(0.1, session="r", state="estimated", measurement={"kind": "rehearsed"})]
    assert versus.side_by_side(measured, rehearsed, apart=["session"]) == []


@pytest.mark.parametrize("n", [6, 8, 20, 40])
def test_the_interval_of_pairs_excludes_what_the_signed_rank_test_rejects_and_no_more(n):
    from scipy.stats import wilcoxon

    def p_value(total: int) -> float:
        """Of differences 1 ... n whose negative ones have ranks that sum to `total`."""
        negative, rank = set(), n
        while total > 0:
            rank = min(rank, total)
            negative.add(rank)
            total, rank = total - rank, rank - 1
        return wilcoxon([-i if i in negative else i for i in range(1, n + 1)], method="exact").pvalue

    k = signed_rank(n)
    assert p_value(k - 1) <= 0.05 < p_value(k)
