"""How ranks find their info and each other: under torchrun, srun or mpiexec, and alone.

    info = rank_from_env()                rank, world, and the same on this node
    device = device_of("auto", info)
    join(info, device)                     gloo on CPU, NCCL on CUDA, or SEATRIAL_BACKEND (mpi where torch was built with it)

On one machine everything stays on loopback: torch's own store would listen on every address, so rank 0 hands it a socket.
"""
from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from seatrial.errors import BadInput

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class RankInfo:
    """Where the launcher put this process."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1


VARIABLES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", ("LOCAL_WORLD_SIZE",)),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", ("OMPI_COMM_WORLD_LOCAL_SIZE",)),
    ("PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", ("PMIX_LOCAL_SIZE",)),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", ("MPI_LOCALNRANKS",)),
)
"""Variables of torchrun, srun, Open MPI (and Fugaku's, which is made of it), PMIx and MPICH, tried in this order."""


def rank_from_env(env: Mapping[str, str] | None = None) -> RankInfo:
    env = os.environ if env is None else env
    for rank, world, local_rank, local_world in VARIABLES:
        if rank in env and world in env:
            try:
                per_node = next((env[name] for name in local_world if name in env), "1")
                return RankInfo(rank=int(env[rank]), world=int(env[world]), local_rank=int(env.get(local_rank, "0")),
                             local_world=_tasks_here(per_node, int(env.get("SLURM_NODEID", "0"))))
            except ValueError:
                raise BadInput(f"{rank}={env[rank]} {world}={env[world]}: not the numbers of a launcher") from None
    return RankInfo()


def _tasks_here(per_node: str, node: int) -> int:
    """Slurm writes 4(x2),3 for two nodes of four tasks and one of three; the others write a number."""
    for part in per_node.split(","):
        count, _, repeat = part.partition("(x")
        nodes = int(repeat.rstrip(")")) if repeat else 1
        if node < nodes:
            return int(count)
        node -= nodes
    return int(per_node.split("(")[0].split(",")[0])


def first_node(nodelist: str) -> str:
    """`node[012-015,020],login1` -> `node012`."""
    match = re.match(r"([^,\[]+)(?:\[(\w+))?", nodelist)
    return "" if match is None else match[1] + (match[2] or "")


def meeting_point(info: RankInfo, env: Mapping[str, str]) -> tuple[str, int]:
    """Address and port of rank 0."""
    address = env.get("MASTER_ADDR") or first_node(env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", "")))
    if not address or info.local_world == info.world:
        if info.local_world != info.world:
            raise BadInput(f"{info.world} processes, {info.local_world} of them on this node: MASTER_ADDR must name "
                           "the node of rank 0")
        address = address if env.get("MASTER_ADDR") else "127.0.0.1"
    if env.get("MASTER_PORT"):
        return address, int(env["MASTER_PORT"])
    # Jobs that share a node must not meet each other.
    job = int(env.get("SLURM_JOB_ID", "0")) * 64 + int(env.get("SLURM_STEP_ID", "0"))
    return address, 20_000 + job % 20_000 if job else 29_500


def join(info: RankInfo, device: torch.device, *, timeout_s: float = 1800.0) -> None:
    """Enter the world's process group; a single process needs none."""
    if info.world == 1 or dist.is_initialized():
        return
    backend = os.environ.get("SEATRIAL_BACKEND") or ("nccl" if device.type == "cuda" else "gloo")
    if backend == "mpi":
        if not dist.is_mpi_available():
            raise BadInput("SEATRIAL_BACKEND=mpi, but this build of torch has no MPI: leave it out for gloo")
        dist.init_process_group("mpi")
        return
    address, port = meeting_point(info, os.environ)
    # Under torchrun its agent has opened the port already, and all ranks are guests.
    is_host = info.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    listening: int | None = None
    if address in LOOPBACK:
        # Without this gloo looks its host name up, which may lead off the machine or nowhere.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
        if is_host:
            listening = socket.create_server(("127.0.0.1", port)).detach()
    timeout = timedelta(seconds=timeout_s)
    store = dist.TCPStore(address, port, info.world, is_host, timeout=timeout, wait_for_workers=False,
                          master_listen_fd=listening)
    # torchrun keeps words of its own in the store that it lends.
    dist.init_process_group(backend, store=dist.PrefixStore("seatrial", store), rank=info.rank, world_size=info.world,
                            timeout=timeout)


def device_of(wanted: str, info: RankInfo) -> torch.device:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise BadInput("execution.device is cuda, but torch sees no CUDA device here: use cpu or auto")
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if info.local_rank >= torch.cuda.device_count():
        raise BadInput(f"{info.local_world} processes on this node, but it has {torch.cuda.device_count()} CUDA devices")
    device = torch.device("cuda", info.local_rank)
    torch.cuda.set_device(device)
    return device
