"""The doctor on all nodes of a job at once: `srun seatrial doctor`, `torchrun … -m seatrial doctor`.

    everyone = gathered(place, local_findings())        on rank 0 {node: findings}, elsewhere None

Every node's first rank looks at its node; rank 0 asks each for the time, several times, and takes the quickest answer, as NTP
does.
"""
from __future__ import annotations

import socket
import time
from collections.abc import Mapping

import torch
import torch.distributed as dist

from seatrial.doctor import Finding, worst
from seatrial.engine.rendezvous import RankInfo, join
from seatrial.errors import BadInput

ROUNDS = 7
JOIN_S = 120.0
LARGEST_SKEW_S = 1.0
"""Records of one run carry the time of their node: beyond this their order is not the order of events."""


def gathered(place: RankInfo, findings: list[Finding]) -> dict[str, list[Finding]] | None:
    """What every node found, and the clocks compared; on rank 0 alone."""
    try:
        join(place, torch.device("cpu"), timeout_s=JOIN_S)
    except (RuntimeError, OSError) as error:
        first = next(iter(str(error).splitlines()), "")[:200]
        raise BadInput(f"rank {place.rank} did not meet the other {place.world - 1} within {JOIN_S:.0f} s ({first}): "
                       "start the doctor once for every rank, as with srun or torchrun") from None
    try:
        mine = (f"{socket.gethostname()}:{place.rank}" if place.local_rank == 0 else "", findings)
        everyone: list[tuple[str, list[Finding]]] = [("", [])] * place.world
        dist.gather_object(mine, everyone if place.rank == 0 else None, dst=0)
        leaders = [place.local_rank == 0]
        flags: list[list[bool]] = [[False]] * place.world
        dist.all_gather_object(flags, leaders)
        offset_s = offsets(place.rank, [rank for rank, (leads,) in enumerate(flags) if leads and rank])
        dist.barrier()
    finally:
        dist.destroy_process_group()
    if place.rank:
        return None
    by_node = {name: found for name, found in everyone if name}
    first = next(iter(by_node))
    by_node[first] = [*by_node[first], skew({name: offset_s.get(int(name.rpartition(":")[2]), (0.0, 0.0)) for name in by_node})]
    return by_node


def offsets(rank: int, peers: list[int]) -> dict[int, tuple[float, float]]:
    """Rank 0: of each peer, how far its clock is ahead and how far that may be wrong, in seconds."""
    found: dict[int, tuple[float, float]] = {}
    beat = torch.zeros(1, dtype=torch.float64)
    for peer in peers:
        if rank == peer:
            for _ in range(ROUNDS):
                dist.recv(beat, src=0)
                dist.send(torch.tensor([time.time()], dtype=torch.float64), dst=0)
        elif rank == 0:
            answers = []
            for _ in range(ROUNDS):
                sent = time.time()
                dist.send(beat, dst=peer)
                dist.recv(beat, src=peer)
                received = time.time()
                answers.append((received - sent, float(beat) - (sent + received) / 2))
            trip_s, offset_s = min(answers)
            found[peer] = offset_s, trip_s / 2
    return found


def skew(by_node: Mapping[str, tuple[float, float]]) -> Finding:
    ahead = {name: offset for name, (offset, _) in by_node.items()}
    spread = max(ahead.values()) - min(ahead.values())
    error = max(error for _, error in by_node.values())
    message = f"{len(by_node)} nodes, clocks within {1000 * spread:.1f} ms of each other (± {1000 * error:.1f})"
    facts = {"ahead_s": ahead, "error_s": error}
    if spread > LARGEST_SKEW_S + error:
        return Finding("skew", "warn", message, "chrony or ntpd on every node", facts)
    return Finding("skew", "ok", message, facts=facts)


def merged(by_node: Mapping[str, list[Finding]]) -> list[Finding]:
    """One line a check: rank 0's where all agree on the level, and each node that is worse by name."""
    first, *others = by_node.items()
    out = []
    for finding in first[1]:
        same = {name: next((f for f in found if f.name == finding.name), finding) for name, found in others}
        all_of_them = [finding, *same.values()]
        level = worst(all_of_them)
        if level == "ok":
            out.append(finding)
            continue
        named = {first[0]: finding, **same}
        bad = [f"{name}: {f.text}" for name, f in named.items() if f.level == level]
        rest = f" (and {len(bad) - 2} other nodes)" if len(bad) > 2 else ""
        out.append(Finding(finding.name, level, "; ".join(bad[:2]) + rest, facts=finding.facts))
    return out
