"""Outcomes from what ranks leave behind: files and exit codes alone, no process."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial import trialfile
from seatrial.engine.watch.events import EventWriter, rank_file_name
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.launch import files, hang
from seatrial.launch.base import Finished, Job
from seatrial.launch.oom import requested_bytes
from seatrial.launch.outcome import classify
from seatrial.plan.fits import smaller, would_fit
from seatrial.record import Outcome
from seatrial.spec import Topology, Trial

GIB = 2**30
STACKS = '''Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f02 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2 in all_reduce
  File "/home/me/data.py", line 88 in batch
  File "/home/me/loop.py", line 5 in main
Current thread 0x00007f01 (most recent call first):
  File "/home/me/watch.py", line 124 in _give_up

Thread 0x00007f02 (most recent call first):
  File "/home/me/later.py", line 1 in run
'''


def trial_of(**topology: Any) -> Trial:
    trial, _ = trialfile.build({"model": "tiny", "topology": topology or {"dp": 2}, "batch": {"gbs": 16}})
    return trial


def judged(run_dir: Path, trial: Trial, *, cap: int | None = None, **finished: Any) -> Outcome:
    job = Job(name="t", run_dir=run_dir, argv=("x",), world=trial.topology.world, memory_cap_bytes=cap)
    return classify(run_dir, Finished(**finished), job=job, trial=trial)


def failure(run_dir: Path, rank: int, **more: Any) -> None:
    event = {"rank": rank, "status": "crash", "error": "ValueError", "message": "no", "consequence": False, "step": 3,
             "phase": "forward", **more}  # fmt: skip
    writer = EventWriter(run_dir / rank_file_name(rank))
    writer.write("failure", **event)
    writer.close()


def stalled(run_dir: Path, rank: int, *, collective: str, group: str, seq: int, step: int = 7, **groups: int) -> None:
    beat = Heartbeat(run_dir, rank)
    beat.beat(step=step, phase="forward")
    beat.collective(collective, group, seq)
    report = {"rank": rank, "step": step, "beats": 9, "collective": collective, "group": group, "seq": seq,
              "groups": {group: seq, **groups}}  # fmt: skip
    files.stall(run_dir, rank).write_text(json.dumps(report))


def test_the_rank_that_failed_is_the_cause_and_the_one_that_lost_it_is_not(tmp_path: Path) -> None:
    failure(tmp_path, 0, error="RuntimeError", message="Connection closed by peer", consequence=True)
    failure(tmp_path, 1)
    outcome = judged(tmp_path, trial_of(), codes=(3, 3), died=(0, 1))
    assert (outcome.status, outcome.rank, outcome.iteration, outcome.phase) == ("crash", 1, 3, "forward")
    assert outcome.message == "rank 1 (pp0 dp1 tp0): ValueError: no"


@pytest.mark.parametrize("died", [(0, 1, 2), (2, 1, 0), (0, 2, 1)])
@pytest.mark.parametrize(("code", "said"), [(-9, "was ended by SIGKILL"), (7, "ended with exit code 7"),
                                            (3, "RuntimeError: of its own")])
def test_whoever_only_lost_another_is_not_the_cause_in_whatever_order_they_were_seen_to_end(
        tmp_path: Path, died: tuple[int, ...], code: int, said: str) -> None:
    for rank in (0, 2):
        failure(tmp_path, rank, error="RuntimeError", message="Connection reset by peer", consequence=True)
    if code == 3:
        failure(tmp_path, 1, error="RuntimeError", message="of its own")
    outcome = judged(tmp_path, trial_of(dp=3), codes=(3, code, 3), died=died)
    assert (outcome.status, outcome.rank) == ("crash", 1) and said in outcome.message


@pytest.mark.parametrize(("code", "said"), [(0, "ended well, but never said so at step 4 (forward)"),
                                            (7, "ended with exit code 7 at step 4 (forward)")])
def test_a_rank_that_left_quietly_is_the_cause_also_when_the_others_stalled_or_its_code_is_good(
        tmp_path: Path, code: int, said: str) -> None:
    Heartbeat(tmp_path, 1).beat(step=4, phase="forward")
    stalled(tmp_path, 0, collective="all_reduce", group="dp", seq=3)
    outcome = judged(tmp_path, trial_of(), codes=(83, code), died=(1, 0))
    assert (outcome.status, outcome.rank, outcome.iteration) == ("crash", 1, 4) and said in outcome.message


def test_ranks_of_a_node_without_exit_codes_are_gone_before_those_that_lost_them(tmp_path: Path) -> None:
    for rank in (0, 1):
        failure(tmp_path, rank, error="RuntimeError", message="Connection reset by peer", consequence=True)
    job = Job(name="t", run_dir=tmp_path, argv=("x",), world=4, procs_per_node=2)
    outcome = classify(tmp_path, Finished(codes=(3, 3, None, None), died=(1, 0)), job=job, trial=trial_of(dp=4))
    assert (outcome.status, outcome.rank) == ("crash", 2)
    assert outcome.message == "node 1 is gone with ranks 2 to 3: its agent left no exit codes"


def test_a_node_without_exit_codes_is_gone_also_when_the_others_waited_for_its_files_and_stalled(tmp_path: Path) -> None:
    Heartbeat(tmp_path, 1).beat(step=4, phase="checkpoint")
    stalled(tmp_path, 0, collective="all_reduce", group="dp", seq=3)
    job = Job(name="t", run_dir=tmp_path, argv=("x",), world=2, procs_per_node=1)
    outcome = classify(tmp_path, Finished(codes=(83, None), died=(0,)), job=job, trial=trial_of())
    assert (outcome.status, outcome.rank, outcome.iteration, outcome.phase) == ("crash", 1, 4, "checkpoint")
    assert outcome.message == "node 1 is gone with rank 1: its agent left no exit codes"
    both = classify(tmp_path, Finished(codes=(83, 83), died=(0, 1)), job=job, trial=trial_of())
    assert both.status == "hang"


def test_a_batch_system_that_lost_a_node_ends_the_others_and_the_lost_one_is_named(tmp_path: Path) -> None:
    (tmp_path / files.NODES).mkdir()
    files.node_here(tmp_path, 0).touch()
    job = Job(name="t", run_dir=tmp_path, argv=("x",), world=2, procs_per_node=1)
    done = Finished(codes=(-15, None), stopped=True, scheduler_state="NODE_FAIL")
    outcome = classify(tmp_path, done, job=job, trial=trial_of())
    assert (outcome.status, outcome.rank) == ("crash", 1)
    assert outcome.message == "node 1 is gone with rank 1: its agent left no exit codes; the batch system says NODE_FAIL"


@pytest.mark.parametrize(("seqs", "named", "said"), [
    ((250, 250, 250, 249), 3, "rank 3 (pp0 dp0 tp3) is at all_reduce 249 of its tp group, all others at 250"),
    ((250, 250, 250, 250), 2, "was ended by SIGABRT"), ((250, 249, 250, 249), 2, "was ended by SIGABRT"),
])  # fmt: skip
def test_of_a_group_that_does_not_agree_the_one_that_is_elsewhere_is_the_cause(
        tmp_path: Path, seqs: tuple[int, ...], named: int, said: str) -> None:
    for rank, seq in enumerate(seqs):
        Heartbeat(tmp_path, rank).collective("all_reduce", "tp", seq)
        if rank != 2:
            failure(tmp_path, rank, error="RuntimeError", message="Connection closed by peer", consequence=True)
    (tmp_path / files.LOGS).mkdir()
    files.log(tmp_path, 2).write_text("what(): 256 vs 8. Is there a distributed collective mismatch in your code?\n")
    outcome = judged(tmp_path, trial_of(tp=4), codes=(3, 3, -6, 3), died=(2, 1, 3, 0))
    assert (outcome.status, outcome.rank) == ("crash", named) and said in outcome.message


def test_a_kill_below_the_cap_is_a_crash_and_at_the_cap_it_is_memory(tmp_path: Path) -> None:
    killed = {"codes": (-9, 3), "died": (0, 1)}
    below = judged(tmp_path, trial_of(), cap=GIB, data_peak_bytes={0: GIB // 2}, **killed)
    assert (below.status, below.rank) == ("crash", 0) and "SIGKILL" in below.message
    at = judged(tmp_path, trial_of(), cap=GIB, data_peak_bytes={0: int(0.99 * GIB)}, **killed)
    assert (at.status, at.rank) == ("oom_host", 0) and "1.00 GiB" in at.message
    shot = judged(tmp_path, trial_of(), shot=(0,), rss_peak_bytes={0: 5 * GIB}, **killed)
    assert shot.status == "oom_host" and "the machine had none left" in shot.message


def test_a_rank_ended_for_memory_that_others_took_is_not_out_of_memory_but_in_a_crowd(tmp_path: Path) -> None:
    crowd = {"total_bytes": 64 * GIB, "free_bytes": 2**28, "ours_bytes": 2**29, "others_bytes": 60 * GIB,
             "others_grew_bytes": 50 * GIB, "largest": "hog, pid 71, 49.50 GiB"}
    outcome = judged(tmp_path, trial_of(), codes=(3, -9), died=(1, 0), shot=(1,), crowd=crowd)
    assert (outcome.status, outcome.rank) == ("crowded", 1)
    assert outcome.message == ("others filled this machine's memory: 50.00 GiB since the start (the fullest: hog, pid 71, "
                               "49.50 GiB); of 64.00 GiB this trial had 512 MiB, and rank 1 (pp0 dp1 tp0) was ended for it")


def test_what_fails_with_the_last_byte_gone_failed_for_memory(tmp_path: Path) -> None:
    failure(tmp_path, 1, error="RuntimeError", message="can't start new thread",
            memory={"data_bytes": GIB - 1000, "cap_bytes": GIB, "base_bytes": GIB // 4})
    outcome = judged(tmp_path, trial_of(), codes=(3, 3), died=(1, 0))
    assert (outcome.status, outcome.rank) == ("oom_host", 1)


@pytest.mark.parametrize(("state", "status"), [("CANCELLED", "cancelled"), ("PREEMPTED", "cancelled"), ("TIMEOUT", "timeout"),
                                               ("OUT_OF_MEMORY", "oom_host"), ("NODE_FAIL", "crash"), ("FAILED", "crash")])
def test_the_batch_systems_word_counts_when_the_ranks_left_none(tmp_path: Path, state: str, status: str) -> None:
    (tmp_path / files.NODES).mkdir()
    files.node_here(tmp_path, 0).touch()
    assert judged(tmp_path, trial_of(), codes=(None, None), scheduler_state=state).status == status


@pytest.mark.parametrize(("output", "said"), [
    ("/opt/py/bin/python: No module named seatrial\nsrun: error: n1: task 0: Exited with exit code 1\n",
     "could not start: /opt/py/bin/python: No module named seatrial"),
    ("srun: error: n1: task 0: Exited with exit code 1\n", "could not start: srun: error: n1: task 0: Exited with exit code 1"),
    ("", "could not start: the batch system says FAILED, and its output nothing"),
])  # fmt: skip
def test_a_job_whose_agents_never_came_did_not_start_and_says_what_its_output_says(
        tmp_path: Path, output: str, said: str) -> None:
    (tmp_path / files.SCRIPT_OUTPUT).write_text(output)
    outcome = judged(tmp_path, trial_of(), codes=(None, None), scheduler_state="FAILED")
    assert (outcome.status, outcome.rank, outcome.message) == ("not_started", None, said)
    assert judged(tmp_path, trial_of(), codes=(None, None), scheduler_state="CANCELLED").status == "cancelled"


def test_ranks_that_all_end_before_a_first_word_did_not_start(tmp_path: Path) -> None:
    (tmp_path / files.LOGS).mkdir()
    files.log(tmp_path, 0).write_text("Traceback …\nModuleNotFoundError: No module named 'torch'\n")
    job = Job(name="t", run_dir=tmp_path, argv=("x",), world=2, says_end=True)
    outcome = classify(tmp_path, Finished(codes=(1, 1), died=(1, 0)), job=job, trial=trial_of())
    assert outcome.status == "not_started" and outcome.message.endswith("No module named 'torch'")
    one = classify(tmp_path, Finished(codes=(-9, 1), died=(1,)), job=job, trial=trial_of())
    assert (one.status, one.rank) == ("crash", 1), "one that left is no job that cannot start"
    refused = classify(tmp_path, Finished(codes=(None, None), refused="x: No such file"), job=job, trial=trial_of())
    assert (refused.status, refused.message) == ("not_started", "could not start: x: No such file")


def test_a_finding_of_our_own_goes_before_the_batch_systems_word(tmp_path: Path) -> None:
    failure(tmp_path, 1)
    assert judged(tmp_path, trial_of(), codes=(3, 3), died=(1, 0), scheduler_state="FAILED").rank == 1


def test_good_exit_codes_without_an_end_are_no_good_run(tmp_path: Path) -> None:
    outcome = judged(tmp_path, trial_of(), codes=(0, 0))
    assert outcome.status == "crash" and "never said so" in outcome.message
    writer = EventWriter(tmp_path / files.EVENTS)
    writer.write("end", status="stopped", step=4)
    writer.close()
    assert judged(tmp_path, trial_of(), codes=(0, 0)).status == "cancelled", "somebody outside asked the ranks to stop"


def ended(run_dir: Path, status: str) -> None:
    writer = EventWriter(run_dir / files.EVENTS)
    writer.write("iteration", step=4, sec=0.1, loss=2.0, gbs=16)
    writer.write("end", status=status, step=4)
    writer.close()


@pytest.mark.parametrize("late", [dict(codes=(0, 0), stopped=True), dict(codes=(0, -15), stopped=True, timed_out=True),
                                  dict(codes=(None, None), scheduler_state="CANCELLED"),
                                  dict(codes=(0, None), scheduler_state="TIMEOUT")])
def test_a_run_that_was_done_before_it_was_ended_is_measured(tmp_path: Path, late: dict[str, Any]) -> None:
    """On a machine that is overrun, leaving takes long enough for anything to come in between."""
    ended(tmp_path, "finished")
    assert judged(tmp_path, trial_of(), **late) == Outcome(status="ok")


def test_a_run_that_died_after_its_end_is_not_good(tmp_path: Path) -> None:
    ended(tmp_path, "finished")
    assert judged(tmp_path, trial_of(), codes=(0, 1), died=(1,)).status == "crash"


def test_whoever_was_not_asked_is_not_cancelled_but_was_ended_for_a_stall_that_passed(tmp_path: Path) -> None:
    ended(tmp_path, "stopped")
    (tmp_path / files.WATCH).mkdir()
    files.stall(tmp_path, 1).write_text(json.dumps({"rank": 1, "first": True, "silent_s": 8.2, "step": 3, "phase": "forward"}))
    files.alarm(tmp_path).touch()
    outcome = judged(tmp_path, trial_of(), codes=(0, 0))
    assert (outcome.status, outcome.rank, outcome.iteration, outcome.phase) == ("hang", 1, 3, "forward")
    assert outcome.message.startswith("rank 1 (pp0 dp1 tp0) stood still for 8 s; the run went on")
    assert judged(tmp_path, trial_of(), codes=(0, 0), stopped=True).status == "cancelled"


def test_a_hang_names_the_rank_its_collective_and_its_line(tmp_path: Path) -> None:
    """tp2 x dp2 x pp2: rank 1 is one short in its tp group; all others wait somewhere because of it."""
    trial = trial_of(tp=2, dp=2, pp=2)
    stalled(tmp_path, 0, collective="all_reduce", group="tp", seq=412, dp=3, world=6)
    stalled(tmp_path, 1, collective="all_reduce", group="tp", seq=411, dp=3, world=6)
    for rank in (2, 3):
        stalled(tmp_path, rank, collective="all_reduce", group="dp", seq=4, tp=500, world=6)
    for rank in (4, 5, 6, 7):
        stalled(tmp_path, rank, collective="all_reduce", group="tp", seq=390, dp=3, world=6)
    files.stacks(tmp_path, 1).write_text(STACKS)
    outcome = judged(tmp_path, trial, codes=(83,) * 8, died=tuple(range(8)))
    assert outcome.message == ("rank 1 (pp0 dp0 tp1) never entered all_reduce 412 of its tp group; "
                               "it is in data.py:88 in batch; 7 others wait")
    assert (outcome.status, outcome.rank, outcome.iteration, outcome.phase) == ("hang", 1, 7, "forward")


def test_a_rank_that_cannot_even_report_is_the_cause(tmp_path: Path) -> None:
    trial = trial_of(dp=4)
    for rank in (0, 1, 3):
        stalled(tmp_path, rank, collective="all_reduce", group="dp", seq=20)
    Heartbeat(tmp_path, 2).collective("all_reduce", "dp", 19)
    outcome = judged(tmp_path, trial, codes=(83, 83, -9, 83), died=(0, 1, 3))
    assert outcome.rank == 2 and "never entered all_reduce 20 of its dp group" in outcome.message
    frozen = judged(tmp_path, trial, codes=(83, 83, -9, 83), died=(0, 1, 3), frozen=(2,))
    assert frozen.rank == 2 and "stopped by a signal" in frozen.message


def test_a_rank_that_came_too_late_to_report_is_not_the_cause_where_its_stack_shows_it_waiting(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        stalled(tmp_path, rank, collective="all_reduce", group="dp", seq=20 - (rank == 1))
        where = '"/x/engine/core/comm.py", line 1 in wait' if rank != 1 else '"/home/me/data.py", line 88 in batch'
        files.stacks(tmp_path, rank).write_text(f"Current thread 0x1 (most recent call first):\n  File {where}\n")
    Heartbeat(tmp_path, 2).collective("all_reduce", "dp", 20)
    files.stacks(tmp_path, 2).write_text(files.stacks(tmp_path, 0).read_text())
    outcome = judged(tmp_path, trial_of(dp=4), codes=(83, 83, -9, 83), died=(0, 1, 3))
    assert outcome.rank == 1 and "data.py:88 in batch" in outcome.message


def test_a_rank_found_stopped_at_the_time_limit_is_a_hang_and_no_timeout(tmp_path: Path) -> None:
    outcome = judged(tmp_path, trial_of(dp=1), codes=(-9,), timed_out=True, frozen=(0,), seconds=30.0)
    assert (outcome.status, outcome.rank) == ("hang", 0) and "stopped by a signal" in outcome.message


def test_a_rank_of_theirs_that_waits_for_a_request_is_not_the_one_in_a_loop(tmp_path: Path) -> None:
    """A wait of torch's has no frame in Python: the line that calls it tells."""
    (tmp_path / files.WATCH).mkdir()
    source = tmp_path / "p2p.py"
    source.write_text("for request in requests:\n    request.wait()\n    while not ready: pass\n")
    for rank, line in enumerate((2, 3, 2)):
        where = f'"{source}", line {line} in f'
        files.stacks(tmp_path, rank).write_text(f"Current thread 0x1 (most recent call first):\n  File {where}\n")
    found = hang.silent(tmp_path, Topology(pp=3))
    assert found.rank == 1 and "rank 1 (pp1 dp0 tp0) is in p2p.py:3 in f" in found.message


def test_groups_are_those_of_the_engines_mesh() -> None:
    t = Topology(dp=2, tp=2, pp=2)
    assert [hang.peers(group, 5, t) for group in ("tp", "dp", "pp", "world")] == [[4, 5], [5, 7], [1, 5], list(range(8))]
    assert hang.rank_label(5, t) == "rank 5 (pp1 dp0 tp1)"


@pytest.mark.parametrize("text", ["", "Fatal Python error", "Thread 0x1 (most recent call first):\n", "\0\xff" * 50])
def test_stacks_that_say_nothing_say_nothing(tmp_path: Path, text: str) -> None:
    Heartbeat(tmp_path, 0)
    files.stacks(tmp_path, 0).write_text(text)
    assert hang.standing_at(tmp_path, 0) == []


def test_the_knobs_named_lower_the_need_below_the_cap() -> None:
    trial = trial_of(dp=2, mbs=4)
    needs, _ = would_fit(trial, need_bytes=1, base_bytes=0, cap_bytes=1)
    for share in (0.9, 0.6, 0.3):
        _, fits = would_fit(trial, need_bytes=1, base_bytes=0, cap_bytes=int(share * needs))
        names = {what: t for what, t in smaller(trial)}
        for what in fits:
            if what in names:
                again, _ = would_fit(names[what], need_bytes=1, base_bytes=0, cap_bytes=1)
                assert again <= share * needs
        assert len({what in names for what in fits}) <= 1, "two knobs only where one is not enough"
    assert would_fit(trial, need_bytes=1, base_bytes=0, cap_bytes=1)[1] == []


def test_what_was_asked_for_is_read_in_any_unit() -> None:
    assert requested_bytes("DefaultCPUAllocator: can't allocate memory: you tried to allocate 25798656 bytes.") == 25798656
    assert requested_bytes("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has") == int(2.5 * GIB)
    assert requested_bytes("no") == 0


def test_what_would_fit_is_said_where_somebody_can_tell_and_left_out_where_nobody_can(tmp_path: Path) -> None:
    trial = trial_of(dp=2, mbs=4)
    failure(tmp_path, 1, status="oom_host", error="MemoryError", message="you tried to allocate 1073741824 bytes.",
            memory={"data_bytes": GIB, "cap_bytes": GIB, "base_bytes": 0})
    job = Job(name="t", run_dir=tmp_path, argv=("x",), world=2)
    done = Finished(codes=(3, 3), died=(1, 0))
    alone = classify(tmp_path, done, job=job, trial=trial)
    assert alone.evidence["over_bytes"] == GIB and "would_fit" not in alone.evidence and "would fit" not in alone.message
    planned = classify(tmp_path, done, job=job, trial=trial, fits=would_fit)
    assert planned.message.startswith(alone.message) and "it needs about 2.00 GiB (estimated)" in planned.message
    assert all(what in planned.message for what in planned.evidence["would_fit"]) and planned.evidence["would_fit"]  # type: ignore[attr-defined]


def test_memory_of_a_gpu_names_device_part_and_excess(tmp_path: Path) -> None:
    failure(tmp_path, 1, status="oom_device", error="OutOfMemoryError",
            message="CUDA out of memory. Tried to allocate 2.00 GiB.",
            frames=["loop.py:1", "loss.py:40", "functional.py:9"],
            memory={"device_bytes": 79 * GIB, "device_cap_bytes": 80 * GIB, "data_bytes": GIB, "base_bytes": 0})
    outcome = judged(tmp_path, trial_of(), codes=(3, 3), died=(1, 0))
    assert outcome.status == "oom_device" and outcome.evidence["over_bytes"] == GIB
    assert "device memory in forward of step 3: logits asked for 2.00 GiB with 79.00 GiB of 80.00 GiB taken" in outcome.message
