"""Faults in the ranks of an engine: the outcome that is said of each, and the rank that is named for it.

A fault is put in from outside (`inject/`), or is a trial that the engine refuses and our rules are made to let through.
"""
from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from benchmarks.engines.each import Data, Each, label
from benchmarks.engines.layouts import Row

from seatrial import trialfile
from seatrial.launch.local import Local
from seatrial.launch.trial import Limits, run_trial

LIMIT_S, STALL_S, STEPS = 120.0, 6.0, 5
CAP_GIB = 1.5
"""Of `leak`: a rank's own data."""
OUTCOMES = {"kill": "crash", "raise": "crash", "stop": "hang", "tensor": "oom_host", "memory": "oom_host", "leak": "oom_host",
            "nan": "nan", "loop": "hang", "busy": "hang", "refused": "invalid"}  # fmt: skip
KINDS = ("kill", "raise", "stop", "tensor", "refused", "nan", "loop", "memory", "busy", "leak")
INJECT = Path(__file__).parent / "inject"


def faults(engine: Each, *, count: int = 20, seed: int = 3) -> Iterator[Row]:
    rng = random.Random(seed)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        layout = rng.choice([one for one in engine.faulty if kind != "nan" or one.get("dp", 1) > 1])
        data: Data = {"model": engine.model, "batch": {"gbs": 16}, "topology": layout}
        rank = rng.randrange(trialfile.build({**data, "engine": engine.name})[0].world)
        step, phase = rng.randint(2, STEPS - 1), "forward" if kind == "nan" else rng.choice(("forward", "optimizer"))
        if kind == "refused":
            yield struck(engine, kind, engine.refused[number // len(KINDS) % len(engine.refused)], {}, said=kind)
        else:
            fault = {"PYTHONPATH": str(INJECT), "SEATRIAL_THEIR_FAULT": f"{kind}:{rank}:{step}:{phase}"}
            yield struck(engine, kind, data, fault, rank=rank, said=f"{kind} rank {rank} step {step} {phase}")


def struck(engine: Each, kind: str, data: Data, variables: dict[str, str], *, said: str, rank: int | None = None) -> Row:
    """Without `rank` all refuse alike, and any of them is the first."""
    data = {**data, "engine": engine.name, "environment": {"variables": variables},
            "recipe": {"steps": STEPS, "stall_s": STALL_S, "start_s": 90.0}}
    trial, recipe = trialfile.build(data)
    limits = Limits(time_limit_s=LIMIT_S, memory_cap_gib=CAP_GIB if kind == "leak" else None)
    with tempfile.TemporaryDirectory(prefix="seatrial-faults-") as folder, \
            mock.patch.object(type(engine.adapter), "can_run", lambda *_: None):
        local = Local()
        outcome = run_trial(trial, recipe, local, Path(folder) / "run", limits=limits).outcome
        local.close()
    assert outcome is not None
    culprit = outcome.rank == rank if rank is not None else outcome.rank is not None
    return {"part": "faults", "engine": engine.name, "case": f"{said}, {label(data['topology'])}", "status": outcome.status,
            "good": outcome.status == OUTCOMES[kind], "culprit": culprit,
            "said": f"{'' if culprit else f'NAMED {outcome.rank}: '}{outcome.message}"}
