"""What cannot run is refused before any rank starts, with what would work."""
from __future__ import annotations

from dataclasses import replace

import pytest

from seatrial.errors import BadInput, Infeasible
from seatrial.launch import preflight
from seatrial.spec import Batch, Execution, Model, Topology, Trial
from seatrial.training import Training

MODEL = Model(layers=4, hidden=32, heads=4, vocab=101, seq=16)


def trial(**topology: object) -> Trial:
    return Trial(model=MODEL, batch=Batch(gbs=8), topology=Topology(**topology))


def test_more_processes_than_gpus_are_refused_but_cores_are_shared(monkeypatch):
    monkeypatch.setattr(preflight, "gpus", lambda: 1)
    with pytest.raises(Infeasible, match="= 4 processes, but this machine has 1 CUDA device: use a topology of 1"):
        preflight.check(trial(dp=4), Training())
    preflight.check(replace(trial(dp=4), execution=Execution(device="cpu")), Training())
    preflight.check(trial(), Training())
    monkeypatch.setattr(preflight, "gpus", lambda: 0)
    preflight.check(trial(dp=8), Training())
    with pytest.raises(Infeasible, match="no CUDA device"):
        preflight.check(replace(trial(), execution=Execution(device="cuda")), Training())


@pytest.mark.parametrize(("training", "words"), [
    ({"resume": True}, "resume needs training.checkpoint_dir"),
    ({"save_every": 5}, "save_every needs training.checkpoint_dir"),
    ({"resume": True, "checkpoint_dir": "/nowhere/at/all"}, "no such folder"),
    ({"data": "/nowhere/corpus"}, "no such file"),
])
def test_what_is_named_must_be_there(training, words):
    with pytest.raises(BadInput, match=words):
        preflight.check(trial(), Training(**training))


def test_an_empty_folder_is_nothing_to_resume_from_and_a_fine_place_to_start(tmp_path):
    with pytest.raises(BadInput, match="no whole checkpoint"):
        preflight.check(trial(), Training(resume=True, checkpoint_dir=str(tmp_path)))
    assert preflight.check(trial(), Training(checkpoint_dir=str(tmp_path))) is None


@pytest.mark.parametrize(("asked", "words"), [
    ({"dp": 3}, "not a multiple of DP 3"), ({"tp": 3}, "TP 3"), ({"pp": 8}, "4 at most"),
    ({"precision": "fp8"}, "fp32, bf16, fp16"), ({"tp": 4, "sequence_parallel": True, "mbs": 3}, "MBS 3"),
])
def test_a_layout_that_does_not_fit_says_what_would(asked, words):
    with pytest.raises(Infeasible, match=words):
        preflight.check(trial(**asked), Training())
