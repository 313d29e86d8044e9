"""job.json: a job for the agents of a batch system, and what they leave: the same words on every node.

    write(job)                          RUN/job.json, readable by its owner alone: it holds the environment
    python -m seatrial.launch.agent RUN/job.json
    merged(job)                         what all agents left, as one Finished
"""
from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seatrial.errors import BadInput
from seatrial.launch import files
from seatrial.launch.base import Finished, Handle, Job
from seatrial.launch.processes import NodeResult


def write(job: Job) -> Path:
    job.run_dir.mkdir(parents=True, exist_ok=True)
    (job.run_dir / files.LOGS).mkdir(exist_ok=True)
    (job.run_dir / files.NODES).mkdir(exist_ok=True)
    path = job.run_dir / files.JOB
    path.unlink(missing_ok=True)
    data = json.dumps({**asdict(job), "run_dir": str(job.run_dir)}, indent=1)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(data + "\n")
    return path


def read(path: Path) -> Job:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Job(**{**data, "run_dir": Path(data["run_dir"]), "argv": tuple(data["argv"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path}: not a job ({error})") from None


def replace_file(path: Path, data: dict[str, Any]) -> None:
    """Whole or not at all, as another node may read it at any moment."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(data) + "\n")
    os.replace(part, path)


def leave(job: Job, node: int, result: NodeResult) -> None:
    replace_file(files.node_exit(job.run_dir, node), asdict(result))


def node_results(job: Job) -> dict[int, NodeResult]:
    found = {}
    for node in range(job.nodes):
        try:
            data = json.loads(files.node_exit(job.run_dir, node).read_text())
        except (OSError, ValueError):
            continue
        for name in ("codes", "rss_peak_bytes", "data_peak_bytes"):
            data[name] = {int(rank): value for rank, value in data[name].items()}
        found[node] = NodeResult(**data)
    return found


def left_by(handle: Handle, state: str, *, wait_s: float) -> Finished:
    """What a job of a batch system left. One that ended by itself has left its files, and a shared file system may show them
    late; one that was cancelled or lost its node may have left none."""
    until = time.monotonic() + wait_s if state in ("COMPLETED", "FAILED") else 0.0
    while len(node_results(handle.job)) < handle.job.nodes and time.monotonic() < until:
        time.sleep(0.1)
    return merged(handle.job, seconds=time.time() - handle.submitted, scheduler_state=state, job_id=handle.job_id)


def merged(job: Job, *, seconds: float = 0.0, scheduler_state: str = "", job_id: str = "") -> Finished:
    """Ranks of a node whose agent left nothing have no exit code."""
    results = node_results(job)
    codes = {rank: code for r in results.values() for rank, code in r.codes.items()}
    died = sorted((at, rank) for r in results.values() for at, rank in zip(r.died_at, r.died))
    count = job.world if job.per == "rank" else job.nodes
    return Finished(
        codes=tuple(codes.get(rank) for rank in range(count)), died=tuple(rank for _, rank in died),
        timed_out=any(r.timed_out for r in results.values()), stopped=any(r.stopped for r in results.values()),
        seconds=max((r.seconds for r in results.values()), default=seconds),
        frozen=tuple(rank for r in results.values() for rank in r.frozen),
        rss_peak_bytes={k: v for r in results.values() for k, v in r.rss_peak_bytes.items()},
        data_peak_bytes={k: v for r in results.values() for k, v in r.data_peak_bytes.items()},
        shot=tuple(rank for r in results.values() for rank in r.shot), scheduler_state=scheduler_state, job_id=job_id,
        hosts=tuple(results[node].host for node in sorted(results)))
