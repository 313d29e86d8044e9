"""What crosses the network: every collective over every kind of group here, and messages between two ranks.

    ranks = Ranks(place, device)
    gemm = InterleavedGemm.on(ranks)            on a CPU: the work between two calls; all ranks have the same
    for what, found in measure(ranks, Kind(8, 1), OPS, sizes, target_s, gemm): ...

A kind of group is so many members on each of so many nodes. All groups of a kind communicate at once, as they do in training:
the links of a node are shared. `bytes` is the whole tensor: what is reduced, or what all have after gathering.
"""
from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from seatrial.engine.core.comm import all_gather_tensor, reduce_scatter_tensor
from seatrial.engine.rendezvous import RankInfo
from seatrial.probe.timing import Sample, seconds, summary

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
"""The first three are what the planner asks about."""

GOOD, NO_MEMORY, FAILED = 0.0, 1.0, 2.0
WHY = {NO_MEMORY: "out of memory", FAILED: "failed"}

COLS, INNER = 1024, 256
"""Of the GEMM: the first of a feed-forward, in a model that a CPU trains."""
WANTED_S = 3e-3
ROWS = (64, 2048)
"""At the least and at the most, whatever the machine."""
AT_ONCE = 4
"""Of one sort before the other's turn, so that a change of the machine hits both."""
ROUNDS = (3, 8)
SPENT_S = 0.2
"""For one figure, where the fewest rounds allow it."""


class Ranks:
    """The ranks that probe together: they start each figure at the same time and agree on what became of it.

    All measure the same kernel at once, since that is how a machine is used: memory, caches and power are shared.
    """

    def __init__(self, place: RankInfo, device: torch.device):
        self.place, self.device = place, device
        self.stop_requested = False

    @property
    def leads(self) -> bool:
        return self.place.rank == 0

    @property
    def nodes(self) -> int:
        return -(-self.place.world // self.place.local_world)

    def share(self, *numbers: float) -> list[list[float]]:
        """[[1.0, 2.0], …] by rank; everybody waits for everybody."""
        if self.place.world == 1:
            return [list(numbers)]
        mine = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        every = [torch.empty_like(mine) for _ in range(self.place.world)]
        dist.all_gather(every, mine)
        return [one.tolist() for one in every]

    def worst(self, status: float) -> float:
        """What the ranks agree on: the largest."""
        return max(one[0] for one in self.share(status))

    def stop_on_signal(self) -> None:
        """The first signal ends the probe after the figure at hand; a second one ends the process."""

        def note(number: int, _frame: FrameType | None) -> None:
            if self.stop_requested:
                raise KeyboardInterrupt
            self.stop_requested = True
            if self.leads:
                print("stopping after this figure; once more to leave at once", file=sys.stderr, flush=True)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, note)


def status_of(error: BaseException) -> float:
    """Out of memory, as a GPU or a CPU's allocator says it, or any other failure."""
    text = str(error).lower()
    full = isinstance(error, torch.OutOfMemoryError | MemoryError) or "out of memory" in text or "can't allocate memory" in text
    return NO_MEMORY if full else FAILED


class InterleavedGemm(NamedTuple):
    """What a collective adds to the work around it, as in a block of a model: a GEMM of a few milliseconds and the call, less
    the GEMM alone.

    Ranks that computed come to a collective one after the other, with caches full of other things, and on a CPU its threads
    have to be woken. Calls back to back pay none of that, a step pays all of it. On a GPU the call waits in its stream and
    wakes nobody: there it is timed back to back.
    """

    rows: int
    s: float
    x: Tensor
    weight: Tensor

    @classmethod
    def on(cls, ranks: Ranks) -> InterleavedGemm:
        weight = torch.ones(COLS, INNER, device=ranks.device)
        x = torch.ones(ROWS[0], INNER, device=ranks.device)
        # The least: what it takes when nobody else has the core, so that two probes of a machine have the same GEMM.
        once = max(one[0] for one in ranks.share(min(seconds(lambda: x @ weight.t()) for _ in range(20))))
        rows = min(ROWS[1], max(ROWS[0], round(WANTED_S / once) * ROWS[0]))
        whole = torch.ones(rows, INNER, device=ranks.device)
        took = max(one[0] for one in ranks.share(median(seconds(lambda: whole @ weight.t()) for _ in range(9))))
        return cls(rows, took, whole, weight)

    def describe(self) -> dict[str, Any]:
        """For machine.json: how its collectives were measured."""
        return {"rows": self.rows, "cols": COLS, "inner": INNER, "s": float(f"{self.s:.3g}")}

    def added_by(self, ranks: Ranks, call: Callable[[], object], *, once_s: float, floor_s: float) -> Sample:
        """The slowest rank's; never less than `floor_s`, the least that the call was seen to take by itself."""
        rounds = min(ROUNDS[1], max(ROUNDS[0], round(SPENT_S / AT_ONCE / (2 * self.s + once_s))))
        alone: list[float] = []
        both: list[float] = []
        for _ in range(rounds):
            call()  # all begin together
            both += [seconds(lambda: (self._work(), call())) for _ in range(AT_ONCE)]
            alone += [seconds(self._work) for _ in range(AT_ONCE)]
        work_s = median(alone)
        mine = summary([max(floor_s, took - work_s) for took in both])
        every = ranks.share(mine.s, mine.spread)
        return Sample(s=max(one[0] for one in every), spread=max(one[1] for one in every), repeats=len(both))

    def _work(self) -> Tensor:
        return self.x @ self.weight.t()


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


def measure(ranks: Ranks, kind: Kind, ops: tuple[str, ...], sizes: tuple[int, ...], target_s: float,
            gemm: InterleavedGemm | None) -> Iterator[tuple[dict[str, Any], Sample | float]]:
    """Each figure with what it took, or the status that kept it from being measured; `gemm`: the work around it."""
    group_ranks = members(kind, ranks.place)
    group = dist.group.WORLD if kind.size == ranks.place.world else dist.new_group(group_ranks, use_local_synchronization=True)
    groups = ranks.place.local_world // kind.per_node
    found: dict[tuple[str, int], Sample | float] = {}
    try:
        for op in ops:
            for size in sizes:
                what = {"op": op, "size": kind.size, "per_node": kind.per_node, "nodes": kind.nodes, "groups": groups,
                        "bytes": size}
                # gloo has no reduce-scatter: the engine sums to all there, and that was measured.
                same = op == "reduce_scatter" and ranks.device.type == "cpu"
                sample = found.get(("all_reduce", size)) if same else None
                found[op, size] = _collective(ranks, op, size, kind.size, group, target_s, gemm) if sample is None else sample
                yield what, found[op, size]
    finally:
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)


def _collective(ranks: Ranks, op: str, size: int, group_size: int, group: Any, target_s: float,
                gemm: InterleavedGemm | None) -> Sample | float:
    work: Callable[[], object] | None = None
    status = GOOD
    try:
        work = _prepared(op, size, group_size, group, ranks.device)
    except (RuntimeError, MemoryError) as error:
        status = status_of(error)
    if (worst := ranks.worst(status)) != GOOD or work is None:
        return worst
    return timed(ranks, work, target_s, gemm)


def _prepared(op: str, size: int, group_size: int, group: Any, device: torch.device) -> Callable[[], object]:
    count = max(1, size // 4 // group_size) * group_size
    whole, part = torch.zeros(count, device=device), torch.zeros(count // group_size, device=device)
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


def timed(ranks: Ranks, work: Callable[[], object], target_s: float, gemm: InterleavedGemm | None = None) -> Sample:
    """The slowest rank's median; all repeat it as often as the slowest has time for. Back to back, or among GEMMs."""
    work()
    _settle(ranks.device)
    ranks.share(0.0)
    once = max(one[0] for one in ranks.share(max(_once(ranks, work, 1), 1e-6)))
    calls = max(1, min(20, round(1e-3 / once)))
    repeats = max(3, min(30, round(target_s / (once * calls))))
    ranks.share(0.0)
    times_s = [_once(ranks, work, calls) / calls for _ in range(repeats)]
    if gemm is not None:
        return gemm.added_by(ranks, work, once_s=once, floor_s=min(times_s))
    mine = summary(times_s)
    every = ranks.share(mine.s, mine.spread)
    return Sample(s=max(one[0] for one in every), spread=max(one[1] for one in every), repeats=repeats)


def _once(ranks: Ranks, work: Callable[[], object], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        work()
    _settle(ranks.device)
    return time.perf_counter() - began


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def partners(place: RankInfo) -> list[tuple[int, int]]:
    """(nodes, rank that rank 0 exchanges messages with): its neighbour, and the first rank of the next node."""
    found = [(1, 1)] if place.local_world > 1 else []
    return found + ([(2, place.local_world)] if place.world > place.local_world else [])


def message(ranks: Ranks, other: int, size: int, target_s: float) -> Sample | float:
    """Half of the way there and back between rank 0 and `other`; the rest wait."""
    status = GOOD
    box: Tensor | None = None
    try:
        box = torch.zeros(max(1, size // 4), device=ranks.device)
    except (RuntimeError, MemoryError) as error:
        status = status_of(error)
    if (worst := ranks.worst(status)) != GOOD or box is None:
        return worst
    full = box

    def there_and_back() -> None:
        if ranks.place.rank == 0:
            dist.send(full, other)
            dist.recv(full, other)
        elif ranks.place.rank == other:
            dist.recv(full, 0)
            dist.send(full, 0)

    found = timed(ranks, there_and_back, target_s)
    return Sample(s=found.s / 2, spread=found.spread, repeats=found.repeats)
