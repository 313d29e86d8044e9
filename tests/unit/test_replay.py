"""A search of the past told again: the question is found in the rows, and every row has its verdict."""
from __future__ import annotations

import sys

import pytest

from seatrial.errors import BadInput
from seatrial.tune import replay


@pytest.fixture(scope="module")
def bloom():
    return replay.tell("bloom-prequel")


def test_the_question_of_the_a100_log_is_one_model_on_48_nodes(bloom):
    assert bloom["model"] == {"layers": 72, "hidden": 14336, "heads": 64, "seq": 2048}
    assert bloom["nodes"] == [48] and bloom["devices"] == [384] and bloom["by"] == "time"
    assert (bloom["rows"], bloom["rows_in_log"], bloom["topologies"]) == (36, 110, 27)
    assert bloom["best"]["row"] == "bloom-prequel:474"
    assert [one["row"] for one in bloom["doubted"]] == ["bloom-prequel:475"]


def test_the_planner_learns_from_stage_to_stage(bloom):
    cold, five, all_ = bloom["stages"]
    assert (cold["learned_rows"], five["learned_rows"], all_["learned_rows"]) == (0, 5, 30)
    assert (cold["forecast_rows"], five["forecast_rows"], all_["forecast_rows"]) == (30, 25, 30)
    assert all_["forecast_error_percent"] < cold["forecast_error_percent"] < 10
    assert len(cold["out_of_memory"]) == 3 and cold["rank_of_best"] <= 5
    for stage in bloom["stages"]:
        first = stage["top"][0]
        assert first["sec_lo"] < first["sec_per_it"] < first["sec_hi"]
    width = [s["top"][0]["sec_hi"] / s["top"][0]["sec_lo"] for s in bloom["stages"]]
    assert width[0] > width[1] > width[2]


def test_every_row_was_asked_for_or_has_a_reason_not_to_be(bloom):
    asked, left = bloom["tune"]["asked"], [v["row"] for v in bloom["rows_left_out"]]
    assert not set(asked) & set(left) and len(set(asked)) + len(left) == bloom["rows"]
    reasons = {v["row"].rpartition(":")[2]: v["reason"] for v in bloom["rows_left_out"]}
    assert reasons["483"] == "rule" and reasons["466"] == reasons["479"] == "memory"
    assert reasons["340"] == "copy" and reasons["357"] == "repeat" and reasons["464"] == "slower"
    assert bloom["tune"]["settled"] and bloom["tune"]["best_s"] == 110.48


def test_what_is_saved_adds_up(bloom):
    saved = bloom["saved"]
    spent = sum(2 * one["sec_per_it"] for one in bloom["tune"]["trials"] if one["sec_per_it"])
    assert saved["of_seconds"] - saved["seconds"] == pytest.approx(spent)
    assert saved["of_device_hours"] == pytest.approx(saved["of_seconds"] * 384 / 3600)
    assert saved["rows"] == len(bloom["rows_left_out"]) and 0 < saved["device_hours"] < saved["of_device_hours"]


def test_a_log_that_varies_nodes_is_asked_for_device_time():
    story = replay.tell("tcmalloc")
    assert story["by"] == "cost" and story["nodes"] == [1, 2, 4, 8, 16, 32, 64] and story["topologies"] == 7
    least = min(story["tune"]["trials"], key=lambda one: one["sec_per_it"] or 1e9)
    assert story["best"]["sec_per_it"] > least["sec_per_it"], "the most nodes are the fastest, not the cheapest"


@pytest.mark.parametrize("name", ["fugaku-1.3b", "fugaku-sweep"])
def test_a_log_without_a_search_says_so(name):
    with pytest.raises(BadInput, match=f"{name}: there is no search to replay: that takes 4 topologies"):
        replay.tell(name)


def test_a_table_of_ones_own_is_told_too(tmp_path):
    lines = ["layers,hidden,heads,nodes,dp,tp,pp,mbs,gbs,zero_stage,sec_per_it,status"]
    lines += [f"24,2048,16,1,{8 // tp},{tp},1,{mbs},64,1,{sec},{'ok' if sec else 'oom'}"
              for tp, mbs, sec in ((1, 1, 1.9), (2, 1, 2.2), (4, 1, 2.9), (8, 1, 4.4), (1, 8, ""))]
    table = tmp_path / "mine.csv"
    table.write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput, match="--cluster must be given: its rows name no machine"):
        replay.tell(str(table))
    story = replay.tell(str(table), cluster="jz-a100")
    assert story["log"] == "mine.csv" and story["topologies"] == 5 and story["best"]["sec_per_it"] == 1.9
    assert [stage["each_from_others"] for stage in story["stages"]] == [False, True], "four rows have no first five"
    assert "Before any row" in replay.text(story)


def test_its_story_fits_a_terminal_of_eighty_columns(bloom, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    lines = replay.text(bloom).split("\n")
    assert max(map(len, lines)) <= 80
    assert any("oom_device" in line and "18 %" in line for line in lines), "a row of a table stays on one line"


def test_text_and_markdown_tell_the_same_story(bloom):
    plain, marked = replay.text(bloom), replay.markdown(bloom)
    assert all(len(line) <= replay.WIDTH for line in plain.splitlines())
    for words in ("Before any row", "After the first 5 rows of the log", "After all 30 rows", "from nothing"):
        assert words in plain and f"## {words}" in marked or words in marked
    assert "| --- |" in marked and "| --- |" not in plain
    saved = next(line for line in marked.splitlines() if line.startswith("Saved: "))
    assert saved in plain
