"""Honest measurement: what is asked of the engine for one trial, and what is made of its iterations afterwards.

    trial, training = asked(task, measure)          as it is run: until the median is known, or with fewer micro-batches
    record = judged(record, task, measure)          medians with their interval, warm-up and outliers marked

Nothing is dropped from a record: iterations that do not count say why (`warmup`, `outlier`), and a figure that was worked out
from less than an iteration is `estimated`.
"""
from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from seatrial import arith, fields
from seatrial.launch import environment
from seatrial.median import Known, far_out, median_of
from seatrial.record import Record
from seatrial.spec import Trial
from seatrial.sweep import partial
from seatrial.sweep.file import Measure, Task
from seatrial.training import Training

FORMULA = "sc21"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A trial as it is run, which may be with a smaller batch than the one the row is about."""

    trial: Trial
    training: Training
    partial: bool


def asked(task: Task, measure: Measure, *, slow_s: float | None = None, seconds: float | None = None) -> Asked:
    """`slow_s`: an iteration beyond it is certain to lose; `seconds`: what the sweep's budget leaves for measuring."""
    assert task.trial is not None and task.training is not None
    short = partial.short_batch(task.trial, measure.microbatches, warmup=measure.warmup) if measure.microbatches else None
    steps = measure.iterations_max + measure.warmup
    if short is not None:
        steps += partial.TIMED_SHORT + measure.warmup
    given = task.data.get("training", {})
    training = replace(
        task.training, steps=given.get("steps", steps), warmup_iterations=measure.warmup, known_to=measure.known_to,
        measure_s=min(measure.seconds, seconds) if seconds is not None else measure.seconds,
        slow_s=None if short is not None else slow_s)
    trial = task.trial if short is None else replace(task.trial, batch=short)
    return Asked(trial=trial, training=training, partial=short is not None)


def judged(record: Record, task: Task, measure: Measure, asked: Asked) -> Record:
    """The record of the row that was asked for, from the one of what was run."""
    trial = task.trial
    assert trial is not None
    groups, marked = by_size(record.iterations, warmup=measure.warmup)
    public = environment.public(trial)
    record = replace(record, iterations=tuple(marked), trial=public.to_dict(), gbs=trial.batch.gbs, run_id=trial.run_id())
    grows = asked.trial.batch.rampup_start is not None
    timed = groups.get(asked.trial.batch.gbs) or (next(iter(groups.values())) if len(groups) == 1 and not grows else [])
    if asked.partial:
        return _estimated(record, trial, groups, asked)
    if not timed:
        return _without_rates(record) if grows else record  # of smaller batches alone; the iterations are kept
    known = median_of(timed)
    first = next((i["sec"] for i in marked if i.get("warmup") and _number(i.get("sec"))), None)
    about = _about(known, timed, marked, measure, asked.training)
    if trial.execution.compile and first is not None:
        about["compile_s"] = max(0.0, first - known.value)
    return _with_rates(replace(record, measurement=about), trial, known.value)


def by_size(iterations: Sequence[dict], *, warmup: int) -> tuple[dict[int, list[float]], list[dict]]:
    """Timings that count by batch size, and all iterations with the marks of those that do not, or that lie far out."""
    found: dict[int, list[float]] = {}
    counted: dict[int, list[int]] = {}
    seen: dict[int, int] = {}
    marked = [dict(i) for i in iterations]
    for place, iteration in enumerate(marked):
        size = iteration.get("gbs", 0)
        seen[size] = seen.get(size, 0) + 1
        if not _number(iteration.get("sec")):
            continue
        if seen[size] <= warmup:
            iteration["warmup"] = True
            continue
        found.setdefault(size, []).append(iteration["sec"])
        counted.setdefault(size, []).append(place)
    for size, timings in found.items():
        for place, far in zip(counted[size], far_out(timings)):
            if far:
                marked[place]["outlier"] = True
    return found, marked


def _about(known: Known, timed: list[float], marked: list[dict], measure: Measure, training: Training) -> dict[str, object]:
    """How the figure came about, for the record."""
    about: dict[str, object] = {"median_s": known.value, "counted": known.count, "drift": round(known.drift, 5),
                                "warmup": sum(bool(i.get("warmup")) for i in marked),
                                "outliers": sum(bool(i.get("outlier")) for i in marked)}
    if math.isfinite(known.half_width):
        about |= {"low_s": known.low, "high_s": known.high, "confidence": 0.95}
    if len(timed) > 1:
        first, _, third = statistics.quantiles(timed, n=4)
        about["spread_s"] = third - first
    if training.slow_s is not None and len(timed) >= 3 and min(timed) > training.slow_s and not known.within(measure.known_to):
        about["ended"] = f"slow: every iteration took longer than {training.slow_s:.4g} s"
    elif known.within(measure.known_to):
        about["ended"] = f"known to {measure.known_to:.2%}"
    else:
        about["ended"] = "time or iterations spent"
    return about


def _estimated(record: Record, trial: Trial, groups: dict[int, list[float]], asked: Asked) -> Record:
    replica = trial.topology.dp * trial.topology.mbs
    timings = {size // replica: seconds for size, seconds in groups.items()}
    if len(timings) != 2:
        return _without_rates(record)  # it ended before both sizes were timed; the iterations are kept
    found = partial.estimate(trial, timings)
    about: dict[str, Any] = {k: v for k, v in fields.plain(found, keep_defaults=True).items()
                             if not isinstance(v, float) or math.isfinite(v)}
    about["counted"] = {str(m): len(seconds) for m, seconds in sorted(timings.items())}
    names = ["sec_per_it", "tflops", "samples_per_s", "tokens_per_s"]
    if trial.topology.schedule == "gpipe" and record.mem_value is not None:
        names.append("mem_value")  # here memory grows with every micro-batch
    record = _with_rates(replace(record, measurement=about, estimated=tuple(names)), trial, found.sec_per_it)
    return replace(record, state="estimated" if record.state == "measured" else record.state)


def _without_rates(record: Record) -> Record:
    return replace(record, sec_per_it=None, tflops=None, formula="", tflops_per="", samples_per_s=None, tokens_per_s=None,
                   time_unit="", state="failed" if record.state == "measured" else record.state)


def _with_rates(record: Record, trial: Trial, sec_per_it: float) -> Record:
    t = trial.topology
    tflops = arith.tflops(FORMULA, trial.model, samples=trial.batch.gbs, sec_per_it=sec_per_it, processes=t.world,
                          recompute=t.recompute, tp=t.tp, pp=t.pp)
    samples_per_s = trial.batch.gbs / sec_per_it
    return replace(record, sec_per_it=sec_per_it, time_unit="s", tflops=tflops, formula=FORMULA, tflops_per="process",
                   samples_per_s=samples_per_s, tokens_per_s=samples_per_s * trial.model.seq)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
