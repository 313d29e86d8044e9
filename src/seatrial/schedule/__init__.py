"""Pipeline schedules as data: what the engine executes, the planner times, the memory model counts and the page draws.

    python -m seatrial.schedule 1f1b 4 8            a picture of 4 ranks and 8 micro-batches
    python -m seatrial.schedule interleaved 4 8 2   the same with 2 virtual stages per rank

`lists.py`: who does what in which order, what is held, who sends to whom. `time.py`: when, the walk over the lists and its
picture. Both need the standard library alone. `vector.py`: how long and how full, exactly, for whole tables of layouts from
the same lists; it takes numpy, so it is imported by its own name.
"""
from __future__ import annotations

from seatrial.schedule.lists import (
    GROUPED,
    KINDS,
    Action,
    Channel,
    Kind,
    PeakActivations,
    Schedule,
    ScheduleKind,
    arrivals_in_order,
    channels,
    check,
    comes_from,
    global_stage,
    goes_to,
    peak_activations,
    schedule,
    splits_backward,
    virtual_stages_wrong,
)
from seatrial.schedule.time import Durations, Seconds, Span, Timeline, durations, picture, walk

__all__ = [
    "KINDS", "ScheduleKind", "Schedule", "GROUPED", "Kind", "Action", "schedule", "check", "virtual_stages_wrong",
    "splits_backward", "global_stage", "PeakActivations", "peak_activations",
    "Channel", "channels", "comes_from", "goes_to", "arrivals_in_order",
    "Seconds", "Durations", "durations", "Span", "Timeline", "walk", "picture",
]  # fmt: skip
