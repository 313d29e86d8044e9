"""The planner behind the page's form: one's own model and cluster, every knob and rules in, its ranking out.

    what_if({"model": "bloom-176b", "cluster": "jz-a100", "nodes": "48", "gbs": "2048", "tp": "4,8"})
    what_if({"model_text": "base = \"llama3.1-8b\"\nlayers = 40", "cluster_text": "base = \"jz-a100\"", "gbs": "512"})

A model is a preset, the text of a TOML table, or that of a Hugging Face config.json; a cluster a preset or a TOML table. No
word of a query is ever taken for a file of this machine.
"""
from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seatrial import fields, presets
from seatrial.columns import BY_FIELD, SEARCHED
from seatrial.engines.model import DEFAULT
from seatrial.engines.model import names as engine_names
from seatrial.errors import BadInput
from seatrial.fields import nearest
from seatrial.report.data import Made
from seatrial.spec import Cluster, Model

if TYPE_CHECKING:
    from seatrial.plan.calibrate import Calibration

MOST_NODES = 2048
"""More layouts than a page should wait for."""
SHOWN = 8
SWITCHES = {"sequence_parallel": ["auto", "on", "off", "both"]}


def choices() -> dict[str, Any]:
    """What the form offers: presets by name, and for each knob the words it can be."""
    book = presets.shipped()
    words = {name: list(BY_FIELD[name].choices) for name in (*SEARCHED, "precision", "attention") if name in BY_FIELD}
    return {"models": sorted(book["models"]), "clusters": sorted(book["clusters"]), "engines": list(engine_names()),
            "words": {name: some for name, some in words.items() if some} | SWITCHES}


def fit_of(made: Made, cluster: str) -> Calibration | None:
    """What the rows on that cluster teach: those whose forecast stands on it, and which nothing speaks against."""
    from seatrial.plan import calibrate, rows

    machine = presets.cluster(cluster)
    measured = [made.records[row] for row, found in made.forecasts.items() if row in set(made.usable) and not found.elsewhere
                and found.trial is not None and found.trial.cluster is not None and found.trial.cluster.name == machine.name]
    return calibrate.learn([rows.read_row(r.to_dict(), machine) for r in measured], machine) if measured else None


def what_if(query: Mapping[str, str], fit: Calibration | None = None) -> dict[str, Any]:
    """The planner's document; BadInput says in one line what cannot be."""
    from seatrial.plan import ask as planner
    from seatrial.plan.request import ASKED, integers, number

    known = choices()
    model: str | Model = own_model(query["model_text"]) if query.get("model_text") else query.get("model", "")
    cluster: str | Cluster = own_cluster(query["cluster_text"]) if query.get("cluster_text") else query.get("cluster", "")
    # Of presets alone: a path in a query would be a file of this machine.
    for name, said in (("model", model), ("cluster", cluster), ("engine", query.get("engine", DEFAULT))):
        if isinstance(said, str) and said not in known[f"{name}s"]:
            raise BadInput(f"{name} {said!r}: {nearest(said, known[f'{name}s'])}")
    counts = {name: integers(name, query[name])[0] if query.get(name) else None for name in ("nodes", "procs_per_node", "seq")}
    most = counts["nodes"] or (cluster.nodes if isinstance(cluster, Cluster) else 0)
    if most > MOST_NODES:
        raise BadInput(f"nodes {most}: up to {MOST_NODES} here; seatrial plan takes more")
    rules = [text for part in query.get("rule", "").split(";") if (text := part.strip())]
    tokens = number("tokens", query["tokens"]) if query.get("tokens") else None
    asked = planner.question(model=model, cluster=cluster, nodes=counts["nodes"], procs_per_node=counts["procs_per_node"],
                             rules=rules, engine=query.get("engine"), attention=query.get("attention") or None,
                             precision=query.get("precision") or None, headroom=query.get("headroom"),
                             settings=[f"model.seq={counts['seq']}"] if counts["seq"] else [],
                             sequence_parallel=query.get("sequence_parallel") or "auto",
                             knobs={knob: query.get(knob) or None for knob in ASKED})
    return planner.ask(asked.request, rules=asked.rules, top=SHOWN, tokens=tokens, fit=fit).document


def own_model(text: str) -> Model:
    """From a TOML table, with or without its [model] line, or from a config.json."""
    if text.lstrip().startswith("{"):
        from seatrial.huggingface import hfconfig

        try:
            config = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"your model: not JSON ({error})") from None
        return hfconfig.model_of(config, where="your model")
    values = _table(text, "model")
    base = values.pop("base", None)
    if base is None:
        return fields.build(Model, {"name": "yours", **values}, where="your model")
    return presets.model(_preset("models", base), values)


def own_cluster(text: str) -> Cluster:
    """From a TOML table, with or without its [cluster] line; its device and links by name, or as tables of their own."""
    values = _table(text, "cluster")
    if "machine" in values:
        raise BadInput("your cluster: a machine file is read on the command line alone: seatrial plan --machine")
    base = values.pop("base", None)
    if base is None:
        return presets.cluster_from({"name": "yours", **values}, presets.shipped())
    counts = {key: fields.convert(values.pop(key, None), int | None, where=f"your cluster: {key}")
              for key in ("nodes", "procs_per_node")}
    return presets.cluster(_preset("clusters", base), values, **counts)


def _table(text: str, name: str) -> dict[str, Any]:
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"your {name}: not TOML ({error}); a line is layers = 40, or base = \"a preset\"") from None
    table = found.get(name, found)
    if not isinstance(table, dict) or not table:
        raise BadInput(f"your {name}: a [{name}] table is needed")
    return dict(table)


def _preset(kind: str, name: object) -> str:
    known = presets.shipped()[kind]
    if not isinstance(name, str) or name not in known:
        raise BadInput(f"base {name!r}: {nearest(str(name), known)}")
    return name
