"""Trials on this machine: every way to end is told apart, with the right rank, and nothing is left behind."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.launch.local import Local
from trial_cases import CASES, Case, check, processes_of, run_all


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_trial_ends_with_its_outcome_and_the_rank_that_caused_it(case: Case, tmp_path: Path) -> None:
    records = run_all([case], Local(), tmp_path)
    check(case, records[case.name])
    assert processes_of(tmp_path / case.name.replace(" ", "-")) == []
