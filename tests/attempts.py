"""Bars on the clock, on a machine that others use too.

    attempts.one_of_three(check)            passes if check() holds in one of three attempts; else raises what the last one said
    attempts.fastest_of_three(measure)      the least of three measurements: what the code takes when nothing else runs

A neighbour can make anything slower and nothing faster, so the best attempt says what the code does. What must hold always,
whatever the load (losses, outcomes, rows), belongs outside.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def one_of_three(check: Callable[[], T]) -> T:
    for left in (2, 1, 0):
        try:
            return check()
        except AssertionError as error:
            if not left:
                raise
            print(f"one more attempt, {left} left: {error}")
    raise AssertionError("not reached")


def fastest_of_three(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(3))
