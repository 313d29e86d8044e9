"""Slurm: one job a trial, or one allocation for many trials; with accounting and without.

    slurm = Slurm(options={"account": "abc", "partition": "gpu_p5"}, preamble=["module load cuda"])
    handle = slurm.submit(job)                          sbatch; the script starts one agent a node with srun
    slurm.poll([…])                                     one squeue for all of them

    with Slurm.allocation(nodes=4, time_limit_s=3600) as slurm:     several trials side by side on its nodes

Values go to Slurm as arguments, never through a shell; the only shell text is the user's own preamble.
"""
from __future__ import annotations

import contextlib
import getpass
import math
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.launch import files, jobfile
from seatrial.launch.base import Finished, Handle, Job, State
from seatrial.launch.guard import Guard

ASK_S = 60.0
"""A busy controller may take its time to answer."""
PATIENCE_S = 900.0
"""A controller that restarts is away for a while; the jobs run on."""
FILES_S = 10.0
"""How long a shared file system may take to show what another node wrote."""
SLACK_S = 120.0
"""The agents end a trial at its time limit themselves; Slurm's own limit is for when they cannot."""
OURS = ("nodes", "ntasks", "ntasks-per-node", "time", "output", "error", "job-name", "wrap", "export", "chdir", "requeue",
        "no-requeue", "parsable", "array", "dependency", "wait", "test-only")
"""Options that are ours to give."""
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")

NOT_ENDED = (*WAITS, "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT")


def options_argv(options: Mapping[str, str], *, ours: Sequence[str] = OURS) -> list[str]:
    """`{"partition": "gpu", "exclusive": ""}` as arguments, each one word whatever it holds."""
    found = []
    for name, value in options.items():
        if not _OPTION.fullmatch(name):
            raise BadInput(f"scheduler.{name}: an option of sbatch is written as partition, cpus-per-task, …")
        if name in ours:
            raise BadInput(f"scheduler.{name}: is set by seatrial itself")
        found.append(f"--{name}={value}" if value else f"--{name}")
    return found


def agent_argv(job: Job, python: str) -> list[str]:
    return [python, "-m", "seatrial.launch.agent", str(job.run_dir / files.JOB)]


def script(job: Job, *, preamble: Sequence[str], python: str) -> str:
    """What sbatch runs. Options stand on sbatch's own command line."""
    run = ["srun", *_srun_options(job), *agent_argv(job, python)]
    return "\n".join(["#!/bin/bash", *preamble, f"exec {shlex.join(run)}", ""])


def _srun_options(job: Job) -> list[str]:
    # A failing agent must not make srun kill the others: they want to say where their ranks stood.
    return [f"--nodes={job.nodes}", f"--ntasks={job.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0"]


def safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"seatrial-{name}")[:60]


class Slurm:
    name = "slurm"
    poll_s = 1.0

    def __init__(self, *, options: Mapping[str, str] | None = None, preamble: Sequence[str] = (), python: str = sys.executable,
                 allocated: str = "", nodes: int = 0):
        """`allocated`: the number of a job whose `nodes` nodes are ours; trials then are steps of it."""
        self.options, self.preamble, self.python = dict(options or {}), list(preamble), python
        self.allocated, self.nodes = allocated, nodes
        self._final: dict[str, str] = {}
        self._steps: dict[str, subprocess.Popen[bytes]] = {}
        self._accounts: bool | None = None
        self._answered = time.monotonic()

    def submit(self, job: Job) -> Handle:
        chosen = options_argv(self.options | job.scheduler)
        jobfile.write(job)
        if self.allocated:
            return self._step(job)
        path = job.run_dir / files.SCRIPT
        path.write_text(script(job, preamble=self.preamble, python=self.python))
        minutes = math.ceil((job.time_limit_s + SLACK_S) / 60)
        said = ask("sbatch", "--parsable", f"--job-name={safe_name(job.name)}", f"--nodes={job.nodes}", "--ntasks-per-node=1",
                   f"--time={minutes}", f"--output={_literal(job.run_dir / files.SCRIPT_OUTPUT)}", "--no-requeue", *chosen,
                   str(path))
        job_id = said.strip().split(";")[0]
        return Handle(key=job_id, job=job, job_id=job_id, submitted=time.time())

    def _step(self, job: Job) -> Handle:
        program = agent_argv(job, self.python)
        if self.preamble:
            path = job.run_dir / files.SCRIPT
            path.write_text("\n".join(["#!/bin/bash", *self.preamble, f"exec {shlex.join(program)}", ""]))
            program = ["bash", str(path)]
        with (job.run_dir / files.SCRIPT_OUTPUT).open("wb") as out:
            process = subprocess.Popen(["srun", f"--jobid={self.allocated}", "--exact", *_srun_options(job), *program],
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        key = f"{self.allocated}-{process.pid}"
        self._steps[key] = process
        return Handle(key=key, job=job, job_id=self.allocated, submitted=time.time())

    def poll(self, handles: Sequence[Handle]) -> dict[str, State]:
        if self.allocated:
            return {h.key: "running" if self._steps[h.key].poll() is None else "done" for h in handles}
        open_ = [h for h in handles if h.key not in self._final]
        try:
            active = self._active() if open_ else {}
            self._answered = time.monotonic()
        except BadInput:
            if time.monotonic() - self._answered > PATIENCE_S:
                raise
            return {h.key: "done" if h.key in self._final else "running" for h in handles}
        gone = [h for h in open_ if h.key not in active]
        if gone:
            self._final |= self._ends(gone)
        return {h.key: "done" if h.key in self._final else "queued" if active.get(h.key) in WAITS else "running"
                for h in handles}

    def _active(self) -> dict[str, str]:
        """Jobs of this user that have not ended, in one question."""
        said = ask("squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i|%T")
        return dict(line.split("|", 1) for line in said.split() if "|" in line)

    def find(self, name: str) -> str:
        """The number of a job by its name: its controller died before it could note the number."""
        said = ask("squeue", "--noheader", f"--user={getpass.getuser()}", f"--name={safe_name(name)}", "--format=%i")
        return next(iter(said.split()), "")

    def _ends(self, handles: Sequence[Handle]) -> dict[str, str]:
        """Final states: from accounting where there is any, else from the controller's memory, else from the job's files."""
        found = self._from_sacct([h.key for h in handles])
        for handle in handles:
            # Accounts lag behind: a job that is out of the queue and still runs there is asked after once more.
            if found.get(handle.key, "RUNNING") in NOT_ENDED and (state := _from_scontrol(handle.key)):
                found[handle.key] = state
        for handle in handles:
            if handle.key not in found and time.time() - handle.submitted > FILES_S:
                # Nobody knows the job any more: what its agents left decides.
                found[handle.key] = "COMPLETED" if len(jobfile.node_results(handle.job)) == handle.job.nodes else "UNKNOWN"
        return {key: state for key, state in found.items() if state not in NOT_ENDED}

    def _from_sacct(self, ids: list[str]) -> dict[str, str]:
        if self._accounts is False:
            return {}
        try:
            said = ask("sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={','.join(ids)}", "--format=JobID,State")
        except BadInput:
            self._accounts = False  # "Slurm accounting storage is disabled", or no sacct at all
            return {}
        self._accounts = True
        return parse_sacct(said)

    def cancel(self, handle: Handle) -> None:
        (handle.job.run_dir / files.CANCEL).touch()
        if not self.allocated:
            # The agents see the file and let their ranks leave cleanly; a job that has not started is simply taken back.
            with contextlib.suppress(BadInput):
                ask("scancel", "--state=PENDING", handle.key)

    def kill(self, handle: Handle) -> None:
        if self.allocated:
            process = self._steps[handle.key]
            process.terminate()
            process.wait()
        else:
            with contextlib.suppress(BadInput):
                ask("scancel", handle.key)

    def finished(self, handle: Handle) -> Finished:
        return jobfile.left_by(handle, self._final.get(handle.key, "COMPLETED"), wait_s=FILES_S)

    def room_for(self, job: Job, running: Sequence[Handle]) -> bool:
        """In an allocation: on its free nodes. Else Slurm itself decides when it starts."""
        return not self.allocated or sum(h.job.nodes for h in running) + job.nodes <= self.nodes

    @classmethod
    @contextlib.contextmanager
    def allocation(cls, *, nodes: int, time_limit_s: float, options: Mapping[str, str] | None = None,
                   preamble: Sequence[str] = (), python: str = sys.executable) -> Iterator[Slurm]:
        """Nodes for many trials; given back at the end."""
        minutes = math.ceil(time_limit_s / 60)
        said = ask("salloc", "--no-shell", f"--nodes={nodes}", f"--time={minutes}", "--job-name=seatrial",
                   *options_argv(options or {}), both=True, timeout_s=24 * 3600)
        match = re.search(r"Granted job allocation (\d+)", said)
        if match is None:
            raise BadInput(f"salloc: no allocation in {said.strip()[-200:]!r}")
        guard = Guard()
        guard.on_death(["scancel", match[1]])
        try:
            yield cls(options={}, preamble=preamble, python=python, allocated=match[1], nodes=nodes)
        finally:
            # The guard's last act, also when this process is killed: nodes that nobody uses are somebody's money.
            guard.close()


def parse_sacct(text: str) -> dict[str, str]:
    """`12|COMPLETED`, `13|CANCELLED by 1000` -> the states by job."""
    rows = (line.split("|") for line in text.splitlines() if line.count("|") == 1)
    return {job: state.split()[0].rstrip("+") for job, state in rows if state.strip()}


def _from_scontrol(job_id: str) -> str:
    try:
        return parse_scontrol(ask("scontrol", "--oneliner", "show", "job", job_id))
    except BadInput:
        return ""  # forgotten: MinJobAge is over


def parse_scontrol(text: str) -> str:
    match = re.search(r"\bJobState=([A-Z_]+)", text)
    return match[1] if match else ""


def _literal(path: Path) -> str:
    """sbatch puts its own values in for %j and the like."""
    return str(path).replace("%", "%%")


def ask(*argv: str, both: bool = False, timeout_s: float = ASK_S) -> str:
    """The answer of one of Slurm's programs; what it refuses is a BadInput in its own words."""
    try:
        said = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False)
    except FileNotFoundError:
        raise BadInput(f"{argv[0]}: not installed here, or not on the PATH") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{argv[0]}: no answer within {timeout_s:.0f} s") from None
    if said.returncode:
        lines = [line for line in said.stderr.splitlines() if line.strip()]
        raise BadInput(f"{argv[0]}: {lines[-1].strip() if lines else f'exit status {said.returncode}'}")
    return said.stdout + said.stderr if both else said.stdout
