"""Memory of many layouts as it is known, cold or from rows that were learned from, and the odds that each fits.

    held = Held.of(configs, cluster, fit)
    held.gib, held.need_gib, held.odds, held.parts["weights"]
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seatrial.plan import memory
from seatrial.plan.configs import Configs, Floats
from seatrial.plan.odds import Headroom, limit_gib, odds
from seatrial.spec import Cluster

if TYPE_CHECKING:
    from seatrial.plan.calibrate import Calibration


@dataclass(frozen=True, kw_only=True)
class Held:
    gib: Floats
    need_gib: Floats
    """What it cannot run without."""
    sigma: Floats
    """Of the logarithm of either."""
    parts: dict[str, Floats]
    limit_gib: float | Floats
    """What there is, less the headroom."""
    device_gib: float | Floats
    """What there is."""

    @classmethod
    def of(cls, configs: Configs, cluster: Cluster, fit: Calibration | None, headroom: Headroom = Headroom()) -> Held:
        found = memory.peak(configs, cluster)
        there, limit = limit_gib(cluster), limit_gib(cluster, headroom)
        if fit is None:
            return cls(gib=found.gib, need_gib=found.need_gib, sigma=found.sigma, parts=found.parts, limit_gib=limit,
                       device_gib=there)
        gib = fit.held.gib(found)
        # What rows have taught about the whole is no part's own: it is shown beside them.
        parts = {**found.parts, "learned": gib - found.gib}
        return cls(gib=gib, need_gib=fit.held.need(found), sigma=fit.held.sigma(found), parts=parts, limit_gib=limit,
                   device_gib=there)

    @property
    def odds(self) -> Floats:
        return odds(self.need_gib, self.sigma, self.limit_gib)

    @property
    def shown_gib(self) -> Floats:
        """What a monitor would show: the allocator gives back what it only keeps when the device is full."""
        return np.where(self.need_gib <= self.device_gib, np.minimum(self.gib, self.device_gib), self.gib)
