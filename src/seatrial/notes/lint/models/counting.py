"""How many parameters a dense model has by its sides, in the ways that people count them.

    Shape({"layers": 24, "hidden": 2048, "vocab": 50304}).ways()       {"usual 0": 1.21e9, "usual 1": 1.31e9, "usual 2": 1.41e9}

The number of a way is how often it counts the embedding.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from seatrial.notes.lint.models.known import VERY_WIDE

LARGEST = 262_144
"""Words of the largest vocabulary that is usual."""


@dataclass(frozen=True)
class Shape:
    """Numbers of a model, whatever of them is said, and how often the embedding is counted."""

    has: Mapping[str, int]
    each: int = 0
    gated: bool | None = None
    tied: bool | None = None

    def ways(self) -> dict[str, float]:
        """How people count it -> parameters."""
        has = self.has
        layers, h, ffn = has["layers"], has["hidden"], has.get("ffn", 0)
        heads, kv = has.get("heads", 0), has.get("kv_heads", 0)
        width = heads * self.each if heads and self.each else h
        share = kv / heads if heads and kv and kv <= heads else 1.0
        often = (0, 1, 2) if self.tied is None else (0, 1) if self.tied else (0, 2)
        kinds = ("plain",) if self.gated is False else ("gated", "plain") if ffn == 4 * h and not self.gated else ("gated",)
        wide = {kind: (2 if kind == "plain" else 3) * ffn for kind in kinds} if ffn else {"usual": 8 * h}
        return {f"{kind} {many}": layers * ((2 + 2 * share) * width + each) * h + many * has.get("vocab", 0) * h
                for kind, each in wide.items() for many in often if many == 0 or has.get("vocab")}  # fmt: skip

    @property
    def whole(self) -> bool:
        """Whether nothing is left to be guessed."""
        heads, kv = self.has.get("heads", 0), self.has.get("kv_heads", 0)
        return bool(self.has.get("vocab") and self.has.get("ffn") and (heads and kv or self.gated is False))

    def bounds(self) -> tuple[float, float]:
        """The fewest and the most parameters, whatever is not said."""
        has = self.has
        layers, h, ffn = has["layers"], has["hidden"], has.get("ffn", 0)
        heads, kv = has.get("heads", 0), has.get("kv_heads", 0)
        width = heads * self.each if heads and self.each else h
        shares = (4.0, 4.0) if self.gated is False else (2.25, 4.0)
        if heads and kv and kv <= heads:
            shares = (2 + 2 * kv / heads,) * 2
        wide = (8.0 * h, (8.0 if self.gated is False else 24.0 if (layers, h) in VERY_WIDE else 16.0) * h)
        if ffn:
            wide = (2.0 if self.gated is False or ffn == 4 * h and not self.gated else 3.0) * ffn, \
                   (2.0 if self.gated is False else 3.0) * ffn
        words = 2 * (has.get("vocab") or LARGEST)
        return layers * (shares[0] * width + wide[0]) * h, (layers * (shares[1] * width + wide[1]) + words) * h

    def with_(self, name: str, value: int) -> Shape:
        return Shape({**self.has, name: value}, self.each, self.gated, self.tied)

    def off(self, size: float) -> float:
        """How far the nearest way to count is from a number of parameters."""
        return min(abs(way / size - 1) for way in self.ways().values())

    def outside(self, size: float) -> float:
        low, high = self.bounds()
        return max(low / size - 1, 1 - high / size, 0.0)

    def costs(self, cost: float, seq: int) -> float:
        """How far from what a token costs it is, with attention, with the half of it that is not masked, and without."""
        attention = 2 * self.has["layers"] * self.has["hidden"] * seq
        return min(abs((way + part * attention) * 6 / cost - 1) for way in self.ways().values() for part in (0, 0.5, 1))


def oddness(has: Mapping[str, int], size: float) -> float:
    """Whether a large model would be as narrow, or as wide, for its depth as none is."""
    aspect = has["hidden"] / max(1, has["layers"])
    return 0.75 * (size > 5e9 and aspect < 64 or aspect > 240 or aspect < 20)


def usualness(has: Mapping[str, int]) -> float:
    """How usual widths are together: heads of 128 or 64, a feed-forward of four times the width, or of 8/3 of it."""
    hidden, heads, ffn = has["hidden"], has.get("heads", 0), has.get("ffn", 0)
    usual = 0.0
    if heads:
        usual += -2.0 if hidden % heads else {128: 1.5, 64: 1.0, 80: 0.7, 96: 0.7, 256: 0.5}.get(hidden // heads, -0.5)
    if ffn:
        ratio = ffn / hidden
        usual += 1.5 if ratio in (4, 3.5, 3, 2.5) or abs(ratio / (8 / 3) - 1) < 0.03 else 0.0 if 2.4 < ratio < 5.5 else -0.5
    return usual
