"""What stood there where a count cannot be, or more memory than the device has: by the rest of the column and the rows most
like it, whichever of the row's cells is wrong."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from seatrial.notes.lint import Finding

Lint = Callable[[str], list[Finding]]
LAYOUTS = """13B on A100 80 GB, sequences of 2048.

| GPUs | TP | PP | MBS | GBS | mem (GiB) | s/it |
|---|---|---|---|---|---|---|
| 16 | 4 | 1 | 1 | 256 | 44.1 | 31.2 |
| 16 | 4 | 1 | 2 | 256 | 52.3 | 29.9 |
| 16 | 8 | 1 | 2 | 256 | 33.6 | 33.0 |
| 32 | 4 | 2 | 1 | 512 | 27.4 | 31.9 |
| 32 | 4 | 2 | 2 | 512 | 34.2 | 30.6 |
| 64 | 8 | 2 | 2 | 512 | 20.9 | 16.9 |
"""


@pytest.mark.parametrize(("right", "wrong", "column", "proposed"), [
    ("| 16 | 4 | 1 | 1 |", "| 16 | 4 | 1 | 10 |", "MBS", "1"), ("| 32 | 4 | 2 | 2 |", "| 32 | 4 | 2 | 20 |", "MBS", "2"),
    ("| 32 | 4 | 2 | 1 |", "| 32 | 40 | 2 | 1 |", "TP", "4"), ("| 64 | 8 | 2 | 2 |", "| 64 | 8 | 20 | 2 |", "PP", "2"),
    ("| 2 | 512 | 20.9", "| 2 | 51 | 20.9", "GBS", "512"), ("| 34.2 |", "| 134.2 |", "mem (GiB)", "34.2"),
    ("| 27.4 |", "| 87.4 |", "mem (GiB)", "27.4"), ("| 52.3 |", "| 523 |", "mem (GiB)", "52.3")])  # fmt: skip
def test_what_nobody_chose_is_what_other_rows_have(lint: Lint, right: str, wrong: str, column: str, proposed: str):
    assert lint(LAYOUTS) == []
    assert right in LAYOUTS
    assert (column, proposed) in [(one.column, one.proposed) for one in lint(LAYOUTS.replace(right, wrong))]


EXPERTS = """Mixtral 8x7B, 8 experts, 64 H100.

| TP | PP | EP | tokens/s/GPU |
|---|---|---|---|
| 2 | 4 | 8 | 4,310 |
| 4 | 2 | {} | 4,120 |
| 1 | 8 | 8 | 4,405 |
| 2 | 8 | 4 | 4,290 |
"""


@pytest.mark.parametrize("typed", ["80", "7"])
def test_experts_go_over_as_many_ranks_as_in_other_rows(lint: Lint, typed: str):
    assert lint(EXPERTS.format(8)) == []
    (found,) = lint(EXPERTS.format(typed))
    assert (found.column, found.proposed) == ("EP", "8")


RATES = """8B, sequences of 4096.

| GPUs | GBS | s/it | tokens/s/GPU |
|---|---|---|---|
| 16 | 128 | 4.410 | 7,430 |
| 32 | 256 | 4.470 | 7,330 |
| 64 | 512 | 4.560 | 7,186 |
| 128 | 512 | 2.330 | 7,032 |
"""


@pytest.mark.parametrize(("right", "wrong", "column", "proposed"), [
    ("| 64 | 512 |", "| 64 | 5120 |", "GBS", "512"), ("| 32 | 256 |", "| 320 | 256 |", "GPUs", "32")])  # fmt: skip
def test_a_zero_too_many_of_what_people_choose_is_no_point_of_a_time(
    lint: Lint, right: str, wrong: str, column: str, proposed: str
):
    assert lint(RATES) == []
    (found,) = [one for one in lint(RATES.replace(right, wrong)) if one.proposed]
    assert (found.column, found.proposed) == (column, proposed)
