"""What Slurm's programs answer, with accounting: recorded answers, as this project's test cluster keeps no accounts."""
from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import pytest

from seatrial.errors import BadInput
from seatrial.launch import batch, files
from seatrial.launch.base import Handle, Job
from seatrial.launch.batch import safe_name
from seatrial.launch.slurm import Slurm

SCONTROL = ("JobId=12 JobName=seatrial-a UserId=root(0) GroupId=root(0) Priority=1 JobState=TIMEOUT Reason=TimeLimit "
            "Dependency=(null) Requeue=0 ExitCode=0:15 RunTime=00:02:04 TimeLimit=00:02:00")


def answers(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    for name, text in programs.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\necho {name} \"$@\" >>{shlex.quote(str(folder))}/calls\n{text}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def handle(tmp_path: Path, key: str) -> Handle:
    job = Job(name=key, run_dir=tmp_path / key, argv=("true",), world=1)
    return Handle(key=key, job=job, job_id=key, submitted=time.time())


def test_all_handles_are_polled_with_one_question_and_their_ends_with_one_more(tmp_path: Path,
                                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    answers(tmp_path, monkeypatch, squeue="echo '10|RUNNING'; echo '11|PENDING'",
            sacct="echo '12|COMPLETED'; echo '13|CANCELLED by 1000'; echo '14|OUT_OF_MEMORY'")
    handles = [handle(tmp_path, key) for key in ("10", "11", "12", "13", "14")]
    launcher = Slurm()
    assert list(launcher.poll(handles).values()) == ["running", "queued", "done", "done", "done"]
    assert [launcher.finished(h).scheduler_state for h in handles[3:]] == ["CANCELLED", "OUT_OF_MEMORY"]
    launcher.poll(handles)
    calls = [line.split()[0] for line in (tmp_path / "calls").read_text().splitlines()]
    assert calls == ["squeue", "sacct", "squeue"], "what has ended is not asked after again"


def test_accounts_that_lag_behind_the_queue_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(tmp_path, monkeypatch, squeue="true", sacct="echo '12|RUNNING'", scontrol=f"echo '{SCONTROL}'")
    launcher = Slurm()
    assert launcher.poll([one := handle(tmp_path, "12")]) == {"12": "done"}
    assert launcher.finished(one).scheduler_state == "TIMEOUT"


def test_a_controller_that_restarts_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(tmp_path, monkeypatch, squeue="echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    launcher, one = Slurm(), handle(tmp_path, "12")
    assert launcher.poll([one]) == {"12": "running"}
    monkeypatch.setattr(batch, "PATIENCE_S", -1.0)
    with pytest.raises(BadInput, match="squeue: slurm_load_jobs error"):
        launcher.poll([one])


def test_options_are_words_of_their_own_whatever_they_hold() -> None:
    assert Slurm().options_argv({"partition": "a b;$(x)", "exclusive": ""}) == ["--partition=a b;$(x)", "--exclusive"]
    for bad in ("--partition", "par tition", "Partition", "wrap", "output", "export", "chdir"):
        with pytest.raises(BadInput, match="scheduler"):
            Slurm().options_argv({bad: "x"})


def test_the_script_has_nothing_of_the_trial_but_quoted_words(tmp_path: Path) -> None:
    run_dir = tmp_path / "a'; touch x; '"
    job = Job(name="$(touch x)", run_dir=run_dir, argv=("$(touch x)",), world=8, procs_per_node=4)
    run_dir.mkdir()
    slurm = Slurm(preamble=["module load cuda"], python="/my env/python")
    text = slurm.write_script(job, [*slurm.start_argv(job), *slurm.agent_argv(job)]).read_text()
    first, *preamble, last = text.splitlines()
    assert first == "#!/bin/bash" and preamble == ["module load cuda"]
    words = shlex.split(last)
    assert words[:2] == ["exec", "srun"]
    assert words[-4:] == ["/my env/python", "-m", "seatrial.launch.agent", str(run_dir / files.JOB)]
    assert "--nodes=2" in words and "$(touch x)" not in text
    assert safe_name("$(touch x)") == "seatrial-__touch_x_"
