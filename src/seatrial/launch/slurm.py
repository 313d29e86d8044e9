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
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.launch import files
from seatrial.launch.base import Finished, Handle, Job, State
from seatrial.launch.batch import SLACK_S, Batch, Settings, ask, safe_name
from seatrial.launch.guard import Guard

OURS = ("nodes", "ntasks", "ntasks-per-node", "time", "output", "error", "job-name", "wrap", "export", "chdir", "requeue",
        "no-requeue", "parsable", "array", "dependency", "wait", "test-only")
"""Options that are ours to give."""
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
NOT_ENDED = (*WAITS, "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT")


class Slurm(Batch):
    name, program, poll_s = "slurm", "sbatch", 1.0
    title, question = "Slurm", ("sinfo", "--noheader", "--format=%P %D %T")
    node_variables, job_variable = ("SLURM_NODEID",), "SLURM_JOB_ID"

    def __init__(self, *, options: Mapping[str, str] | None = None, preamble: Sequence[str] = (), python: str = "",
                 allocated: str = "", nodes: int = 0):
        """`allocated`: the number of a job whose `nodes` nodes are ours; trials then are steps of it."""
        super().__init__(options=options, preamble=preamble, python=python)
        self.allocated, self.nodes = allocated, nodes
        self._steps: dict[str, subprocess.Popen[bytes]] = {}
        self._accounts: bool | None = None

    def start_argv(self, job: Job) -> list[str]:
        # A failing agent must not make srun kill the others: they want to say where their ranks stood.
        return ["srun", f"--nodes={job.nodes}", f"--ntasks={job.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=0",
                "--wait=0"]

    def options_argv(self, options: Mapping[str, str]) -> list[str]:
        found = []
        for name, value in options.items():
            if not _OPTION.fullmatch(name):
                raise BadInput(f"scheduler.{name}: an option of sbatch is written as partition, cpus-per-task, …")
            if name in OURS:
                raise BadInput(f"scheduler.{name}: is set by seatrial itself")
            found.append(f"--{name}={value}" if value else f"--{name}")
        return found

    def submit_argv(self, job: Job, script: Path, options: list[str]) -> list[str]:
        minutes = math.ceil((job.time_limit_s + SLACK_S) / 60)
        output = str(job.run_dir / files.SCRIPT_OUTPUT).replace("%", "%%")  # sbatch puts its own values in for %j and the like
        return ["sbatch", "--parsable", f"--job-name={safe_name(job.name)}", f"--nodes={job.nodes}", "--ntasks-per-node=1",
                f"--time={minutes}", f"--output={output}", "--no-requeue", *options, str(script)]

    def enqueue(self, job: Job, script: Path, options: list[str]) -> str:
        return ask(*self.submit_argv(job, script, options)).strip().split(";")[0]

    def states(self, handles: Sequence[Handle]) -> dict[str, str]:
        """Those that are out of the queue have ended."""
        active = self._active()
        found = {h.key: "queued" if active[h.key] in WAITS else "running" for h in handles if h.key in active}
        gone = [h.key for h in handles if h.key not in active]
        return found | self._ends(gone) if gone else found

    def _active(self) -> dict[str, str]:
        """One squeue for all jobs of this user: number -> state."""
        answer = ask("squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i|%T")
        return dict(line.split("|", 1) for line in answer.split() if "|" in line)

    def _ends(self, ids: list[str]) -> dict[str, str]:
        """Final states: from accounting where there is any, else from the controller's memory."""
        found = self._from_sacct(ids)
        for job_id in ids:
            # Accounts lag behind: a job that is out of the queue and still runs there is asked after once more.
            if found.get(job_id, "RUNNING") in NOT_ENDED and (state := _from_scontrol(job_id)):
                found[job_id] = state
        return {key: "running" if state in NOT_ENDED else state for key, state in found.items()}

    def _from_sacct(self, ids: list[str]) -> dict[str, str]:
        if self._accounts is False:
            return {}
        try:
            answer = ask("sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={','.join(ids)}",
                         "--format=JobID,State")
        except BadInput:
            self._accounts = False  # "Slurm accounting storage is disabled", or no sacct at all
            return {}
        self._accounts = True
        return parse_sacct(answer)

    def find(self, name: str) -> str:
        answer = ask("squeue", "--noheader", f"--user={getpass.getuser()}", f"--name={safe_name(name)}", "--format=%i")
        return next(iter(answer.split()), "")

    def cancel(self, handle: Handle) -> None:
        """The agents see the file and let their ranks leave cleanly; a job that has not started is simply taken back."""
        (handle.job.run_dir / files.CANCEL).touch()
        if not self.allocated:
            with contextlib.suppress(BadInput):
                ask("scancel", "--state=PENDING", handle.key)

    def delete(self, job_id: str) -> None:
        ask("scancel", job_id)

    # ---- steps of an allocation

    def submit(self, job: Job) -> Handle:
        if not self.allocated:
            return super().submit(job)
        job = replace(job, node_variables=self.node_variables)
        self.options_argv(job.scheduler)
        files.write_job(job)
        program = self.agent_argv(job)
        if self.preamble:
            program = ["bash", str(self.write_script(job, program))]
        srun, *how = self.start_argv(job)
        with (job.run_dir / files.SCRIPT_OUTPUT).open("wb") as out:
            process = subprocess.Popen([srun, f"--jobid={self.allocated}", "--exact", *how, *program],
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        key = f"{self.allocated}-{process.pid}"
        self._steps[key] = process
        return Handle(key=key, job=job, job_id=self.allocated, submitted=time.time())

    def poll(self, handles: Sequence[Handle]) -> dict[str, State]:
        steps: dict[str, State] = {key: "running" if process.poll() is None else "done" for key, process in self._steps.items()}
        jobs = [h for h in handles if h.key not in steps]
        return {**{h.key: steps[h.key] for h in handles if h.key in steps}, **(super().poll(jobs) if jobs else {})}

    def finished(self, handle: Handle) -> Finished:
        """Of a step whose allocation has ended neither srun's exit code nor the agents need say anything."""
        if (step := self._steps.get(handle.key)) is not None and len(files.node_results(handle.job)) < handle.job.nodes:
            self._final[handle.key] = "CANCELLED" if self.over() else "FAILED" if step.returncode else "COMPLETED"
        return super().finished(handle)

    def over(self) -> str:
        if not self.allocated:
            return ""
        try:
            state = self._active().get(self.allocated) or self._ends([self.allocated]).get(self.allocated, "forgotten")
        except BadInput:
            return ""  # it does not answer: nobody knows
        going = state == "running" or state in NOT_ENDED and state != "COMPLETING"
        return "" if going else f"allocation {self.allocated} has ended ({state})"

    def kill(self, handle: Handle) -> None:
        if handle.key not in self._steps:
            self.end(handle.key)
            return
        process = self._steps[handle.key]
        process.terminate()
        process.wait()

    def room_for(self, job: Job, running: Sequence[Handle]) -> bool:
        """In an allocation: on its free nodes. Else Slurm itself decides when it starts."""
        return not self.allocated or sum(h.job.nodes for h in running) + job.nodes <= self.nodes

    @classmethod
    @contextlib.contextmanager
    def allocation(  # type: ignore[override]
        cls, *, nodes: int, time_limit_s: float, settings: Settings = Settings(),
    ) -> Iterator[Slurm]:  # fmt: skip
        minutes = math.ceil(time_limit_s / 60)
        answer = ask("salloc", "--no-shell", f"--nodes={nodes}", f"--time={minutes}", "--job-name=seatrial",
                     *cls().options_argv(settings.options), both=True, timeout_s=24 * 3600)
        match = re.search(r"Granted job allocation (\d+)", answer)
        if match is None:
            raise BadInput(f"salloc: no allocation in {answer.strip()[-200:]!r}")
        guard = Guard()
        guard.on_death(["scancel", match[1]])
        try:
            yield cls(preamble=settings.preamble, python=settings.python, allocated=match[1], nodes=nodes)
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
