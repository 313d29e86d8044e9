"""Parts of a whole: of a step or of a data mix, with shares, with the whole below them, or side by side in a row."""
from __future__ import annotations

from pathlib import Path

import pytest

from lint_tables import table
from seatrial.notes.lint import Finding, look_at


@pytest.fixture
def lint(tmp_path: Path):
    def look(text: str) -> list[Finding]:
        path = tmp_path / "notes.md"
        path.write_text(text, encoding="utf-8")
        return [finding for finding in look_at([str(path)])[0] if finding.level != "info"]

    return look


SHARES = """
    part  ms  share
    forward  540  28.4 %
    backward  1080  56.8 %
    all-reduce  210  11.1 %
    optimizer  70  3.7 %
"""
GERMAN = """
    Abschnitt  ms/Schritt  Anteil
    Vorwärts  812  29,3 %
    Rückwärts  1630  58,8 %
    All-Reduce  254  9,2 %
    Optimierer  76  2,7 %
"""
MIX = """
    source  tokens (B)  share (%)
    web  1120  56.0
    code  420  21.0
    books  260  13.0
    math  200  10.0
    total  2000  100
"""
KERNELS = """
    kernel  time (ms)  % of step
    gemm  1210  64.4
    attention  420  22.3
    rest  250  13.3
"""


@pytest.mark.parametrize(("note", "right", "wrong", "proposed"), [
    (SHARES, "| 28.4 %", "| 24.8 %", 28.4), (SHARES, "| 1080", "| 1800", 1080), (SHARES, "| 11.1 %", "| 1.11 %", 11.1),
    (SHARES, "| 70 ", "| 700 ", 70), (GERMAN, "29,3 %", "23,9 %", 29.3), (GERMAN, "1630", "1360", 1630),
    (MIX, "1120", "1210", 1120), (MIX, "21.0", "12.0", 21.0), (MIX, "| 260", "| 26", 260), (KERNELS, "64.4", "46.4", 64.4),
    (KERNELS, "| 420", "| 240", 420)])
def test_amounts_over_shares_are_the_whole(lint, note: str, right: str, wrong: str, proposed: float):
    assert lint(table(note)) == []
    (found,) = lint(table(note).replace(right, wrong))
    meant = float((found.proposed or "0").rstrip("%").replace(",", "."))
    assert found.level == "error" and meant == pytest.approx(proposed, rel=0.01)


@pytest.mark.parametrize("note", [
    KERNELS.replace("% of step", "% of peak").replace("22.3", "42.3"),  # of something else
    KERNELS.replace("64.4", "44.4").replace("22.3", "15.4").replace("13.3", "9.2"),  # the first three of many
    SHARES.replace("28.4", "29.9").replace("56.8", "52.0").replace("11.1", "13.0")])
def test_shares_of_something_else_are_left_alone(lint, note: str):
    assert lint(table(note)) == []


STEP = """
    part  PP=1  PP=4
    compute  812  655
    communication  143  98
    bubble  0  187
    optimizer  22  21
    {}  977  961
"""


@pytest.mark.parametrize("whole", ["step", "iteration", "total", "step time", "Schritt"])
@pytest.mark.parametrize(("right", "wrong"), [("| 143", "| 413"), ("| 961", "| 691"), ("| 655", "| 565")])
def test_parts_of_a_step_add_up_to_the_step_below_them(lint, whole: str, right: str, wrong: str):
    note = table(STEP.format(whole))
    assert lint(note) == []
    (found,) = lint(note.replace(right, wrong))
    assert (found.printed, found.proposed) == (wrong[2:], right[2:])


def test_parts_of_which_some_run_at_the_same_time_are_left_alone(lint):
    assert lint(table(STEP.format("step")).replace("977", "860").replace("961", "890")) == []


PERCENTS = """
    PP  Rechnen %  Kommunikation %  Blase %
    1  86.1  13.9  0.0
    4  71.3  10.5  18.2
    8  57.6  8.3  34.1
"""


@pytest.mark.parametrize(("right", "wrong"), [("71.3", "73.1"), ("10.5", "1.05"), ("34.1", "43.1")])
def test_percents_side_by_side_add_up_to_a_hundred(lint, right: str, wrong: str):
    assert lint(table(PERCENTS)) == []
    found = lint(table(PERCENTS).replace(right, wrong))
    assert [one.proposed for one in found] == [right]


def test_a_part_may_be_nothing(lint):
    note = table("""
        config  compute (ms)  comm (ms)  bubble (ms)  step (ms)
        DP8  812  143  0  955
        PP4  655  98  187  940
        PP8  640  91  402  1133
    """)
    assert lint(note) == []
    assert [(one.column, one.proposed) for one in lint(note.replace("| 143", "| 413"))] == [("comm (ms)", "143")]
