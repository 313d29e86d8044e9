"""Files of trials for commands that want one of them, or the model and the machine alone.

    data, label = one.tables("full.toml", "dp=8 tp=4")          the tables of one trial; a trial's own file as it stands
    given = one.asked("full.toml")                              what `plan` may take for granted

Of a sweep, `plan` holds fast what the file fixes and searches what stands on an axis, but for batch sizes: those are a
decision about training.
"""
from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial import fields, presets
from seatrial.errors import BadInput
from seatrial.sweep import file as sweeps

SHOWN = 6
"""Trials named in an error."""


def is_sweep(data: Mapping[str, Any]) -> bool:
    return any(key in data for key in sweeps.OWN)


def tables(path: str | os.PathLike[str], wanted: str = "") -> tuple[dict[str, Any], str]:
    """The tables of one trial and its label; of a sweep the one that `wanted` names, else the first that can run."""
    data = presets.read_toml(path)
    if not is_sweep(data):
        if wanted:
            raise BadInput(f"{path}: is one trial, and has no {wanted!r} to choose")
        return data, ""
    task = _chosen(sweeps.build(data, where=str(path), name="sweep"), wanted, str(path))
    return {key: value for key, value in task.data.items() if key != "repeat"}, task.label


def _chosen(sweep: sweeps.Sweep, wanted: str, where: str) -> sweeps.Task:
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


def _has(task: sweeps.Task, word: str) -> bool:
    """`tp=4`, or a value alone."""
    axis, equals, value = word.partition("=")
    return task.knobs.get(axis) == value if equals else word in task.knobs.values()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a file says that the planner would otherwise be told by options."""

    model: str
    cluster: str
    knobs: dict[str, Any] = field(default_factory=dict)
    """gbs, and the fixed values of [topology]."""
    engine: str | None = None
    rampup: tuple[Any, ...] | None = None
    rules: tuple[str, ...] = ()


def asked(path: Path) -> Asked:
    data = presets.read_toml(path)
    for table in ("model", "cluster", "batch"):
        if table not in data:
            raise BadInput(f"{path}: a plan needs a [{table}] table in it")
    topology, batch, axes = (_table(data, name, path) for name in ("topology", "batch", "axes"))
    knobs = dict(topology)
    for name in axes:
        knobs.pop(name.removeprefix("topology."), None)
    sizes = axes.get("gbs") or axes.get("batch.gbs") or [batch.get("gbs")]
    if sizes[0] is not None:
        knobs["gbs"] = list(sizes)
    start = batch.get("rampup_start")
    rampup = None if start is None else (start, batch.get("rampup_increment"), batch.get("rampup_samples"))
    rules = fields.convert(data.get("rules", []), tuple[str, ...], where="rules")
    return Asked(model=str(path), cluster=str(path), knobs=knobs, engine=data.get("engine"), rampup=rampup, rules=rules)


def _table(data: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, Mapping):
        raise BadInput(f"{path}: {name}: expected a table, found {table!r}")
    return table
