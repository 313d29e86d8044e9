"""The search on real processes: it ends by itself, is killed and goes on, and measures nothing twice."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

import sweeps
from seatrial import presets
from seatrial.launch.local import Local
from seatrial.logbook import Logbook
from seatrial.plan.request import Request
from seatrial.plan.search import search as plan
from seatrial.spec import Command
from seatrial.sweep.board import posted
from seatrial.sweep.store import Store
from seatrial.tune import Tuner
from seatrial.tune.search import Budget, Machine, search

REAL = ("tune", "--model", "tiny", "--procs-per-node", "2", "--gbs", "8", "--zero", "0", "--recompute", "none", "--schedule",
        "1f1b", "--mbs", "2,4", "--set", "measure.iterations_max=4", "--set", "measure.warmup=1", "--json")


def started(book, *more):
    return subprocess.Popen([sys.executable, "-m", "seatrial", *REAL, "--logbook", str(book), *more], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def ended(process, status=0):
    out, err = process.communicate(timeout=560)
    assert process.returncode == status, err
    return json.loads(out)


def test_killed_within_a_trial_it_goes_on_and_measures_nothing_twice(tmp_path):
    book = tmp_path / "book"
    first = ended(started(book, "--trials", "1"))
    assert first["ended"] in ("trials", "settled") and first["best"]["sec_per_it"] > 0
    assert first["trials"][0]["status"] == "ok" and first["spent"]["device_hours"] > 0

    again = started(book, "--trials", "2")
    _, err = again.communicate(timeout=560)
    assert again.returncode == 2 and "--resume goes on" in err

    killed = started(book, "--trials", "3", "--resume", "--sure", "0.99999")
    runs = book / "runs" / "tune-tiny"
    while killed.poll() is None and sum(path.is_dir() for path in runs.iterdir()) < 2:
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()

    last = ended(started(book, "--trials", "3", "--resume", "--sure", "0.99999"))
    # On a crowded machine the second may be so slow that nothing is left to ask.
    assert last["spent"]["trials"] in (2, 3) and last["ended"] in ("trials", "settled")
    written = [line["record_id"] for line in sweeps.lines(book)]
    assert len(written) == len(set(written)) == last["spent"]["trials"]
    assert sweeps.left_running(book) == []


def stubs(fates):
    """Layouts of `tiny` whose trials the stub engine pretends to run; its seconds grow with TP."""
    asked = Request.read(model="tiny", cluster="local", procs_per_node=4, engine="seatrial",
                         fixed={"gbs": "8", "zero": "0", "recompute": "none", "schedule": "1f1b", "mbs": "1", "pp": "1"})
    found = plan(asked.space, precision="fp32")
    trials = [found.trial(i) for i in range(len(found))]
    return [replace(t, command=Command(**sweeps.stub(fates.get(t.topology.tp, "ok")))) for t in trials]


@pytest.mark.parametrize(("fates", "best"), [({}, 1), ({1: "crash"}, 2)])
def test_what_the_machine_says_is_what_is_told(tmp_path, fates, best):
    trials = stubs(fates)
    assert {t.topology.tp for t in trials} == {1, 2, 4}
    tuner = Tuner(trials, presets.cluster("local").with_procs(4), sure=0.9999999)
    with Logbook(tmp_path / "book", create=True) as book:
        machine = Machine(Store(book, "stubs"), Local(), trials)
        steps = []
        assert search(tuner, machine.measure, Budget(), steps.append) in ("settled", "nothing left")
        assert tuner.standing().best.topology.tp == best
        assert [h.record.outcome.status for h in steps].count("crash") == len(fates)
        seen = posted(machine.store.folder)
        assert seen is not None and seen.kind == "tune" and seen.done == len(steps)
        again = Tuner(trials, presets.cluster("local").with_procs(4))
        for trial, record in Machine(Store(book, "stubs"), Local(), trials).earlier():
            again.tell(trial, record)
        assert again.observations == tuner.observations and again.ask() is None


def test_a_layout_that_was_kept_from_running_is_not_taken_for_measured_by_the_next_search(tmp_path):
    first, *_ = stubs({})
    trials = [replace(first, command=replace(first.command, argv=(str(tmp_path / "train"), *first.command.argv[1:])))]
    with Logbook(tmp_path / "book", create=True) as book:
        assert Machine(Store(book, "stubs"), Local(), trials).measure(trials[0]).outcome.status == "not_started"
        (tmp_path / "train").symlink_to(sys.executable)
        again = Machine(Store(book, "stubs"), Local(), trials)
        assert list(again.earlier()) == [] and again.measure(trials[0]).outcome.status == "ok"
        assert [record.outcome.status for _, record in again.earlier()] == ["ok"]
