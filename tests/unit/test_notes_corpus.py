"""The notes that lint is judged by say of themselves what is so."""
from __future__ import annotations

import contextlib
import json
import random
import re
from pathlib import Path

import pytest

import notes_corpus
from seatrial.errors import BadInput
from seatrial.notes.lint import look_at

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


READ_WRONG = {"wharf": {"HOWTO-layouts:36 mbs"}, "taffrail": {"tpu-pods:14 tokens_per_s_per_process"},
              "again": {"seventy-rehearsal:9 tokens_per_s"}, "strake": {"dnevnik_3b:18 gbs"},
              "bulwark": {"v5p_pod_report:27 mbs"}, "bilge": {f"tpu-performance:{line} mbs" for line in (14, 22)},
              "stem": {*(f"carnet-de-bord:{line} gbs" for line in (28, 39, 40)),
                       *(f"issue-214-oom-on-40g:{line} gbs" for line in (22, 23))},
              "thwart": {*(f"Training_throughput:{line} seq" for line in (10, 12, 14)),
                         *(f"scaling_lumi:{line} mbs" for line in (24, 25, 26))},
              "keelson": {f"lumi-log:{line} gpus" for line in range(11, 17)}}  # fmt: skip
"""Of 44,000 values: cards where the run counts their GCDs, micro-batches of a replica and sequences of a device and step, the
figure before a change for the one after it, 18B tokens a day of 18.4, a batch worked out for a length that no cell says, one
that the text gives and the row's counts deny, a `lot` beside the accumulation where nobody counts the cards, and one length of
two that a line gives to two models."""


@pytest.mark.parametrize("half", sorted(path.parent.name for path in notes_corpus.NOTES.glob("*/clean")))
def test_what_is_imported_is_what_was_run(half: str, tmp_path: Path) -> None:
    count, wrong = notes_corpus.wrong_values(half, tmp_path / "book")
    assert count["rows not read"] == 0
    assert {" ".join(line.split()[1:3]) for line in wrong} <= READ_WRONG.get(half, set()), wrong


@pytest.mark.parametrize(("proposed", "right", "holds"), [
    ("2.792", "2.792", True), (27.92, "2.792", False), ("1024", "1\u202f024", True), ("8737.4 GiB", "8737.4 MiB", False),
    ("8.533 GiB", "8737.4 MiB", True), ("ok", "OK", True)])
def test_a_proposal_is_what_stood_there(proposed: object, right: str, holds: bool) -> None:
    assert notes_corpus.same(proposed, right) is holds


ABSURD = ("0", "0.0", "00", "1e400", "9" * 30, "-1", "0,0", "1", ".5", "10000000")


@pytest.mark.parametrize("half", sorted(path.parent.name for path in notes_corpus.NOTES.glob("*/mixed"))[::3])
def test_absurd_numbers_in_cells_and_sentences_are_no_traceback(half: str, tmp_path: Path) -> None:
    rng = random.Random(half)
    truths = sorted((notes_corpus.NOTES / half).glob("mixed/*.json"))
    for note in map(notes_corpus.note_of, rng.sample(truths, min(8, len(truths)))):
        text = note.read_text(encoding="utf-8")
        numbers = list(re.finditer(r"\d[\d.,]*", text))
        for match in sorted(rng.sample(numbers, min(30, len(numbers))), key=lambda match: -match.start()):
            text = text[: match.start()] + rng.choice(ABSURD) + text[match.end() :]
        path = tmp_path / note.name
        path.write_text(text, encoding="utf-8")
        with contextlib.suppress(BadInput):
            look_at([str(path)])
