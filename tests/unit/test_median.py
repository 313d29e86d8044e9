"""The median and how well it is known: laws of the interval, and of the rule that ends a measurement."""
from __future__ import annotations

import math
import random

import pytest

from seatrial.engine.loop import Enough
from seatrial.median import far_out, median_of, outermost
from seatrial.recipe import Recipe


def test_six_timings_are_the_fewest_that_say_anything():
    assert [outermost(n) for n in (1, 5, 6, 8, 9)] == [0, 0, 1, 1, 2]
    assert abs(outermost(1000) - outermost(1001)) <= 2 and 49_000 < outermost(100_000) < 50_000
    assert math.isinf(median_of([1.0] * 5).half_width)
    assert median_of([1.0] * 6).half_width == 0


@pytest.mark.parametrize("n", [6, 9, 15, 40])
def test_the_interval_holds_the_median_as_often_as_it_says_whatever_the_distribution(n):
    rng = random.Random(n)
    for draw, true in ((lambda: rng.lognormvariate(0, 1), 1.0), (lambda: rng.expovariate(1), math.log(2)),
                       (lambda: rng.gauss(5, 1), 5.0)):
        held = sum(k.low <= true <= k.high for k in (median_of([draw() for _ in range(n)]) for _ in range(2000)))
        assert held / 2000 > 0.935  # 0.95 less three standard errors


def test_outliers_are_found_and_hardly_move_the_median():
    timings = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 9.0]
    assert far_out(timings) == [False] * 7 + [True]
    assert median_of(timings).value == pytest.approx(1.005)


def test_a_machine_that_still_warms_up_is_not_known():
    falling = [2.0 - 0.002 * i for i in range(60)]
    assert median_of(falling).half_width < 0.01
    assert not median_of(falling).within(0.01)


def stopped_after(draw, **settings):
    enough = Enough(Recipe(steps=10_000, **settings), gbs=8)
    for count in range(1, 5000):
        if reason := enough.after(draw(), gbs=8):
            return reason, count
    return "", 5000


def test_a_steady_run_is_known_after_seven_and_a_noisy_one_takes_longer():
    rng = random.Random(1)
    assert stopped_after(lambda: 0.5, known_to=0.01) == ("known", 7)  # one warm-up, six that count
    reason, count = stopped_after(lambda: rng.gauss(0.5, 0.025), known_to=0.01)
    assert reason == "known" and count > 40


def test_the_median_it_stops_at_is_as_close_as_it_says():
    rng, good = random.Random(2), 0
    for _ in range(200):
        seen: list[float] = []

        def draw(seen=seen):
            seen.append(rng.lognormvariate(0, 0.04))
            return seen[-1]

        assert stopped_after(draw, known_to=0.01)[0] == "known"
        good += abs(median_of(seen[1:]).value - 1) <= 0.01
    assert good >= 180  # nine of ten although it looked several times


def test_time_ends_it_and_a_loser_is_left_early():
    assert stopped_after(lambda: 0.5, measure_s=3.0) == ("time", 6)
    assert stopped_after(lambda: 2.0, slow_s=1.5) == ("slow", 4)
    assert stopped_after(lambda: 1.4, slow_s=1.5, measure_s=69) == ("time", 50)
    assert stopped_after(lambda: 0.5)[0] == ""


def test_a_ramp_up_is_neither_mixed_in_nor_stopped_at():
    enough = Enough(Recipe(known_to=0.01), gbs=8)
    assert [enough.after(0.25, gbs=4) for _ in range(20)] == [""] * 20
    assert [enough.after(0.5, gbs=8) for _ in range(7)] == [""] * 6 + ["known"]
