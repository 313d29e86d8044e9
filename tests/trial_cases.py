"""The eight trials that every launcher must tell apart, and a way to run one."""
from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial import trialfile
from seatrial.engine.watch.events import read_events
from seatrial.errors import BadInput
from seatrial.launch import files
from seatrial.launch.base import Handle, Launcher
from seatrial.launch.processes import MARK
from seatrial.launch.trial import Limits, conclude, invalid, prepare
from seatrial.plan.fits import would_fit
from seatrial.recipe import Recipe
from seatrial.record import Record
from seatrial.spec import Trial

STALL_S = 6.0
TIME_LIMIT_S = 150.0
CAP_GIB = 1.0


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    status: str
    rank: int | None = None
    iteration: int | None = None
    settings: tuple[str, ...] = ()
    fault: str = ""
    kill_rank: int | None = None
    """Ended from outside after the first step."""
    cap_gib: float | None = None
    says: tuple[str, ...] = field(default_factory=tuple)
    """What the message must hold."""


CASES = [
    Case(name="good", status="ok", cap_gib=CAP_GIB),
    Case(name="over the cap", status="oom_host", rank=0, cap_gib=CAP_GIB,
         # The first stage has nearly all layers, so only rank 0 can be over.
         settings=("topology.pp=2", "topology.dp=1", "model.hidden=512", "model.layers=20", "topology.stage_layers=[19,1]"),
         says=("rank 0 (pp0 dp0 tp0)", "asked for", "of 1.00 GiB taken", ", an even split of the layers or ", "would fit")),
    Case(name="stopped", status="hang", rank=1, iteration=2, fault="stop:1:2",
         says=("rank 1 (pp0 dp1 tp0) never entered all_reduce", "of its dp group", "fault.py:", "1 other waits")),
    Case(name="skips", status="hang", rank=0, iteration=2, fault="skip:0:2",
         says=("rank 0 (pp0 dp0 tp0) never entered all_reduce", "of its dp group", "1 other waits")),
    Case(name="raises", status="crash", rank=1, iteration=2, fault="raise:1:2", says=("rank 1", "InjectedFault")),
    Case(name="nan", status="nan", rank=1, iteration=2, fault="nan:1:2", says=("the loss of step 2 is nan",)),
    Case(name="killed", status="crash", rank=1, kill_rank=1, settings=("recipe.steps=100000",), cap_gib=CAP_GIB,
         says=("rank 1 (pp0 dp1 tp0) was ended by SIGKILL at step",)),
    Case(name="impossible", status="invalid", settings=("topology.dp=3",), says=("GBS 4 is not a multiple of DP 3",)),
]  # fmt: skip


def words_of(case: Case) -> tuple[Trial, Recipe]:
    data: dict[str, Any] = {
        "model": {"base": "tiny", "layers": 2}, "topology": {"dp": 2}, "batch": {"gbs": 4},
        "training": {"steps": 3, "stall_s": STALL_S, "threads": 1, "device": "cpu"},
        "environment": {"variables": {"SEATRIAL_FAULT": case.fault} if case.fault else {}},
    }  # fmt: skip
    return trialfile.build(data, case.settings)


@dataclass
class Running:
    case: Case
    trial: Trial
    recipe: Recipe
    handle: Handle | None = None
    record: Record | None = None
    killed: bool = False


def run_all(cases: list[Case], launcher: Launcher, out: Path, *, together: int = 1,
            limit_s: float = 600.0) -> dict[str, Record]:
    """Every case through the launcher, `together` at a time; the records by the case's name."""
    waiting = [Running(case, *words_of(case)) for case in cases]
    running: list[Running] = []
    done: list[Running] = []
    until = time.monotonic() + limit_s
    while waiting or running:
        assert time.monotonic() < until, f"still running: {[r.case.name for r in running]}"
        while waiting and len(running) < together:
            start(run := waiting.pop(0), launcher, out)
            (done if run.record else running).append(run)
        states = launcher.poll([r.handle for r in running if r.handle]) if running else {}
        for run in list(running):
            assert run.handle is not None
            kill_when_due(run)
            if states[run.handle.key] == "done":
                run.record = conclude(run.trial, run.recipe, run.handle, launcher.finished(run.handle),
                                      fits=would_fit)
                running.remove(run)
                done.append(run)
        time.sleep(launcher.poll_s)
    return {run.case.name: run.record for run in done if run.record}


def start(run: Running, launcher: Launcher, out: Path) -> None:
    folder = out / run.case.name.replace(" ", "-")
    try:
        limits = Limits(time_limit_s=TIME_LIMIT_S, memory_cap_gib=run.case.cap_gib)
        job = prepare(run.trial, run.recipe, launcher, run_dir=folder, limits=limits)
        run.handle = launcher.submit(job)
    except BadInput as error:
        run.record = invalid(run.trial, error)


def kill_when_due(run: Running) -> None:
    if run.case.kill_rank is None or run.killed or run.handle is None:
        return
    path = run.handle.job.run_dir / files.EVENTS
    if path.exists() and any(e.get("event") == "iteration" for e in read_events(path)):
        for pid in processes_of(run.handle.job.run_dir, rank=run.case.kill_rank):
            os.kill(pid, signal.SIGKILL)
            run.killed = True


def processes_of(run_dir: Path, *, rank: int | None = None) -> list[int]:
    """Process ids of a trial, wherever they were started on this machine."""
    wanted = {f"{MARK}={run_dir}".encode()} | ({f"RANK={rank}".encode()} if rank is not None else set())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def check(case: Case, record: Record) -> None:
    outcome = record.outcome
    assert outcome is not None
    seen = f"{case.name}: {outcome.status} of rank {outcome.rank} at {outcome.iteration}: {outcome.message}\n{outcome.evidence}"
    assert outcome.status == case.status, seen
    if case.status not in ("ok", "invalid"):
        assert outcome.rank == case.rank, seen
    if case.iteration is not None:
        assert outcome.iteration == case.iteration, seen
    for words in case.says:
        assert words in outcome.message, seen


def sweep_of(cases: list[Case], **limits: Any) -> dict[str, Any]:
    """The cases as a sweep file holds them: one axis, a table a case."""
    from seatrial.sweep.compare import settings_table

    rows = []
    for case in cases:
        row: dict[str, Any] = settings_table(case.settings)
        row |= {"name": case.name, "topology": {"dp": 2, **row.get("topology", {})}}
        if case.fault:
            row["environment"] = {"variables": {"SEATRIAL_FAULT": case.fault}}
        rows.append(row)
    return {"model": {"base": "tiny", "layers": 2}, "batch": {"gbs": 4}, "measure": {"known_to": 0}, "axes": {"case": rows},
            "training": {"steps": 3, "stall_s": STALL_S, "threads": 1, "device": "cpu"},
            "limits": {"time_s": TIME_LIMIT_S, "memory_gib": CAP_GIB, **limits}}  # fmt: skip


@contextlib.contextmanager
def killing_from_outside(runs: Path, cases: list[Case]) -> Iterator[None]:
    """Meanwhile, ends the rank of the case that wants it, as an administrator would; that trial has the most steps."""
    wanted = next(case for case in cases if case.kill_rank is not None)
    steps = wanted.settings[0].partition("=")[2]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            for path in runs.glob(f"*/{files.EVENTS}"):
                if f'"steps":{steps}' in path.read_text() and any(e.get("event") == "iteration" for e in read_events(path)):
                    for pid in processes_of(path.parent, rank=wanted.kill_rank):
                        os.kill(pid, signal.SIGKILL)
                        return

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
