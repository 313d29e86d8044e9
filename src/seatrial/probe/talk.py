"""What the ranks say to each other: every collective over every kind of group here, and messages between two ranks.

A kind of group is so many members on each of so many nodes. All groups of a kind talk at once, as they do in training: the
links of a node are shared. `bytes` is the whole tensor: what is reduced, or what all have after gathering.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from seatrial.engine.core.comm import all_gather_tensor, reduce_scatter_tensor
from seatrial.engine.rendezvous import RankInfo
from seatrial.probe.between import Between
from seatrial.probe.crew import GOOD, Crew, status_of
from seatrial.probe.timing import Sample, summary

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
"""The first three are what the planner asks about."""


class Kind(NamedTuple):
    per_node: int
    nodes: int

    @property
    def size(self) -> int:
        return self.per_node * self.nodes


def kinds(place: RankInfo, *, every: bool) -> list[Kind]:
    """Groups that divide the ranks evenly: neighbours in a node, then across nodes with one, some or all ranks of each."""
    nodes = place.world // place.local_world
    inside = [Kind(p, 1) for p in _steps(place.local_world) if p > 1]
    shares = [1, *_steps(place.local_world)] if every else [1, place.local_world]
    return inside + [Kind(p, n) for n in _steps(nodes) if n > 1 for p in dict.fromkeys(shares)]


def _steps(n: int) -> list[int]:
    """Powers of two that divide n, and n."""
    return [*(2**i for i in range(1, n.bit_length()) if n % 2**i == 0 and 2**i < n), n]


def members(kind: Kind, place: RankInfo) -> list[int]:
    """The ranks of this rank's group: neighbours inside a node, evenly spread over each node otherwise."""
    node, local = divmod(place.rank, place.local_world)
    if kind.nodes == 1:
        first = place.rank - local % kind.per_node
        return list(range(first, first + kind.per_node))
    stride = place.local_world // kind.per_node
    block = node - node % kind.nodes
    return [n * place.local_world + local % stride + i * stride for n in range(block, block + kind.nodes)
            for i in range(kind.per_node)]


def collectives(crew: Crew, kind: Kind, ops: tuple[str, ...], sizes: tuple[int, ...], target_s: float,
                between: Between | None) -> Iterator[tuple[dict[str, Any], Sample | float]]:
    """Each figure with what it took, or the status that kept it from being measured; `between`: the work that it is among."""
    ranks = members(kind, crew.place)
    group = dist.group.WORLD if kind.size == crew.place.world else dist.new_group(ranks, use_local_synchronization=True)
    groups = crew.place.local_world // kind.per_node
    found: dict[tuple[str, int], Sample | float] = {}
    try:
        for op in ops:
            for size in sizes:
                what = {"op": op, "size": kind.size, "per_node": kind.per_node, "nodes": kind.nodes, "groups": groups,
                        "bytes": size}
                # gloo has no reduce-scatter: the engine sums to all there, and that was measured.
                same = op == "reduce_scatter" and crew.device.type == "cpu"
                sample = found.get(("all_reduce", size)) if same else None
                found[op, size] = _collective(crew, op, size, kind.size, group, target_s, between) if sample is None else sample
                yield what, found[op, size]
    finally:
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)


def _collective(crew: Crew, op: str, size: int, ranks: int, group: Any, target_s: float,
                between: Between | None) -> Sample | float:
    work: Callable[[], object] | None = None
    status = GOOD
    try:
        work = _prepared(op, size, ranks, group, crew.device)
    except (RuntimeError, MemoryError) as error:
        status = status_of(error)
    if (worst := crew.worst(status)) != GOOD or work is None:
        return worst
    return timed(crew, work, target_s, between)


def _prepared(op: str, size: int, ranks: int, group: Any, device: torch.device) -> Callable[[], object]:
    count = max(1, size // 4 // ranks) * ranks
    whole, part = torch.zeros(count, device=device), torch.zeros(count // ranks, device=device)
    if op == "all_reduce" or op == "reduce_scatter" and device.type == "cpu":
        return lambda: dist.all_reduce(whole, group=group)
    if op == "all_gather":
        return lambda: all_gather_tensor(whole, part, group=group)
    if op == "reduce_scatter":
        return lambda: reduce_scatter_tensor(part, whole, group=group)
    if op == "broadcast":
        return lambda: dist.broadcast(whole, group=group, group_src=0)
    other = torch.zeros_like(whole)
    return lambda: dist.all_to_all_single(other, whole, group=group)


def timed(crew: Crew, work: Callable[[], object], target_s: float, between: Between | None = None) -> Sample:
    """The slowest rank's median; all repeat it as often as the slowest has time for. Back to back, or among products."""
    work()
    _settle(crew.device)
    crew.share(0.0)
    once = max(one[0] for one in crew.share(max(_once(crew, work, 1), 1e-6)))
    calls = max(1, min(20, round(1e-3 / once)))
    repeats = max(3, min(30, round(target_s / (once * calls))))
    crew.share(0.0)
    seconds = [_once(crew, work, calls) / calls for _ in range(repeats)]
    if between is not None:
        return between.adds(crew, work, once_s=once, floor_s=min(seconds))
    mine = summary(seconds)
    every = crew.share(mine.s, mine.spread)
    return Sample(s=max(one[0] for one in every), spread=max(one[1] for one in every), repeats=repeats)


def _once(crew: Crew, work: Callable[[], object], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        work()
    _settle(crew.device)
    return time.perf_counter() - began


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def partners(place: RankInfo) -> list[tuple[int, int]]:
    """(nodes, rank that rank 0 talks to): its neighbour, and the first rank of the next node."""
    found = [(1, 1)] if place.local_world > 1 else []
    return found + ([(2, place.local_world)] if place.world > place.local_world else [])


def message(crew: Crew, other: int, size: int, target_s: float) -> Sample | float:
    """Half of the way there and back between rank 0 and `other`; the rest wait."""
    status = GOOD
    box: Tensor | None = None
    try:
        box = torch.zeros(max(1, size // 4), device=crew.device)
    except (RuntimeError, MemoryError) as error:
        status = status_of(error)
    if (worst := crew.worst(status)) != GOOD or box is None:
        return worst
    full = box

    def there_and_back() -> None:
        if crew.place.rank == 0:
            dist.send(full, other)
            dist.recv(full, other)
        elif crew.place.rank == other:
            dist.recv(full, 0)
            dist.send(full, 0)

    found = timed(crew, there_and_back, target_s)
    return Sample(s=found.s / 2, spread=found.spread, repeats=found.repeats)
