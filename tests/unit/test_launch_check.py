"""What cannot run is refused before any rank starts, with what would work; and only by whom it concerns."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial import presets
from seatrial.engines.ours import Ours
from seatrial.errors import BadInput, Infeasible
from seatrial.launch import files, local
from seatrial.launch.base import Launcher
from seatrial.launch.batch import Batch
from seatrial.launch.local import Local
from seatrial.launch.pjm import Pjm
from seatrial.launch.slurm import Slurm
from seatrial.launch.trial import prepare
from seatrial.recipe import Recipe
from seatrial.spec import Batch as BatchSize
from seatrial.spec import Environment, Execution, Model, Topology, Trial

MODEL = Model(layers=4, hidden=32, heads=4, vocab=101, seq=16)
ANSWERS = {"slurm": ("sbatch", "echo 12"), "pjm": ("pjsub", "echo '[INFO] PJM 0000 pjsub Job 12 submitted.'")}


def trial(*, device: str = "auto", **topology: object) -> Trial:
    return Trial(model=MODEL, batch=BatchSize(gbs=8), topology=Topology(**topology), execution=Execution(device=device))


@pytest.fixture
def with_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda count: monkeypatch.setattr(local, "gpus", lambda: count)


def test_more_processes_than_gpus_are_refused_here_but_cores_are_shared(tmp_path: Path, with_gpus) -> None:
    with_gpus(1)
    with pytest.raises(Infeasible, match="= 4 processes, but this machine has 1 CUDA device: use a topology of 1"):
        prepare(trial(dp=4), Recipe(), Local(), run_dir=tmp_path / "a")
    prepare(trial(dp=4, device="cpu"), Recipe(), Local(), run_dir=tmp_path / "b")
    prepare(trial(), Recipe(), Local(), run_dir=tmp_path / "c")
    with_gpus(0)
    prepare(trial(dp=8), Recipe(), Local(), run_dir=tmp_path / "d")
    with pytest.raises(Infeasible, match="no CUDA device"):
        prepare(trial(device="cuda"), Recipe(), Local(), run_dir=tmp_path / "e")
    with pytest.raises(Infeasible, match="fp8: needs a GPU.*; here the engine has fp32, bf16, fp16"):
        prepare(trial(precision="fp8"), Recipe(), Local(), run_dir=tmp_path / "e")
    assert not (tmp_path / "a").exists() and not (tmp_path / "e").exists(), "nothing is written of what cannot run"


LARGE = Trial(
    model=replace(presets.model("gpt-30b"), family="gpt2"), batch=BatchSize(gbs=384),
    topology=Topology(dp=16, tp=4, pp=6, precision="fp8", zero=1), cluster=presets.cluster("dgx-h100", nodes=48),
    environment=Environment(variables={"LD_PRELOAD": "/only/on/the/nodes.so"}))  # fmt: skip


@pytest.mark.parametrize("gpus", [0, 1, 4])
@pytest.mark.parametrize("launcher", [Slurm(), Pjm()], ids=lambda launcher: launcher.name)
def test_from_a_laptop_or_a_login_node_any_job_can_be_submitted(launcher: Batch, gpus: int, with_gpus, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(gpus)
    program, answer = ANSWERS[launcher.name]
    (tmp_path / program).write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    there = Recipe(data="/only/on/the/nodes/corpus", checkpoint_dir="/only/on/the/nodes/saved", resume=True)
    for device, recipe in (("auto", Recipe()), ("cuda", Recipe()), ("cuda", there)):
        job = prepare(replace(LARGE, execution=Execution(device=device)), recipe, launcher, run_dir=tmp_path / "run")
        assert (job.world, job.nodes, job.device) == (384, 48, device)
        assert launcher.submit(job).job_id == "12" and (tmp_path / "run" / files.JOB).exists()
    with pytest.raises(BadInput, match="384 processes at 8 a node are 48 nodes, and this machine is one"):
        prepare(LARGE, Recipe(), Local(), run_dir=tmp_path / "here")


@pytest.mark.parametrize("launcher", [Local(), Slurm(), Pjm()], ids=lambda launcher: launcher.name)
@pytest.mark.parametrize(("asked", "recipe", "words"), [
    ({"dp": 3}, {}, "not a multiple of DP 3"), ({"tp": 3}, {}, "TP 3"), ({"pp": 8}, {}, "4 at most"),
    ({"tp": 4, "sequence_parallel": True, "mbs": 3}, {}, "MBS 3"),
    ({"precision": "fp8", "device": "cpu"}, {}, "execution.device is cpu; a CPU has fp32, bf16, fp16"),
    ({"precision": "fp8", "tp": 4}, {}, "need multiples of 16, query, key, value / TP is 24"),
    ({}, {"resume": True}, "resume needs recipe.checkpoint_dir"),
    ({}, {"save_every": 5}, "save_every needs recipe.checkpoint_dir"),
])  # fmt: skip
def test_what_can_run_nowhere_is_refused_by_every_launcher(launcher: Launcher, asked: dict, recipe: dict, words: str,
                                                          tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        prepare(trial(**asked), Recipe(**recipe), launcher, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("recipe", "words"), [
    ({"resume": True, "checkpoint_dir": "/nowhere/at/all"}, "no such folder"), ({"data": "/nowhere/corpus"}, "no such file"),
])  # fmt: skip
def test_what_is_named_must_be_there_where_it_is_needed(recipe: dict, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        Ours().check(trial(), Recipe(**recipe), here=True)
    Ours().check(trial(), Recipe(**recipe), here=False)


def test_files_that_are_here_are_read_before_a_job_waits_for_hours(tmp_path: Path) -> None:
    (tmp_path / "corpus.idx").write_bytes(b"no index")
    (tmp_path / "corpus.bin").write_bytes(b"")
    with pytest.raises(BadInput, match="corpus"):
        Ours().check(trial(), Recipe(data=str(tmp_path / "corpus")), here=False)


def test_an_empty_folder_is_nothing_to_resume_from_and_a_fine_place_to_start(tmp_path: Path) -> None:
    for here in (True, False):
        with pytest.raises(BadInput, match="no whole checkpoint"):
            Ours().check(trial(), Recipe(resume=True, checkpoint_dir=str(tmp_path)), here=here)
        Ours().check(trial(), Recipe(checkpoint_dir=str(tmp_path)), here=here)


def test_the_nodes_of_a_batch_system_need_the_package_and_pytorch_alone() -> None:
    code = ("import sys; before = set(sys.modules); import seatrial.launch.agent\n"
            "print(sorted({n.partition('.')[0] for n in set(sys.modules) - before} - sys.stdlib_module_names))")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['seatrial']"


def test_a_batch_systems_options_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    asked = replace(trial(), environment=Environment(scheduler={"wrap": "x"}))
    with pytest.raises(BadInput, match="scheduler.wrap: is set by seatrial itself"):
        prepare(asked, Recipe(), Slurm(), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
