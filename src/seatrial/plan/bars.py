"""Small pictures in letters: stacked bars, intervals and dots on one axis. Each is a list of (text, colour) to print.

    stacked({"matmul": 70.0, "bubble": 30.0}, longest=120.0, cells=40)          [("██████████████", "blue"), ("······", …)]
    axis = Axis(0.8, 1.1, cells=40)
    axis.interval(0.86, 0.91, 0.97, marks={1.0: "┆"})                           "       ├────●─────┤   ┆     "

Every group has a letter of its own beside its colour, so that nothing is lost in a pipe, without colours, or on paper.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Spans = list[tuple[str, str]]
"""Text with the colour it has on a terminal."""


class Group(NamedTuple):
    name: str
    letter: str
    colour: str
    parts: tuple[str, ...]


GROUPS = (
    Group("products", "█", "blue", ("matmul", "attention", "logits")),
    Group("memory", "▓", "cyan", ("memory", "accumulate", "embedding", "optimizer")),
    Group("tensor", "▒", "yellow", ("tensor",)),
    Group("messages", "░", "magenta", ("p2p", "gradients")),
    Group("host", "╱", "green", ("launch", "fixed")),
    Group("bubble", "·", "bright_black", ("bubble",)),
)
"""The planner's parts in the few that a line of letters can tell apart."""


def grouped(parts: Mapping[str, float]) -> dict[str, float]:
    """Seconds by group, in the order they are drawn; what belongs to none is drawn with the host's."""
    home = {part: group.name for group in GROUPS for part in group.parts}
    found = {group.name: 0.0 for group in GROUPS}
    for part, seconds in parts.items():
        found[home.get(part, "host")] += seconds
    return found


def stacked(parts: Mapping[str, float], *, longest: float, cells: int) -> Spans:
    """One bar; its length is the sum's share of `longest`. Ends are rounded, so no cell is counted twice or lost."""
    spans, drawn, upto = [], 0, 0.0
    for group, seconds in zip(GROUPS, grouped(parts).values()):
        upto += seconds
        end = min(cells, round(upto / longest * cells))
        if end > drawn:
            spans.append((group.letter * (end - drawn), group.colour))
        drawn = max(drawn, end)
    return [*spans, (" " * (cells - drawn), "")]


def legend(parts: Mapping[str, float]) -> list[Spans]:
    """What the letters mean, with the share of each in these parts."""
    total = sum(parts.values())
    shares = grouped(parts)
    return [[(group.letter * 2, group.colour), (f" {group.name} {shares[group.name] / total:.0%}", "")]
            for group in GROUPS if shares[group.name] >= 0.005 * total]


@dataclass(frozen=True)
class Axis:
    """A line of `cells` letters from `low` to `high`."""

    low: float
    high: float
    cells: int

    def place(self, value: float) -> int:
        span = self.high - self.low
        share = (value - self.low) / span if span > 0 else 0.5
        return round(max(0.0, min(1.0, share)) * (self.cells - 1))

    def interval(self, low: float, middle: float, high: float, *, marks: Mapping[float, str] = {}) -> str:
        """From end to end with its middle; `marks` are put over it, where they do not hide the middle."""
        line = [" "] * self.cells
        first, last = self.place(low), self.place(high)
        line[first : last + 1] = "─" * (last - first + 1)
        line[first], line[last] = "├", "┤"
        return self._marked(line, middle, marks)

    def point(self, middle: float, *, marks: Mapping[float, str] = {}) -> str:
        return self._marked([" "] * self.cells, middle, marks)

    def _marked(self, line: list[str], middle: float, marks: Mapping[float, str]) -> str:
        for value, letter in marks.items():
            if self.low <= value <= self.high:
                line[self.place(value)] = letter
        line[self.place(middle)] = "●" if line[self.place(middle)] != "◆" else "◈"
        return "".join(line)

    def dots(self, values: Iterable[float], middle: float) -> str:
        """Each value a dot, the middle a stroke."""
        line = [" "] * self.cells
        for value in values:
            line[self.place(value)] = "•"
        line[self.place(middle)] = "┃"
        return "".join(line)
