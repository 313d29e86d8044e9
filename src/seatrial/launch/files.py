"""The folder of one trial: the names of all its files, which nobody spells a second time, and the job's own.

    RUN/run.json                what the engine is told            RUN/logs/rank3.log      what a rank printed
    RUN/job.json                what the launcher is told          RUN/watch/…             heartbeats, stalls and stacks
    RUN/events.jsonl            what the run says of itself        RUN/nodes/…             agents: who is where, how it ended
    RUN/record.json             the trial's record, when concluded RUN/job.sh, job.out     a batch system's script and output

    write_job(job)                      RUN/job.json, readable by its owner alone: it holds the environment
    python -m seatrial.launch.agent RUN/job.json
    merged(job, node_results(job))      what the agents of all nodes left, as one Finished
"""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from seatrial.engine.watch import events, heartbeat
from seatrial.engines.base import LOGS, RUN
from seatrial.errors import BadInput
from seatrial.files import write_whole
from seatrial.launch.base import Finished, Job, NodeResult

__all__ = ["LOGS", "RUN"]

JOB = "job.json"
RECORD = "record.json"
EVENTS = events.FILE_NAME
NODES = "nodes"
WATCH = heartbeat.FOLDER
SCRIPT = "job.sh"
SCRIPT_OUTPUT = "job.out"
CANCEL = "cancel"
"""Made to ask the agents of a trial to stop."""


def log(run_dir: Path, rank: int) -> Path:
    return run_dir / LOGS / f"rank{rank}.log"


def node_log(run_dir: Path, node: int) -> Path:
    """What a program that is started once a node printed."""
    return run_dir / LOGS / f"node{node}.log"


def node_here(run_dir: Path, node: int) -> Path:
    """Written by an agent when it starts: its host and address."""
    return run_dir / NODES / f"node{node}.here.json"


def node_exit(run_dir: Path, node: int) -> Path:
    """Written by an agent when its processes are gone: exit codes and peaks."""
    return run_dir / NODES / f"node{node}.exit.json"


def node_failed(run_dir: Path, node: int) -> Path:
    """Made by an agent when one of its processes fails, so that the others' agents end theirs."""
    return run_dir / NODES / f"node{node}.failed"


def alarm(run_dir: Path) -> Path:
    """Made by the first rank that sees a stall."""
    return run_dir / WATCH / "stalled"


def enough(run_dir: Path) -> Path:
    """Made by whoever ends a program that is not ours because enough is measured; says why."""
    return run_dir / WATCH / "enough"


def stall(run_dir: Path, rank: int) -> Path:
    return run_dir / WATCH / f"rank{rank}.stall.json"


def stacks(run_dir: Path, rank: int) -> Path:
    return run_dir / WATCH / f"rank{rank}.stacks"


def flight(run_dir: Path, rank: int) -> Path:
    return run_dir / WATCH / f"rank{rank}.flight.json"


def clear(run_dir: Path, *, keep_events: bool = False) -> None:
    """Forgets what an earlier, half-finished try of the same trial left, so that it is not taken for this one's.

    With `keep_events`, what rank 0 said of a run that is now resumed stays.
    """
    heartbeat.clear(run_dir)
    for folder in (run_dir / NODES, run_dir / LOGS):
        for path in folder.glob("*"):
            path.unlink()
    said = run_dir.glob("events.rank*.jsonl" if keep_events else "events*.jsonl")
    for path in [*said, run_dir / CANCEL, run_dir / RECORD, run_dir / SCRIPT_OUTPUT, enough(run_dir)]:
        path.unlink(missing_ok=True)


# ---- job.json and what the agents leave


def write_job(job: Job) -> Path:
    job.run_dir.mkdir(parents=True, exist_ok=True)
    (job.run_dir / LOGS).mkdir(exist_ok=True)
    (job.run_dir / NODES).mkdir(exist_ok=True)
    path = job.run_dir / JOB
    path.unlink(missing_ok=True)
    data = json.dumps({**asdict(job), "run_dir": str(job.run_dir)}, indent=1)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(data + "\n")
    return path


def read_job(path: Path) -> Job:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Job(**{**data, "run_dir": Path(data["run_dir"]), "argv": tuple(data["argv"]),
                      "node_variables": tuple(data.get("node_variables", ()))})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{path}: not a job ({error})") from None


def leave(job: Job, node: int, result: NodeResult) -> None:
    write_whole(node_exit(job.run_dir, node), json.dumps(asdict(result)) + "\n")


def node_results(job: Job) -> dict[int, NodeResult]:
    found = {}
    for node in range(job.nodes):
        try:
            data = json.loads(node_exit(job.run_dir, node).read_text())
        except (OSError, ValueError):
            continue
        for name in ("codes", "rss_peak_bytes", "data_peak_bytes"):
            data[name] = {int(rank): value for rank, value in data[name].items()}
        found[node] = NodeResult(**data)
    return found


def merged(job: Job, results: Mapping[int, NodeResult], *, seconds: float = 0.0, scheduler_state: str = "",
           job_id: str = "") -> Finished:
    """The nodes' results as one; ranks of a node that left none have no exit code."""
    codes = {rank: code for r in results.values() for rank, code in r.codes.items()}
    died = sorted(((at, rank) for r in results.values() for at, rank in zip(r.died_at, r.died)), key=lambda one: one[0])
    count = job.world if job.per == "rank" else job.nodes
    return Finished(
        codes=tuple(codes.get(rank) for rank in range(count)), died=tuple(rank for _, rank in died),
        timed_out=any(r.timed_out for r in results.values()), stopped=any(r.stopped for r in results.values()),
        seconds=max((r.seconds for r in results.values()), default=seconds),
        frozen=tuple(rank for r in results.values() for rank in r.frozen),
        rss_peak_bytes={k: v for r in results.values() for k, v in r.rss_peak_bytes.items()},
        data_peak_bytes={k: v for r in results.values() for k, v in r.data_peak_bytes.items()},
        shot=tuple(rank for r in results.values() for rank in r.shot),
        crowd=next((r.crowd for r in results.values() if r.crowd), {}),
        refused=next((r.refused for r in results.values() if r.refused), ""), scheduler_state=scheduler_state, job_id=job_id,
        hosts=tuple(results[node].host for node in sorted(results)), pinned=any(r.pinned for r in results.values()))
