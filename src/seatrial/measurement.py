"""From the events of a run to a measurement: which iterations count, their median and how well it is known, rates, parts.

    found = measure(events, trial, recipe)            one function for `run`, `train`, `sweep`, `tune`
    found.sec_per_it, found.about["low_s"], found.iterations[0]["warmup"]
    rates(trial, found.sec_per_it)                      TFLOPs, samples and tokens per second, MFU

    batch = short_batch(trial, 4, warmup=1)             4 micro-batches per replica, then 8, in one run (a ramp-up of one step)
    estimate(trial, {4: [...], 8: [...]})               seconds of the whole iteration, with an interval

Nothing is dropped: iterations that do not count say why (`warmup`, `outlier`). A figure worked out from less than an iteration
is an estimate: what an iteration takes beyond its schedule (reducing gradients, the optimizer) does not depend on the number of
micro-batches, so two sizes tell both: T(m) = fixed + pace x shape(m), where shape(m) is the time of the schedule itself, the
same that the engine executes. A single size, scaled, would count the bubble and the optimizer once per micro-batch.
"""
from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seatrial import arith, fields, presets
from seatrial.arith import FORMULA
from seatrial.errors import BadInput
from seatrial.median import Known, far_out, median_of
from seatrial.recipe import Recipe
from seatrial.schedule import KINDS
from seatrial.spec import Batch, Device, Trial, round_up, stages_of

Event = dict[str, Any]
RATES = ("sec_per_it", "tflops", "samples_per_s", "tokens_per_s")

TIMED_SHORT = 8
"""Iterations of the smaller size that count; the larger one is measured until it is known."""
RISEN = 1.2
"""Times its first loss: what batches differ by is less, and what a run diverges by is more."""
BACKWARD = {"none": 2.0, "selective": 2.2, "full": 3.0}
"""Seconds of backward for each of forward; where the pipeline is full the answer does not depend on it."""
UNSURE = (0.75, 1.25)
"""How far that ratio is tried to both sides for the interval."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What the events say in figures."""

    iterations: tuple[dict[str, Any], ...] = ()
    """All of them, marked."""
    sec_per_it: float | None = None
    """Of the batch that the row is about; None where none of that size was timed."""
    estimated: bool = False
    about: dict[str, Any] = field(default_factory=dict)
    """How it came about: the median's interval, how many iterations count, what ended the measuring."""
    loss: float | None = None
    breakdown: dict[str, float] = field(default_factory=dict)
    """Mean of the ranks' timers, in seconds."""
    memory: Event = field(default_factory=dict)


def measure(events: Sequence[Event], trial: Trial, recipe: Recipe, *, ran: Batch | None = None) -> Measurement:
    """`ran`: the batch that was run in place of the trial's, where an iteration is estimated from a part of it."""
    rows = [e for e in events if e["event"] == "iteration"]
    groups, marked = by_size(rows, warmup=recipe.warmup_iterations)
    kept = tuple(marked)
    losses = [e["loss"] for e in rows if number(e.get("loss"))]
    counted = [e for e, mark in zip(rows, marked) if number(e.get("sec")) and not mark.get("warmup")]
    found = Measurement(iterations=kept, loss=losses[-1] if losses else None,
                        breakdown=_mean([e["timers"] for e in counted or rows if "timers" in e]),
                        memory=next((e for e in reversed(events) if e["event"] == "memory"), {}),
                        about={**_uneven([e.get("attended_pairs") for e in counted or rows]),
                               **_balance([e.get("balance") for e in counted or rows])})
    if ran is not None and ran != trial.batch:
        return _estimated(found, trial, groups)
    grows = trial.batch.rampup_start is not None
    timed = groups.get(trial.batch.gbs) or (next(iter(groups.values())) if len(groups) == 1 and not grows else [])
    if timed:
        known = median_of(timed)
        about = {**_about(known, timed, marked, recipe), **found.about}
        first = next((i["sec"] for i in marked if i.get("warmup") and number(i.get("sec"))), None)
        if trial.execution.compile and first is not None:
            about["compile_s"] = max(0.0, first - known.value)
        return replace(found, sec_per_it=known.value, about=about)
    # So few iterations that all were the warm-up: better than nothing, and `about` says nothing of how well it is known.
    all_timed = [] if grows else [e["sec"] for e in rows if number(e.get("sec"))]
    return replace(found, sec_per_it=statistics.median(all_timed)) if all_timed else found


def _uneven(attended: list[Any]) -> dict[str, float]:
    """What ranks attend of packed documents, least and most, over the mean of all: those with less wait."""
    known = [one for one in attended if isinstance(one, dict) and all(number(one.get(k)) for k in ("min", "max", "mean"))
             and one["mean"] > 0]
    return {f"attended_{end}": round(statistics.fmean(one[end] / one["mean"] for one in known), 4) for end in ("min", "max")
            if known}  # fmt: skip


def _balance(steps: list[Any]) -> dict[str, float]:
    """Of experts: the emptiest and the fullest over the mean, choices dropped a step, the fullest rank's excess."""
    known = [one for one in steps if isinstance(one, dict) and number(one.get("excess")) and number(one.get("mean"))
             and all(number(one.get(k)) for k in ("least", "most", "dropped")) and one["mean"] > 0]
    if not known:
        return {}
    found = {f"expert_{end}": statistics.fmean(one[end] / one["mean"] for one in known) for end in ("least", "most")}
    found |= {f"expert_{what}": statistics.fmean(one[what] for one in known) for what in ("dropped", "excess")}
    return {name: round(value, 4) for name, value in found.items()}


def rise(iterations: Sequence[Mapping[str, Any]]) -> str:
    """In words, where a run from its first step on came to a loss above the one that it began with; else nothing."""
    known = [(i["loss"], i["step"]) for i in iterations if number(i.get("loss")) and number(i.get("step"))]
    if not known or known[0][1] != 1:
        return ""
    (first, _), (most, at) = known[0], max(known)
    if most <= RISEN * first:
        return ""
    return (f"the loss rose from {first:.4g} to {most:.4g} at iteration {at}: a longer warm-up (recipe.warmup_steps) or a lower "
            "recipe.lr would do")


KEPT = ("step", "sec", "loss", "grad_norm", "gbs", "skipped", "loss_scale", "warmup", "outlier")
"""Of an iteration, for the record."""


def by_size(iterations: Sequence[dict], *, warmup: int,
            kept: Sequence[str] = KEPT) -> tuple[dict[int, list[float]], list[dict]]:
    """Timings that count by batch size, and what is kept of all iterations, with marks on those that do not or lie far out."""
    found: dict[int, list[float]] = {}
    counted: dict[int, list[int]] = {}
    seen: dict[int, int] = {}
    marked = [{k: i[k] for k in kept if k in i} for i in iterations]
    for index, iteration in enumerate(marked):
        size = iteration.get("gbs", 0)
        seen[size] = seen.get(size, 0) + 1
        if not number(iteration.get("sec")):
            continue
        if seen[size] <= warmup:
            iteration["warmup"] = True
            continue
        found.setdefault(size, []).append(iteration["sec"])
        counted.setdefault(size, []).append(index)
    for size, timings in found.items():
        for index, far in zip(counted[size], far_out(timings)):
            if far:
                marked[index]["outlier"] = True
    return found, marked


def _about(known: Known, timed: list[float], marked: list[dict], recipe: Recipe) -> dict[str, Any]:
    found = about(known, timed, marked)
    if recipe.slow_s is not None and len(timed) >= 3 and min(timed) > recipe.slow_s and not known.within(recipe.known_to):
        found["ended"] = f"slow: every iteration took longer than {recipe.slow_s:.4g} s"
    elif known.within(recipe.known_to):
        found["ended"] = f"known to {recipe.known_to:.2%}"
    else:
        found["ended"] = "time or iterations spent"
    return found


def about(known: Known, timed: Sequence[float], marked: Sequence[dict]) -> dict[str, Any]:
    """How a median came about, of a run of ours or of a log."""
    found: dict[str, Any] = {"median_s": known.value, "counted": known.count, "drift": round(known.drift, 5),
                             "warmup": sum(bool(i.get("warmup")) for i in marked),
                             "outliers": sum(bool(i.get("outlier")) for i in marked)}
    if math.isfinite(known.half_width):
        found |= {"low_s": known.low, "high_s": known.high, "confidence": 0.95}
    if len(timed) > 1:
        first, _, third = statistics.quantiles(timed, n=4)
        found["spread_s"] = third - first
    return found


def rates(trial: Trial, sec_per_it: float, said: Sequence[dict] = ()) -> dict[str, Any]:
    """What a time per iteration means, as fields of a record; MFU where the peak of the device is known.

    `said`: the run's events, which name the device that it ran on: a trial may name a cluster and be tried elsewhere.
    """
    t = trial.topology
    device = _ran_on(trial, said)
    peak = device.peak_tflops.get(t.precision) if device is not None else None
    found = arith.rates(FORMULA, trial.model, samples=trial.batch.gbs, sec_per_it=sec_per_it, processes=t.world,
                        recompute=t.recompute, tp=t.tp, pp=t.pp, peak_tflops=peak)
    return {"sec_per_it": digits(sec_per_it), "time_unit": "s", "tflops": digits(found.tflops), "formula": FORMULA,
            "tflops_per": "process", "samples_per_s": digits(found.samples_per_s), "tokens_per_s": digits(found.tokens_per_s),
            "mfu": None if found.mfu is None else digits(found.mfu)}


def _ran_on(trial: Trial, said: Sequence[dict]) -> Device | None:
    """The cluster's, where the run was on that kind; else the one that it says, where that is known by its name."""
    fullest = next((e.get("fullest") or {} for e in reversed(said) if e["event"] == "memory"), {})
    kind = "gpu" if {"reserved_peak_gib", "allocated_peak_gib"} & fullest.keys() else "cpu" if fullest else ""
    if trial.cluster is not None and kind in ("", trial.cluster.device.kind):
        return trial.cluster.device
    name = next((str(e.get("device", "")) for e in said if e["event"] == "start"), "")
    return presets.device_called(name) if kind == "gpu" else None


def digits(value: float) -> float:
    """Five digits: a table shows what was measured, not what a double can hold. The iterations keep everything."""
    return float(f"{value:.5g}")


def number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mean(tables: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: sum(t.get(name, 0.0) for t in tables) / len(tables) for name in names}


# ---- an iteration from a part of it


@dataclass(frozen=True, kw_only=True)
class Estimate:
    sec_per_it: float
    low_s: float
    high_s: float
    fixed_s: float
    """What each iteration takes once."""
    microbatch_s: float
    """What one more micro-batch adds."""
    from_microbatches: tuple[int, int]


def sizes(trial: Trial, microbatches: int) -> tuple[int, int] | None:
    """The two numbers of micro-batches to run; None where the whole iteration is hardly more."""
    t = trial.topology
    short = round_up(max(microbatches, t.pp), KINDS[t.schedule].group(t.pp))  # fewer than PP do not fill the pipeline
    return None if 2 * short >= trial.microbatches else (short, 2 * short)


def short_batch(trial: Trial, microbatches: int, *, warmup: int) -> Batch | None:
    """The batch to run in place of the trial's own: first the smaller size, then the larger."""
    if trial.command is not None or trial.engine != "seatrial":
        whose = "[command]" if trial.command is not None else trial.engine
        raise BadInput(f"measure.microbatches: only our own engine changes its batch during a run; leave it out for {whose}")
    if trial.batch.rampup_start is not None:
        raise BadInput("measure.microbatches: a batch with a ramp-up is many sizes; leave the ramp-up out to estimate one")
    found = sizes(trial, microbatches)
    if found is None:
        return None
    replica = trial.topology.dp * trial.topology.mbs
    small, large = found[0] * replica, found[1] * replica
    return Batch(gbs=large, rampup_start=small, rampup_increment=large - small, rampup_samples=small * (warmup + TIMED_SHORT),
                 documents=trial.batch.documents)


def _estimated(found: Measurement, trial: Trial, groups: dict[int, list[float]]) -> Measurement:
    replica = trial.topology.dp * trial.topology.mbs
    timings = {size // replica: seconds for size, seconds in groups.items()}
    if len(timings) != 2:
        return found  # it ended before both sizes were timed; the iterations are kept
    worked_out = estimate(trial, timings)
    about: dict[str, Any] = {k: v for k, v in fields.plain(worked_out, keep_defaults=True).items()
                             if not isinstance(v, float) or math.isfinite(v)}
    about["counted"] = {str(m): len(seconds) for m, seconds in sorted(timings.items())}
    return replace(found, sec_per_it=worked_out.sec_per_it, estimated=True, about=about)


def estimate(trial: Trial, timings: Mapping[int, Sequence[float]]) -> Estimate:
    """From timings (without warm-up) by number of micro-batches, two of them."""
    (few, few_s), (more, more_s) = sorted(timings.items())
    small, large = median_of(few_s), median_of(more_s)
    usual = BACKWARD[trial.topology.recompute]
    stretches = [_stretch(trial, few, more, usual * by) for by in (1.0, *UNSURE)]
    per_shape = (large.value - small.value)
    # T(M) = T(more) + stretch x (T(more) - T(few)), so each timing's own uncertainty is carried over by these factors.
    values = [large.value + s * per_shape for s in stretches]
    errors = [math.hypot((1 + s) * _half(large.low, large.high), s * _half(small.low, small.high)) for s in stretches]
    pace_s = per_shape / (more - few)
    return Estimate(sec_per_it=values[0], low_s=max(large.value, min(v - e for v, e in zip(values, errors))),
                    high_s=max(v + e for v, e in zip(values, errors)), fixed_s=small.value - few * pace_s, microbatch_s=pace_s,
                    from_microbatches=(few, more))


def _half(low: float, high: float) -> float:
    """Half of an interval; too few timings leave it open, and then the estimate's is open too."""
    return (high - low) / 2


def _stretch(trial: Trial, few: int, more: int, backward: float) -> float:
    """How many times the step from `few` to `more` fits into the one from `more` to the whole iteration."""
    a, b, whole = (_shape(trial, m, backward) for m in (few, more, trial.microbatches))
    return (whole - b) / (b - a)


def _shape(trial: Trial, microbatches: int, backward: float) -> float:
    """The schedule's own time, in forward passes of one layer. A stage without layers still has embedding or head to do."""
    from seatrial.schedule.vector import makespan  # numpy, which a run that is measured whole does not need

    t = trial.topology
    layers = [max(0.25, float(n)) for n in stages_of(trial.model, t)]
    return makespan(t.schedule, pp=t.pp, microbatches=microbatches, virtual=t.vp, forward_s=layers,
                    backward_s=[backward * n for n in layers])
