"""Sweeps through a real Slurm: the outcomes of this machine alone, and jobs that outlive their controller."""
from __future__ import annotations

import signal
import time
from typing import Any

import pytest

import sweeps

pytestmark = pytest.mark.slurm
BASE = {"model": "tiny", "batch": {"gbs": 8}}
CASES = {"good": "ok", "crash": "crash", "nan": "nan"}


def file_of(tmp_path, name, cases, **more):
    axes = {"case": [{"name": label, "command": sweeps.stub(fate)} for label, fate in cases.items()], **more.pop("axes", {})}
    return sweeps.write(tmp_path / f"{name}.toml", {**BASE, "axes": axes, **more})


@pytest.mark.parametrize("how", [(), ("--allocation", "2")], ids=["a job a trial", "one allocation"])
def test_the_same_sweep_through_slurm_has_the_same_rows(slurm_cluster: Any, tmp_path, how):
    file = file_of(tmp_path, "same", CASES, axes={"tp": [1, 3]}, limits={"side_by_side": 2, "time_s": 120})
    sweeps.run(file, tmp_path / "local")
    found = sweeps.run(file, tmp_path / "slurm", "--launcher", "slurm", *how)
    assert {row["status"] for row in found["trials"]} == {"ok", "crash", "nan", "invalid"}
    assert sweeps.rows(tmp_path / "slurm") == sweeps.rows(tmp_path / "local")


def test_a_job_that_outlives_its_controller_is_taken_over_and_not_run_again(slurm_cluster: Any, tmp_path):
    file = file_of(tmp_path, "long", {"slow": "slow"}, limits={"time_s": 120})
    controller = sweeps.start(file, tmp_path / "book", "--launcher", "slurm", env={"STUB_SLEEP_S": "6"})
    while not list(tmp_path.glob("book/runs/long/*/handle.json")):
        assert controller.poll() is None, controller.communicate()
        time.sleep(0.05)
    controller.send_signal(signal.SIGKILL)
    controller.communicate()
    [folder] = tmp_path.glob("book/runs/long/*/")
    found = sweeps.run(file, tmp_path / "book", "--launcher", "slurm", "--resume")
    assert [row["status"] for row in found["trials"]] == ["ok"]
    assert (folder / "events.jsonl").read_text().count('"start"') == 1
    assert not folder.with_name(f"{folder.name}.interrupted").exists()


def test_a_job_whose_number_was_never_noted_is_found_by_its_name(slurm_cluster: Any, tmp_path):
    file = file_of(tmp_path, "long", {"slow": "slow"}, limits={"time_s": 120})
    controller = sweeps.start(file, tmp_path / "book", "--launcher", "slurm", env={"STUB_SLEEP_S": "6"})
    while not (noted := list(tmp_path.glob("book/runs/long/*/handle.json"))):
        assert controller.poll() is None, controller.communicate()
        time.sleep(0.02)
    controller.send_signal(signal.SIGKILL)
    controller.communicate()
    noted[0].unlink()
    found = sweeps.run(file, tmp_path / "book", "--launcher", "slurm", "--resume")
    assert [row["status"] for row in found["trials"]] == ["ok"]
    assert (noted[0].parent / "events.jsonl").read_text().count('"start"') == 1
    assert not list(tmp_path.glob("book/runs/long/*.interrupted"))
