"""What a run has kept when it ends early, and the save or load that stood still, in words.

    kept(events, beats)             "the checkpoint of step 40 is whole"; empty for a run that saves nothing
    stood_still(stalls)             the report of the rank whose save or load did not move; None when none was to blame
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping

from seatrial.engine.watch.heartbeat import Beat, so_far
from seatrial.engines.base import Event
from seatrial.launch.hang import Report


def kept(events: Iterable[Event], beats: Iterable[Beat]) -> str:
    """Of a run that was asked to stop: up to which step it can be resumed, and what is lost."""
    saves, last, whole = False, 0, 0
    for event in events:
        if event["event"] == "start":
            # What it went on from is a whole checkpoint too.
            saves, last = bool((event.get("recipe") or {}).get("checkpoint_dir")), int(event.get("step", 0))
            whole = last
        elif event["event"] == "iteration":
            last = int(event["step"])
        elif event["event"] == "saved":
            whole = int(event["step"])
    if not saves:
        return ""
    said = f"the checkpoint of step {whole} is whole"
    if whole and whole >= last:
        return said
    where = "".join(f": the save of rank {b.rank} stood at {so_far(b.done, b.total)}" for b in _unfinished(beats)[:1])
    return f"step {last} was not saved{where}; {said}" if whole else f"nothing was saved{where}"


def _unfinished(beats: Iterable[Beat]) -> list[Beat]:
    return sorted((b for b in beats if b.work == "save"), key=lambda b: (b.done - b.total, b.rank))


def stood_still(stalls: Mapping[int, Report]) -> Report | None:
    own = [s for s in stalls.values() if s.get("standing") in ("save", "load")]
    return max(own, key=lambda s: (s.get("total", 0) - s.get("done", 0), -s["rank"]), default=None)
