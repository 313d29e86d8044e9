"""What a person asks the planner, from words on the command line to a `Space`.

    request = Request.read(model="bloom-181b", cluster="jz-a100", nodes=48, fixed={"gbs": "2048", "tp": "4,8"}, settings=[])
    request.space, request.batch, request.precision

Each knob is a value, or several with commas; one that is not given is searched. `--set topology.tp=4` is the same as `--tp 4`.
"""
from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from seatrial import fields, rules, trialfile
from seatrial.columns import BY_FIELD, KNOBS, SEARCHED
from seatrial.engines import engine_name
from seatrial.engines.model import model_of
from seatrial.errors import BadInput, Infeasible
from seatrial.plan.odds import Headroom
from seatrial.plan.space import GROUPS, ROUTING, Space
from seatrial.spec import Batch, Cluster, Device, Model, Topology, read_modules
from seatrial.stages import AUTO, listed, said

ASKED = (*SEARCHED, "cp_kind", *GROUPS, "stage_layers", "ep", "etp", *ROUTING, "recompute_modules")
"""Knobs that can be given; those after SEARCHED are chosen for each layout where they are not."""
NUMBERS = tuple(name for name in ASKED if BY_FIELD[name].type is int)
WORDS: dict[str, tuple[str, ...]] = {name: BY_FIELD[name].choices for name in ASKED if BY_FIELD[name].choices}
SWITCH = {"on": (True,), "off": (False,), "both": (False, True), "auto": ()}
"""`auto`: both on GPUs, where the engine has it."""
_MOST_NODES = 1_000_000
_MOST_RAMP_STEPS = 10_000


@dataclass(frozen=True, kw_only=True)
class Request:
    space: Space
    batch: Batch
    """The largest batch asked for, with the ramp-up."""
    precision: str

    @property
    def model(self) -> Model:
        return self.space.models[0]

    @property
    def cluster(self) -> Cluster:
        return self.space.cluster

    @classmethod
    def read(cls, *, model: str | Mapping[str, Any] | Model | None, cluster: str | Mapping[str, Any] | Cluster,
             nodes: int | None = None, nodes_max: int | None = None, procs_per_node: int | None = None,
             fixed: Mapping[str, Any], sequence_parallel: str | bool = "auto", precision: str | None = None,
             engine: str = "megatron", attention: str | None = None, headroom: object = None,
             rampup: str | Sequence[int] | None = None, settings: Sequence[str] = ()) -> Request:  # fmt: skip
        """`fixed`: knob -> a value, several in a list, either as text; None where it was left out."""
        if attention is not None:
            settings = [f"execution.attention={attention}", *settings]
        data = _tables(model, cluster, nodes_max or nodes, procs_per_node, settings)
        knobs = _with_settings(fixed, data)
        precision = data.get("topology", {}).get("precision", precision)
        sequence_parallel = _switch(data.get("topology", {}).get("sequence_parallel", sequence_parallel))
        if knobs.get("gbs") is None:
            raise BadInput("--gbs must be given: the global batch is a decision about training, not about layout")
        batch = _batch(max(integers("gbs", knobs["gbs"])), rampup, data.get("batch", {}))
        trial, _ = trialfile.build({**data, "batch": {"gbs": batch.gbs}, "topology": {}}, where="plan")
        assert trial.cluster is not None
        engine = engine_name(data.get("engine", engine))
        for violation in rules.execution_fits(replace(trial, engine=engine)):
            if violation.level == "error":
                raise Infeasible(violation.message, code=violation.code)
        if precision is not None and precision not in BY_FIELD["precision"].choices:
            raise BadInput(f"precision {precision!r}: {fields.nearest(str(precision), BY_FIELD['precision'].choices)}")
        for name in knobs:
            if name not in ASKED:
                raise BadInput(f"{name}: the planner has no such knob; {fields.nearest(name, KNOBS)}")
        if auto := knobs.get("cp") == "auto":
            knobs = {**knobs, "cp": None}
            if not model_of(engine).context:
                raise BadInput(f"--cp auto: {model_of(engine).name} has no context parallelism")
        given: dict[str, Any] = {name: integers(name, value) for name in NUMBERS if (value := knobs.get(name)) is not None}
        given |= {name: words(name, value) for name in WORDS if (value := knobs.get(name)) is not None}
        given |= {"long": 0} if auto else {}
        given |= _stages(knobs.get("stage_layers"), trial.model, engine)
        given |= _modules(knobs.get("recompute_modules"), given.setdefault("recompute", None), trial.model, engine)
        space = Space(models=(trial.model,), cluster=trial.cluster, nodes=_nodes(nodes, nodes_max), engine=engine,
                      execution=trial.execution, documents=batch.documents, headroom=Headroom.read(headroom),
                      sequence_parallel=_cut(sequence_parallel, engine, trial.cluster.device), **given)
        return cls(space=space, batch=batch, precision=precision or usual_precision(trial.cluster.device))


def usual_precision(device: Device) -> str:
    """What one trains in on such a device: bf16 where it has it, else fp16, else fp32; CPUs in fp32."""
    if device.kind == "cpu":
        return "fp32"
    return next((p for p in ("bf16", "fp16") if p in device.peak_tflops), "fp32")


def _several(value: Any) -> list[Any]:
    """One, several, or several in a text with commas."""
    if isinstance(value, str):
        return value.split(",")
    return list(value) if isinstance(value, Sequence) else [value]


def integers(name: str, value: Any) -> tuple[int, ...]:
    try:
        values = tuple(dict.fromkeys(int(part) if isinstance(part, str) else operator.index(part) for part in _several(value)))
    except (TypeError, ValueError):
        values = ()
    if not values:
        raise BadInput(f"--{name} {value!r}: expected a whole number, or several with commas") from None
    least = 0 if name in BY_FIELD and BY_FIELD[name].default == 0 else 1
    if min(values) < least or max(values) > 10**9:
        raise BadInput(f"--{name} {str(value).strip()}: values go from {least} to a thousand million")
    return values


def words(name: str, value: Any) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(str(part).strip() for part in _several(value)))
    for word in values:
        if word not in WORDS[name]:
            raise BadInput(f"--{name} {word!r}: {fields.nearest(word, WORDS[name])}")
    return values


def _stages(value: Any, model: Model, engine: str) -> dict[str, Any]:
    """The layers of each stage that every layout is to have; by default, and with auto, they are searched."""
    if value is None or value == AUTO:
        return {}
    split = listed(value, where="topology.stage_layers")
    if sum(split) != model.layers:
        raise BadInput(f"topology.stage_layers {said(split)} adds up to {sum(split)}, the model has {model.layers} layers")
    if model_of(engine).uneven != "any":
        raise Infeasible(f"topology.stage_layers {said(split)}: {model_of(engine).name} divides layers by itself",
                         code="stages-own")
    return {"stage_layers": split}


def _modules(value: Any, modes: tuple[str, ...] | None, model: Model, engine: str) -> dict[str, Any]:
    """Lists of modules; with them recompute is selective."""
    if value is None:
        return {}
    lists = tuple(dict.fromkeys(read_modules(str(part)) for part in _several(value)))
    for modules in lists:
        for mode in modes or ("selective",):
            layout = Topology(recompute=mode, recompute_modules=modules)  # type: ignore[arg-type]
            for violation in rules.modules_fit(model, layout, model_of(engine)):
                raise Infeasible(violation.message, code=violation.code)
    return {"recompute_modules": lists, "recompute": ("selective",)}


def _switch(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value not in SWITCH:
        raise BadInput(f"--sequence-parallel {value!r}: use on, off, both or auto")
    return str(value)


def _cut(switch: str, engine: str, device: Device) -> tuple[bool, ...]:
    return SWITCH[switch] or ((False, True) if device.kind == "gpu" and model_of(engine).cuts_sequence else (False,))


def number(name: str, text: str) -> float:
    """A count as people write it: 300e9, 300B, 1.5T, 341_000_000."""
    scale = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1:].upper(), 1.0)
    try:
        value = float(text[:-1] if scale > 1 else text) * scale
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise BadInput(f"--{name} {text!r}: expected a number above 0, as 300e9 or 300B")
    return value


def share(name: str, text: str) -> float:
    """A share as people write it: 3% or 0.03."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < 1:
        raise BadInput(f"--{name} {text!r}: expected a share from 0 to 1, as 3% or 0.03")
    return value


def _nodes(nodes: int | None, nodes_max: int | None) -> tuple[int, ...] | None:
    for name, value in (("nodes", nodes), ("nodes-max", nodes_max)):
        if value is not None and not 0 < value <= _MOST_NODES:
            raise BadInput(f"--{name} {value}: values go from 1 to {_MOST_NODES}")
    if nodes_max is None:
        return None
    if nodes is not None and nodes > nodes_max:
        raise BadInput(f"--nodes {nodes} is above --nodes-max {nodes_max}")
    return tuple(range(nodes or 1, nodes_max + 1))


def _tables(model: str | Mapping[str, Any] | Model | None, cluster: str | Mapping[str, Any] | Cluster, nodes: int | None,
            procs_per_node: int | None, settings: Iterable[str]) -> dict[str, Any]:
    data: dict[str, Any] = {"cluster": {"base": cluster} if isinstance(cluster, str) else fields.plain(cluster)}
    data["model"] = {} if model is None else {"base": model} if isinstance(model, str) else fields.plain(model)
    for setting in settings:
        fields.assign(data, setting)
    for key in ("model", "cluster", "topology", "batch"):
        if isinstance(data.get(key), str) and key in ("model", "cluster"):
            data[key] = {"base": data[key]}
        if key in data and not isinstance(data[key], Mapping):
            raise BadInput(f"{key}: expected a table, found {data[key]!r}")
    if nodes is not None:
        data["cluster"]["nodes"] = nodes
    if procs_per_node is not None:
        data["cluster"]["procs_per_node"] = procs_per_node
    return data


def _with_settings(fixed: Mapping[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """The knobs with what `--set topology.x` and `--set batch.gbs` say put over them."""
    knobs = dict(fixed)
    topology = data.get("topology", {})
    known = [name for name in KNOBS if BY_FIELD[name].table == "topology"]
    for key, value in topology.items():
        if key not in known:
            raise BadInput(f"topology.{key}: the planner has no such knob; {fields.nearest(key, known)}")
        if key in ASKED:
            knobs[key] = value
    batch = data.get("batch", {})
    if "gbs" in batch:
        knobs["gbs"] = batch["gbs"]
    return knobs


def _batch(gbs: int, rampup: str | Sequence[int] | None, table: Mapping[str, Any]) -> Batch:
    values: dict[str, Any] = {**table, "gbs": gbs}
    if rampup is not None:
        given = rampup.replace(" ", ",").split(",") if isinstance(rampup, str) else list(rampup)
        if len(given) != 3:
            raise BadInput(f"--rampup {rampup!r}: expected start, increment and samples, as 192,16,9765625")
        start, increment, samples = (integers("rampup", part)[0] for part in given)
        values |= {"rampup_start": start, "rampup_increment": increment, "rampup_samples": samples}
    batch = fields.build(Batch, values, where="batch")
    if batch.rampup_start is not None and (batch.gbs - batch.rampup_start) // (batch.rampup_increment or 1) > _MOST_RAMP_STEPS:
        raise BadInput(f"a ramp-up from {batch.rampup_start} to {batch.gbs} in steps of {batch.rampup_increment}: at most "
                       f"{_MOST_RAMP_STEPS} steps can be planned for")
    return batch
