"""Ranks find their place under every launcher, and a local world listens on loopback alone."""
from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.engine.rendezvous import RankInfo, first_node, meeting_point, rank_from_env
from seatrial.errors import BadInput

LAUNCHERS = {
    "alone": ({}, RankInfo()),
    "torchrun": ({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "SLURM_PROCID": "0",
                  "SLURM_NTASKS": "2"}, RankInfo(rank=5, world=8, local_rank=1, local_world=4)),
    "srun": ({"SLURM_PROCID": "9", "SLURM_NTASKS": "11", "SLURM_LOCALID": "1", "SLURM_NODEID": "2",
              "SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}, RankInfo(rank=9, world=11, local_rank=1, local_world=3)),
    "open mpi": ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                  "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, RankInfo(rank=3, world=4, local_rank=1, local_world=2)),
    "mpich": ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
              RankInfo(rank=1, world=2, local_rank=1, local_world=2)),
}  # fmt: skip


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_launcher_says_who_is_who(launcher):
    env, place = LAUNCHERS[launcher]
    assert rank_from_env(env) == place


def test_numbers_that_are_none_are_refused():
    with pytest.raises(BadInput, match="RANK=x"):
        rank_from_env({"RANK": "x", "WORLD_SIZE": "2"})


@pytest.mark.parametrize(("nodelist", "first"), [
    ("", ""), ("n1", "n1"), ("n1,n2", "n1"), ("node[012-015,020]", "node012"), ("a[1,3],b2", "a1"),
    ("login,node[1-2]", "login"),
])
def test_the_first_node_of_a_list(nodelist, first):
    assert first_node(nodelist) == first


def test_one_node_meets_on_loopback_and_several_where_rank_0_is():
    here, spread = RankInfo(rank=1, world=2, local_world=2), RankInfo(rank=1, world=4, local_world=2)
    slurm = {"SLURM_STEP_NODELIST": "n[3-4]", "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}
    assert meeting_point(here, {}) == ("127.0.0.1", 29_500)
    assert meeting_point(here, slurm)[0] == "127.0.0.1"
    assert meeting_point(spread, slurm) == ("n3", 20_000 + 12 * 64 + 3)
    assert meeting_point(spread, {**slurm, "SLURM_STEP_ID": "4"}) != meeting_point(spread, slurm)
    assert meeting_point(spread, {"MASTER_ADDR": "head", "MASTER_PORT": "7"}) == ("head", 7)
    with pytest.raises(BadInput, match="MASTER_ADDR"):
        meeting_point(spread, {})


JOINING = """
import os, sys, torch
from seatrial.engine.rendezvous import join, rank_from_env
place = rank_from_env()
join(place, torch.device("cpu"))
import torch.distributed as dist
x = torch.ones(1) * (place.rank + 1)
dist.all_reduce(x)
def target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""  # closed since it was listed
mine = {target(fd) for fd in os.listdir("/proc/self/fd")}
found = [line.split()[1] for kind in ("tcp", "tcp6") for line in open(f"/proc/net/{kind}").readlines()[1:]
         if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in mine]
dist.barrier()
os.write(1, (" ".join((str(int(x)), *found)) + chr(10)).encode())  # at once: ranks share the pipe
dist.destroy_process_group()
"""
LOOPBACK_HEX = "0100007F:"


def test_a_local_world_listens_on_loopback_alone():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [subprocess.Popen([sys.executable, "-c", JOINING], stdout=subprocess.PIPE, text=True, env={
        **os.environ, "PMI_RANK": str(r), "PMI_SIZE": "2", "MPI_LOCALRANKID": str(r), "MPI_LOCALNRANKS": "2",
        "MASTER_PORT": str(port)}) for r in range(2)]  # fmt: skip
    said = [r.communicate(timeout=120)[0].split() for r in ranks]
    assert [r.returncode for r in ranks] == [0, 0]
    assert [words[0] for words in said] == ["3", "3"]
    assert said[0][1:] and all(address.startswith(LOOPBACK_HEX) for words in said for address in words[1:]), said


def test_torchrun_starts_it_too(tmp_path):
    script = tmp_path / "join.py"
    script.write_text(JOINING)
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)],
                          capture_output=True, text=True, timeout=200, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(line.split()[0] for line in done.stdout.splitlines() if line.strip()) == ["3", "3"], done.stdout
