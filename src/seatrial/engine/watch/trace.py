"""Chosen iterations as a picture: what every rank's timers did when, as a Chrome trace that Perfetto opens.

    write(Path("out/trace.step3.json"), step=3, ranks=[RankSpans(rank=0, origin_s=…, spans=[…]), …])

One process a rank, so the pipeline's bubbles and the waits of one rank on another stand under each other.
"""
from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.engine.watch.timers import Span


@dataclass(frozen=True, kw_only=True)
class RankSpans:
    rank: int
    origin_s: float
    """Wall clock when the spans' own clock was zero."""
    spans: Sequence[Span]
    label: str = ""


def write(path: Path, *, step: int, ranks: Iterable[RankSpans]) -> None:
    every = sorted(ranks, key=lambda r: r.rank)
    start = min((r.origin_s for r in every), default=0.0)
    events: list[dict[str, object]] = []
    for r in every:
        events.append({"ph": "M", "name": "process_name", "pid": r.rank, "args": {"name": f"rank {r.rank} {r.label}".strip()}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": r.rank, "args": {"sort_index": r.rank}})
        for span in r.spans:
            events.append({"ph": "X", "name": span.name, "cat": "timer", "pid": r.rank, "tid": 0,
                           "ts": round((r.origin_s - start + span.start_s) * 1e6, 3),
                           "dur": round((span.end_s - span.start_s) * 1e6, 3)})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "metadata": {"step": step}}))
