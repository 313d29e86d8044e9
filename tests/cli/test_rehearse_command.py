"""`seatrial rehearse` as it is called: the document, the screen, the logbook, and what cannot be."""
from __future__ import annotations

import json

import pytest

from seatrial.cli import main
from seatrial.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_OTHER_OUTCOME
from seatrial.logbook import Logbook
from seatrial.rehearse import show

TINY = ["rehearse", "--model", "tiny", "--set", "model.layers=2", "--mbs", "1", "--gbs", "4", "--device", "cpu",
        "--repeats", "1", "--set", "training.threads=1"]


def test_one_object_says_memory_by_part_actions_iteration_and_forecast(capsys):
    assert main([*TINY, "--dp", "2", "--pp", "2", "--cluster", "jz-a100", "--all-stages", "--json"]) == EXIT_GOOD
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] == "rehearsed" and said["world"] == 4 and said["microbatches"] == 2
    first, last = said["ranks"]
    assert (first["has_embedding"], first["has_head"], last["has_embedding"], last["has_head"]) == (True, False, False, True)
    assert (first["in_flight"], last["in_flight"]) == (2, 1)
    for one in said["ranks"]:
        assert sum(one["memory"]["at_peak_bytes"].values()) == one["memory"]["peak_bytes"] > 0
        assert one["actions"]["forward"][0]["compute_s"] > 0 and one["forecast"]["mem_gib"] > 0
    assert last["memory"]["parts_bytes"]["logits"] > 0 == first["memory"]["parts_bytes"]["logits"]
    iteration = said["iteration"]
    assert iteration["charged"] and sum(iteration["parts_s"].values()) == pytest.approx(iteration["sec_per_it"])
    assert said["forecast"]["sec_per_it"] > 0


def test_memory_alone_is_counted_and_kept_as_rehearsed(tmp_path, capsys):
    book = tmp_path / "book"
    asked = [*TINY, "--pp", "2", "--stage", "last", "--memory-only", "--logbook", str(book)]
    assert main(asked) == EXIT_GOOD
    out = capsys.readouterr().out
    assert "rank 1: pipeline rank 1 of 2" in out and "tensors without memory" in out and "iteration" not in out
    with Logbook(book) as kept:
        (record,) = kept.records()
    assert record["state"] == "estimated" and record["measurement"]["kind"] == "rehearsed" and "sec_per_it" not in record


@pytest.mark.parametrize(("asked", "words"), [
    (["--rank", "9", "--pp", "2"], "--rank 9: DP 1 x TP 1 x PP 2 = 2 processes"),
    (["--rank", "0", "--all-stages"], "give one"),
    (["--tp", "3"], "TP 3"),
    (["--precision", "fp8"], "precision"),
])  # fmt: skip
def test_what_cannot_be_is_one_line(asked, words, capsys):
    assert main([*TINY, *asked]) == EXIT_BAD_INPUT
    said = capsys.readouterr()
    assert said.out == "" and words in said.err and said.err.count("\n") == 1


def test_a_device_without_room_is_one_line_and_nothing_is_written(tmp_path, capsys, monkeypatch):
    from seatrial.rehearse import rank

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(rank, "StandIn", full)
    book = tmp_path / "book"
    assert main([*TINY, "--logbook", str(book), "--json"]) == EXIT_OTHER_OUTCOME
    said = capsys.readouterr()
    assert said.out == "" and "--memory-only" in said.err.splitlines()[-1] and not book.exists()


def test_rank_of_an_engine_that_is_not_ours_says_its_collectives_and_is_kept(tmp_path, capsys):
    book = tmp_path / "book"
    asked = ["rehearse", "--engine", "fsdp2", "--model", "tiny", "--set", "model.layers=2", "--dp", "4", "--zero", "3", "--gbs",
             "4", "--mbs", "1", "--cluster", "jz-a100", "--memory-only", "--logbook", str(book), "--json"]
    assert main(asked) == EXIT_GOOD
    said = json.loads(capsys.readouterr().out)
    (one,) = said["ranks"]
    assert said["engine"] == "fsdp2" and one["memory"]["counted_bytes"] == {} and one["memory"]["over_time_bytes"]
    assert {c["name"] for c in one["collectives"]} == {"all_gather", "reduce_scatter", "all_reduce"}
    with Logbook(book) as kept:
        (record,) = kept.records()
    assert record["engine"] == "fsdp2" and record["measurement"]["kind"] == "rehearsed"
    show.print_rehearsal(said)
    assert "collectives of a step:" in capsys.readouterr().out
