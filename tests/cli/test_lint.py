"""`seatrial lint`: what it prints, its exit status, and what bad input gets."""
from __future__ import annotations

import csv
import json

import pytest

HEAD = """# 1.3B

- --num-layers 24
- --hidden-size 2048
- --num-attention-heads 32

### Sequence Length=1024 with activation checkpointing

"""
TABLE = """| Nodes | Size | DP | TP | PP | MBS | GBS | Mem | Sec/it | TFLOPs | Notes |
| ----: | ---: | -: | -: | -: | --: | --: | --: | -----: | -----: | ----: |
| 1 | 1.3B | 1 | 1 | 1 | 1 | 1024 | 28406.7 MiB | 11727.9 | 0.99 | 02-14 |
| 2 | 1.3B | 1 | 2 | 1 | 2 | 1024 | 16671.8 MiB | 4858.2 | 1.20 | 02-15 |
| 4 | 1.3B | {dp} | 4 | 1 | 2 | 1024 | 10480.7 MiB | 3231.4 | 0.90 | 02-15 |
"""
KEYS = ["file", "line", "code", "level", "message", "column", "printed", "proposed", "slip", "ground"]


@pytest.fixture
def notes(tmp_path):
    def write(dp: int = 1):
        path = tmp_path / f"notes-{dp}.md"
        path.write_text(HEAD + TABLE.format(dp=dp))
        return path

    return write


def test_notes_that_are_right_leave_with_status_0(seatrial, notes):
    said = seatrial("lint", notes())
    assert said.status == 0 and "0 errors, 0 warnings" in said.err


def test_an_error_is_one_line_with_the_evidence_and_status_1(seatrial, notes):
    path = notes(dp=2)
    said = seatrial("lint", path, "--level", "error")
    assert said.status == 1
    line = len(HEAD.splitlines()) + 5
    assert said.out.startswith(f"{path}:{line}: error world-size: DP 2 -> 1: 2 x 4 x 1 = 8 processes but 4 nodes; ")
    assert "the TFLOPs agree (0.9 printed, 0.8998 computed)" in said.out
    assert len(said.out.splitlines()) == 1


def test_json_is_one_list_with_the_file_as_it_was_given(seatrial, notes, monkeypatch):
    path = notes(dp=2)
    monkeypatch.chdir(path.parent)
    said = seatrial("lint", path.name, "--json")
    found = json.loads(said.out)
    assert said.status == 1 and said.err == ""
    assert all(list(finding) == KEYS for finding in found)
    wrong = [finding for finding in found if finding["level"] == "error"]
    told = [(f["file"], f["code"], f["column"], f["printed"], f["proposed"]) for f in wrong]
    assert told == [(path.name, "world-size", "DP", "2", "1")]


def test_the_corrected_rows_carry_the_proposal_and_the_reason(seatrial, notes, tmp_path):
    out = tmp_path / "corrected.csv"
    said = seatrial("lint", notes(dp=2), "--corrected", out)
    assert said.status == 1 and "1 of 3 rows changed" in said.err
    rows = list(csv.DictReader(out.open()))
    assert [row["dp"] for row in rows] == ["1", "1", "1"]
    assert [row["corrected"] for row in rows] == ["", "", "DP 2 -> 1 (world-size)"]


def test_a_row_copied_into_another_file_is_seen(seatrial, notes, tmp_path):
    copy = tmp_path / "copy.md"
    copy.write_text(notes().read_text())
    found = json.loads(seatrial("lint", notes(), copy, "--json").out)
    assert [(f["file"], f["code"]) for f in found if f["code"] == "repeat"] == [(str(copy), "repeat")] * 3


@pytest.mark.parametrize("content", [b"\x00\x01\x02\xff" * 400, None])
def test_what_cannot_be_read_is_one_line_and_status_2(seatrial, tmp_path, content):
    path = tmp_path / "notes.md"
    if content is not None:
        path.write_bytes(content)
    said = seatrial("lint", path, "--corrected", tmp_path / "out.csv")
    assert (said.status, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert not (tmp_path / "out.csv").exists()


def test_an_unknown_level_is_named(seatrial, notes):
    said = seatrial("lint", notes(), "--level", "eror")
    assert said.status == 2 and "error" in said.err


def test_the_input_is_never_overwritten(seatrial, notes):
    path = notes()
    before = path.read_text()
    assert seatrial("lint", path, "--corrected", path).status == 2
    assert path.read_text() == before


def test_a_corrected_table_keeps_every_setting_that_a_row_states(seatrial, tmp_path):
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("DP,TP,PP,VP,KV heads,Schedule,GBS,Sec/it\n8,4,2,2,8,interleaved,512,1.5\n4,4,2,2,8,interleaved,512,2.9\n")
    seatrial("lint", rows, "--corrected", out)
    lines = list(csv.DictReader(out.open()))
    assert [(line["vp"], line["kv_heads"], line["schedule"]) for line in lines] == [("2", "8", "interleaved")] * 2
    assert "optimizer" not in lines[0]
