"""The planner behind the page's form: model, cluster, batch and rules in, its ranking out.

    whatif.ask({"model": "bloom-176b", "cluster": "jz-a100", "nodes": "48", "gbs": "2048", "rule": "dp % 4 == 0"})

Models and clusters go by the names of presets only: a page may not choose which files are read.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seatrial import presets
from seatrial.columns import SEARCHED
from seatrial.errors import BadInput
from seatrial.fields import nearest
from seatrial.report.data import Made

if TYPE_CHECKING:
    from seatrial.plan.calibrate import Calibration

MOST_NODES = 2048
"""More layouts than a page should wait for."""
SHOWN = 8


def choices() -> dict[str, list[str]]:
    book = presets.shipped()
    return {"models": sorted(book["models"]), "clusters": sorted(book["clusters"])}


def fit_of(made: Made, cluster: str) -> Calibration | None:
    """What the rows on that cluster teach: those whose forecast stands on it, and which nothing speaks against."""
    from seatrial.plan import calibrate, rows

    machine = presets.cluster(cluster)
    measured = [made.records[row] for row, found in made.forecasts.items() if row in set(made.usable)
                and found.trial is not None and found.trial.cluster is not None and found.trial.cluster.name == machine.name]
    return calibrate.learn([rows.read_row(r.to_dict(), machine) for r in measured], machine) if measured else None


def ask(query: Mapping[str, str], fit: Calibration | None = None) -> dict[str, Any]:
    """The planner's document; BadInput says in one line what cannot be."""
    from seatrial.plan import ask as planner
    from seatrial.plan.request import integers, number

    known = choices()
    for name in ("model", "cluster"):
        if query.get(name) not in known[f"{name}s"]:
            raise BadInput(f"{name} {query.get(name, '')!r}: {nearest(query.get(name, ''), known[f'{name}s'])}")
    nodes = integers("nodes", query["nodes"])[0] if query.get("nodes") else None
    if nodes is not None and nodes > MOST_NODES:
        raise BadInput(f"nodes {nodes}: up to {MOST_NODES} here; seatrial plan takes more")
    rules = [text for part in query.get("rule", "").split(";") if (text := part.strip())]
    tokens = number("tokens", query["tokens"]) if query.get("tokens") else None
    asked = planner.question(model=query["model"], cluster=query["cluster"], nodes=nodes, rules=rules,
                             knobs={knob: query.get(knob) or None for knob in SEARCHED})
    return planner.ask(asked.request, rules=asked.rules, top=SHOWN, tokens=tokens, fit=fit).document
