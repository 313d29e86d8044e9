"""Rows as records of a logbook: `python -m benchmarks.gpu --records out/gpu.json --logbook book`, on any machine, any time."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.shapes import ROWS, trial_of

from seatrial.logbook import Logbook
from seatrial.record import Outcome, Record
from seatrial.spec import Execution


def write(source: Path, book: Path) -> int:
    """How many rows were appended; rows that failed are records too."""
    rows = json.loads(source.read_text(encoding="utf-8"))["rows"]
    found = [_record(name, row) for name, row in rows.items() if name in ROWS]
    with Logbook(book, create=True) as log:
        log.append_many(record.to_dict() for record in found)
    return len(found)


def _record(name: str, found: dict[str, Any]) -> Record:
    row = ROWS[name]
    trial = trial_of(row)
    m, t = trial.model, trial.topology
    asked: dict[str, Any] = {
        "section": "benchmarks.gpu", "size_label": name, "machine": found.get("device", ""), "nodes": 1, "gpus": 1,
        "torch_version": found.get("torch", ""), "procs_per_node": 1, "family": m.family, "layers": m.layers,
        "hidden": m.hidden, "heads": m.heads, "seq": m.seq, "vocab": m.vocab, "dp": 1, "tp": 1, "pp": 1, "mbs": t.mbs,
        "gbs": trial.batch.gbs, "recompute": row.recompute, "dtype": row.precision,
        "optimizer": Execution(moments=row.moments).update,  # type: ignore[arg-type]
        "engine": "seatrial" if row.kind == "ours" else row.what,
    }  # fmt: skip
    if "error" in found:
        return Record(state="failed", outcome=Outcome(status="crash", message=found["error"]), **asked)
    return Record(state="measured", outcome=Outcome(status="ok"), sec_per_it=found["sec"], tflops=found["tflops"],
                  formula="model", tflops_per="process", mem_value=found["reserved_gib"], mem_unit="GiB", **asked)
