"""Who is who: rank <-> (pp, dp, cp, tp), and the process groups that follow. No module holds a group of its own.

    mesh = Mesh(Topology(dp=2, tp=2, pp=2), device=torch.device("cpu"))     every rank calls it, in the same order
    mesh.tp.rank, mesh.dp.size, mesh.stage(chunk=0)
    mesh.experts.size, mesh.etp.rank                                        the ranks that experts are divided over
    mesh.close()

Which ranks are neighbours is `Topology.place`: tensor, then context, data, pipeline. `mesh.dp` has all that hold the same
weights, over data and context alike: gradients are summed over it. Experts lie over the same ranks of a stage in their own way
(`Topology.expert_place`): `mesh.experts` has one copy of a layer's experts; `expert_levels` are of those that hold the same.
"""
from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from seatrial.errors import BadInput
from seatrial.spec import Topology

Pool = dict[tuple[str, tuple[int, ...]], dist.ProcessGroup]
"""Groups by purpose and members."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks that talk to each other; `handle` is None when there is nobody to talk to."""

    name: str
    ranks: tuple[int, ...]
    rank: int
    """This process's position in the group."""
    handle: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        return len(self.ranks)

    def part(self, low: int, high: int) -> tuple[int, int]:
        """This rank's part of a stretch that the group divides."""
        size = (high - low) // self.size
        return low + self.rank * size, low + (self.rank + 1) * size


class Levels(NamedTuple):
    """How the ranks of `Mesh.dp` divide what ZeRO cuts: each group's ranks divide what those of the one before it hold."""

    weights: Group
    gradients: Group
    state: Group
    """The optimizer's."""
    replicas: Group
    """Those that hold the same state."""


class Mesh:
    def __init__(self, topology: Topology, *, device: torch.device, pool: Pool | None = None, acts_as: str | None = None,
                 timeout: timedelta | None = None):
        """`pool` keeps groups for the next mesh of this process: making one takes a round of connections.

        `acts_as`: the backend whose ways are followed, where the one at hand is torch's `fake`. `timeout`: of the groups made
        here, which do not have the world's of themselves.
        """
        t = topology
        self.topology, self.device = t, device
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        world = dist.get_world_size() if dist.is_initialized() else 1
        if world != t.world:
            raise BadInput(f"{t.product}, but {world} were started")
        self.backend: str = acts_as or (dist.get_backend() if dist.is_initialized() else "none")
        self.place = at = t.place(self.rank)
        self._timeout = timeout
        self._pool: Pool = {} if pool is None else pool
        self._owns_pool = pool is None
        self.world = Group(name="world", ranks=tuple(range(world)), rank=self.rank,
                           handle=dist.group.WORLD if world > 1 else None)
        self.tp = self._group("tp", [t.rank_at(at._replace(tp=i)) for i in range(t.tp)])
        self.cp = self._group("cp", [t.rank_at(at._replace(cp=i)) for i in range(t.cp)])
        self.dp = self._group("dp", [t.rank_at(at._replace(dp=i, cp=j)) for i in range(t.dp) for j in range(t.cp)])
        self.pp = self._group("pp", [t.rank_at(at._replace(pp=i)) for i in range(t.pp)])
        self.levels = Levels(*(self.every(stride, size, self.dp, name) for name, stride, size in t.levels))
        self.experts, self.etp, self.expert_levels = self.tp, self.tp, self.levels
        if t.spreads_experts:
            first, (edp, ep, etp) = self.rank - self.rank % t.stage_ranks, t.expert_place(self.rank)
            copy = first + edp * t.ep * t.expert_tp
            self.experts = self._group("ep", list(range(copy, copy + t.ep * t.expert_tp)))
            self.etp = self._group("etp", [copy + ep * t.expert_tp + i for i in range(t.expert_tp)])
            alike = self._group("edp", [first + (i * t.ep + ep) * t.expert_tp + etp for i in range(t.edp)])
            self.expert_levels = Levels(*(self.every(stride, size, alike, f"expert_{name}")
                                          for name, stride, size in t.expert_levels))
        # NCCL matches messages of a pair of ranks by order alone, so each direction needs a communicator of its own.
        directions = t.pp > 1 and self.backend == "nccl"
        self.channels = [self._group(f"pp{i}", list(self.pp.ranks)) if directions else self.pp for i in range(4)]
        """Forward, backward, and the same two from the last rank back to the first, which virtual stages need."""

    def _group(self, name: str, ranks: list[int]) -> Group:
        position = ranks.index(self.rank)
        if len(ranks) == 1:
            return Group(name=name, ranks=tuple(ranks), rank=position, handle=None)
        if len(ranks) == self.topology.world and name in ("tp", "cp", "dp", "pp"):
            # All others are 1: the world's own connections serve.
            return Group(name=name, ranks=tuple(ranks), rank=position, handle=self.world.handle)
        key = (name, tuple(ranks))
        if key not in self._pool:
            # Members alone take part: at thousands of ranks nobody waits for groups it is not in. torch names such a group by
            # its members and by how many groups a process has: every rank must make the same number, so none is for some alone.
            self._pool[key] = dist.new_group(ranks, use_local_synchronization=True, group_desc=name, timeout=self._timeout)
        return Group(name=name, ranks=tuple(ranks), rank=position, handle=self._pool[key])

    def every(self, stride: int, size: int, of: Group, name: str) -> Group:
        """The `size` ranks of a group, `stride` apart, that this one is among. Every rank asks for the same."""
        if size == of.size:
            return of
        first = of.rank // (stride * size) * (stride * size) + of.rank % stride
        return self._group(name, list(of.ranks[first : first + stride * size : stride]))

    def neighbours(self, size: int, of: Group, name: str) -> Group:
        """The `size` ranks of a group next to each other that this one is among."""
        return self.every(1, size, of, name)

    def across(self, size: int, of: Group, name: str) -> Group:
        """The ranks with this one's position in each of a group's neighbourhoods of `size`."""
        return self.every(size, of.size // size, of, name)

    def sharing(self, *, data: bool) -> Group:
        """The ranks of this stage that see the tokens of one micro-batch: of this replica, or of all. Every rank asks."""
        t = self.topology
        size = t.tp * t.cp * (t.dp if data else 1)
        for group in (self.tp, self.cp, self.dp) if t.tp == 1 else (self.tp,):
            if group.size == size:
                return group
        first = self.rank // size * size
        return self._group("stage" if data else "replica", list(range(first, first + size)))

    def stage(self, chunk: int) -> int:
        """The global number of this rank's virtual stage."""
        return chunk * self.topology.pp + self.place.pp

    def close(self) -> None:
        if self._owns_pool:
            for handle in self._pool.values():
                dist.destroy_process_group(handle)
            self._pool.clear()
