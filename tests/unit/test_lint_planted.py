"""Lint on tables nobody has seen: right ones made from the formulas, and the same with one slip planted."""
from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lint_slip import Planted
from lint_slips import SLIPS
from lint_tables import Table, clean_table
from seatrial.notes.lint import Finding, look_at
from seatrial.notes.lint.findings import LEVELS

Lint = Callable[[Table], list[Finding]]
ONE_OF = {
    "other-formula": {"formula-mixed", "tflops-mismatch"},
    "other-factor": {"formula-mixed", "tflops-mismatch"},
}
"""Where a slip of the hand may explain the row as well as another formula does, lint leaves it open and says so."""
WHOLE_TABLE = {"whole-table-in-ms"}
quick = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def lint(tmp_path_factory: pytest.TempPathFactory) -> Lint:
    folder = tmp_path_factory.mktemp("notes")

    def run(table: Table) -> list[Finding]:
        notes = Path(folder) / "notes.md"
        notes.write_text(table.text())
        return look_at([str(notes)])[0]

    return run


@settings(quick, max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_a_table_that_is_right_has_neither_errors_nor_warnings(lint: Lint, seed: int):
    found = lint(clean_table(random.Random(seed)))
    assert [f for f in found if f.level != "info"] == []


@pytest.mark.parametrize("name", SLIPS)
@quick
@given(seed=st.integers(0, 2**32))
def test_a_planted_slip_is_found_at_its_line_and_nowhere_else(lint: Lint, name: str, seed: int):
    planted = plant(name, seed)
    if planted is None:
        return
    found, lines = lint(planted.table), planted.lines
    codes = ONE_OF.get(name, {planted.code})
    here = [f for f in found if f.line in lines and f.code in codes]
    assert here, f"nothing of {codes} at line {lines}:\n{planted.table.text()}\n{found}"
    assert LEVELS.index(here[0].level) <= LEVELS.index(planted.level)  # type: ignore[arg-type]
    if name not in WHOLE_TABLE:
        elsewhere = [f for f in found if f.line not in lines and f.level == "error"]
        assert elsewhere == [], f"planted at {lines}:\n{planted.table.text()}"


@pytest.mark.parametrize(
    ("name", "share"),
    [("wrong-dp", 0.9), ("wrong-nodes", 1.0), ("milliseconds", 1.0), ("whole-table-in-ms", 1.0), ("wrong-gbs", 0.95),
     ("per-node", 1.0), ("typo-in-seconds", 0.85), ("typo-in-tflops", 0.9), ("swapped", 1.0), ("swapped-alone", 0.8),
     ("wrong-layers", 0.9), ("memory-falls", 0.95), ("clock-in-hz", 1.0)],
)  # fmt: skip
def test_what_was_there_before_the_slip_is_proposed(lint: Lint, name: str, share: float):
    """Where one cell is as likely as another, lint may leave the row open: so a share, over 40 tables."""
    right = tried = 0
    for seed in range(40):
        planted = plant(name, seed)
        if planted is None:
            continue
        line = planted.table.line_of(planted.row)
        here = [f for f in lint(planted.table) if f.line == line and f.code == planted.code]
        tried += 1
        right += bool(here) and same_value(here[0].proposed, planted.proposed) and here[0].column == planted.column
    assert tried >= 8
    assert right >= share * tried, f"{right} of {tried}"


def plant(name: str, seed: int) -> Planted | None:
    rng = random.Random(seed)
    return SLIPS[name](clean_table(rng), rng)


def same_value(a: str | None, b: str | None) -> bool:
    """Equal as text, or as numbers to what a coarse neighbour cell can tell."""
    if a is None or b is None:
        return a == b
    try:
        return abs(float(a) / float(b) - 1) < 2e-3
    except ValueError:
        return a == b
