"""One trial from words to a complete record, through any launcher.

    record = run_trial(trial, recipe, Local(), out_dir=Path("runs/a"), limits=Limits(time_limit_s=600))

    job = prepare(trial, recipe, launcher, run_dir=…)     the same in three steps, for several trials side by side:
    handle = launcher.submit(job)                       … launcher.poll([handle, …]) …
    record = conclude(trial, recipe, handle, launcher.finished(handle))

    run_now(trial, recipe, out=Path("out"), timeout_s=600)        {"status": "ok", "losses": […], "sec_per_it": …, …}

What cannot run is a record too, with the outcome `invalid`: a sweep goes on. What was measured before a failure is kept.
"""
from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seatrial import columns, fields
from seatrial.arith import FORMULA
from seatrial.engine import runfile
from seatrial.engines import engine_for
from seatrial.engines.base import Event, keep_events, said_so_far
from seatrial.errors import BadInput, Infeasible
from seatrial.files import write_whole
from seatrial.launch import environment, files
from seatrial.launch.base import Finished, Handle, Job, Launcher
from seatrial.launch.follow import Follow
from seatrial.launch.local import Local, wait
from seatrial.launch.oom import Fits
from seatrial.launch.outcome import classify
from seatrial.launch.processes import end_leftovers
from seatrial.lock import alone
from seatrial.measurement import RATES, digits, measure, rates, rise
from seatrial.outcomes import OUTCOMES
from seatrial.recipe import Recipe
from seatrial.record import Outcome, Record
from seatrial.schedule import KINDS
from seatrial.spec import Trial

INSTEAD = "wait for it, stop it, or name another --out"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one trial may use."""

    time_limit_s: float = 600.0
    memory_cap_gib: float | None = None
    """Of data, per rank; over it an allocation is refused, which is a clean `oom_host`."""
    cores: float | None = None
    """Processor time per rank, in cores."""


def run_trial(trial: Trial, recipe: Recipe, launcher: Launcher, out_dir: Path, *, limits: Limits = Limits(),
              session: str = "", notes: str = "", on_line: Callable[[str], None] | None = None,
              fits: Fits | None = None) -> Record:
    """Runs it and waits. Never raises for what the trial does or cannot do."""
    try:
        return attempt(trial, recipe, launcher, out_dir, limits=limits, session=session, notes=notes, on_line=on_line,
                       fits=fits)
    except BadInput as error:
        return invalid(trial, error, session=session, notes=notes)


def attempt(trial: Trial, recipe: Recipe, launcher: Launcher, out_dir: Path, *, limits: Limits = Limits(),
            session: str = "", notes: str = "", on_line: Callable[[str], None] | None = None,
            fits: Fits | None = None) -> Record:
    """The same, but raises BadInput for what cannot start; with nothing written where the words alone tell."""
    with Claim(recipe, out_dir, say=on_line or (lambda _: None)) as claim:
        job = prepare(trial, recipe, launcher, run_dir=out_dir, limits=limits, claim=claim)
        after = said_so_far(job.run_dir)
        before = environment.machine()
        handle = launcher.submit(job)
        finished = wait(launcher, handle, on_line=on_line, follow=Follow.of(trial, recipe, job.run_dir),
                        rank=engine_for(trial).speaks(trial))
        return conclude(trial, recipe, handle, finished, before=before, session=session, notes=notes, after=after, fits=fits)


class Claim(contextlib.ExitStack):
    """The folders of a run, ours alone until the block ends: its own, and that of its checkpoints."""

    def __init__(self, recipe: Recipe, out: Path, *, say: Callable[[str], None]):
        super().__init__()
        self.say = say
        self.wanted = [out.absolute()]
        if recipe.checkpoint_dir is not None and not Path(recipe.checkpoint_dir).absolute().is_relative_to(out.absolute()):
            self.wanted.append(Path(recipe.checkpoint_dir).absolute())

    def take(self, *, there: bool) -> None:
        """Those that are there, before anything in them is read or ended; later the others, once nothing is wrong."""
        for folder in [f for f in self.wanted if f.exists() or not there]:
            self.wanted.remove(folder)
            if said := self.enter_context(alone(folder, "a training", instead=INSTEAD)):
                self.say(said)
            if (folder / files.NODES).exists():
                # A batch job goes on when its controller is gone.
                with alone(folder / files.NODES, "a training", instead=INSTEAD):
                    pass


def prepare(trial: Trial, recipe: Recipe, launcher: Launcher, *, run_dir: Path, limits: Limits = Limits(),
            claim: Claim | None = None) -> Job:
    """Checks the trial and writes its run folder. Raises BadInput, with nothing written, where it cannot run.

    Three checks: the rules and the engine's own, for any machine; the launcher's, for the one that it runs on. Without `claim`
    the folder is the caller's alone already.
    """
    run_dir = run_dir.absolute()
    if claim is not None:
        claim.take(there=True)
    job = checked(trial, recipe, launcher, run_dir=run_dir, limits=limits)
    if claim is not None:
        claim.take(there=False)
    if run_dir.exists():
        end_leftovers(run_dir)
        files.clear(run_dir, keep_events=recipe.resume)
    runfile.write(runfile.RunFile(trial=environment.public(trial), recipe=recipe, out=str(run_dir)), run_dir / files.RUN)
    return replace(job, argv=engine_for(trial).argv(trial, recipe, run_dir))


def checked(trial: Trial, recipe: Recipe, launcher: Launcher, *, run_dir: Path, limits: Limits = Limits()) -> Job:
    """The job, still without its argv. Writes nothing."""
    engine = engine_for(trial)
    engine.check(trial, recipe, here=launcher.here)
    cap = limits.memory_cap_gib
    job = Job(
        name=trial.run_id(), run_dir=run_dir, argv=(), world=trial.topology.world, per=engine.per(trial),
        procs_per_node=trial.cluster.procs_per_node if trial.cluster else None, env=dict(trial.environment.variables),
        device=engine.device(trial), threads=trial.execution.threads, cores=limits.cores,
        memory_cap_bytes=None if cap is None else int(cap * 2**30), time_limit_s=limits.time_limit_s, stop_s=recipe.stop_s,
        scheduler=dict(trial.environment.scheduler), says_end=engine.says_end)
    launcher.check(trial, job)
    return job


def conclude(trial: Trial, recipe: Recipe, handle: Handle, finished: Finished, *, before: dict[str, object] | None = None,
             session: str = "", notes: str = "", after: int = 0, fits: Fits | None = None,
             row: Trial | None = None) -> Record:
    """The record of a job that is done; also written into the run folder. The first `after` bytes of events are of what it
    resumed; `fits` (`plan.fits.would_fit`) knows what would fit where this did not; `row`: the trial that the record is of,
    where `trial` ran in its place."""
    run_dir = handle.job.run_dir
    engine = engine_for(trial)
    events = engine.events(run_dir, after=after)
    outcome = classify(run_dir, finished, job=handle.job, trial=trial, events=events, fits=fits)
    if outcome.status == "ok" and (other := engine.differs(trial, run_dir)):
        outcome = _not_as_asked(trial, other)
    keep_events(run_dir, events)
    record = record_of(row or trial, recipe, outcome, events, ran=trial, session=session, notes=notes)
    start: Event = next((e for e in events if e["event"] == "start"), {})
    now = environment.machine()
    host: dict[str, object] = {**(before or now), "load_after": now["load"], "seconds": round(finished.seconds, 3),
                               "run_dir": str(run_dir)}
    if handle.job.per == "rank":
        host["pinned"] = finished.pinned
    if handle.job.cores is not None:
        host["cores_a_rank"] = handle.job.cores
    if finished.hosts:
        host["nodes"] = list(finished.hosts)
    if job_id := finished.job_id or handle.job_id:
        host["job_id"] = job_id
    if finished.scheduler_state:
        host["scheduler_state"] = finished.scheduler_state
    versions = environment.versions() | {k: str(start[k]) for k in ("torch", "python") if k in start}
    if start.get("engine_version"):
        versions[str(start["engine"])] = str(start["engine_version"])
    if trial.environment.python and not start:
        # Another interpreter that never came to say its versions has some, but not ours.
        versions = {k: v for k, v in versions.items() if k not in ("torch", "python")}
    record = replace(record, host=host, versions=versions, torch_version=versions.get("torch", ""),
                     machine=str(host.get("name", "")))
    write_whole(run_dir / files.RECORD, json.dumps(record.to_dict(), ensure_ascii=False) + "\n")
    return record


def _not_as_asked(trial: Trial, other: Mapping[str, tuple[Any, Any]]) -> Outcome:
    """It ran, but not this trial: its time is another's."""
    said = ", ".join(f"{columns.COLUMNS[name].label} {got} where {asked} was asked" for name, (asked, got) in other.items())
    return Outcome(status="invalid", message=f"{trial.engine} applied {said}",
                   evidence={"applied": {name: applied for name, (_, applied) in other.items()}})


def invalid(trial: Trial, error: BadInput, *, session: str = "", notes: str = "") -> Record:
    """The record of what never started."""
    evidence: dict[str, object] = {"code": error.code} if isinstance(error, Infeasible) else {}
    outcome = Outcome(status="invalid", message=str(error), evidence=evidence)
    host = environment.machine()
    return replace(record_of(trial, Recipe(), outcome, [], session=session, notes=notes), host=host,
                   machine=str(host.get("name", "")), versions=environment.versions())


def refused(trial: Trial, error: BadInput) -> Record:
    """The record of what was not let start, by a batch system or for want of a program: not the trial's own doing."""
    host = environment.machine()
    return replace(record_of(trial, Recipe(), Outcome(status="not_started", message=str(error)), []), host=host,
                   machine=str(host.get("name", "")), versions=environment.versions())


def record_of(trial: Trial, recipe: Recipe, outcome: Outcome, said: list[Event], *, ran: Trial | None = None,
              session: str = "", notes: str = "") -> Record:
    """The row of `trial`; `ran`: the trial as it was run, where that was with a smaller batch."""
    got = measure(said, trial, recipe, ran=ran.batch if ran is not None else None)
    public = environment.public(trial)
    good = got.sec_per_it is not None and OUTCOMES[outcome.status].timed
    state = "planned" if outcome.status == "invalid" else "failed" if not good else "estimated" if got.estimated else "measured"
    figures: dict[str, Any] = {} if got.sec_per_it is None else rates(trial, got.sec_per_it, said)
    estimated = [*RATES] if got.estimated else []
    if "mem_gib" in got.memory:
        figures |= {"mem_value": digits(got.memory["mem_gib"]), "mem_unit": "GiB"}
        if "reserved_peak_gib" in got.memory.get("fullest", {}):
            figures["mem_measure"] = "reserved"
        if got.estimated and KINDS[trial.topology.schedule].forwards_first:
            estimated.append("mem_value")  # here memory grows with every micro-batch
    asked = {name: value for name, value in columns.flat(trial).items() if value is not None}
    if trial.command:
        asked |= {"engine": "command" if trial.engine == "seatrial" else trial.engine, "optimizer": ""}
    return Record(
        state=state, outcome=outcome, run_id=trial.run_id(), session=session,  # type: ignore[arg-type]
        date=time.strftime("%Y-%m-%d", time.gmtime()), **asked, **figures, estimated=tuple(estimated),
        env=environment.recorded(os.environ) | public.environment.variables | public.environment.scheduler,
        loss=digits(got.loss) if got.loss is not None else None,
        iteration=got.iterations[-1]["step"] if got.iterations else None,
        notes="; ".join(text for text in (notes, rise(got.iterations)) if text), trial=public.to_dict(),
        iterations=got.iterations, measurement=got.about, breakdown=got.breakdown,
        memory={k: got.memory[k] for k in ("rank", "fullest", "ranks") if k in got.memory})


# ---- one trial now


def run_now(trial: Trial, recipe: Recipe, *, out: Path, timeout_s: float, on_line: Callable[[str], None] | None = None,
            launcher: Launcher | None = None, fits: Fits | None = None) -> dict[str, Any]:
    """What `seatrial run` and `train` print: plain data with the same keys whatever happened. Raises BadInput for what cannot
    start. On this machine unless another launcher is given."""
    if (out / files.EVENTS).exists() and not recipe.resume:
        # A checkpoint to resume from is the better thing to say.
        engine_for(trial).check(trial, recipe, here=launcher is None or launcher.here)
        raise BadInput(f"{out / files.EVENTS}: is already there; name another folder with --out")
    after = said_so_far(out) if recipe.resume else 0
    with contextlib.nullcontext(launcher) if launcher is not None else contextlib.closing(Local()) as chosen:
        record = attempt(trial, recipe, chosen, out, limits=Limits(time_limit_s=timeout_s), on_line=on_line, fits=fits)
    return summary(trial, record, recipe, engine_for(trial).events(out, after=after), out=out)


def summary(trial: Trial, record: Record, recipe: Recipe, events: list[Event], *, out: Path) -> dict[str, Any]:
    assert record.outcome is not None
    got, outcome = measure(events, trial, recipe), record.outcome
    found: dict[str, Any] = {
        "status": outcome.status, "run_id": record.run_id,
        "losses": [i.get("loss") for i in got.iterations], "grad_norms": [i.get("grad_norm") for i in got.iterations],
        "sec_per_it": record.sec_per_it, "tflops": record.tflops, "formula": FORMULA, "tflops_per": "process",
        "mfu": record.mfu,
        "tokens_per_s_per_process": digits((record.tokens_per_s or 0.0) / trial.topology.world) or None,
        "mem_gib": got.memory.get("mem_gib"), "memory": got.memory.get("fullest", {}), "breakdown": record.breakdown,
        "events": str(out / files.EVENTS),
        "iterations": [{k: i[k] for k in ("step", "sec") if k in i} for i in got.iterations],
        "validation": [{"step": e["step"], "loss": e["loss"]} for e in events if e["event"] == "validation"],
        "checkpoints": [e["step"] for e in events if e["event"] == "saved"],
        "resumed": next((e["message"] for e in events if e["event"] == "resume"), None),
    }  # fmt: skip
    found |= {name: got.about[name] for name in ("attended_min", "attended_max") if name in got.about}
    if record.notes:
        found["notes"] = record.notes
    if outcome.status != "ok":
        found |= {"message": outcome.message, "rank": outcome.rank, "iteration": outcome.iteration, "phase": outcome.phase,
                  "evidence": fields.plain(outcome.evidence)}
    return found


def summary_of_invalid(error: BadInput) -> dict[str, Any]:
    """The summary of what never started."""
    return {"status": "invalid", "losses": [], "grad_norms": [], "sec_per_it": None, "tflops": None, "formula": FORMULA,
            "mfu": None, "tokens_per_s_per_process": None, "mem_gib": None, "breakdown": {}, "events": None,
            "message": str(error), "rank": None}
