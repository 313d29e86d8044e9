"""The local launcher: what it promises of processes, cores, limits and values; and programs that are not ours as trials."""
from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial import trialfile
from seatrial.errors import BadInput
from seatrial.launch import files, memory, processes
from seatrial.launch.base import Finished, Job
from seatrial.launch.local import Local, wait
from seatrial.launch.processes import WAITS_OWN
from seatrial.launch.trial import Limits, run_trial
from seatrial.record import Record
from trial_cases import processes_of

TELL = """
import json, os, resource, sys
with open(sys.argv[1] + "/told." + os.environ["RANK"], "w") as file:
    json.dump({"cores": sorted(os.sched_getaffinity(0)), "cap": resource.getrlimit(resource.RLIMIT_DATA)[0],
               "env": {k: v for k, v in os.environ.items()}}, file)
"""
CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setsid(); print('away', flush=True); time.sleep(600)"],
                         stdout=subprocess.PIPE)
child.stdout.readline()
open(sys.argv[1] + "/started", "w").close()
time.sleep(600 if sys.argv[2] == "stay" else 0)
"""
MEGATRON = """
import os, sys
for step in range(1, 5) if os.environ.get("RANK", "0") == "0" else ():
    print(f" iteration {step:8d}/       4 | consumed samples: {step * 8:12d} |"
          f" elapsed time per iteration (ms): {250.0 + step:.1f} | global batch size: {sys.argv[1]:>5} |"
          f" lm loss: {9.0 - step:.6E} | grad norm: 1.000 |", flush=True)
if len(sys.argv) > 2:
    print(sys.argv[2], flush=True)
    sys.exit(1)
"""


def run(tmp_path: Path, *argv: str, **more: object) -> Finished:
    local = Local()
    job = Job(name="t", run_dir=tmp_path / "run", argv=argv, **{"world": 1, "time_limit_s": 120.0, **more})  # type: ignore[arg-type]
    try:
        return wait(local, local.submit(job))
    finally:
        local.close()


def test_a_value_is_an_argument_and_never_shell_text(tmp_path: Path) -> None:
    evil = f"$(touch {tmp_path}/x)`touch {tmp_path}/x`; touch {tmp_path}/x"
    assert run(tmp_path, "printf", "%s", evil, env={"EVIL": evil}).codes == (0,)
    assert files.log(tmp_path / "run", 0).read_text() == evil
    assert not (tmp_path / "x").exists()


def test_a_model_called_like_a_command_creates_nothing(tmp_path: Path) -> None:
    name = f"$(touch {tmp_path}/x)"
    data = {"model": {"base": "tiny", "name": name}, "batch": {"gbs": 1}, "command": {"argv": ["printf", "%s", "{model}"]}}
    trial, recipe = trialfile.build(data)
    run_trial(trial, recipe, Local(), tmp_path / "run")
    assert files.node_log(tmp_path / "run", 0).read_text() == name
    assert not (tmp_path / "x").exists()


def test_every_rank_has_its_own_cores_its_threads_and_its_cap(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("seatrial.launch.local.ours_to_pin", lambda: True)
    cores = sorted(os.sched_getaffinity(0))
    done = run(tmp_path, sys.executable, "-c", TELL, str(tmp_path), world=len(cores), memory_cap_bytes=2**33,
               env={"OMP_NUM_THREADS": "3"})
    assert done.codes == (0,) * len(cores)
    told = [json.loads((tmp_path / f"told.{rank}").read_text()) for rank in range(len(cores))]
    assert done.pinned == (len(cores) > 1)
    assert sorted(core for t in told for core in t["cores"]) == cores, "no core is shared and none is left over"
    assert {t["cap"] for t in told} == {2**33}
    assert {t["env"]["OMP_NUM_THREADS"] for t in told} == {"3"}
    assert [t["env"]["RANK"] for t in told] == [str(r) for r in range(len(cores))]
    assert len({t["env"]["MASTER_PORT"] for t in told}) == 1


def test_cores_that_others_compute_on_are_not_dealt_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("seatrial.launch.local.ours_to_pin", lambda: False)
    cores = sorted(os.sched_getaffinity(0))
    done = run(tmp_path, sys.executable, "-c", TELL, str(tmp_path), world=len(cores))
    assert not done.pinned and all(json.loads((tmp_path / f"told.{rank}").read_text())["cores"] == cores
                                   for rank in range(len(cores)))


def test_more_ranks_than_cores_share_them_all(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    run(tmp_path, sys.executable, "-c", TELL, str(tmp_path), world=len(cores) + 1)
    assert json.loads((tmp_path / "told.0").read_text())["cores"] == cores


def test_the_port_is_the_ranks_own_before_one_of_them_listens(tmp_path: Path) -> None:
    told, done, local = tmp_path / "told.0", tmp_path / "go", Local()
    wait_for = f"{TELL}\nimport time\nwhile not os.path.exists({str(done)!r}): time.sleep(0.01)"
    argv = (sys.executable, "-c", wait_for, str(tmp_path))
    handle = local.submit(Job(name="t", run_dir=tmp_path / "run", argv=argv, world=1))
    until = time.monotonic() + 120
    while not (told.exists() and told.read_text().endswith("}}")) and time.monotonic() < until:
        time.sleep(0.01)
    port = int(json.loads(told.read_text())["env"]["MASTER_PORT"])
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        socket.create_server(("127.0.0.1", port)).close()  # as rank 0 does
    finally:
        done.touch()
        assert wait(local, handle).codes == (0,)
        local.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))  # given back


@pytest.mark.parametrize(("ranks_a_core", "asked", "found"), [
    (2, {}, "passive"), (1, {}, None), (2, {"OMP_WAIT_POLICY": "active"}, "active"), (2, {"GOMP_SPINCOUNT": "9"}, None),
])
def test_threads_that_share_cores_wait_asleep_unless_told_otherwise(tmp_path: Path, monkeypatch, ranks_a_core, asked, found):
    for name in WAITS_OWN:
        monkeypatch.delenv(name, raising=False)
    world = ranks_a_core * len(os.sched_getaffinity(0))
    run(tmp_path, sys.executable, "-c", TELL, str(tmp_path), world=world, threads=1, env=asked)
    assert json.loads((tmp_path / "told.0").read_text())["env"].get("OMP_WAIT_POLICY") == found


def test_what_a_program_started_itself_ends_with_it(tmp_path: Path) -> None:
    done = run(tmp_path, sys.executable, "-c", CHILD, str(tmp_path), "leave", per="node")
    assert done.codes == (0,)
    assert processes_of(tmp_path / "run") == [], "a child in a session of its own is found too"


def test_nothing_outlives_a_controller_that_is_killed(tmp_path: Path) -> None:
    code = ("import sys; from pathlib import Path; from seatrial.launch.base import Job; from seatrial.launch.local import *\n"
            "local = Local(); run = Path(sys.argv[1]) / 'run'\n"
            "argv = (sys.executable, '-c', sys.argv[2], sys.argv[1], 'stay')\n"
            "wait(local, local.submit(Job(name='t', run_dir=run, argv=argv, world=1, per='node')))")
    controller = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), CHILD])
    _until((tmp_path / "started").exists)
    assert len(processes_of(tmp_path / "run")) == 2
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    _until(lambda: processes_of(tmp_path / "run") == [])


def test_a_time_limit_holds_and_says_so(tmp_path: Path) -> None:
    began = time.monotonic()
    done = run(tmp_path, "sleep", "600", time_limit_s=1.0)
    assert done.timed_out and time.monotonic() - began < 60
    assert processes_of(tmp_path / "run") == []


def test_a_machine_without_memory_loses_its_fullest_rank_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = ("import os, sys, time; rank = os.environ['RANK']; x = b'1' * (2**27 * int(rank))\n"
            "open(sys.argv[1] + rank, 'w').close(); time.sleep(600)")
    full(tmp_path, monkeypatch, total=2**31, free=2**31 // 100, taken=2**27)
    done = run(tmp_path, sys.executable, "-c", code, str(tmp_path / "up"), world=2)
    assert done.shot == (1,) and done.died[0] == 1 and done.codes[1] == -signal.SIGKILL and not done.crowd
    assert processes_of(tmp_path / "run") == []


@pytest.mark.parametrize(("free", "ends"), [(2**40 // 100, False), (2**40 // 1000, True)])
def test_memory_that_others_took_costs_us_a_rank_only_when_nothing_else_is_left(tmp_path: Path, monkeypatch, free, ends):
    code = ("import os, sys, time; x = b'1' * 2**24\n"
            "open(sys.argv[1] + os.environ['RANK'], 'w').close(); time.sleep(600)")
    full(tmp_path, monkeypatch, total=2**40, free=free, taken=2**39)
    done = run(tmp_path, sys.executable, "-c", code, str(tmp_path / "up"), world=2, time_limit_s=600.0 if ends else 3.0)
    assert bool(done.shot) == bool(done.crowd) == ends and done.timed_out != ends
    if ends:
        assert 2**25 < done.crowd["ours_bytes"] < 2**28 and done.crowd["others_grew_bytes"] > 2**38 and done.crowd["largest"]


def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, total: int, free: int, taken: int) -> None:
    """A machine of which, once both ranks are up, `free` is left, and `taken` was taken since the start."""
    def machine() -> memory.Machine:
        up = len(list(tmp_path.glob("up?"))) == 2
        return memory.Machine(total_bytes=total, free_bytes=free if up else free + taken)

    monkeypatch.setattr(memory, "machine", machine)


def test_a_program_that_does_not_leave_when_asked_is_ended(tmp_path: Path) -> None:
    local = Local()
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    handle = local.submit(Job(name="t", run_dir=tmp_path / "run", argv=(sys.executable, "-c", stubborn), world=1))
    _until(lambda: files.log(tmp_path / "run", 0).read_text() == "up\n")
    local.kill(handle)
    assert local.poll([handle])[handle.key] == "done" and local.finished(handle).stopped
    assert processes_of(tmp_path / "run") == []


def test_a_program_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no-such-program: No such file"):
        run(tmp_path, "no-such-program")


def megatron(tmp_path: Path) -> str:
    path = tmp_path / "pretrain.py"
    path.write_text(MEGATRON)
    return str(path)


def other(tmp_path: Path, argv: list[str], **limits: float) -> Record:
    data = {"model": "tiny", "batch": {"gbs": 8}, "command": {"argv": argv}}
    return run_trial(*trialfile.build(data), Local(), tmp_path / "run", limits=Limits(**{"time_limit_s": 120, **limits}))


def test_any_program_that_prints_megatrons_lines_is_a_trial(tmp_path: Path) -> None:
    record = other(tmp_path, ["{python}", megatron(tmp_path), "{gbs}"])
    assert record.outcome is not None and record.outcome.status == "ok", record.outcome
    assert record.engine == "command" and len(record.iterations) == 4
    assert record.sec_per_it == pytest.approx(0.253) and record.loss == pytest.approx(5.0)
    assert record.tflops is not None and record.samples_per_s == float(f"{8 / 0.253:.5g}")


@pytest.mark.parametrize(("last", "status"), [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "oom_device"),
    ("[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=412)", "hang"),
    ("KeyError: 'x'", "crash"),
])  # fmt: skip
def test_how_another_program_failed_is_read_from_its_last_words(tmp_path: Path, last: str, status: str) -> None:
    record = other(tmp_path, ["{python}", megatron(tmp_path), "{gbs}", last])
    assert record.outcome is not None and record.outcome.status == status, record.outcome
    assert len(record.iterations) == 4, "what was measured before is kept"
    assert record.sec_per_it is not None


def test_a_program_that_measures_nothing_is_no_good_trial(tmp_path: Path) -> None:
    record = other(tmp_path, ["true"])
    assert record.outcome is not None and record.outcome.status == "crash"
    assert "no iteration that can be read" in record.outcome.message


def test_torchrun_is_a_program_like_any_other(tmp_path: Path) -> None:
    data = {"model": "tiny", "topology": {"dp": 2}, "batch": {"gbs": 8}, "command": {"argv": [
        "{python}", "-m", "torch.distributed.run", "--nnodes={nodes}", "--nproc-per-node={procs_per_node}",
        "--node-rank={node}", "--master-addr={master_addr}", "--master-port={master_port}", megatron(tmp_path), "{gbs}"]}}
    record = run_trial(*trialfile.build(data), Local(), tmp_path / "run", limits=Limits(time_limit_s=240))
    assert record.outcome is not None and record.outcome.status == "ok", record.outcome
    assert len(record.iterations) == 4


def _until(holds: object, limit_s: float = 120.0) -> None:
    until = time.monotonic() + limit_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.05)


GOES_ON = """
import json, os, pathlib, signal, sys, time
run, rank = pathlib.Path(sys.argv[1]), os.environ["RANK"]
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
def say(**event):
    if rank == "0":
        with (run / "events.jsonl").open("a") as file:
            file.write(json.dumps({"time": time.time(), **event}) + chr(10))
for step in range(1, 6):
    say(event="iteration", step=step, sec=0.1, loss=2.0, gbs=8)
(run / "watch").mkdir(exist_ok=True)
(run / "watch" / "stalled").touch()
while not asked:
    time.sleep(0.02)
say(event="end", status="stopped", step=5)
"""


def test_ranks_that_leave_cleanly_after_a_stall_that_passed_were_not_cancelled_by_anybody(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(processes, "SPEAK_S", 0.5)
    monkeypatch.setattr(processes, "GRACE_AFTER_TERM_S", 60.0)
    (tmp_path / "goes_on.py").write_text(GOES_ON)
    command = {"argv": [sys.executable, "-I", "-S", str(tmp_path / "goes_on.py"), "{run_dir}"], "per": "rank"}
    trial, recipe = trialfile.build({"model": "tiny", "topology": {"dp": 2}, "batch": {"gbs": 8}, "command": command})
    record = run_trial(trial, recipe, Local(), tmp_path / "run", limits=Limits(time_limit_s=120))
    assert record.outcome.status == "hang" and "stood still; the run went on" in record.outcome.message
    assert len(record.iterations) == 5 and record.state == "failed"
