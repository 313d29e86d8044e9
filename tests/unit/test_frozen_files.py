"""Files that an earlier seatrial wrote are read with all that is in them: logbook, tables, run folders, TOML, machine."""
from __future__ import annotations

import csv
import io
import json
import shutil

import pytest

from freeze import DATA, EXPORTS, READ_BACK, RUNS, cli, document, frozen, listed, records_in, with_machine, words_of

RECORDS = frozen("records.json")
FILES = frozen("files.json")


def measured_in(run_dir):
    """The figures that a run folder's events come to."""
    from seatrial.engine.runfile import read
    from seatrial.engine.watch.events import read_events
    from seatrial.measurement import measure

    run = read(run_dir / "run.json")
    found = measure(read_events(run_dir / "events.jsonl"), run.trial, run.recipe)
    return {"sec_per_it": found.sec_per_it, "loss": found.loss, "iterations": found.iterations, "breakdown": found.breakdown,
            "mem_gib": found.memory["mem_gib"]}


def missing(now, then):
    """What is no longer there, or no longer the same; more keys than there were are fine, and more that the text has told."""
    if isinstance(then, dict) and isinstance(now, dict):
        if {*then.get("inferred", ())} <= {*(now.get("inferred") or ())}:
            then = {key: value for key, value in then.items() if key != "inferred"}
        return {f"{key}{'.' + place if place else ''}": found for key, value in then.items()
                for place, found in missing(now.get(key), value).items()}
    if isinstance(then, list) and isinstance(now, list) and len(now) == len(then):
        return {f"{n}.{place}": found for n, (a, b) in enumerate(zip(now, then)) for place, found in missing(a, b).items()}
    return {} if now == then else {"": (now, then)}


def segments():
    lines = [json.loads(line) for path in sorted((DATA / "logbook" / "segments").glob("*.jsonl"))
             for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["record_id"]: {key: value for key, value in line.items() if key != "schema"} for line in lines}


@pytest.fixture(scope="module")
def logbook(tmp_path_factory):
    """A copy: reading may leave an index behind."""
    return shutil.copytree(DATA / "logbook", tmp_path_factory.mktemp("book") / "logbook")


def test_every_line_of_a_logbook_is_read_whole(logbook):
    then = segments()
    now = {record["record_id"]: record for record in records_in(logbook)}
    assert len(then) == 17 and now.keys() == then.keys()
    assert {status for line in then.values() if (status := line.get("outcome", {}).get("status"))} >= {
        "ok", "oom_host", "oom_device", "hang", "crash", "nan", "invalid"}  # fmt: skip
    assert missing(now, then) == {}


@pytest.mark.parametrize("name", READ_BACK)
def test_tables_are_read_as_they_were(name):
    assert missing(records_in(DATA / name), RECORDS[name]) == {}


def test_a_logbook_is_exported_with_the_columns_and_cells_that_it_had(logbook):
    def rows(text):
        return list(csv.DictReader(io.StringIO(text)))

    now = rows(cli("table", logbook, *EXPORTS["table.csv"]).out)
    assert missing(now, rows((DATA / "tables" / "table.csv").read_text(encoding="utf-8"))) == {}
    now = json.loads(cli("table", logbook, *EXPORTS["table.json"]).out)
    assert missing(now, json.loads((DATA / "tables" / "table.json").read_text(encoding="utf-8"))) == {}


@pytest.mark.parametrize("name", RUNS)
def test_the_record_of_a_run_folder_is_read_whole(tmp_path, name):
    then = json.loads((DATA / "runs" / name / "record.json").read_text(encoding="utf-8"))
    (tmp_path / "records.json").write_text(json.dumps({"records": [then]}), encoding="utf-8")
    assert missing(records_in(tmp_path / "records.json"), [then]) == {}


@pytest.mark.parametrize("name", RUNS)
def test_the_events_of_a_run_folder_come_to_the_figures_of_its_record(name):
    folder = DATA / "runs" / name
    then = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    now = measured_in(folder)
    assert missing(list(now["iterations"]), then["iterations"]) == {} and len(now["iterations"]) == 3
    assert now["breakdown"] == then["breakdown"] and now["sec_per_it"] == pytest.approx(then["sec_per_it"], rel=1e-4)
    assert now["loss"] == pytest.approx(then["loss"], rel=1e-4)
    assert now["mem_gib"] == pytest.approx(then["mem_value"], rel=1e-4)


def test_a_sweep_goes_on_where_its_logbook_ends(logbook):
    """Every trial is there under the id that it would be given now, so nothing is run."""
    before = {path.name for path in (logbook / "segments").iterdir()}
    found = document("sweep", DATA / "outcomes.toml", "--logbook", logbook, "--resume", "--json")
    assert {row["knobs"]["case"]: row["status"] for row in found["trials"] if row["knobs"]} == {
        "good": "ok", "llama": "ok", "over the cap": "oom_host", "stopped": "hang", "raises": "crash", "nan": "nan",
        "impossible": "invalid"}  # fmt: skip
    assert {path.name for path in (logbook / "segments").iterdir()} == before


def test_a_trial_file_means_what_it_meant():
    now = words_of(DATA / "trial.toml")
    now |= {path.replace("execution.", "training."): value for path, value in now.items()}  # where these keys stood
    assert missing(now, FILES["trial.toml"]) == {}


def test_a_sweep_file_lists_the_trials_that_it_listed():
    assert missing(listed(DATA / "sweep.toml"), FILES["sweep.toml"]) == {}


def test_a_probed_machine_is_planned_on_as_it_was():
    now = with_machine(DATA / "machine.json")
    assert now["not_measured"] == FILES["machine.json"]["not_measured"]
    for a, b in zip(now["candidates"], FILES["machine.json"]["candidates"], strict=True):
        assert a.pop("parts_s") == pytest.approx(b["parts_s"], rel=1e-9)
        for key in b.keys() - {"parts_s"}:
            assert a[key] == (pytest.approx(b[key], rel=1e-9) if isinstance(b[key], float) else b[key]), key
