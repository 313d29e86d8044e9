"""By how much figures that belong together may miss each other: times and rates are means, and not of the same iterations.

    misses = Misses.of((off, digits) for each row)       of a relation that the rows of a table keep to
    misses.but(off, digits)                              what one row may miss it by beyond its digits, judged by the others
    said(lines)                                          what the text says that they do: `up to 2 % apart`

Where the others agree to their last digit nothing is allowed: there a slip of a hundredth is a slip.
"""
from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

WINDOW = 0.03
"""Within which rows are taken to keep to a relation."""
TIMES = 4.5
"""How often what the others miss it by, on average, a row may."""
LOOSE, LITTLE = 0.2, 0.018
"""Where more than this share of the others misses it at all, a row may miss it by so little in any case."""
TWICE = 2.0
"""And by so many times what the second of them does: the first may be a slip itself."""
FEWEST, FEW = 3, 5
NOTICED = 0.0008
"""What is less is a digit that was rounded on the way."""


@dataclass(frozen=True)
class Misses:
    total: float = 0.0
    rows: int = 0
    loose: int = 0
    most: tuple[float, ...] = ()
    """The three largest, the largest first."""
    squares: float = 0.0
    """Of the differences themselves, digits or not."""

    @classmethod
    def of(cls, offs: Iterable[tuple[float, float]]) -> Misses:
        near, squares = [], 0.0
        for off, digits in offs:
            miss = abs(off) - digits
            if miss <= WINDOW:
                near.append(miss if miss > 0.0 else 0.0)
                squares += off * off
        return cls(sum(near), len(near), sum([miss > NOTICED for miss in near]), tuple(sorted(near, reverse=True)[:3]), squares)

    @property
    def is_loose(self) -> bool:
        return self.loose > max(1.0, LOOSE * self.rows)

    def stands_out(self, off: float, digits: float) -> float:
        """How many times the usual difference of the other rows a row's own is; none where there are too few of them."""
        inside = abs(off) <= digits + WINDOW
        rows, squares = self.rows - inside, self.squares - (off * off if inside else 0.0)
        few = (1 + FEW / rows) / (1 + FEW / 10) if self.is_loose and rows else 1.0  # what a few rows differ by tells less
        return abs(off) / math.sqrt(max(squares, 1e-12) / rows) / few if rows >= FEWEST else math.inf

    def but(self, off: float, digits: float) -> float:
        total, rows, loose, most = self.total, self.rows, self.loose, self.most
        if abs(off) <= digits + WINDOW:
            miss = max(0.0, abs(off) - digits)
            total, rows, loose = total - miss, rows - 1, loose - (miss > NOTICED)
            if miss in most and loose:
                at = most.index(miss)
                most = most[:at] + most[at + 1 :]
        if rows < 1 or not loose:
            return 0.0
        return max(TIMES * total / rows, *((LITTLE, TWICE * most[1]) if loose > max(1.0, LOOSE * rows) else (0.0,)))


NONE = Misses()


WORDS = ("differ", "apart", "agree", "scatter", "noise", "window", "abweich", "fenster", "écart", "scart")
"""One of them is in a sentence about it."""
_AMOUNT = re.compile(
    r"(?<![\d.,])(?:\d(?:[.,]\d)?\s?(?:-|–|to|bis|or|à)\s?)?(\d(?:[.,]\d+)?)\s?(?:%|per ?cent|prozent|pour ?cent|por ciento)|"
    r"\b(?:an?|one|ein|einem|un|eines)\s(?:per ?cent|prozent|pour ?cent|por ciento)(\s(?:or|oder|ou) (?:two|zwei|deux))?",
    re.IGNORECASE,
)
MOST_SAID = 0.03
"""What is more is no scatter but a result."""


def said(lines: Iterable[str]) -> float:
    """By how much, as a share, times and rates differ at most as the text has it; 0 where it says nothing."""
    sentences = (sentence for line in lines
                 for sentence in re.split(r"(?<=[a-z)])[.;:] ", line) if any(word in sentence.casefold() for word in WORDS))
    shares = [float((match[1] or ("2" if match[2] else "1")).replace(",", ".")) / 100
              for sentence in sentences for match in _AMOUNT.finditer(sentence)]
    return max((share for share in shares if share <= MOST_SAID), default=0.0)
