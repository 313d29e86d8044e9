"""What `seatrial run` says of a trial that ended, on one line for people."""
from __future__ import annotations

import json

import pytest

from seatrial import trialfile
from seatrial.cli import main
from seatrial.commands.run import asked_for, report
from seatrial.engine import runfile
from seatrial.engine.core.optim import learning_rate
from seatrial.recipe import Recipe

FOUND = {"status": "ok", "losses": [5.2], "sec_per_it": 0.3, "tflops": 100.0, "formula": "sc21", "mem_gib": 40.0,
         "breakdown": {}, "events": "out/events.jsonl", "tokens_per_s_per_process": 9876.5, "mfu": None}  # fmt: skip


@pytest.mark.parametrize(("mfu", "words"), [(None, ""), (0.4123, "41.2% MFU, ")])
def test_tokens_and_mfu_stand_beside_the_tflops(capsys, mfu, words):
    assert report({**FOUND, "mfu": mfu}, as_json=False) == 0
    said = f"ok: loss 5.2000, 0.300 s/it, 100.000 TFLOPs per process (sc21), {words}9,876 tokens/s per device, 40.00 GiB on the"
    assert capsys.readouterr().out.startswith(said)


def test_as_json_it_is_one_object(capsys):
    assert report(FOUND, as_json=True) == 0 and json.loads(capsys.readouterr().out) == FOUND


def test_without_a_batch_each_stage_of_each_replica_has_two_micro_batches(capsys):
    trial, _ = asked_for(None, {"model": {"base": "tiny"}, "topology": {"dp": 2, "pp": 2, "mbs": 4}}, [])
    assert trial.batch.gbs == 2 * 2 * 2 * 4 and "batch 32" in capsys.readouterr().err
    assert asked_for(None, {"model": {"base": "tiny"}, "topology": {"pp": 2}}, ["batch.gbs=6"])[0].batch.gbs == 6


def test_notes_of_the_record_are_said(capsys):
    assert report({**FOUND, "notes": "the loss rose"}, as_json=False) == 0 and "\n  the loss rose\n" in capsys.readouterr().out


TRAINING = '[model]\nbase = "tiny"\n[batch]\ngbs = 4\n[recipe]\nsteps = 400\n'


@pytest.mark.parametrize(("more", "options", "began", "warmup"), [
    ("", [], None, 40),
    ("warmup_steps = 0\n", [], None, 0),
    ("", ["--set", "recipe.warmup_steps=7"], None, 7),
    ("decay_steps = 40\n", [], None, 10),
    ("", ["--resume"], {}, 0),
    ("", ["--resume"], {"warmup_steps": 25}, 25),
    ("", ["--resume"], None, 40),
])  # fmt: skip
def test_training_warms_up_unless_it_began_without(tmp_path, monkeypatch, more, options, began, warmup):
    """`began`: the recipe of the run file that is there already; files from before this default have no such key."""
    asked = []

    def run_now(trial, recipe, **_):
        asked.append(recipe)
        return FOUND

    monkeypatch.setattr("seatrial.launch.trial.run_now", run_now)
    (tmp_path / "run.toml").write_text(TRAINING + more)
    if began is not None:
        trial, _ = trialfile.load(tmp_path / "run.toml")
        runfile.write(runfile.RunFile(trial=trial, recipe=Recipe(**began)), tmp_path / "out" / "run.json")
    assert main(["train", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out"), *options]) == 0
    assert asked[0].warmup_steps == warmup


def test_a_trial_that_is_measured_has_no_warm_up(tmp_path):
    (tmp_path / "run.toml").write_text(TRAINING)
    _, recipe = asked_for(tmp_path / "run.toml", {}, [])
    assert recipe.warmup_steps is None and learning_rate(recipe, 1) == pytest.approx(recipe.lr, rel=1e-4)
