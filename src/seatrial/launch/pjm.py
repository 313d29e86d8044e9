"""PJM, the batch system of Fugaku and its kin: pjsub, pjstat, pjdel.

    pjm = Pjm(options={"rscgrp": "small", "group": "hp000000"}, preamble=["module load lang/tcsds"])
    pjm.submit(job)                                     pjsub; the script starts one agent a node with mpiexec
    pjm.poll([…])                                       one pjstat for all that run, one for all that ended

A trial's scheduler options are resources (`freq = "2200"`, `retention_state = "1"`), which makes the clock an axis of a sweep.
Values go to pjsub as arguments, never through a shell. Formats: Fugaku user guide, "Displaying a job status" and "PJM CODE".
"""
from __future__ import annotations

import contextlib
import csv
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence

from seatrial.errors import BadInput
from seatrial.launch import files, jobfile
from seatrial.launch.base import Finished, Handle, Job, State
from seatrial.launch.slurm import FILES_S, PATIENCE_S, SLACK_S, agent_argv, ask, safe_name

QUEUED = ("ACC", "QUE", "RNA", "HLD", "RSM", "SPD", "SPP")
RUNNING = ("RNP", "RUN", "RNE", "RNO")
ENDED = ("EXT", "CCL", "RJT", "ERR")
CODES = {0: "COMPLETED", 1: "CANCELLED", 6: "CANCELLED", 7: "CANCELLED", 8: "CANCELLED", 11: "TIMEOUT", 12: "OUT_OF_MEMORY",
         18: "CANCELLED", 20: "NODE_FAIL", 23: "OUT_OF_MEMORY"}  # fmt: skip
"""PJM codes in the words of `outcome.ENDED_BY`; any other is a job that failed."""
FORGOTTEN_S = 600.0
"""A job that pjstat still does not show after this long is not in its history either."""
OURS = ("node", "elapse", "proc-core")
_RESOURCE = re.compile(r"[a-z][a-z0-9_-]*")
_VALUE = re.compile(r"[A-Za-z0-9_.:/x+-]+")
"""No comma: `freq=2200,elapse=…` would be two resources."""


def options_argv(options: Mapping[str, str]) -> list[str]:
    """`{"freq": "2200", "group": "hp000000"}` as arguments of pjsub."""
    found = []
    for name, value in options.items():
        if not _RESOURCE.fullmatch(name) or not _VALUE.fullmatch(value):
            raise BadInput(f"scheduler.{name} = {value!r}: a resource of pjsub is written as freq = '2200', rscgrp = 'small'")
        if name in OURS:
            raise BadInput(f"scheduler.{name}: is set by seatrial itself")
        found += ["-g", value] if name == "group" else ["-L", f"{name}={value}"]
    return found


def script(job: Job, *, preamble: Sequence[str], python: str) -> str:
    """What pjsub runs. Options stand on pjsub's own command line."""
    run = ["mpiexec", "-np", str(job.nodes), *agent_argv(job, python)]
    return "\n".join(["#!/bin/bash", *preamble, f"exec {shlex.join(run)}", ""])


def elapse(seconds: float) -> str:
    minutes = int(-(-seconds // 60))
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"


class Pjm:
    name = "pjm"
    poll_s = 5.0

    def __init__(self, *, options: Mapping[str, str] | None = None, preamble: Sequence[str] = (), python: str = sys.executable):
        self.options, self.preamble, self.python = dict(options or {}), list(preamble), python
        self._final: dict[str, str] = {}
        self._answered = time.monotonic()

    def submit(self, job: Job) -> Handle:
        chosen = options_argv(self.options | job.scheduler)
        jobfile.write(job)
        path = job.run_dir / files.SCRIPT
        path.write_text(script(job, preamble=self.preamble, python=self.python))
        # One process a node: the agent, which starts the node's ranks itself.
        limit = elapse(job.time_limit_s + SLACK_S)
        said = ask("pjsub", "-N", safe_name(job.name), "-L", f"node={job.nodes}", "-L", f"elapse={limit}",
                   "--mpi", "max-proc-per-node=1", *chosen, "-j", "-o", str(job.run_dir / files.SCRIPT_OUTPUT), str(path),
                   both=True)
        job_id = submitted_id(said)
        return Handle(key=job_id, job=job, job_id=job_id, submitted=time.time())

    def poll(self, handles: Sequence[Handle]) -> dict[str, State]:
        open_ = [h.key for h in handles if h.key not in self._final]
        now: dict[str, Row] = {}
        answered = False
        try:
            if open_:
                now = rows_of(ask(*_pjstat(), *open_))
                missing = [key for key in open_ if key not in now]
                if missing:
                    now |= rows_of(ask(*_pjstat(), "-H", *missing))
                self._answered, answered = time.monotonic(), True
        except BadInput:
            if time.monotonic() - self._answered > PATIENCE_S:
                raise
        self._final |= {key: row.final for key, row in now.items() if row.state in ENDED}
        for h in handles:
            if answered and h.key not in now and h.key not in self._final and time.time() - h.submitted > FORGOTTEN_S:
                # Nobody knows the job any more: what its agents left decides.
                self._final[h.key] = "COMPLETED" if len(jobfile.node_results(h.job)) == h.job.nodes else "UNKNOWN"
        running = {key for key, row in now.items() if row.state in RUNNING}
        return {h.key: "done" if h.key in self._final else "running" if h.key in running else "queued" for h in handles}

    def find(self, name: str) -> str:
        """The number of a job by its name: its controller died before it could note the number."""
        rows = table(ask("pjstat", "--data", "--choose=jid,jnam"))
        return next((row["JOB_ID"] for row in rows if row.get("JOB_NAME") == safe_name(name)), "")

    def cancel(self, handle: Handle) -> None:
        """The agents see the file and let their ranks leave cleanly; a job that has not started is deleted."""
        (handle.job.run_dir / files.CANCEL).touch()
        if self.poll([handle])[handle.key] == "queued":
            self.kill(handle)

    def kill(self, handle: Handle) -> None:
        with contextlib.suppress(BadInput):
            ask("pjdel", handle.key)

    def finished(self, handle: Handle) -> Finished:
        return jobfile.left_by(handle, self._final.get(handle.key, "COMPLETED"), wait_s=FILES_S)

    def room_for(self, job: Job, running: Sequence[Handle]) -> bool:
        return True  # the batch system decides when it starts


def _pjstat() -> list[str]:
    return ["pjstat", "--data", "--choose=jid,st,ec,pc"]


def submitted_id(text: str) -> str:
    """`[INFO] PJM 0000 pjsub Job 34704010 submitted.`"""
    match = re.search(r"\bJob (\d+) submitted", text)
    if match is None:
        raise BadInput(f"pjsub: no job number in {text.strip()[-200:]!r}")
    return match[1]


class Row:
    """One job of pjstat."""

    def __init__(self, state: str, exit_code: str, pjm_code: str):
        self.state, self.exit_code, self.pjm_code = state, exit_code, pjm_code

    @property
    def final(self) -> str:
        """In the words of `outcome.ENDED_BY`."""
        if self.state == "CCL":
            return "CANCELLED"
        if self.state != "EXT":
            return "FAILED"
        state = CODES.get(int(self.pjm_code), "FAILED") if self.pjm_code.isdigit() else "COMPLETED"
        return "FAILED" if state == "COMPLETED" and self.exit_code not in ("0", "-", "") else state


def rows_of(text: str) -> dict[str, Row]:
    return {row["JOB_ID"]: Row(row["ST"], row.get("EC", ""), row.get("PC", "")) for row in table(text)}


def table(text: str) -> list[dict[str, str]]:
    """`H,JOB_ID,ST,EC,PC` and rows below it; columns are found by their heading."""
    found: list[dict[str, str]] = []
    heading: list[str] = []
    for cells in csv.reader(line for line in text.splitlines() if line.strip()):
        cells = [cell.strip() for cell in cells]
        if cells[0] == "H":
            heading = cells
        elif heading and len(cells) == len(heading):
            found.append(dict(zip(heading, cells)))
    return found
