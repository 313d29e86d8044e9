"""A trial from a TOML file and the command line, and back.

    model = { base = "bloom-181b", layers = 70 }
    topology = { tp = 4, pp = 12, mbs = 2, recompute = "full", precision = "bf16" }
    batch = { gbs = 2048 }
    cluster = { base = "jz-a100", nodes = 48 }
    training = { steps = 5 }

`base` takes a preset; [models.NAME], [clusters.NAME], [devices.NAME] and [links.NAME] in the same file add one's own.
"""
from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seatrial import fields, plaindata, presets
from seatrial.engines import engine_name
from seatrial.errors import BadInput, Remark
from seatrial.recipe import Recipe, moved, moved_path
from seatrial.spec import Batch, Cluster, Command, Environment, Execution, Model, Topology, Trial
from seatrial.stages import AUTO

TABLES = ("model", "topology", "batch", "cluster", "environment", "execution", "recipe", "command")
_WORDS = {*TABLES, *presets.KINDS, "engine", "repeat"}


def load(path: str | os.PathLike[str], settings: Iterable[str] = ()) -> tuple[Trial, Recipe]:
    return build(tables_of(path), settings, where=str(path))


def tables_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a TOML file, or those that another engine's configuration comes to (`native`); what of that is not
    understood is a Remark."""
    from seatrial import native

    found = native.read(Path(path))
    if found is None:
        return presets.read_toml(path)
    for line in found.said():
        warnings.warn(f"{path}: {line}", Remark, stacklevel=2)
    return found.tables


def build(data: Mapping[str, Any], settings: Iterable[str] = (), *, where: str = "trial") -> tuple[Trial, Recipe]:
    """From plain data as a TOML file holds it, with `a.b=value` settings put over it."""
    data = copied(moved(plaindata.bounded(data, where), where=where))
    for setting in settings:
        fields.assign(data, moved_path(setting))
    for key in data:
        if key not in _WORDS:
            raise BadInput(f"{where}: {key}: no such table or key; {fields.nearest(key, _WORDS)}")
    book = presets.with_user(data)
    for table in ("model", "batch"):
        if table not in data:
            raise BadInput(f"{where}: [{table}] must be given")
    layout = data.get("topology", {})
    balanced = isinstance(layout, Mapping) and layout.get("stage_layers") == AUTO
    engine = engine_name(data.get("engine", "seatrial"))
    if isinstance(layout, Mapping) and "sequence_parallel" not in layout and engine != "seatrial":
        from seatrial.engines.model import model_of

        # An engine whose tensor parallelism always cuts the sequence does so unasked.
        layout = {**layout, "sequence_parallel": layout.get("tp", 1) != 1 and model_of(engine).sequence_parallel}
    trial = Trial(
        model=read_model(data["model"], book),
        batch=fields.build(Batch, data["batch"], where="batch"),
        topology=fields.build(Topology, {**layout, "stage_layers": None} if balanced else layout, where="topology"),
        cluster=read_cluster(data["cluster"], book) if "cluster" in data else None,
        environment=fields.build(Environment, data.get("environment", {}), where="environment"),
        execution=fields.build(Execution, data.get("execution", {}), where="execution"),
        engine=engine,
        command=fields.build(Command, data["command"], where="command") if "command" in data else None,
        repeat=fields.convert(data.get("repeat", 0), int, where="repeat"),
    )
    if balanced:
        from seatrial.plan.stages import resolved  # numpy is loaded only where it is asked for

        trial = resolved(trial)
    recipe = fields.build(Recipe, data.get("recipe", {}), where="recipe")
    recipe.check(trial.execution)
    return trial, recipe


def copied(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: copied(v) if isinstance(v, Mapping) else v for k, v in data.items()}


def read_model(value: Any, book: presets.Book) -> Model:
    if isinstance(value, str):
        return presets.model(value, book=book)
    if isinstance(value, Mapping) and "base" in value:
        base = fields.convert(value["base"], str, where="model.base")
        return presets.model(base, {k: v for k, v in value.items() if k != "base"}, book=book)
    return fields.build(Model, value, where="model")


def read_cluster(value: Any, book: presets.Book) -> Cluster:
    if isinstance(value, str):
        return presets.cluster(value, book=book)
    if not isinstance(value, Mapping):
        raise BadInput(f"cluster: expected a name or a table, found {fields.shown(value)}")
    changes = {k: v for k, v in value.items() if k not in ("base", "nodes", "procs_per_node")}
    if "base" not in value and "device" not in value and isinstance(value.get("machine"), str):
        # What was probed is a cluster by itself.
        value = {**value, "base": value["machine"]}
    if "base" not in value:
        return presets.cluster_from(value, book)
    nodes, procs = (fields.convert(value.get(key), int | None, where=f"cluster.{key}") for key in ("nodes", "procs_per_node"))
    base = fields.convert(value["base"], str, where="cluster.base")
    return presets.cluster(base, changes, nodes=nodes, procs_per_node=procs, book=book)


def over(data: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The tables of a file with those of options put over them; None is what nobody said."""
    found = dict(data)
    for table, values in given.items():
        if chosen := {key: value for key, value in values.items() if value is not None}:
            there = data.get(table, {})
            if not isinstance(there, str | Mapping):
                raise BadInput(f"{table}: expected a table, found {there!r}")
            found[table] = {**({"base": there} if isinstance(there, str) else there), **chosen}
    # --set model.layers=6 on a model given by name changes that model.
    return found | {name: {"base": found[name]} for name in ("model", "cluster") if isinstance(found.get(name), str)}


def dumps(trial: Trial, recipe: Recipe | None = None) -> str:
    """The trial as TOML, defaults left out."""
    import tomli_w

    data = trial.to_dict()
    if recipe is not None and (values := fields.plain(recipe)):
        data["recipe"] = values
    return tomli_w.dumps(data)
