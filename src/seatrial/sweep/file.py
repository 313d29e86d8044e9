"""A sweep from a TOML file: fixed values, axes, rules; what comes out is the list of trials in the order they are run.

    model = "tiny"                                      # the tables of a trial, as `seatrial run` reads them: fixed values
    batch = { gbs = 8 }
    rules = ["dp * tp == 2"]                            # what does not hold is no trial; see expression.py
    repeats = 3
    [axes]                                              # every combination is a trial
    dp = [1, 2]                                         # a field of a table, or a path: "environment.variables.OMP_NUM_THREADS"
    tp = [1, 2]
    environment = [{ name = "plain" }, { name = "tcmalloc", variables = { LD_PRELOAD = "libtcmalloc_minimal.so.4" } }]
    case = [{ name = "a", topology = { pp = 2 } }]      # tables to put over all others: trials with nothing in common

Also `order` (interleaved, file, shuffled, forecast), `budget_s`, `notes`, and the tables [measure], [stop] and [limits] below.

    seatrial sweep FILE.toml --dry-run                  prints the list

A combination that cannot run (8 heads over TP 3) is a row with the outcome `invalid` and the rule's own message. A key that no
table has is an error of the file.
"""
from __future__ import annotations

import dataclasses
import itertools
import math
import os
import random
import re
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from seatrial import columns, expression, fields, native, plaindata, presets, stages, trialfile
from seatrial.engines import engine_for
from seatrial.errors import BadInput, Infeasible
from seatrial.measurement import TIMED_SHORT, short_batch
from seatrial.recipe import Recipe, moved, moved_path
from seatrial.spec import Topology, Trial

MOST_TRIALS = 100_000

Order = Literal["interleaved", "file", "shuffled", "forecast"]

_CLASSES = {**columns.TABLES, "recipe": Recipe}
OWN = ("name", "rules", "repeats", "order", "budget_s", "axes", "measure", "stop", "limits", "notes")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """How long a trial is measured, and whether all of an iteration is run."""

    warmup: int = 1
    """Iterations left out at the start of every batch size."""
    known_to: float = 0.01
    """Enough iterations for the median to be known to this share; 0 runs `iterations_max` of them."""
    iterations_max: int = 50
    """No more iterations than this."""
    seconds: float = 120.0
    """Measuring stops here even if the median is not known to `known_to`."""
    microbatches: int | None = None
    """Run this many micro-batches, and twice as many, in place of a whole iteration; the iteration is then an estimate."""

    def __post_init__(self) -> None:
        fields.positive("measure", iterations_max=self.iterations_max, seconds=self.seconds, microbatches=self.microbatches)
        if self.warmup < 0 or not 0 <= self.known_to < 1:
            raise BadInput(f"measure: warmup {self.warmup} and known_to {self.known_to:g}: 0 or more, and a share such as 0.01")


@dataclass(frozen=True, kw_only=True)
class Stop:
    """When a trial is certain to lose, and is not measured any longer."""

    factor: float | None = None
    """So many times behind the one ahead in what `by` names; by default nothing is stopped."""
    by: Literal["tflops", "samples_per_s"] = "tflops"
    """What others are measured against: the most TFLOPs per process, or the most samples per second of the whole job."""
    forecast: bool = False
    """Also leave out, before it starts, what the planner's whole interval places beyond the factor."""

    def __post_init__(self) -> None:
        if self.factor is not None and not self.factor > 1:
            raise BadInput(f"stop.factor: {self.factor:g} must be above 1: 1.5 stops what is half as slow again as the best")
        if self.forecast and self.factor is None:
            raise BadInput("stop.forecast needs stop.factor, for example 1.5")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one trial may take."""

    time_s: float = 600.0
    """A trial that takes longer is ended, with the outcome `timeout`."""
    memory_gib: float | None = None
    """Host memory of one rank; an allocation beyond it fails there and not on the machine."""
    cores: float | None = None
    """Processor time of one rank, in cores: 0.5 holds it to half of one, so that scaling means something where ranks share."""
    side_by_side: int = 1
    """Trials at a time, where the launcher has room; on one machine they would disturb each other."""
    retry_blocking: bool = False
    """A trial that crashes or hangs is run a second time with CUDA_LAUNCH_BLOCKING=1, and recorded as such."""

    def __post_init__(self) -> None:
        fields.positive("limits", time_s=self.time_s, memory_gib=self.memory_gib, cores=self.cores,
                        side_by_side=self.side_by_side)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One row that the sweep will end with."""

    key: str
    """The trial's run id; with values of [recipe] on an axis those too."""
    data: dict[str, Any]
    """The tables that the trial was built from."""
    knobs: dict[str, str]
    """Axis -> what this row has of it."""
    repeat: int
    trial: Trial | None
    """None where not even the fields fit together; `invalid` says why."""
    recipe: Recipe | None
    invalid: str = ""
    code: str = ""
    """Of the rule that is broken."""

    @property
    def group(self) -> str:
        """The same for all repeats."""
        return fields.canonical(self.knobs)

    @property
    def label(self) -> str:
        return " ".join(f"{axis}={text}" for axis, text in self.knobs.items()) or "trial"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    name: str
    tasks: tuple[Task, ...]
    left_out: dict[str, int]
    """Rule -> combinations that it took out."""
    measure: Measure = field(default_factory=Measure)
    stop: Stop = field(default_factory=Stop)
    limits: Limits = field(default_factory=Limits)
    order: Order = "interleaved"
    repeats: int = 1
    budget_s: float | None = None
    """Time for all trials together; no trial is begun after it."""
    notes: str = ""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A trial as it is run, which may be with a smaller batch than the one the row is about."""

    trial: Trial
    recipe: Recipe


def run_config(task: Task, measure: Measure, *, slow_s: float | None = None, seconds: float | None = None) -> RunConfig:
    """What the engine is started with for one trial: until its median is known, or with fewer micro-batches.

    `slow_s`: an iteration beyond it is certain to lose; `seconds`: what the sweep's budget leaves for measuring.
    """
    assert task.trial is not None and task.recipe is not None
    short = short_batch(task.trial, measure.microbatches, warmup=measure.warmup) if measure.microbatches else None
    steps = measure.iterations_max + measure.warmup
    if short is not None:
        steps += TIMED_SHORT + measure.warmup
    given = task.data.get("recipe", {})
    recipe = dataclasses.replace(
        task.recipe, steps=given.get("steps", steps), warmup_iterations=measure.warmup, known_to=measure.known_to,
        measure_s=min(measure.seconds, seconds) if seconds is not None else measure.seconds,
        slow_s=None if short is not None else slow_s)
    trial = task.trial if short is None else dataclasses.replace(task.trial, batch=short)
    return RunConfig(trial=trial, recipe=recipe)


def load(path: str | os.PathLike[str], settings: Iterable[str] = ()) -> Sweep:
    return build(trialfile.tables_of(path), settings, where=str(path), name=re.sub(r"[^A-Za-z0-9._+-]", "-", Path(path).stem))


def build(data: Mapping[str, Any], settings: Iterable[str] = (), *, where: str = "sweep", name: str = "sweep") -> Sweep:
    data = trialfile.copied(moved(plaindata.bounded(data, where), where=where))
    for setting in settings:
        fields.assign(data, moved_path(setting))
    own = {key: data.pop(key) for key in OWN if key in data}
    known = {*trialfile.TABLES, *presets.KINDS, "engine", *OWN}
    for key in data:
        if key not in known:
            raise BadInput(f"{where}: {key}: no such table or key; {fields.nearest(key, known)}")
    name = fields.convert(own.get("name", name), str, where="name")
    if not _NAME.fullmatch(name):
        raise BadInput(f"{where}: name {name!r}: letters, digits and . _ + - (it names a folder), 80 at most")
    repeats = fields.convert(own.get("repeats", 1), int, where="repeats")
    budget_s = fields.convert(own["budget_s"], float, where="budget_s") if "budget_s" in own else None
    fields.positive(where, repeats=repeats, budget_s=budget_s)
    order: Order = fields.convert(own.get("order", "interleaved"), Order, where="order")
    axes = [_Axis.read(key, values) for key, values in _table(own.get("axes", {}), "axes").items()]
    combinations = math.prod(len(axis.values) for axis in axes) * repeats
    if combinations > MOST_TRIALS:
        raise BadInput(f"{where}: {combinations:,} combinations: {MOST_TRIALS:,} at most; take values out of an axis")
    texts = fields.convert(own.get("rules", []), tuple[str, ...], where="rules")
    read = [expression.parse(text, names=_NAMES) for text in texts]
    left_out: dict[str, int] = {}
    rows = [task for combination in itertools.product(*(axis.values for axis in axes))
            for task in _tasks(data, axes, combination, read, repeats, left_out)]
    _refuse_what_never_works(rows, where)
    _refuse_twins(rows, where)
    _refuse_commands(rows, where)
    return Sweep(name=name, tasks=tuple(_ordered(rows, order, name)), left_out=left_out, order=order, repeats=repeats,
                 measure=fields.build(Measure, own.get("measure", {}), where="measure"), budget_s=budget_s,
                 stop=fields.build(Stop, own.get("stop", {}), where="stop"),
                 limits=fields.build(Limits, own.get("limits", {}), where="limits"),
                 notes=fields.convert(own.get("notes", ""), str, where="notes"))


@dataclass(frozen=True)
class _Axis:
    name: str
    path: tuple[str, ...]
    """Where its values go; empty for `case`, whose values are put over everything."""
    values: tuple[tuple[str, Any], ...]
    """(label, value)"""

    @classmethod
    def read(cls, name: str, values: object) -> _Axis:
        if not isinstance(values, list) or not values:
            raise BadInput(f"axes.{name}: expected a list of values, found {fields.shown(values)}")
        path = _path(name)
        hint = _hint(path)
        found = []
        for number, value in enumerate(values):
            label = ""
            if isinstance(value, Mapping) and path in ((), ("environment",), ("environment", "scheduler")):
                label = fields.convert(value.get("name", ""), str, where=f"axes.{name}[{number}].name")
                value = moved({k: v for k, v in value.items() if k != "name"}, where=f"axes.{name}[{number}]")
            elif not path:
                raise BadInput(f"axes.{name}[{number}]: expected a table to put over the others, found {fields.shown(value)}")
            if path == ("topology", "stage_layers"):
                value = value if value == stages.AUTO else stages.listed(value, where=f"axes.{name}[{number}]")
                label = value if isinstance(value, str) else stages.said(value)
            elif hint is not None:
                fields.convert(value, hint, where=f"axes.{name}[{number}]")
            found.append((label or _label(value), value))
        for label, count in Counter(label for label, _ in found).items():
            if count > 1:
                raise BadInput(f"axes.{name}: {label[:60]!r} stands there twice")
        return cls(name, path, tuple(found))


def _path(name: str) -> tuple[str, ...]:
    """A short name is a field of exactly one table."""
    if name == "case":
        return ()
    if "." in name:
        path = tuple(moved_path(name).split("."))
        if path[0] not in _CLASSES:
            raise BadInput(f"axes.{name}: no table {path[0]!r}; {fields.nearest(path[0], _CLASSES)}")
    elif name in _CLASSES or name == "engine":
        path = (name,)
    else:
        tables = [table for table in _CLASSES if name in _names_of(table)]
        if len(tables) != 1:
            which = f"is in {' and '.join(tables)}: write one of them before it with a dot" if tables else (
                f"no table has it; {fields.nearest(name, {n for table in _CLASSES for n in _names_of(table)} | {'case'})}")
            raise BadInput(f"axes.{name}: {which}")
        path = (tables[0], name)
    if len(path) > 1 and path[1] not in _names_of(path[0]):
        raise BadInput(f"axes.{name}: {path[0]} has no {path[1]!r}; {fields.nearest(path[1], _names_of(path[0]))}")
    return path


def _names_of(table: str) -> list[str]:
    return [f.name for f in dataclasses.fields(_CLASSES[table])]


def _hint(path: tuple[str, ...]) -> Any:
    """The type that a value on this path must have; None where a preset's name may stand."""
    if len(path) < 2:
        return None
    hint: Any = _CLASSES[path[0]]
    for depth, key in enumerate(path[1:], 1):
        # A table in a table, given or not (`model.router`); elsewhere names of one's own, as variables have.
        tables = [one for one in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(one)]
        if not tables:
            return str
        known = typing.get_type_hints(tables[0])
        if key not in known:
            raise BadInput(f"axes.{'.'.join(path)}: {'.'.join(path[:depth])} has no {key!r}; {fields.nearest(key, known)}")
        hint = known[key]
    return hint


def _label(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{k}={_label(v)}" for k, v in value.items()) or "plain"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tasks(fixed: Mapping[str, Any], axes: list[_Axis], combination: tuple[tuple[str, Any], ...],
           required: list[expression.Expression], repeats: int, left_out: dict[str, int]) -> Iterator[Task]:
    data = trialfile.copied(fixed)
    for axis, (_, value) in zip(axes, combination):
        _put(data, axis.path, value)
    if required:
        values = _values(data)
        for rule in required:
            missing = rule.names - values.keys()
            if missing:
                raise BadInput(f"rule {rule.text!r}: {', '.join(sorted(missing))} has no value; name it in a table or an axis")
            if not rule.holds({name: values[name] for name in rule.names}):
                left_out[rule.text] = left_out.get(rule.text, 0) + 1
                return
    knobs = {axis.name: label for axis, (label, _) in zip(axes, combination)}
    varied = {axis.name: value for axis, (_, value) in zip(axes, combination)
              if axis.path[:1] == ("recipe",) or not axis.path and "recipe" in value}
    for repeat in range(repeats):
        yield _task({**data, "repeat": repeat} if repeat else data, knobs, repeat, varied)


def _task(data: dict[str, Any], knobs: dict[str, str], repeat: int, varied: dict[str, Any]) -> Task:
    trial = recipe = None
    invalid = code = ""
    try:
        trial, recipe = trialfile.build(data)
        engine_for(trial).can_run(trial)
    except Infeasible as error:
        invalid, code = str(error), error.code
    except BadInput as error:
        invalid, code = str(error), "words"
    key = fields.digest(data) if trial is None else trial.run_id()
    key += f"-{fields.digest(varied, length=6)}" if varied else ""
    return Task(key=key, data=data, knobs=knobs, repeat=repeat, trial=trial, recipe=recipe,
                invalid=invalid, code=code)


def _put(data: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Tables are put over tables, key by key; a preset's name becomes its `base` where a key is put over it."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _put(data, (*path, key), inner)
        return
    table: dict[str, Any] = data
    for key in path[:-1]:
        there = table.get(key, {})
        table[key] = there = {"base": there} if isinstance(there, str) else there
        if not isinstance(there, dict):
            raise BadInput(f"{key}: expected a table, found {fields.shown(there)}: an axis puts {'.'.join(path)} into it")
        table = there
    table[path[-1]] = value


_NAMES = frozenset(name for table in ("topology", "batch", "model") for name in _names_of(table)) | {
    "nodes", "procs_per_node", "world", "microbatches"}  # fmt: skip


def _values(data: Mapping[str, Any]) -> dict[str, int]:
    """What rules may speak of, as whole numbers; also where the fields do not fit together, so before a trial is built."""
    found: dict[str, int] = {f.name: f.default for f in dataclasses.fields(Topology) if isinstance(f.default, int)}
    try:
        model: Any = trialfile.read_model(data.get("model", {}), presets.with_user(data))
        found |= {n: v for n in _names_of("model") if isinstance(v := getattr(model, n), int)}
        if "cluster" in data:
            cluster = trialfile.read_cluster(data["cluster"], presets.with_user(data))
            found |= {"nodes": cluster.nodes, "procs_per_node": cluster.procs_per_node}
    except BadInput:
        pass  # the row becomes `invalid` with this message
    for table in ("topology", "batch", "model"):
        values = data.get(table)
        if isinstance(values, Mapping):
            found |= {k: int(v) for k, v in values.items() if isinstance(v, int)}
    found = {name: int(value) for name, value in found.items()}
    found["world"] = math.prod(found[name] for name in columns.DEGREES)
    if "gbs" in found and found["dp"] * found["mbs"] > 0:
        found["microbatches"] = found["gbs"] // (found["dp"] * found["mbs"])
    return found


def _refuse_what_never_works(rows: list[Task], where: str) -> None:
    """An error that every row has is one of the file, not of a combination."""
    messages = {task.invalid for task in rows if task.trial is None}
    if rows and len(messages) == 1 and all(task.trial is None for task in rows):
        raise BadInput(f"{where}: {messages.pop()}")


def _refuse_commands(rows: list[Task], where: str) -> None:
    """A word that no trial has a value for is a mistake of the file: nothing of it is started."""
    from seatrial.engines.command import fill, template_values

    wrong = ""
    for task in rows:
        if task.trial is None or task.trial.command is None or task.recipe is None:
            continue
        try:
            fill(task.trial.command.argv, template_values(task.trial, task.recipe, Path(".")))
            return
        except BadInput as error:
            wrong = wrong or str(error)
    if wrong:
        raise BadInput(f"{where}: {wrong}")


def _refuse_twins(rows: list[Task], where: str) -> None:
    """Two combinations that come to the same trial would be one row, and nobody would know whose."""
    seen: dict[str, Task] = {}
    for task in rows:
        if task.key in seen:
            raise BadInput(f"{where}: {seen[task.key].label!r} and {task.label!r} are the same trial; take one of them out")
        seen[task.key] = task


def _ordered(rows: list[Task], order: Order, name: str) -> list[Task]:
    """Repeats lie apart (a machine drifts) unless the file's own order is wanted. `forecast` is settled by the controller."""
    if order == "file":
        return rows
    rows = sorted(rows, key=lambda task: task.repeat)
    if order == "shuffled":
        random.Random(name).shuffle(rows)
    return rows


def _table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{where}: expected a table, found {fields.shown(value)}")
    return value


# ---- files of trials for commands that want one of them, or the model and the machine alone


SHOWN = 6
"""Trials named in an error."""


def is_sweep(data: Mapping[str, Any]) -> bool:
    return any(key in data for key in OWN)


def tables(path: str | os.PathLike[str], wanted: str = "") -> tuple[dict[str, Any], str]:
    """The tables of one trial and its label; of a sweep the one that `wanted` names, else the first that can run."""
    data = trialfile.tables_of(path)
    if not is_sweep(data):
        if wanted:
            raise BadInput(f"{path}: is one trial, and has no {wanted!r} to choose")
        return data, ""
    task = _chosen(build(data, where=str(path), name="sweep"), wanted, str(path))
    return {key: value for key, value in task.data.items() if key != "repeat"}, task.label


def _chosen(sweep: Sweep, wanted: str, where: str) -> Task:
    tasks = [task for task in sweep.tasks if task.repeat == 0]
    words = wanted.split()
    found = [task for task in tasks if all(_has(task, word) for word in words)]
    if not words:
        found = [task for task in tasks if not task.invalid][:1] or tasks[:1]
    if len(found) != 1:
        listed = "; ".join(task.label for task in (found or tasks)[:SHOWN]) + (" …" if len(found or tasks) > SHOWN else "")
        how_many = f"{len(found)} trials are" if found else "no trial is"
        raise BadInput(f"{where}: {how_many} {wanted!r}: name one of {listed}")
    return found[0]


def _has(task: Task, word: str) -> bool:
    """`tp=4`, or a value alone."""
    axis, equals, value = word.partition("=")
    return task.knobs.get(axis) == value if equals else word in task.knobs.values()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a file says that the planner would otherwise be told by options."""

    model: str | dict[str, Any]
    cluster: str | None
    """None where the file is another engine's configuration: it does not say what it runs on."""
    knobs: dict[str, Any] = field(default_factory=dict)
    """gbs, and the fixed values of [topology]."""
    engine: str | None = None
    execution: dict[str, Any] = field(default_factory=dict)
    """Attention and overlap, where it names them."""
    rampup: tuple[Any, ...] | None = None
    rules: tuple[str, ...] = ()


def asked(path: Path) -> Asked:
    data = trialfile.tables_of(path)
    theirs = native.read(path) is not None
    for table in ("batch",) if theirs else ("model", "cluster", "batch"):
        if table not in data:
            raise BadInput(f"{path}: a plan needs a [{table}] table in it")
    topology, batch, axes = (_table(data.get(name, {}), f"{path}: {name}") for name in ("topology", "batch", "axes"))
    knobs = dict(topology)
    for name in axes:
        knobs.pop(name.removeprefix("topology."), None)
    sizes = axes.get("gbs") or axes.get("batch.gbs") or [batch.get("gbs")]
    if not isinstance(sizes, list):
        raise BadInput(f"{path}: axes.gbs: expected a list of values, found {fields.shown(sizes)}")
    if sizes[0] is not None:
        knobs["gbs"] = sizes
    start = batch.get("rampup_start")
    rampup = None if start is None else (start, batch.get("rampup_increment"), batch.get("rampup_samples"))
    rules = fields.convert(data.get("rules", []), tuple[str, ...], where="rules")
    return Asked(model=data.get("model", {}) if theirs else str(path), cluster=None if theirs else str(path), knobs=knobs,
                 engine=data.get("engine"), rampup=rampup, rules=rules,
                 execution={name: value for name, value in _table(data.get("execution", {}), f"{path}: execution").items()
                            if name in ("attention", "overlap")})
