"""Timers: no second is counted twice, and nothing is called time that no timer covered."""
from __future__ import annotations

import time

from seatrial.engine.watch.timers import Timers


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_nested_timers_are_taken_out_of_their_parents():
    timers = Timers()
    start = time.perf_counter()
    for _ in range(3):
        with timers("forward"):
            spin(0.002)
            with timers("tp_comm"):
                spin(0.004)
            with timers("forward"):  # re-entered inside itself
                spin(0.001)
    spin(0.01)
    taken, wall = timers.take(), time.perf_counter() - start
    assert taken.keys() == {"forward", "tp_comm"}
    assert taken["forward"] >= 0.009 and taken["tp_comm"] >= 0.012
    assert sum(taken.values()) <= wall - 0.01


def test_taking_starts_anew_and_an_open_timer_goes_on():
    timers = Timers()
    with timers("data"):
        spin(0.002)
        assert timers.take()["data"] >= 0.002
        spin(0.001)
    second = timers.take()
    assert second["data"] >= 0.001
    assert timers.take() == {}


def test_spans_follow_each_other_and_add_up_to_the_totals():
    timers = Timers()
    timers.keep_spans = True
    with timers("backward"), timers("grad_reduce"):
        spin(0.001)
    taken = timers.take()
    assert all(a.end_s <= b.start_s for a, b in zip(timers.spans, timers.spans[1:]))
    for name in taken:
        assert abs(sum(s.end_s - s.start_s for s in timers.spans if s.name == name) - taken[name]) < 1e-9


def test_an_exception_closes_its_timers():
    timers = Timers()
    try:
        with timers("forward"), timers("tp_comm"):
            raise KeyError
    except KeyError:
        pass
    timers.take()
    spin(0.001)
    assert timers.take() == {}
