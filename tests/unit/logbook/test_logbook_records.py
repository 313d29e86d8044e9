"""What goes into a logbook comes out: any record, corrections, deletions; what cannot be a line is refused."""
from __future__ import annotations

import dataclasses
import json
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from books import own, segments
from seatrial.errors import BadInput
from seatrial.logbook import Logbook
from seatrial.record import Outcome, Record

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
records_of_any_shape = st.dictionaries(
    st.text().filter(lambda key: key not in ("schema", "record_id", "written_at", "deleted")), json_values, max_size=5
)


@settings(max_examples=60, deadline=None)
@given(st.lists(records_of_any_shape, max_size=5, unique_by=lambda record: json.dumps(record, sort_keys=True)))
def test_every_record_comes_back_as_it_was_in_the_order_it_came(records):
    with tempfile.TemporaryDirectory() as folder, Logbook(f"{folder}/book", create=True) as book:
        ids = book.append_many(records)
        back = list(book.records())
        assert [own(record) for record in back] == records
        assert [record["record_id"] for record in back] == ids
        assert len(book) == len(records)


def test_a_name_that_is_not_unicode_survives(path):
    with Logbook(path, create=True) as book:
        book.append({"source_file": "caf\udce9.txt", "dp": 1 << 70})
        assert [own(record) for record in book.records()] == [{"source_file": "caf\udce9.txt", "dp": 1 << 70}]


def test_a_record_survives_the_logbook(path):
    record = Record(
        state="failed",
        outcome=Outcome(status="hang", message="may hang", rate=(2, 5)),
        dp=8,
        tflops=104.25,
        flags=("^", "†"),
        printed={"TFLOPs": "104.25", "DP": "8"},
    )
    with Logbook(path, create=True) as book:
        book.append(record.to_dict())
        (back,) = (Record.from_dict(row) for row in book.records({"outcome": "hang"}))
    assert dataclasses.replace(back, record_id="", written_at="") == record
    assert list(back.printed) == ["TFLOPs", "DP"]


def test_the_same_content_is_the_same_record(path):
    with Logbook(path, create=True) as book:
        assert book.append({"dp": 8, "tp": 4}) == book.append({"tp": 4, "dp": 8}) != book.append({"tp": 4, "dp": 9})
        assert len(book) == 2


def test_a_correction_holds_and_keeps_its_place_and_the_old_line_stays(path):
    with Logbook(path, create=True) as book:
        first, _ = book.append_many([{"dp": 8}, {"dp": 4}])
        old = next(book.records({"record_id": first}))
    with Logbook(path) as book:
        # A correction is made from what was read, and carries the old stamp: it must not matter.
        book.append(old | {"dp": 6})
        assert [record["dp"] for record in book.records()] == [6, 4]
        assert list(book.records({"dp": 8})) == []
    assert sum(file.read_bytes().count(b'"dp":8') for file in segments(path)) == 1


def test_a_correction_holds_even_when_the_clock_is_set_back(path, monkeypatch):
    import seatrial.logbook as module

    with Logbook(path, create=True) as book:
        book.append({"record_id": "a", "dp": 1})

        class Earlier(module.datetime):
            @classmethod
            def now(cls, tz=None):
                return cls(2001, 1, 1, tzinfo=tz)

        monkeypatch.setattr(module, "datetime", Earlier)
        book.append({"record_id": "a", "dp": 2})
        assert [record["dp"] for record in book.records()] == [2]


def test_a_deleted_record_is_gone_until_it_is_appended_again(path):
    with Logbook(path, create=True) as book:
        record_id = book.append({"dp": 8})
        assert book.append({"deleted": record_id}) == record_id
        assert (len(book), list(book.records())) == (0, [])
        book.append({"dp": 8})
        assert len(book) == 1


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"loss": float("nan")}, "record.loss is nan"),
        ({"a": [1, {"b": float("inf")}]}, "record.a.1.b is inf"),
        ({"record_id": 7}, "record_id 7"),
        ({"deleted": ""}, "record_id ''"),
        ({"deleted": "x", "dp": 1}, "nothing else"),
    ],
)
def test_what_cannot_be_a_line_is_refused_and_nothing_is_written(path, record, says):
    book = Logbook(path, create=True)
    with pytest.raises(BadInput, match=says):
        book.append_many([{"dp": 1}, record])
    assert not path.exists()
