"""Models that somebody else described: a Hugging Face config.json, a row of a logbook.

    values_of("Llama-3.1-8B/config.json")       plain values of a Model; also of the folder that has one
    values_of("book:3f2a")                      of the row whose run id begins so
    values_of("bloom-181b")                     None: neither
"""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seatrial import fields
from seatrial.errors import BadInput
from seatrial.plaindata import read_json
from seatrial.spec import Model

CONFIG = "config.json"
SHAPE = ("layers", "hidden", "heads", "vocab", "seq")
"""What a row must say where it does not keep its trial."""


def values_of(name: str, *, seq: int | None = None) -> dict[str, Any] | None:
    """`seq`: a training sequence other than the longest that a configuration names."""
    path = Path(name)
    folder = os.path.isdir(name)  # False too for a name that is too long for one
    if folder and (path / CONFIG).exists():
        path = path / CONFIG
    if path.suffix == ".json":
        return _of_config(path, seq)
    book, colon, run_id = name.rpartition(":")
    if colon and os.path.isdir(book):
        return _of_row(book, run_id)
    if folder:
        raise BadInput(f"{name}: a folder without {CONFIG}; a row of a logbook is {name}:RUN-ID")
    return None


def _of_config(path: Path, seq: int | None) -> dict[str, Any]:
    from seatrial.huggingface import hfconfig

    config = read_json(path)
    if not isinstance(config, Mapping):
        raise BadInput(f"{path}: expected a table, as a Hugging Face {CONFIG} has")
    made = hfconfig.model_of(config, where=str(path), seq=seq)
    return {**fields.plain(made), "name": made.name or path.absolute().parent.name}


def _of_row(book: str, run_id: str) -> dict[str, Any]:
    from seatrial.logbook import Logbook

    if not run_id:
        raise BadInput(f"{book}: name the row too, as {book}:RUN-ID")
    with Logbook(book) as log:
        found = {str(row["run_id"]): row for row in log.records() if str(row.get("run_id") or "").startswith(run_id)}
    if len(found) != 1:
        some = f": {', '.join(list(found)[:4])}" if found else ""
        raise BadInput(f"{book}:{run_id}: {len(found) or 'no'} run ids begin so{some}")
    (row,) = found.values()
    return model_values(row, where=f"{book}:{run_id}: ")


def model_values(row: Mapping[str, Any], *, where: str = "") -> dict[str, Any]:
    """Of a record: its trial's, else what its columns say."""
    trial = row.get("trial")
    values = trial.get("model") if isinstance(trial, Mapping) else None
    if isinstance(values, Mapping):
        return dict(values)
    known = {field.name for field in dataclasses.fields(Model)}
    values = {key: value for key, value in row.items() if key in known and value not in (None, "")}
    if missing := [key for key in SHAPE if key not in values]:
        raise BadInput(f"{where}the row does not say the model's {', '.join(missing)}")
    return values
