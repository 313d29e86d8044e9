"""What a record may tell of its surroundings."""
from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from seatrial import trialfile
from seatrial.errors import BadInput
from seatrial.launch import environment, files, registry
from seatrial.launch.base import Job
from seatrial.launch.local import Local
from seatrial.launch.trial import prepare, record_of
from seatrial.record import Outcome

SECRET = "hunter2-hunter2"


def test_only_variables_of_the_list_are_told() -> None:
    env = {"OMP_NUM_THREADS": "4", "LD_PRELOAD": "/usr/lib/libtcmalloc.so", "NCCL_DEBUG": "INFO", "SLURM_JOB_ID": "12",
           "HOME": "/root", "AWS_SECRET_ACCESS_KEY": SECRET, "NCCL_SECRET": SECRET, "TORCH_TOKEN": SECRET, "SLURM_JWT": SECRET,
           "omp_num_threads": SECRET, "X_OMP_NUM_THREADS": SECRET}  # fmt: skip
    assert set(environment.recorded(env)) == {"OMP_NUM_THREADS", "LD_PRELOAD", "NCCL_DEBUG", "SLURM_JOB_ID"}


def test_a_password_inside_an_address_is_not_told() -> None:
    assert SECRET not in str(environment.recorded({"NCCL_NET": f"http://me:{SECRET}@proxy:80"}))


def test_a_secret_reaches_neither_the_record_nor_the_run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    data = {"model": "tiny", "batch": {"gbs": 1},
            "environment": {"variables": {"HF_TOKEN": SECRET, "OMP_NUM_THREADS": "2"}}}  # fmt: skip
    trial, recipe = trialfile.build(data)
    record = record_of(trial, recipe, Outcome(status="ok"), [])
    prepare(trial, recipe, Local(), run_dir=tmp_path)
    for text in (json.dumps(record.to_dict()), (tmp_path / files.RUN).read_text()):
        assert SECRET not in text and "HF_TOKEN" in text, "the name tells that it was set"
    assert record.env["OMP_NUM_THREADS"] == "2"
    assert record.run_id == trial.run_id(), "identity is of what was asked"


def test_the_job_file_holds_the_environment_and_is_its_owners_alone(tmp_path: Path) -> None:
    job = Job(name="a", run_dir=tmp_path / "a b", argv=("x", "$(y)"), world=4, procs_per_node=2, env={"HF_TOKEN": SECRET})
    path = files.write_job(job)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert files.read_job(path) == job


def test_versions_and_machine_are_there() -> None:
    assert {"seatrial", "python"} <= set(environment.versions())
    assert {"name", "cores", "memory_gib", "load"} <= set(environment.machine())


def test_the_users_configuration_gives_launchers_their_preamble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[slurm]\noptions = { account = "abc" }\npreamble = ["module load cuda"]\n')
    found = registry.load(path)
    launcher = registry.launcher("slurm", found["slurm"])
    assert launcher.name == "slurm" and launcher.preamble == ["module load cuda"]  # type: ignore[attr-defined]
    monkeypatch.setenv(registry.VARIABLE, str(path))
    assert registry.load() == found
    monkeypatch.delenv(registry.VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    assert registry.load() == {}


@pytest.mark.parametrize(("text", "says"), [
    ('[slurm]\npreambel = ["x"]', "did you mean 'preamble'"), ("[slrum]\n", "did you mean 'slurm'"), ("[slurm", "not TOML"),
    ('[slurm]\noptions = { account = 3 }', "expected a text"),
])  # fmt: skip
def test_a_wrong_configuration_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(BadInput, match=says):
        registry.load(tmp_path / "c.toml")
    with pytest.raises(BadInput, match="did you mean 'slurm'"):
        registry.launcher("slrum")


def test_who_has_no_home_has_no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_user: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    for name in ("HOME", "XDG_CONFIG_HOME", registry.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert registry.load() == {}
