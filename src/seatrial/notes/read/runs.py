"""Steps of a run as records: one for the run with its series, or one for each step.

    run = Run(file="train.log", format=format)
    run.add(Step(line=90, values={"iteration": 5, "sec_per_it": 1.25}))
    run.record()                     the median with its interval, the fullest memory, the last loss, all steps
    run.each()                       a record for every step

Figures are as printed. What the log does not print and follows from what it does (the time of a step from tokens per second and
the batch) is marked as inferred. Steps at the start of a run that are clearly slower than the others are its warm-up, and count
neither for the time nor for the rates.
"""
from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from seatrial.measurement import about, by_size
from seatrial.median import median_of
from seatrial.notes.read.logformat import Format
from seatrial.notes.read.logsettings import worked_out
from seatrial.notes.read.outline import Around
from seatrial.record import Outcome, Record, Stated
from seatrial.tables import Problem
from seatrial.tables.codec import TYPES
from seatrial.tables.headings import MEASURES

MOST_STEPS = 20_000
"""Kept of one run; of a longer one every second, fourth, … step."""
FIGURES = ("tflops", "samples_per_s", "tokens_per_s", "tokens_per_s_per_process", "mfu", "hfu")
SLOW = 1.4
"""Times the others' median beyond which the steps at the start of a run are its warm-up."""
PEAKS = {"max reserved": "reserved", "max cached": "reserved", "max allocated": "allocated", "used": "used"}
"""What a line of memory calls its peak, the first that it has, and what that measures."""
SERIES = {"iteration": "step", "sec_per_it": "sec", "loss": "loss", "grad_norm": "grad_norm", "gbs": "gbs", "tflops": "tflops",
          "samples_per_s": "samples_per_s", "tokens_per_s": "tokens_per_s",
          "tokens_per_s_per_process": "tokens_per_s_per_process", "mfu": "mfu", "hfu": "hfu", "mem_gib": "mem_gib",
          "loss_scale": "loss_scale", "skipped": "skipped"}  # fmt: skip
"""What a run's record keeps of a step, by the names of our own."""


@dataclass(kw_only=True)
class Step:
    line: int
    values: dict[str, Any] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)
    breakdown: dict[str, float] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    outcome: Outcome | None = None


@dataclass(kw_only=True)
class Run:
    file: str
    format: Format
    settings: dict[str, Stated] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    """Of the run as a whole."""
    steps: list[Step] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    ended: Outcome | None = None
    last: Step | None = None
    """Whose loss is the run's, also where it is not among those that are kept."""
    every: int = 1
    seen: int = 0

    def add(self, step: Step) -> None:
        self.seen += 1
        self.last = step
        if (self.seen - 1) % self.every == 0:
            self.steps.append(step)
        if len(self.steps) > MOST_STEPS:
            self.steps = self.steps[::2]
            self.every *= 2

    def known(self) -> tuple[dict[str, Any], set[str]]:
        """The settings and what follows from them."""
        values = {name: stated.value for name, stated in self.settings.items()}
        inferred = set()
        for name, formula in self.format.derived.items():
            if name not in values and (value := worked_out(formula, values)) is not None:
                values[name] = value
                inferred.add(name)
        return values, inferred

    def records(self, *, each: bool) -> Iterator[Record | Problem]:
        if each:
            yield from self.each()
        elif (record := self.record()) is not None:
            yield record

    def each(self) -> Iterator[Record | Problem]:
        values, inferred = self.known()
        for index, step in enumerate(self.steps):
            last = index == len(self.steps) - 1
            yield step_record(step, self.file, self._around(values, inferred), ended=self.ended if last else None,
                              format=self.format)

    def _around(self, values: dict[str, Any], inferred: set[str]) -> Around:
        # Engines print how experts would be laid also where there are none.
        dense = not values.get("experts") and values.get("ep") in (None, 1)
        out = {"ep", "etp", "experts"} if dense else set()
        kept = {name: value for name, value in values.items() if name in TYPES and name not in out}
        engine = {"engine": self.format.engine} if self.format.engine and "engine" not in kept else {}
        stated = {name: self.settings.get(name) or Stated(value=value, line=0) for name, value in {**engine, **kept}.items()}
        helpers = {name: value for name, value in values.items() if name not in TYPES}
        return _Known(values=stated, inferred=frozenset(inferred & kept.keys()), extra={}, helpers=helpers)

    def record(self) -> Record | Problem | None:
        """One record for all of it; None where there is nothing to say."""
        if len(self.steps) == 1 and not self.figures:
            self.steps[0].memory = self.steps[0].memory or self.memory
            return next(self.each())
        if not self.steps and not self.figures and self.ended is None:
            return None
        if self.last is not None and self.steps and self.steps[-1] is not self.last:
            self.steps.append(self.last)
        settings, inferred = self.known()
        around = self._around(settings, inferred)
        rows = [completed(step.values, settings) for step in self.steps]
        values, marked, measured = _summary([row for row, _ in rows])
        inferred |= {name for _, names in rows for name in names}
        whole, more = completed(self.figures, {**settings, **values})
        for name, value in whole.items():
            if name in self.figures or name not in values:
                values[name] = value
                inferred |= {name} & more
        values |= self._peak([row for row, _ in rows])
        if self.every > 1:
            measured["every"] = self.every
        outcome = self.ended or next((step.outcome for step in reversed(self.steps) if step.outcome), None)
        line = self.steps[0].line if self.steps else next((stated.line for stated in self.settings.values()), 1)
        if not self.steps and not values.keys() & set(MEASURES):
            at = self.ended.evidence.get("line", line) if self.ended else line
            return _made(state="failed", outcome=outcome, file=self.file, line=at, around=around, values={}, inferred=inferred)
        return _made(state="measured", outcome=outcome, file=self.file, line=line, around=around, values=values,
                     inferred=inferred, iterations=tuple(marked), measurement=measured, memory=self.memory,
                     breakdown=_mean([step.breakdown for step in self.steps if step.breakdown]))  # fmt: skip

    def _peak(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The fullest of all steps and ranks."""
        best: dict[str, Any] = {}
        candidates = [{name: value for name, value in row.items() if name.startswith("mem_")} for row in (*rows, self.figures)]
        candidates += [peak({rank: figures}) for rank, figures in self.memory.items()]
        for step in self.steps:
            candidates.append(peak(step.memory))
            self.memory = {**step.memory, **self.memory}
        for found in candidates:
            if _finite(found.get("mem_value")) and gib(found) > gib(best):
                best = found
        return best


def _summary(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """A run's figures, its steps with their marks, and how its median came about."""
    rows = [{**row, "mem_gib": tidy(gib(row))} if "mem_value" in row else row for row in rows]
    events = [{new: row[old] for old, new in SERIES.items() if old in row and _finite(row[old])} for row in rows]
    _, marked = by_size(events, warmup=0, kept=(*SERIES.values(), "warmup"))
    alike = _after_warmup(marked, rows)
    made: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    for name in ("loss", "iteration", "seq", "gbs", "tflops_per", "formula", "time_unit"):
        last = [row[name] for row in rows if _finite(row.get(name))]
        made |= {name: last[-1]} if last else {}
    for name in FIGURES:
        figures = [rows[index][name] for index in alike if _finite(rows[index].get(name))]
        made |= {name: tidy(statistics.median(figures))} if figures else {}
    timed = [events[index]["sec"] for index in alike if "sec" in events[index]]
    if timed:
        known = median_of(timed)
        made["sec_per_it"], measured = tidy(known.value), about(known, timed, marked)
    return made, marked, measured


def _after_warmup(marked: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[int]:
    """The steps of the batch that the run ends with, from the first that is not clearly slower; those before are marked."""
    size = marked[-1].get("gbs", 0) if marked else 0
    alike = [index for index, event in enumerate(marked) if event.get("gbs", 0) == size]
    seconds = [_slowness(rows[index]) for index in alike]
    usual = statistics.median([s for s in seconds[1:] if s] or [s for s in seconds if s] or [0.0])
    while len(alike) > 1 and seconds[0] and seconds[0] > SLOW * usual:
        marked[alike.pop(0)]["warmup"] = True
        seconds.pop(0)
    return alike


def _slowness(row: dict[str, Any]) -> float:
    """The time of a step, or where only a rate is printed something that grows like it."""
    if row.get("sec_per_it"):
        return float(row["sec_per_it"])
    rate = next((row[name] for name in FIGURES if row.get(name)), 0.0)
    return 1 / rate if rate and _finite(rate) else 0.0


@dataclass(frozen=True, kw_only=True)
class _Known(Around):
    """With what the settings say that no field takes, for working out others."""

    helpers: dict[str, Any] = field(default_factory=dict)


def step_record(step: Step, file: str, around: Around, *, ended: Outcome | None = None,
                format: Format | None = None) -> Record | Problem:
    """One step as a record: what it prints wins over what is said around it."""
    stated = {name: found.value for name, found in around.values.items()}
    helpers = getattr(around, "helpers", {})
    values, more = completed(step.values, {**stated, **helpers})
    if format is not None and (problem := lacking(step, values, file, format)):
        return problem
    return _made(state="measured", outcome=step.outcome or ended, file=file, line=step.line, around=around,
                 values={**values, **peak(step.memory)}, inferred=more | around.inferred, printed=step.printed,
                 breakdown=step.breakdown, memory=step.memory)


def lacking(step: Step, values: dict[str, Any], file: str, format: Format) -> Problem | None:
    """Why a line is no step: it has no time, or one that cannot be."""
    for name in format.needs:
        shown = next((text for key, text in step.printed.items() if "time" in key), "")
        if name not in values or not _finite(values[name]):
            message = f"{shown!r} is not a number" if shown else "an iteration line without its time"
            return Problem(file=file, line=step.line, cell=shown[:80], message=message, level="row", rows=1)
        if values[name] <= 0:
            message = f"{values[name]} seconds per iteration is not above 0"
            return Problem(file=file, line=step.line, cell=shown[:80], message=message, level="row", rows=1)
    return None


def _made(*, state: Any, outcome: Outcome | None, file: str, line: Any, around: Around, values: dict[str, Any],
          inferred: Any, **more: Any) -> Record:  # fmt: skip
    own = {name: value for name, value in values.items() if name in TYPES and _finite(value)}
    context = {name: stated for name, stated in around.values.items() if stated.line}
    kept = {name: stated.value for name, stated in around.values.items()}
    return Record(state=state, outcome=outcome, source_file=file, source_line=line, section=around.section, context=context,
                  inferred=tuple(sorted(set(inferred) & {**kept, **own}.keys() - (own.keys() - set(inferred)))),
                  env=around.env, extra=around.extra, **{**kept, **own}, **more)  # type: ignore[arg-type]


def completed(values: dict[str, Any], settings: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """A step's figures with the time that follows from its rate and the batch, and what was worked out."""
    if "sec_per_it" in values:
        return values, set()
    said = {**settings, **{name: value for name, value in values.items() if _finite(value)}}
    tokens = said.get("batch_tokens") or _product(said.get("gbs"), said.get("seq"))
    world = said.get("gpus")
    found: float | None = None
    if "runtime_s" in values and (steps := said.get("steps") or said.get("of") or said.get("iteration")):
        found = values["runtime_s"] / steps
    elif values.get("samples_per_s", 0) > 0 and said.get("gbs"):
        found = said["gbs"] / values["samples_per_s"]
    elif values.get("tokens_per_s", 0) > 0 and tokens:
        found = tokens / values["tokens_per_s"]
    elif values.get("tokens_per_s_per_process", 0) > 0 and tokens and world:
        found = tokens / (values["tokens_per_s_per_process"] * world)
    elif values.get("steps_per_s", 0) > 0:
        found = 1 / values["steps_per_s"]
    if found is None or not math.isfinite(found) or found <= 0:
        return values, set()
    return {**values, "sec_per_it": tidy(found), "time_unit": "s"}, {"sec_per_it"}


def peak(memory: dict[str, Any]) -> dict[str, Any]:
    """The fullest rank: what the tables' Mem column holds."""
    best: tuple[float, str, str] | None = None
    for figures in memory.values():
        for key, measure in PEAKS.items():
            if key in figures:
                candidate = (figures[key], "node" if figures["of"] == "node" else "fullest rank", measure)
                best = candidate if best is None or candidate > best else best
                break
    return {} if best is None else {"mem_value": best[0], "mem_unit": "MiB", "mem_scope": best[1],
                                    "mem_measure": best[2]}  # fmt: skip


def tidy(value: float) -> float:
    """Without the noise of binary sums: the mean of 1.1 and 1.3 is 1.2."""
    return float(f"{value:.12g}")


def gib(found: dict[str, Any]) -> float:
    value = found.get("mem_value")
    return -1.0 if value is None else value / 1024 if found.get("mem_unit") in ("MiB", "MB") else value


def _finite(value: object) -> bool:
    return value is not None and (not isinstance(value, float) or math.isfinite(value))


def _product(*values: Any) -> float | None:
    return math.prod(values) if all(isinstance(value, int | float) and value for value in values) else None


def _mean(tables: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: tidy(statistics.fmean(t[name] for t in tables if name in t)) for name in names}

