"""`seatrial import` and `seatrial table` as a person meets them."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from seatrial.logbook import Logbook

NOTES = """# 7B on eight nodes

NLAYERS=32 / NHIDDEN=4096

| Nodes | Size | DP | TP | PP | MBS | GBS | Mem  | Sec/it | TFLOPs | Notes |
| ----: | ---: | -: | -: | -: | --: | --: | ---: | -----: | -----: | ----: |
|     8 |   7B |  8 |  8 |  1 |   1 | 512 | 40GB |   1.50 |  120.5 | 02-20 |
|     8 |   7B | 16 |  4 |  1 |   1 | 512 | OOM  |        |        | 02-20 |
|       |      |    |    |    |     |     |      |        |        |       |
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.md"
    path.write_text(NOTES)
    return path


def test_import_then_table(seatrial, notes, tmp_path):
    said = seatrial("import", notes, "--logbook", tmp_path / "runs")
    assert (said.status, said.err) == (0, "")
    assert said.out == f"2 records from 1 file in {tmp_path / 'runs'} (1 failed, 1 measured); 2 are new\n"
    said = seatrial("table", tmp_path / "runs")
    assert said.status == 0 and said.err == ""
    heading, _, first, second = [line for line in said.out.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in heading.split("|")[1:4]] == ["Nodes", "Size", "Layers"]
    assert "1.50" in first and "oom_device: OOM" in second


def test_importing_twice_adds_nothing(seatrial, notes, tmp_path):
    seatrial("import", notes, "--logbook", tmp_path / "runs")
    assert "0 are new" in seatrial("import", notes, "--logbook", tmp_path / "runs").out
    assert len(Logbook(tmp_path / "runs")) == 2


def test_import_as_json(seatrial, notes, tmp_path):
    said = seatrial("import", notes, "--logbook", tmp_path / "runs", "--json")
    document = json.loads(said.out)
    assert (document["records"], document["new"], document["states"]) == (2, 2, {"failed": 1, "measured": 1})
    assert document["files"] == [{"file": str(notes), "records": 2, "unknown_columns": [], "problems": []}]


def test_columns_that_no_field_takes_are_named_in_one_line(seatrial, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("DP,TP,GBS,Sec/it,Mood,Rack\n8,4,512,1.5,good,7\n4,4,512,2.5,,7\n")
    said = seatrial("import", rows, "--logbook", tmp_path / "runs")
    assert (said.status, said.err) == (0, f"{rows}: no field takes Mood, Rack: kept as text\n")
    document = json.loads(seatrial("import", rows, "--logbook", tmp_path / "runs", "--json").out)
    assert document["files"][0]["unknown_columns"] == ["Mood", "Rack"]


def test_what_cannot_be_read_is_a_finding_with_its_place(seatrial, notes, tmp_path):
    notes.write_text(NOTES.replace("|  8 |  8 |  1 |", "|  8 | ate |  1 |"))
    said = seatrial("import", notes, "--logbook", tmp_path / "runs")
    assert said.status == 1 and said.err == "notes.md:7: TP: 'ate' is not a number\n"
    document = json.loads(seatrial("import", notes, "--logbook", tmp_path / "runs", "--json").out)
    (problem,) = document["files"][0]["problems"]
    assert (problem["line"], problem["column"], problem["cell"]) == (7, "TP", "ate")


@pytest.mark.parametrize("bad", ["none.md", "empty.md", "binary.md", "prose.md", "."])
def test_one_bad_file_and_nothing_is_written(seatrial, notes, tmp_path, bad):
    (tmp_path / "empty.md").write_bytes(b"")
    (tmp_path / "binary.md").write_bytes(b"\0\1\2" * 100)
    (tmp_path / "prose.md").write_text("Nothing but words.\n")
    said = seatrial("import", notes, tmp_path / bad, "--logbook", tmp_path / "runs")
    assert said.status == 2 and said.out == "" and said.err.startswith("seatrial: ") and said.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_two_hundred_mebibytes_of_table_are_one_line(seatrial, notes, tmp_path):
    with notes.open("r+b") as file:
        file.seek(0, 2)
        file.write(b"| 8 | 7B | 8 | 8 | 1 | 1 | 512 | 40GB | 1.5 | 120 | |\n" * 2000)
        file.truncate(200 * 2**20)
    said = seatrial("import", notes, "--logbook", tmp_path / "runs")
    assert said.status == 2 and "200 MiB" in said.err and said.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("form", ["markdown", "csv", "json"])
def test_a_table_of_a_file_can_be_imported_again(seatrial, notes, tmp_path, form):
    first = seatrial("table", notes, "--format", form)
    again = tmp_path / f"again.{'md' if form == 'markdown' else form}"
    again.write_text(first.out)
    assert (first.status, first.err) == (0, "")
    assert seatrial("table", again, "--format", form).out == first.out
    assert seatrial("import", again, "--logbook", tmp_path / "runs").status == 0
    assert len(Logbook(tmp_path / "runs")) == 2


def test_the_source_of_each_row(seatrial, notes):
    said = seatrial("table", notes, "--source")
    assert "notes.md:7" in said.out and "notes.md:8" in said.out


def test_logbooks_and_files_together(seatrial, notes, tmp_path):
    seatrial("import", notes, "--logbook", tmp_path / "runs")
    document = json.loads(seatrial("table", tmp_path / "runs", notes, "--format", "json").out)
    assert len(document["records"]) == 4


def test_a_table_of_nothing(seatrial, tmp_path):
    assert seatrial("table", tmp_path / "nowhere").status == 2
    said = seatrial("table", tmp_path / "x", "--format", "yaml")
    assert said.status == 2 and "yaml" in said.err


def test_a_directory_that_is_no_logbook(seatrial, tmp_path):
    said = seatrial("table", tmp_path)
    assert said.status in (0, 2) and said.err.count("\n") == 1 and "|" not in said.out


def test_the_five_logs(seatrial, seeds_dir, tmp_path):
    said = seatrial("import", *sorted(seeds_dir.glob("*.txt")), "--logbook", tmp_path / "runs", "--json")
    document = json.loads(said.out)
    assert said.status == 0 and document["records"] == 190
    assert document["states"] == {"estimated": 7, "failed": 11, "measured": 159, "planned": 13}
    said = seatrial("table", tmp_path / "runs", "--format", "markdown")
    lines = [line for line in said.out.splitlines() if line.startswith("|")]
    rules = sum(set(line) <= set("|-: ") for line in lines)
    assert said.status == 0 and len(lines) - 2 * rules == 190


def test_more_records_than_fit_in_one_write(seatrial, notes, tmp_path, monkeypatch):
    monkeypatch.setattr("seatrial.commands.importing.BATCH", 3)
    row = NOTES.splitlines(keepends=True)[6]
    notes.write_text(NOTES + "".join(row.replace("1.50", f"{index}.50") for index in range(1, 8)))
    said = seatrial("import", notes, "--logbook", tmp_path / "runs")
    assert said.status == 0 and "9 records" in said.out and "9 are new" in said.out
    assert sorted(r["sec_per_it"] for r in Logbook(tmp_path / "runs").records() if "sec_per_it" in r) == [
        1.5,
        1.5,
        2.5,
        3.5,
        4.5,
        5.5,
        6.5,
        7.5,
    ]
    (tmp_path / "empty.md").write_bytes(b"")
    assert seatrial("import", notes, tmp_path / "empty.md", "--logbook", tmp_path / "other").status == 2
    assert not (tmp_path / "other").exists(), "a file that came after a full batch was bad, so nothing is written"


def test_a_logbook_that_cannot_be_made(seatrial, notes, tmp_path):
    said = seatrial("import", notes, "--logbook", notes / "runs")
    assert said.status in (2, 3) and said.err.count("\n") == 1 and "Traceback" not in said.err


def test_own_trials_are_short_unless_asked_for_whole(seatrial, tmp_path):
    from seatrial.notes.read import import_file

    with Logbook(tmp_path / "runs", create=True) as book:
        book.append({"state": "measured", "size_label": "tiny", "family": "gpt2", "dp": 2, "sec_per_it": 0.123456789})
    short, wide = seatrial("table", tmp_path / "runs"), seatrial("table", tmp_path / "runs", "--wide")
    assert "0.1235" in short.out and "Family" not in short.out and "Every column: --wide" in short.out
    assert "0.123456789" in wide.out and "Family" in wide.out
    (tmp_path / "again.md").write_text(wide.out)
    assert import_file(tmp_path / "again.md").records[0].sec_per_it == 0.123456789
    assert seatrial("table", tmp_path / "runs", "--columns", "dp, Family").out.splitlines()[0] == "|  DP | Family |"
    said = seatrial("table", tmp_path / "runs", "--columns", "dp", "--wide")
    assert said.status == 2 and "leave out --wide" in said.err


def test_a_log_of_ones_own_format_by_run_and_by_step(seatrial, tmp_path):
    (tmp_path / "mine.toml").write_text("[[line]]\npattern = 'it (?P<iteration>[0-9]+): (?P<sec_per_it>[0-9.]+)'\n")
    (tmp_path / "mine.log").write_text("it 1: 1.5\nit 2: 1.25\nit 3: 1.5\n")
    asked = ("import", tmp_path / "mine.log", "--format", tmp_path / "mine.toml", "--logbook")
    assert seatrial(*asked, tmp_path / "runs").out.startswith("1 records from 1 file")
    assert seatrial(*asked, tmp_path / "steps", "--per-iteration").out.startswith("3 records from 1 file")
    said = seatrial("import", tmp_path / "mine.log", "--logbook", tmp_path / "none")
    assert said.status != 0 and "--format FILE.toml" in said.err


def test_of_several_logs_those_that_say_nothing_of_a_run_are_named_and_the_others_read(seatrial, notes, tmp_path):
    (tmp_path / "rank1.log").write_text("")
    (tmp_path / "rank2.log").write_text("UserWarning: no GPU\n")
    ranks = [tmp_path / "rank1.log", tmp_path / "rank2.log"]
    said = seatrial("import", ranks[0], notes, ranks[1], "--logbook", tmp_path / "runs")
    assert said.status == 1 and said.out.startswith("2 records from 3 files")
    assert "rank1.log:1: empty" in said.err and "rank2.log:1: no table of runs" in said.err
    assert seatrial("lint", notes, ranks[0]).status == 0
    said = seatrial("import", *ranks, "--logbook", tmp_path / "none")
    assert said.status == 2 and "rank1.log: empty" in said.err and not (tmp_path / "none").exists()
