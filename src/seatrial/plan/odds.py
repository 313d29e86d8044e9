"""Whether a layout fits, as a probability: one function for every command.

    odds(need_gib, sigma, limit_gib)        that what it cannot run without is there
    word(0.93)                              yes from 80 %, no under 20 %, tight between

`sigma` is the standard deviation of the logarithm of the need: what the engine's facts leave open, or less where rows were
learned from.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from seatrial.plan.configs import Floats

LIKELY, UNLIKELY = 0.8, 0.2


def odds(need_gib: Any, sigma: Any, limit_gib: Any) -> Floats:
    need = np.maximum(np.asarray(need_gib, dtype=np.float64), 1e-9)
    return _normal(np.log(limit_gib / need) / np.maximum(sigma, 1e-6))


def word(odds: float) -> str:
    return "yes" if odds >= LIKELY else "no" if odds < UNLIKELY else "tight"


def _normal(z: Floats) -> Floats:
    """The normal distribution function to 1e-7 (Abramowitz and Stegun 26.2.17): scipy takes longer to import than a plan to
    make."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    above = np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * tail
    return np.where(z > 0, 1 - above, above)
