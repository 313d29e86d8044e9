"""What has already been measured of a layout: rows of a table whose model, topology, batch and nodes are the same.

    known = Measured.of(rows.read("rows.csv", cluster).rows)
    known.seconds(trial)                    (110.48, 111.02), oldest row first; () where nobody ran it
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from seatrial.plan.rows import Row
from seatrial.spec import Topology, Trial

Key = tuple[tuple[int, ...], Topology, int, int]


@dataclass(frozen=True)
class Measured:
    by_layout: dict[Key, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Measured:
        """Only rows that count: measured, no estimate, no copy of another."""
        found: dict[Key, list[float]] = {}
        for row in rows:
            if row.counts and row.trial is not None and row.sec_per_it is not None:
                found.setdefault(_key(row.trial), []).append(row.sec_per_it)
        return cls(found)

    def seconds(self, trial: Trial) -> tuple[float, ...]:
        return tuple(self.by_layout.get(_key(trial), ()))


def _key(trial: Trial) -> Key:
    m = trial.model
    shape = (m.layers, m.hidden, m.heads, m.kv, m.inner, m.seq, m.vocab)
    return shape, trial.topology, trial.batch.gbs, trial.cluster.nodes if trial.cluster is not None else 0
