"""Verdicts on ranks that leave or stand still without a word: who it was, and how soon that is known."""
from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from seatrial import trialfile
from seatrial.launch.local import Local
from seatrial.launch.trial import Limits, run_trial
from seatrial.record import Outcome

MISCHIEF = '''
"""Does something to one rank of the engine from inside, when its own beat says that it is there."""
import json, os, signal, sys, threading, time
wanted = json.loads(os.environ.get("MISCHIEF", "{}"))
if "seatrial.engine" in sys.orig_argv and os.environ.get("RANK") == str(wanted.get("rank")):
    def note():
        with open(wanted["at"], "w") as file:
            file.write(repr(time.time()))
    def stuck(*_):
        note()
        while True:
            time.sleep(1)
    def act():
        from seatrial.engine.watch import heartbeat
        while not any(b.rank == wanted["rank"] and b.step >= wanted["step"] for b in heartbeat.read(wanted["run"])):
            time.sleep(0.001)
        time.sleep(wanted.get("after_s", 0.0))
        if "code" not in wanted:
            os.kill(os.getpid(), signal.SIGUSR1)
            return
        note()
        os._exit(wanted["code"])
    if wanted["step"] < 0:
        note()
        os._exit(wanted["code"])
    signal.signal(signal.SIGUSR1, stuck)
    threading.Thread(target=act, daemon=True).start()
'''
STALL_S = 4.0


def run(tmp_path: Path, *, topology: dict[str, Any], gbs: int = 8, **mischief: Any) -> tuple[Outcome, float]:
    """What became of it, and the seconds from the deed to the verdict."""
    (tmp_path / "sitecustomize.py").write_text(MISCHIEF)
    wanted = {**mischief, "run": str(tmp_path / "run"), "at": str(tmp_path / "at")}
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    trial, recipe = trialfile.build({
        "model": {"base": "tiny", "layers": 8}, "topology": topology, "batch": {"gbs": gbs},
        "training": {"steps": 100000, "stall_s": STALL_S, "threads": 1, "device": "cpu"},
        "environment": {"variables": {"MISCHIEF": json.dumps(wanted), "PYTHONPATH": path}}})  # fmt: skip
    record = run_trial(trial, recipe, Local(), tmp_path / "run", limits=Limits(time_limit_s=120))
    took_s = time.time() - float((tmp_path / "at").read_text())
    assert record.outcome is not None
    return record.outcome, took_s


@pytest.mark.parametrize(("code", "step"), [(7, 3), (0, -1)])
def test_a_rank_that_leaves_quietly_is_named_at_once(tmp_path: Path, code: int, step: int) -> None:
    outcome, took_s = run(tmp_path, topology={"dp": 2}, rank=1, step=step, code=code)
    assert (outcome.status, outcome.rank) == ("crash", 1), outcome
    assert "ended well, but never said so" in outcome.message if code == 0 else "exit code 7" in outcome.message
    assert took_s < 5, "2 s where the machine has room"


def test_a_rank_of_a_long_pipeline_that_sleeps_is_named_and_not_its_neighbour(tmp_path: Path) -> None:
    outcome, took_s = run(tmp_path, topology={"pp": 4}, rank=2, step=2)
    assert (outcome.status, outcome.rank) == ("hang", 2), outcome
    assert "sitecustomize.py" in outcome.message and "in stuck" in outcome.message
    assert took_s < STALL_S + 10, "the limit and 5 s where the machine has room"
