"""The part of a launcher that runs on a node of a batch system: starts the node's ranks, watches them, leaves their exit codes.

    srun --ntasks-per-node=1 python -m seatrial.launch.agent RUN/job.json

The agents of a job talk through the run folder, which all nodes share: each says where it is, the first offers a port, one that
sees a failure says so. No name service is needed and nothing is left to a shell.
"""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path

from seatrial.errors import EXIT_GOOD, EXIT_OTHER_OUTCOME, BadInput
from seatrial.files import write_whole
from seatrial.launch import files
from seatrial.launch.base import POLL_S, Job, NodeResult
from seatrial.launch.processes import HeldPort, Processes
from seatrial.lock import alone

NODE_VARIABLE = "SEATRIAL_NODE"
"""The number of this node among the job's, for who starts agents by hand; a batch system's own are in the job."""
MEET_S = 120.0
"""How long the agents wait for each other: the batch system starts them together."""
GLANCE_S = 0.2
"""How often the shared folder is looked at."""
SIOCGIFADDR = 0x8915


def main(argv: list[str]) -> int:
    job = files.read_job(Path(argv[0]))
    node = int(next((os.environ[name] for name in (NODE_VARIABLE, *job.node_variables) if name in os.environ), "0"))
    if not 0 <= node < job.nodes:
        raise BadInput(f"node {node}: the job has {job.nodes}, counted from 0")
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: asked.append(n))
    try:
        return watch(job, node, asked)
    except (BadInput, OSError) as error:
        # Of ours nothing runs; the other nodes need not wait, and whoever judges need not guess.
        words = str(error) if isinstance(error, BadInput) else f"{job.argv[0]}: {error.strerror}: the ranks cannot be started"
        files.node_failed(job.run_dir, node).touch()
        files.leave(job, node, NodeResult(codes={}, host=socket.gethostname(), refused=words))
        raise BadInput(words) from None


def watch(job: Job, node: int, asked: list[int]) -> int:
    """Starts this node's ranks and stays until they are gone."""
    port = HeldPort() if node == 0 else None
    master, interface = meet(job, node, port.number if port is not None else 0)
    if interface:
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
        job = replace(job, env={**{name: interface for name in names if name not in os.environ}, **job.env})
    first = node * job.local_world
    ranks = range(first, first + job.local_world) if job.per == "rank" else range(node, node + 1)
    processes = Processes(job, ranks=ranks, node=node, master=master)
    glanced = 0.0
    while not processes.done:
        processes.poll()
        if asked:
            processes.ask_to_stop()
        if processes.found.died and not files.node_failed(job.run_dir, node).exists():
            files.node_failed(job.run_dir, node).touch()
        if time.monotonic() - glanced > GLANCE_S:
            glanced = time.monotonic()
            there = set(os.listdir(job.run_dir / files.NODES))
            if any(files.node_failed(job.run_dir, other).name in there for other in range(job.nodes) if other != node):
                processes.failed_elsewhere()
            if (job.run_dir / files.CANCEL).exists():
                processes.ask_to_stop()
        time.sleep(POLL_S)
    files.leave(job, node, processes.result())
    return EXIT_GOOD if all(code == 0 for code in processes.found.codes.values()) else EXIT_OTHER_OUTCOME


def meet(job: Job, node: int, port: int) -> tuple[tuple[str, int], str]:
    """Where rank 0 will listen, and the network interface of this node; none when all agents are on one machine."""
    interface, address = own_address()
    mine = {"host": socket.gethostname(), "machine": machine(), "address": address, "port": port}
    write_whole(files.node_here(job.run_dir, node), json.dumps(mine) + "\n")
    everyone = _wait_for_all(job)
    if len({str(other["machine"]) for other in everyone}) == 1:
        return ("127.0.0.1", int(str(everyone[0]["port"]))), ""
    return (str(everyone[0]["address"]), int(str(everyone[0]["port"]))), interface


def _wait_for_all(job: Job) -> list[dict[str, object]]:
    until = time.monotonic() + MEET_S
    while True:
        there = set(os.listdir(job.run_dir / files.NODES))
        missing = [n for n in range(job.nodes) if files.node_here(job.run_dir, n).name not in there]
        if not missing:
            return [json.loads(files.node_here(job.run_dir, n).read_text()) for n in range(job.nodes)]
        if time.monotonic() > until:
            raise BadInput(f"node {missing[0]} has not come within {MEET_S:.0f} s; is {job.run_dir} shared by all nodes?")
        time.sleep(0.05)


def machine() -> str:
    """The same for two agents exactly when they can talk over loopback."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()


def own_address() -> tuple[str, str]:
    """An interface and its address that other nodes can reach: the one named by SEATRIAL_INTERFACE, else the first but lo."""
    wanted = os.environ.get("SEATRIAL_INTERFACE", "")
    names = [wanted] if wanted else [name for _, name in socket.if_nameindex() if name != "lo"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name in names:
            try:
                packed = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # down, or without an IPv4 address
            return name, socket.inet_ntoa(packed[20:24])
    if wanted:
        raise BadInput(f"SEATRIAL_INTERFACE={wanted}: no such interface with an address here")
    return "", "127.0.0.1"


def at_work(argv: list[str]) -> int:
    """The same, with a lock for whoever comes after a controller that died: its job goes on without it."""
    nodes = files.read_job(Path(argv[0])).run_dir / files.NODES
    with contextlib.ExitStack() as held:
        with contextlib.suppress(BadInput):  # another node's agent has it
            held.enter_context(alone(nodes, "a batch job"))
        return main(argv)


if __name__ == "__main__":
    try:
        sys.exit(at_work(sys.argv[1:]))
    except BadInput as error:
        print(f"seatrial: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
