"""The planner against measured rows: what is forecast cold, and what is learned.

The limits are those the project set itself.
"""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import planner


@pytest.fixture(scope="module")
def jean_zay():
    return planner.of_machine("jz-a100")


def test_cold_forecasts_of_33_rows_on_48_nodes(jean_zay):
    cluster, rows = jean_zay
    rows = planner.contest(rows)
    assert len(rows) == 33
    found = planner.cold(cluster, rows)
    assert found["time_mape"] <= 6
    assert found["rank"] >= 0.85
    assert found["regret_percent"] <= 1.3
    assert found["memory_mape"] <= 7
    assert (found["oom_found"], found["oom"], found["oom_false"]) == (3, 3, 0)
    assert [text.partition(":")[0] for text in found["rejected"]] == ["48 stages"]


def test_memory_steps_that_the_log_remarks_on(jean_zay):
    for name, before, after, was, is_ in planner.memory_steps(*jean_zay):
        assert is_ - was == pytest.approx(after - before, rel=0.15), name
        assert (was, is_) == (pytest.approx(before, rel=0.1), pytest.approx(after, rel=0.1)), name


def test_six_rows_of_another_day_do_not_mislead(jean_zay):
    """Forecast are rows of another section, date or width than those learned from."""
    cluster, rows = jean_zay
    found = planner.from_few(cluster, planner.timed(rows), 6, draws=30)
    assert found["mape"] <= found["cold_mape"] + 0.5
    assert 80 <= found["covered_percent"] <= 99


@pytest.mark.slow
def test_rows_and_tables_left_out_are_forecast_from_the_others(jean_zay):
    cluster, rows = jean_zay
    kept, every = planner.timed(planner.contest(rows)), planner.timed(rows)
    one_out = planner.left_out(cluster, kept, list(range(len(kept))))
    assert planner.mape(one_out.sec, planner.seconds(kept)) <= 2.5
    for kind in planner.KINDS.values():
        apart = planner.left_out(cluster, every, [kind(row) for row in every])
        assert planner.mape(apart.sec, planner.seconds(every)) <= 4


@pytest.mark.slow
def test_rows_of_fugaku_are_forecast_from_the_others():
    cluster, rows = planner.of_machine("fugaku")
    kept = planner.timed(rows)
    assert len(kept) == 45
    found = planner.left_out(cluster, kept, list(range(len(kept))))
    assert planner.mape(found.sec, planner.seconds(kept)) <= 8
