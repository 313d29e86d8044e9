"""Two hosts that are agents of this machine, each with half of the ranks; where asked, in network namespaces of their own.

    with pair(netns=True) as launcher:
        launcher.slow(8.0)              the link between them carries 8 Mbit/s
        launcher.cut()                  nothing any more
        launcher.kill_agent(1)          the second one's agent is gone
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.faults import warm
from benchmarks.faults.draw import Layout

from seatrial import presets
from seatrial.launch import agent, files
from seatrial.launch.base import Finished, Handle, Job, Launcher, State
from seatrial.spec import Cluster, Trial

PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
IP, TC = (shutil.which(name, path=PATH) or name for name in ("ip", "tc"))
CLONE_NEWNET = 0x40000000
LINK = "sea0"


def cluster(layout: Layout) -> Cluster:
    return presets.cluster("jz-a100", nodes=2, procs_per_node=layout.world // 2)


def tool(*argv: object) -> None:
    subprocess.run([str(a) for a in argv], check=True, capture_output=True, timeout=60)


class Pair(Launcher):
    name, poll_s, here = "pair", 0.02, False

    def __init__(self, names: Sequence[str]):
        self.names = names
        """Of the namespaces; none: both agents are in this one."""
        self.agents: list[warm.Forked] = []

    def check(self, trial: Trial, job: Job) -> None:
        assert job.nodes == 2

    def submit(self, job: Job) -> Handle:
        path = files.write_job(job)
        for node in range(2):
            def body(node: int = node) -> int:
                if self.names:
                    with open(f"/var/run/netns/{self.names[node]}") as place:
                        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET):
                            raise OSError(ctypes.get_errno(), "setns")
                log = os.open(job.run_dir / files.LOGS / f"agent{node}.log", os.O_WRONLY | os.O_CREAT)
                warm.become({**os.environ, "SEATRIAL_NODE": str(node)}, log)
                return agent.main([str(path)])

            self.agents.append(warm.Forked(body))
        return Handle(key="pair", job=job, submitted=time.time())

    def poll(self, handles: Sequence[Handle]) -> dict[str, State]:
        done = all([one.poll() is not None for one in self.agents])
        return {handle.key: "done" if done else "running" for handle in handles}

    def cancel(self, handle: Handle) -> None:
        for one in self.agents:
            one.terminate()

    def kill(self, handle: Handle) -> None:
        for one in self.agents:
            one.kill()

    def finished(self, handle: Handle) -> Finished:
        return files.merged(handle.job, files.node_results(handle.job))

    def find(self, name: str) -> str:
        return ""

    def end(self, job_id: str) -> None:
        pass

    def room_for(self, job: Job, running: Sequence[Handle]) -> bool:
        return not running

    def close(self) -> None:
        for one in self.agents:
            one.kill()
            one.wait()

    # ---- what befalls them

    def kill_agent(self, node: int) -> float:
        self.agents[node].kill()
        return time.time()

    def slow(self, mbit: float) -> None:
        for name in self.names:
            tool(IP, "netns", "exec", name, TC, "qdisc", "replace", "dev", LINK, "root",
                 "tbf", "rate", f"{mbit:g}mbit", "burst", "128kb", "latency", "100ms")

    def cut(self) -> float:
        tool(IP, "-n", self.names[1], "link", "set", LINK, "down")
        return time.time()


@contextlib.contextmanager
def pair(*, netns: bool) -> Iterator[Pair]:
    names = [f"fault{os.getpid()}{letter}" for letter in "ab"] if netns else []
    launcher = Pair(names)
    try:
        for name in names:
            tool(IP, "netns", "add", name)
        if names:
            tool(IP, "link", "add", LINK, "netns", names[0], "type", "veth", "peer", "name", LINK, "netns", names[1])
        for number, name in enumerate(names, start=1):
            tool(IP, "-n", name, "addr", "add", f"10.78.0.{number}/24", "dev", LINK)
            for link in (LINK, "lo"):
                tool(IP, "-n", name, "link", "set", link, "up")
        yield launcher
    finally:
        launcher.close()
        for name in names:
            subprocess.run([IP, "netns", "del", name], capture_output=True, check=False)


def missing() -> str:
    """Why there can be no namespaces with a link here; empty when there can."""
    if os.getuid() != 0:
        return "network namespaces need root"
    if not Path(IP).exists() or not Path(TC).exists():
        return "ip and tc are not installed"
    try:
        with pair(netns=True) as found:
            found.slow(8.0)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no network namespaces: {error}"
    return ""
