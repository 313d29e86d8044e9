"""Choices in arithmetic that is done with numbers and with the planner's columns alike: a condition is 0 or 1.

    pick(which, this, other)            this where `which`
"""
from __future__ import annotations

from typing import Any

Count = Any
"""A number, or one a layout."""


def pick(which: Count, this: Count, other: Count) -> Count:
    """`which` is 0 or 1."""
    return other + which * (this - other)


def larger(*values: Count) -> Count:
    most, *rest = values
    for value in rest:
        most = most + (value > most) * (value - most)
    return most


def smaller(one: Count, other: Count) -> Count:
    return one + (other < one) * (other - one)


def ever(which: Count) -> bool:
    """Whether it is so anywhere."""
    return bool(which.any()) if hasattr(which, "any") else bool(which)
