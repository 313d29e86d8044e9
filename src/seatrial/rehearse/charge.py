"""What communication would have taken: the planner's network, or measured curves, put into a rank's recorded moments.

    network = Modelled(trial, cluster)
    network.seconds("all_reduce", "tp", size_bytes), network.send_s(size_bytes)
    replay(moments, network, overlap=True)          [Passed(phase="forward", compute_s=…, charged_s=…), …]

A replay walks the moments again. A collective begins when it was issued and its group is free, and whoever waits for it waits
until it is done. Where there is nothing to overlap with (`overlap` False: on CPUs the cores that compute are those that carry
the messages), it takes its time at once.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

import numpy as np

from seatrial.plan import network
from seatrial.plan.configs import Configs
from seatrial.rehearse.recorder import Moment
from seatrial.spec import Cluster, Trial


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
        self.cluster, self.configs = cluster, Configs.from_trials([trial])
        self._world = trial.topology.world
        self._known = lru_cache(maxsize=None)(self._seconds)

    def seconds(self, name: str, group: str, size_bytes: int) -> float:
        return self._known(name, group, size_bytes)

    def _seconds(self, name: str, group: str, size_bytes: int) -> float:
        members = self._group(group)
        whole = name in ("all_reduce", "sum_of_ends")
        model = network.all_reduce_s if whole else network.gather_s
        return float(model(self.cluster, members, size_bytes)[0])

    def _group(self, name: str) -> network.Group:
        if name in ("tp", "kv"):  # `kv`: a part of it
            return network.tensor_group(self.configs)
        if name == "dp":
            return network.data_group(self.configs)
        if name == "pp":
            return network.embedding_group(self.configs)
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
    """all_reduce, all_gather, reduce_scatter; `sum_of_ends` is a message there and back."""
    message: Curve

    def seconds(self, name: str, group: str, size_bytes: int) -> float:
        return self.message(size_bytes) if name == "sum_of_ends" else self.collectives[name](size_bytes)

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
