"""A change of one cell that would mend its row, and what speaks for it, in points.

What several questions weigh alike stands here; what only one of them weighs stands where it is asked.
"""
from __future__ import annotations

from dataclasses import dataclass

from seatrial.notes.lint.findings import Ground

ANOTHER_RELATION, ABOVE = 2.0, 1.5
"""One more broken relation that it mends; the cell above says what is printed."""
WORKED_OUT = 2.0
"""Steps of accumulation follow from batch, micro-batch and devices, which are chosen."""
FAR = 1.2
"""Logarithm of a factor beyond which a value needs more for it than that it would mend the row."""


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A change of one cell after which everything agrees."""

    name: str
    value: object
    shown: str
    score: float
    why: str = ""
    code: str = ""
    other: str = ""
    """Of two figures that were exchanged the other one."""
    ground: Ground = "law"
