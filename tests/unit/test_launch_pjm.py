"""PJM's scripts and answers, on output as its guide documents it, through programs that answer so."""
from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from seatrial.errors import BadInput
from seatrial.launch import files, pjm
from seatrial.launch.base import Job
from seatrial.launch.pjm import Pjm

RUNS = "H,JOB_ID,ST,EC,PC\n,34704010,RUN,-,-\n,34704011,QUE,-,-\n"
ENDED = RUNS.split("\n")[0] + "\n,12,EXT,0,0\n,13,EXT,137,11\n,14,CCL,-,1\n,15,EXT,1,0\n,16,EXT,137,12\n"

PJSUB = """#!/bin/bash
printf '%s\\n' "$@" >>{log}
for last; do :; done
(PATH={bin}:$PATH bash "$last"; touch {ended}) >/dev/null 2>&1 &
echo "[INFO] PJM 0000 pjsub Job 77 submitted."
"""
PJSTAT = """#!/bin/bash
if [[ " $* " == *" -H "* ]]; then printf 'H,JOB_ID,ST,EC,PC\\n,77,EXT,0,0\\n'; exit; fi
printf 'H,JOB_ID,ST,EC,PC\\n'
[[ -e {ended} ]] || printf ',77,RUN,-,-\\n'
"""
MPIEXEC = """#!/bin/bash
shift 2
export OMPI_COMM_WORLD_RANK=0
exec "$@"
"""


def test_states_are_found_by_their_heading_whatever_the_order() -> None:
    assert {key: row.state for key, row in pjm.rows_of(RUNS).items()} == {"34704010": "RUN", "34704011": "QUE"}
    turned = "H,ST,JOB_ID\n,RUN,5\n"
    assert pjm.rows_of(turned)["5"].state == "RUN"
    assert pjm.rows_of("") == {} and pjm.rows_of("H,JOB_ID,ST,EC,PC\n") == {}


def test_pjm_codes_become_the_words_that_outcomes_know() -> None:
    final = {key: row.final for key, row in pjm.rows_of(ENDED).items()}
    assert list(final.values()) == ["COMPLETED", "TIMEOUT", "CANCELLED", "FAILED", "OUT_OF_MEMORY"]


def test_the_number_of_a_job_comes_from_pjsubs_answer() -> None:
    assert pjm.submitted_id("[INFO] PJM 0000 pjsub Job 34704010 submitted.\n") == "34704010"
    with pytest.raises(BadInput, match="no job number"):
        pjm.submitted_id("[ERR.] PJM 0054 pjsub node=99999 is greater than the upper limit (384).")


def test_the_clock_is_a_resource_and_a_second_resource_cannot_hide_in_a_value() -> None:
    chosen = Pjm().options_argv({"freq": "2200", "retention_state": "1", "group": "hp000000"})
    assert chosen == ["-L", "freq=2200", "-L", "retention_state=1", "-g", "hp000000"]
    for bad in ({"freq": "2200,elapse=99:00:00"}, {"freq": "$(touch x)"}, {"Freq;": "1"}, {"elapse": "1"}):
        with pytest.raises(BadInput, match="scheduler"):
            Pjm().options_argv(bad)


def test_a_job_is_found_again_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pjstat").write_text("#!/bin/sh\nprintf 'H,JOB_ID,JOB_NAME\\n,5,other\\n,6,seatrial-abc\\n'\n")
    (tmp_path / "pjstat").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert Pjm().find("abc") == "6" and Pjm().find("abcd") == ""


def test_time_is_rounded_up_to_minutes() -> None:
    assert [pjm.elapse(s) for s in (1, 60, 61, 3600, 90061)] == ["00:01:00", "00:01:00", "00:02:00", "01:00:00", "25:02:00"]


def test_a_job_runs_through_the_script_and_no_value_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, log, ended = tmp_path / "bin", tmp_path / "pjsub.log", tmp_path / "ended"
    tools.mkdir()
    for name, text in (("pjsub", PJSUB), ("pjstat", PJSTAT), ("mpiexec", MPIEXEC)):
        (tools / name).write_text(text.format(log=log, ended=ended, bin=tools) if name != "mpiexec" else text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    evil = f"$(touch {tmp_path}/x)`touch {tmp_path}/x`;touch {tmp_path}/x\n#PJM -L elapse=9\ntouch {tmp_path}/x"
    run_dir = tmp_path / "run $(touch y)"
    job = Job(name=evil, run_dir=run_dir, argv=("printf", "%s", evil), world=1, env={"EVIL": evil}, time_limit_s=30)
    launcher = Pjm(options={"rscgrp": "small"}, preamble=["export FROM_PREAMBLE=yes"])
    handle = launcher.submit(job)
    assert handle.job_id == "77"
    until = time.monotonic() + 60
    while launcher.poll([handle])[handle.key] != "done":
        assert time.monotonic() < until
        time.sleep(0.1)
    done = launcher.finished(handle)
    assert done.codes == (0,) and done.scheduler_state == "COMPLETED" and done.job_id == "77"
    assert files.log(run_dir, 0).read_text() == evil, "the program got the value as it is"
    assert not (tmp_path / "x").exists() and not Path("y").exists()
    assert "export FROM_PREAMBLE=yes" in (run_dir / files.SCRIPT).read_text().splitlines()
    given = log.read_text().splitlines()
    assert given[given.index("-L") + 1] == "node=1" and "rscgrp=small" in given and "max-proc-per-node=1" in given
    assert not any("$(" in word or "`" in word for word in given if str(run_dir) not in word), "the name was made harmless"
