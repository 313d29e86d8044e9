"""A table forecast: the same rows, each with seconds, TFLOPs and memory, whether it fits, and why not where it cannot be.

    written = forecast.columns(rows.read("rows.csv", cluster), calibrate.cold(cluster))

Seconds and GiB carry their 90 % interval. TFLOPs is formula `sc21`, a process.
"""
from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from seatrial import arith, presets
from seatrial import columns as of_record
from seatrial.arith import FORMULA
from seatrial.engines.model import model_of
from seatrial.files import save
from seatrial.plan import probed
from seatrial.plan.calibrate import Calibration
from seatrial.plan.configs import Floats
from seatrial.plan.held import Held
from seatrial.plan.odds import Headroom, limit_gib, odds, word
from seatrial.plan.rows import Row, Table, configs_of, read
from seatrial.spec import Cluster, Trial
from seatrial.tables.codec import encode_csv

COLUMNS = ("forecast_sec", "forecast_sec_lo", "forecast_sec_hi", "forecast_tflops", "forecast_mem_gib", "forecast_mem_lo",
           "forecast_mem_hi", "forecast_fits", "forecast_fit_odds", "forecast_engine", "forecast_reject")

CHUNK = 4096


def columns(table: Table, fit: Calibration, headroom: Headroom = Headroom()) -> list[dict[str, str]]:
    """The same as text, with five digits that count: more would be a claim."""
    return [{name: "" if value is None else value if isinstance(value, str) else f"{float(f'{value:.5g}'):.10g}"
             for name, value in line.items()} for line in figures(table.rows, fit, headroom)]  # fmt: skip


def figures(rows: Sequence[Row], fit: Calibration, headroom: Headroom = Headroom()) -> list[dict[str, Any]]:
    """One entry a row, in order; a rejected row has the reason alone."""
    kept = [row for row in rows if row.trial is not None]
    made = iter([line for i in range(0, len(kept), CHUNK) for line in _forecast(kept[i : i + CHUNK], fit, headroom)])
    empty = dict.fromkeys(COLUMNS)
    return [{**empty, **({"forecast_reject": row.reject} if row.trial is None else next(made))} for row in rows]


def _forecast(rows: Sequence[Row], fit: Calibration, headroom: Headroom) -> list[dict[str, Any]]:
    if not rows:
        return []
    found, fit_odds = fit.forecast(rows), odds_of(rows, fit, headroom)
    lines = []
    for i, row in enumerate(rows):
        trial = row.trial
        assert trial is not None
        lines.append({
            "forecast_sec": float(found.sec[i]), "forecast_sec_lo": float(found.sec_lo[i]),
            "forecast_sec_hi": float(found.sec_hi[i]), "forecast_tflops": tflops(trial, float(found.sec[i])),
            "forecast_mem_gib": float(found.mem[i]), "forecast_mem_lo": float(found.mem_lo[i]),
            "forecast_mem_hi": float(found.mem_hi[i]),
            "forecast_fits": word(fit_odds[i]), "forecast_fit_odds": float(fit_odds[i]),
            "forecast_engine": model_of(trial.engine).name,
        })
    return lines


def odds_of(rows: Sequence[Row], fit: Calibration, headroom: Headroom = Headroom()) -> Floats:
    """That each fits where it stands: processes of a row share its own node."""
    held = Held.of(configs_of(list(rows)), fit.cluster, fit)
    limits = [limit_gib(row.trial.cluster or fit.cluster, headroom) for row in rows if row.trial is not None]
    return odds(held.need_gib, held.sigma, np.array(limits))


def table_of(source: str | Path, cluster: str | Cluster | None = None, machine: str | Path | None = None,
             assume: Mapping[str, str] = MappingProxyType({}), *, format: str | Path | None = None) -> tuple[Table, Cluster]:
    """The rows of a CSV file or a logbook on a cluster; those of a sweep's file on the cluster that it names.

    `assume`: column -> what a row means that does not say: {"engine": "fsdp2"}. `format`: of a log, as `import_file` has it.
    """
    if Path(source).suffix != ".toml":
        here = cluster_of(cluster, machine)
        return read(source, here, assume, format=format), here
    from seatrial.sweep import file as sweeps
    from seatrial.sweep import forecasts

    said = presets.read_toml(source)
    table, here = forecasts.as_table(sweeps.load(source, [f"{path}={value}" for name, value in assume.items()
                                                          if not _says(said, path := of_record.COLUMNS[name].path)]))
    if machine is not None:
        presets.machine_for(here, machine)
        here = replace(here, machine=str(machine))
    return table, here


def _says(data: Mapping[str, Any], path: str) -> bool:
    table, _, name = path.rpartition(".")
    return name in (data.get(table, {}) if table else data)


def cluster_of(name: str | Cluster | None, machine: str | Path | None = None) -> Cluster:
    """By its name or its file, with what was probed of it; what was probed is a cluster by itself."""
    path = None if machine is None else str(presets.machine_path(str(machine)))
    if isinstance(name, Cluster):
        return name if path is None else replace(name, machine=path)
    if path is None:
        return presets.cluster(name or "jz-a100")
    return presets.cluster(path) if name is None else presets.cluster(name, {"machine": path})


def rests_on(table: Table, cluster: Cluster) -> dict[str, Any]:
    """As `machine`, what of the forecast was measured by a probe; nothing where there was none."""
    trials = [row.trial for row in table.rows if row.trial is not None]
    found = probed.basis(cluster, precision=trials[0].topology.precision,
                        processes=max(trial.world for trial in trials)) if trials else None  # fmt: skip
    return {} if found is None else {"machine": found}


def tflops(trial: Trial, sec: float) -> float:
    t = trial.topology
    return arith.tflops(FORMULA, trial.model, samples=trial.batch.gbs, sec_per_it=sec, processes=t.world,
                        recompute="full" if t.recompute == "full" else "none", tp=t.tp, pp=t.pp)


def write(path: Path, table: Table, made: list[dict[str, str]]) -> None:
    """The table with its forecast, whole or not at all."""
    header = [*(name for name in table.header if name not in COLUMNS), *COLUMNS]
    text = io.StringIO()
    writer = csv.DictWriter(text, header, extrasaction="ignore", lineterminator="\n")
    writer.writerow({name: encode_csv(name) for name in header})
    writer.writerows({name: encode_csv(str(value)) for name, value in {**row.cells, **line}.items()}
                     for row, line in zip(table.rows, made))
    save(path, text.getvalue())
