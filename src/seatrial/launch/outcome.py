"""What became of a run: exit codes, events and the watch's files become one outcome with its evidence.

    judge(out, finished, world=8)       Outcome(status="crash", rank=3, iteration=2, phase="forward", message="…")

The first rank that failed is the cause; a rank that only lost its connection to it is not. No words are read out of a log.
"""
from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from seatrial.engine import events, runfile, watch
from seatrial.launch.base import Finished, Job
from seatrial.launch.files import log as log_path
from seatrial.record import Outcome
from seatrial.spec import Trial

TAIL_LINES = 12


def read_all(out: Path) -> list[dict[str, Any]]:
    """Events of all ranks in the order of their time."""
    files = [out / events.FILE_NAME, *sorted(out.glob("events.rank*.jsonl"))]
    found = [event for file in files if file.exists() for event in events.read_events(file)]
    return sorted(found, key=lambda event: event.get("time", 0.0))


def judge(out: Path, finished: Finished, *, world: int) -> Outcome:
    said = read_all(out)
    beats = {beat.rank: beat for beat in watch.read(out)}
    failures = [e for e in said if e["event"] == "failure"]
    own = [e for e in failures if not e.get("consequence")]
    stalls = _stalls(out)
    if finished.good and any(e["event"] == "end" for e in said):
        return _of_iterations(said, stopped=finished.stopped)
    killed = [r for r in finished.died if (finished.codes[r] or 0) < 0]
    if own and not (killed and finished.died[0] == killed[0]):
        return _of_failure(own[0], out)
    if killed:
        return _killed(killed[0], finished, beats, out)
    if stalls or watch.EXIT_STALL in finished.codes:
        return _hang(stalls, beats, world, out)
    if finished.stopped:
        return Outcome(status="cancelled", message="asked to stop before the end")
    slowest = min(beats.values(), key=lambda b: (b.step, b.microbatch), default=None)
    place = {"rank": slowest.rank, "iteration": slowest.step, "phase": slowest.phase} if slowest else {}
    if finished.timed_out:
        at = f" at step {slowest.step} ({slowest.phase})" if slowest else ""
        return Outcome(status="timeout", message=f"not finished after {finished.seconds:.0f} s{at}", **place)  # type: ignore[arg-type]
    if failures:
        return _of_failure(failures[0], out)
    rank = finished.died[0] if finished.died else 0
    return Outcome(status="crash", rank=rank, message=f"rank {rank} ended with exit code {finished.codes[rank]}",
                   evidence={"log": tail(log_path(out, rank))})


def _of_iterations(said: list[dict[str, Any]], *, stopped: bool) -> Outcome:
    for event in said:
        if event["event"] == "iteration" and not isinstance(event.get("loss"), int | float):
            rank = next(iter(event.get("nan_ranks", [])), None)
            at = "" if rank is None else f", first on rank {rank}"
            return Outcome(status="nan", rank=rank, iteration=event["step"],
                           message=f"the loss of step {event['step']} is {event['loss']}{at}")
    if stopped:
        return Outcome(status="cancelled", message="asked to stop; left cleanly")
    return Outcome(status="ok")


def _of_failure(event: dict[str, Any], out: Path) -> Outcome:
    rank = int(event["rank"])
    message = event["message"] if event["status"] == "invalid" else f"rank {rank}: {event['error']}: {event['message']}"
    evidence: dict[str, object] = {k: event[k] for k in ("line", "collective", "group", "seq", "microbatch") if k in event}
    evidence["log"] = tail(log_path(out, rank))
    return Outcome(status=event["status"], rank=rank, iteration=event.get("step"), phase=event.get("phase", ""),
                   message=message, evidence=evidence)


def _killed(rank: int, finished: Finished, beats: dict[int, watch.Beat], out: Path) -> Outcome:
    number = -(finished.codes[rank] or 0)
    name = signal.Signals(number).name if number in [s.value for s in signal.Signals] else f"signal {number}"
    beat = beats.get(rank)
    at = f" at step {beat.step} ({beat.phase})" if beat else ""
    return Outcome(status="crash", rank=rank, iteration=beat.step if beat else None, phase=beat.phase if beat else "",
                   message=f"rank {rank} was ended by {name}{at}", evidence={"signal": name, "log": tail(log_path(out, rank))})


def _stalls(out: Path) -> dict[int, dict[str, Any]]:
    found = {}
    for path in Path(out, watch.FOLDER).glob("rank*.stall.json"):
        report = json.loads(path.read_text())
        found[int(report["rank"])] = report
    return found


def _hang(stalls: dict[int, dict[str, Any]], beats: dict[int, watch.Beat], world: int, out: Path) -> Outcome:
    """A rank that could not even report is the cause; else one that entered fewer collectives than its peers."""
    silent = [r for r in range(world) if r not in stalls]
    culprit = silent[0] if silent else _behind(stalls, out)
    beat = beats.get(culprit)
    waiting = [f"{b.collective} {b.seq} of {b.group}" for r, b in beats.items() if r != culprit and b.collective]
    words = f"rank {culprit} has not moved since step {beat.step} ({beat.phase})" if beat else f"rank {culprit} never came"
    others = f"; the others wait in {waiting[0]}" if waiting else ""
    return Outcome(status="hang", rank=culprit, iteration=beat.step if beat else None, phase=beat.phase if beat else "",
                   message=words + others, evidence={"reported": sorted(stalls)})


def _behind(stalls: dict[int, dict[str, Any]], out: Path) -> int:
    """A rank that lags its peers, in the innermost group where one does: in the outer ones others lag because of it."""
    t = runfile.read(out / "run.json").trial.topology

    def peers(group: str, rank: int) -> list[int]:
        if group == "tp":
            return [r for r in stalls if r // t.tp == rank // t.tp]
        if group == "dp":
            return [r for r in stalls if (r // (t.tp * t.dp), r % t.tp) == (rank // (t.tp * t.dp), rank % t.tp)]
        return list(stalls)

    for group in ("tp", "dp", "world"):
        entered = {r: int(stalls[r]["groups"].get(group, 0)) for r in stalls}
        late = [r for r in stalls if entered[r] < max(entered[p] for p in peers(group, r))]
        if late:
            return min(late, key=lambda r: entered[r])
    return min(stalls, key=lambda r: (stalls[r]["step"], stalls[r]["beats"]))


def tail(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        return []


def classify(run_dir: Path, finished: Finished, *, job: Job, trial: Trial, said: list[dict[str, Any]] | None = None) -> Outcome:
    """The outcome of a job that is done."""
    return judge(run_dir, finished, world=job.world)
