"""run.json: all that the engine is told. Written by the host, read by every rank; the same words as everywhere else.

    write(RunFile(trial=…, recipe=…, out="out"), Path("out/run.json"))
    python -m seatrial.engine out/run.json
"""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from seatrial import fields
from seatrial.errors import BadInput
from seatrial.files import write_whole
from seatrial.plaindata import read_json
from seatrial.recipe import Recipe, moved
from seatrial.spec import Trial

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class RunFile:
    trial: Trial
    recipe: Recipe = field(default_factory=Recipe)
    out: str = "."
    """The folder that events, traces, heartbeats and stacks are written to."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise BadInput(f"run.json: schema {self.schema} is not the {SCHEMA} that this version reads")
        self.recipe.check(self.trial.execution)

    @property
    def run_id(self) -> str:
        return self.trial.run_id()


def write(run: RunFile, path: Path | str) -> None:
    """Whole or not at all: a rank that starts early must not read half a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {**fields.plain(run), "schema": run.schema}
    write_whole(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read(path: Path | str) -> RunFile:
    data = read_json(path)
    if isinstance(data, dict) and isinstance(data.get("trial"), dict) and "training" in data:  # as older versions wrote it
        tables = moved({**data["trial"], "training": data["training"]}, where=str(path))
        data = {**{k: v for k, v in data.items() if k != "training"}, "recipe": tables.pop("recipe", {}), "trial": tables}
    return fields.build(RunFile, data, where=str(path))
