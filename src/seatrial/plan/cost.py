"""What a whole training run takes: days, device-hours, money, energy, with the batch ramp-up counted at its own pace.

    run = whole_run(lambda gbs: seconds_at(gbs), batch, tokens=300e9, seq=2048, devices=384, price=1.5, power_w=400)
    run.days, run.device_hours, run.money, run.energy_mwh

Energy is the devices' rated power for as long as they are held: hosts, network and cooling come on top.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from seatrial.errors import BadInput
from seatrial.spec import Batch


@dataclass(frozen=True, kw_only=True)
class WholeRun:
    tokens: float
    iterations: int
    days: float
    device_hours: float
    money: float | None
    """In the unit of the price."""
    energy_mwh: float | None
    ramp_days: float
    """Of the days, those before the batch has its final size."""


def ramp_stages(batch: Batch) -> list[tuple[int, int]]:
    """(consumed samples at its end, batch size) of each stage of the ramp-up, as `Batch.size_at` has it."""
    if batch.rampup_start is None or batch.rampup_increment is None or batch.rampup_samples is None:
        return []
    steps = (batch.gbs - batch.rampup_start) // batch.rampup_increment
    start, increment, samples = batch.rampup_start, batch.rampup_increment, batch.rampup_samples
    return [(-(-(i + 1) * samples // steps), start + i * increment) for i in range(steps)]


def whole_run(sec_at: Callable[[int], float], batch: Batch, *, tokens: float, seq: int, devices: int,
              price: float | None = None, power_w: float | None = None) -> WholeRun:
    """`sec_at` gives the seconds of an iteration by its batch size."""
    if not tokens > 0:
        raise BadInput(f"tokens {tokens:g}: must be above 0")
    samples = math.ceil(tokens / seq)
    consumed, iterations, ramp_s = 0, 0, 0.0
    for end, size in ramp_stages(batch):
        count = max(0, -(-(min(end, samples) - consumed) // size))
        consumed += count * size
        iterations += count
        ramp_s += count * sec_at(size) if count else 0.0
    count = max(0, -(-(samples - consumed) // batch.gbs))
    iterations += count
    seconds = ramp_s + (count * sec_at(batch.gbs) if count else 0.0)
    device_hours = seconds * devices / 3600
    return WholeRun(
        tokens=tokens, iterations=iterations, days=seconds / 86400, device_hours=device_hours, ramp_days=ramp_s / 86400,
        money=None if price is None else device_hours * price,
        energy_mwh=None if power_w is None else device_hours * power_w / 1e6,
    )  # fmt: skip
