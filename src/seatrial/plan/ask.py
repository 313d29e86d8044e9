"""The planner's door: what is asked, in plain values, and the answer as one document.

    asked = question(model="bloom-181b", cluster="jz-a100", knobs={"gbs": 2048, "zero": 1}, nodes=48)
    answered = ask(asked.request, rules=["dp % 4 == 0"], top=5)
    answered.document["candidates"][0]["sec_per_it"], answered.found.trial(0)

Behind `seatrial plan`, `tune`, the page's what-if and `seatrial.api`.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

from seatrial import expression, fields, presets, trialfile
from seatrial.columns import DEGREES
from seatrial.engines.model import model_of
from seatrial.errors import BadInput
from seatrial.plan import probed
from seatrial.plan.answer import Document, Measured, answer
from seatrial.plan.calibrate import Calibration
from seatrial.plan.nearest import ways
from seatrial.plan.request import ASKED, Request, usual_precision
from seatrial.plan.rows import DEFAULT_NAME
from seatrial.plan.search import RULE_NAMES, By, Found, search
from seatrial.plan.shape import base_settings, search_shapes
from seatrial.spec import Cluster, Model, Trial

BY: tuple[str, ...] = get_args(By)


class Question(NamedTuple):
    request: Request
    rules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Answer:
    request: Request
    found: Found
    document: Document


def question(*, file: Path | None = None, model: str | Mapping[str, Any] | Model | None = None,
             cluster: str | Mapping[str, Any] | Cluster | None = None, machine: str | Path | None = None,
             knobs: Mapping[str, Any], nodes: int | None = None, nodes_max: int | None = None,
             procs_per_node: int | None = None, sequence_parallel: str | bool = "auto", precision: str | None = None,
             engine: str | None = None, attention: str | None = None, headroom: object = None,
             rampup: str | Sequence[int] | None = None, rules: Sequence[str] = (), settings: Sequence[str] = (),
             shape_searched: bool = False) -> Question:
    """Words of options, or values of a program; what a trial's or a sweep's file fixes is fixed where nothing else is said."""
    knobs, settings = {**knobs}, list(settings)
    if file is not None:
        from seatrial.sweep import file as sweepfile

        asked = sweepfile.asked(file)
        knobs = {name: asked.knobs.get(name) if (value := knobs.get(name)) is None else value for name in dict.fromkeys(
            (*knobs, *(name for name in ASKED if name in asked.knobs)))}  # fmt: skip
        model, cluster, rampup = model or asked.model, cluster or asked.cluster, rampup or asked.rampup
        if asked.cluster is None and nodes is None and isinstance(cluster, str) and "dp" in asked.knobs:
            procs = procs_per_node or presets.cluster(cluster).procs_per_node
            nodes = max(1, math.prod(asked.knobs.get(name, 1) for name in DEGREES) // procs)
        engine, rules = engine or asked.engine, [*asked.rules, *rules]
        settings = [*(f"execution.{name}={value}" for name, value in asked.execution.items()), *settings]
        precision = precision or asked.knobs.get("precision")
        sequence_parallel = asked.knobs.get("sequence_parallel", sequence_parallel)
    if model is None and not shape_searched:
        raise BadInput("--model must be given (or --size, to look for a shape; or a file with a [model] table)")
    if machine is not None:
        cluster, settings = with_machine(machine, cluster, settings)
    if cluster is None:
        raise BadInput("--cluster or --machine must be given, or a file with a [cluster] table")
    if shape_searched and model is None:
        settings = [*base_settings(None), *settings]
    request = Request.read(model=model, cluster=cluster, nodes=nodes, nodes_max=nodes_max, procs_per_node=procs_per_node,
                           fixed=knobs, sequence_parallel=sequence_parallel, precision=precision,
                           engine=engine or DEFAULT_NAME, attention=attention, headroom=headroom, rampup=rampup,
                           settings=settings)
    return Question(request, tuple(rules))


def ask(request: Request, *, rules: Sequence[str] = (), by: str = "time", top: int = 10, tokens: float | None = None,
        price: float | None = None, size: float | None = None, size_tolerance: float = 0.03,
        fit: Calibration | None = None) -> Answer:
    """Search, rank, price; where nothing works, the reason and the nearest that does.

    `size`: parameters, to search layers, hidden and heads too. `fit`: what was learned from measured rows.
    """
    if by not in BY:
        raise BadInput(f"--by {by!r}: {fields.nearest(by, BY)}")
    if price is not None and not math.isfinite(price):
        raise BadInput(f"--price {price}: expected a number")
    cluster = request.cluster
    if by == "energy" and cluster.device.power_w is None:
        raise BadInput(f"--by energy: the power of {cluster.device.name} is not known; its device needs power_w")
    parsed = rules_of(rules)
    ramp = request.batch if request.batch.rampup_start is not None else None
    ranked: By = by  # type: ignore[assignment]
    if size is not None:
        found = search_shapes(request, size, size_tolerance, rules=parsed, ramp=ramp, by=ranked, fit=fit)
    else:
        found = search(request.space, rules=parsed, ramp=ramp, precision=request.precision, by=ranked, fit=fit)
        if not len(found) and request.space.cp is None and request.space.facts.context:
            # Nothing runs that has its sequences whole.
            found = search(request.space.freed("cp"), rules=parsed, ramp=ramp, precision=request.precision, by=ranked, fit=fit)
    out_of_it = [] if len(found) or size is not None else list(
        ways(request.space, rules=parsed, ramp=ramp, precision=request.precision, fit=fit))
    document = answer(found, request, top=top, by=ranked, tokens=tokens, price=price, fit=fit, ways=out_of_it,
                      known=Measured.of(fit.used if fit is not None else ()))
    document |= rests_on(cluster, precision=request.precision, processes=cluster.world)
    return Answer(request=request, found=found, document=document)


def usual_kind(trial: Trial) -> str:
    """Of context parallelism, where nobody says: the engine's own."""
    return next(iter(model_of(trial.engine).context), trial.topology.cp_kind)


def rules_of(texts: Sequence[str]) -> list[expression.Expression]:
    return [expression.parse(text, RULE_NAMES) for text in texts]


def rests_on(cluster: Cluster, *, precision: str, processes: int) -> Document:
    """`machine`: what of the forecast was measured by a probe, and what was not; nothing where there was none."""
    found = probed.basis(cluster, precision=precision, processes=processes)
    return {} if found is None else {"machine": found}


def with_machine(machine: str | Path, cluster: Any, settings: Sequence[str]) -> tuple[Any, list[str]]:
    """The cluster and the settings that a machine file makes of those given."""
    machine = Path(machine)
    if machine.suffix != ".json":
        shipped, asked = sorted(presets.machine_path("any").parent.glob("*.json")), str(machine)
        if asked not in [path.stem for path in shipped]:
            raise BadInput(f"--machine {asked}: expected the .json file that `seatrial probe` writes, or the name of one that "
                           f"comes with seatrial: {', '.join(path.stem for path in shipped)}")
        machine = presets.machine_path(asked)
    return (str(machine), list(settings)) if cluster is None else (cluster, [f"cluster.machine={machine}", *settings])


def one_trial(data: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]], settings: Sequence[str] = (), *,
              engine: str | None = None, where: str = "trial") -> Trial:
    """The trial of a file's tables with those `given` over them. DP is what the other degrees leave of the cluster and the
    precision what one trains in there, where nobody says otherwise."""
    for name in ("topology", "batch"):
        if not isinstance(data.get(name, {}), Mapping):
            raise BadInput(f"{where}: {name}: expected a table, found {data[name]!r}")
    cluster = {**given.get("cluster", {})}
    # A configuration that says how many processes it starts, and not on what, sets the nodes.
    counted = "cluster" not in data and "dp" in data.get("topology", {}) and cluster.get("nodes") is None
    if cluster.get("base") is not None:
        data = {key: value for key, value in data.items() if key != "cluster"}
    elif "cluster" not in data:
        cluster = {}
    if given.get("model", {}).get("base") is not None:
        data = {key: value for key, value in data.items() if key != "model"}
    tables = trialfile.over(data, {**given, "cluster": cluster})
    tables["engine"] = engine or tables.get("engine", DEFAULT_NAME)
    for name, option in (("model", "--model"), ("cluster", "--cluster"), ("batch", "--gbs")):
        if name not in tables and not any(setting.startswith(f"{name}.") for setting in settings):
            raise BadInput(f"{option} must be given, or a TOML file with a [{name}] table")
    own = tables.get("topology", {})
    stated = {*own, *(setting.split("=")[0].removeprefix("topology.").strip() for setting in settings)}
    # The degrees alone: what else there is may only go with the DP that the cluster gives.
    early = [setting for setting in settings if not setting.startswith("topology.") or setting[9:].split("=")[0] in DEGREES]
    degrees = {name: own[name] for name in DEGREES if name in own}
    trial, _ = trialfile.build({**tables, "topology": degrees}, early, where=where)
    if trial.cluster is None:
        raise BadInput("--cluster must be given, or a [cluster] table")
    each = trial.cluster.procs_per_node
    if counted and "cluster.nodes" not in stated and (trial.world % each == 0 or trial.world < each):
        part = {"procs_per_node": trial.world} if trial.world < each else {}
        tables["cluster"] = {**tables["cluster"], "nodes": max(1, trial.world // each), **part}
    others = trial.topology.tp * trial.topology.pp * trial.topology.cp
    usual = {"dp": max(1, trial.cluster.world // others),
             "precision": usual_precision(trial.cluster.device), "cp_kind": usual_kind(trial)}
    tables["topology"] = {**{name: value for name, value in usual.items() if name not in stated}, **own}
    return trialfile.build(tables, settings, where=where)[0]
