"""What a sweep reads of its session: a line that is no record stops nothing, is named, and its trial is run again."""
from __future__ import annotations

from seatrial.logbook import Logbook
from seatrial.sweep.store import Store


def test_a_line_that_is_no_record_is_as_if_it_were_not_there_and_is_told(tmp_path):
    with Logbook(tmp_path / "book", create=True) as book:
        store = Store(book, "first")
        good = {"session": "first", "run_id": "aaa", "record_id": store.record_id("aaa"), "state": "measured",
                "sec_per_it": 1.0}
        book.append_many([good, {**good, "run_id": "bbb", "record_id": store.record_id("bbb"), "sec_per_it": "fast"},
                          {**good, "session": "other", "record_id": "other", "sec_per_it": -1}])
        assert [row["run_id"] for row in store.records()] == ["aaa"] == [row["run_id"] for row in store.records(["aaa", "bbb"])]
        (told,) = store.unread()
        assert "sec_per_it" in told.message and told.line == 2
