"""Runs of the whole loop in a world of the tests: spawned ranks import this module, which they cannot do with a test file."""
from __future__ import annotations

import torch
import torch.distributed as dist

from dist.many import in_world
from seatrial.engine import loop
from seatrial.engine.core.comm import Comm, OrderMismatch
from seatrial.engine.core.mesh import Mesh, Pool
from seatrial.engine.rendezvous import RankInfo
from seatrial.engine.runfile import RunFile
from seatrial.engine.watch.heartbeat import Heartbeat
from seatrial.engine.watch.timers import Timers
from seatrial.spec import Topology


def go(runs: list[RunFile]) -> None:
    """Each run in turn, in the world that this process is in."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    pool: Pool = {}
    for run in runs:
        loop.train(run, RankInfo(rank=rank, world=world), torch.device("cpu"), Heartbeat(None, rank), pool=pool)


def disagree() -> str:
    """Rank 1 is one collective ahead of rank 0, as after a branch that only one of them took."""
    mesh = Mesh(Topology(tp=dist.get_world_size()), device=torch.device("cpu"))
    comm = Comm(mesh, Timers(), check_order=True)
    sizes = (4, 8) if mesh.rank == 0 else (8,)
    comm.all_reduce(torch.ones(2), mesh.tp, timer="tp_comm")
    try:
        for size in sizes:
            comm.all_reduce(torch.ones(size), mesh.tp, timer="tp_comm")
    except OrderMismatch as error:
        return str(error)
    return "agreed"


def go_each(runs: list[RunFile]) -> None:
    for world in sorted({r.trial.topology.world for r in runs}):
        group = [r for r in runs if r.trial.topology.world == world]
        go(group) if world == 1 else in_world(world, go, group)
