"""The planner's door: what a person or a program asks, in plain values, and the answer as one document.

    trial = one_trial({}, {"model": {"base": "bloom-181b"}, "cluster": {"base": "jz-a100"}, "batch": {"gbs": 2048}}, [])
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seatrial import trialfile
from seatrial.errors import BadInput
from seatrial.plan.request import usual_precision
from seatrial.spec import Trial


def one_trial(data: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]], settings: Sequence[str] = (), *,
              engine: str | None = None, where: str = "trial") -> Trial:
    """The trial of a file's tables with those `given` over them. DP is what the other two degrees leave of the cluster and the
    precision what one trains in there, where nobody says otherwise."""
    for name in ("topology", "batch"):
        if not isinstance(data.get(name, {}), Mapping):
            raise BadInput(f"{where}: {name}: expected a table, found {data[name]!r}")
    cluster = {**given.get("cluster", {})}
    if cluster.get("base") is not None:
        data = {key: value for key, value in data.items() if key != "cluster"}
    elif "cluster" not in data:
        cluster = {}
    if given.get("model", {}).get("base") is not None:
        data = {key: value for key, value in data.items() if key != "model"}
    tables = trialfile.over(data, {**given, "cluster": cluster})
    tables["engine"] = engine or tables.get("engine", "megatron")
    for name, option in (("model", "--model"), ("cluster", "--cluster"), ("batch", "--gbs")):
        if name not in tables and not any(setting.startswith(f"{name}.") for setting in settings):
            raise BadInput(f"{option} must be given, or a TOML file with a [{name}] table")
    trial, _ = trialfile.build(tables, settings, where=where)
    if trial.cluster is None:
        raise BadInput("--cluster must be given, or a [cluster] table")
    own = tables.get("topology", {})
    said = {*own, *(setting.split("=")[0].removeprefix("topology.").strip() for setting in settings)}
    usual = {"dp": max(1, trial.cluster.world // (trial.topology.tp * trial.topology.pp)),
             "precision": usual_precision(trial.cluster.device)}
    tables["topology"] = {**{name: value for name, value in usual.items() if name not in said}, **own}
    return trialfile.build(tables, settings, where=where)[0]
