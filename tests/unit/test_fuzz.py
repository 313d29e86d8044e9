"""A little of what `python -m benchmarks.fuzz` does without end, and the codec under anything that plain data can be."""
from __future__ import annotations

import csv
import io
import json
import time

import pytest
from benchmarks import fuzz, fuzzing
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial import expression, fields, plaindata, trialfile
from seatrial.errors import SeatrialError
from seatrial.record import Record
from seatrial.spec import Cluster, Model
from seatrial.sweep import file as sweeps
from seatrial.tables.codec import decode, encode, encode_csv
from seatrial.terminal import visible

EACH = 40
"""Seeds of each target; a million are run by the benchmark."""


@pytest.mark.parametrize("target", fuzzing.TARGETS)
def test_no_mutated_file_ends_in_anything_but_one_line(tmp_path, monkeypatch, target):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fuzzing.samples()
    for seed in range(EACH):
        one = fuzzing.case(seed, target)
        found = fuzzing.failure(one, tmp_path, limit_s=20.0)
        assert found is None, f"fuzzing.case({seed}, {target!r}): {found.trace}\n{fuzzing.shrunk(one, tmp_path).data!r}"


def test_a_case_is_its_seed():
    assert fuzzing.case(4711) == fuzzing.case(4711) != fuzzing.case(4712)


def test_what_is_not_ours_is_a_failure_and_is_shrunk(tmp_path, monkeypatch):
    def read(path, rng):
        if b"7" in path.read_bytes():
            raise KeyError("seven")

    monkeypatch.setitem(fuzzing.TARGETS, "rule", ("rule", "t.txt", read, 1))
    one = fuzzing.Case(1, "rule", b"1234567890")
    assert fuzzing.failure(one, tmp_path).what.startswith("KeyError at")
    assert fuzzing.shrunk(one, tmp_path).data == b"7"
    assert fuzzing.failure(fuzzing.Case(1, "rule", b"123"), tmp_path) is None


def test_jobs_share_the_seeds_and_a_second_call_has_nothing_left(tmp_path, monkeypatch, capsys):
    ran = tmp_path / "ran"

    def read(path, rng):
        with ran.open("a") as file:
            file.write(".")
        if b"7" in path.read_bytes():
            raise KeyError("seven")

    monkeypatch.setattr(fuzzing, "TARGETS", {"rule": ("rule", "t.txt", read, 1)})
    monkeypatch.setattr(fuzzing, "case", lambda seed: fuzzing.Case(seed, "rule", str(seed).encode()))
    monkeypatch.setattr(fuzzing, "warm", lambda: None)
    monkeypatch.setattr(fuzz, "CHUNK", 5)
    monkeypatch.setattr("sys.argv", ["fuzz", "--n", "20", "--jobs", "3", "--out", str(tmp_path / "out.jsonl")])
    for _ in range(2):
        assert fuzz.main() == 1
        found = json.loads(capsys.readouterr().out)
        assert (found["cases"], found["failures"], len(found["causes"])) == (20, 2, 1)
        before = len(ran.read_text())
    assert len(ran.read_text()) == before
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted((line["from"], line["to"]) for line in lines) == [(0, 5), (5, 10), (10, 15), (15, 20)]
    assert sorted(one["seed"] for line in lines for one in line["failures"]) == [7, 17]


def test_a_case_that_waits_is_killed_and_the_rest_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzzing, "TARGETS", {"rule": ("rule", "t.txt", lambda path, rng: time.sleep(b"3" in path.read_bytes()
                                                                                                  and 600), 1)})
    monkeypatch.setattr(fuzzing, "case", lambda seed: fuzzing.Case(seed, "rule", str(seed).encode()))
    monkeypatch.setattr(fuzz, "WAITS_S", 0.5)
    found = fuzz.run(0, 6)
    assert found["cases"] == {"rule": 6} and found["causes"] == {"died": 1}
    assert [(one["seed"], one["what"]) for one in found["failures"]] == [(3, "died with 9")]


def test_what_takes_too_long_is_a_failure(tmp_path, monkeypatch):
    def read(path, rng):
        while True:
            pass

    monkeypatch.setitem(fuzzing.TARGETS, "rule", ("rule", "t.txt", read, 1))
    assert fuzzing.failure(fuzzing.Case(1, "rule", b""), tmp_path, limit_s=0.05).what == "TooLong"


numbers = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 2**63, 1e308, 5e-324])
letters = st.characters(exclude_categories=())
"""Halves of pairs too."""
scalars = st.none() | st.booleans() | numbers | st.text(letters, max_size=8)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(letters, max_size=6), inner, max_size=4),
    max_leaves=8,
)
relaxed = settings(max_examples=150, deadline=None)


@relaxed
@given(st.sampled_from(sorted(Record.__dataclass_fields__)), anything)
def test_a_record_of_anything(name, value):
    try:
        record = Record.from_dict({"state": "measured", name: value})
    except SeatrialError:
        return
    assert Record.from_dict(record.to_dict()) == record
    json.dumps(record.to_dict(), allow_nan=False)


@relaxed
@given(st.dictionaries(st.sampled_from([*sweeps.OWN, *trialfile.TABLES, "engine", "models", "training"]), anything, max_size=4))
def test_a_sweep_of_anything(data):
    good = {"model": {"layers": 2, "hidden": 64, "heads": 4, "vocab": 128, "seq": 32}, "batch": {"gbs": 8}}
    try:
        for task in sweeps.build({**good, **data}).tasks[:20]:
            assert task.key
    except SeatrialError as error:
        assert str(error)


@relaxed
@given(st.sampled_from([(Model, "model"), (Cluster, "cluster")]), st.data())
def test_a_word_of_anything(which, data):
    cls, where = which
    names = st.sampled_from(sorted(cls.__dataclass_fields__))
    try:
        fields.build(cls, data.draw(st.dictionaries(names, anything, max_size=6)), where=where)
    except SeatrialError as error:
        assert str(error)


@relaxed
@given(anything)
def test_what_is_bounded_can_be_written(value):
    try:
        plaindata.bounded(value, "x")
    except SeatrialError:
        return
    fields.digest(value)
    assert plaindata.parse_json(json.dumps(value)) == plaindata.parse_json(json.dumps(value, ensure_ascii=False))


@relaxed
@given(st.text(letters, max_size=40))
def test_text_goes_out_seen_and_comes_back_whole(text):
    seen = visible(text)
    assert visible(seen) == seen and not any(letter < " " and letter not in "\t\n" for letter in seen)
    assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text
    whole = plaindata.mended(text)
    assert decode(encode(whole)) == decode(encode_csv(whole)) == whole
    out = io.StringIO()
    csv.writer(out).writerow([encode_csv(text), "x"])
    (cells,) = csv.reader(io.StringIO(out.getvalue()))
    assert cells[0] == encode_csv(text)


@relaxed
@given(st.text(st.sampled_from("dp tp()=<>!+-*/%0123456789andornot\n\t'é\ud800[]"), max_size=40))
def test_a_rule_of_anything(text):
    try:
        expression.parse(text, names={"dp", "tp"}).holds({"dp": 8, "tp": 4})
    except SeatrialError as error:
        assert str(error)
