"""The figures of the rows around one, kept in order while one walks down a table, so that time stays linear.

    nearby = Nearby(row.mates, lambda mate: mate.get("tflops"))
    nearby.middle(row)                               how many other rows have one, and the median of theirs
"""
from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator
from functools import partial

from seatrial.notes.lint.row import Row


class Nearby:
    """Of each row the middle of the others without its own."""

    def __init__(self, mates: list[Row], figure: Callable[[Row], float | None]) -> None:
        self._mates, self._figure = mates, figure
        self._start = self._end = 0
        self._held: dict[int, float] = {}
        self._ordered: list[float] = []
        self._of: dict[frozenset[str], Nearby] = {}

    def of(self, devices: frozenset[str]) -> Nearby:
        """The rows on the same devices alone; nearly always all of them."""
        if not self._of:
            kinds = {mate.devices for mate in self._mates}
            alike = (Nearby(self._mates, partial(self._on, kind)) for kind in kinds) if len(kinds) > 1 else (self,)
            self._of.update(zip(kinds, alike))
        return self._of[devices]

    def _on(self, devices: frozenset[str], row: Row) -> float | None:
        return self._figure(row) if row.devices == devices else None

    def middle(self, row: Row) -> tuple[int, float]:
        """How many other rows have a figure, and the median of theirs."""
        start, end = row.nearby
        if start < self._start:
            self._start, self._end, self._held, self._ordered = start, start, {}, []
        while self._end < end:
            self._take(self._end)
            self._end += 1
        while self._start < start:
            self._drop(self._start)
            self._start += 1
        own = self._held.get(row.place)
        at = len(self._ordered) if own is None else bisect.bisect_left(self._ordered, own)
        count = len(self._ordered) - (own is not None)
        if not count:
            return 0, math.nan
        low, high = (self._ordered[i if i < at else i + 1] for i in ((count - 1) // 2, count // 2))
        return count, low if count % 2 else (low + high) / 2

    def others(self, row: Row) -> Iterator[tuple[Row, float]]:
        """The other rows that have one with theirs, after `middle` was asked for the same row."""
        return ((self._mates[place], figure) for place, figure in self._held.items() if place != row.place)

    def has(self, low: float, high: float) -> bool:
        """Whether a row has a figure between two others."""
        at = bisect.bisect_left(self._ordered, low)
        return at < len(self._ordered) and self._ordered[at] <= high

    def ends(self, row: Row) -> tuple[float, float]:
        """The least and the most that another row has, after `middle` was asked for the same row."""
        own = self._held.get(row.place)
        first, last = self._ordered[:2], self._ordered[-2:]
        return first[1 if first[0] == own else 0], last[0 if last[-1] == own else -1]

    def changed(self, row: Row) -> None:
        """A finding proposed another figure for the row."""
        if self._start <= row.place < self._end:
            self._drop(row.place)
            self._take(row.place)

    def _take(self, place: int) -> None:
        figure = self._figure(self._mates[place])
        if figure is not None:
            self._held[place] = figure
            bisect.insort(self._ordered, figure)

    def _drop(self, place: int) -> None:
        figure = self._held.pop(place, None)
        if figure is not None:
            del self._ordered[bisect.bisect_left(self._ordered, figure)]
