"""The campaign's cases are made of seed and number alone, and what is expected of them is whole."""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.faults.draw import DECK, KINDS, STEPS, draw
from benchmarks.faults.table import HEAD, table, wrongs

from seatrial.engine.watch import fault
from seatrial.outcomes import OUTCOMES


def test_a_case_depends_on_its_seed_and_number_alone_and_a_deck_has_every_kind():
    cases = [draw(3, n) for n in range(len(DECK))]
    assert cases == [draw(3, n) for n in reversed(range(len(DECK)))][::-1]
    assert sorted(case.kind for case in cases) == sorted(DECK) and set(DECK) == set(KINDS)
    assert [c.kind for c in cases] != [draw(4, n).kind for n in range(len(DECK))]


def test_what_is_expected_is_written_down_before():
    for n in range(1000):
        case = draw(5, n)
        assert case.outcomes or case.ground == "controller", case
        assert set(case.outcomes) <= set(OUTCOMES)
        assert set(case.culprits) <= set(range(case.layout.world)) and 0 <= case.rank < case.layout.world
        assert 0 <= case.step <= STEPS
        if case.ground == "ranks" and case.moment not in ("launch", "outside"):
            assert case.moment in fault.PHASES


def test_ranks_of_a_group():
    layout = next(c.layout for c in (draw(1, n) for n in range(9999)) if (c.layout.dp, c.layout.tp, c.layout.pp) == (2, 2, 2))
    assert [layout.group(name, 5) for name in ("tp", "dp", "pp")] == [(4, 5), (5, 7), (1, 5)]
    assert len(layout.group("world", 0)) == 8


def test_the_table_is_80_columns_and_counts_only_what_was_asked():
    row = {"kind": "exit", "seed": 1, "index": 2, "rank": 0, "layout": "dp2", "moment": "start", "step": 1,
           "outcomes": ["crash"], "culprits": [0], "status": "crash", "named": 1, "message": "m", "why": "", "bar_s": 2.0,
           "lost": 0, "doubled": 0, "orphans": 0, "void": False}  # fmt: skip
    right = {**row, "outcome_right": True, "culprit_right": True, "verdict_s": 0.5, "resumed": None, "wrong": []}
    bad = {**right, "culprit_right": False, "verdict_s": 3.0, "resumed": True, "wrong": ["culprit", "late"]}
    lines = table([right, bad, {**right, "void": True}]).splitlines()
    assert lines[1] == "exit          2      2/2      1/2      1.8     3.0    1    -   -    -      1/1"
    assert max(map(len, lines)) <= 80 and len(HEAD) == len(lines[1])
    assert lines[-1].startswith("1 came too late")
    assert len(wrongs([right, bad])) == 1 and "1:2 exit" in wrongs([bad])[0]
