"""Eight ranks of two by two by two: whichever rank goes wrong is the one that is named, and nothing is left behind.

The sweep of all outcomes on two ranks is in test_sweep_real.py; through Slurm in tests/slurm.
"""
from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.engine.watch.events import read_events
from seatrial.launch import files
from seatrial.launch.local import Local
from seatrial.launch.trial import Limits, conclude, prepare, run_trial
from trial_cases import CASES, Case, check, processes_of, run_all, words_of

CUBE = ("topology.tp=2", "topology.pp=2")
ALL = [
    Case(name="skip", status="hang", rank=5, iteration=2, fault="skip:5:2", settings=CUBE,
         says=("rank 5 (pp1 dp0 tp1) never entered all_reduce", "of its tp group", "7 others wait")),
    Case(name="stop", status="hang", rank=2, iteration=2, fault="stop:2:2", settings=CUBE,
         says=("rank 2 (pp0 dp1 tp0) never entered", "it was stopped by a signal", "fault.py:")),
    Case(name="ring", status="hang", rank=1, iteration=2, fault="stop:1:2", settings=("topology.dp=1", "topology.cp=4"),
         says=("rank 1 (pp0 dp0 cp1 tp0) never entered shift", "of its cp group", "3 others wait")),
    Case(name="raise", status="crash", rank=7, iteration=2, fault="raise:7:2", settings=CUBE, says=("rank 7 (pp1 dp1 tp1)",)),
    Case(name="die", status="crash", rank=3, iteration=2, fault="die:3:2", settings=CUBE,
         says=("rank 3 (pp0 dp1 tp1) was ended by SIGKILL",)),
    Case(name="nan", status="nan", rank=6, iteration=2, fault="nan:6:2", settings=CUBE, says=("rank 6 (pp1 dp1 tp0)",)),
    Case(name="oom", status="oom_host", rank=4, iteration=2, fault="oom:4:2", settings=CUBE, says=("rank 4 (pp1 dp0 tp0)",)),
]


@pytest.mark.parametrize("case", [case if case.name == "skip" else pytest.param(case, marks=pytest.mark.slow) for case in ALL],
                         ids=lambda case: case.name)
def test_the_culprit_among_eight_is_named(case: Case, tmp_path: Path) -> None:
    records = run_all([case], Local(), tmp_path)
    check(case, records[case.name])
    assert processes_of(tmp_path / case.name) == []


def test_a_time_limit_ends_a_trial_with_the_line_it_stood_at_and_what_it_measured(tmp_path: Path) -> None:
    trial, recipe = words_of(Case(name="long", status="timeout", settings=("recipe.steps=100000",)))
    local = Local()
    handle = local.submit(prepare(trial, recipe, local, run_dir=tmp_path / "long", limits=Limits(time_limit_s=200)))
    while local.poll([handle])[handle.key] != "done":
        events = tmp_path / "long" / files.EVENTS
        if events.exists() and len(read_events(events)) > 4:
            # How long the ranks take to start depends on the machine; the time is up when they have trained a little.
            local._running[handle.key].until = 0.0
        time.sleep(0.1)
    record = conclude(trial, recipe, handle, local.finished(handle))
    outcome = record.outcome
    assert outcome is not None and outcome.status == "timeout", outcome
    assert "not finished after" in outcome.message and ".py:" in str(outcome.evidence["stack"])
    assert record.state == "measured" and record.sec_per_it and len(record.iterations) > 2
    assert processes_of(tmp_path / "long") == []


@pytest.mark.slow
def test_a_knob_that_an_out_of_memory_names_really_fits(tmp_path: Path) -> None:
    over = next(case for case in CASES if case.name == "over the cap")
    limits = Limits(time_limit_s=200, memory_cap_gib=over.cap_gib)
    even = replace(over, settings=tuple(s for s in over.settings if "stage_layers" not in s))
    record = run_trial(*words_of(even), Local(), tmp_path / "even", limits=limits)
    assert record.outcome is not None and record.outcome.status == "ok", record.outcome
