"""Trials through a real Slurm: the same outcomes as on this machine alone, with one job a trial and within one allocation."""
from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sweeps
from seatrial.errors import BadInput
from seatrial.launch import files, slurm
from seatrial.launch.base import Handle, Job
from seatrial.launch.slurm import Slurm
from seatrial.launch.trial import Limits, conclude, prepare, run_trial
from trial_cases import CASES, killing_from_outside, processes_of, sweep_of, words_of

pytestmark = pytest.mark.slurm
GOOD = CASES[0]


@pytest.mark.timeout(600)
def test_the_sweep_of_all_that_goes_wrong_ends_through_slurm_as_it_does_locally(slurm_cluster: Any, tmp_path: Path) -> None:
    """One job a trial, four at a time; the file is that of the local test, and so is what is expected of each row."""
    file, book = sweeps.write(tmp_path / "outcomes.toml", sweep_of(CASES, side_by_side=4)), tmp_path / "book"
    with killing_from_outside(book / "runs" / "outcomes", CASES):
        found = sweeps.run(file, book, "--launcher", "slurm", timeout_s=560)
    assert sweeps.left_running(book) == []
    _until(lambda: queue() == [])
    got = {row["knobs"]["case"]: row for row in found["trials"]}
    assert {name: row["status"] for name, row in got.items()} == {case.name: case.status for case in CASES}
    for case in CASES:
        assert case.status in ("ok", "invalid") or got[case.name]["rank"] == case.rank, got[case.name]
        assert all(words in got[case.name]["message"] for words in case.says), got[case.name]
    good = next(row for row in sweeps.rows(book, without=()).values() if row["outcome"]["status"] == "ok")
    assert good["host"]["job_id"].isdigit() and good["host"]["scheduler_state"] == "COMPLETED"


def queue() -> list[str]:
    said = subprocess.run(["squeue", "--noheader", "--format=%i"], capture_output=True, text=True, check=True)
    return said.stdout.split()


def test_an_allocation_runs_trials_side_by_side_on_its_nodes(slurm_cluster: Any, tmp_path: Path) -> None:
    with Slurm.allocation(nodes=2, time_limit_s=600) as launcher:
        jobs = []
        for name in ("a", "b", "c"):
            trial, recipe = words_of(GOOD)
            jobs.append((trial, recipe, prepare(trial, recipe, launcher, run_dir=tmp_path / name,
                                                  limits=Limits(time_limit_s=240))))
        handles: list[Handle] = []
        for _, _, job in jobs:
            if launcher.room_for(job, handles):
                handles.append(launcher.submit(job))
        assert len(handles) == 2, "two nodes have room for two trials of one node"
        both, states = 0, ["running", "running"]
        while states != ["done", "done"]:
            states = list(launcher.poll(handles).values())
            both += states == ["running", "running"]
            time.sleep(0.2)
        assert both > 0
        for handle, (trial, recipe, _) in zip(handles, jobs):
            record = conclude(trial, recipe, handle, launcher.finished(handle))
            assert record.outcome is not None and record.outcome.status == "ok", record.outcome
        assert launcher.room_for(jobs[2][2], [])


def test_ranks_of_two_nodes_form_one_trial(slurm_cluster: Any, tmp_path: Path) -> None:
    from seatrial import presets

    trial, recipe = words_of(replace(GOOD, settings=("topology.pp=2", "topology.dp=2")))
    cluster = presets.cluster("jz-a100", nodes=2, procs_per_node=2)
    record = run_trial(replace(trial, cluster=cluster), recipe, Slurm(), tmp_path / "two", limits=Limits(time_limit_s=240))
    assert record.outcome is not None and record.outcome.status == "ok", record.outcome
    assert len(record.host["nodes"]) == 2 and record.nodes == 2  # type: ignore[arg-type]
    assert all(files.node_exit(tmp_path / "two", node).exists() for node in (0, 1))


def test_scancel_is_cancelled_and_not_a_crash(slurm_cluster: Any, tmp_path: Path) -> None:
    trial, recipe = words_of(replace(GOOD, settings=("recipe.steps=100000",)))
    launcher = Slurm()
    handle = launcher.submit(prepare(trial, recipe, launcher, run_dir=tmp_path / "c", limits=Limits(time_limit_s=240)))
    _until(lambda: (tmp_path / "c" / files.EVENTS).exists())
    subprocess.run(["scancel", handle.job_id], check=True)
    _until(lambda: launcher.poll([handle])[handle.key] == "done")
    record = conclude(trial, recipe, handle, launcher.finished(handle))
    assert record.outcome is not None and record.outcome.status == "cancelled", record.outcome
    assert processes_of(tmp_path / "c") == []


def test_a_job_that_never_starts_can_be_taken_back(slurm_cluster: Any, tmp_path: Path) -> None:
    launcher = Slurm(options={"begin": "now+1hour"})
    trial, recipe = words_of(GOOD)
    handle = launcher.submit(prepare(trial, recipe, launcher, run_dir=tmp_path / "q"))
    assert launcher.poll([handle])[handle.key] == "queued"
    launcher.cancel(handle)
    _until(lambda: launcher.poll([handle])[handle.key] == "done")
    record = conclude(trial, recipe, handle, launcher.finished(handle))
    assert record.outcome is not None and record.outcome.status == "cancelled", record.outcome


def test_what_slurm_refuses_is_one_line(slurm_cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="sbatch: .*partition"):
        Slurm(options={"partition": "nowhere"}).submit(_job(tmp_path))
    with pytest.raises(BadInput, match="scheduler.output: is set by seatrial itself"):
        Slurm(options={"output": "/x"}).submit(_job(tmp_path))


def test_a_value_from_a_file_is_never_run(slurm_cluster: Any, tmp_path: Path) -> None:
    bait = tmp_path / "x"
    evil = f"$(touch {bait})`touch {bait}`;touch {bait}\n#SBATCH --wrap=touch {bait}\ntouch {bait}"
    run_dir = tmp_path / "a $(touch y) ; touch z"
    job = Job(name=evil, run_dir=run_dir, argv=("printf", "%s", evil), world=1, env={"EVIL": evil}, time_limit_s=120,
              scheduler={"comment": evil})
    launcher = Slurm()
    handle = launcher.submit(job)
    _until(lambda: launcher.poll([handle])[handle.key] == "done")
    assert launcher.finished(handle).codes == (0,)
    assert files.log(run_dir, 0).read_text() == evil, "the program got the value as it is"
    assert [p.name for p in tmp_path.iterdir()] == [run_dir.name]
    assert not any(Path(name).exists() for name in ("x", "y", "z"))


def test_the_preamble_is_the_users_own_shell_text(slurm_cluster: Any, tmp_path: Path) -> None:
    job = replace(_job(tmp_path), argv=("sh", "-c", 'printf %s "$FROM_PREAMBLE"'))
    launcher = Slurm(preamble=["export FROM_PREAMBLE=yes"])
    handle = launcher.submit(job)
    _until(lambda: launcher.poll([handle])[handle.key] == "done")
    launcher.finished(handle)
    assert files.log(job.run_dir, 0).read_text() == "yes"


def test_without_accounting_the_controller_is_asked_and_after_that_the_files(slurm_cluster: Any, tmp_path: Path,
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    job = _job(tmp_path)
    launcher = Slurm()
    handle = launcher.submit(job)
    _until(lambda: launcher.poll([handle])[handle.key] == "done")
    assert launcher._accounts is False, "this Slurm keeps no accounts"
    assert launcher.finished(handle).scheduler_state == "COMPLETED"
    forgetful = Slurm()
    monkeypatch.setattr(slurm, "_from_scontrol", lambda job_id: "")
    old = replace(handle, submitted=0.0)
    assert forgetful.poll([old])[old.key] == "done"
    assert forgetful.finished(old).codes == (0,)


def _job(tmp_path: Path) -> Job:
    return Job(name="small", run_dir=tmp_path / "small", argv=("true",), world=1, time_limit_s=120)


def _until(holds: Any, limit_s: float = 240.0) -> None:
    until = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.2)
