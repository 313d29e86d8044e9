"""Losses and gradient norms on a CPU are what they were, to the last bit on the processor that they were made on.

So are those of runs that begin with files of then: a run folder's run.json, and a checkpoint, on its own and other layouts.
"""
from __future__ import annotations

import json

import pytest

from freeze import DATA, RUNS, STOP, cpu, frozen, runs_on_files, series, train_all

FROZEN, RESUMED = frozen("losses.json"), frozen("resumed.json")
EXPECTED = FROZEN["runs"] | RESUMED["runs"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("losses")
    runs = {label: entry["run"] for label, entry in FROZEN["runs"].items()}
    return train_all(runs | runs_on_files(folder), folder / "runs")


def check(now, expected, on):
    for name in ("losses", "grad_norms"):
        figures, then = ([float.fromhex(text) for text in side[name]] for side in (now, expected))
        assert len(figures) == len(then) == 3
        # Another processor or PyTorch adds in another order.
        assert figures == (then if cpu() == on else pytest.approx(then, rel=1e-6))


@pytest.mark.parametrize("label", EXPECTED)
def test_losses_are_what_they_were(found, label):
    check(found[label], EXPECTED[label], (FROZEN if label in FROZEN["runs"] else RESUMED)["on"])


def test_a_run_goes_on_from_a_checkpoint_of_then_as_if_it_had_not_stopped(found):
    # The norm that the checkpoint's steps were clipped by was summed in another order then, so it is not equal to the last bit.
    for reader, tolerance in {"dp2": 1e-6, "dp1": 1e-5, "tp2": 1e-5}.items():
        for name in ("losses", "grad_norms")[: 2 if reader == "dp2" else 1]:
            sides = found[f"resume {reader}"][name], RESUMED["whole"][name][STOP:]
            now, whole = ([float.fromhex(text) for text in side] for side in sides)
            assert now == pytest.approx(whole, rel=tolerance)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_file_of_then_gives_the_losses_of_its_events(found, name):
    events = series(DATA / "runs" / name)
    check(found[f"run {name}"], events, RESUMED["on"])
    record = json.loads((DATA / "runs" / name / "record.json").read_text(encoding="utf-8"))
    assert [row["loss"].hex() for row in record["iterations"]] == events["losses"]
