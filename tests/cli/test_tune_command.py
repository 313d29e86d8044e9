"""`seatrial tune` at the command line, with a table in the machine's place: what it prints and how it ends."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

import sweeps

ROWS = Path(__file__).parents[2] / "examples" / "rows.csv"
LOG = ("tune", "--model", "bloom-181b", "--cluster", "jz-a100", "--oracle", ROWS, "--nodes-max", "48", "--leave-out",
       "bloom-prequel:475")


def test_the_log_is_searched_in_a_few_trials(seatrial):
    said = seatrial(*LOG)
    assert said.status == 0
    assert said.out.startswith("27 candidates from rows.csv on jz-a100\n")
    assert "best so far, odds of better" in said.out and ": settled." in said.out
    assert "Best: DP 8 TP 4 PP 12 MBS 2 GBS 2048 ZeRO 1, 110.5 s/it" in said.out
    assert "\x1b" not in said.out


def test_json_is_one_document_with_every_trial(seatrial):
    said = seatrial(*LOG, "--json", "--trials", "2")
    found = json.loads(said.out)
    assert said.status == 0 and found["ended"] == "trials" and not found["settled"]
    assert [one["number"] for one in found["trials"]] == [1, 2] and found["left"] == 25
    first = found["trials"][0]
    assert first["source"].startswith("bloom-prequel:") and first["forecast"]["measured"] is False
    assert found["best"]["run_id"] in {one["run_id"] for one in found["trials"]}
    assert len(found["expected"]) == 5 and 0 < found["odds_of_better"] < 1


def test_the_cheapest_is_called_so_where_another_is_the_fastest(seatrial, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("layers,hidden,heads,nodes,dp,tp,mbs,gbs,sec_per_it,status\n"
                     "24,2048,16,1,4,2,1,64,10,ok\n24,2048,16,2,8,2,1,64,6,ok\n")
    both = ("tune", "--cluster", "jz-a100", "--oracle", table, "--sure", "0.999999")
    said = seatrial(*both, "--by", "cost").out
    assert "Best by device-seconds per sample: nodes 1 DP 4 TP 2 PP 1 MBS 1, 10 s/it, 1.25 device-seconds per sample." in said
    assert "Fastest as measured, so in bold in a table: nodes 2 DP 8 TP 2 PP 1 MBS 1, 6 s/it, 93.75 ms per sample" in said
    said = seatrial(*both).out
    assert "2 of 2 candidates tried" in said and "Best: nodes 2" in said and "in bold" not in said


def test_the_trials_of_a_sweeps_file_are_searched_with_its_command(seatrial, tmp_path):
    file = sweeps.write(tmp_path / "s.toml", {"model": "tiny", "batch": {"gbs": 8}, "command": sweeps.stub("ok", scale="{mbs}"),
                                              "rules": ["mbs < 8"], "axes": {"mbs": [1, 2, 4, 8], "dp": [1]}})
    said = seatrial("tune", file, "--logbook", tmp_path / "book", "--trials", 3)
    assert said.out.startswith("3 candidates of s.toml on local, 1 left out by its rules"), said.out + said.err
    assert [line.split()[:2] for line in said.out.splitlines() if line.strip()[:1].isdigit()][1:4] == [
        ["1", "ok"], ["2", "ok"], ["3", "ok"]], said.out
    assert "Best: MBS 1 DP 1, 0.1001 s/it" in said.out and said.status == 0
    again = seatrial("tune", file, "--logbook", tmp_path / "book", "--trials", 3, "--resume")
    assert "3 trials are in the logbook already" in again.out and "Best: MBS 1 DP 1" in again.out
    assert seatrial("tune", file, "--tp", 2).status == 2


def test_what_lies_far_outside_the_forecasts_is_learned_from_and_not_taken_for_the_end(seatrial, tmp_path):
    """A hundred times as fast as forecast: the first measured would look unbeatable."""
    table = tmp_path / "rows.csv"
    rows = [f"24,2048,16,1,{dp},{tp},{mbs},64,{0.1 * (1 + mbs / 10) / (3 if tp == 4 else 1)},ok"
            for dp, tp in ((8, 1), (4, 2), (2, 4)) for mbs in (1, 2, 4)]
    table.write_text("\n".join(["layers,hidden,heads,nodes,dp,tp,mbs,gbs,sec_per_it,status", *rows]))
    said = seatrial("tune", "--cluster", "jz-a100", "--oracle", table)
    assert "far outside the forecasts (1/" in said.out and "learned anew" in said.out
    assert "Best: DP 2 TP 4" in said.out
    assert json.loads(seatrial("tune", "--cluster", "jz-a100", "--oracle", table, "--json").out)["relearned"] < 0.2


def test_nothing_that_runs_is_status_three(seatrial, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("layers,hidden,heads,dp,tp,mbs,gbs,status\n24,2048,16,4,2,1,64,oom\n24,2048,16,2,4,1,64,hang\n")
    said = seatrial("tune", "--cluster", "jz-a100", "--oracle", table)
    assert said.status == 3 and "No trial ran to its end" in said.out and "every candidate was tried" in said.out


@pytest.mark.parametrize(("given", "words"), [
    (("--cluster", "jz-a100", "--oracle", ROWS), "--model says which of them is searched"),
    (("--cluster", "jz-a100", "--oracle", ROWS, "--tp", "2"), "--tp with --oracle"),
    (("--cluster", "jz-a100", "--oracle", "nothing.csv", "--model", "tiny"), "nothing.csv"),
    (("--gbs", "16"), "--model must be given"),
    (("--model", "tiny"), "--gbs must be given"),
    (("--model", "tiny", "--gbs", "16", "--sure", "2"), "shares from 0 to 1"),
    (("--model", "tiny", "--gbs", "16", "--set", "measure.secnds=1"), "did you mean 'seconds'?"),
    (("--model", "tiny", "--gbs", "16", "--set", "repeats=3"), "repeats is for `seatrial sweep`"),
    (("--model", "tiny", "--gbs", "16", "--set", "command.per=node"), "a sweep's file may say more"),
    (("--cluster", "jz-a100", "--oracle", ROWS, "--model", "tiny", "--set", "measure.seconds=1"), "measures nothing"),
    (("--model", "tiny", "--gbs", "16", "--seconds", "-1"), "budget"),
    (("--model", "tiny", "--gbs", "16", "--launcher", "pjm"), "there is no pjsub"),
])
def test_what_cannot_be_is_one_line(seatrial, tmp_path, monkeypatch, given, words):
    monkeypatch.chdir(tmp_path)
    said = seatrial("tune", *given)
    assert said.status == 2 and words in said.err and len(said.err.strip().splitlines()) == 1


def test_no_layout_is_status_one_with_the_reason(seatrial, tmp_path):
    said = seatrial("tune", "--model", "bloom-181b", "--cluster", "jz-a100", "--nodes", "1", "--gbs", "8", "--logbook",
                    tmp_path / "book")
    assert said.status == 1 and "nothing fits" in said.err and not (tmp_path / "book").exists()
