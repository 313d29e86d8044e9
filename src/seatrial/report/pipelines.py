"""Pipelines as the page draws them: what the planner walks, and under it what the run's own trace says.

    drawn = pipelines.forecast(trial)
    pipelines.measured(run_dir)                 None where no step was traced

Spans are [letter, micro-batch, virtual stage, start, end] in seconds; a measured span has its timer's letter and no numbers.
"""
from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seatrial.errors import BadInput
from seatrial.record import Record
from seatrial.spec import Trial

Drawn = dict[str, Any]
"""`total_s`, `ranks` (labels), `spans` (a list per rank), and for a forecast `drawn` of `microbatches`."""

MOST_RANKS = 32
MOST_SPANS = 4000
MOST_TRACE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Span:
    """A kind of span: its word, its colour in files and its class on the page, the engine's timers that are it."""

    word: str
    colour: str
    css: str
    timers: tuple[str, ...] = ()


SPANS = {
    "F": Span("forward", "#0072b2", "c1", ("forward", "loss")),
    "B": Span("backward", "#009e73", "c9", ("backward",)),
    "W": Span("weight gradient", "#7fcdb3", "c10", ("weight",)),
    "R": Span("recompute", "#56b4e9", "c2", ("recompute",)),
    "A": Span("attention", "#9bd3f3", "c4", ("attention",)),
    "t": Span("tensor collective", "#d55e00", "c5", ("tp_comm",)),
    "e": Span("expert exchange", "#4a3fc4", "c16", ("ep_comm",)),
    "k": Span("context exchange", "#8f1d2c", "c14", ("cp_comm",)),
    "s": Span("sending", "#e69f00", "c6", ("pp_send",)),
    "w": Span("waiting", "#a9b0b7", "c8", ("pp_wait",)),
    "g": Span("reducing gradients", "#f0c987", "c7", ("grad_reduce",)),
    "a": Span("gathering weights", "#808000", "c15", ("weight_gather",)),
    "o": Span("optimizer", "#7d5ba6", "c12", ("optimizer",)),
    "d": Span("data", "#cc79a7", "c11", ("data",)),
    "c": Span("checkpoint", "#004b75", "c3", ("checkpoint",)),
    "x": Span("other", "#c9ced3", "c13", ("evaluation",)),
}
"""By the letter that a span of a drawing carries."""
LETTERS = {timer: letter for letter, span in SPANS.items() for timer in span.timers}
"""Another timer is `x`."""


def forecast(trial: Trial) -> Drawn | None:
    """None for one stage, for more stages than a picture can show, and for what cannot be."""
    from seatrial.plan import step
    from seatrial.plan.configs import Configs
    from seatrial.plan.explain import draw

    t = trial.topology
    if t.pp < 2 or t.pp > MOST_RANKS or trial.cluster is None:
        return None
    try:
        timed = step.time(Configs.from_trials([trial]), trial.cluster)
        timeline, drawn = draw(trial, timed, 12)
    except BadInput:
        return None
    spans = [[[s.action.kind.value, s.action.microbatch, s.action.chunk, _s(s.start_s), _s(s.end_s)] for s in rank]
             for rank in timeline.ranks]
    return {"total_s": _s(timeline.total_s), "ranks": [f"stage {i}" for i in range(t.pp)], "spans": spans, "drawn": drawn,
            "microbatches": trial.microbatches, "schedule": t.schedule}


def _s(value: float) -> float:
    return float(f"{value:.5g}")


def run_dir(book: Path, record: Record) -> Path | None:
    """The trial's folder, where it lies in this logbook; a logbook may have been moved, so what counts is the end of the path.

    A record cannot point outside: it is data, and data does not choose which files are read.
    """
    path = record.host.get("run_dir")
    if not isinstance(path, str) or not record.session:
        return None
    folder, root = book / "runs" / record.session / Path(path).name, (book / "runs").resolve()
    try:
        inside = folder.resolve(strict=True)
    except (OSError, ValueError):
        return None
    return inside if inside.is_relative_to(root) and inside != root else None


def measured(folder: Path) -> Drawn | None:
    """The last traced step of a run, one line per pipeline stage: that of the first replica and the first tensor rank."""
    traces = sorted(folder.glob("trace.step*.json"), key=lambda p: int("".join(re.findall(r"\d+", p.name)) or 0))
    try:
        if not traces or traces[-1].stat().st_size > MOST_TRACE_BYTES:
            return None
        found = json.loads(traces[-1].read_text(encoding="utf-8"))
        events = found["traceEvents"]
        names = {e["pid"]: str(e["args"]["name"]) for e in events if e["ph"] == "M" and e["name"] == "process_name"}
        chosen = _one_per_stage(names)
        kept = [e for e in events if e["ph"] == "X" and e["pid"] in chosen]
        if not chosen or not kept or len(kept) > MOST_SPANS:
            return None
        start = min(e["ts"] for e in kept)
        spans: dict[int, list[list[object]]] = {pid: [] for pid in chosen}
        for e in kept:
            begin = (e["ts"] - start) / 1e6
            spans[e["pid"]].append([LETTERS.get(e["name"], "x"), None, 0, _s(begin), _s(begin + e["dur"] / 1e6)])
        total = max(float(span[4]) for line in spans.values() for span in line)  # type: ignore[arg-type]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    labels = [f"stage {i}, r{pid}" for i, pid in enumerate(chosen)]
    return {"total_s": _s(total), "ranks": labels, "spans": [spans[pid] for pid in chosen],
            "step": found.get("metadata", {}).get("step")}


def _one_per_stage(names: dict[int, str]) -> list[int]:
    first: dict[str, int] = {}
    for pid in sorted(names):
        stage = re.search(r"\bpp(\d+)\b", names[pid])
        first.setdefault(stage.group(1) if stage else names[pid], pid)
    return list(first.values())[:MOST_RANKS]
