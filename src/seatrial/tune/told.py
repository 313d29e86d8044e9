"""What the tuner keeps of a trial that was run: a few figures of its record.

    Told.of(record)             from a `Record`, an `Outcome`, or plain seconds an iteration
"""
from __future__ import annotations

import math
from dataclasses import dataclass

from seatrial.errors import BadInput
from seatrial.record import Outcome, Record


@dataclass(frozen=True, kw_only=True)
class Told:
    status: str
    sec_per_it: float | None = None
    """None where it did not come to a figure that counts."""
    mem_gib: float | None = None
    session: str = ""
    repeat: float = 0.0
    """How well the median is known, as the standard deviation of its logarithm."""
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.sec_per_it is not None

    @classmethod
    def of(cls, result: Record | Outcome | float) -> Told:
        if isinstance(result, Outcome):
            if result.status == "ok":
                raise BadInput("an outcome `ok` has no time: tell the record, or the seconds an iteration took")
            return cls(status=result.status, message=result.message)
        if isinstance(result, Record):
            return _of_record(result)
        seconds = float(result)
        if not math.isfinite(seconds) or seconds <= 0:
            raise BadInput(f"{seconds:g} seconds an iteration: expected a number above 0; tell a failure as its outcome")
        return cls(status="ok", sec_per_it=seconds)


def _of_record(record: Record) -> Told:
    if record.measurement.get("kind") == "rehearsed":
        raise BadInput("this record was rehearsed, one rank at a time: a tuner learns from trials that were run")
    outcome = record.outcome or Outcome(status="ok")
    counts = outcome.status == "ok" and record.state in ("measured", "estimated") and record.sec_per_it is not None
    low, high = record.measurement.get("low_s"), record.measurement.get("high_s")
    sure = isinstance(low, float) and isinstance(high, float) and 0 < low <= high
    return Told(status=outcome.status if counts or outcome.status != "ok" else "crash",
                sec_per_it=record.sec_per_it if counts else None, mem_gib=record.mem_gib, session=record.session,
                repeat=math.log(high / low) / 2 / 1.96 if sure else 0.0,  # type: ignore[operator]
                message=outcome.message)
