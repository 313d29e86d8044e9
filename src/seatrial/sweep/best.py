"""The best of a sweep: of each model the row that the table prints in bold, so that a line and a table never disagree.

    best: dict[str, Row] = {}           model -> its best so far
    note(best, row)                     most samples a second; what was measured whole goes before any estimate
    words(best)                         "best tp=1: 0.1 s/it"; of several models one each

What `stop.by` names decides what is stopped early, and nothing else: TFLOPs a process compare models and numbers of processes,
but the most of them is not the fastest run.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seatrial.record import Record
    from seatrial.sweep.store import Row


def model_of(record: Record) -> str:
    """As `table` tells models apart."""
    return record.size_label or f"{record.layers} layers of {record.hidden}"


def note(best: dict[str, Row], row: Row) -> None:
    if row.status != "ok" or row.samples_per_s is None:
        return
    there = best.get(row.model)
    if there is None or _place(row) > _place(there):
        best[row.model] = row


def _place(row: Row) -> tuple[bool, float]:
    return row.state == "measured", row.samples_per_s or 0.0


def words(best: Mapping[str, Row]) -> str:
    return ", ".join(f"best{f' of {model}' if len(best) > 1 else ''} {row.label}: {row.sec_per_it:.4g} s/it"
                     f"{' (estimated)' if row.state == 'estimated' else ''}" for model, row in best.items())


def labels(best: Mapping[str, Row]) -> str:
    """Names alone."""
    return ", ".join(f"{row.label} ({model})" if len(best) > 1 else row.label for model, row in best.items())
