"""Documents packed into a sequence: how long they are, and where they begin in a sample.

    found = Documents.parse("lognormal:800:1.2")        a BadInput that says what would work
    found.starts(4096, uniforms)                        (0, 612, 1984, …), each length out of two numbers from 0 to 1

Every sample begins with a document, and its last one is cut at the sequence's end. `corpus` has no lengths of its own: they are
those of the .idx file (`engine/io/data.py`), where a sample begins anywhere in a document.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from seatrial.errors import BadInput

CORPUS = "corpus"
KINDS: dict[str, tuple[str, ...]] = {
    "fixed": ("LENGTH",), "uniform": ("LEAST", "MOST"), "lognormal": ("MEAN", "SIGMA"), "exponential": ("MEAN",), CORPUS: (),
}  # fmt: skip
FORMS = ", ".join(":".join((kind, *names)) for kind, names in KINDS.items())
MOST_TOKENS, MOST_SIGMA = 1e9, 5.0


class Documents(NamedTuple):
    kind: str
    first: float = 0.0
    """A length, the least one, or the mean …"""
    second: float = 0.0
    """… and the greatest, or the standard deviation of the logarithm."""

    @classmethod
    def parse(cls, text: str, where: str = "batch.documents") -> Documents:
        kind, *rest = text.strip().split(":")
        names = KINDS.get(kind)
        try:
            values = [float(part) for part in rest]
        except ValueError:
            names, values = None, []
        if names is None or len(values) != len(names):
            raise BadInput(f"{where} {text!r}: expected {FORMS}, as fixed:1024 or lognormal:800:1.2")
        for name, value in zip(names, values):
            if name == "SIGMA":
                if not 0 < value <= MOST_SIGMA:
                    raise BadInput(f"{where} {text!r}: SIGMA, of the lengths' logarithm, goes up to {MOST_SIGMA:g}; 1 is usual")
            elif not 1 <= value <= MOST_TOKENS or kind in ("fixed", "uniform") and value != int(value):
                raise BadInput(f"{where} {text!r}: {name} is in tokens, a{' whole' if kind in ('fixed', 'uniform') else ''} "
                               f"number from 1 to {MOST_TOKENS:.0e}")
        if kind == "uniform" and values[0] > values[1]:
            raise BadInput(f"{where} {text!r}: LEAST is above MOST: uniform:{rest[1]}:{rest[0]}")
        return cls(kind, *values)

    def length(self, u: Any, v: Any, maths: Any = math) -> Any:
        """Before it is rounded to whole tokens. `u` and `v`: from 0 to below 1, numbers or, with numpy as `maths`, arrays."""
        if self.kind == "uniform":
            return self.first + maths.floor(u * (self.second - self.first + 1))
        if self.kind == "exponential":
            return -self.first * maths.log(1.0 - u)
        if self.kind == "lognormal":
            normal = maths.sqrt(-2.0 * maths.log(1.0 - u)) * maths.cos(2.0 * math.pi * v)
            return maths.exp(math.log(self.first) - self.second**2 / 2 + self.second * normal)
        return self.first + 0.0 * u

    def starts(self, seq: int, uniforms: Iterator[float]) -> tuple[int, ...]:
        found, at = [], 0
        while at < seq:
            found.append(at)
            at += max(1, math.floor(self.length(next(uniforms), next(uniforms)) + 0.5))
        return tuple(found)
