"""`seatrial forecast` and `seatrial calibrate`: a table of trials forecast row by row, and what measured rows teach.

    seatrial forecast rows.csv --cluster jz-a100 -o forecast.csv
    seatrial forecast sweep.toml
    seatrial forecast rows.csv --cluster jz-a100 --calibrate measured.csv -o forecast.csv
    seatrial calibrate measured.csv --cluster jz-a100
"""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seatrial.commands.plan import say_gaps, with_machine
from seatrial.options import MACHINE

if TYPE_CHECKING:
    from seatrial.plan.calibrate import Fit


def register(app: typer.Typer) -> None:
    @app.command("forecast", help="Forecast each row of a CSV table: seconds, TFLOPs, memory, whether it fits.")
    def forecast(
        rows: Path = typer.Argument(None, help="CSV with the columns of a trial, or a sweep as TOML.", metavar="ROWS.csv"),
        cluster: str | None = typer.Option(None, help="Name of a cluster, or a TOML file with a [cluster] table; a sweep has "
                                                      "its own.", show_default="jz-a100"),
        machine: Path | None = MACHINE,
        calibrate: Path = typer.Option(None, help="CSV of measured rows to learn from first.", metavar="ROWS.csv"),
        output: Path = typer.Option(None, "--output", "-o", help="Where to write; else to the screen.", metavar="OUT.csv"),
        defaults: bool = typer.Option(False, help="Print what an empty cell of each column means, and stop."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
    ) -> int:
        from dataclasses import replace

        from seatrial import presets
        from seatrial.errors import EXIT_GOOD, BadInput
        from seatrial.plan import calibrate as learning
        from seatrial.plan import forecast as forecasting
        from seatrial.plan import rows as tables

        if defaults:
            print(json.dumps(tables.DEFAULTS) if as_json else "\n".join(f"{k:32} {v}" for k, v in tables.DEFAULTS.items()))
            return EXIT_GOOD
        if rows is None:
            raise BadInput("which table? seatrial forecast ROWS.csv --cluster NAME -o OUT.csv")
        if rows.suffix == ".toml":
            from seatrial.sweep import file as sweeps
            from seatrial.sweep import foresee

            table, here = foresee.as_table(sweeps.load(rows))
            if machine is not None:
                presets.machine_for(here, machine)
                here = replace(here, machine=str(machine))
        else:
            name, settings = with_machine(machine, cluster, [])
            here = presets.cluster(name or "jz-a100", {"machine": str(machine)} if settings else None)
            table = tables.read(rows, here)
        fit = learning.cold(here) if calibrate is None else learning.fit_csv(calibrate, here)
        made = forecasting.columns(table, fit)
        if table.ignored:
            print(f"{rows}: nothing reads {', '.join(table.ignored)}", file=sys.stderr)
        rejected = sum(line["forecast_reject"] != "" for line in made)
        if output is not None:
            forecasting.write(output, table, made)
        trials = [row.trial for row in table.rows if row.trial is not None]
        rests_on = say_gaps(here, precision=trials[0].topology.precision,
                            processes=max(trial.topology.world for trial in trials)) if trials else {}  # fmt: skip
        if as_json:
            print(json.dumps({"rows": [{**row.cells, **line} for row, line in zip(table.rows, made)], "rejected": rejected,
                              "learned": fit.describe() if fit.rows else None, **rests_on}))
        elif output is None:
            _screen(table.header, [{**row.cells, **line} for row, line in zip(table.rows, made)], forecasting.COLUMNS)
        _doubts(fit)
        where = f", written to {output}" if output is not None else ""
        print(f"{len(made)} rows, {rejected} rejected{where}", file=sys.stderr)
        return EXIT_GOOD

    @app.command("calibrate", help="Say what measured rows teach about a cluster, and which of them were not believed.")
    def calibrate_command(
        rows: Path = typer.Argument(..., help="CSV of measured rows (sec_per_it).", metavar="ROWS.csv"),
        cluster: str = typer.Option("jz-a100", help="Name of a cluster, or a TOML file with a [cluster] table."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
    ) -> int:
        from seatrial import presets
        from seatrial.errors import EXIT_GOOD
        from seatrial.plan import calibrate as learning

        fit = learning.fit_csv(rows, presets.cluster(cluster))
        found = fit.describe()
        if as_json:
            print(json.dumps(found))
            return EXIT_GOOD
        print(f"{found['rows']} rows; one differs from the fit by {found['noise_percent']} % (scale of Student's t)")
        learned = found["learned"]
        assert isinstance(learned, dict)
        for name, value in learned.items():
            print(f"  {name:52} x {value['factor']:<8} ± {value['percent']} %")
        _doubts(fit)
        return EXIT_GOOD


def _doubts(fit: Fit) -> None:
    for doubt in fit.doubted:
        print(f"not believed: {doubt.where}: {doubt.measured_s:.5g} s where {doubt.expected_s:.4g} s were expected",
              file=sys.stderr)


def _screen(header: tuple[str, ...], lines: list[dict[str, str]], columns: tuple[str, ...]) -> None:
    """The trial, what tells it from the others, and the forecast."""
    own = [c for c in ("trial", "nodes", "layers", "hidden", "dp", "tp", "pp", "mbs", "gbs") if c in header]
    if "trial" in own:
        own = [c for c in own if c == "trial" or len({line.get(c, "") for line in lines}) > 1]
    made = [c for c in columns if any(line.get(c) for line in lines)]
    shown = dict(zip([*own, *made], [*own, *(c.removeprefix("forecast_") for c in made)]))
    widths = [max(len(name), *(len(line.get(c, "")) for line in lines)) if lines else len(name) for c, name in shown.items()]
    for row in [shown, *lines]:
        print("  ".join(row.get(c, "").ljust(w) if c in ("trial", "forecast_reject") else row.get(c, "").rjust(w)
                        for c, w in zip(shown, widths)).rstrip())
