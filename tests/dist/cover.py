"""Which of many layouts are trained every time: as few ranks as show every two settings together that any of them has together,
and each kind (a label's first word) once.

    often = covering(trials)        labels; --run-slow trains the others too
"""
from __future__ import annotations

from dataclasses import fields
from itertools import combinations

from seatrial.spec import Topology, Trial


def settings(trial: Trial) -> list[str]:
    """What is not as usual: knobs of the layout (a degree whatever it is), the batch's, the model's family."""
    knobs = [f"{f.name} {value}" if isinstance(value, str) or f.name == "zero" else f.name for f in fields(Topology)
             if (value := getattr(trial.topology, f.name)) != f.default]
    batch = [name for name in ("documents", "rampup_start") if getattr(trial.batch, name) is not None]
    return sorted([trial.model.family, *knobs, *batch])


def covering(trials: dict[str, Trial]) -> set[str]:
    pairs = {label: {(label.split()[0],), *combinations(settings(trial), 2)} for label, trial in trials.items()}
    missing, chosen = set().union(*pairs.values()), set[str]()
    while missing:
        best = max(pairs, key=lambda label: len(pairs[label] & missing) / trials[label].topology.world)
        chosen.add(best)
        missing -= pairs[best]
    return chosen
