"""The search for the best topology: what it asks, what it learns, when it stops; on a real log and on made-up truths."""
from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seatrial import presets
from seatrial.errors import BadInput
from seatrial.plan import calibrate, rows
from seatrial.plan.request import Request
from seatrial.plan.search import search as plan
from seatrial.record import Outcome, Record
from seatrial.tune import Oracle, Tuner
from seatrial.tune.candidates import Observation
from seatrial.tune.oracle import choose_rows
from seatrial.tune.posterior import posterior, row_of
from seatrial.tune.search import Budget, Spent, search
from seatrial.tune.tuner import expected_improvement, worth

ROWS = Path(__file__).parents[2] / "examples" / "rows.csv"
A100 = presets.cluster("jz-a100")
BEST = (8, 4, 12, 2)


@pytest.fixture(scope="module")
def table():
    return choose_rows(rows.read(ROWS, A100).rows, A100, path="rows.csv", model=presets.model("bloom-181b"), nodes_max=48,
                       leave_out=["bloom-prequel:475"])


def key(trial):
    t = trial.topology
    return t.dp, t.tp, t.pp, t.mbs


def played(oracle, most=100, **how):
    """The trials of a search, in order, and the tuner afterwards."""
    tuner, asked = Tuner(oracle.trials, A100, **how), []
    while len(asked) < most and (trial := tuner.ask()) is not None:
        asked.append(trial)
        tuner.tell(trial, oracle.measure(trial))
    return asked, tuner


def plain(count=12):
    """Layouts of a small model on one node of 8 GPUs."""
    asked = Request.read(model="gpt-1.3b", cluster="jz-a100", nodes=1, fixed={"gbs": "64", "zero": "1", "recompute": "full",
                                                                              "schedule": "1f1b"})
    found = plan(asked.space, precision="bf16")
    return [found.trial(i) for i in range(min(count, len(found)))]


# ---- on the rows of the A100 log

def test_the_best_of_the_log_is_found_in_five_trials_on_average(table):
    """`benchmarks/search.py` has twenty seeds and the other methods beside it."""
    reached = []
    for seed in range(8):
        asked, tuner = played(Oracle(table, seed=seed), seed=seed)
        assert tuner.standing().settled and key(tuner.standing().best) == BEST
        reached.append([key(trial) for trial in asked].index(BEST) + 1)
    assert statistics.mean(reached) <= 5


def test_a_row_is_seen_only_after_it_was_asked_for(table):
    asked, _ = played(Oracle(table))
    for place in (1, 2):
        ids = [trial.run_id() for trial in asked[: place]]
        changed = [row if row.trial.run_id() in ids or row.sec_per_it is None else replace(row, sec_per_it=row.sec_per_it * 3)
                   for row in table]
        again, _ = played(Oracle(changed), most=place + 3)
        assert [t.run_id() for t in again[: place + 1]] == [t.run_id() for t in asked[: place + 1]]
    assert [t.run_id() for t in again] != [t.run_id() for t in asked[: len(again)]], "what it was told then matters"
    assert not any(hasattr(trial, "sec_per_it") for trial in Oracle(table).trials)


def test_repeats_of_a_topology_are_drawn_by_the_seed_and_the_left_out_row_never_is(table):
    trial = next(row.trial for row in table if row.cells["line_no"] == "448")
    drawn = {Oracle(table, seed=seed).measure(trial).source_line for seed in range(40)}
    assert drawn == {288, 358, 396, 448}
    lines = {row.cells["line_no"] for row in table}
    assert "475" not in lines and "474" in lines


def test_an_oracle_hands_failures_over_as_outcomes_and_leaves_copies_out(table):
    oracle = Oracle(table)
    failed = [t for t in oracle.trials if oracle.measure(t).outcome is not None]
    assert {key(t) for t in failed} == {(48, 8, 1, 1), (32, 2, 6, 2), (32, 2, 6, 1)}
    assert all(oracle.measure(t).outcome.status == "oom_device" for t in failed)
    assert len(oracle.trials) == 27


@pytest.mark.parametrize(("how", "words"), [
    ({"model": None}, "--model says which"), ({"leave_out": ["nowhere:1"]}, "no such row"),
    ({"model": presets.model("tiny")}, "no row of 8 layers"), ({"nodes_max": 0}, "no row"),
])
def test_an_oracle_that_cannot_serve_says_why(how, words):
    with pytest.raises(BadInput, match=words):
        Oracle.read(ROWS, A100, **{"model": presets.model("bloom-181b"), **how})


def test_asking_twice_gives_the_same_and_a_search_repeats_itself(table):
    tuner = Tuner(Oracle(table).trials, A100)
    assert tuner.ask() == tuner.ask()
    first, second = played(Oracle(table)), played(Oracle(table))
    assert [t.run_id() for t in first[0]] == [t.run_id() for t in second[0]]
    assert first[1].standing() == second[1].standing()


# ---- what it believes

def test_before_any_trial_the_view_is_the_cold_planners(table):
    trials = Oracle(table).trials
    view = posterior(trials, {}, A100)
    cold = calibrate.cold(A100).forecast([row_of(t) for t in trials])
    assert np.allclose(np.exp(view.mean) * [t.batch.gbs for t in trials], cold.sec)
    assert np.linalg.eigvalsh(view.covariance).min() > -1e-12


def test_a_measured_candidate_is_what_was_measured_and_others_are_what_calibration_says():
    trials = plain()
    cold = posterior(trials, {}, A100)
    sec = float(np.exp(cold.mean[0])) * trials[0].batch.gbs * 1.2
    view = posterior(trials, {0: [Observation.of(sec)]}, A100)
    assert np.exp(view.mean[0]) * trials[0].batch.gbs == pytest.approx(sec, rel=0.01)
    assert view.covariance[0, 0] < cold.covariance[0, 0] / 20
    learned = calibrate.learn([row_of(trials[0], sec_per_it=sec)], A100, also=[row_of(t) for t in trials])
    expected = learned.forecast([row_of(t) for t in trials[1:]]).sec
    assert np.allclose(np.exp(view.mean[1:]) * [t.batch.gbs for t in trials[1:]], expected)
    assert np.all(view.mean[1:] > cold.mean[1:]), "a slow machine is slow for all"


def test_a_slow_session_is_not_held_against_a_topology():
    trials = plain(6)
    tuner = Tuner(trials, A100)
    base = np.exp(tuner.view.seen.mean) * [t.batch.gbs for t in trials]
    for place, session, factor in ((2, "1 before", 1.08), (3, "1 before", 1.08), (4, "2 after", 1.0), (5, "2 after", 1.0)):
        tuner.tell(trials[place], Record(state="measured", sec_per_it=float(base[place]) * factor, session=session))
    seen = np.exp(tuner.view.seen.mean) * [t.batch.gbs for t in trials]
    apart = seen / base
    assert apart[2] - apart[4] < 0.06, "part of the 8 % is the session's"
    tuner.tell(trials[0], Record(state="measured", sec_per_it=float(base[0]), session="0 long ago"))
    assert tuner.expect(trials[5]).sec_per_it == pytest.approx(base[5], rel=0.02), "all are seen in the last session"


def test_running_out_of_memory_makes_others_less_likely_to_run_and_fitting_more(table):
    trials = Oracle(table).trials
    tight = next(i for i, t in enumerate(trials) if key(t) == (32, 2, 6, 1))
    heavier = next(i for i, t in enumerate(trials) if key(t) == (32, 2, 6, 2))
    roomy = next(i for i, t in enumerate(trials) if key(t) == (16, 4, 6, 2))
    before = posterior(trials, {}, A100).ok
    after = posterior(trials, {tight: [Observation.of(Outcome(status="oom_device"))]}, A100).ok
    fitted = posterior(trials, {tight: [Observation.of(100.0)]}, A100).ok
    assert after[heavier] < 0.7 * before[heavier] and fitted[heavier] > 1.3 * before[heavier]
    assert after[tight] == 0 and fitted[tight] == 1
    assert abs(after[roomy] - before[roomy]) < 0.02


def test_a_hang_makes_what_is_like_it_suspect():
    trials = plain()
    place = 0
    after = posterior(trials, {place: [Observation.of(Outcome(status="hang"))]}, A100)
    before = posterior(trials, {}, A100)
    knobs = [(t.topology.dp, t.topology.tp, t.topology.pp, t.topology.mbs) for t in trials]
    differ = np.array([sum(a != b for a, b in zip(knobs[place], other)) for other in knobs])
    lost = (before.ok - after.ok) / before.ok
    assert after.ok[place] == 0 and np.all(lost[1:] > 0)
    assert lost[differ == differ[1:].min()].min() > lost[differ == differ.max()].max()
    assert np.allclose(after.mean, before.mean), "it says nothing about time"


def test_what_cannot_run_is_never_asked_for_and_failures_are_not_asked_twice():
    trials = plain(4)
    tuner, asked = Tuner(trials, A100), []
    while (trial := tuner.ask()) is not None:
        asked.append(trial.run_id())
        tuner.tell(trial, Outcome(status="crash", message="no"))
    assert sorted(asked) == sorted(t.run_id() for t in trials)
    standing = tuner.standing()
    assert standing.best is None and standing.left == 0 and standing.settled


def test_worth_is_nothing_for_what_is_surely_slow_and_for_what_was_tried():
    trials = plain()
    tuner = Tuner(trials, A100)
    base = np.exp(tuner.view.seen.mean) * [t.batch.gbs for t in trials]
    tuner.tell(trials[0], float(base[0]))
    view = tuner.view.seen
    slow = replace(view, mean=np.where(np.arange(len(trials)) == 1, view.mean.min() + 3.0, view.mean))
    assert expected_improvement(slow)[1] < 1e-6 < expected_improvement(view)[1]
    assert worth(view)[0] == 0 and np.all(worth(view) >= -1e-9)


def test_the_odds_fall_with_what_is_known_and_certainty_costs_trials(table):
    asked = {sure: len(played(Oracle(table), sure=sure)[0]) for sure in (0.5, 0.95, 0.99)}
    assert asked[0.5] <= asked[0.95] <= asked[0.99] and asked[0.5] < asked[0.99]
    tuner = Tuner(Oracle(table).trials, A100)
    assert tuner.standing().odds == pytest.approx(1.0, abs=1e-6) and tuner.standing().best is None


def test_odds_are_right_where_the_truth_is_as_believed(table):
    trials, settled = Oracle(table).trials, []
    for seed in range(12):
        rng = np.random.default_rng([seed, 7])
        tuner = Tuner(trials, A100, seed=seed, sure=0.9)
        truth = tuner.view.seen.draws(1, rng)[0]
        while (trial := tuner.ask()) is not None:
            here = truth[[t.run_id() for t in trials].index(trial.run_id())]
            noisy = float(np.exp(here + 0.005 * rng.standard_normal())) * trial.batch.gbs
            tuner.tell(trial, noisy if np.isfinite(here) else Outcome(status="oom_device"))
        settled.append(truth[tuner.best] - truth.min() < 0.015)
    assert sum(settled) >= 9, "asked for 90 %: 4 or more misses of 12 have a chance of 3 %"


# ---- ask and tell

@pytest.mark.parametrize("result", [float("nan"), 0.0, -1.0, Outcome(status="ok"),
                                    Record(state="estimated", sec_per_it=1.0, measurement={"kind": "rehearsed"})])
def test_what_is_no_result_is_refused(result):
    trials = plain(3)
    tuner = Tuner(trials, A100)
    with pytest.raises(BadInput):
        tuner.tell(trials[0], result)
    assert not tuner.observations


def test_a_trial_of_another_search_is_refused():
    trials = plain(3)
    with pytest.raises(BadInput, match="none of the 2 candidates"):
        Tuner(trials[:2], A100).tell(trials[2], 1.0)
    with pytest.raises(BadInput, match="no trial"):
        Tuner([], A100)
    with pytest.raises(BadInput, match="shares from 0 to 1"):
        Tuner(trials, A100, sure=1.5)


@pytest.mark.parametrize(("record", "status", "timed"), [
    (Record(state="measured", sec_per_it=2.0, outcome=Outcome(status="ok")), "ok", True),
    (Record(state="failed", sec_per_it=2.0, outcome=Outcome(status="hang")), "hang", False),
    (Record(state="estimated", sec_per_it=2.0), "ok", True),
    (Record(state="planned"), "crash", False),
])
def test_only_what_ran_to_its_end_counts_as_a_time(record, status, timed):
    observed = Observation.of(record)
    assert observed.status == status and observed.ok == timed


def test_a_median_that_is_hardly_known_pulls_less():
    trials = plain(3)
    cold = np.exp(posterior(trials, {}, A100).mean[0]) * trials[0].batch.gbs

    def seen(width):
        about = {"low_s": 1.1 * cold * (1 - width), "high_s": 1.1 * cold * (1 + width)}
        observed = Observation.of(Record(state="measured", sec_per_it=1.1 * cold, measurement=about))
        return posterior(trials, {0: [observed]}, A100)

    sharp, vague = seen(0.001), seen(0.2)
    assert vague.covariance[0, 0] > 1.5 * sharp.covariance[0, 0]


def test_the_search_ends_with_its_budget():
    trials = plain()

    def measure(trial, *, seconds=None):
        return Record(state="measured", sec_per_it=1.0, host={"seconds": 100.0})

    for budget, ended, count in ((Budget(trials=3), "trials", 3), (Budget(seconds=150.0), "seconds", 2),
                                 (Budget(device_hours=0.5), "device-hours", 3)):
        steps, spent = [], Spent()
        assert search(Tuner(trials, A100, sure=0.9999999), measure, budget, steps.append, spent=spent) == ended
        assert len(steps) == spent.trials == count
    assert [h.number for h in steps] == [1, 2, 3]
    with pytest.raises(BadInput):
        Budget(trials=0)


def test_a_budget_leaves_a_trial_what_is_left():
    trial = plain(1)[0]
    spent = Spent(trials=1, seconds=40.0, device_hours=0.1)
    assert spent.seconds_left(Budget(seconds=60.0), trial) == 20.0
    assert spent.seconds_left(Budget(device_hours=0.2), trial) == pytest.approx(0.1 * 3600 / trial.topology.world)
    assert spent.seconds_left(Budget(trials=5), trial) is None


def test_optuna_can_drive_the_same_trials(table):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    oracle = Oracle(table)
    tuner = Tuner(oracle.trials, A100)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    for _ in range(6):
        asked = study.ask()
        trial = oracle.trials[asked.suggest_int("candidate", 0, len(oracle.trials) - 1)]
        record = oracle.measure(trial)
        tuner.tell(trial, record)
        if record.sec_per_it is None:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(asked, record.sec_per_it / trial.batch.gbs)
    standing = tuner.standing()
    assert standing.trials == 6 and standing.best is not None
    assert standing.best_s / standing.best.batch.gbs == pytest.approx(study.best_value, rel=0.06), "sessions apart, the same"
