"""The whole iteration from what was timed: communication charged to a rank's moments, then each stage over the schedule.

    network = Modelled(trial, cluster)
    network.seconds("all_reduce", "tp", size_bytes=4096)
    passed = replay(moments, network, overlap=True)         [Passed(phase="forward", compute_s=…, charged_s=…), …]
    assemble(trial, [RankTimes.of(passed, trial.topology)], send_s=0.002)

A replay walks the moments again. A collective begins when it was issued and its group is free, and whoever waits for it waits
until it is done. Where there is nothing to overlap with (`overlap` False: on CPUs the cores that compute are those that carry
the messages), it takes its time at once. A stage that was not rehearsed itself is taken to be like the one that was.
"""
from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import numpy as np

from seatrial.plan import network
from seatrial.plan.configs import Configs
from seatrial.rehearse.recorder import Moment
from seatrial.schedule import Kind, splits_backward, walk
from seatrial.schedule.vector import makespan
from seatrial.spec import Cluster, Topology, Trial


class Network(Protocol):
    def seconds(self, name: str, group: str, size_bytes: int) -> float:
        """One collective of this rank's group (tp, dp, pp, world): `size_bytes` of the whole result, or of what is summed."""

    def send_s(self, size_bytes: int) -> float:
        """One message between two stages, of each tensor-parallel rank."""


class Free:
    """No cluster was named: what is said is counted, and costs nothing."""

    def seconds(self, name: str, group: str, size_bytes: int) -> float:
        return 0.0

    def send_s(self, size_bytes: int) -> float:
        return 0.0


class Modelled:
    """The planner's network model of a cluster."""

    def __init__(self, trial: Trial, cluster: Cluster):
        self.trial, self.cluster, self.configs = trial, cluster, Configs.from_trials([trial])
        self._world = trial.topology.world
        self._known = lru_cache(maxsize=None)(self._seconds)

    def seconds(self, name: str, group: str, size_bytes: int) -> float:
        return self._known(name, group, size_bytes)

    def _seconds(self, name: str, group: str, size_bytes: int) -> float:
        members = self._group(group)
        if name == "shift":
            # One of the messages that make an all-gather.
            ways = int(members.size[0])
            return float(network.gather_s(self.cluster, members, ways * size_bytes)[0]) / (ways - 1)
        model = {"all_reduce": network.all_reduce_s, "sum_tied": network.all_reduce_s,
                 "all_to_all": network.all_to_all_s}.get(name, network.gather_s)
        return float(model(self.cluster, members, size_bytes)[0])

    def _group(self, name: str) -> network.Group:
        if name in ("tp", "kv"):  # `kv`: a part of it
            return network.tensor_group(self.configs)
        if name in ("cp", "heads", "ring"):
            # By one name where all of CP is a ring, or shares heads.
            deals = name == "heads" or self.configs.context_split[1][0] == 1
            return (network.heads_group if deals else network.context_group)(self.configs)
        if name == "dp":
            return network.data_group(self.configs)
        if name == "pp":
            return network.embedding_group(self.configs)
        t = self.trial.topology
        experts = t.ep * t.expert_tp
        apart = {"ep": (1, experts), "etp": (1, t.expert_tp), "edp": (experts, t.edp), "stage": (1, t.stage_ranks),
                 "replica": (1, t.tp * t.cp), **{f"expert_{level}": (experts * stride, size)
                                                 for level, stride, size in t.expert_levels if size > 1}}
        if name in apart:
            apart_by, many = (np.array([n]) for n in apart[name])
            return network.every(apart_by, many, self.configs)
        for level, stride, size in t.levels:
            if level == name and size > 1:
                return network.replica_group(self.configs, np.array([stride]), np.array([stride * size]))
        per_node = min(self._world, self.cluster.procs_per_node)
        return network.Group(size=np.array([self._world]), per_node=np.array([per_node]), sharers=np.array([1]))

    def send_s(self, size_bytes: int) -> float:
        # The planner counts the message of a whole replica; here every tensor-parallel rank sends its own.
        return float(network.send_s(self.configs, self.cluster, size_bytes * self.configs.tp)[0])


@dataclass(frozen=True)
class Curve:
    """Seconds by size, straight between measured sizes on logarithmic scales, and in proportion beyond the last."""

    points: tuple[tuple[int, float], ...]

    def __call__(self, size_bytes: int) -> float:
        points = sorted(self.points)
        if size_bytes <= points[0][0]:
            return points[0][1]
        for (low, low_s), (high, high_s) in pairwise(points):
            if size_bytes <= high:
                share = math.log(size_bytes / low) / math.log(high / low)
                return math.exp(math.log(low_s) + share * (math.log(high_s) - math.log(low_s)))
        return points[-1][1] * size_bytes / points[-1][0]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Curves that were measured between the very processes that a run would have."""

    collectives: dict[str, Curve]
    """all_reduce, all_gather, reduce_scatter, all_to_all; `sum_tied` and `shift` are messages there and back."""
    message: Curve

    def seconds(self, name: str, group: str, size_bytes: int) -> float:
        return self.message(size_bytes) if name in ("sum_tied", "shift") else self.collectives[name](size_bytes)

    def send_s(self, size_bytes: int) -> float:
        return self.message(size_bytes)


@dataclass(frozen=True, kw_only=True)
class Passed:
    """One action, or the reduction or the update at the end of a step."""

    phase: str
    microbatch: int
    compute_s: float
    charged_s: float
    """What waiting for communication adds."""

    @property
    def sec(self) -> float:
        return self.compute_s + self.charged_s


def replay(moments: Sequence[Moment], network: Network, *, overlap: bool) -> list[Passed]:
    clock_s = 0.0
    free_s: dict[str, float] = {}
    done_s: dict[int, float] = {}
    found: list[Passed] = []
    begun: tuple[Moment, float, float] | None = None
    compute_s = 0.0
    before: Moment | None = None
    for moment in moments:
        spent = 0.0 if before is None or before.kind == "aside" else moment.at_s - before.at_s
        clock_s, compute_s, before = clock_s + spent, compute_s + spent, moment
        if moment.kind == "issue":
            cost_s = network.seconds(moment.name, moment.group, moment.size_bytes)
            if overlap:
                done_s[moment.number] = free_s[moment.group] = max(clock_s, free_s.get(moment.group, 0.0)) + cost_s
            else:
                clock_s += cost_s
        elif moment.kind == "wait":
            clock_s = max(clock_s, done_s.pop(moment.number, clock_s))
        elif moment.kind == "mark":
            if begun is not None:
                mark, clock_then, compute_then = begun
                worked = compute_s - compute_then
                found.append(Passed(phase=mark.phase, microbatch=mark.microbatch, compute_s=worked,
                                    charged_s=max(0.0, clock_s - clock_then - worked)))
            begun = moment, clock_s, compute_s
    return found


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
