"""One trial from words to a complete record, through any launcher.

    record = run_trial(trial, training, Local(), out_dir=Path("runs/a"), time_limit_s=600)

    job = prepare(trial, training, run_dir=…)           the same in three steps, for several trials side by side:
    handle = launcher.submit(job)                       … launcher.poll([handle, …]) …
    record = conclude(trial, training, handle, launcher.finished(handle))

What cannot run is a record too, with the outcome `invalid`: a sweep goes on. What was measured before a failure is kept.
"""
from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from seatrial import arith
from seatrial.errors import BadInput
from seatrial.launch import environment, files
from seatrial.launch.base import Finished, Handle, Job, Launcher
from seatrial.launch.engines import Event, engine_for, write_run
from seatrial.launch.local import wait
from seatrial.launch.outcome import classify
from seatrial.launch.processes import end_leftovers
from seatrial.record import Outcome, Record
from seatrial.spec import Trial
from seatrial.training import Training

FORMULA = "sc21"
"""That of the iteration line, so that one run prints one number."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one trial may use."""

    time_limit_s: float = 600.0
    memory_cap_gib: float | None = None
    """Of data, a rank; over it an allocation is refused, which is a clean `oom_host`."""
    cores: float | None = None
    """Processor time a rank, in cores."""


def run_trial(trial: Trial, training: Training, launcher: Launcher, out_dir: Path, *, limits: Limits = Limits(),
              session: str = "", notes: str = "", on_line: Callable[[str], None] | None = None) -> Record:
    """Runs it and waits. Never raises for what the trial does or cannot do."""
    try:
        return attempt(trial, training, launcher, out_dir, limits=limits, session=session, notes=notes, on_line=on_line)
    except BadInput as error:
        return invalid(trial, error, session=session, notes=notes)


def attempt(trial: Trial, training: Training, launcher: Launcher, out_dir: Path, *, limits: Limits = Limits(),
            session: str = "", notes: str = "", on_line: Callable[[str], None] | None = None) -> Record:
    """The same, but raises BadInput for what cannot start; with nothing written where the words alone tell."""
    job = prepare(trial, training, run_dir=out_dir, limits=limits)
    earlier = len(engine_for(trial).said(job.run_dir))
    before = environment.machine()
    handle = launcher.submit(job)
    finished = wait(launcher, handle, on_line=on_line)
    return conclude(trial, training, handle, finished, before=before, session=session, notes=notes, earlier=earlier)


def prepare(trial: Trial, training: Training, *, run_dir: Path, limits: Limits = Limits()) -> Job:
    """Checks the trial and writes its run folder. Raises BadInput, with nothing written, where it cannot run."""
    run_dir = run_dir.absolute()
    engine = engine_for(trial)
    engine.check(trial, training)
    if run_dir.exists():
        end_leftovers(run_dir)
        files.clear(run_dir, keep_events=training.resume)
    write_run(trial, training, run_dir)
    cap = limits.memory_cap_gib
    return Job(
        name=trial.run_id(), run_dir=run_dir, argv=engine.argv(trial, training, run_dir), world=trial.topology.world,
        per=engine.per, procs_per_node=trial.cluster.procs_per_node if trial.cluster else None,
        env=dict(trial.environment.variables), threads=trial.execution.threads, cores=limits.cores,
        memory_cap_bytes=None if cap is None else int(cap * 2**30), time_limit_s=limits.time_limit_s,
        scheduler=dict(trial.environment.scheduler))


def conclude(trial: Trial, training: Training, handle: Handle, finished: Finished, *, before: dict[str, object] | None = None,
             session: str = "", notes: str = "", earlier: int = 0) -> Record:
    """The record of a job that is done; also written into the run folder. `earlier` events are of what it resumed."""
    run_dir = handle.job.run_dir
    said = engine_for(trial).said(run_dir)[earlier:]
    outcome = classify(run_dir, finished, job=handle.job, trial=trial, said=said)
    record = record_of(trial, training, outcome, said, session=session, notes=notes)
    start: Event = next((e for e in said if e["event"] == "start"), {})
    after = environment.machine()
    host: dict[str, object] = {**(before or after), "load_after": after["load"], "seconds": round(finished.seconds, 3),
                               "run_dir": str(run_dir)}
    if handle.job.cores is not None:
        host["cores_a_rank"] = handle.job.cores
    if finished.hosts:
        host["nodes"] = list(finished.hosts)
    if job_id := finished.job_id or handle.job_id:
        host["job_id"] = job_id
    if finished.scheduler_state:
        host["scheduler_state"] = finished.scheduler_state
    versions = environment.versions() | {k: str(start[k]) for k in ("torch", "python") if k in start}
    if trial.environment.python and not start:
        # Another interpreter that never came to say its versions has some, but not ours.
        versions = {k: v for k, v in versions.items() if k not in ("torch", "python")}
    record = replace(record, host=host, versions=versions, torch_version=versions.get("torch", ""),
                     machine=str(host.get("name", "")))
    (run_dir / files.RECORD).write_text(json.dumps(record.to_dict(), ensure_ascii=False) + "\n", encoding="utf-8")
    return record


def invalid(trial: Trial, error: BadInput, *, session: str = "", notes: str = "") -> Record:
    """The record of what never started."""
    evidence: dict[str, object] = {"code": code} if (code := getattr(error, "code", "")) else {}
    outcome = Outcome(status="invalid", message=str(error), evidence=evidence)
    host = environment.machine()
    return replace(record_of(trial, Training(), outcome, [], session=session, notes=notes), host=host,
                   machine=str(host.get("name", "")), versions=environment.versions())


@dataclass(kw_only=True)
class Measured:
    """What the events say in figures."""

    iterations: list[dict[str, Any]] = field(default_factory=list)
    sec_per_it: float | None = None
    gbs: float = 0
    loss: float | None = None
    breakdown: dict[str, float] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)


def measured(training: Training, said: list[Event]) -> Measured:
    """Medians over the iterations after the warm-up."""
    rows = [e for e in said if e["event"] == "iteration"]
    timed = [e for e in rows[training.warmup_iterations :] or rows if _number(e.get("sec"))]
    found = Measured(iterations=[_iteration(e) for e in rows])
    found.memory = next((e for e in reversed(said) if e["event"] == "memory"), {})
    if timed:
        found.sec_per_it = _digits(statistics.median(e["sec"] for e in timed))
        found.gbs = statistics.median(e["gbs"] for e in timed if _number(e.get("gbs"))) if "gbs" in timed[0] else 0
        found.breakdown = _mean([e["timers"] for e in timed if "timers" in e])
    losses = [e["loss"] for e in rows if _number(e.get("loss"))]
    found.loss = losses[-1] if losses else None
    return found


def record_of(trial: Trial, training: Training, outcome: Outcome, said: list[Event], *, session: str = "",
              notes: str = "") -> Record:
    m, t = trial.model, trial.topology
    got = measured(training, said)
    tflops = None
    if got.sec_per_it and got.gbs:
        tflops = _digits(arith.tflops(FORMULA, m, samples=got.gbs, sec_per_it=got.sec_per_it, processes=t.world,
                                      recompute=t.recompute, tp=t.tp, pp=t.pp))
    per_node = trial.cluster.procs_per_node if trial.cluster else t.world
    gib = _digits(got.memory["mem_gib"]) if "mem_gib" in got.memory else None
    samples_per_s = _digits(got.gbs / got.sec_per_it) if got.sec_per_it and got.gbs else None
    public = environment.public(trial)
    state = "measured" if got.sec_per_it and outcome.status != "nan" else "planned" if outcome.status == "invalid" else "failed"
    return Record(
        state="failed" if state == "measured" and outcome.status not in ("ok", "cancelled", "timeout") else state,  # type: ignore[arg-type]
        outcome=outcome, run_id=trial.run_id(), session=session, date=time.strftime("%Y-%m-%d", time.gmtime()),
        nodes=max(1, t.world // per_node), gpus=t.world, procs_per_node=per_node, size_label=m.name, family=m.family,
        layers=m.layers, hidden=m.hidden, heads=m.heads, kv_heads=m.kv, ffn=m.inner, seq=m.seq, vocab=m.vocab, dp=t.dp,
        tp=t.tp, pp=t.pp, vp=t.vp, mbs=t.mbs, gbs=trial.batch.gbs, zero_stage=t.zero, recompute=t.recompute,
        schedule=t.schedule, dtype=t.precision, sequence_parallel=t.sequence_parallel,
        optimizer="" if trial.command else trial.execution.update, engine="command" if trial.command else trial.engine,
        freq_ghz=trial.environment.clock_ghz,
        env=environment.told(os.environ) | public.environment.variables | public.environment.scheduler,
        mem_value=gib, mem_unit="GiB" if gib is not None else "", sec_per_it=got.sec_per_it,
        time_unit="s" if got.sec_per_it else "", tflops=tflops, formula=FORMULA if tflops else "",
        tflops_per="process" if tflops else "", samples_per_s=samples_per_s,
        tokens_per_s=_digits(samples_per_s * m.seq) if samples_per_s else None,
        loss=_digits(got.loss) if got.loss is not None else None,
        iteration=got.iterations[-1]["step"] if got.iterations else None, notes=notes, trial=public.to_dict(),
        iterations=tuple(got.iterations), memory=_memory(got.memory), breakdown=got.breakdown)


def _digits(value: float) -> float:
    """Five digits: a table shows what was measured, not what a double can hold. The iterations keep everything."""
    return float(f"{value:.5g}")


def _iteration(event: Event) -> dict[str, Any]:
    return {k: event[k] for k in ("step", "sec", "loss", "grad_norm", "gbs", "skipped", "loss_scale") if k in event}


def _memory(event: Event) -> dict[str, object]:
    return {k: event[k] for k in ("rank", "fullest", "ranks") if k in event}


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mean(tables: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: sum(t.get(name, 0.0) for t in tables) / len(tables) for name in names}
