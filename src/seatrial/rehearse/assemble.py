"""The whole iteration from what was timed: each stage's actions over the schedule, then the reduction and the update.

    stages = [StageTimes(...), ...]                 one for each of the PP x VP stages
    assemble(trial, stages, ends, send_s=0.002)     seconds, and what they are made of on the busiest rank

A stage that was not rehearsed itself is taken to be like the one that was; `whole.py` says which.
"""
from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.rehearse.charge import Passed
from seatrial.schedule import Kind, splits_backward, walk
from seatrial.schedule.vector import makespan
from seatrial.spec import Topology, Trial

MOST_WALKED = 400_000
"""Actions of all ranks that are walked one by one; beyond, the exact recurrence without them."""

PHASES = {Kind.FORWARD: "forward", Kind.BACKWARD: "backward", Kind.WEIGHT: "weight"}


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Medians over the repeats."""

    compute_s: float
    charged_s: float
    repeats: tuple[float, ...]
    """Seconds of compute each time."""

    @property
    def sec(self) -> float:
        return self.compute_s + self.charged_s

    @classmethod
    def of(cls, passed: Sequence[Passed]) -> Timed:
        return cls(compute_s=statistics.median(p.compute_s for p in passed),
                   charged_s=statistics.median(p.charged_s for p in passed), repeats=tuple(p.compute_s for p in passed))


NOTHING = Timed(compute_s=0.0, charged_s=0.0, repeats=())


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """One rank: the three actions of each of its stages, and what comes once an iteration."""

    forward: tuple[Timed, ...]
    """By virtual stage."""
    backward: tuple[Timed, ...]
    weight: tuple[Timed, ...]
    reduce: Timed
    """From the last backward to the sum of the gradients; what was hidden behind the backward pass is not in it."""
    update: Timed

    @classmethod
    def of(cls, passed: Sequence[Passed], topology: Topology) -> RankTimes:
        by_phase = {phase: [p for p in passed if p.phase == phase] for phase in (*PHASES.values(), "reduce", "optimizer")}

        def chunks(phase: str, *, backwards: bool) -> tuple[Timed, ...]:
            found = by_phase[phase]
            if not found:
                return (NOTHING,) * topology.vp
            each = tuple(Timed.of(found[c :: topology.vp]) for c in range(topology.vp))
            return each[::-1] if backwards else each

        return cls(forward=chunks("forward", backwards=False), backward=chunks("backward", backwards=True),
                   weight=chunks("weight", backwards=True), reduce=Timed.of(by_phase["reduce"]),
                   update=Timed.of(by_phase["optimizer"]))


@dataclass(frozen=True, kw_only=True)
class Iteration:
    sec: float
    parts: dict[str, float]
    """Seconds on the busiest pipeline rank; they add up to `sec`."""
    busiest: int


def assemble(trial: Trial, ranks: Sequence[RankTimes], *, send_s: float) -> Iteration:
    """`ranks`: one for each pipeline rank."""
    t, m = trial.topology, trial.microbatches
    split = splits_backward(t.schedule)

    def stages(name: str) -> list[float]:
        return [getattr(ranks[stage % t.pp], name)[stage // t.pp].sec for stage in range(t.pp * t.vp)]

    spent = {"forward_s": stages("forward"), "backward_s": stages("backward"), "send_s": send_s if t.pp > 1 else 0.0}
    if split:
        spent["weight_s"] = stages("weight")
    if 3 * t.pp * t.vp * m <= MOST_WALKED:
        timeline = walk(t.schedule, pp=t.pp, microbatches=m, virtual=t.vp, **spent)  # type: ignore[arg-type]
        pipeline_s, ends = timeline.total_s, [spans[-1].end_s for spans in timeline.ranks]
    else:
        pipeline_s = makespan(t.schedule, pp=t.pp, microbatches=m, virtual=t.vp, **spent)  # type: ignore[arg-type]
        ends = [pipeline_s] * t.pp
    # Each rank reduces its own when it is done; the sum over all ranks is where they meet.
    reduced_s = max(end + rank.reduce.sec for end, rank in zip(ends, ranks))
    update_s = max(rank.update.sec for rank in ranks)
    busy = [sum(timed.sec for name in ("forward", "backward", "weight") for timed in getattr(rank, name)) for rank in ranks]
    busiest = max(range(t.pp), key=lambda r: busy[r])
    parts = {name: m * sum(timed.compute_s for timed in getattr(ranks[busiest], name)) for name in PHASES.values()}
    parts["communication"] = m * sum(timed.charged_s for name in PHASES.values() for timed in getattr(ranks[busiest], name))
    parts["bubble"] = max(0.0, pipeline_s - sum(parts.values()))
    parts["gradients"] = reduced_s - pipeline_s
    parts["optimizer"] = update_s
    if not split:
        del parts["weight"]
    return Iteration(sec=reduced_s + update_s, parts=parts, busiest=busiest)
