"""Launchers and engines of other distributions, found by name: a real one, made in a folder as pip would install it."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.errors import BadInput
from seatrial.launch.base import Launcher
from seatrial.launch.registry import LAUNCHERS

LSF = '''
"""LSF: bsub, bjobs, bkill."""
import re

from seatrial.launch.batch import Batch, ask, safe_name

ENDED = {"DONE": "COMPLETED", "EXIT": "FAILED"}


class Lsf(Batch):
    name, program, poll_s = "lsf", "bsub", 0.1
    node_variables = ("LSF_NODE",)

    def start_argv(self, job):
        return ["blaunch"]

    def options_argv(self, options):
        return [word for name, value in options.items() for word in (f"-{name}", value)]

    def enqueue(self, job, script, options):
        said = ask("bsub", "-J", safe_name(job.name), "-nnodes", str(job.nodes), *options, str(script))
        return re.search(r"Job <(\\d+)>", said)[1]

    def states(self, handles):
        rows = (line.split() for line in ask("bjobs", "-noheader", *(h.key for h in handles)).splitlines())
        return {key: ENDED.get(word, "queued" if word == "PEND" else "running") for key, word in rows}

    def delete(self, job_id):
        ask("bkill", job_id)

    def find(self, name):
        return ""
'''
TITAN = '''
"""A trainer that writes its own events."""
import sys
from pathlib import Path

from seatrial.engines.base import Adapter

CODE = """
import json, sys
with open(sys.argv[1] + "/events.jsonl", "w") as file:
    for step in (1, 2, 3):
        print(json.dumps({"event": "iteration", "step": step, "sec": 0.5, "gbs": 4, "loss": 1.0}), file=file)
    print(json.dumps({"event": "end", "status": "finished", "step": 3}), file=file)
"""


class Titan(Adapter):
    def per(self, trial):
        return "node"

    def check(self, trial, training, *, here):
        pass

    def argv(self, trial, training, run_dir):
        return (sys.executable, "-c", CODE, str(run_dir))
'''
ENTRY_POINTS = """
[seatrial.launchers]
lsf = our_cluster.lsf:Lsf
broken = our_cluster.nothing:Nothing

[seatrial.engines]
titan = our_cluster.titan:Titan
"""
PROGRAMS = {
    "bsub": 'for last; do :; done\nprintf "%s\\n" "$@" >{home}/bsub.args\n'
            '(bash "$last"; touch {home}/ended) >/dev/null 2>&1 &\n'
            'echo "Job <7> is submitted to default queue <normal>."',
    "bjobs": 'if [ -e {home}/ended ]; then echo "7 DONE"; else echo "7 RUN"; fi',
    "blaunch": 'LSF_NODE=0 exec "$@"',
}  # fmt: skip


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that has LSF, and a distribution that knows it."""
    package, info, programs = tmp_path / "site/our_cluster", tmp_path / "site/our_cluster-1.0.dist-info", tmp_path / "bin"
    for folder in (package, info, programs):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "lsf.py").write_text(LSF)
    (package / "titan.py").write_text(TITAN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-cluster\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    for name, text in PROGRAMS.items():
        (programs / name).write_text("#!/bin/bash\n" + text.replace("{home}", str(tmp_path)) + "\n")
        (programs / name).chmod(0o755)
    python_path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": python_path, "PATH": f"{programs}:{os.environ['PATH']}"}


def seatrial(env: dict[str, str], folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "seatrial", *argv], env=env, cwd=folder, capture_output=True, text=True,
                          timeout=300, check=False)


@pytest.mark.timeout(300)
def test_a_batch_system_of_another_distribution_runs_a_trial(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[lsf]\noptions = { q = "gpu" }\npreamble = ["export FROM_PREAMBLE=yes"]\n')
    said = seatrial(installed, tmp_path, "run", "--model", "tiny", "--gbs", "2", "--dp", "2", "--steps", "2", "--device", "cpu",
                    "--launcher", "lsf", "--config", "config.toml", "--out", "out", "--json")
    found = json.loads(said.stdout)
    assert found["status"] == "ok" and len(found["losses"]) == 2, said.stderr
    assert "export FROM_PREAMBLE=yes" in (tmp_path / "out/job.sh").read_text()
    assert (tmp_path / "bsub.args").read_text().splitlines()[2:6] == ["-nnodes", "1", "-q", "gpu"]
    record = json.loads((tmp_path / "out/record.json").read_text())
    assert record["host"]["job_id"] == "7" and record["host"]["scheduler_state"] == "COMPLETED"


def test_an_engine_of_another_distribution_runs_from_a_file(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "trial.toml").write_text('engine = "titan"\nmodel = "tiny"\nbatch = { gbs = 4 }\ntopology = { dp = 2 }\n')
    found = json.loads(seatrial(installed, tmp_path, "run", "trial.toml", "--out", "out", "--json").stdout)
    assert found["status"] == "ok" and found["sec_per_it"] == 0.5
    assert json.loads((tmp_path / "out/record.json").read_text())["engine"] == "titan"


def test_a_name_that_nobody_has_is_answered_with_those_that_there_are(installed: dict[str, str], tmp_path: Path) -> None:
    trial = ("run", "--model", "tiny", "--gbs", "2", "--launcher")
    said = seatrial(installed, tmp_path, *trial, "lfs")
    assert said.returncode == 2 and "launcher 'lfs'" in said.stderr
    assert "local, slurm, pjm, broken, lsf" in said.stderr.replace("\n", " ")
    said = seatrial(installed, tmp_path, *trial, "broken")
    assert said.returncode == 2 and "our_cluster.nothing:Nothing of our-cluster cannot be loaded" in said.stderr
    (tmp_path / "trial.toml").write_text('engine = "titna"\nmodel = "tiny"\nbatch = { gbs = 4 }\n')
    said = seatrial(installed, tmp_path, "run", "trial.toml")
    assert said.returncode == 2 and "plain-3d, command, titan" in said.stderr.replace("\n", " ")


def test_what_is_built_in_is_found_without_reading_what_is_installed() -> None:
    code = ("import sys; import importlib.metadata as m; m.entry_points = None\n"
            "from seatrial.cli import main; from seatrial.launch.registry import LAUNCHERS; LAUNCHERS.get('slurm')\n"
            "sys.argv = ['seatrial', 'plan', '--model', 'tiny', '--cluster', 'local', '--gbs', '8', '--json']\n"
            "sys.exit(main())")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert said.returncode == 0, said.stderr


def test_every_built_in_launcher_has_an_answer_of_its_own_to_all_that_is_asked_of_one() -> None:
    questions = ("check", "submit", "poll", "cancel", "kill", "finished", "find", "end", "room_for", "close")
    for name in LAUNCHERS.builtin:
        kind = LAUNCHERS.get(name)
        assert kind.name == name
        assert [what for what in questions if getattr(kind, what) is getattr(Launcher, what)] == []
    with pytest.raises(BadInput, match="--allocation 2: is for --launcher slurm; local has none"):
        LAUNCHERS.get("local").allocation(nodes=2, time_limit_s=1.0, settings=None)
