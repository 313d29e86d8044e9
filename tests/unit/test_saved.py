"""What a run that was asked to stop says it kept, and how long it is waited for."""
from __future__ import annotations

import pytest

from seatrial.engine.watch.heartbeat import Beat, Heartbeat
from seatrial.launch import saved
from seatrial.launch.processes import Leaving

START = {"event": "start", "step": 0, "recipe": {"checkpoint_dir": "c"}}
RESUMED = {**START, "step": 40}


def step(n: int, kind: str = "iteration") -> dict[str, object]:
    return {"event": kind, "step": n}


def saving(rank: int, done: int, total: int, work: str = "save") -> Beat:
    return Beat(rank=rank, step=7, microbatch=0, phase="finish", collective="", group="", seq=0, time=0.0, beats=1, work=work,
                done=done, total=total)


HALF = [saving(0, 9 << 30, 9 << 30, work=""), saving(1, 9 << 30, 10 << 30), saving(2, 31 << 27, 12 << 30)]


@pytest.mark.parametrize(("events", "beats", "says"), [
    ([START, step(7), step(7, "saved")], [], "the checkpoint of step 7 is whole"),
    ([START, step(6), step(6, "saved"), step(7)], [], "step 7 was not saved; the checkpoint of step 6 is whole"),
    ([START, step(7), step(7, "checkpoint")], HALF, "nothing was saved: the save of rank 2 stood at 3.9 of 12.0 GiB"),
    ([RESUMED, step(41)], [], "step 41 was not saved; the checkpoint of step 40 is whole"),
    ([RESUMED], [], "the checkpoint of step 40 is whole"),
    ([{**START, "recipe": {}}, step(7)], [], ""),
    ([], [], ""),
])
def test_it_says_what_is_whole_and_what_is_lost(events, beats, says):
    assert saved.kept(events, beats) == says


def test_a_save_that_stood_still_is_to_blame_before_those_who_waited(tmp_path):
    stalls = {0: {"rank": 0, "standing": "rank"}, 1: {"rank": 1, "standing": "save", "done": 5, "total": 6},
              2: {"rank": 2, "standing": "save", "done": 5, "total": 9}, 3: {"rank": 3}}
    assert saved.stood_still(stalls) == stalls[2] and saved.stood_still({0: stalls[0], 3: stalls[3]}) is None


def test_ranks_that_leave_are_waited_for_while_they_come_nearer(tmp_path):
    """A step and the next, in which they agree to leave; then a save that moves. Training on is no reason to wait."""
    now = 0.0
    heart = Heartbeat(tmp_path, 0, clock=lambda: now)
    heart.beat(step=7, phase="forward")
    leaving = Leaving(tmp_path, [0], stop_s=60.0, now=now)

    def after(seconds: float) -> float:
        nonlocal now
        now += seconds
        return leaving.until(now) - now

    assert after(50) == 10.0
    heart.beat(phase="backward")
    assert after(50) == 60.0
    heart.beat(step=8, phase="checkpoint")
    with heart.work("save", total=100):
        for _ in range(20):
            assert after(50) >= 10.0
            heart.moved(1)
        assert after(50) == 60.0 and after(61) == -1.0
    heart.beat(step=9, phase="forward")
    after(0.5)
    heart.beat(phase="backward")
    assert after(1) < 60.0 and after(60) < 0.0
