"""Who is who: rank <-> (pp, dp, tp), and the process groups that follow. No module holds a group of its own.

    mesh = Mesh(Topology(dp=2, tp=2, pp=2), device=torch.device("cpu"))     every rank calls it, in the same order
    mesh.tp.rank, mesh.dp.size, mesh.stage(chunk=0)
    mesh.close()

Tensor-parallel ranks are neighbours, then data, then pipeline: rank = (pp x DP + dp) x TP + tp, so that the busiest groups stay
inside a node.
"""
from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

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
            raise BadInput(f"DP {t.dp} x TP {t.tp} x PP {t.pp} = {t.world} processes, but {world} were started")
        self.backend: str = acts_as or (dist.get_backend() if dist.is_initialized() else "none")
        self.tp_rank = self.rank % t.tp
        self.dp_rank = self.rank // t.tp % t.dp
        self.pp_rank = self.rank // (t.tp * t.dp)
        self._timeout = timeout
        self._pool: Pool = {} if pool is None else pool
        self._owns_pool = pool is None
        self.world = Group(name="world", ranks=tuple(range(world)), rank=self.rank,
                           handle=dist.group.WORLD if world > 1 else None)
        self.tp = self._group("tp", [self.rank_at(self.pp_rank, self.dp_rank, i) for i in range(t.tp)])
        self.dp = self._group("dp", [self.rank_at(self.pp_rank, i, self.tp_rank) for i in range(t.dp)])
        self.pp = self._group("pp", [self.rank_at(i, self.dp_rank, self.tp_rank) for i in range(t.pp)])
        # NCCL matches messages of a pair of ranks by order alone, so each direction needs a communicator of its own.
        directions = t.pp > 1 and self.backend == "nccl"
        self.channels = [self._group(f"pp{i}", list(self.pp.ranks)) if directions else self.pp for i in range(4)]
        """Forward, backward, and the same two from the last rank back to the first, which virtual stages need."""

    def rank_at(self, pp: int, dp: int, tp: int) -> int:
        return (pp * self.topology.dp + dp) * self.topology.tp + tp

    def _group(self, name: str, ranks: list[int]) -> Group:
        position = ranks.index(self.rank)
        if len(ranks) == 1:
            return Group(name=name, ranks=tuple(ranks), rank=position, handle=None)
        if len(ranks) == self.topology.world and name in ("tp", "dp", "pp"):
            # Two of the three are 1: the world's own connections serve.
            return Group(name=name, ranks=tuple(ranks), rank=position, handle=self.world.handle)
        key = (name, tuple(ranks))
        if key not in self._pool:
            # Members alone take part: at thousands of ranks nobody waits for groups it is not in. torch names such a group by
            # its members and by how many groups a process has: every rank must make the same number, so none is for some alone.
            self._pool[key] = dist.new_group(ranks, use_local_synchronization=True, group_desc=name, timeout=self._timeout)
        return Group(name=name, ranks=tuple(ranks), rank=position, handle=self._pool[key])

    def neighbours(self, size: int) -> Group:
        """The `size` tensor-parallel ranks next to each other that this one is among. Every rank asks for the same sizes."""
        if size == self.tp.size:
            return self.tp
        first = self.tp.rank // size * size
        return self._group("kv", list(self.tp.ranks[first : first + size]))

    def stage(self, chunk: int) -> int:
        """The global number of this rank's virtual stage."""
        return chunk * self.topology.pp + self.pp_rank

    def close(self) -> None:
        if self._owns_pool:
            for handle in self._pool.values():
                dist.destroy_process_group(handle)
            self._pool.clear()
