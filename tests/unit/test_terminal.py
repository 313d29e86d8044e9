"""Pictures in letters: lengths are right, groups tell themselves apart without colour, and narrow terminals get what fits."""
from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial import terminal
from seatrial.plan import show
from seatrial.plan.step import SCALES

PARTS = {"matmul": 60.0, "memory": 10.0, "tensor": 10.0, "p2p": 5.0, "gradients": 5.0, "launch": 4.0, "bubble": 6.0}


def text(spans):
    return "".join(part for part, _ in spans)


def candidate(sec, **more):
    parts = {name: value * sec / 100 for name, value in PARTS.items()}
    return {"sec_per_it": sec, "sec_lo": 0.9 * sec, "sec_hi": 1.2 * sec, "parts_s": parts, "measured_s": [], **more}


def test_every_part_of_the_planner_has_a_group():
    assert {part for group in terminal.GROUPS for part in group.parts} == {*SCALES, "bubble"}
    assert len({group.letter for group in terminal.GROUPS}) == len(terminal.GROUPS)


@given(st.dictionaries(st.sampled_from([*SCALES, "bubble"]), st.floats(0.001, 1e6), min_size=1), st.integers(8, 120))
def test_a_bar_is_as_long_as_its_share_of_the_longest(parts, cells):
    whole = sum(parts.values())
    drawn = text(terminal.stacked(parts, longest=2 * whole, cells=cells))
    assert len(drawn) == cells
    assert abs(len(drawn.rstrip()) - cells / 2) <= 1


def test_each_group_has_the_cells_of_its_share():
    drawn = text(terminal.stacked(PARTS, longest=100.0, cells=100))
    assert [drawn.count(group.letter) for group in terminal.GROUPS] == [60, 10, 10, 0, 10, 4, 6]


def test_the_legend_has_shares_and_leaves_out_what_is_not_there():
    said = " ".join(map(text, terminal.legend({"matmul": 3.0, "bubble": 1.0})))
    assert said == "██ GEMMs 75% ·· bubble 25%"


def test_an_interval_has_its_ends_its_middle_and_its_marks():
    line = terminal.Axis(0.0, 10.0, 11).interval(2.0, 5.0, 8.0, marks={10.0: "┆", 3.0: "◆", 99.0: "x"})
    assert line == "  ├◆─●──┤ ┆"
    assert terminal.Axis(1.0, 1.0, 5).dots([1.0], 1.0).strip() == "┃"


@pytest.mark.parametrize("cells", [36, 50, 80, 100])
def test_no_line_of_the_picture_is_wider_than_the_terminal(capsys, cells):
    show.draw([candidate(100.0, measured_s=[101.0, 140.0]), candidate(104.5), candidate(111.25)], cells=cells)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 8 and max(len(line) for line in lines if not line.endswith(":")) <= cells


def test_what_was_measured_stands_on_the_forecasts_axis(capsys):
    show.draw([candidate(100.0, measured_s=[110.0]), candidate(100.0)], cells=100)
    first, second = [line for line in capsys.readouterr().out.splitlines() if "├" in line]
    assert first.index("◆") > first.index("●") and "110.00 s measured" in first
    assert "◆" not in second and second.index("●") == first.index("●")


def test_a_terminal_too_narrow_gets_no_picture(capsys):
    show.draw([candidate(100.0)], cells=30)
    assert capsys.readouterr().out == ""


def test_items_wrap_where_the_line_ends():
    items = [[("ab", "")]] * 5
    assert [text(line) for line in terminal.in_lines(items, 6)] == ["ab  ab", "ab  ab", "ab"]


def test_colours_are_for_a_terminal_without_no_color(capsys, monkeypatch):
    monkeypatch.setattr(terminal.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal.painted([("███", "blue"), (" 1 s", "")])
    assert re.search(r"\x1b\[34m███\x1b\[0m 1 s", capsys.readouterr().out)
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.painted([("███", "blue"), (" 1 s", "")])
    assert capsys.readouterr().out == "███ 1 s\n"


def test_on_a_narrow_terminal_what_is_alike_leaves_the_table(monkeypatch):
    headers, rows = ["#", "DP", "VP", "schedule"], [["1", "16", "1", "1f1b"], ["2", "8", "1", "1f1b"]]
    alike = ("schedule", "VP", "DP")
    monkeypatch.setattr(terminal.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(terminal, "width", lambda: 14)
    assert terminal.fitting(headers, rows, alike=alike) == (["#", "DP", "VP"], [["1", "16", "1"], ["2", "8", "1"]],
                                                            "All of them: schedule 1f1b.")
    left, _, said = terminal.fitting(headers, rows, alike=alike, spare=("#", "DP"))
    assert left == ["#", "DP", "VP"]
    monkeypatch.setattr(terminal, "width", lambda: 6)
    left, cells, said = terminal.fitting(headers, rows, alike=alike, spare=("#", "VP"))
    assert (left, cells) == (["DP"], [["16"], ["8"]]) and "schedule 1f1b, VP 1." in said and "No room for #:" in said
    monkeypatch.setattr(terminal, "width", lambda: 80)
    assert terminal.fitting(headers, rows, alike=alike) == (headers, rows, "")
