"""What `seatrial run` says of a trial that ended, on one line for people."""
from __future__ import annotations

import json

import pytest

from seatrial.commands.run import report

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
    from seatrial.commands.run import asked_for

    trial, _ = asked_for(None, {"model": {"base": "tiny"}, "topology": {"dp": 2, "pp": 2, "mbs": 4}}, [])
    assert trial.batch.gbs == 2 * 2 * 2 * 4 and "batch 32" in capsys.readouterr().err
    assert asked_for(None, {"model": {"base": "tiny"}, "topology": {"pp": 2}}, ["batch.gbs=6"])[0].batch.gbs == 6
