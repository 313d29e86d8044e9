"""Pipeline schedules as data: what the engine executes, the planner times, the memory model counts and the page draws.

    python -m seatrial.schedule 1f1b 4 8            a picture of 4 ranks and 8 micro-batches
    python -m seatrial.schedule interleaved 4 8 2   the same with 2 virtual stages a rank

This is the door; behind it are `schedule_lists.py` (who does what in which order, what is held, who sends to whom),
`schedule_walk.py` (when: the walk and its picture) and `schedule_makespan.py` (how long, exactly, without the walk). For whole
tables at once the planner has closed forms, `plan/pipeline.py`, which tests hold to the walk.
"""
from __future__ import annotations

from seatrial.schedule_lists import (
    KINDS,
    Action,
    Channel,
    Held,
    Kind,
    arrivals_in_order,
    channels,
    check,
    comes_from,
    global_stage,
    goes_to,
    held,
    in_flight,
    peak_held,
    peak_in_flight,
    schedule,
    splits_backward,
    warm_up,
)
from seatrial.schedule_makespan import makespan
from seatrial.schedule_walk import Durations, Seconds, Span, Timeline, durations, picture, walk

__all__ = [
    "KINDS", "Kind", "Action", "schedule", "check", "warm_up", "splits_backward", "global_stage",
    "Held", "held", "in_flight", "peak_held", "peak_in_flight",
    "Channel", "channels", "comes_from", "goes_to", "arrivals_in_order",
    "Seconds", "Durations", "durations", "Span", "Timeline", "walk", "picture", "makespan",
]  # fmt: skip

if __name__ == "__main__":
    import sys

    kind, *numbers = sys.argv[1:] or ["1f1b", "4", "8"]
    pp, microbatches, virtual = (int(n) for n in [*numbers, "1"][:3])
    timeline = walk(kind, pp=pp, microbatches=microbatches, virtual=virtual, forward_s=1.0, backward_s=2.0)
    print(picture(timeline))
    print(f"{timeline.total_s:g} s with F 1 s and B 2 s a stage, {max(timeline.wait_s):g} s of it the bubble")
