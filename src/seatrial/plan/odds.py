"""Whether a layout fits, as a probability: one function for every command.

    odds(need_gib, sigma, limit_gib)        that what it cannot run without is there
    word(0.93)                              yes from 80 %, no under 20 %, tight between
    limit_gib(cluster, Headroom.read("5%")) what there is, less what is to stay free
    expected(seconds, odds)                 what a search ranks by: of tight ones the seconds until one survives

`sigma` is the standard deviation of the logarithm of the need: what the engine's facts leave open, or less where rows were
learned from.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seatrial.arith import TIE
from seatrial.errors import BadInput
from seatrial.plan import probed
from seatrial.plan.configs import Floats
from seatrial.spec import Cluster

LIKELY, EVEN, UNLIKELY = 0.8, 0.5, 0.2
"""Under the second it more likely runs out than not."""
SURPRISE = 0.001
"""Of what no model of memory knows: nothing is more certain than this."""


def odds(need_gib: Any, sigma: Any, limit_gib: Any) -> Floats:
    need = np.maximum(np.asarray(need_gib, dtype=np.float64), 1e-9)
    return np.clip(normal(np.log(limit_gib / need) / np.maximum(sigma, 1e-6)), SURPRISE, 1 - SURPRISE)


def word(odds: float) -> str:
    return "yes" if odds >= LIKELY else "no" if odds < UNLIKELY else "tight"


def percent(odds: float) -> str:
    """`93%`; nothing is certain."""
    return "over 99%" if odds > 0.99 else "under 1%" if odds < 0.01 else f"{odds:.0%}"


def expected(key: Floats, odds: Floats) -> Floats:
    """`key` (smaller is better; negative where more is better), of what is not likely to fit over its odds: what it costs until
    one survives. Those never come before what is likely: at their best they are a tie's width behind the first of it."""
    likely = odds >= LIKELY
    weight = np.where(likely, 1.0, odds)
    found = np.where(key > 0, key / weight, key * weight)
    if likely.any() and not likely.all():
        first = found[likely].min()
        found = np.where(likely, found, np.maximum(found, first * _BEHIND if first > 0 else first / _BEHIND))
    return found


_BEHIND = 1 + TIE + 1e-9


@dataclass(frozen=True)
class Headroom:
    """What is to stay free of a device's memory, or of a node's where the machine counts so."""

    gib: float = 0.0
    share: float = 0.0

    @classmethod
    def read(cls, value: object) -> Headroom:
        """`4`, `4GiB` or `5%`; nothing where nothing is said."""
        text = "" if value is None else str(value).strip()
        if not text:
            return cls()
        plain = text.lower().removesuffix("%").removesuffix("gib").strip()
        try:
            number = float(plain)
        except ValueError:
            number = float("nan")
        if not 0 <= number < (100 if text.endswith("%") else float("inf")):
            raise BadInput(f"--headroom {text!r}: expected GiB, as 4 or 4GiB, or a share of the device, as 5%")
        return cls(share=number / 100) if text.endswith("%") else cls(gib=number)


def limit_gib(cluster: Cluster, headroom: Headroom = Headroom()) -> float:
    """What there is of what the machine's memory column counts: one device, or the whole node."""
    each = probed.device_of(cluster).limit_gib
    there = each * cluster.procs_per_node if cluster.memory_convention == "node" else each
    left = there * (1 - headroom.share) - headroom.gib
    if left <= 0:
        raise BadInput(f"--headroom {headroom.gib:g}GiB: {cluster.device.name} has {there:.1f} GiB in all")
    return left


def normal(z: Floats) -> Floats:
    """The normal distribution function to 1e-7 (Abramowitz and Stegun 26.2.17): scipy takes longer to import than a plan to
    make."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    above = np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * tail
    return np.where(z > 0, 1 - above, above)
