"""A rank that stops leaves its last words, its stacks and its own exit code; faults come when and where they were asked for."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import attempts
from seatrial.engine.watch import heartbeat
from seatrial.engine.watch.fault import Fault, InjectedFault
from seatrial.errors import BadInput
from seatrial.recipe import Recipe


def test_the_last_words_of_a_rank_can_be_read_from_outside(tmp_path):
    hearts = [heartbeat.Heartbeat(tmp_path, rank, world=2) for rank in (1, 0)]
    hearts[0].beat(step=7, phase="backward", microbatch=3)
    hearts[0].collective("all_reduce", "tp", 12)
    zero, one = heartbeat.read(tmp_path)
    assert (zero.rank, zero.phase) == (0, "start")
    assert (one.rank, one.step, one.phase, one.microbatch, one.collective, one.group, one.seq) == (
        1, 7, "backward", 3, "all_reduce", "tp", 12)
    assert abs(one.time - time.time()) < 60
    heartbeat.clear(tmp_path)
    assert heartbeat.read(tmp_path) == []


def test_a_beat_is_cheap():
    heart = heartbeat.Heartbeat(None, 0)

    def beats_s() -> float:
        start = time.perf_counter()
        for i in range(10_000):
            heart.collective("all_reduce", "tp", i)
        return time.perf_counter() - start

    assert attempts.fastest_of_three(beats_s) / 10_000 < 50e-6


STALLING = """
import sys, time
from seatrial.engine.watch import heartbeat
heart = heartbeat.Heartbeat(sys.argv[1], int(sys.argv[2]), 3.0, world=2)
heart.beat(step=4, phase="forward")
heart.collective("all_reduce", "tp", 9)
def wait_for_a_message_that_never_comes():
    time.sleep(600)
if sys.argv[2] == "0":
    wait_for_a_message_that_never_comes()
for i in range(6000):
    heart.beat(microbatch=i)
    time.sleep(0.1)
"""


def test_a_stall_dumps_every_rank_and_leaves_with_its_own_code(tmp_path):
    ranks = [subprocess.Popen([sys.executable, "-c", STALLING, tmp_path, str(r)]) for r in (1, 0)]
    assert [r.wait(timeout=200) for r in ranks] == [heartbeat.EXIT_STALL] * 2
    folder = tmp_path / heartbeat.FOLDER
    assert "wait_for_a_message_that_never_comes" in (folder / "rank0.stacks").read_text()
    assert "Thread" in (folder / "rank1.stacks").read_text()
    report = json.loads((folder / "rank0.stall.json").read_text())
    assert (report["step"], report["phase"], report["first"], report["groups"]) == (4, "forward", True, {"tp": 9})
    assert not json.loads((folder / "rank1.stall.json").read_text())["first"]
    json.loads((folder / "rank0.flight.json").read_text())


def test_the_first_steps_may_take_their_time(tmp_path):
    heart = heartbeat.Heartbeat(tmp_path, 0, 0.2, start_s=60, slow_steps=1)
    heart.beat(step=7, phase="forward")
    time.sleep(0.6)
    assert not (tmp_path / heartbeat.FOLDER / "stalled").exists()
    heart.close()


def test_a_closed_watch_does_not_bark(tmp_path):
    heart = heartbeat.Heartbeat(tmp_path, 0, 0.2)
    heart.close()
    time.sleep(0.5)
    assert not (tmp_path / heartbeat.FOLDER / "stalled").exists()


@pytest.mark.parametrize("text", ["melt:0:1", "die:0", "die:x:1", "die:0:1:2", "exit:0:1:start:x", "die:0:1:start:1:1"])
def test_an_unknown_fault_is_refused(text):
    with pytest.raises(BadInput):
        Fault.parse(text)


def test_a_fault_comes_at_its_rank_and_step_alone():
    fault = Fault.parse("raise:1:3")
    fault.at(0, 3)
    fault.at(1, 2)
    with pytest.raises(InjectedFault):
        fault.at(1, 3)
    Fault.parse("").at(0, 0)


def test_a_fault_waits_for_its_phase_and_says_when_it_struck(tmp_path, monkeypatch):
    monkeypatch.setenv("SEATRIAL_FAULT_AT", str(tmp_path / "at"))
    heart = heartbeat.Heartbeat(None, 1, fault=Fault.parse("raise:1:2:optimizer"))
    heart.beat(step=1, phase="optimizer")
    heart.beat(step=2, phase="forward")
    assert not (tmp_path / "at").exists()
    with pytest.raises(InjectedFault):
        heart.beat(phase="optimizer")
    assert abs(float((tmp_path / "at").read_text()) - time.time()) < 60
    heart.beat(phase="optimizer")  # once


def test_a_fault_can_sit_in_the_data_and_last():
    from seatrial.engine.io.data import Batches
    from seatrial.recipe import Recipe
    from seatrial.spec import Model

    batches = Batches(Recipe(), Model(layers=1, hidden=8, heads=1, vocab=20, seq=4), 1)
    fault = Fault.parse("slow:0:2:data:0.05")
    fault.arm(0, batches)
    taken = []
    for step in (1, 2, 3):
        fault.at(0, step)
        began = time.perf_counter()
        batches.sample(0)
        taken.append(time.perf_counter() - began)
    assert taken[1] >= 0.05 and taken[2] >= 0.05 and taken[0] < 0.05


def test_skip_and_nan_are_taken_once():
    fault = Fault.parse("skip:0:2")
    fault.at(0, 1)
    assert not fault.takes("skip")
    fault.at(0, 2)
    assert not fault.takes("nan")
    assert fault.takes("skip") and not fault.takes("skip")


def test_oom_is_a_refusal_of_the_allocator_and_passes():
    import torch

    if torch.cuda.is_available():
        pytest.skip("fills the device")
    with pytest.raises((RuntimeError, MemoryError), match="alloc|memory"):
        Fault.parse("oom:0:0").at(0, 0)
    assert torch.empty(2**27, dtype=torch.uint8).numel() == 2**27


def test_die_and_stop_are_signals(tmp_path):
    program = "import sys; from seatrial.engine.watch.fault import Fault; Fault.parse(sys.argv[1]).at(0, 0)"
    dead = subprocess.run([sys.executable, "-c", program, "die:0:0"], timeout=60)
    assert dead.returncode == -signal.SIGKILL
    stopped = subprocess.Popen([sys.executable, "-c", program, "stop:0:0"])
    try:
        _, status = os.waitpid(stopped.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
    finally:
        stopped.kill()
        stopped.wait()


# ---- a save that moves is no hang


class Ranks:
    """Watches of some ranks with the limits of a recipe, on a clock of their own."""

    def __init__(self, folder, world: int, recipe: Recipe = Recipe()):
        self.now = 0.0
        self.hearts = [heartbeat.Heartbeat(folder, r, recipe.stall_s, world=world, save_s=recipe.save_s, load_s=recipe.load_s,
                                           clock=lambda: self.now, watched=False) for r in range(world)]
        for heart in self.hearts:
            heart.beat(step=1, phase="forward")
        self.patience = [heartbeat.Patience(heart, now=0.0) for heart in self.hearts]

    def pass_s(self, seconds: float, *, saves: int | None = None) -> dict[int, str]:
        """What the watches call late by then; a byte of the save of rank `saves` is written every second."""
        for _ in range(int(seconds)):
            self.now += 1.0
            if saves is not None:
                self.hearts[saves].moved(1)
            late = {heart.rank: what for heart, p in zip(self.hearts, self.patience) if (what := p.spent(self.now))}
            if late:
                return late
        return {}


def test_a_save_of_ten_minutes_is_no_hang_for_anybody(tmp_path):
    """Rank 1 writes, rank 0 waits for it at the end, rank 2 in a collective with both: all defaults."""
    ranks = Ranks(tmp_path, 3)
    ranks.hearts[0].beat(phase="finish")
    ranks.hearts[1].beat(phase="checkpoint")
    with ranks.hearts[1].work("save", total=600):
        assert ranks.pass_s(600, saves=1) == {}
        beat = heartbeat.read(tmp_path)[1]
        assert (beat.phase, beat.work, beat.done, beat.total) == ("checkpoint", "save", 600, 600)
    assert heartbeat.read(tmp_path)[1].work == ""


def test_on_a_busy_machine_few_looks_are_enough_to_see_that_a_save_moves(tmp_path):
    """Limits of five seconds, and a watch that comes to look every 1.7 s."""
    ranks = Ranks(tmp_path, 3, Recipe(stall_s=5.0, save_s=5.0, load_s=5.0))
    ranks.hearts[0].beat(phase="finish")
    ranks.hearts[1].beat(phase="checkpoint")
    with ranks.hearts[1].work("save", total=600):
        for _ in range(30):
            ranks.now += 0.7
            assert ranks.pass_s(1, saves=1) == {}


def test_a_load_of_ten_minutes_is_no_hang_for_those_who_wait(tmp_path):
    ranks = Ranks(tmp_path, 2)
    ranks.hearts[0].beat(phase="load")
    ranks.hearts[1].beat(phase="meet")
    with ranks.hearts[0].work("load", total=600):
        assert ranks.pass_s(600, saves=0) == {}


def test_a_save_beside_training_does_not_hide_a_hang(tmp_path):
    ranks = Ranks(tmp_path, 2)
    with ranks.hearts[1].work("save", total=10**6):
        assert ranks.pass_s(120, saves=1) == {}
        assert ranks.pass_s(2, saves=1) == {0: "rank", 1: "rank"}


def test_what_an_earlier_save_left_does_not_put_off_a_verdict(tmp_path):
    ranks = Ranks(tmp_path, 2)
    ranks.hearts[0].beat(phase="checkpoint")
    with ranks.hearts[0].work("save", total=300):
        assert ranks.pass_s(300, saves=0) == {}
    for heart in ranks.hearts:
        heart.beat(step=2, phase="forward")
    assert ranks.pass_s(120) == {}
    assert ranks.pass_s(2) == {0: "rank", 1: "rank"}


def test_a_save_that_stands_still_is_noticed_while_training_goes_on(tmp_path):
    ranks = Ranks(tmp_path, 1, Recipe(save_s=300.0))
    with ranks.hearts[0].work("save", total=10):
        for step in range(299):
            ranks.hearts[0].beat(step=step)
            assert ranks.pass_s(1) == {}
        ranks.hearts[0].moved(4)
        for step in range(300):
            ranks.hearts[0].beat(step=step)
            assert ranks.pass_s(1) == {}
        ranks.hearts[0].beat(step=300)
        assert ranks.pass_s(2) == {0: "save"} and ranks.patience[0].silent_s > 300


def test_who_waits_for_a_save_that_does_not_move_waits_as_long_as_the_save_may(tmp_path):
    ranks = Ranks(tmp_path, 2, Recipe(save_s=400.0))
    ranks.hearts[0].beat(phase="checkpoint")
    with ranks.hearts[0].work("save", total=10):
        assert ranks.pass_s(400) == {}
        assert ranks.pass_s(3)[0] == "save"
