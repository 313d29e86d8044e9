"""What people say about records: added beside them, never over them, and no record itself."""
from __future__ import annotations

import json

import pytest

from seatrial.errors import BadInput
from seatrial.logbook import Logbook


def test_a_remark_is_added_and_the_record_stays_as_it_is(path):
    with Logbook(path, create=True) as book:
        one = book.append({"state": "measured", "dp": 8})
        before = list(book.records())
        book.remark(one, " slow fabric ", ["keep", "keep", "n-12"])
        book.remark(one, "it was the cable", [])
        assert list(book.records()) == before and len(book) == 1 and not book.problems()
        said = book.remarks()[one]
    assert [(r["text"], r["tags"]) for r in said] == [("slow fabric", ["keep", "n-12"]), ("it was the cable", [])]
    with Logbook(path) as again:
        assert again.remarks()[one] == said


def test_importing_a_row_again_does_not_lose_what_was_said_about_it(path):
    row = {"state": "measured", "dp": 8}
    with Logbook(path, create=True) as book:
        one = book.append(row)
        book.remark(one, "kept")
        assert book.append(row) == one
        assert book.remarks()[one][-1]["text"] == "kept"


@pytest.mark.parametrize(("text", "tags"), [("x" * 4001, []), ("", ["two words"]), ("", ["<b>"]), ("", ["y" * 41]),
                                            ("", [f"t{n}" for n in range(21)])])
def test_a_remark_has_bounds(path, text, tags):
    with Logbook(path, create=True) as book:
        one = book.append({"state": "measured"})
        with pytest.raises(BadInput):
            book.remark(one, text, tags)
        assert book.remarks() == {}


def test_a_line_that_is_no_remark_is_a_problem_and_nothing_else(path):
    with Logbook(path, create=True) as book:
        one = book.append({"state": "measured"})
        book.append({"remark_on": 3})
        for wrong in ({"text": 4}, {"tags": [1]}, {"tags": "x"}):
            book.append({"remark_on": one, **wrong})
        assert len(book.problems()) == 4 and book.remarks() == {} and len(book) == 1
    assert len([json.loads(line) for file in path.glob("segments/*") for line in file.read_text().splitlines()]) == 5
