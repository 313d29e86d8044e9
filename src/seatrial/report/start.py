"""What the page's form asks about before anybody has changed it: the model, cluster, engine and batch of the logbook itself.

    start(made)         {"model": "tiny", "cluster_text": "name = \"ours\"\n…", "nodes": "4", "gbs": "512", …}

Of the question that the page answers first, by its best row. A preset is named where the row's is exactly that; else it stands
there as the text that the form takes for one's own. What no row says is as the form has it.
"""
from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from seatrial import fields, presets
from seatrial.engines.model import names as engine_names
from seatrial.errors import BadInput
from seatrial.presets.foreign import model_values
from seatrial.record import Record
from seatrial.report.data import Made
from seatrial.report.forecasts import ran_on
from seatrial.spec import Cluster, Model

USUAL = {"model": "bloom-176b", "cluster": "jz-a100", "engine": "megatron-deepspeed", "nodes": "48", "gbs": "2048"}
"""Where a logbook has nothing to begin with."""


def start(made: Made) -> dict[str, str]:
    row = next((q.ranked[0].rows[0] for q in made.questions if q.ranked), None)
    row = 0 if row is None and made.records else row
    if row is None:
        return dict(USUAL)
    record, found = made.records[row], made.forecasts.get(row)
    model, cluster = _model(record), _cluster(found.trial.cluster if found and found.trial else _here(record))
    if not model and not cluster:
        return dict(USUAL)
    return {
        **(model or {"model": USUAL["model"]}), **(cluster or {"cluster": USUAL["cluster"]}),
        "engine": record.engine if record.engine in engine_names() else found.engine if found else USUAL["engine"],
        "nodes": str(record.nodes or "") if cluster else "", "gbs": str(record.gbs or USUAL["gbs"]),
    }  # fmt: skip


def _model(record: Record) -> dict[str, str]:
    try:
        values = model_values(record.to_dict())
        built = fields.build(Model, values, where="model")
        if built.name in presets.shipped()["models"] and presets.model(built.name) == built:
            return {"model": built.name}
    except BadInput:
        return {}
    return {"model_text": text(values)}


def _cluster(cluster: Cluster | None) -> dict[str, str]:
    if cluster is None:
        return {}
    if cluster.name in presets.shipped()["clusters"] and presets.cluster(cluster.name).with_nodes(1) == cluster.with_nodes(1):
        return {"cluster": cluster.name}
    # A machine file is of this machine, and the form takes none.
    return {"cluster_text": text({name: value for name, value in fields.plain(cluster).items() if name != "machine"})}


def _here(record: Record) -> Cluster | None:
    """This machine, where the row ran on its CPU."""
    here = record.host.get("name") == socket.gethostname() and ran_on(record) == "cpu"
    return presets.cluster("local", procs_per_node=record.procs_per_node) if here else None


def text(values: Mapping[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(values).strip()
