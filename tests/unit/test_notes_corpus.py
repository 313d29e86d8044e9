"""The notes that lint is judged by say of themselves what is so."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

import notes_corpus

TRUTHS = sorted(notes_corpus.NOTES.glob("*/*/*.json"))


@pytest.mark.parametrize("truth", TRUTHS, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}-{path.stem}")
def test_every_slip_stands_where_it_is_said_to(truth: Path) -> None:
    lines = notes_corpus.note_of(truth).read_text(encoding="utf-8").split("\n")
    known = json.loads(truth.read_text(encoding="utf-8"))
    assert bool(known["slips"]) == (truth.parent.name == "mixed")
    for slip in known["slips"]:
        for cell in slip.get("cells", [slip]):
            assert cell["wrong"] in lines[cell["line"] - 1] and cell["wrong"] != cell["right"], cell


def test_there_are_as_many_as_the_bars_need() -> None:
    known = {path: json.loads(path.read_text(encoding="utf-8")) for path in TRUTHS}
    clean = [one for path, one in known.items() if path.parent.name == "clean"]
    mixed = [one for path, one in known.items() if path.parent.name == "mixed"]
    assert len(clean) >= 25 and sum(one["rows"] for one in clean) >= 500
    assert len(mixed) >= 25 and sum(len(one["slips"]) for one in mixed) >= 120


@pytest.mark.parametrize(("proposed", "right", "holds"), [
    ("2.792", "2.792", True), (27.92, "2.792", False), ("1024", "1\u202f024", True), ("8737.4 GiB", "8737.4 MiB", False),
    ("8.533 GiB", "8737.4 MiB", True), ("ok", "OK", True)])
def test_a_proposal_is_what_stood_there(proposed: object, right: str, holds: bool) -> None:
    assert notes_corpus.same(proposed, right) is holds
