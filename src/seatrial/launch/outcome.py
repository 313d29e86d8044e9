"""What became of a trial: exit codes, events and the watch's files become one outcome with its evidence.

    classify(run_dir, finished, job=job, trial=trial)       Outcome(status="crash", rank=3, iteration=2, phase="forward", …)

`fits` is the planner's answer to what would have fitted (`plan.fits.would_fit`), for whoever has a planner; without it an
outcome says what was needed and not what would work.

The first rank that failed is the cause; a rank that only lost its connection to it is not. Words of a log are read only where a
program is not ours and left nothing else.
"""
from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from seatrial.engine.watch import heartbeat
from seatrial.engine.watch.heartbeat import Beat
from seatrial.engines import engine_for
from seatrial.engines.base import Event
from seatrial.launch import files, saved
from seatrial.launch.base import Finished, Job
from seatrial.outcomes import BY_SCHEDULER, OUTCOMES, Status
from seatrial.record import Outcome
from seatrial.spec import GIB, Topology, Trial

TAIL_LINES = 12
NEAR_CAP = 0.97
"""A rank that dies with this share of its cap taken died of it."""
PARTS = {
    "loss.py": "logits", "optim.py": "optimizer state", "zero.py": "gradients", "data.py": "data", "indexed.py": "data",
    "checkpoint.py": "checkpoint buffers", "dcp.py": "checkpoint buffers", "layers.py": "activations",
    "attention.py": "activations", "model.py": "activations", "recompute.py": "activations", "pipeline.py": "activations",
    "messages.py": "activations between stages", "comm.py": "communication buffers", "fault.py": "memory taken on purpose",
}  # fmt: skip
"""What memory was for, by the innermost file of the engine that stood in the traceback."""
MIB = 2**20
_REQUESTED = re.compile(r"tried to allocate ([\d.]+) ?(bytes|KiB|MiB|GiB)", re.IGNORECASE)
_UNITS = {"bytes": 1, "kib": 2**10, "mib": MIB, "gib": GIB}


class Fits(Protocol):
    def __call__(self, trial: Trial, *, need_bytes: int, base_bytes: int, cap_bytes: int) -> tuple[int, list[str]]:
        """What the trial needs, estimated, and changes of knobs that would fit below the cap."""


def classify(run_dir: Path, finished: Finished, *, job: Job, trial: Trial, events: list[Event] | None = None,
             fits: Fits | None = None) -> Outcome:
    """The outcome of a job that is done."""
    return _Case(run_dir, finished, job, trial, events, fits).outcome()


class _Case:
    def __init__(self, run_dir: Path, finished: Finished, job: Job, trial: Trial, events: list[Event] | None,
                 fits: Fits | None):
        self.engine = engine_for(trial)
        self.run_dir, self.finished, self.job, self.trial, self.fits = run_dir, finished, job, trial, fits
        self.events = self.engine.events(run_dir) if events is None else events
        self.beats = {beat.rank: beat for beat in heartbeat.read(run_dir)}
        self.failures = [e for e in self.events if e["event"] == "failure" and isinstance(e.get("rank"), int)]

    def outcome(self) -> Outcome:
        done = self.finished
        if self._end() == "finished" and not done.died and not self.failures:
            return self._of_iterations()  # being asked to stop, or ended, while it was leaving changes nothing
        if done.good and (self.job.per == "node" or self.engine.ended(self.events)):
            return self._of_iterations()
        own = [e for e in self.failures if not e.get("consequence")]
        killed = [r for r in done.died if (done.codes[r] or 0) < 0]
        if killed and done.died[0] == killed[0] and not done.stopped and not self._reported_before(killed[0]):
            return self._killed(killed[0])
        if own:
            return self._of_failure(own[0])
        if reports(self.run_dir) or heartbeat.EXIT_STALL in done.codes or done.frozen:
            return self._hang()
        if done.scheduler_state in BY_SCHEDULER:
            return self._ended_by_scheduler(BY_SCHEDULER[done.scheduler_state])
        if done.stopped:
            said = saved.kept(self.events, self.beats.values())
            return Outcome(status="cancelled", message=f"asked to stop{'; ' + said if said else ' before the end'}",
                           **self._slowest())
        if done.timed_out:
            return self._timeout(f"not finished after {done.seconds:.0f} s")
        if self.failures:
            return self._of_failure(self.failures[0])
        return self._unexplained()

    def _last_end(self) -> Event:
        return next((e for e in reversed(self.events) if e["event"] == "end"), {})

    def _end(self) -> str:
        """`finished`: all that was asked, or enough of it; `stopped`: asked to; empty: never came so far."""
        return str(self._last_end().get("status", ""))

    def _iterations(self) -> list[Event]:
        return [e for e in self.events if e["event"] == "iteration"]

    def _reported_before(self, rank: int) -> bool:
        """Whether the rank that a signal ended had said why itself, as an abort after an error does."""
        return any(e["rank"] == rank and not e.get("consequence") for e in self.failures)

    # ---- one kind of end each

    def _of_iterations(self) -> Outcome:
        for event in self._iterations():
            if isinstance(event.get("loss"), str):
                ranks = event.get("nan_ranks") or [None]
                at = "" if ranks[0] is None else f", first on {rank_label(ranks[0], self.trial.topology)}"
                return Outcome(status="nan", rank=ranks[0], iteration=event.get("step"), phase="loss",
                               message=f"the loss of step {event.get('step')} is {event['loss']}{at}",
                               evidence={"nan_ranks": event.get("nan_ranks", [])})
        end = self._end()
        if end == "stopped" and not self.finished.stopped and files.alarm(self.run_dir).exists():
            # Nobody asked but the launcher, because a rank saw a stall; on a machine that is overrun it goes on after all.
            return self._paused()
        if end == "stopped" or self.finished.stopped and end != "finished":
            said = saved.kept(self.events, self.beats.values())
            return Outcome(status="cancelled", message=f"asked to stop; {said or 'left cleanly'}",
                           iteration=self._last_end().get("step"))
        if not self.engine.ended(self.events):
            return Outcome(status="crash", message="the command ended well, but printed no iteration that can be read",
                           evidence={"log": self._tail(0)})
        return Outcome(status="ok")

    def _of_failure(self, event: Event) -> Outcome:
        rank, status = int(event["rank"]), event["status"]
        memory = event.get("memory") or {}
        if status == "crash" and memory.get("data_bytes", 0) >= NEAR_CAP * memory.get("cap_bytes", float("inf")):
            status = "oom_host"  # what fails when the last byte is gone is not always an allocation
            event = {**event, "status": status}
        place: dict[str, Any] = {"rank": rank, "iteration": event.get("step"), "phase": event.get("phase", "")}
        if OUTCOMES[status].out_of_memory:
            message, evidence = self._out_of_memory(event)
            return Outcome(status=status, message=message, evidence={**evidence, "log": self._tail(rank)}, **place)
        who = rank_label(rank, self.trial.topology)
        message = event["message"] if status == "invalid" else f"{who}: {event['error']}: {event['message']}"
        wanted = ("error", "line", "frames", "collective", "group", "seq", "microbatch")
        return Outcome(status=status, message=message, **place,
                       evidence={**{k: event[k] for k in wanted if k in event}, "log": self._tail(rank)})

    def _killed(self, rank: int) -> Outcome:
        done, cap = self.finished, self.job.memory_cap_bytes
        number = -(done.codes[rank] or 0)
        name = signal.Signals(number).name if number in {s.value for s in signal.Signals} else f"signal {number}"
        data, rss = done.data_peak_bytes.get(rank, 0), done.rss_peak_bytes.get(rank, 0)
        how = "the machine had none left" if rank in done.shot else f"{name} at its cap"
        if rank in done.shot or done.scheduler_state == "OUT_OF_MEMORY" or cap and data >= NEAR_CAP * cap:
            message, found = self._killed_for_memory(rank, used_bytes=rss if rank in done.shot else data, how=how)
            return Outcome(status="oom_host", message=message, evidence={**found, "log": self._tail(rank)}, **self._place(rank))
        beat = self.beats.get(rank)
        at = f" at step {beat.step} ({beat.phase})" if beat else ""
        who = rank_label(rank, self.trial.topology) if self.job.per == "rank" else f"the program on node {rank}"
        evidence: dict[str, object] = {"signal": name, "rss_peak_bytes": rss, "data_peak_bytes": data, "log": self._tail(rank)}
        if cap:
            evidence["cap_bytes"] = cap
        return Outcome(status="crash", message=f"{who} was ended by {name}{at}", evidence=evidence, **self._place(rank))

    def _hang(self) -> Outcome:
        if (still := saved.stood_still(reports(self.run_dir))) is not None:
            what, rank = still["standing"], int(still["rank"])
            far = heartbeat.so_far(still.get("done", 0), still.get("total", 0))
            return Outcome(status="hang", rank=rank, iteration=still.get("step"), phase=what,
                           evidence={"why": f"no byte of its {what}"},
                           message=f"{rank_label(rank, self.trial.topology)}: its {what} stood still at {far} for "
                                   f"{still['silent_s']:.0f} s (recipe.{what}_s); is the disk full, or gone?")
        found = find_hang(self.run_dir, self.trial.topology, beats=self.beats, frozen=self.finished.frozen)
        return Outcome(status="hang", rank=found.rank, iteration=found.iteration, phase=found.phase, message=found.message,
                       evidence=found.evidence)

    def _paused(self) -> Outcome:
        stalls = sorted(reports(self.run_dir).values(), key=lambda report: not report.get("first"))
        seen: dict[str, Any] = stalls[0] if stalls else {}
        who = rank_label(seen["rank"], self.trial.topology) if seen else "a rank"
        lasted = f" for {seen['silent_s']:.0f} s" if "silent_s" in seen else ""
        return Outcome(status="hang", rank=seen.get("rank"), iteration=seen.get("step", self._last_end().get("step")),
                       phase=seen.get("phase", ""), evidence={"why": "went on after the stall was seen"},
                       message=f"{who} stood still{lasted}; the run went on, but was ended for it: a larger recipe.stall_s "
                               "or a machine with room for all ranks would let it")

    def _timeout(self, message: str) -> Outcome:
        place = self._slowest()
        evidence: dict[str, object] = {"frozen": list(self.finished.frozen)} if self.finished.frozen else {}
        rank = place.get("rank")
        if rank is not None:
            message += f"; {rank_label(rank, self.trial.topology)} is at step {place['iteration']} ({place['phase']})"
            if where := standing_at(self.run_dir, rank):
                message += f", in {where[0]}"
                evidence["stack"] = where
        return Outcome(status="timeout", message=message, evidence=evidence, **place)

    def _ended_by_scheduler(self, status: Status) -> Outcome:
        state = self.finished.scheduler_state
        if status == "timeout":
            return self._timeout(f"the batch system ended it after {self.finished.seconds:.0f} s ({state})")
        return Outcome(status=status, message=f"the batch system says {state}",
                       evidence={"scheduler_state": state}, **self._slowest())

    def _unexplained(self) -> Outcome:
        """Ended without a word of its own: an import that failed, a program that is not ours."""
        done = self.finished
        rank = done.died[0] if done.died else next((r for r, code in enumerate(done.codes) if code != 0), 0)
        status = self.engine.status_of(self.run_dir)
        code = done.codes[rank] if rank < len(done.codes) else None
        if self.job.per == "node":
            who = f"the program on node {rank}"
        else:
            who = rank_label(rank, self.trial.topology)
        ended = "is gone without an exit code" if code is None else f"ended with exit code {code}"
        if code == 0:
            ended = "ended well, but never said so"
        message = f"{who} {ended}"
        tail = self._tail(rank)
        if words := [line.strip() for line in tail if any(letter.isalpha() for letter in line)]:
            message += f": {words[-1][:200]}"
        place = self._place(rank) if self.job.per == "rank" else {}
        return Outcome(status=status, message=message, evidence={"exit_code": code, "log": tail}, **place)

    # ---- out of memory: which rank and part, how far over, and which knobs would fit

    def _out_of_memory(self, event: Event) -> tuple[str, dict[str, object]]:
        """From a rank's failure event: what it had and asked for is what its allocator said."""
        rank, device = int(event["rank"]), event.get("status") == "oom_device"
        memory: dict[str, int] = event.get("memory") or {}
        used = memory.get("device_bytes" if device else "data_bytes", 0)
        cap = memory.get("device_cap_bytes") if device else memory.get("cap_bytes", self.job.memory_cap_bytes)
        requested = requested_bytes(str(event.get("message", "")))
        part = part_of(event)
        evidence: dict[str, object] = {"part": part, "used_bytes": used,
                                       **{k: event[k] for k in ("error", "line") if k in event}}
        kind = "device" if device else "host"
        message = f"{rank_label(rank, self.trial.topology)} is out of {kind} memory in {event.get('phase') or 'start'}"
        if event.get("step"):
            message += f" of step {event['step']}"
        message += f": {part}"
        if requested:
            evidence["asked_bytes"] = requested
            message += f" asked for {shown(requested)}"
        if cap:
            evidence["cap_bytes"] = cap
            message += f" with {shown(used)} of {shown(cap)} taken"
        over = used + requested - cap if cap and requested else 0
        if over > 0:
            evidence["over_bytes"] = over
            message += f", {shown(over)} over"
        # What is there without a model: on a GPU all that the allocator does not hold.
        base = used - memory.get("reserved_bytes", used) if device else memory.get("base_bytes", 0)
        return self._with_knobs(message, evidence, need=used + requested, base=base, cap=cap)

    def _killed_for_memory(self, rank: int, *, used_bytes: int, how: str) -> tuple[str, dict[str, object]]:
        """Of a rank that could not say anything itself."""
        cap = self.job.memory_cap_bytes
        message = f"{rank_label(rank, self.trial.topology)} was killed for memory ({how}) with {shown(used_bytes)} taken"
        evidence: dict[str, object] = {"part": "unknown", "used_bytes": used_bytes, "how": how}
        if cap:
            evidence["cap_bytes"] = cap
            message += f" of {shown(cap)}"
        return self._with_knobs(message, evidence, need=used_bytes, base=0, cap=cap)

    def _with_knobs(self, message: str, evidence: dict[str, object], *, need: int, base: int,
                    cap: int | None) -> tuple[str, dict[str, object]]:
        if not cap or self.fits is None:
            return message, evidence
        needs, fits = self.fits(self.trial, need_bytes=max(need, cap), base_bytes=base, cap_bytes=cap)
        message += f"; it needs about {shown(needs)} (estimated), "
        message += f"{' or '.join(fits)} would fit" if fits else "and no one or two knobs would fit"
        return message, {**evidence, "needs_bytes": needs, "would_fit": fits}

    # ---- where

    def _place(self, rank: int) -> dict[str, Any]:
        if self.job.per == "node":
            return {}
        beat = self.beats.get(rank)
        return {"rank": rank, "iteration": beat.step if beat else None, "phase": beat.phase if beat else ""}

    def _slowest(self) -> dict[str, Any]:
        if self.finished.frozen:
            return self._place(self.finished.frozen[0])
        beat = min(self.beats.values(), key=lambda b: (b.step, b.microbatch, b.rank), default=None)
        return self._place(beat.rank) if beat else {}

    def _tail(self, rank: int) -> list[str]:
        path = files.log(self.run_dir, rank) if self.job.per == "rank" else files.node_log(self.run_dir, rank)
        return tail(path)


def tail(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        return []


def requested_bytes(message: str) -> int:
    """What an allocator's error says was asked of it."""
    match = _REQUESTED.search(message)
    return int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0


def part_of(event: Event) -> str:
    if event.get("phase") in ("build", "join", "start") and event.get("step") in (0, None):
        return "weights, gradients and optimizer state"
    for frame in reversed(event.get("frames", [])):
        if part := PARTS.get(str(frame).partition(":")[0]):
            return part
    return {"optimizer": "optimizer state", "reduce": "gradients"}.get(str(event.get("phase")), "activations")


def shown(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:.0f} MiB"


# ---- who never arrived: the rank behind a hang, the collective that the others wait in, and the line of code it stands at


GROUPS = ("tp", "dp", "pp", "world")
"""Innermost first: the order in which a hang spreads outwards."""
FLIGHT_ENTRIES = 3
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
_THREAD = re.compile(r"hread (?P<id>0x[0-9a-f]+)[^\n]*\(most recent call first\):\n(?P<frames>(?:  [^\n]*\n?)*)")
_LIBRARIES = ("/torch/", "/lib/python", "<frozen", "<string>")

Report = dict[str, Any]
"""What the watch of a rank wrote when it saw the stall."""


@dataclass(frozen=True, kw_only=True)
class Hang:
    rank: int
    message: str
    iteration: int | None = None
    phase: str = ""
    evidence: dict[str, object] = field(default_factory=dict)


def rank_label(rank: int, t: Topology) -> str:
    """rank 1 (pp0 dp0 tp1)"""
    return f"rank {rank} (pp{rank // (t.tp * t.dp)} dp{rank // t.tp % t.dp} tp{rank % t.tp})"


def peers(group: str, rank: int, t: Topology) -> list[int]:
    """All ranks of one group, this one among them."""
    everyone = range(t.world)
    if group == "tp":
        return [r for r in everyone if r // t.tp == rank // t.tp]
    if group == "dp":
        return [r for r in everyone if (r // (t.tp * t.dp), r % t.tp) == (rank // (t.tp * t.dp), rank % t.tp)]
    if group == "pp":
        return [r for r in everyone if r % (t.tp * t.dp) == rank % (t.tp * t.dp)]
    return list(everyone)


def reports(run_dir: Path) -> dict[int, Report]:
    found = {}
    for path in (run_dir / files.WATCH).glob("rank*.stall.json"):
        try:
            report = json.loads(path.read_text())
            found[int(report["rank"])] = report
        except (OSError, ValueError, KeyError, TypeError):
            continue  # half a file of a rank that was ended while it wrote
    return found


def find_hang(run_dir: Path, t: Topology, *, beats: dict[int, Beat], frozen: tuple[int, ...] = ()) -> Hang:
    stalls = reports(run_dir)
    silent = [r for r in range(t.world) if r not in stalls]
    why = "was stopped (state T)" if frozen else "did not report" if silent else "lags its group"
    rank = frozen[0] if frozen else silent[0] if silent else _behind(stalls, t)
    beat = beats.get(rank)
    missed = _missed(rank, stalls, beats, t)
    where = standing_at(run_dir, rank)
    waiting = sorted(r for r in stalls if r != rank)
    words = [f"{rank_label(rank, t)} " + (f"never entered {missed}" if missed else _since(beat))]
    if frozen:
        words.append("it was stopped by a signal")
    if where:
        words.append(f"it is in {where[0]}")
    if waiting:
        words.append("1 other waits" if len(waiting) == 1 else f"{len(waiting)} others wait")
    evidence: dict[str, object] = {"why": why, "waiting": waiting}
    if missed:
        evidence["missed"] = missed
    if where:
        evidence["stack"] = where
    if flight := last_collectives(run_dir, waiting[0] if waiting else rank):
        evidence["flight_recorder"] = flight
    return Hang(rank=rank, message="; ".join(words), iteration=beat.step if beat else None, phase=beat.phase if beat else "",
                evidence=evidence)


def _since(beat: Beat | None) -> str:
    return f"has not moved since step {beat.step} ({beat.phase})" if beat else "never came"


def _behind(stalls: dict[int, Report], t: Topology) -> int:
    for group in GROUPS:
        if group == "pp":
            continue  # stages take different numbers of messages
        entered = {r: int(stalls[r].get("groups", {}).get(group, 0)) for r in stalls}
        late = [r for r in stalls if entered[r] < max(entered[p] for p in peers(group, r, t) if p in stalls)]
        if late:
            return min(late, key=lambda r: entered[r])
    return min(stalls, key=lambda r: (stalls[r].get("step", 0), stalls[r].get("beats", 0)))


def _missed(rank: int, stalls: dict[int, Report], beats: dict[int, Beat], t: Topology) -> str:
    """The collective that a peer of this rank waits in and this rank has not entered; empty when none can be told."""
    mine: dict[str, int] = stalls[rank].get("groups", {}) if rank in stalls else {}
    if not mine and rank in beats and beats[rank].group:
        mine = {beats[rank].group: beats[rank].seq}
    for group in GROUPS:
        waits = [stalls[r] for r in peers(group, rank, t) if r != rank and r in stalls and stalls[r].get("group") == group]
        ahead = [w for w in waits if int(w.get("seq", 0)) > mine.get(group, 0) or group == "pp"]
        if ahead:
            first = min(ahead, key=lambda w: int(w["seq"]))
            number = mine.get(group, int(first["seq"]) - 1) + 1 if group != "pp" else int(first["seq"])
            return f"{first['collective']} {number} of its {group} group"
    return ""


def standing_at(run_dir: Path, rank: int, *, most: int = 6) -> list[str]:
    """Innermost lines of a rank's main thread, those of its own code first: `data.py:88 in batch`."""
    try:
        text = files.stacks(run_dir, rank).read_text(errors="replace")
    except OSError:
        return []
    threads = list(_THREAD.finditer(text))
    if not threads:
        return []
    # The main thread is the oldest, and the oldest is written last. Of several dumps the first counts: it was asked for.
    first = next(t for t in threads if t["id"] == threads[-1]["id"])
    frames = [(m["file"], f"{Path(m['file']).name}:{m['line']} in {m['function']}") for m in _FRAME.finditer(first["frames"])]
    own = [said for file, said in frames if not any(words in file for words in _LIBRARIES)]
    return (own or [said for _, said in frames])[:most]


def last_collectives(run_dir: Path, rank: int) -> list[dict[str, object]]:
    """The newest entries of torch's own flight recorder, where it kept any."""
    try:
        entries = json.loads(files.flight(run_dir, rank).read_text()).get("entries", [])
    except (OSError, ValueError, AttributeError):
        return []
    wanted = ("collective_seq_id", "profiling_name", "state", "input_sizes", "process_group")
    return [{k: e[k] for k in wanted if k in e} for e in entries[-FLIGHT_ENTRIES:] if isinstance(e, dict)]
