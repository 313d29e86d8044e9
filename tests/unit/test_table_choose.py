"""Rows that a rule chooses, in the order of columns, and a table as narrow as a terminal."""
from __future__ import annotations

import pytest

from seatrial.errors import BadInput
from seatrial.record import Outcome, Record
from seatrial.tables.choose import chosen
from seatrial.tables.fit import fitted
from seatrial.tables.short import to_short

ROWS = [Record(state="measured", dp=dp, tp=tp, pp=1, gpus=dp * tp, mbs=1, gbs=8, zero_stage=1, sec_per_it=sec, mfu=mfu,
               tflops=sec, size_label="tiny", samples_per_s=8 / sec, notes=notes, extra={"case": case},
               outcome=Outcome(status="ok" if mfu else "oom_device", message="" if mfu else "rank 3 asked for 12 GiB"))
        for dp, tp, sec, mfu, notes, case in [(4, 1, 2.0, 0.4, "as it was on the first day", "a"), (2, 2, 1.5, 0.5, "", "b"),
                                              (1, 4, 3.0, None, "with a note that is long", "12")]]  # fmt: skip


@pytest.mark.parametrize(("rule", "found"), [
    ("tp == 2", [2]), ("mfu > 0.45", [2]), ("mfu > 0.3 and status == 'ok'", [4, 2]), ("status != 'ok'", [1]),
    ("case == 'a'", [4]), ("case == 12", [1]), ("zero == 1 and world == 4", [4, 2, 1]), ("not mfu", [1]),
    ("zero_stage > 1", []),
])
def test_a_rule_speaks_of_any_field_axis_or_outcome(rule, found):
    assert [row.dp for row in chosen(ROWS, where=[rule])] == found


@pytest.mark.parametrize(("sort", "found"), [("sec_per_it", [2, 4, 1]), ("-mfu", [2, 4, 1]), ("zero,-tp", [1, 2, 4]),
                                             ("mfu", [4, 2, 1])])
def test_columns_sort_and_what_a_row_does_not_say_comes_last(sort, found):
    assert [row.dp for row in chosen(ROWS, sort=sort)] == found
    assert [row.dp for row in chosen(ROWS, sort=sort, top=1)] == found[:1]


@pytest.mark.parametrize(("asked", "words"), [
    ({"sort": "secperit"}, "did you mean 'sec_per_it'?"), ({"where": ["tpp == 2"]}, "did you mean 'tp'?"),
    ({"where": ["status == oom"]}, "or a text: 'oom'"), ({"where": ["status > 2"]}, "a text has no order"),
    ({"where": ["mfu > 0.3.1"]}, "'0.3.1' is not a number"),
])
def test_what_is_not_there_is_named(asked, words):
    with pytest.raises(BadInput) as error:
        chosen(ROWS, **asked)
    assert words in str(error.value)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_nothing_is_wider_than_the_terminal_and_nothing_goes_without_a_word(width):
    whole = to_short(ROWS)
    text = fitted(whole, width)
    assert max(map(len, text.splitlines())) <= width
    headings = [cell.strip() for cell in whole.split("\n|")[1].split("|")]
    for heading in filter(None, headings):
        assert heading in text, heading
    assert "1.500" in text and "ok" in text
    assert (text == whole) == (width == 200)


def test_a_best_row_in_a_column_of_words_is_no_endless_loop():
    text = "| Notes |   A |\n| ----: | --: |\n| **" + "x" * 90 + "** |   1 |\n| y |   2 |\n"
    assert "No room for Notes" in fitted(text, 40)


def test_what_all_rows_share_is_said_below():
    text = fitted(to_short(ROWS), 90)
    assert "All of them: " in text and "MBS 1" in text and "| MBS" not in text
