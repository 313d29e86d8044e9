"""What became of a trial: exit codes, events and the watch's files become one outcome with its evidence.

    classify(run_dir, finished, job=job, trial=trial)       Outcome(status="crash", rank=3, iteration=2, phase="forward", …)

`fits` is the planner's answer to what would have fitted (`plan.fits.would_fit`), for whoever has a planner; without it an
outcome says what was needed and not what would work.

The first rank that failed is the cause; a rank that only lost its connection to it is not. Words of a log are read only where a
program is not ours and left nothing else.
"""
from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any, Protocol

from seatrial.engine.watch import heartbeat
from seatrial.engines import engine_for
from seatrial.engines.base import Event
from seatrial.launch import files, saved
from seatrial.launch.base import Finished, Job
from seatrial.launch.hang import find_hang, rank_label, reports, standing_at
from seatrial.launch.memory import MIB, Whose, shown
from seatrial.outcomes import BY_SCHEDULER, OUTCOMES, Status
from seatrial.record import Outcome
from seatrial.spec import GIB, Trial

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
        self.failures = sorted((e for e in self.events if e["event"] == "failure" and isinstance(e.get("rank"), int)),
                               key=lambda e: e["time"] if isinstance(e.get("time"), int | float) else 0.0)

    def outcome(self) -> Outcome:
        done = self.finished
        if self._end() == "finished" and not done.died and not self.failures:
            return self._of_iterations()  # being asked to stop, or ended, while it was leaving changes nothing
        if done.good and not done.died and (self.job.per == "node" or self.engine.ended(self.events)):
            return self._of_iterations()
        own = [e for e in self.failures if not e.get("consequence")]
        cause = self._cause()
        if cause is not None and (done.codes[cause] or 0) < 0 and not done.stopped and not self._reported_before(cause):
            return self._killed(cause)
        if own:
            return self._of_failure(next((e for e in own if e["rank"] == cause), own[0]))
        if (words := self._never_started()) and BY_SCHEDULER.get(done.scheduler_state) != "cancelled" and not done.stopped:
            return Outcome(status="not_started", message=f"could not start: {words}",
                           evidence={"scheduler_state": done.scheduler_state, "log": self._output() or self._tail(0)})
        gone = [r for r, code in enumerate(done.codes) if code is None]
        lost_node = BY_SCHEDULER.get(done.scheduler_state) == "crash" or self.failures and not done.stopped
        if cause is None and 0 < len(gone) < len(done.codes) and lost_node:
            return self._lost_node(gone[0])
        if cause is None and (reports(self.run_dir) or heartbeat.EXIT_STALL in done.codes or done.frozen):
            return self._hang()
        if done.scheduler_state in BY_SCHEDULER:
            return self._ended_by_scheduler(BY_SCHEDULER[done.scheduler_state])
        if done.stopped:
            said = saved.kept(self.events, self.beats.values())
            return Outcome(status="cancelled", message=f"asked to stop{'; ' + said if said else ' before the end'}",
                           **self._slowest())
        if done.timed_out:
            return self._timeout(f"not finished after {done.seconds:.0f} s")
        if cause is None and self.failures:
            return self._of_failure(self.failures[0])
        return self._unexplained(cause)

    def _cause(self) -> int | None:
        """The first that ended by itself, but for those that only say that another is gone; none where that was for a stall."""
        codes = self.finished.codes
        lost = {e["rank"] for e in self.failures if e.get("consequence")}
        first = next((r for r in self.finished.died if r not in lost), None)
        return None if first is None or codes[first] == heartbeat.EXIT_STALL else first

    def _never_started(self) -> str:
        """Why nothing came to run, in words of an agent, the job's output or the interpreter; empty where a rank was there."""
        done = self.finished
        if done.refused:
            return done.refused
        if self.beats or self.failures or self.events:
            return ""
        if done.scheduler_state and all(code is None for code in done.codes):
            if any(files.node_here(self.run_dir, node).exists() for node in range(self.job.nodes)):
                return ""
            return last_words(self._output()) or f"the batch system says {done.scheduler_state}, and its output nothing"
        if self.job.says_end and len(done.died) == len(done.codes) and all((code or 0) > 0 for code in done.codes):
            return last_words(self._tail(0)) or f"every rank ended with exit code {done.codes[0]} before its first words"
        return ""

    def _output(self) -> list[str]:
        return tail(self.run_dir / files.SCRIPT_OUTPUT)

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
        if rank in done.shot and done.crowd:
            return self._crowded(rank, Whose(**done.crowd))
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

    def _crowded(self, rank: int, seen: Whose) -> Outcome:
        """Not the trial's doing, and nothing is learned of it but that it was not alone."""
        largest = f" (the fullest: {seen.largest})" if seen.largest else ""
        message = (f"others filled this machine's memory: {shown(seen.others_grew_bytes)} since the start{largest}; of "
                   f"{shown(seen.total_bytes)} this trial had {shown(seen.ours_bytes)}, and "
                   f"{rank_label(rank, self.trial.topology)} was ended for it")
        return Outcome(status="crowded", message=message, evidence={**self.finished.crowd, "log": self._tail(rank)},
                       **self._place(rank))

    def _hang(self) -> Outcome:
        if (still := saved.stood_still(reports(self.run_dir))) is not None:
            what, rank = still["standing"], int(still["rank"])
            return Outcome(status="hang", rank=rank, iteration=still.get("step"), phase=what,
                           evidence={"why": f"no byte of its {what}"},
                           message=f"{rank_label(rank, self.trial.topology)}: its {what} stood still at "
                                   f"{saved.so_far(still.get('done', 0), still.get('total', 0))} for {still['silent_s']:.0f} s "
                                   f"(recipe.{what}_s); is the disk full, or gone?")
        backend = next((e.get("backend") for e in self.events if e["event"] == "start"), "")
        found = find_hang(self.run_dir, self.trial.topology, beats=self.beats, frozen=self.finished.frozen,
                          lost=frozenset(e["rank"] for e in self.failures), run_ahead=backend == "nccl")
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

    def _lost_node(self, rank: int) -> Outcome:
        """The ranks that are left only say that somebody is gone, and of these not even an exit code came back."""
        node, state = rank // self.job.local_world if self.job.per == "rank" else rank, self.finished.scheduler_state
        said = f"; the batch system says {state}" if state in BY_SCHEDULER else ""
        last = (node + 1) * self.job.local_world - 1
        who = f"rank {rank}" if last == rank else f"ranks {rank} to {last}"
        return Outcome(status="crash", message=f"node {node} is gone with {who}: its agent left no exit codes{said}",
                       evidence={"node": node, "scheduler_state": state}, **self._place(rank))

    def _unexplained(self, cause: int | None) -> Outcome:
        """Ended without a word of its own: an import that failed, a program that is not ours."""
        done = self.finished
        rank = cause if cause is not None else next((r for r, code in enumerate(done.codes) if code != 0), 0)
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
        if (beat := self.beats.get(rank)) is not None and self.job.per == "rank":
            message += f" at step {beat.step} ({beat.phase})"
        tail = self._tail(rank)
        if words := last_words(tail):
            message += f": {words}"
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


def last_words(lines: list[str]) -> str:
    """The last line that says something; what srun says of it only where nothing else does."""
    said = [line.strip() for line in lines if any(letter.isalpha() for letter in line)]
    own = [line for line in said if not line.startswith(("srun: ", "slurmstepd: "))]
    return (own or said or [""])[-1][:200]


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
