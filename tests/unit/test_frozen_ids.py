"""Trials that say nothing new keep the run id they had: a logbook written before goes on with `--resume`."""
from __future__ import annotations

from freeze import frozen, run_ids

FROZEN = frozen("run_ids.json")["trials"]


def test_run_ids_are_what_they_were(tmp_path):
    found = run_ids([entry["trial"] for entry in FROZEN], tmp_path)
    assert len(found) == len(set(found)) >= 50
    assert {n: (e["trial"], key) for n, (e, key) in enumerate(zip(FROZEN, found)) if key != e["run_id"]} == {}


def test_how_long_and_how_fast_a_run_learns_is_no_part_of_its_id(tmp_path):
    found = run_ids([entry["trial"] for entry in FROZEN], tmp_path, steps=7, lr=1e-3)
    assert found == [entry["run_id"] for entry in FROZEN]
