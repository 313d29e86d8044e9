"""What became of a trial: exit codes, events and the watch's files become one outcome with its evidence.

    classify(run_dir, finished, job=job, trial=trial)       Outcome(status="crash", rank=3, iteration=2, phase="forward", …)

`fits` is the planner's answer to what would have fitted (`plan.fits.would_fit`), for whoever has a planner; without it an
outcome says what was needed and not what would work.

The first rank that failed is the cause; a rank that only lost its connection to it is not. Words of a log are read only where a
program is not ours and left nothing else.
"""
from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from seatrial.engine.watch import heartbeat
from seatrial.engines import engine_for
from seatrial.engines.base import Event
from seatrial.engines.foreign import logs
from seatrial.launch import files, oom, saved
from seatrial.launch.base import Finished, Job
from seatrial.launch.follow import silent_s
from seatrial.launch.hang import find_hang, peers, rank_label, reports, silent, standing_at
from seatrial.launch.memory import Whose, shown
from seatrial.launch.oom import Fits
from seatrial.outcomes import BY_SCHEDULER, OUTCOMES, Status
from seatrial.recipe import Recipe
from seatrial.record import Outcome
from seatrial.spec import Trial

TAIL_LINES = 12
MISMATCH = "distributed collective mismatch"
"""In what gloo says of a message that does not fit."""
NEAR_CAP = 0.97
"""A rank that dies with this share of its cap taken died of it."""


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
        if files.enough(self.run_dir).exists() and self._iterations():
            return self._of_iterations()  # ended from outside, with all that was asked for
        if self._end() == "finished" and not done.died and not self.failures:
            return self._of_iterations()  # being asked to stop, or ended, while it was leaving changes nothing
        if done.good and not done.died and (self.job.per == "node" or self.engine.ended(self.events)):
            return self._of_iterations()
        own = [e for e in self.failures if not e.get("consequence")]
        cause = self._cause()
        if cause is not None and not done.stopped and (astray := self._astray(cause)) is not None:
            return astray
        if cause is not None and (done.codes[cause] or 0) < 0 and not done.stopped and not self._reported_before(cause):
            return self._killed(cause)
        if own:
            # Of a program that starts the ranks itself, `cause` is a node.
            return self._of_failure(next((e for e in own if e["rank"] == cause and self.job.per == "rank"), own[0]))
        if (words := self._never_started()) and BY_SCHEDULER.get(done.scheduler_state) != "cancelled" and not done.stopped:
            return Outcome(status="not_started", message=f"could not start: {words}",
                           evidence={"scheduler_state": done.scheduler_state, "log": self._output() or self._tail(0)})
        gone = [r for r, code in enumerate(done.codes) if code is None]
        # Who waits for a part of a checkpoint, a file, loses no connection: it stalls. Of a node that is there, codes come.
        missed = self.failures or heartbeat.EXIT_STALL in done.codes
        lost_node = BY_SCHEDULER.get(done.scheduler_state) == "crash" or missed and not done.stopped
        if cause is None and 0 < len(gone) < len(done.codes) and lost_node:
            return self._lost_node(gone[0])
        if cause is None and files.alarm(self.run_dir).exists() and not self.job.says_end:
            return self._silent(files.alarm(self.run_dir).read_text().strip())
        if cause is None and (reports(self.run_dir) or heartbeat.EXIT_STALL in done.codes or done.frozen):
            return self._hang()
        if done.scheduler_state in BY_SCHEDULER:
            return self._ended_by_scheduler(BY_SCHEDULER[done.scheduler_state])
        if done.stopped:
            said = saved.kept(self.events, self.beats.values())
            return Outcome(status="cancelled", message=f"asked to stop{'; ' + said if said else ' before the end'}",
                           **self._slowest())
        if done.timed_out and not self.job.says_end and (quiet := self._quiet_s()):
            return self._silent(f"no line for {quiet:.0f} s when its {done.seconds:.0f} s were up")
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

    def _astray(self, met: int) -> Outcome | None:
        """Where a rank got a message of another size than its collective has: of its group the one that is not where all others
        are. Of two nobody can tell."""
        said = [*self._tail(met), *(str(e.get("message")) for e in self.failures if e["rank"] == met)]
        if self.job.per != "rank" or met not in self.beats or not any(MISMATCH in line for line in said):
            return None
        group, t = self.beats[met].group, self.trial.topology
        at = {r: self.beats[r].seq for r in peers(group, met, t) if r in self.beats and self.beats[r].group == group}
        alone = [r for r, seq in at.items() if list(at.values()).count(seq) == 1]
        if len(at) < 3 or len(set(at.values())) != 2 or len(alone) != 1:
            return None
        rank, others = alone[0], next(seq for r, seq in at.items() if r != alone[0])
        message = (f"{rank_label(rank, t)} is at {self.beats[rank].collective} {at[rank]} of its {group} group, all others at "
                   f"{others}: they do not agree on what comes next; {rank_label(met, t)} met it first")
        return Outcome(status="crash", message=message, **self._place(rank),
                       evidence={"met_by": met, "collectives": {str(r): seq for r, seq in at.items()}, "log": self._tail(met)})

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
        if end == "stopped" or self.finished.stopped and end != "finished" and not files.enough(self.run_dir).exists():
            said = saved.kept(self.events, self.beats.values())
            return Outcome(status="cancelled", message=f"asked to stop; {said or 'left cleanly'}",
                           iteration=self._last_end().get("step"))
        if not self.engine.ended(self.events):
            return Outcome(status="crash", message="the command ended well, but printed no iteration that can be read",
                           evidence={"log": self._tail(0)})
        return Outcome(status="ok")

    def _of_failure(self, event: Event) -> Outcome:
        rank, status = int(event["rank"]), event["status"]
        memory = event.get("memory") or self._taken(rank)
        event = {**event, "memory": memory}
        if status == "crash" and memory.get("data_bytes", 0) >= NEAR_CAP * memory.get("cap_bytes", float("inf")):
            status = "oom_host"  # what fails when the last byte is gone is not always an allocation
            event = {**event, "status": status}
        place: dict[str, Any] = {"rank": rank, "iteration": event.get("step"), "phase": event.get("phase", "")}
        if OUTCOMES[status].out_of_memory:
            message, evidence = oom.refused(event, self.trial, cap=self.job.memory_cap_bytes, fits=self.fits)
            return Outcome(status=status, message=message, evidence={**evidence, "log": self._tail(rank)}, **place)
        who = rank_label(rank, self.trial.topology)
        message = event["message"] if status == "invalid" else f"{who}: {event['error']}: {event['message']}"
        wanted = ("error", "line", "frames", "collective", "group", "seq", "microbatch")
        return Outcome(status=status, message=message, **place,
                       evidence={**{k: event[k] for k in wanted if k in event}, "log": self._tail(rank)})

    def _taken(self, rank: int) -> dict[str, int]:
        """Of a rank that does not say it itself: what the launcher saw last."""
        data, cap = self.finished.data_peak_bytes.get(rank), self.job.memory_cap_bytes
        return {} if not data else {"data_bytes": data, **({"cap_bytes": cap} if cap else {})}

    def _killed(self, rank: int) -> Outcome:
        done, cap = self.finished, self.job.memory_cap_bytes
        number = -(done.codes[rank] or 0)
        name = signal.Signals(number).name if number in {s.value for s in signal.Signals} else f"signal {number}"
        data, rss = done.data_peak_bytes.get(rank, 0), done.rss_peak_bytes.get(rank, 0)
        if rank in done.shot and done.crowd:
            return self._crowded(rank, Whose(**done.crowd))
        how = "the machine had none left" if rank in done.shot else f"{name} at its cap"
        if rank in done.shot or done.scheduler_state == "OUT_OF_MEMORY" or cap and data >= NEAR_CAP * cap:
            used = rss if rank in done.shot else data
            message, found = oom.killed(rank, self.trial, used_bytes=used, how=how, cap=cap, fits=self.fits)
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
            far = heartbeat.so_far(still.get("done", 0), still.get("total", 0))
            return Outcome(status="hang", rank=rank, iteration=still.get("step"), phase=what,
                           evidence={"why": f"no byte of its {what}"},
                           message=f"{rank_label(rank, self.trial.topology)}: its {what} stood still at {far} for "
                                   f"{still['silent_s']:.0f} s (recipe.{what}_s); is the disk full, or gone?")
        backend = next((e.get("backend") for e in self.events if e["event"] == "start"), "")
        found = find_hang(self.run_dir, self.trial.topology, beats=self.beats, frozen=self.finished.frozen,
                          lost=frozenset(e["rank"] for e in self.failures), run_ahead=backend == "nccl")
        return Outcome(status="hang", rank=found.rank, iteration=found.iteration, phase=found.phase, message=found.message,
                       evidence=found.evidence)

    def _silent(self, how: str) -> Outcome:
        """Of a program that is not ours: its log stood still."""
        found = silent(self.run_dir, self.trial.topology, frozen=self.finished.frozen if self.job.per == "rank" else ())
        step = next((e.get("step") for e in reversed(self._iterations())), None)
        at = f" after step {step}" if step is not None else " before the first step"
        return Outcome(status="hang", rank=found.rank, iteration=step, message=f"{how}{at}; {found.message}",
                       evidence={**found.evidence, "log": self._tail(found.rank or 0)})

    def _quiet_s(self) -> float:
        """How long its log had stood still, where that is longer than its steps explain; else 0."""
        if not self._iterations():
            return 0.0
        written = max((path.stat().st_mtime for path in logs(self.run_dir)), default=0.0)
        quiet = time.time() - written
        return quiet if quiet > silent_s(self.events, self.trial, Recipe()) else 0.0

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
