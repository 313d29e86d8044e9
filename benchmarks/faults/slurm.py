"""Ranks through a real Slurm of this machine, whose nodes are lost.

    with ground() as slurm: slurm.lose(run_dir, case)           at the moment; `slurm.later()` at every look after it

The cluster is that of tests/slurm, started once a campaign.
"""
from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults.draw import Case, Layout

from seatrial import presets
from seatrial.launch.base import Handle, State
from seatrial.launch.slurm import Slurm
from seatrial.spec import Cluster

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))


def cluster(layout: Layout) -> Cluster:
    """One rank a node."""
    return presets.cluster("jz-a100", nodes=layout.world, procs_per_node=1)


def missing() -> str:
    if os.getuid() != 0:
        return "slurmd must be started by root"
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    lacks = [name for name in ("munged", "slurmctld", "slurmd", "srun") if not shutil.which(name, path=path)]
    return f"{', '.join(lacks)} not installed" if lacks else ""


class Nodes(Slurm):
    """Slurm with nodes that can be lost."""

    def __init__(self, cluster: Any):
        super().__init__()
        self._cluster = cluster
        self._back: tuple[float, str] | None = None

    def lose(self, case: Case, pid: int) -> float:
        """Of the node of this rank: the daemon, or all."""
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        node = next(w.partition(b"=")[2].decode() for w in words if w.startswith(b"SLURMD_NODENAME="))
        now = time.time()
        self._cluster.lose(node)
        if case.kind == "node":
            parent = _parent(pid)
            for one in (_parent(parent), parent, pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            subprocess.run(["scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=lost"], check=True, timeout=60)
        self._back = now + case.argument, node
        return now

    def poll(self, handles: Any) -> dict[str, State]:
        found = super().poll(handles)
        if self._back is not None and time.time() > self._back[0]:
            self._cluster.slurmd(self._back[1])
            self._back = None
        return found

    def end_case(self, handle: Handle | None = None) -> None:
        """All nodes are there again for the next case."""
        if self._back is not None:
            self._cluster.slurmd(self._back[1])
            self._back = None
        subprocess.run(["scontrol", "update", "NodeName=n[1-4]", "State=RESUME"], check=False, capture_output=True, timeout=60)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextlib.contextmanager
def ground() -> Iterator[Any]:
    import slurm_cluster

    with slurm_cluster.cluster() as found:
        yield found
