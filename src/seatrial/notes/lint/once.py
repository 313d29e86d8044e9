"""`functools.cached_property` without its lock, which every row and figure would take a dozen times (Python 3.12 has none)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class once(Generic[T]):
    """What is worked out when it is first asked for, and kept."""

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work, self._name = work, work.__name__

    def __get__(self, of: Any, owner: type) -> T:
        value = of.__dict__[self._name] = self._work(of)
        return value
