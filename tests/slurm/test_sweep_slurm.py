"""Sweeps through a real Slurm: the outcomes of this machine alone, and jobs that outlive their controller."""
from __future__ import annotations

import json
import signal
import subprocess
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


def ended(controller) -> tuple[dict[str, Any], str]:
    out, err = controller.communicate(timeout=120)
    assert controller.returncode == 3, (controller.returncode, err)
    return json.loads(out) if out else {}, err


def test_an_allocation_that_is_cancelled_leaves_its_trials_to_the_next_controller(slurm_cluster: Any, tmp_path):
    """Of four trials one has ended, one is cut off, and two never begin."""
    file = file_of(tmp_path, "cut", {"quick": "good", "slow": "slow"}, axes={"tp": [1, 2]}, order="file",
                   limits={"side_by_side": 1, "time_s": 120})
    controller = sweeps.start(file, tmp_path / "book", "--launcher", "slurm", "--allocation", "1", env={"STUB_SLEEP_S": "60"})
    while '"slow"' not in "".join(log.read_text() for log in tmp_path.glob("book/runs/cut/*/job.json")) \
            or not list(tmp_path.glob("book/runs/cut/*/handle.json")):
        assert controller.poll() is None, controller.communicate()
        time.sleep(0.05)
    began = time.monotonic()
    subprocess.run(["scancel", "--name=seatrial"], check=True)
    _, err = ended(controller)
    assert "has ended (C" in err and "1 of 4 trials are in the logbook; --resume goes on" in err.splitlines()[-1], err
    assert time.monotonic() - began < 30
    found = sweeps.run(file, tmp_path / "book", "--launcher", "slurm", "--allocation", "1", "--resume",
                       env={"STUB_SLEEP_S": "1"})
    assert [row["status"] for row in found["trials"]] == ["ok"] * 4 and found["pending"] == {}


@pytest.mark.parametrize(("settings", "said"), [
    ({"options": {"partition": "nowhere"}}, "partition"),
    ({"preamble": ["echo no licence left >&2", "exit 3"]}, "could not start: no licence left"),
], ids=["partition", "preamble"])  # fmt: skip
def test_what_cannot_start_says_why_and_is_started_by_the_next_controller(slurm_cluster: Any, tmp_path, settings, said):
    file = file_of(tmp_path, "cannot", {"good": "good"}, limits={"time_s": 120})
    config = sweeps.write(tmp_path / "config.toml", {"slurm": settings})
    found, err = ended(sweeps.start(file, tmp_path / "book", "--launcher", "slurm", "--config", str(config)))
    [row] = found["trials"]
    assert row["status"] == "not_started" and said in row["message"], row
    assert found["pending"] == {"not_started": 1} and "--resume runs them again" in err
    found = sweeps.run(file, tmp_path / "book", "--launcher", "slurm", "--resume")
    assert [row["status"] for row in found["trials"]] == ["ok"]
