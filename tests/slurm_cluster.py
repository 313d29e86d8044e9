"""A real Slurm of four nodes on this machine, with its own munge, ports and folders: for tests/slurm and benchmarks.faults.

    with cluster() as slurm:            SLURM_CONF names it meanwhile; raises OSError where it does not come up
        slurm.lose("n2")                the daemon of a node is killed
        slurm.slurmd("n2")              and started again
"""
from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

NODES = 4
CONF = """
ClusterName=trials
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={first}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldPidFile={root}/slurmctld.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/linear
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=1
ReturnToService=2
KillWait=5
MinJobAge=300
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{low}-{high}] CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    def __init__(self, root: Path):
        self.root = root
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        argv = [shutil.which(program, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])) or program, *options]
        with (self.root / "daemons.log").open("ab") as log:
            self.daemons.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        return self.daemons[-1]

    def slurmd(self, node: str) -> None:
        self.nodes[node] = self.start("slurmd", "-D", "-f", str(self.root / "slurm.conf"), "-N", node)

    def lose(self, node: str) -> None:
        self.nodes[node].kill()
        self.nodes[node].wait()

    def stop(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def logs(self) -> str:
        return "\n".join(f"== {p.name}\n{p.read_text(errors='replace')[-1500:]}" for p in sorted(self.root.glob("*.log")))


def free_ports(count: int) -> int:
    """The first of so many neighbouring ports that nobody listens on."""
    for first in range(17800 + secrets.randbelow(2000), 30000, 7):
        try:
            sockets = []
            for port in range(first, first + count):
                probe = socket.socket()
                sockets.append(probe)
                probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        finally:
            for probe in sockets:
                probe.close()
        return first
    raise OSError("no free ports")


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    if os.getuid() != 0:
        raise PermissionError("slurmd of a test cluster must be started by root")
    root = Path(tempfile.mkdtemp(prefix="seatrial-slurm-", dir="/tmp"))
    root.chmod(0o755)
    found = Cluster(root)
    first = free_ports(NODES + 1)
    key = root / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    (root / "state").mkdir()
    for n in range(1, NODES + 1):
        (root / f"spool.n{n}").mkdir()
    conf = root / "slurm.conf"
    host = socket.gethostname().split(".")[0]
    conf.write_text(CONF.format(root=root, user="root", host=host, first=first, low=first + 1, high=first + NODES, nodes=NODES))
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(conf)
    try:
        found.start("munged", "--foreground", "--force", f"--socket={root}/munge.socket", f"--key-file={key}",
                    f"--pid-file={root}/munged.pid", f"--log-file={root}/munged.log", f"--seed-file={root}/munge.seed")
        _until((root / "munge.socket").exists, found, "munged")
        found.start("slurmctld", "-D", "-f", str(conf), "-i")
        for n in range(1, NODES + 1):
            found.slurmd(f"n{n}")
        _until(lambda: _idle() == NODES, found, "four idle nodes")
        yield found
    finally:
        subprocess.run(["scancel", "--user=root"], capture_output=True, check=False, timeout=60)
        found.stop()
        if before is None:
            os.environ.pop("SLURM_CONF", None)
        else:
            os.environ["SLURM_CONF"] = before
        shutil.rmtree(root, ignore_errors=True)


def _idle() -> int:
    argv = ["sinfo", "--noheader", "--Node", "--format=%T"]
    try:
        said = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)
    except subprocess.TimeoutExpired:
        return 0
    return said.stdout.split().count("idle")


def _until(holds: Callable[[], bool], cluster: Cluster, what: str, *, limit_s: float = 180) -> None:
    until = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > until:
            raise OSError(f"{what} did not come:\n{cluster.logs()}")
        time.sleep(0.1)
