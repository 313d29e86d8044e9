"""The samples of logs beyond their values (`test_log_samples.py`): whose lines they are, and what lint says of them."""
from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.notes.lint import look_at
from seatrial.notes.read.logformat import shipped
from seatrial.notes.read.logs import unprefixed

LOGS = Path(__file__).parents[1] / "data" / "logs"
SAMPLES = sorted(path for path in LOGS.glob("*") if path.suffix != ".md" and not path.name.endswith(".expected.json"))


@pytest.mark.parametrize("path", [path for path in SAMPLES if path.suffix == ".log"], ids=lambda path: path.name)
def test_no_two_formats_claim_a_line(path: Path):
    for line in path.read_text(errors="replace").splitlines():
        text = unprefixed(line)[1]
        claims = {format.name for format in shipped() for one in format.steps if one.match(text)}
        assert len(claims) <= 1, line[:120]


def test_lint_finds_no_error_in_what_programs_print():
    """Their figures belong together: what would be said of them is said of every run of theirs."""
    found = look_at([str(path) for path in SAMPLES])[0]
    assert not [finding for finding in found if finding.level == "error"]
