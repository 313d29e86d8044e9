"""What the planner expects of each row, beside what was measured: seconds, memory, and what both are made of.

    made = forecasts.of(records, Clusters.read(["jz-a100", "fugaku=fugaku"], ["recompute=full"]))
    made[3].sec, made[3].parts_s["bubble"], made[3].memory_gib["weights"]

A row is forecast on the cluster that its trial names, on the one that is given for it, or on the preset that its machine has
the name of. Without any of them there is no forecast. Nothing is learned from the rows themselves: they are what it is compared
with. What other rows taught can be given.
"""
from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from seatrial import fields, presets
from seatrial.engines import engine_name
from seatrial.errors import BadInput
from seatrial.record import Record
from seatrial.spec import Cluster, Trial

if TYPE_CHECKING:
    from seatrial.plan.calibrate import Calibration

DEFAULTED = ("heads", "seq", "vocab", "dp", "mbs", "gbs", "zero_stage", "recompute", "dtype")
"""What the planner takes a usual value for when a row does not say."""
ASSUMABLE = (*DEFAULTED, "engine", "attention", "overlap")


@dataclass(frozen=True, kw_only=True)
class Forecast:
    sec: float
    lo: float
    hi: float
    """Of the 90 % interval."""
    mem_gib: float | None = None
    mem_lo: float | None = None
    mem_hi: float | None = None
    limit_gib: float | None = None
    fit_odds: float | None = None
    """That it fits."""
    engine: str = ""
    """Whose facts it stands on."""
    parts_s: dict[str, float] = field(default_factory=dict)
    memory_gib: dict[str, float] = field(default_factory=dict)
    trial: Trial | None = None
    assumed: tuple[str, ...] = ()
    """Fields that the row does not state and the forecast took a usual value for."""
    device: str = ""
    elsewhere: str = ""
    """Why it is not to be compared with what was measured: the row ran on another kind of device than it speaks of."""


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Which machine rows without one of their own stood on."""

    named: tuple[tuple[str, Cluster], ...] = ()
    """A part of the file's, session's or machine's name, and the cluster; an empty part fits all."""
    assume: dict[str, str] = field(default_factory=dict)
    """Field -> what the forecast takes where a row does not say: `recompute` -> `full`."""
    learned: tuple[Calibration, ...] = ()
    """What forecasts on their clusters know from other rows; by default nothing."""

    @classmethod
    def read(cls, words: Sequence[str], assume: Sequence[str] = (), calibrations: Sequence[str | Path] = ()) -> Clusters:
        """`NAME` for every row, `TEXT=NAME` for those whose file, session or machine has TEXT in its name."""
        pairs = sorted((word.rpartition("=") for word in words), key=lambda pair: -len(pair[0]))
        given: dict[str, str] = {}
        for word in assume:
            name, equals, value = word.partition("=")
            if not equals or name not in ASSUMABLE:
                raise BadInput(f"--assume {word!r}: expected NAME=VALUE; {fields.nearest(name, ASSUMABLE)}")
            if name == "engine":
                engine_name(value)
            given[name] = value
        return cls(named=tuple((text, presets.cluster(name)) for text, _, name in pairs), assume=given,
                   learned=tuple(_calibration(path) for path in calibrations))

    def fit_for(self, machine: Cluster) -> Calibration:
        from seatrial.plan import calibrate

        known = next((fit for fit in self.learned if fit.cluster.name == machine.name), None)
        return calibrate.cold(machine) if known is None else replace(known, cluster=machine)

    def of(self, record: Record) -> Cluster | None:
        where = f"{record.source_file}\n{record.session}\n{record.machine}"
        return next((cluster for text, cluster in self.named if text in where), None) or _by_name(record.machine)


@functools.cache
def _by_name(machine: str) -> Cluster | None:
    return presets.cluster(machine) if machine in presets.shipped()["clusters"] else None


def of(records: Sequence[Record], clusters: Clusters) -> dict[int, Forecast]:
    """Row -> forecast, for those that can have one."""
    found = {place: own for place, record in enumerate(records) if (own := _stated(record)) is not None}
    groups: dict[str, tuple[Cluster, list[tuple[int, Trial, Record]]]] = {}
    for place, record in enumerate(records):
        trial = _trial(record, clusters)
        if trial is None or trial.cluster is None:
            continue
        machine = clusters.of(record) or trial.cluster
        key = json.dumps(fields.plain(machine.with_nodes(1)), sort_keys=True)
        groups.setdefault(key, (machine, []))[1].append((place, trial, record))
    for machine, rows in groups.values():
        found |= _together(clusters.fit_for(machine), machine, rows)
    return found


def _stated(record: Record) -> Forecast | None:
    """What the record itself was forecast to take, before it ran."""
    sec, lo, hi = (record.forecast.get(name) for name in ("sec", "sec_lo", "sec_hi"))
    if isinstance(sec, int | float) and isinstance(lo, int | float) and isinstance(hi, int | float):
        return Forecast(sec=float(sec), lo=float(lo), hi=float(hi))
    return None


def elsewhere(record: Record, cluster: Cluster) -> str:
    """A trial that names a cluster may be run on any machine: its memory figures say of which kind that was."""
    ran, kind = ran_on(record), cluster.device.kind
    if ran in ("", kind):
        return ""
    where = f" ({record.machine})" if record.machine else ""
    return f"measured on a {ran.upper()}{where}, forecast for {cluster.device.name} of {cluster.name}"


def ran_on(record: Record) -> str:
    """`cpu`, `gpu`, or nothing where it does not say."""
    fullest = record.memory.get("fullest")
    if isinstance(fullest, Mapping):
        return "gpu" if "reserved_peak_gib" in fullest or "allocated_peak_gib" in fullest else "cpu" if fullest else ""
    return "cpu" if str(record.versions.get("torch", "")).endswith("+cpu") else ""


def _trial(record: Record, clusters: Clusters) -> Trial | None:
    return trial_on(record, clusters.of(record), assume=clusters.assume)


def trial_on(record: Record, cluster: Cluster | None, *, assume: Mapping[str, str] = MappingProxyType({})) -> Trial | None:
    """The trial of a row: its own where that names a cluster, else what it says on the given one."""
    if record.trial.get("cluster"):
        try:
            return fields.build(Trial, record.trial, where="record.trial")
        except BadInput:
            return None
    if cluster is None:
        return None
    from seatrial.plan import rows

    return rows.read_row(record.to_dict(), cluster, assume=assume).trial


def _calibration(path: str | Path) -> Calibration:
    from seatrial.plan.calibrate import Calibration

    return Calibration.load(path)


def _together(fit: Calibration, machine: Cluster, wanted: list[tuple[int, Trial, Record]]) -> dict[int, Forecast]:
    from seatrial.engines.model import model_of
    from seatrial.plan import memory, step
    from seatrial.plan.forecast import odds_of
    from seatrial.plan.odds import limit_gib
    from seatrial.plan.rows import Row, configs_of

    rows = [Row(cells={}, trial=trial, session=record.session or record.date) for _, trial, record in wanted]
    configs = configs_of(rows)
    seen, odds = fit.forecast(rows), odds_of(rows, fit)
    timed, peak = step.time(configs, machine, fit.coefficients()), memory.peak(configs, machine)
    return {
        place: Forecast(
            sec=float(seen.sec[i]), lo=float(seen.sec_lo[i]), hi=float(seen.sec_hi[i]), mem_gib=float(seen.mem[i]),
            mem_lo=float(seen.mem_lo[i]), mem_hi=float(seen.mem_hi[i]), limit_gib=limit_gib(trial.cluster or machine),
            fit_odds=float(odds[i]), engine=model_of(trial.engine).name,
            parts_s={name: float(values[i]) for name, values in timed.parts.items()},
            memory_gib={name: float(values[i]) for name, values in peak.parts.items()}, trial=trial,
            assumed=tuple(name for name in DEFAULTED if getattr(record, name) in (None, "")), device=machine.device.name,
            elsewhere=elsewhere(record, machine))
        for i, (place, trial, record) in enumerate(wanted)
    }  # fmt: skip
