"""What each status means stands in one table, and all that ask agree with it."""
from __future__ import annotations

from typing import get_args

import pytest

from seatrial import outcomes
from seatrial.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_OTHER_OUTCOME
from seatrial.record import Outcome, Record, Status
from seatrial.tables import csvjson


def test_every_status_has_a_row_and_every_row_is_a_status() -> None:
    assert list(outcomes.OUTCOMES) == list(get_args(Status))


@pytest.mark.parametrize(("flag", "value", "statuses"), [
    ("kind", "not run", ("invalid", "cancelled", "not_started", "crowded")),
    ("timed", True, ("ok", "timeout", "cancelled", "crowded")), ("rerun", True, ("cancelled", "not_started", "crowded")),
    ("retry", True, ("hang", "crash")), ("out_of_memory", True, ("oom_device", "oom_host")),
    ("exit_code", EXIT_GOOD, ("ok",)), ("exit_code", EXIT_BAD_INPUT, ("invalid",)),
    ("kind", "failed", ("oom_device", "oom_host", "hang", "crash", "nan", "timeout")),
])  # fmt: skip
def test_what_is_done_with_an_outcome(flag: str, value: object, statuses: tuple[str, ...]) -> None:
    assert outcomes.having(flag, value) == statuses


def test_a_batch_systems_words_are_each_of_one_status() -> None:
    words = [word for kind in outcomes.OUTCOMES.values() for word in kind.scheduler]
    assert len(words) == len(set(words)) and outcomes.BY_SCHEDULER["PREEMPTED"] == "cancelled"
    assert outcomes.OUTCOMES["timeout"].exit_code == EXIT_OTHER_OUTCOME


def test_a_table_has_the_short_words() -> None:
    shown = {status: csvjson._status(Record(state="failed", outcome=Outcome(status=status))) for status in get_args(Status)[1:]}
    assert shown == {"oom_device": "oom", "oom_host": "oom", "hang": "hang", "crash": "fail", "nan": "nan",
                     "timeout": "timeout", "invalid": "invalid", "cancelled": "cancelled", "not_started": "no start",
                     "crowded": "crowded"}  # fmt: skip
