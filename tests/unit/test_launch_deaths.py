"""The order of ends is the kernel's, and a good exit code needs a word."""
from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import pytest

from seatrial.engine.watch.heartbeat import END, Heartbeat
from seatrial.launch import processes
from seatrial.launch.base import Job
from seatrial.launch.deaths import Deaths
from seatrial.launch.processes import Processes


def test_the_order_is_that_of_the_ends_and_not_of_the_numbers() -> None:
    pipes = [os.pipe() for _ in range(12)]
    deaths, pids = Deaths(), []
    for number, (theirs, _) in enumerate(pipes):
        if (pid := os.fork()) == 0:
            for _, other in pipes:
                os.close(other)
            os.read(theirs, 1)
            os._exit(0)
        pids.append(pid)
        assert deaths.watch(number, pid)
    wanted = random.Random(3).sample(range(12), 12)
    for number in wanted:
        os.close(pipes[number][1])
        os.waitid(os.P_PID, pids[number], os.WEXITED | os.WNOWAIT)
    assert deaths.order() == wanted and deaths.order() == wanted, "seen late, and once each"
    for pid in pids:
        os.waitpid(pid, 0)
    deaths.close()


def ended(run_dir: Path, *argv: str, **more: object) -> Processes:
    group = Processes(Job(name="t", run_dir=run_dir, argv=argv, world=2, says_end=True, **more), ranks=range(2))  # type: ignore[arg-type]
    until = time.monotonic() + 60
    while not group.done:
        assert time.monotonic() < until
        group.poll()
        time.sleep(0.01)
    return group


STAY = "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.environ['RANK'] == '0' and time.sleep(600)"


def test_leaving_with_a_good_code_and_no_word_ends_the_others_within_two_seconds(tmp_path: Path) -> None:
    Heartbeat(tmp_path, 1).beat(phase="forward")
    group = ended(tmp_path, sys.executable, "-I", "-S", "-c", STAY)
    assert group.found.died == [1] and group.found.codes == {1: 0, 0: -9}
    assert processes.GRACE_AFTER_DEATH_S + processes.KILL_AFTER_DEATH_S <= 1.5
    assert group.found.seconds < 10


LEAVES = """
import faulthandler, os, pathlib, signal, sys, time
watch = pathlib.Path(sys.argv[1]) / "watch"
if os.environ["RANK"] == "0":
    signal.signal(15, signal.SIG_IGN)
    while not (watch / "up").exists():
        time.sleep(0.01)
    (watch / "rank0.stall.json").write_text("{}")
    (watch / "stalled").touch()
    time.sleep(float(sys.argv[2]))
    os._exit(83)
signal.signal(15, signal.SIG_IGN)
faulthandler.register(signal.SIGUSR2, file=(watch / "rank1.stacks").open("w"), all_threads=True)
(watch / "up").touch()
def busy():
    time.sleep(600)
busy()
"""


@pytest.mark.parametrize(("stays_s", "code"), [("0", 83), ("600", -9)], ids=["when the first leaves", "or soon after"])
def test_a_rank_that_did_not_report_a_stall_is_asked_and_ended(tmp_path: Path, stays_s: str, code: int) -> None:
    (tmp_path / "watch").mkdir()
    group = ended(tmp_path, sys.executable, "-I", "-S", "-c", LEAVES, str(tmp_path), stays_s)
    assert group.found.codes == {0: code, 1: -9} and not group.found.frozen and not group.found.timed_out
    assert "in busy" in (tmp_path / "watch" / "rank1.stacks").read_text()
    assert group.found.seconds < processes.GRACE_AFTER_STALL_S, "all that will be said has been said"


@pytest.mark.parametrize(("phase", "died"), [(END, []), ("finish", [0, 1])])
def test_one_that_said_end_was_done(tmp_path: Path, phase: str, died: list[int]) -> None:
    for rank in (0, 1):
        Heartbeat(tmp_path, rank).beat(phase=phase)
    assert sorted(ended(tmp_path, "true").found.died) == died
