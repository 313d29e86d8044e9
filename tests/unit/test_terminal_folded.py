"""Lines of words on a narrow terminal; in a pipe they stay whole."""
from __future__ import annotations

import sys

import pytest

from seatrial import terminal

LONG = "  1  ok         DP 16 TP 4 PP 6 MBS 2   111.7 s/it, forecast 111.2 (90.5-137); best so far, odds of better 49 %"


@pytest.mark.parametrize("on", [True, False])
def test_a_long_line_goes_on_below_itself_on_a_terminal_alone(monkeypatch, on):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: on, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    lines = terminal.folded(LONG, 16).split("\n")
    assert (lines == [LONG]) == (not on)
    if on:
        assert max(map(len, lines)) <= 60 and all(line.startswith(" " * 16) for line in lines[1:])
        assert "".join(LONG.split()) == "".join("".join(lines).split())


def test_parts_with_their_reasons_fit_a_narrow_terminal(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    said = {"bubble": "waiting while the pipeline fills and drains, or for a slower stage", "matmul": "the GEMMs"}
    text = terminal.breakdown({"bubble": 3.0, "matmul": 7.0}, "s", said=said)
    assert max(map(len, text.split("\n"))) <= 80 and "70.0%" in text
