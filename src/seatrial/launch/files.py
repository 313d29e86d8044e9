"""The names of all files in the folder of one trial. Nobody spells them a second time.

    RUN/run.json                what the engine is told            RUN/logs/rank3.log      what a rank printed
    RUN/job.json                what the launcher is told          RUN/watch/…             heartbeats, stalls and stacks
    RUN/events.jsonl            what the run says of itself        RUN/nodes/…             agents: who is where, how it ended
    RUN/record.json             the trial's record, when concluded RUN/job.sh, job.out     a batch system's script and output
"""
from __future__ import annotations

from pathlib import Path

from seatrial.engine.watch import events, heartbeat

RUN = "run.json"
JOB = "job.json"
RECORD = "record.json"
EVENTS = events.FILE_NAME
LOGS = "logs"
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


def agent_log(run_dir: Path, node: int) -> Path:
    return run_dir / LOGS / f"agent{node}.log"


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
    for path in [*said, run_dir / CANCEL, run_dir / RECORD, run_dir / SCRIPT_OUTPUT]:
        path.unlink(missing_ok=True)
