"""A table in place of the machine: a measured row is returned when its trial is chosen, and not before.

    oracle = Oracle.read("rows.csv", cluster, model=model, nodes_max=48, leave_out=["bloom-prequel:475"])
    oracle.trials                       the candidates; no figure of any row
    record = oracle.measure(trial)      one of its rows; with several the seed chooses

A row that failed is returned as its outcome. Copies, estimates and rows that were never run are left out, and so is what
the rules of the engine refuse: nobody would have started it.
"""
from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from seatrial import columns, fields
from seatrial.errors import BadInput
from seatrial.outcomes import OUTCOMES, having
from seatrial.plan import rows as table
from seatrial.plan.rows import Row
from seatrial.record import Outcome, Record
from seatrial.spec import Cluster, Model, Trial

STATUS = {kind.short: status for status, kind in reversed(OUTCOMES.items())}
"""Words of tables -> outcomes; those that are outcomes already stand for themselves."""
FAILED = having("kind", "failed")


class Oracle:
    def __init__(self, rows: Sequence[Row], *, seed: int = 0):
        self._rows: dict[str, list[Row]] = {}
        self._seed = seed
        self.trials: list[Trial] = []
        for row in rows:
            if row.trial is None or not (row.counts and row.sec_per_it is not None or outcome_of(row) in FAILED):
                continue
            key = row.trial.run_id()
            if key not in self._rows:
                self.trials.append(row.trial)
            self._rows.setdefault(key, []).append(row)

    @classmethod
    def read(cls, path: str | Path, cluster: Cluster, *, model: Model | None = None, nodes_max: int | None = None,
             leave_out: Iterable[str] = (), seed: int = 0) -> Oracle:
        return cls(choose_rows(table.read(path, cluster).rows, cluster, path=str(path), model=model, nodes_max=nodes_max,
                               leave_out=leave_out), seed=seed)

    def measure(self, trial: Trial, *, seconds: float | None = None) -> Record:
        """A table takes no time: `seconds` is the machine's."""
        try:
            rows = self._rows[trial.run_id()]
        except KeyError:
            raise BadInput(f"the table has no row of trial {trial.run_id()}") from None
        return record_of(random.Random(f"{self._seed}/{trial.run_id()}").choice(rows))


def choose_rows(rows: Sequence[Row], cluster: Cluster, *, path: str, model: Model | None = None, nodes_max: int | None = None,
                leave_out: Iterable[str] = ()) -> list[Row]:
    """The rows of one model on one machine."""
    named = [row for row in rows if row.machine == cluster.name]
    found = [row for row in named or rows if row.trial is not None]
    if nodes_max is not None:
        found = [row for row in found if row.trial and row.trial.cluster and row.trial.cluster.nodes <= nodes_max]
    for name in leave_out:
        if not any(name in names(row) for row in rows):
            raise BadInput(f"--leave-out {name}: {path} has no such row; a row is named as FILE:LINE, as in {rows[0].where}")
        found = [row for row in found if name not in names(row)]
    shapes = {_shape(row.trial.model): row.trial.model for row in found if row.trial}
    if model is not None:
        found = [row for row in found if row.trial and _shape(row.trial.model) == _shape(model)]
    elif len(shapes) > 1:
        listed = ", ".join(f"{layers} x {hidden} with {heads} heads" for layers, hidden, heads, _ in sorted(shapes)[:4])
        raise BadInput(f"{path}: rows of {len(shapes)} models ({listed}, …): --model says which of them is searched")
    if not found:
        which = f" of {model.layers} layers x {model.hidden}, {model.heads} heads" if model else ""
        raise BadInput(f"{path}: no row{which} on {cluster.name}")
    return found


def names(row: Row) -> tuple[str, ...]:
    """How a person may name a row: the file read and its line, or the log and the line that it came from."""
    source, line = _source(row)
    return row.where, f"{source}:{line}"


def _source(row: Row) -> tuple[str, str]:
    """The file and the line that the row came from, as a CSV file or a record has them."""
    return str(row.cells.get("source_file") or ""), str(row.cells.get("line_no") or row.cells.get("source_line") or "")


def _shape(model: Model) -> tuple[int, int, int, int]:
    return model.layers, model.hidden, model.heads, model.seq


def outcome_of(row: Row) -> str:
    return STATUS.get(row.status, row.status or "ok")


def record_of(row: Row) -> Record:
    trial = row.trial
    assert trial is not None
    source, line = _source(row)
    status, timed = outcome_of(row), row.counts and row.sec_per_it is not None
    failed = Outcome(status=status, message=f"{row.where}: {row.status}")  # type: ignore[arg-type]
    return Record(
        state="measured" if timed else "failed", outcome=None if timed else failed, run_id=trial.run_id(), session=row.session,
        source_file=source, source_line=int(line) if line.isdigit() else None, date=row.cells.get("date", ""),
        machine=row.cells.get("machine", ""), **columns.flat(trial, columns.LAYOUT),
        sec_per_it=row.sec_per_it if timed else None, time_unit="s" if timed else "", mem_value=row.mem_gib,
        mem_unit="GiB" if row.mem_gib is not None else "", trial=fields.plain(trial))
