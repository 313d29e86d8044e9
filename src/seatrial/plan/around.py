"""The neighbourhood of a layout that somebody already runs: same model, batch, precision and processes, every other layout.

    asked = question_around(trial, knobs={})            what is given is fixed, all else of the layout is searched
    place(trial, found, source="train.sh")              its own forecast, its rank, and single changes that would help
"""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seatrial import columns, fields
from seatrial.plan.answer import Document
from seatrial.plan.ask import Question, question
from seatrial.plan.calibrate import Calibration
from seatrial.plan.explain import better, explain
from seatrial.plan.odds import Headroom, expected, word
from seatrial.plan.search import Found
from seatrial.spec import Execution, Trial

CHANGES = 3
"""Single changes that are named."""


def question_around(trial: Trial, *, knobs: Mapping[str, Any], rules: Sequence[str] = (), headroom: object = None,
                    settings: Sequence[str] = (), sequence_parallel: str | bool = "auto") -> Question:
    """`knobs`: what the user fixes beside."""
    given = {name: value for name, value in knobs.items() if value is not None}
    spread = {"cp": "auto"} if trial.topology.cp > 1 and "cp" not in given else {}
    stated = fields.plain(trial.execution)
    executed = [f"execution.{name}={json.dumps(value)}" for name, value in stated.items() if name in _SAID]
    return question(model=trial.model, cluster=trial.cluster, knobs={**knobs, "gbs": trial.batch.gbs, **spread, **given},
                    precision=trial.topology.precision, engine=trial.engine, headroom=headroom, rules=rules,
                    sequence_parallel=sequence_parallel, settings=[*executed, *settings])


_SAID = frozenset(f.name for f in Execution.__dataclass_fields__.values()) - {"device"}


def place(trial: Trial, found: Found, *, source: str, fit: Calibration | None = None,
          headroom: Headroom = Headroom()) -> Document:
    """Where the layout stands: its seconds against all that were found, its memory, what one change would bring."""
    told = explain(trial, fit, headroom=headroom)
    # By what time and odds come to, as all that were found are ranked; both ways to the same figure end in other digits.
    *others, own = expected(np.append(found.sec, told.sec), np.append(found.odds, told.odds))
    ahead = int(np.sum(np.array(others) < own * (1 - 1e-9)))
    best = float(found.sec[0]) if len(found) else None
    assert trial.cluster is not None
    layout = {name: value for name, value in columns.by_field(trial, columns.LAYOUT).items() if value not in (None, "")}
    return {"file": source, **layout, "nodes": trial.cluster.nodes, "sec_per_it": round(told.sec, 6),
            "sec_lo": round(told.lo, 6), "sec_hi": round(told.hi, 6), "mem_gib": round(told.mem_gib, 3),
            "fits": word(told.odds), "fit_odds": round(told.odds, 4), "rank": ahead + 1, "of": found.accepted,
            "slower_by": None if best is None else round(told.sec / best - 1, 6),
            "changes": [{"what": change.what, "gain": round(change.gain, 6), "sec_per_it": round(change.sec, 6)}
                        for change in better(told)[:CHANGES] if change.gain is not None and change.sec is not None]}
