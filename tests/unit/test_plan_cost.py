"""Days and money of a whole run are what walking through it iteration by iteration gives."""
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.errors import BadInput
from seatrial.plan.cost import whole_run
from seatrial.spec import Batch


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 12), st.integers(0, 6), st.integers(1, 7), st.integers(1, 300), st.integers(1, 600))
def test_the_sum_is_that_of_every_iteration(start, steps, increment, ramp_samples, samples):
    ramped = Batch(gbs=start + steps * increment, rampup_start=start, rampup_increment=increment, rampup_samples=ramp_samples)
    consumed, seconds, iterations = 0, 0.0, 0
    while consumed < samples:
        size = ramped.size_at(consumed)
        consumed, seconds, iterations = consumed + size, seconds + 3.0 + size, iterations + 1
    run = whole_run(lambda gbs: 3.0 + gbs, ramped, tokens=samples * 64, seq=64, devices=8, price=2.0, power_w=500.0)
    assert run.iterations == iterations
    assert run.days * 86400 == pytest.approx(seconds)
    assert run.device_hours == pytest.approx(8 * seconds / 3600)
    assert run.money == pytest.approx(2 * run.device_hours)
    assert run.energy_mwh == pytest.approx(run.device_hours * 500 / 1e6)


def test_without_a_price_there_is_no_money():
    run = whole_run(lambda gbs: 105.0, Batch(gbs=2048), tokens=300e9, seq=2048, devices=384)
    assert run.money is None and run.energy_mwh is None and run.ramp_days == 0
    assert run.days == pytest.approx(300e9 / 2048 / 2048 * 105 / 86400, rel=1e-4)


def test_no_tokens_is_refused():
    with pytest.raises(BadInput, match="must be above 0"):
        whole_run(lambda gbs: 1.0, Batch(gbs=1), tokens=0, seq=1, devices=1)
