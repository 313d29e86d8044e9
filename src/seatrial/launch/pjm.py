"""PJM, the batch system of Fugaku and its kin: pjsub, pjstat, pjdel.

    pjm = Pjm(options={"rscgrp": "small", "group": "hp000000"}, preamble=["module load lang/tcsds"])
    pjm.submit(job)                                     pjsub; the script starts one agent a node with mpiexec
    pjm.poll([…])                                       one pjstat for all that run, one for all that ended

A trial's scheduler options are resources (`freq = "2200"`, `retention_state = "1"`), which makes the clock an axis of a sweep.
Values go to pjsub as arguments, never through a shell. Formats: Fugaku user guide, "Displaying a job status" and "PJM CODE".
"""
from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from seatrial.errors import BadInput
from seatrial.launch import files
from seatrial.launch.base import Handle, Job
from seatrial.launch.batch import SLACK_S, Batch, ask, safe_name

RUNNING = ("RNP", "RUN", "RNE", "RNO")
ENDED = ("EXT", "CCL", "RJT", "ERR")
CODES = {0: "COMPLETED", 1: "CANCELLED", 6: "CANCELLED", 7: "CANCELLED", 8: "CANCELLED", 11: "TIMEOUT", 12: "OUT_OF_MEMORY",
         18: "CANCELLED", 20: "NODE_FAIL", 23: "OUT_OF_MEMORY"}  # fmt: skip
"""PJM codes in the words of `outcomes.BY_SCHEDULER`; any other is a job that failed."""
OURS = ("node", "elapse", "proc-core")
_RESOURCE = re.compile(r"[a-z][a-z0-9_-]*")
_VALUE = re.compile(r"[A-Za-z0-9_.:/x+-]+")
"""No comma: `freq=2200,elapse=…` would be two resources."""


def elapse(seconds: float) -> str:
    minutes = int(-(-seconds // 60))
    return f"{minutes // 60:02d}:{minutes % 60:02d}:00"


class Pjm(Batch):
    name, program, poll_s = "pjm", "pjsub", 5.0
    title, question = "PJM", ("pjstat", "--version")
    node_variables, job_variable = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"), "PJM_JOBID"
    forgotten_s = 600.0  # what pjstat still does not show after this long is not in its history either

    def start_argv(self, job: Job) -> list[str]:
        return ["mpiexec", "-np", str(job.nodes)]

    def options_argv(self, options: Mapping[str, str]) -> list[str]:
        """`{"freq": "2200", "group": "hp000000"}` as arguments of pjsub."""
        found = []
        for name, value in options.items():
            if not _RESOURCE.fullmatch(name) or not _VALUE.fullmatch(value):
                raise BadInput(f"scheduler.{name} = {value!r}: a resource of pjsub is written as freq = '2200', "
                               "rscgrp = 'small'")
            if name in OURS:
                raise BadInput(f"scheduler.{name}: is set by seatrial itself")
            found += ["-g", value] if name == "group" else ["-L", f"{name}={value}"]
        return found

    def submit_argv(self, job: Job, script: Path, options: list[str]) -> list[str]:
        # One process per node: the agent, which starts the node's ranks itself.
        limit = elapse(job.time_limit_s + SLACK_S)
        return ["pjsub", "-N", safe_name(job.name), "-L", f"node={job.nodes}", "-L", f"elapse={limit}", "--mpi",
                "max-proc-per-node=1", *options, "-j", "-o", str(job.run_dir / files.SCRIPT_OUTPUT), str(script)]

    def enqueue(self, job: Job, script: Path, options: list[str]) -> str:
        return submitted_id(ask(*self.submit_argv(job, script, options), both=True))

    def states(self, handles: Sequence[Handle]) -> dict[str, str]:
        """One pjstat for all that run or wait, one for all that ended."""
        pjstat = ("pjstat", "--data", "--choose=jid,st,ec,pc")
        found = rows_of(ask(*pjstat, *(h.key for h in handles)))
        if missing := [h.key for h in handles if h.key not in found]:
            found |= rows_of(ask(*pjstat, "-H", *missing))
        return {key: row.final if row.state in ENDED else "running" if row.state in RUNNING else "queued"
                for key, row in found.items()}

    def find(self, name: str) -> str:
        rows = table(ask("pjstat", "--data", "--choose=jid,jnam"))
        return next((row["JOB_ID"] for row in rows if row.get("JOB_NAME") == safe_name(name)), "")

    def delete(self, job_id: str) -> None:
        ask("pjdel", job_id)


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
        """In the words of `outcomes.BY_SCHEDULER`."""
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
