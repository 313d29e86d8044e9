"""What was an option, a key of a JSON document, a heading, a `--set` path, an axis or a rule's name still is; more may be."""
from __future__ import annotations

import json

import pytest

import freeze_interface as interface
from freeze import DATA, cli, frozen, records_in

FROZEN = frozen("interface.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("interface")


@pytest.fixture(scope="module")
def documents(folder):
    return interface.documents(folder)


@pytest.fixture(scope="module")
def trained(folder):
    return interface.trained(folder)


def gone(now, then):
    return {key: lost for key, values in then.items() if (lost := sorted(set(values) - set(now.get(key, ()))))}


def test_every_option_is_still_accepted():
    assert gone(interface.options(), FROZEN["options"]) == {}


@pytest.mark.parametrize("line", FROZEN["documents"])
def test_documents_have_the_keys_that_they_had(documents, line):
    assert gone(documents, {line: FROZEN["documents"][line]}) == {}


def test_a_run_says_what_it_said(trained):
    kinds = {key.rpartition(" ")[2] for key in FROZEN["trained"] if ": event " in key}
    assert kinds == {"start", "iteration", "checkpoint", "memory", "validation", "end", "failure"}
    assert gone(trained, FROZEN["trained"]) == {}


def test_headings_stand_for_the_fields_that_they_stood_for():
    known = {text: entry["means"] for entry in FROZEN["headings"] for text in entry["headings"]}
    assert len(known) > 400
    assert {text: (now, means) for text, means in known.items() if (now := interface.heading(text)) != means} == {}
    assert FROZEN["own_headings"].items() <= interface.own_headings().items()


def test_names_of_columns_forecast_what_they_did(folder):
    assert [entry["cells"] for entry in FROZEN["cells"]] == interface.ROW_CELLS
    pairs = zip(FROZEN["cells"], interface.forecast_cells(folder), strict=True)
    assert [(entry, now) for entry, now in pairs if now != entry["forecast"]] == []


def test_every_path_can_still_be_set():
    assert FROZEN["set"] == interface.SET and FROZEN["training"] == interface.RECIPE
    said = cli("sweep", DATA / "outcomes.toml", "--set", "axes={}", "--set", "model.base=tiny", *interface.everything_set(),
               "--dry-run", "--json")  # fmt: skip
    assert said.status == 0, said.err
    assert "invalid" not in json.loads(said.out)["trials"][0], said.out


def test_what_is_set_changes_the_run_id_as_it_did(folder):
    found = interface.set_ids(folder)
    assert len(set(found.values())) == len(found)
    assert {path: key for path, key in found.items() if key != FROZEN["set_ids"][path]} == {}


def test_axes_keep_their_short_names(folder):
    assert interface.axes(folder) == FROZEN["axes"]


@pytest.mark.parametrize("command", FROZEN["rules"])
def test_rules_may_speak_of_what_they_could(command, folder):
    assert interface.rules(command, tuple(FROZEN["rules"][command]), folder) >= 1


def test_records_may_have_the_states_and_outcomes_that_they_had(tmp_path):
    pairs = [(state, status) for state in FROZEN["states"] for status in FROZEN["statuses"]]
    records = [{"state": state, "dp": 1, "outcome": {"status": status}} for state, status in pairs]
    (tmp_path / "records.json").write_text(json.dumps({"records": records}), encoding="utf-8")
    found = records_in(tmp_path / "records.json")
    assert [(one["state"], one["outcome"]["status"]) for one in found] == pairs
