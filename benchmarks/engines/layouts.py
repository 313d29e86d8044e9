"""Layouts through the whole way: emitted, launched, read, recorded, no hand in between; and single steps of random ones."""
from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.engines.each import Data, Each, label

from seatrial import trialfile
from seatrial.engines import engine_for
from seatrial.errors import BadInput
from seatrial.launch.local import Local
from seatrial.launch.trial import Limits, run_trial

LIMIT_S = 300.0
Row = dict[str, object]


def layouts(engine: Each, *, steps: int = 4) -> Iterator[Row]:
    for layout in engine.layouts:
        yield ran(engine, {"model": engine.model, "batch": {"gbs": 16}, "topology": layout}, label(layout), steps=steps)


def steps(engine: Each, *, count: int = 20, seed: int = 1, most: int = 8) -> Iterator[Row]:
    """Random layouts that our rules allow, on `most` processes at most: each builds and takes one step."""
    rng = random.Random(seed)
    while count:
        data = engine.draw(rng)
        try:
            trial, _ = trialfile.build({**data, "engine": engine.name})
            engine_for(trial).can_run(trial)
        except BadInput:
            continue
        if 1 < trial.world <= most:
            yield ran(engine, data, label(data["topology"]), steps=1)
            count -= 1


def ran(engine: Each, data: Data, said: str, *, steps: int) -> Row:
    trial, recipe = trialfile.build({**data, "engine": engine.name, "recipe": {"steps": steps}})
    row: Row = {"part": "layouts", "engine": engine.name, "case": said}
    try:
        engine_for(trial).can_run(trial)
    except BadInput as error:
        return {**row, "status": "refused", "good": None, "said": str(error)}
    with tempfile.TemporaryDirectory(prefix="seatrial-engines-") as folder:
        local = Local()
        record = run_trial(trial, recipe, local, Path(folder) / "run", limits=Limits(time_limit_s=LIMIT_S))
        local.close()
    assert record.outcome is not None
    good = record.outcome.status == "ok" and record.iteration == steps and record.loss is not None
    message = record.outcome.message
    if good:
        message = f"loss {record.loss:.4f}"
        if record.sec_per_it is not None:
            message += f"  {record.sec_per_it:.3f} s/it"
        if record.mem_gib is not None:
            message += f"  {record.mem_gib:.2f} GiB"
    return {**row, "status": record.outcome.status, "good": good, "said": message, "world": trial.world}
