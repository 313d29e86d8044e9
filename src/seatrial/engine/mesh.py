"""Who is who: rank <-> (pp, dp, tp), and the process groups that follow. No module holds a group of its own.

    mesh = Mesh(Topology(dp=2, tp=2, pp=2), device=torch.device("cpu"))     every rank calls it, in the same order
    mesh.tp.rank, mesh.dp.size, mesh.stage(chunk=0)
    mesh.close()

Tensor-parallel ranks are neighbours, then data, then pipeline: rank = (pp x DP + dp) x TP + tp, so that the busiest groups stay
inside a node.
"""
from __future__ import annotations

import os
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
    """This process's place in the group."""
    handle: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        return len(self.ranks)


class Mesh:
    def __init__(self, topology: Topology, *, device: torch.device, pool: Pool | None = None):
        """`pool` keeps groups for the next mesh of this process: making one takes a round of connections."""
        t = topology
        self.topology, self.device = t, device
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        world = dist.get_world_size() if dist.is_initialized() else 1
        if world != t.world:
            raise BadInput(f"DP {t.dp} x TP {t.tp} x PP {t.pp} = {t.world} processes, but {world} were started")
        self.backend: str = dist.get_backend() if dist.is_initialized() else "none"
        self.tp_rank = self.rank % t.tp
        self.dp_rank = self.rank // t.tp % t.dp
        self.pp_rank = self.rank // (t.tp * t.dp)
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
        place = ranks.index(self.rank)
        if len(ranks) == 1:
            return Group(name=name, ranks=tuple(ranks), rank=place, handle=None)
        if len(ranks) == self.topology.world and name in ("tp", "dp", "pp"):
            # Two of the three are 1: the world's own connections serve.
            return Group(name=name, ranks=tuple(ranks), rank=place, handle=self.world.handle)
        key = (name, tuple(ranks))
        if key not in self._pool:
            # Members alone take part: at thousands of ranks nobody waits for groups it is not in. torch names such a group by
            # its members and by how many groups a process has: every rank must make the same number, so none is for some alone.
            self._pool[key] = dist.new_group(ranks, use_local_synchronization=True, group_desc=name)
        return Group(name=name, ranks=tuple(ranks), rank=place, handle=self._pool[key])

    def stage(self, chunk: int) -> int:
        """The global number of this rank's virtual stage."""
        return chunk * self.topology.pp + self.pp_rank

    def close(self) -> None:
        if self._owns_pool:
            for handle in self._pool.values():
                dist.destroy_process_group(handle)
            self._pool.clear()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the launcher put this process."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1


PLACES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Variables of torchrun, srun, Open MPI (and Fugaku's), PMIx and MPICH, tried in this order."""


def place_from_env(env: dict[str, str] | None = None) -> Place:
    env = dict(os.environ) if env is None else env
    for rank, world, local_rank, local_world in PLACES:
        if rank in env and world in env:
            # SLURM writes 4(x2) for two nodes of four tasks.
            per_node = env.get(local_world, "1").split("(")[0].split(",")[0]
            return Place(rank=int(env[rank]), world=int(env[world]), local_rank=int(env.get(local_rank, "0")),
                         local_world=int(per_node))
    return Place()


def join(place: Place, device: torch.device, *, timeout_s: float = 1800.0) -> None:
    """Enter the world's process group; a single process needs none."""
    if place.world == 1 or dist.is_initialized():
        return
    os.environ.setdefault("MASTER_ADDR", _first_node(os.environ.get("SLURM_JOB_NODELIST", "")) or "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    if os.environ["MASTER_ADDR"] in ("127.0.0.1", "localhost"):
        # Without this gloo looks its host name up, which may lead off the machine or nowhere.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = os.environ.get("SEATRIAL_BACKEND") or ("nccl" if device.type == "cuda" else "gloo")
    dist.init_process_group(backend, rank=place.rank, world_size=place.world, timeout=timedelta(seconds=timeout_s))


def _first_node(nodelist: str) -> str:
    """`node[012-015,020]` -> `node012`."""
    head, bracket, rest = nodelist.partition("[")
    if not bracket:
        return head.split(",")[0]
    return head.split(",")[0] if "," in head else head + rest.split(",")[0].split("-")[0].rstrip("]")


def device_of(wanted: str, place: Place) -> torch.device:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise BadInput("training.device is cuda, but torch sees no CUDA device here: use cpu or auto")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if place.local_rank >= torch.cuda.device_count():
        raise BadInput(f"{place.local_world} processes on this node, but it has {torch.cuda.device_count()} CUDA devices")
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device
