"""Reading a logbook by filters and in order is what a loop over its records would give."""
from __future__ import annotations

import pytest

from books import own
from seatrial.errors import BadInput
from seatrial.logbook import Logbook


def test_filters_are_those_of_a_loop_over_the_records(path):
    rows = [
        {
            "number": number,
            "state": ("measured", "failed")[number % 2],
            "dp": (1, 2, 4, None)[number % 4],
            "outcome": {"status": ("ok", "hang", "nan")[number % 3]} if number % 5 else None,
            "size_label": ("104B", "176B")[number % 2],
            "trial": {"topology": {"pp": number % 3}},
        }
        for number in range(60)
    ]

    def status(row: dict) -> str | None:
        return (row["outcome"] or {}).get("status")

    with Logbook(path, create=True) as book:
        book.append_many(rows)
        for where, law in [
            ({"state": "measured", "dp": 4}, lambda row: row["state"] == "measured" and row["dp"] == 4),
            ({"dp": [1, 2]}, lambda row: row["dp"] in (1, 2)),
            ({"dp": {1, None}}, lambda row: row["dp"] in (1, None)),
            ({"dp": None}, lambda row: row["dp"] is None),
            ({"dp": "4"}, lambda row: False),
            ({"dp": []}, lambda row: False),
            ({"outcome": "hang"}, lambda row: status(row) == "hang"),
            ({"outcome": ["nan", None]}, lambda row: status(row) in ("nan", None)),
            ({"model": "176B"}, lambda row: row["size_label"] == "176B"),
            ({"trial.topology.pp": 2}, lambda row: row["number"] % 3 == 2),
            ({"trial.topology": [{"pp": 2}]}, lambda row: row["number"] % 3 == 2),
            ({"number": list(range(600))}, lambda row: True),
            ({"source_line": list(range(600))}, lambda row: False),
        ]:
            assert [own(row) for row in book.records(where)] == [row for row in rows if law(row)], where
        odd = book.records({"state": "failed"}, predicate=lambda row: row["number"] > 50)
        assert [row["number"] for row in odd] == [51, 53, 55, 57, 59]


def test_order_is_by_column_with_the_unknown_last_and_ties_as_they_came(path):
    with Logbook(path, create=True) as book:
        book.append_many([{"tflops": t, "dp": dp} for t, dp in [(5, 1), (None, 2), (9, 3), (5, 4), (-1, 5)]])
        assert [row["dp"] for row in book.records(order=["-tflops"])] == [3, 1, 4, 5, 2]
        assert [row["dp"] for row in book.records(order=["tflops", "-dp"])] == [5, 4, 1, 3, 2]
        with pytest.raises(BadInput, match="did you mean 'tflops'"):
            book.records(order=["tflop"])


def test_what_is_appended_while_reading_is_not_among_what_is_read(path):
    with Logbook(path, create=True) as book:
        book.append_many([{"dp": n} for n in range(3)])
        seen = [book.append({"copy": record["dp"]}) for record in book.records()]
        assert len(seen) == 3 and len(book) == 6
