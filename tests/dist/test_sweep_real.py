"""Sweeps of real trials: the eight outcomes, kill -9 of the controller, partial iterations, certain losers, an allocator."""
from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

import sweeps
from seatrial import fields
from seatrial.engine.watch.events import read_events
from seatrial.launch.local import preload_problem
from seatrial.measurement import digits, estimate
from seatrial.spec import Trial
from trial_cases import CAP_GIB, CASES, STALL_S, TIME_LIMIT_S, processes_of

RECIPE = {"steps": 3, "stall_s": STALL_S, "threads": 1, "device": "cpu"}
BASE = {"model": {"base": "tiny", "layers": 2}, "batch": {"gbs": 4}, "training": RECIPE, "measure": {"known_to": 0},
        "limits": {"time_s": TIME_LIMIT_S, "memory_gib": CAP_GIB}}  # fmt: skip


def nested(settings):
    from seatrial.sweep.compare import settings_table

    return settings_table(settings)


def case_of(case) -> dict:
    found = {"topology": {"dp": 2}, **nested(case.settings), "name": case.name}
    if "topology" in nested(case.settings):
        found["topology"] = {"dp": 2, **nested(case.settings)["topology"]}
    if case.fault:
        found["environment"] = {"variables": {"SEATRIAL_FAULT": case.fault}}
    return found


def kill_rank_when_it_trains(runs: Path, label: str, rank: int, done: threading.Event) -> None:
    """From outside, as an administrator or the kernel would."""
    while not done.wait(0.1):
        for events in runs.glob("*/events.jsonl"):
            if label in events.read_text() and any(e.get("event") == "iteration" for e in read_events(events)):
                for pid in processes_of(events.parent, rank=rank):
                    os.kill(pid, signal.SIGKILL)
                    return


@pytest.mark.timeout(600)
def test_a_sweep_of_all_that_goes_wrong_ends_with_exactly_those_outcomes(tmp_path):
    file = sweeps.write(tmp_path / "outcomes.toml", {**BASE, "axes": {"case": [case_of(case) for case in CASES]}})
    killed = next(case for case in CASES if case.kill_rank is not None)
    # The trial that is killed from outside is the only one with so many steps.
    assert killed.settings == ("recipe.steps=100000",)
    done = threading.Event()
    watcher = threading.Thread(target=kill_rank_when_it_trains, daemon=True,
                               args=(tmp_path / "book" / "runs" / "outcomes", '"steps":100000', killed.kill_rank, done))
    watcher.start()
    began = time.monotonic()
    found = sweeps.run(file, tmp_path / "book", timeout_s=len(CASES) * TIME_LIMIT_S)
    done.set()
    assert time.monotonic() - began < len(CASES) * TIME_LIMIT_S
    assert sweeps.left_running(tmp_path / "book") == []
    got = {row["knobs"]["case"]: row for row in found["trials"]}
    assert {name: row["status"] for name, row in got.items()} == {case.name: case.status for case in CASES}
    for case in CASES:
        row = got[case.name]
        if case.status not in ("ok", "invalid"):
            assert row["rank"] == case.rank, row
        for words in case.says:
            assert words in row["message"], row


THREE = {**BASE, "axes": {"case": [{"name": "data", "topology": {"dp": 2}}, {"name": "one", "topology": {"dp": 1}},
                                   {"name": "impossible", "topology": {"tp": 3}}]}}  # fmt: skip
TIMED = (*sweeps.TIMES, "sec_per_it", "tflops", "samples_per_s", "tokens_per_s", "mem_value", "memory", "breakdown",
         "measurement", "iterations")  # fmt: skip
"""What differs between two runs of one trial; losses do not."""


def losses(logbook: Path) -> dict:
    with_all = sweeps.rows(logbook, without=())
    return {key: [i["loss"] for i in row.get("iterations", [])] for key, row in with_all.items()}


def killed_and_resumed(tmp_path: Path, kills: int, seed: int) -> None:
    file = sweeps.write(tmp_path / "three.toml", THREE)
    began = time.monotonic()
    sweeps.run(file, tmp_path / "quiet", timeout_s=500)
    whole_s = time.monotonic() - began
    rng, done, books = random.Random(seed), 0, 0
    while done < kills:
        book = tmp_path / f"book{books}"
        books += 1
        while done < kills and sweeps.kill_at(file, book, rng.uniform(0, whole_s)):
            done += 1
            assert sweeps.left_running(book) == []
        sweeps.run(file, book, "--resume", timeout_s=500)
        assert sweeps.rows(book, without=TIMED) == sweeps.rows(tmp_path / "quiet", without=TIMED)
        assert losses(book) == losses(tmp_path / "quiet")
        assert len(sweeps.lines(book)) == 3, "no row is written twice"


@pytest.mark.timeout(600)
def test_killed_twice_among_real_trials_the_logbook_is_that_of_an_undisturbed_sweep(tmp_path):
    killed_and_resumed(tmp_path, 2, seed=2)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_twenty_moments_among_real_trials_the_logbook_is_that_of_an_undisturbed_sweep(tmp_path):
    killed_and_resumed(tmp_path, 20, seed=20)


def partial_and_whole(tmp_path: Path, iterations: int) -> tuple[dict, dict]:
    data = {**BASE, "batch": {"gbs": 64}, "training": {"threads": 1, "device": "cpu"},
            "measure": {"known_to": 0.01, "iterations_max": iterations, "seconds": 60}}
    whole = sweeps.run(sweeps.write(tmp_path / "whole.toml", data), tmp_path / "book")["trials"][0]
    data["measure"] = {**data["measure"], "microbatches": 8}
    return sweeps.run(sweeps.write(tmp_path / "partial.toml", data), tmp_path / "book")["trials"][0], whole


@pytest.mark.timeout(900)
def test_a_partial_iteration_is_run_extrapolated_and_marked(tmp_path):
    """That the estimate is right is held where the clock is ours: by `test_sweep_measure.py`, and on a quiet machine below."""
    part, whole = partial_and_whole(tmp_path, 10)
    assert (part["state"], whole["state"]) == ("estimated", "measured") and "sec_per_it" in part["estimated"]
    assert part["measurement"]["from_microbatches"] == [8, 16]
    (record,) = (line for line in sweeps.lines(tmp_path / "book") if line["state"] == "estimated")
    timings = {size: [i["sec"] for i in record["iterations"] if i["gbs"] == size and not i.get("warmup")] for size in (8, 16)}
    trial = fields.build(Trial, record["trial"], where="trial")
    assert part["sec_per_it"] == digits(estimate(trial, timings).sec_per_it)
    assert part["measurement"]["low_s"] <= part["measurement"]["sec_per_it"] <= part["measurement"]["high_s"]


@pytest.mark.slow
def test_on_a_quiet_machine_the_estimate_is_within_its_interval_and_a_tenth(tmp_path):
    part, whole = partial_and_whole(tmp_path, 40)
    assert part["sec_per_it"] == pytest.approx(whole["sec_per_it"], rel=0.10)
    assert part["measurement"]["low_s"] * 0.97 <= whole["sec_per_it"] <= part["measurement"]["high_s"] * 1.03


def test_a_certain_loser_is_left_after_its_first_iterations(tmp_path):
    """One sample at a time through 40 layers against the whole batch through 2: the second needs no second look."""
    data = {**BASE, "order": "file", "stop": {"factor": 3, "by": "samples_per_s"}, "training": {"threads": 1, "device": "cpu"},
            "measure": {"known_to": 0, "iterations_max": 12},
            "axes": {"case": [{"name": "fast", "topology": {"mbs": 4}}, {"name": "slow", "model": {"layers": 60}}]}}
    found = sweeps.run(sweeps.write(tmp_path / "losers.toml", data), tmp_path / "book")
    fast, slow = found["trials"]
    assert fast["measurement"]["counted"] == 12
    assert slow["measurement"]["counted"] <= 5 and slow["measurement"]["ended"].startswith("slow")
    assert slow["status"] == "ok" and slow["sec_per_it"] > 3 * fast["sec_per_it"]


@pytest.mark.skipif(bool(preload_problem({"LD_PRELOAD": "libtcmalloc_minimal.so.4"})),
                    reason="libtcmalloc-minimal4 is not installed")
@pytest.mark.timeout(600)
def test_an_allocator_is_compared_in_turns_and_really_loaded(tmp_path, seatrial):
    import json

    file = sweeps.write(tmp_path / "one.toml", {**BASE, "training": {**RECIPE, "steps": 4}})
    said = seatrial("compare", file, "--b", "environment.variables.LD_PRELOAD=libtcmalloc_minimal.so.4", "--logbook",
                    tmp_path / "book", "--repeats", 2, "--json")
    found = json.loads(said.out)
    assert said.status == 0 and found["repeats"] == [2, 2] and found["ratio"] > 0
    assert found["groups"][0]["failed"] == {"a": {}, "b": {}}
    loaded = [row.get("env", {}).get("LD_PRELOAD") for row in sweeps.rows(tmp_path / "book").values()]
    assert sorted(map(str, loaded)) == ["None", "None", "libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so.4"]
    # Two sets of records of the same logbook give the same ratio as the pairs did.
    again = json.loads(seatrial("compare", "--logbook", tmp_path / "book", "--a", "env.LD_PRELOAD=", "--b",
                                "env.LD_PRELOAD=libtcmalloc_minimal.so.4", "--json").out)
    assert again["ratio"] == pytest.approx(found["ratio"])


def test_a_library_that_cannot_be_preloaded_is_an_invalid_row_and_not_a_comparison_of_nothing(tmp_path, seatrial):
    import json

    file = sweeps.write(tmp_path / "one.toml", BASE)
    said = seatrial("sweep", file, "--set", "environment.variables.LD_PRELOAD=libnothing.so", "--logbook", tmp_path / "book",
                    "--json")
    row = json.loads(said.out)["trials"][0]
    assert row["status"] == "invalid" and "libnothing.so" in row["message"]
