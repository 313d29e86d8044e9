"""How long a pipeline schedule takes, without walking it where a form is known."""
from __future__ import annotations

from seatrial.schedule_walk import Seconds, walk


def makespan(
    kind: str,
    *,
    pp: int,
    microbatches: int,
    virtual: int = 1,
    forward_s: Seconds,
    backward_s: Seconds,
    weight_s: Seconds | None = None,
    send_s: Seconds = 0.0,
) -> float:
    """Seconds from the first action to the last."""
    return walk(
        kind, pp=pp, microbatches=microbatches, virtual=virtual,
        forward_s=forward_s, backward_s=backward_s, weight_s=weight_s, send_s=send_s,
    ).total_s  # fmt: skip
