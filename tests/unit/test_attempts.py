"""The helper of bars on the clock: three attempts, and not one more."""
from __future__ import annotations

import pytest

import attempts


@pytest.mark.parametrize(("good_at", "tried"), [(1, 1), (3, 3)])
def test_one_good_attempt_of_three_is_enough(good_at: int, tried: int) -> None:
    seen: list[int] = []

    def check() -> int:
        seen.append(1)
        assert len(seen) >= good_at
        return 7

    assert attempts.one_of_three(check) == 7 and len(seen) == tried


def test_what_never_holds_fails_with_the_last_reason() -> None:
    seen: list[int] = []

    def check() -> None:
        seen.append(1)
        raise AssertionError(f"attempt {len(seen)}")

    with pytest.raises(AssertionError, match="attempt 3"):
        attempts.one_of_three(check)


def test_another_error_than_a_missed_bar_is_not_tried_again() -> None:
    seen: list[int] = []

    def check() -> None:
        seen.append(1)
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        attempts.one_of_three(check)
    assert len(seen) == 1


def test_the_fastest_of_three_is_the_least() -> None:
    taken = iter([3.0, 1.0, 2.0])
    assert attempts.fastest_of_three(lambda: next(taken)) == 1.0
