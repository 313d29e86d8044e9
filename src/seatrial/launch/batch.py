"""What all batch systems share: a script that starts one agent per node, patient polling, what the agents left.

    class Lsf(Batch):                               a batch system is its commands and its words for states; see pjm.py
        name, program, poll_s = "lsf", "bsub", 5.0
        node_variables = ("PMIX_RANK",)

        def start_argv(self, job): ...              srun, mpiexec: one process per node
        def options_argv(self, options): ...        a trial's scheduler options as arguments
        def enqueue(self, job, script, options): ...        bsub; the job's number
        def states(self, handles): ...              bjobs: queued, running, or in what it ended
        def delete(self, job_id): ...               bkill
        def find(self, name): ...

    [project.entry-points."seatrial.launchers"]     and its distribution registers it
    lsf = "our_cluster.lsf:Lsf"

Nothing of this machine is checked: a login node, or a laptop, has neither the GPUs nor the cores of those that the job runs on.
Values go to the batch system as arguments, never through a shell; the only shell text is the user's own preamble.
"""
from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from seatrial.errors import BadInput
from seatrial.launch import files
from seatrial.launch.base import Finished, Handle, Job, Launcher, State

if TYPE_CHECKING:
    from seatrial.spec import Trial

ASK_S = 60.0
"""A busy controller may take its time to answer."""
PATIENCE_S = 900.0
"""A controller that restarts is away for a while; the jobs run on."""
FILES_S = 10.0
"""How long a shared file system may take to show what another node wrote."""
SLACK_S = 120.0
"""The agents end a trial at its time limit themselves; the batch system's own limit is for when they cannot."""


@dataclass(frozen=True, kw_only=True)
class Settings(Launcher.Settings):
    """One batch system."""

    options: dict[str, str] = field(default_factory=dict)
    """Given with every job; a trial's own scheduler options go over them."""
    preamble: tuple[str, ...] = ()
    """Lines of shell before the job's own: modules, licences."""
    python: str = ""
    """The interpreter on the nodes; by default this one."""


class Batch(Launcher):
    here = False
    Settings = Settings  # type: ignore[misc,assignment]  # of every batch system, unless it has more to set
    program: ClassVar[str]
    """What submits a job; without it on the PATH the launcher cannot be used."""
    node_variables: ClassVar[tuple[str, ...]] = ()
    """Where an agent finds its node's number, by what `start_argv` starts it with."""
    forgotten_s: ClassVar[float] = FILES_S
    """A job that the batch system does not know this long after it was submitted is gone: what its agents left decides."""

    def __init__(self, *, options: Mapping[str, str] | None = None, preamble: Sequence[str] = (), python: str = ""):
        self.options, self.preamble, self.python = dict(options or {}), list(preamble), python or sys.executable
        self._final: dict[str, str] = {}
        self._answered = time.monotonic()

    # ---- what a batch system has of its own

    @abstractmethod
    def start_argv(self, job: Job) -> list[str]:
        """What the script starts one agent per node with."""

    @abstractmethod
    def options_argv(self, options: Mapping[str, str]) -> list[str]:
        """`{"partition": "gpu"}` as arguments, each one word whatever it holds. Raises BadInput for what is no option."""

    @abstractmethod
    def enqueue(self, job: Job, script: Path, options: list[str]) -> str:
        """Submits it and returns its number. Raises BadInput where the batch system refuses."""

    @abstractmethod
    def states(self, handles: Sequence[Handle]) -> dict[str, str]:
        """`queued`, `running`, or how it ended: COMPLETED, FAILED, or a word of `outcomes.BY_SCHEDULER`; without those that the
        batch system does not know."""

    @abstractmethod
    def delete(self, job_id: str) -> None:
        """Ends a job, queued or running."""

    # ---- what they share

    @classmethod
    def missing(cls) -> str:
        return "" if shutil.which(cls.program) else f"there is no {cls.program} on this machine"

    def check(self, trial: Trial, job: Job) -> None:
        """Options only: what the nodes have is known there."""
        self.options_argv(self.options | job.scheduler)

    def submit(self, job: Job) -> Handle:
        job = replace(job, node_variables=self.node_variables)
        options = self.options_argv(self.options | job.scheduler)
        files.write_job(job)
        job_id = self.enqueue(job, self.write_script(job, [*self.start_argv(job), *self.agent_argv(job)]), options)
        return Handle(key=job_id, job=job, job_id=job_id, submitted=time.time())

    def agent_argv(self, job: Job) -> list[str]:
        return [self.python, "-m", "seatrial.launch.agent", str(job.run_dir / files.JOB)]

    def script(self, argv: Sequence[str]) -> str:
        return "\n".join(["#!/bin/bash", *self.preamble, f"exec {shlex.join(argv)}", ""])

    def write_script(self, job: Job, argv: Sequence[str]) -> Path:
        path = job.run_dir / files.SCRIPT
        path.write_text(self.script(argv))
        return path

    def submit_argv(self, job: Job, script: Path, options: list[str]) -> list[str]:
        """What `enqueue` runs, for who wants to see it first; nothing where a batch system has no command for it."""
        return []

    def shown(self, job: Job) -> tuple[list[str], str]:
        """The command that would submit the job, and the script."""
        options = self.options_argv(self.options | job.scheduler)
        return (self.submit_argv(job, job.run_dir / files.SCRIPT, options),
                self.script([*self.start_argv(job), *self.agent_argv(job)]))

    def poll(self, handles: Sequence[Handle]) -> dict[str, State]:
        open_ = [h for h in handles if h.key not in self._final]
        now: dict[str, str] = {}
        try:
            if open_:
                now = self.states(open_)
                self._answered = time.monotonic()
                self._final |= {key: word for key, word in now.items() if word not in ("queued", "running")}
                self._final |= {h.key: self._of_files(h) for h in open_ if h.key not in now and self._forgotten(h)}
        except BadInput:
            if time.monotonic() - self._answered > PATIENCE_S:
                raise
        return {h.key: "done" if h.key in self._final else "queued" if now.get(h.key) == "queued" else "running"
                for h in handles}

    def _forgotten(self, handle: Handle) -> bool:
        return time.time() - handle.submitted > self.forgotten_s

    def _of_files(self, handle: Handle) -> str:
        return "COMPLETED" if len(files.node_results(handle.job)) == handle.job.nodes else "UNKNOWN"

    def cancel(self, handle: Handle) -> None:
        """The agents see the file and let their ranks leave cleanly; a job that has not started is deleted."""
        (handle.job.run_dir / files.CANCEL).touch()
        if self.poll([handle])[handle.key] == "queued":
            self.kill(handle)

    def kill(self, handle: Handle) -> None:
        self.end(handle.key)

    def end(self, job_id: str) -> None:
        with contextlib.suppress(BadInput):
            self.delete(job_id)

    def finished(self, handle: Handle) -> Finished:
        """One that ended by itself has left its files, and a shared file system may show them late; one that was cancelled or
        lost its node may have left none."""
        state = self._final.get(handle.key, "COMPLETED")
        until = time.monotonic() + FILES_S if state in ("COMPLETED", "FAILED") else 0.0
        while len(found := files.node_results(handle.job)) < handle.job.nodes and time.monotonic() < until:
            time.sleep(0.1)
        return files.merged(handle.job, found, seconds=time.time() - handle.submitted, scheduler_state=state,
                            job_id=handle.job_id)

    def room_for(self, job: Job, running: Sequence[Handle]) -> bool:
        return True  # the batch system decides when it starts

    def close(self) -> None:
        pass  # the jobs run on, and a later controller takes them over


def safe_name(name: str) -> str:
    """A job's name that no batch system minds."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"seatrial-{name}")[:60]


def ask(*argv: str, both: bool = False, timeout_s: float = ASK_S) -> str:
    """The answer of one of a batch system's programs; what it refuses is a BadInput in its own words."""
    try:
        answer = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False)
    except FileNotFoundError:
        raise BadInput(f"{argv[0]}: not installed here, or not on the PATH") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{argv[0]}: no answer within {timeout_s:.0f} s") from None
    if answer.returncode:
        lines = [line for line in answer.stderr.splitlines() if line.strip()]
        raise BadInput(f"{argv[0]}: {lines[-1].strip() if lines else f'exit status {answer.returncode}'}")
    return answer.stdout + answer.stderr if both else answer.stdout
