"""Rows as records of a logbook: `python -m benchmarks.gpu --records out/gpu.json --logbook book`, on any machine, any time."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.shapes import ROWS, trial_of

from seatrial import columns
from seatrial.logbook import Logbook
from seatrial.record import Outcome, Record

ENGINES = {"ours": "seatrial", "megatron": "megatron-core", "plain": "pytorch"}
"""Of kinds of rows whose name is not the engine's."""


def write(source: Path, book: Path) -> int:
    """How many rows were appended; rows that failed are records too."""
    rows = json.loads(source.read_text(encoding="utf-8"))["rows"]
    found = [_record(name, row) for name, row in rows.items() if name in ROWS and "missing" not in row]
    with Logbook(book, create=True) as log:
        log.append_many(record.to_dict() for record in found)
    return len(found)


def _record(name: str, found: dict[str, Any]) -> Record:
    row = ROWS[name]
    asked = {key: value for key, value in columns.flat(trial_of(row)).items() if value is not None}
    asked |= {"section": "benchmarks.gpu", "size_label": row.shape, "machine": found.get("device", ""),
              "torch_version": found.get("torch", ""), "engine": ENGINES.get(row.kind, row.kind),
              "notes": f"{name.partition('@')[0]}: {row.what}"}
    if "error" in found:
        return Record(state="failed", outcome=Outcome(status="crash", message=found["error"]), **asked)
    sec, tflops, gib = (float(f"{found[figure]:.5g}") for figure in ("sec", "tflops", "reserved_gib"))
    return Record(state="measured", outcome=Outcome(status="ok"), sec_per_it=sec, tflops=tflops, formula="model",
                  tflops_per="process", mem_value=gib, mem_unit="GiB", mem_measure="reserved", **asked)
